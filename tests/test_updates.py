"""One step is one step: whatever the micro-batches, and at the rate of its number."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_model
from test_training import OPTIM, adamw, run, settings, token_shards
from torch.optim import Optimizer

from sifirdan.corpus import shards
from sifirdan.corpus.loader import IGNORE, Batches, Packed, Stream, Windows
from sifirdan.corpus.shards import Row, Shards
from sifirdan.errors import DataError
from sifirdan.training.loop import fit
from sifirdan.training.optim import OptimParams, Schedule, build_optimizers
from sifirdan.training.resume import ResumeStore
from sifirdan.training.stopping import Watch

GOLDEN = Path(__file__).parent / "golden_losses.json"
SPLITS = [(1, 8), (4, 2), (8, 1)]  # all in one, in four, one by one: 8 windows a step


@pytest.fixture
def data(tmp_path: Path) -> Shards:
    return token_shards(tmp_path / "tokens")


class Masked:
    """Windows of a stream in which the targets are masked unevenly, one window wholly."""

    def __init__(self, windows: Stream) -> None:
        self.windows = windows

    def window(self, index: int) -> dict[str, np.ndarray]:
        window = self.windows.window(index)
        window["targets"][: 16 if index % 8 == 3 else (5 * index) % 13] = IGNORE
        return window

    def documents(self, index: int) -> list[str]:
        return self.windows.documents(index)


def conversations(folder: Path) -> Packed:
    folder.mkdir()
    rng = np.random.default_rng(6)
    rows = []
    for number in range(40):
        ids = rng.integers(4, 40, int(rng.integers(4, 14))).tolist()
        mask = [0] * (len(ids) // 2) + [1] * (len(ids) - len(ids) // 2)
        rows.append(Row(ids, f"c{number}", "s", 0, mask))
    shards.write(folder / "part-00000.arrow", rows, vocab_size=300, loss_mask=True)
    return Packed(Shards(folder), context_length=16, seed=1, pad_id=3)


def stream(data: Shards) -> Stream:
    return Stream(data, context_length=16, seed=1, sampling="epoch", eos_id=2)


def trained(
    windows: Windows, store: Path, split: tuple[int, int], params: OptimParams, dtype: torch.dtype,
    *, num_steps: int = 10, optimizers: list[Optimizer] | None = None,
) -> torch.nn.Module:  # fmt: skip
    accumulation, micro_batch = split
    model = tiny_model().to(dtype)
    fit(
        model, optimizers if optimizers is not None else build_optimizers(model, params, dtype),
        Batches(windows, micro_batch), settings(num_steps, accumulation, dtype=dtype, checkpoint_every_steps=1000),
        ResumeStore(store, {"split": split}), validate=dict, on_resume=lambda _: None,
        on_point=lambda _: None, extra={},
    )  # fmt: skip
    return model


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        pytest.param("masked", OPTIM, id="masked-muon"),
        *(
            pytest.param(kind, params, id=f"{kind}-{params.matrices}", marks=pytest.mark.slow)
            for kind, params in (("stream", OPTIM), ("masked", adamw()), ("conversations", adamw()))
        ),
    ],
)
def test_in_float64_ten_steps_end_at_the_same_weights_for_any_split(
    data: Shards, tmp_path: Path, kind: str, params: OptimParams
) -> None:
    windows: Windows = {
        "stream": lambda: stream(data),
        "masked": lambda: Masked(stream(data)),
        "conversations": lambda: conversations(tmp_path / "chat"),
    }[kind]()
    whole, *others = (trained(windows, tmp_path, s, params, torch.float64) for s in SPLITS)
    assert farthest(whole, tiny_model().double()) > 1e-2
    assert all(farthest(whole, other) < 1e-10 for other in others)


@torch.no_grad()
def farthest(a: torch.nn.Module, b: torch.nn.Module) -> float:
    """The largest difference of a weight."""
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).abs().max()) for x, y in pairs)


class Recorder(Optimizer):
    """Takes the gradients and the rates down and leaves the weights as they are."""

    def __init__(self, parameters: Iterator[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.5, "base_lr": 0.5})
        self.gradients: list[list[torch.Tensor]] = []
        self.rates: list[float] = []

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        self.gradients.append([parameter.grad.clone() for parameter in group["params"]])
        self.rates.append(group["lr"])


def recorded(windows: Windows, store: Path, split: tuple[int, int], num_steps: int) -> Recorder:
    """What the optimiser of a run is given; its weights stay those of `tiny_model()`."""
    accumulation, micro_batch = split
    model = tiny_model()
    recorder = Recorder(model.parameters())
    fit(
        model, [recorder], Batches(windows, micro_batch),
        settings(num_steps, accumulation, max_grad_norm=1e9, schedule=WSD, checkpoint_every_steps=1000),
        ResumeStore(store, {"split": split}), validate=dict, on_resume=lambda _: None,
        on_point=lambda _: None, extra={},
    )  # fmt: skip
    return recorder


def test_in_fp32_gradients_agree_for_any_split(data: Shards, tmp_path: Path) -> None:
    whole, *others = (recorded(Masked(stream(data)), tmp_path, s, 2) for s in SPLITS)
    for other in others:
        for a, b in zip(whole.gradients[1], other.gradients[1], strict=True):
            assert float((a - b).norm()) <= 1e-5 * float(a.norm())


LINEAR = Schedule(warmup_share=0.1, decay_share=0.9, final_lr_share=0.05, decay="linear")
COSINE = Schedule(warmup_share=0.1, decay_share=0.9, final_lr_share=0.05, decay="cosine")
WSD = Schedule(warmup_share=0.1, decay_share=0.4, final_lr_share=0.05, decay="linear")


@pytest.mark.parametrize("schedule", [LINEAR, COSINE, WSD], ids=["linear", "cosine", "wsd"])
def test_R_06_the_rate_at_the_first_the_warm_the_last_step_and_beyond(schedule: Schedule) -> None:
    factors = [schedule.lr_factor(step, 100) for step in range(1, 101)]
    assert factors[0] == pytest.approx(0.1) and min(factors[:10]) > 0
    assert factors[:10] == sorted(factors[:10]) and factors[9] == 1.0
    assert factors[9:] == sorted(factors[9:], reverse=True)
    assert factors[-1] == 0.05 == min(factors) and factors.count(0.05) == 1
    assert schedule.lr_factor(101, 100) == schedule.lr_factor(5000, 100) == 0.05
    assert schedule.lr_factor(0, 100) == schedule.lr_factor(-1, 100) == factors[0]
    assert max(b - a for a, b in zip(factors, factors[1:], strict=False)) < 0.11, "no jump"


def test_R_06_half_of_each_decay() -> None:
    middle = 55  # 90 steps of decay begin after 10 of warm-up
    assert LINEAR.lr_factor(middle, 100) == pytest.approx(0.05 + 0.95 / 2)
    assert COSINE.lr_factor(middle, 100) == pytest.approx(0.05 + 0.95 / 2)
    assert COSINE.lr_factor(30, 100) > LINEAR.lr_factor(30, 100)
    assert COSINE.lr_factor(80, 100) < LINEAR.lr_factor(80, 100)
    assert WSD.lr_factor(11, 100) == WSD.lr_factor(60, 100) == 1.0
    assert WSD.lr_factor(80, 100) == pytest.approx(0.05 + 0.95 / 2)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_R_06_no_step_is_wasted_at_the_edges(decay: str) -> None:
    def schedule(warmup: float, share: float) -> Schedule:
        return Schedule(warmup, share, 0.0, decay)  # type: ignore[arg-type]

    assert schedule(0.0, 0.0).lr_factor(7, 10) == 1.0
    assert schedule(0.5, 0.5).lr_factor(1, 1) == 1.0, "the only step trains"
    assert [schedule(1.0, 0.0).lr_factor(step, 4) for step in range(1, 6)] == [
        0.25,
        0.5,
        0.75,
        1,
        1,
    ]
    for num_steps in range(2, 30):
        for warmup, share in ((0.0, 1.0), (0.01, 0.95), (0.5, 0.5)):
            factors = [
                schedule(warmup, share).lr_factor(s, num_steps) for s in range(1, num_steps + 1)
            ]
            assert factors[0] > 0 and factors[-1] == 0.0 and min(factors[:-1]) > 0


def test_R_06_accumulation_and_resuming_leave_the_rate_alone(data: Shards, tmp_path: Path) -> None:
    expected = [0.5 * WSD.lr_factor(step, 20) for step in range(1, 21)]
    for split in ((1, 2), (2, 1)):
        assert recorded(stream(data), tmp_path, split, 20).rates == expected
    setup = settings(20, schedule=WSD, checkpoint_every_steps=8)
    _, whole = run(data, tmp_path / "whole", setup=setup)
    with pytest.raises(RuntimeError, match="killed"):
        run(data, tmp_path / "cut", setup=setup, stop_at=14)
    _, resumed = run(data, tmp_path / "cut", setup=setup)
    assert [point["lr_factor"] for point in resumed] == [point["lr_factor"] for point in whole]
    assert [point["lr_factor"] for point in whole] == [WSD.lr_factor(s, 20) for s in range(1, 21)]


BAD = Row([250, 251, 2], "bad", "s")  # ids that no other document has


@pytest.mark.parametrize("split", [(1, 4), (4, 1)], ids=["at once", "accumulated"])
def test_R_07_the_batch_at_fault_is_named_and_nothing_of_it_is_saved(
    tmp_path: Path, split: tuple[int, int]
) -> None:
    """One document's first token is passed on as NaN. Training stops at the step that reads it, with the
    states of the steps before, and of the step's windows names the one at fault."""
    accumulation, micro_batch = split
    windows = stream(token_shards(tmp_path / "tokens", (BAD,)))
    hit = next(n for n in range(400) if 250 in windows.window(n)["inputs"])
    step = hit // 4 + 1
    assert 2 < step < 40
    model = tiny_model()
    model.model.embed_tokens.register_forward_hook(
        lambda _, ids, out: out.masked_fill((ids[0] == 250)[..., None], float("nan"))
    )
    with pytest.raises(DataError) as refusal:
        run(
            windows.shards, tmp_path / "s", model=model, micro_batch=micro_batch,
            setup=settings(40, accumulation, checkpoint_every_steps=1),
        )  # fmt: skip
    message = str(refusal.value)
    numbers = (
        f"batch {step - 1}" if accumulation == 1 else f"batch {4 * step - 4} to {4 * step - 1}"
    )
    assert f"step {step}: the gradient of {numbers} is not finite" in message
    assert f"windows {hit}, of the documents" in message and "bad" in message
    for document in windows.documents(hit):
        assert document in message
    saved = sorted((tmp_path / "s").glob("*/step-*"))
    assert saved[-1].name == f"step-{step - 1:08d}"
    again = tiny_model()
    store = ResumeStore(tmp_path / "s", {"a": 1})
    state = store.load_newest(again, build_optimizers(again, OPTIM, torch.float32))
    assert state is not None and state.step == step - 1, "it can be loaded, which checks for NaN"


def test_R_07_each_window_fine_alone_is_said(data: Shards, tmp_path: Path) -> None:
    """Gradients that overflow only in their sum."""
    model = tiny_model()
    windows = stream(data)
    for parameter in model.parameters():
        parameter.register_hook(lambda g: g * 0 + 2e38)
    with pytest.raises(DataError, match="each of its windows 0 to 3 by itself is finite"):
        fit(
            model, build_optimizers(model, OPTIM, torch.float32), Batches(windows, 1), settings(2, 4),
            ResumeStore(tmp_path / "s", {}), validate=dict, on_resume=lambda _: None,
            on_point=lambda _: None, extra={},
        )  # fmt: skip


@pytest.mark.parametrize("where", ["weights", "moments"])
def test_R_07_a_state_with_nan_is_never_the_newest(
    data: Shards, tmp_path: Path, where: str
) -> None:
    model = tiny_model()
    optimizers = build_optimizers(model, OPTIM, torch.float32)

    def damage(point: dict) -> None:
        if point["step"] == 8:
            if where == "weights":
                model.lm_head.weight.data[0, 0] = float("nan")
            else:
                next(iter(optimizers[1].state.values()))["exp_avg"][0, 0] = float("inf")

    name = "lm_head.weight" if where == "weights" else "optimiser 1.0.exp_avg"
    with pytest.raises(DataError, match=f"step 8: {name} is not finite any more"):
        fit(
            model, optimizers, Batches(stream(data), 4), settings(), ResumeStore(tmp_path, {}),
            validate=dict, on_resume=lambda _: None, on_point=damage, extra={},
        )  # fmt: skip
    assert [path.name for path in sorted(tmp_path.glob("*/step-*"))] == ["step-00000004"]


def golden_run(folder: Path) -> dict[str, list[str]]:
    """The losses of 20 steps by each optimiser, exactly, as hexadecimal floats."""
    torch.set_num_threads(1)
    data, found = token_shards(folder / "tokens"), {}
    for name, params in (("adamw", adamw()), ("muon", OPTIM)):
        setup = settings(20, eval_steps=frozenset(), checkpoint_every_steps=1000)
        _, points = run(data, folder / name, setup=setup, params=params, watch=Watch())
        found[name] = [float(point["loss"]).hex() for point in points]
    return found


def processor() -> str:
    """What decides on the order of sums: torch's release, its instruction set, the kind of CPU."""
    facts = {}
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
        facts = {
            name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
    kind = " ".join(facts.get(name, "?") for name in ("vendor_id", "cpu family", "model"))
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {kind}"


def test_the_golden_losses_of_20_steps(tmp_path: Path) -> None:
    """A refactoring keeps them to the bit; a change of the numbers is a change of the method. On
    another kind of processor, or torch, than they were made with they hold to 2e-5, since sums are taken
    in another order there."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = golden_run(tmp_path)
    if golden["made_with"] == processor():
        assert found == golden["losses"]
    for name, losses in found.items():
        expected = [float.fromhex(loss) for loss in golden["losses"][name]]
        assert [float.fromhex(loss) for loss in losses] == pytest.approx(expected, abs=2e-5)


@pytest.mark.slow
def test_another_process_has_the_golden_losses_to_the_bit(tmp_path: Path) -> None:
    """On any machine: what two processes make here is the same."""
    (tmp_path / "other").mkdir()
    script = (
        "import json, sys; from pathlib import Path; sys.path.append('tests'); import test_updates\n"
        "print(json.dumps(test_updates.golden_run(Path(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "other")], cwd=Path(__file__).parents[1],
        capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    (tmp_path / "here").mkdir()
    assert json.loads(done.stdout) == golden_run(tmp_path / "here")


def test_adamw_is_fused_on_a_cpu() -> None:
    for params in (OPTIM, adamw()):
        (optimizer,) = (
            one
            for one in build_optimizers(tiny_model(), params, torch.float32)
            if isinstance(one, torch.optim.AdamW)
        )
        assert all(group["fused"] is True for group in optimizer.param_groups)
