"""The plan before a run: it fits the machine, says what will come, and leaves everything as it was."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_model
from test_training import OPTIM, SCHEDULE
from torch.nn.attention import SDPBackend
from torch.profiler import ProfilerActivity

from sifirdan import device as device_module
from sifirdan import track_axes
from sifirdan.corpus import shards
from sifirdan.corpus.loader import IGNORE, Packed, Stream
from sifirdan.corpus.shards import Row, Shards
from sifirdan.device import attention_backends, prepare
from sifirdan.errors import ConfigError
from sifirdan.model.checkpoint import describe
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.training import memory, session
from sifirdan.training import plan as plan_module
from sifirdan.training.feed import Feed
from sifirdan.training.flops import flops_per_token, matmul_rate, weights_in_products
from sifirdan.training.losses import cross_entropy_sum, loss_function, loss_of_batch
from sifirdan.training.plan import (
    Plan,
    first_line,
    make_plan,
    plainly_refused,
    settle,
    warn_of_few_tokens,
)

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
RUNTIME = Runtime(
    device="cpu", threads=None, loader_workers=0, micro_batch=None, compile="off",
    gradient_checkpointing=False, deterministic=False, checkpoint_every_steps=10,
    parallel="ddp", corpus_workers=None, register_models=False,
)  # fmt: skip
LENGTH = 16


@pytest.fixture
def windows(tmp_path: Path) -> Stream:
    rng = np.random.default_rng(5)
    rows = [Row([*rng.integers(4, 40, 1 + i % 30).tolist(), 2], f"d{i}", "s") for i in range(40)]
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=300)
    return Stream(Shards(tmp_path), context_length=LENGTH, seed=1, sampling="epoch", eos_id=2)


def model_of(**changes: object) -> Transformer:
    return tiny_model(context_length=LENGTH, **changes)


def plan_of(runtime: Runtime = RUNTIME, sequences: int = 8) -> Plan:
    return make_plan(sequences, 10, "fp32", runtime, CPU)


def gradients(model: Transformer, windows: Stream) -> list[torch.Tensor]:
    batch = plan_module._batch(windows, 4, CPU)
    loss_of_batch(model, loss_function(False, None), batch, torch.float32).backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


def test_a_trial_leaves_weights_gradients_and_random_numbers_alone(
    windows: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_dropout(*arguments: Any) -> torch.Tensor:
        return loss_of_batch(*arguments) * torch.rand(())

    monkeypatch.setattr(plan_module, "loss_of_batch", with_dropout)
    model = model_of()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    state = torch.get_rng_state()
    plan, estimate = settle(model, windows, plan_of(), RUNTIME, 10)
    assert torch.equal(state, torch.get_rng_state())
    for was, now in zip(before, model.parameters(), strict=True):
        assert torch.equal(was, now) and now.grad is None
    assert plan == plan_of()  # the whole batch, all logits
    assert estimate.tokens == 10 * 8 * LENGTH and estimate.parameters == model.num_parameters()
    assert all(value > 0 for value in estimate.numbers.values())


def test_what_a_micro_batch_needs_grows_as_it_was_measured(windows: Stream) -> None:
    model = model_of()

    def hidden_of(sequences: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return plan_module._hidden(model, plan_module._batch(windows, sequences, CPU), dtype)

    need = memory.measure_need(model, hidden_of, checkpointing=False)
    kept = memory._kept_bytes(model, hidden_of, 7)
    state = 16 * model.num_parameters()
    assert need.fixed + 7 * need.a_sequence == kept + state
    matrices = sum(p.numel() for p in model.model.layers.parameters())
    assert (
        need.fixed - state >= 2 * matrices
    )  # their copies in bf16, once and not for each sequence
    wide = memory.measure_need(model, lambda n: hidden_of(n, torch.float32), checkpointing=False)
    assert wide.fixed - state < matrices  # no copies: the weights themselves are in the state
    cheap = memory.measure_need(model, hidden_of, checkpointing=True)
    block, inputs = need.a_sequence // 3, 3 * LENGTH * 64 * 4
    assert cheap.fixed == need.fixed and abs(cheap.a_sequence - 2 * block - inputs) < 3


def test_the_micro_batch_is_the_largest_that_fits(
    windows: Stream, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    caplog.set_level("INFO")
    need = memory.Need(fixed=1000, a_sequence=100, context_length=4, vocab_size=10)
    assert need.bytes_for(2) == 1000 + 200 + 2 * 4 * 10 * 4 * 3
    room = need.bytes_for(4) / memory.USABLE_SHARE
    assert memory.largest_that_fits(need, 12, int(room) + 1) == 4
    assert memory.largest_that_fits(need, 12, int(room) - 1) == 3
    assert memory.largest_that_fits(need, 12, 10) == 1
    model = model_of()
    state = 16 * model.num_parameters()
    monkeypatch.setattr(memory, "device_memory", lambda _: state * 2)
    plan, _ = settle(model, windows, plan_of(), RUNTIME, 10)
    assert plan.micro_batch < 8 and plan.micro_batch * plan.accumulation == 8
    again, _ = settle(model, windows, plan_of(), RUNTIME, 10)
    assert again == plan  # nothing that varies from run to run
    fixed = replace(RUNTIME, micro_batch=4)
    monkeypatch.setattr(memory, "device_memory", lambda _: 10)
    plan, _ = settle(model, windows, plan_of(fixed), fixed, 10)
    assert plan.micro_batch == 4 and "4 sequences at a time, and the device has" in caplog.text


def test_out_of_memory_halves_the_micro_batch_or_says_what_to_do(
    windows: Stream, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    caplog.set_level("INFO")
    real = plan_module.loss_of_batch
    largest = 2

    def small_memory(model, loss_of, batch, dtype):  # type: ignore[no-untyped-def]
        if len(batch["inputs"]) > largest:
            raise torch.OutOfMemoryError("CUDA out of memory.\nmore")
        return real(model, loss_of, batch, dtype)

    monkeypatch.setattr(plan_module, "loss_of_batch", small_memory)
    plan, _ = settle(model_of(), windows, plan_of(), RUNTIME, 10)
    assert (plan.micro_batch, plan.accumulation) == (2, 4)
    assert "8 sequences do not fit; trying 4" in caplog.text
    fixed = replace(RUNTIME, micro_batch=8)
    with (
        pytest.raises(ConfigError, match="runtime.micro_batch to 4 or less") as refusal,
        plainly_refused(plan_of(fixed)),
    ):
        settle(model_of(), windows, plan_of(fixed), fixed, 10)
    assert "8 sequences a pass (CUDA out of memory.)" in str(refusal.value)
    assert "gradient_checkpointing" in str(refusal.value)


def test_other_errors_stay_what_they_are() -> None:
    for error in (RuntimeError("shapes"), ValueError("x")):
        with pytest.raises(type(error)), plainly_refused(plan_of()):
            raise error
    message = (
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"
    )
    for lacking in (RuntimeError(message), MemoryError()):
        with pytest.raises(ConfigError, match="out of memory"), plainly_refused(plan_of()):
            raise lacking
    assert first_line(MemoryError()) == "MemoryError"


def test_a_model_that_does_not_compile_is_trained_eager(
    windows: Stream, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    """The probe of device.py worked, the model's first step does not."""
    caplog.set_level("INFO")

    def broken(*_: object, **__: object):  # type: ignore[no-untyped-def]
        def fail(*_: object) -> torch.Tensor:
            raise NotImplementedError("no code for this\nlong trace")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    wanted = replace(plan_of(), compiled=True)
    model = model_of()
    state = torch.get_rng_state()
    plan, _ = settle(model, windows, wanted, RUNTIME, 10)
    assert plan == plan_of() and torch.equal(state, torch.get_rng_state())
    assert caplog.text.count("fails for this model (no code for this); training eager") == 1
    for a, b in zip(gradients(model, windows), gradients(model_of(), windows), strict=True):
        assert torch.equal(a, b)


def test_checkpointed_blocks_give_the_same_gradients_bit_for_bit(windows: Stream) -> None:
    plain, cheap = model_of(), model_of()
    expected = gradients(plain, windows)
    runtime = replace(RUNTIME, gradient_checkpointing=True)
    plan, _ = settle(cheap, windows, plan_of(runtime), runtime, 10)
    assert plan.facts["gradient_checkpointing"] is True
    for ours, theirs in zip(gradients(cheap, windows), expected, strict=True):
        assert torch.equal(ours, theirs)

    def kept(model: Transformer) -> int:
        batch = plan_module._batch(windows, 4, CPU)
        return memory._kept_bytes(
            model, lambda _: plan_module._hidden(model, batch, torch.float32), 4
        )

    assert kept(cheap) < kept(plain) / 5
    assert list(cheap.state_dict()) == list(plain.state_dict())
    with torch.no_grad():
        ids = torch.arange(LENGTH)[None]
        assert torch.equal(cheap.eval()(ids), plain.eval()(ids))


@pytest.mark.slow
@pytest.mark.parametrize(("chunk", "checkpointing"), [(None, False), (20, True)])
def test_what_the_trial_compiles_the_run_finds_compiled(
    windows: Stream, monkeypatch: pytest.MonkeyPatch, chunk: int | None, checkpointing: bool
) -> None:
    """With every part in one graph, and the gradients of eager code."""
    from torch._dynamo.utils import counters

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **how: real(f, backend="aot_eager", **how))
    monkeypatch.setattr(memory, "logits_chunk", lambda tokens, vocab_size: chunk)
    torch._dynamo.reset()
    counters.clear()
    runtime = replace(RUNTIME, gradient_checkpointing=checkpointing)
    model = model_of(num_layers=2)
    plan, _ = settle(model, windows, replace(plan_of(runtime), compiled=True), runtime, 10)
    assert plan.compiled and plan.logits_chunk == chunk
    compiled = counters["stats"]["unique_graphs"]
    batch = plan_module._batch(windows, 8, CPU)
    found = []
    for how in (True, False):
        loss_of_batch(model, loss_function(how, chunk), batch, torch.float32).backward()
        found.append([parameter.grad for parameter in model.parameters()])
        model.zero_grad(set_to_none=True)
    assert counters["stats"]["unique_graphs"] == compiled == 1
    for ours, eager in zip(*found, strict=True):
        assert torch.allclose(ours, eager, rtol=1e-4, atol=1e-5)


def peak_of(work: Callable[[], None]) -> int:
    """The most bytes of tensors that `work` holds at a time beyond what was there before, counted by
    torch's allocator: the system's own figure has holes, and the imports' peak, in it."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes))


@pytest.mark.slow
def test_checkpointing_lowers_the_peak_and_the_estimate_is_near_it() -> None:
    model = tiny_model(vocab_size=512, context_length=512, num_layers=12).train()
    positions, ids = torch.arange(512)[None], torch.zeros(4, 512, dtype=torch.int64)
    peaks = {}
    for checkpointing in (False, True):
        need = memory.measure_need(
            model,
            lambda n: model.model(model.embed(ids[:n]), positions),
            checkpointing=checkpointing,
        )
        if checkpointing:
            memory.checkpoint_blocks(model)
        model.zero_grad()
        peak = peak_of(
            lambda: cross_entropy_sum(model, model.embed(ids), ids, positions, None).backward()
        )
        held = peak + 12 * model.num_parameters()  # with the weights and AdamW's two moments
        assert 0.9 * held < need.bytes_for(4) < 1.7 * held, (checkpointing, held, need)
        peaks[checkpointing] = peak
    assert peaks[True] < 0.4 * peaks[False]


@pytest.mark.parametrize(
    "parts",
    [
        {}, {"tie_embeddings": True}, {"num_kv_heads": 4, "head_size": 24, "qk_norm": True},
        {"mlp": "gelu", "bias": True, "norm": "layernorm", "positions": "learned"},
    ],
)  # fmt: skip
def test_the_description_counts_the_weights_that_a_model_multiplies_with(
    parts: dict[str, Any],
) -> None:
    model = model_of(**parts)
    blocks = sum(weight.numel() for weight in model.model.layers.parameters() if weight.ndim == 2)
    assert weights_in_products(model) == blocks + model.lm_head.weight.numel()
    width = model.config.shape.num_heads * model.config.shape.head_size
    attention = 12 * model.config.shape.num_layers * width * LENGTH
    assert flops_per_token(model) == 6 * weights_in_products(model) + attention
    run = {"steps": 1, "tokens": 1, "model": describe(model.config)}
    assert track_axes.axes_of(run)["gflops"] == flops_per_token(model) / 1e9


def test_the_rate_is_measured_without_drawing_random_numbers() -> None:
    state = torch.get_rng_state()
    assert 1e8 < matmul_rate(CPU, torch.float32) < 1e14
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("tokens", "warns"), [(499, True), (500, False)])
def test_few_tokens_are_said_in_one_line(tokens: int, warns: bool, caplog) -> None:
    warn_of_few_tokens(tokens, 100)
    assert len(caplog.records) == int(warns)
    if warns:
        assert "5.0 a parameter" in caplog.text and "\n" not in caplog.records[0].getMessage()


def test_a_vocabulary_that_does_not_fill_its_tiles_is_said_on_a_gpu(caplog) -> None:
    plan_module._say_if_vocabulary_is_odd(700, CPU)
    plan_module._say_if_vocabulary_is_odd(768, torch.device("cuda"))
    assert not caplog.records
    plan_module._say_if_vocabulary_is_odd(700, torch.device("cuda"))
    assert "train_tokenizer.vocab_size 768 would not" in caplog.text


@pytest.mark.parametrize(
    ("capability", "deterministic", "first", "absent"),
    [
        ((9, 0), False, SDPBackend.CUDNN_ATTENTION, None),
        ((8, 0), False, SDPBackend.FLASH_ATTENTION, None),
        ((9, 0), True, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION),
    ],
)
def test_cudnn_attention_comes_first_where_it_is_fastest(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], deterministic: bool,
    first: SDPBackend, absent: SDPBackend | None,
) -> None:  # fmt: skip
    chosen: list[SDPBackend] = []

    @contextmanager
    def record(backends: list[SDPBackend], set_priority: bool) -> Iterator[None]:
        assert set_priority
        chosen.extend(backends)
        yield

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(device_module, "sdpa_kernel", record)
    with attention_backends(CPU, deterministic):
        assert not chosen
    with attention_backends(torch.device("cuda"), deterministic):
        assert chosen[0] == first and absent not in chosen and SDPBackend.MATH in chosen


def test_deterministic_mode_is_switched_on_for_cuda_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    filled = torch.utils.deterministic.fill_uninitialized_memory
    wanted = replace(RUNTIME, deterministic=True)
    try:
        prepare(wanted)
        assert not torch.are_deterministic_algorithms_enabled()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        prepare(replace(wanted, device="cuda"))
        assert torch.are_deterministic_algorithms_enabled()
        assert device_module.os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = filled
        device_module.os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def test_the_memory_of_a_machine_is_its_smallest_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CONTAINER_LIMIT", limit)
    whole = memory.device_memory(CPU)
    limit.write_text("max\n")
    assert memory.device_memory(CPU) == whole > 1e9
    limit.write_text("5000\n")
    assert memory.device_memory(CPU) == 5000


def test_what_belongs_to_the_machine_is_on_no_axis_that_runs_are_compared_on() -> None:
    values = {"loss": 1.0, "utilisation": 0.5, "learning_rate": 0.1, "plan_flops": 1e9}
    points = list(track_axes.points("train", 3, values, {"tokens": 10.0}))
    assert points == [("by_tokens/loss", 30, 1.0)]


def test_a_feed_is_one_batch_ahead_and_counts_targets() -> None:
    read = []

    def stream() -> Iterator[dict[str, torch.Tensor]]:
        for number in range(3):
            read.append(number)
            yield {"targets": torch.tensor([[number, IGNORE, 7]])}

    feed, taken = Feed(stream(), CPU), []
    for number in range(3):
        assert read == list(range(number + 1))  # the next one is read where fetch is called
        batch, targets = feed.take()
        taken.append((int(batch["targets"][0, 0]), targets))
        feed.fetch()
    assert taken == [(0, 2), (1, 2), (2, 2)] and read == [0, 1, 2]
    with pytest.raises(AssertionError, match="no further than the stream goes"):
        feed.take()


def test_a_run_tells_tracking_its_plan_once_and_its_speed_at_every_point(
    windows: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    """And the model's manifest has nothing of it that is measured."""
    caplog.set_level("INFO")
    seen: dict[int, dict[str, float]] = {}

    class Tracker:
        run_id = "r"

        def reopen(self, run_id: str) -> None: ...

        def log_axes(self, metrics: Any) -> None: ...

        def log_metrics(self, values: dict[str, float], step: int) -> None:
            seen[step] = dict(values)

    def write(folder: Path, *_: object) -> None:
        (folder / "x").write_text("x")

    monkeypatch.setattr(session, "save_trained", write)  # no tokenizer here
    monkeypatch.setattr(session, "save_curve", write)
    recipe = session.Recipe(
        windows=windows, context_length=LENGTH, batch_sequences=4, num_steps=6, eval_every_steps=3,
        precision="fp32", optimizer=OPTIM, schedule=SCHEDULE, curves={},
        validate=lambda: {"val_bits_per_byte": 2.0},
    )  # fmt: skip
    places = session.Places(tmp_path / "model", tmp_path / "curve", tmp_path / ".resume/train")
    trained = session.train_to_folder(
        model_of(), None, recipe, places,  # type: ignore[arg-type]
        inputs={}, params={}, runtime=RUNTIME, device=CPU, tracker=Tracker(), describe=write,
    )  # fmt: skip
    planned = [step for step, values in seen.items() if "plan_flops" in values]
    assert planned == [1] and seen[1]["plan_tokens_per_parameter"] > 0
    assert 0 < seen[6]["utilisation"] < 2 and seen[6]["tokens_per_second"] > 0
    assert seen[3]["learning_rate"] == pytest.approx(0.02 * trained.points[2]["lr_factor"])
    assert seen[3]["val_bits_per_byte"] == 2.0 and seen[3]["grad_norm"] > 0
    assert all(not {"utilisation", "learning_rate", "plan_flops"} & set(p) for p in trained.points)
    assert "plan: parameters=" in caplog.text and "6·(matrices + head)" in caplog.text
    line = [r.getMessage() for r in caplog.records if r.getMessage().startswith("step 6/6")][0]
    assert "utilisation=" in line and "learning_rate=" in line and "left=" in line
    manifest = json.loads((places.out / "manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["params"]["runtime"]) == set(plan_of().facts)


def test_conversations_are_planned_like_text(tmp_path: Path) -> None:
    """Their windows have a mask of their own."""
    rows = [
        Row([2, 5, 30 + i, 8, 6, 60 + i, 8], f"t{i}", "s", 0, [0] * 5 + [1] * 2) for i in range(9)
    ]
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=300, loss_mask=True)
    windows = Packed(Shards(tmp_path), context_length=LENGTH, seed=1, pad_id=3)
    plan, estimate = settle(model_of(), windows, plan_of(), RUNTIME, 10)
    assert plan == plan_of() and estimate.seconds > 0
