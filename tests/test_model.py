"""The model sees no later token, files are strict, sizes are checked. Not for parts and layouts, which
have tests of their own."""

import json
import pickle
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import tiny_model
from safetensors.torch import load_file, save_file

from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.model.attention import additive, attend
from sifirdan.model.checkpoint import load_model, read_config, save_model, weights_of
from sifirdan.model.transformer import ModelShape, Transformer, segment_mask

SHAPES = [
    {"num_kv_heads": 4},
    {"num_kv_heads": 2, "tie_embeddings": True},
    {"num_kv_heads": 1, "rope_theta": 500000.0, "head_size": 8},
]


def ids(batch: int = 2, length: int = 64, vocab: int = 300) -> torch.Tensor:
    return torch.randint(0, vocab, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", SHAPES)
def test_X_01_saved_weights_come_back_and_a_tied_head_is_stored_once(
    tmp_path: Path, shape: dict
) -> None:
    model = tiny_model(**shape)
    save_model(tmp_path, model, eos_ids=[2], pad_id=3)
    back = load_model(tmp_path)
    tied = shape.get("tie_embeddings", False)
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) is not tied
    assert (back.lm_head.weight is back.model.embed_tokens.weight) is tied
    assert torch.equal(back(ids()), model(ids())) and back.config == model.config
    other = tmp_path / "again"
    other.mkdir()
    save_model(other, back, eos_ids=[2], pad_id=3)
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        assert (other / name).read_bytes() == (tmp_path / name).read_bytes()


def test_no_token_sees_a_later_one() -> None:
    model, before = tiny_model(), ids()
    after = before.clone()
    after[:, 40:] = (after[:, 40:] + 1) % 300
    assert torch.equal(model(before)[:, :40], model(after)[:, :40])
    assert not torch.equal(model(before)[:, 40:], model(after)[:, 40:])


def test_F_04_a_packed_text_is_the_same_as_alone() -> None:
    model, text = tiny_model(), ids(1, 20)
    packed = torch.cat([ids(1, 30)[:, :13], text], dim=1)
    segments = torch.tensor([[1] * 13 + [2] * 20])
    positions = torch.tensor([[*range(13), *range(20)]])
    together = model(packed, positions=positions, mask=segment_mask(segments))[:, 13:]
    assert float((together - model(text)).abs().max()) < 1e-5
    unmasked = model(packed)[:, 13:]
    assert float((unmasked - model(text)).abs().max()) > 1e-2


@pytest.mark.parametrize("masked", [False, True])
def test_attention_spelt_out_is_the_fused_one_and_so_is_its_gradient(masked: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    q, k, v, g = torch.randn(4, 2, 3, 20, 8, generator=generator, dtype=torch.float64)
    causal = torch.ones(20, 20, dtype=torch.bool).tril()
    if masked:
        causal = causal & (torch.arange(20)[:, None] // 7 == torch.arange(20) // 7)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    ours = attend(*inputs, additive(causal))
    fused = F.scaled_dot_product_attention(q, k, v, attn_mask=causal)
    assert torch.allclose(ours, fused, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, g), torch.autograd.grad(fused, inputs, g), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-12)


def test_starting_weights_depend_on_the_seed_and_blocks_start_as_identity() -> None:
    models = [tiny_model() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        model.initialise(torch.Generator().manual_seed(seed))
    assert torch.equal(models[0](ids()), models[1](ids()))
    assert not torch.equal(models[0](ids()), models[2](ids()))
    embedded = models[0].embed(ids())
    normed = models[0].model.norm(embedded)
    assert torch.allclose(models[0].model(embedded, torch.arange(64)[None]), normed)


@pytest.mark.parametrize(
    "damage",
    [
        "cut",
        "missing",
        "unexpected",
        "shape",
        "nan",
        "no weights",
        "no config",
        "other type",
        "no key",
    ],
)
def test_R_10_G_07_damaged_folders_are_refused(tmp_path: Path, damage: str) -> None:
    model = tiny_model()
    save_model(tmp_path, model, eos_ids=[2], pad_id=3)
    file, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    weights = weights_of(model)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "missing":
        del weights["model.norm.weight"]
        save_file(weights, file)
    elif damage == "unexpected":
        save_file({f"_orig_mod.{name}": value for name, value in weights.items()}, file)
    elif damage == "shape":
        save_file(weights | {"model.norm.weight": torch.ones(3)}, file)
    elif damage == "nan":
        weights["model.norm.weight"][3] = float("nan")
        save_file(weights, file)
    elif damage == "no weights":
        file.unlink()
    elif damage == "no config":
        config.unlink()
    elif damage == "other type":
        config.write_text(config.read_text().replace('"llama"', '"bert"'))
    else:
        config.write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(CheckpointError) as error:
        load_model(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_R_04_a_pickle_in_place_of_any_file_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Attack:
        def __reduce__(self):
            return (Path.touch, (marker,))

    for name in ("model.safetensors", "config.json"):
        folder = tmp_path / name
        folder.mkdir()
        save_model(folder, tiny_model(), eos_ids=[2], pad_id=3)
        (folder / name).write_bytes(pickle.dumps(Attack()))
        with pytest.raises(CheckpointError):
            load_model(folder)
    assert not marker.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"num_heads": 5},
        {"head_size": 15},
        {"num_layers": 0},
        {"rope_theta": 0.5},
        {"rms_norm_eps": 0.0},
        {"dropout": 1.0},
    ],
)
def test_impossible_shapes_are_refused(change: dict) -> None:
    good = asdict(tiny_model().config.shape)
    with pytest.raises(ConfigError, match=next(iter(change))):
        ModelShape(**(good | change))


def test_parameters_are_counted_once(tmp_path: Path) -> None:
    tied, untied = tiny_model(tie_embeddings=True), tiny_model()
    assert untied.num_parameters() - tied.num_parameters() == 300 * 64
    save_model(tmp_path, tied, eos_ids=[2], pad_id=3)
    assert isinstance(Transformer(read_config(tmp_path)), Transformer)
