"""Every choice of parts is the same model with and without a cache, packed and alone, in training and
out of it; and each part is what its paper says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import tiny_model
from test_training import OPTIM, adamw, data, run, same, settings

from sifirdan.corpus import shards
from sifirdan.corpus.loader import Batches, Packed
from sifirdan.corpus.shards import Row, Shards
from sifirdan.errors import ConfigError
from sifirdan.generate import Sampling, generate
from sifirdan.model.transformer import segment_mask
from sifirdan.training.loop import fit
from sifirdan.training.losses import loss_function, loss_of_batch
from sifirdan.training.optim import build_optimizers
from sifirdan.training.resume import ResumeStore

__all__ = ["data"]  # a fixture
COMBINATIONS: list[dict[str, Any]] = [
    {"positions": "learned"},
    {"positions": "sinusoidal"},
    {"positions": "none"},
    {"norm": "layernorm", "bias": True},
    {"norm": "layernorm", "mlp": "gelu"},
    {"qk_norm": True, "num_kv_heads": 1},
    {"positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True, "num_kv_heads": 4},
    {"positions": "sinusoidal", "mlp": "gelu", "qk_norm": True, "tie_embeddings": True},
]


def ids(length: int = 48, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 300, (batch, length), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("parts", COMBINATIONS)
@torch.no_grad()
def test_G_01_with_a_cache_every_position_has_the_logits_of_the_whole(parts: dict) -> None:
    model, tokens = tiny_model(**parts), ids()
    whole = model(tokens)
    cache, found = model.new_cache(2, 48), []
    for start, end in [(0, 20), *((place, place + 1) for place in range(20, 48))]:
        positions = torch.arange(start, end)[None]
        found.append(model(tokens[:, start:end], positions=positions, cache=cache))
    assert float((torch.cat(found, 1) - whole).abs().max()) < 2e-5


@pytest.mark.parametrize("parts", COMBINATIONS)
def test_G_03_prompts_of_several_lengths_share_steps_and_change_nothing(parts: dict) -> None:
    model, prompts = tiny_model(**parts), [[5], [5, 6, 7], list(range(10, 33))]
    options: dict[str, Any] = {
        "max_new_tokens": 12, "sampling": Sampling(0.0, 0, 1.0), "stop_ids": [],
        "forbidden_ids": [], "seed": 1,
    }  # fmt: skip
    together = generate(model, prompts, **options)
    assert [c.ids for c in together] == [generate(model, [p], **options)[0].ids for p in prompts]


@pytest.mark.parametrize("parts", COMBINATIONS)
def test_F_04_a_packed_text_is_the_same_as_alone_in_training(parts: dict) -> None:
    model, text = tiny_model(**parts).train(), ids(20, 1)
    packed = torch.cat([ids(13, 1), text], dim=1)
    segments = torch.tensor([[1] * 13 + [2] * 20])
    positions = torch.tensor([[*range(13), *range(20)]])
    together = model(packed, positions=positions, mask=segment_mask(segments))[:, 13:]
    assert torch.allclose(together, model(text), atol=2e-5)


def test_F_04_training_tells_learned_positions_the_place_in_each_text(tmp_path: Path) -> None:
    rows = [
        Row([2, 5, 30 + i, 8, 6, 60 + i, 8], f"t{i}", "s", 0, [0, 0, 0, 0, 0, 1, 1])
        for i in range(8)
    ]
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=300, loss_mask=True)
    windows = Packed(Shards(tmp_path), context_length=16, seed=1, pad_id=3)
    model, seen = tiny_model(positions="learned"), []
    model.model.positions.register_forward_hook(lambda _, inputs, out: seen.append(inputs[1]))
    fit(
        model, build_optimizers(model, adamw(), torch.float32), Batches(windows, 2), settings(1),
        ResumeStore(tmp_path / "s", {}), validate=dict, on_resume=lambda _: None,
        on_point=lambda _: None, extra={},
    )  # fmt: skip
    assert torch.equal(seen[0].cpu(), torch.as_tensor(Batches(windows, 2)[0]["positions"]))
    assert int((seen[0] == 0).sum()) > 2  # several texts in a window


@pytest.mark.parametrize("parts", [{}, *COMBINATIONS])
@torch.no_grad()
def test_order_matters_and_later_tokens_do_not(parts: dict) -> None:
    model, before = tiny_model(**parts), ids()
    after = before.clone()
    after[:, 40:] = (after[:, 40:] + 1) % 300
    assert torch.equal(model(before)[:, :40], model(after)[:, :40])
    swapped = before.clone()
    swapped[:, [3, 7]] = before[:, [7, 3]]
    assert float((model(before) - model(swapped))[:, -1].abs().max()) > 1e-4
    alone = model(before[:, :1])  # one place, shifted: only what is added to embeddings tells it
    moved = model(before[:, :1], positions=torch.tensor([[9]]))
    added = parts.get("positions") in ("learned", "sinusoidal")
    assert (float((alone - moved).abs().max()) > 1e-3) is added


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "none"])
def test_more_than_the_context_is_refused_in_words(positions: str) -> None:
    model = tiny_model(positions=positions)
    for too_long in (
        lambda: model(ids(65)),
        lambda: model.embed(ids(65)),
        lambda: model.new_cache(1, 65),
    ):
        with pytest.raises(ConfigError, match=r"65 tokens do not fit(.|\n)*at most 64"):
            too_long()


def test_R_08_every_parameter_is_in_one_group_and_only_matrices_decay() -> None:
    for parts in COMBINATIONS:
        model = tiny_model(**parts)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for params in (OPTIM, adamw()):
            optimizers = build_optimizers(model, params, torch.float32)
            groups = [group for o in optimizers for group in o.param_groups]
            members = [id(p) for group in groups for p in group["params"]]
            assert sorted(members) == sorted(names), parts
            decayed = [names[id(p)] for g in groups if g["weight_decay"] for p in g["params"]]
            matrices = 7 if parts.get("mlp") != "gelu" else 6
            assert len(decayed) == 3 * matrices
            assert all(n.endswith("_proj.weight") and ".layers." in n for n in decayed)


@torch.no_grad()
def test_starting_weights_follow_their_source() -> None:
    parts = {"bias": True, "norm": "layernorm", "qk_norm": True, "positions": "learned"}
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_layers": 8}
    for init in ("gpt2", "zero_residual"):
        model = tiny_model(**parts, **sizes, init=init)
        model.initialise(torch.Generator().manual_seed(1))
        wanted = {"gpt2": (0.02, 0.02, 0.02 / 4, 0.02), "zero_residual": (0.8, 0.8, 0.0, 0.001)}
        block = model.model.layers[3]
        found = [
            model.model.embed_tokens.weight, model.model.positions.weight,
            block.self_attn.o_proj.weight, model.lm_head.weight,
        ]  # fmt: skip
        for weight, std in zip(found, wanted[init], strict=True):
            assert float(weight.std()) == pytest.approx(std, rel=0.05)
        assert not any(p.any() for n, p in model.named_parameters() if n.endswith(".bias"))
        assert bool((block.self_attn.q_norm.weight == 1).all())
    assert float(block.mlp.up_proj.weight.std()) == pytest.approx(0.5 / 128**0.5, rel=0.05)


@torch.no_grad()
def test_each_part_is_what_its_paper_says() -> None:
    x = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(1))
    layer_norm = tiny_model(norm="layernorm", bias=True).model.norm
    weight, bias = layer_norm.weight, layer_norm.bias
    normed = F.layer_norm(x, (64,), weight, bias, 1e-6)
    assert torch.allclose(layer_norm(x), normed, atol=1e-6)
    without = tiny_model(norm="layernorm").model.norm
    assert torch.allclose(without(x), F.layer_norm(x, (64,)) * without.weight, atol=1e-5)
    mlp = tiny_model(mlp="gelu").model.layers[0].mlp
    hidden = torch.nn.GELU(approximate="tanh")(x @ mlp.up_proj.weight.T)
    assert torch.allclose(mlp(x), hidden @ mlp.down_proj.weight.T, atol=1e-4)
    table = tiny_model(positions="sinusoidal").model.positions.get_buffer("table")
    angle = torch.tensor(17 / 10000 ** (6 / 64))
    assert torch.allclose(table[17, 6:8], torch.stack([angle.sin(), angle.cos()]), atol=1e-5)


def test_dropout_is_off_in_evaluation_and_stands_on_embeddings_and_blocks() -> None:
    model, plain = tiny_model(dropout=0.25), tiny_model()
    assert torch.equal(model(ids()), plain(ids()))
    model.train()
    zeros = (model.embed(ids()) == 0).float().mean()
    assert float(zeros) == pytest.approx(0.25, abs=0.03)
    seen: list[float] = []
    for block in model.model.layers:
        block.dropout.register_forward_hook(
            lambda _, inputs, out: seen.append(
                float(((out == 0) & (inputs[0] != 0)).float().mean())
            )
        )
    model(ids())
    assert len(seen) == 6 and all(share == pytest.approx(0.25, abs=0.03) for share in seen)
    assert not torch.equal(model(ids()), model(ids()))


def test_R_01_interrupted_is_uninterrupted_with_dropout_too(data: Any, tmp_path: Path) -> None:
    parts = {"dropout": 0.1, "positions": "learned", "norm": "layernorm", "bias": True}

    def go(store: str, **options: Any) -> Any:
        torch.manual_seed(5)
        return run(data, tmp_path / store, params=adamw(), model=tiny_model(**parts), **options)

    whole, points = go("whole")
    for stop_at in (1, 6, 10):
        with pytest.raises(RuntimeError, match="killed"):
            go("cut", stop_at=stop_at)
    torch.manual_seed(99)  # whatever the process drew before
    resumed, resumed_points = run(
        data, tmp_path / "cut", params=adamw(), model=tiny_model(**parts)
    )  # fmt: skip
    assert same(whole, resumed) and points == resumed_points
    undropped, _ = run(
        data, tmp_path / "other", params=adamw(), model=tiny_model(**parts | {"dropout": 0.0})
    )
    assert not same(whole, undropped)


@pytest.mark.slow
def test_R_01_a_compiled_run_with_dropout_is_the_same_after_an_interruption(
    data: Any, tmp_path: Path
) -> None:
    torch._dynamo.reset()  # each model compiles anew, which only so many may in one process
    parts = {"positions": "sinusoidal", "qk_norm": True, "mlp": "gelu", "norm": "layernorm"}
    more = {"bias": True, "dropout": 0.1, "num_layers": 1}
    setup = replace(settings(), compiled=True, dtype=torch.bfloat16)

    def go(store: str, **options: Any) -> Any:
        torch.manual_seed(5)
        model = tiny_model(**parts, **more)
        return run(data, tmp_path / store, params=adamw(), model=model, setup=setup, **options)

    whole, points = go("whole")
    with pytest.raises(RuntimeError, match="killed"):
        go("cut", stop_at=6)
    resumed, resumed_points = go("cut")
    assert same(whole, resumed) and points == resumed_points


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none", "rotary"])
@pytest.mark.parametrize("num_kv_heads", [2, 4])
def test_compiled_bf16_has_the_loss_and_gradient_of_eager(
    positions: str, num_kv_heads: int
) -> None:
    """Queries and keys that are transposed views once compiled to NaN, where no rotation and no
    grouped heads made copies of them."""
    model = tiny_model(positions=positions, num_kv_heads=num_kv_heads, num_layers=1).train()
    ids = torch.randint(4, 300, (2, 65), generator=torch.Generator().manual_seed(1))
    batch = {"inputs": ids[:, :-1], "targets": ids[:, 1:]}
    found = []
    for compiled in (False, True):
        torch._dynamo.reset()
        model.zero_grad()
        loss = loss_of_batch(model, loss_function(compiled, None), batch, torch.bfloat16)
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        found.append(torch.stack([loss.detach(), norm]))
    assert torch.allclose(*found, rtol=0.01), found
