"""The loop: right updates, one curve, and the same bits after any number of interruptions."""

import multiprocessing
import os
import pickle
import pty
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import tiny_model

from sifirdan.corpus import shards
from sifirdan.corpus.loader import IGNORE, Batches, Packed, Stream
from sifirdan.corpus.shards import Row, Shards
from sifirdan.distributed import World
from sifirdan.errors import CheckpointError, ConfigError, DataError
from sifirdan.model.transformer import Transformer, segment_mask
from sifirdan.training.loop import FitSettings, eval_steps, fit
from sifirdan.training.losses import cross_entropy_sum
from sifirdan.training.optim import OptimParams, Schedule, build_optimizers, split_parameters
from sifirdan.training.resume import ResumeStore, SavedState, code_hashes
from sifirdan.training.stopping import Watch

OPTIM = OptimParams(
    matrices="muon", lr_matrices=0.02, lr_embedding=0.01, lr_head=0.004, lr_norms=0.01, beta1=0.9,
    beta2=0.98, eps=1e-10, muon_momentum=0.95, muon_steps=5, weight_decay=0.1, max_grad_norm=1.0,
)  # fmt: skip
SCHEDULE = Schedule(warmup_share=0.1, decay_share=0.5, final_lr_share=0.1)
STEPS = 12


def adamw() -> OptimParams:
    from dataclasses import replace

    return replace(OPTIM, matrices="adamw", lr_matrices=1e-3)


def token_shards(folder: Path, extra: tuple[Row, ...] = ()) -> Shards:
    """120 documents of random ids below 40, and those in `extra`."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    rows = [Row([*rng.integers(4, 40, 1 + i % 30).tolist(), 2], f"d{i}", "s") for i in range(120)]
    shards.write(folder / "part-00000.arrow", [*rows, *extra], vocab_size=300)
    return Shards(folder)


@pytest.fixture
def data(tmp_path: Path) -> Shards:
    return token_shards(tmp_path / "tokens")


def settings(num_steps: int = STEPS, accumulation: int = 1, **changes) -> FitSettings:
    values = {
        "num_steps": num_steps, "micro_batches_per_step": accumulation, "schedule": SCHEDULE,
        "max_grad_norm": 1.0, "dtype": torch.float32, "compiled": False,
        "eval_steps": eval_steps(num_steps, 5), "checkpoint_every_steps": 4,
        "loader_workers": 0,
    }  # fmt: skip
    return FitSettings(**(values | changes))


def run(
    data: Shards, store: Path, *, setup: FitSettings | None = None, params: OptimParams = OPTIM,
    micro_batch: int = 4, stop_at: int | None = None, model: Transformer | None = None, log: list | None = None,
    watch: Watch | None = None, validate: Callable[[], dict[str, float]] | None = None,
):  # fmt: skip
    """One training process: from the newest state to the end, or to `stop_at`, where it dies."""
    model = model or tiny_model()
    optimizers = build_optimizers(model, params, torch.float32)
    windows = Stream(data, context_length=16, seed=1, sampling="epoch", eos_id=2)

    def on_point(point: dict) -> None:
        if log is not None:
            log.append(point["step"])
        if stop_at is not None and point["step"] >= stop_at:
            raise RuntimeError("killed")

    points = fit(
        model, optimizers, Batches(windows, micro_batch), setup or settings(), ResumeStore(store, {"a": 1}),
        validate=validate or (lambda: {"val": float(model.lm_head.weight.detach().double().sum())}),
        on_resume=lambda saved: log.append(f"resumed {saved.step}") if log is not None else None,
        on_point=on_point, extra={"run_id": "r"}, watch=watch,
    )  # fmt: skip
    return model, points


def same(a: Transformer, b: Transformer) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("params", [OPTIM, adamw()])
def test_R_01_interrupted_many_times_is_uninterrupted(
    data: Shards, tmp_path: Path, params: OptimParams
) -> None:
    whole, points = run(data, tmp_path / "whole", params=params)
    log: list = []
    for stop_at in (1, 5, 6, 9, 10):
        with pytest.raises(RuntimeError, match="killed"):
            run(data, tmp_path / "cut", params=params, stop_at=stop_at, log=log)
    resumed, resumed_points = run(data, tmp_path / "cut", params=params, log=log)
    assert same(whole, resumed) and points == resumed_points
    assert "resumed 4" in log and "resumed 8" in log
    steps = [point["step"] for point in resumed_points]
    assert steps == sorted(set(steps)) and steps[-1] == STEPS


@pytest.fixture
def hangup() -> Iterator[None]:
    """A closed terminal does as it does without nohup, whatever started pytest."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_polite_stop_saves_the_very_step(data: Shards, tmp_path: Path, number: int) -> None:
    before = signal.getsignal(number)
    whole, _ = run(data, tmp_path / "whole")
    setup = settings(checkpoint_every_steps=1000)
    model = tiny_model()
    optimizers = build_optimizers(model, OPTIM, torch.float32)
    windows = Stream(data, context_length=16, seed=1, sampling="epoch", eos_id=2)
    with pytest.raises(KeyboardInterrupt):
        fit(
            model, optimizers, Batches(windows, 4), setup, ResumeStore(tmp_path / "cut", {"a": 1}),
            validate=dict, on_resume=lambda _: None, extra={},
            on_point=lambda point: signal.raise_signal(number) if point["step"] == 6 else None,
        )  # fmt: skip
    assert signal.getsignal(number) == before
    log: list = []
    resumed, _ = run(data, tmp_path / "cut", log=log)
    assert log[0] == "resumed 6" and same(whole, resumed)


def test_a_stop_asked_for_between_two_looks_is_not_a_stop_without_a_state(
    data: Shards, tmp_path: Path
) -> None:
    answers = iter([False, True, True])

    class Late(World):
        def any(self, flag: bool) -> bool:
            return next(answers)

    model, windows = (
        tiny_model(),
        Stream(data, context_length=16, seed=1, sampling="epoch", eos_id=2),
    )
    with pytest.raises(KeyboardInterrupt):
        fit(
            model, build_optimizers(model, OPTIM, torch.float32), Batches(windows, 4), settings(),
            ResumeStore(tmp_path / "cut", {"a": 1}), validate=dict, on_resume=lambda _: None,
            on_point=lambda _: None, extra={}, world=Late(),
        )  # fmt: skip
    assert [path.name for path in (tmp_path / "cut").glob("*/step-*")] == ["step-00000002"]


@pytest.mark.usefixtures("hangup")
def test_a_closed_terminal_stops_training_only_after_it_has_saved(
    data: Shards, tmp_path: Path
) -> None:
    child, terminal = pty.fork()
    if child == 0:  # the end of its terminal sends it SIGHUP, and nothing can be written any more
        signal.alarm(60)
        torch.set_num_threads(1)  # threads do not outlive a fork
        said = SimpleNamespace(append=lambda _: os.write(1, b"."))
        endless = settings(100_000, checkpoint_every_steps=100_000, eval_steps=frozenset())
        try:
            run(data, tmp_path / "cut", setup=endless, log=said)
        except KeyboardInterrupt:
            os._exit(130)
        finally:
            os._exit(1)
    assert os.read(terminal, 1) == b"."  # after its first step
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    (state,) = (tmp_path / "cut").glob("*/*")
    assert (state / "state.json").is_file()


@pytest.mark.usefixtures("hangup")
def test_under_nohup_a_closed_terminal_changes_nothing(data: Shards, tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def validate() -> dict[str, float]:
        signal.raise_signal(signal.SIGHUP)
        return {}

    _, points = run(data, tmp_path / "s", validate=validate)
    assert points[-1]["step"] == STEPS
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.slow
@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="starts no copies")
@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_terminal_asks_the_processes_that_load_as_well_and_they_finish_the_step(
    data: Shards, tmp_path: Path, number: int
) -> None:
    """Asked at the first micro-batch of step 6, when the last of them have not been read yet."""
    many = settings(accumulation=8, checkpoint_every_steps=1000)
    whole, _ = run(data, tmp_path / "whole", setup=many, micro_batch=1)
    model, forwards = tiny_model(), iter(range(8 * STEPS))

    def ask(*_: object) -> None:
        if next(forwards) == 8 * 5:
            loaders = multiprocessing.active_children()
            assert len(loaders) == 2
            for loader in loaders:
                os.kill(loader.pid or 0, number)
            signal.raise_signal(number)

    model.model.embed_tokens.register_forward_hook(ask)
    setup = settings(accumulation=8, checkpoint_every_steps=1000, loader_workers=2)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "cut", setup=setup, micro_batch=1, model=model, validate=dict)
    log: list = []
    resumed, _ = run(data, tmp_path / "cut", setup=many, micro_batch=1, log=log)
    assert log[0] == "resumed 6" and same(whole, resumed)


def test_R_03_a_damaged_newest_state_is_skipped_and_said(
    data: Shards, tmp_path: Path, caplog
) -> None:
    whole, _ = run(data, tmp_path / "whole")
    with pytest.raises(RuntimeError):
        run(data, tmp_path / "cut", stop_at=9)
    newest = max((tmp_path / "cut").glob("*/step-*"))
    file = newest / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-8] + b"\0" * 8)
    log: list = []
    resumed, _ = run(data, tmp_path / "cut", log=log)
    assert log[0] == "resumed 4" and same(whole, resumed)
    assert (
        "skipping step-00000008" in caplog.text and "weights.safetensors is damaged" in caplog.text
    )


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("how", ["delete", "pickle"])
def test_R_04_R_13_a_state_without_any_part_is_refused(
    data: Shards, tmp_path: Path, name: str, how: str
) -> None:
    run(data, tmp_path / "s")
    marker = tmp_path / "marker"

    class Attack:
        def __reduce__(self):
            return (Path.touch, (marker,))

    for state in (tmp_path / "s").glob("*/step-*"):
        if how == "delete":
            (state / name).unlink()
        else:
            (state / name).write_bytes(pickle.dumps(Attack()))
    model = tiny_model()
    assert (
        ResumeStore(tmp_path / "s", {"a": 1}).load_newest(
            model, build_optimizers(model, OPTIM, torch.float32)
        )
        is None
    )
    assert not marker.exists()


def test_two_states_are_kept(data: Shards, tmp_path: Path) -> None:
    run(data, tmp_path / "s", setup=settings(checkpoint_every_steps=1))
    assert sorted(p.name for p in (tmp_path / "s").glob("*/*")) == [
        "step-00000011",
        "step-00000012",
    ]


def test_optimizer_state_of_another_model_is_refused(tmp_path: Path) -> None:
    model, bigger = tiny_model(), tiny_model(num_layers=4)
    ResumeStore(tmp_path, {}).save(
        model, build_optimizers(model, adamw(), torch.float32), SavedState(1, [], {})
    )
    store = ResumeStore(tmp_path, {})
    folder = next(tmp_path.glob("*/step-*"))
    with pytest.raises(CheckpointError, match="missing"):
        store._load(folder, bigger, build_optimizers(bigger, adamw(), torch.float32))
    with pytest.raises(CheckpointError, match="state of 0 parameters"):
        store._load(folder, model, build_optimizers(model, adamw(), torch.float32))


def test_F_05_the_shift_has_one_owner_the_model_learns_the_next_token(tmp_path: Path) -> None:
    pattern = list(range(10, 20))
    shards.write(
        tmp_path / "part-00000.arrow",
        [Row([*pattern, 2] * 4, f"d{i}", "s") for i in range(20)],
        vocab_size=300,
    )
    data = Shards(tmp_path)
    model, points = run(data, tmp_path / "store", setup=settings(60), params=adamw())
    assert points[-1]["loss"] < 0.3 < points[0]["loss"]
    logits = model(torch.tensor([[2, 10, 11, 12]]))
    assert logits.argmax(-1)[0].tolist() == [10, 11, 12, 13]


def test_packed_conversations_train_on_answers_only(tmp_path: Path) -> None:
    rows = [
        Row([2, 5, 30 + i, 8, 6, 60 + i, 8], f"t{i}", "s", 0, [0, 0, 0, 0, 0, 1, 1])
        for i in range(10)
    ]
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=300, loss_mask=True)
    windows = Packed(Shards(tmp_path), context_length=16, seed=1, pad_id=3)
    model = tiny_model()
    fit(
        model, build_optimizers(model, adamw(), torch.float32), Batches(windows, 5), settings(80),
        ResumeStore(tmp_path / "s", {}), validate=dict, on_resume=lambda _: None, on_point=lambda _: None, extra={},
    )  # fmt: skip
    for i in range(10):
        logits = model(torch.tensor([[2, 5, 30 + i, 8, 6, 60 + i]]))
        assert logits.argmax(-1)[0, -2:].tolist() == [60 + i, 8], "the answer, then the end mark"


def test_S_08_a_document_behind_another_is_trained_on_as_if_alone(tmp_path: Path) -> None:
    """Its logits and loss in a window of several documents, under the document mask, are those that
    it has alone behind a mark, which is how evaluation scores it."""
    rng = np.random.default_rng(3)
    rows = [Row([*rng.integers(4, 300, 3 + i).tolist(), 2], f"d{i}", "s") for i in range(9)]
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=300)
    data, model, compared = Shards(tmp_path), tiny_model(), 0
    windows = Stream(
        data, context_length=40, seed=1, sampling="epoch", eos_id=2, document_mask=True
    )
    documents = {tuple(data.tokens(d).tolist()) for d in range(len(data))}
    for index in range(windows.windows_per_epoch):
        window = {name: torch.tensor(value)[None] for name, value in windows.window(index).items()}
        mask = segment_mask(window["segments"])
        logits = model(window["inputs"], positions=window["positions"], mask=mask)[0]
        for number in range(1, int(window["segments"].max()) + 1):
            inside = window["segments"][0] == number
            ids = window["targets"][0][inside]
            if tuple(ids.tolist()) in documents:  # a whole one
                alone = model(torch.cat([torch.tensor([2]), ids[:-1]])[None])[0]
                assert float((logits[inside] - alone).detach().abs().max()) < 1e-5
                compared += number > 1
    assert compared >= 3


def test_R_07_a_gradient_that_is_not_finite_stops_before_the_weights(
    data: Shards, tmp_path: Path
) -> None:
    model = tiny_model()
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = float("inf")
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(DataError, match="step 1: the gradient of batch 0 is not finite"):
        run(data, tmp_path / "s", model=model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not list((tmp_path / "s").glob("*/step-*"))


def test_R_08_every_parameter_is_in_one_group_and_only_matrices_decay() -> None:
    for tied in (False, True):
        model = tiny_model(tie_embeddings=tied)
        for params in (OPTIM, adamw()):
            groups = [
                group
                for o in build_optimizers(model, params, torch.float32)
                for group in o.param_groups
            ]
            members = [id(p) for group in groups for p in group["params"]]
            assert sorted(members) == sorted(id(p) for p in model.parameters())
            for group in groups:
                if group["weight_decay"]:
                    assert all(p.ndim == 2 and p.shape[0] != 300 for p in group["params"])
        assert len(split_parameters(model)[2]) == (0 if tied else 1)


@pytest.mark.parametrize(
    ("cls", "changes"),
    [
        (Schedule, {"warmup_share": 0.6, "decay_share": 0.5}),
        (Schedule, {"final_lr_share": 2.0}),
        (OptimParams, {"lr_head": 0.0}),
        (OptimParams, {"beta2": 1.0}),
        (OptimParams, {"weight_decay": -0.1}),
        (OptimParams, {"muon_steps": 0}),
    ],
)
def test_impossible_settings_are_refused(cls: type, changes: dict) -> None:
    from dataclasses import asdict

    good = asdict(SCHEDULE if cls is Schedule else OPTIM)
    with pytest.raises(ConfigError, match=list(changes)[0]):
        cls(**(good | changes))


@pytest.mark.slow
def test_a_compiled_step_is_deterministic_and_right() -> None:
    """In bf16 and at a real head size: there torch 2.13 compiles some forms of attention wrongly."""
    if not shutil.which("g++") and not shutil.which("c++"):
        pytest.fail("torch.compile on a CPU needs a C++ compiler")
    model = tiny_model(num_layers=1, num_heads=4, num_kv_heads=4, head_size=64, context_length=64)
    ids = torch.randint(0, 300, (8, 65), generator=torch.Generator().manual_seed(1))
    inputs, targets = ids[:, :-1], ids[:, 1:].contiguous()

    def gradients(loss_of: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        model.zero_grad()
        embedded = model.embed(inputs, torch.bfloat16)
        loss_of(model, embedded, targets, torch.arange(64)[None], None).backward()
        return [p.grad.clone() for p in model.parameters()]

    start = {name: value.clone() for name, value in model.state_dict().items()}

    def weights_after(loss_of: Callable[..., torch.Tensor]) -> bytes:
        model.load_state_dict(start)
        gradients(loss_of)
        for optimizer in build_optimizers(model, OPTIM, torch.bfloat16):
            optimizer.step()
        return b"".join(p.detach().numpy().tobytes() for p in model.parameters())

    compiled = torch.compile(cross_entropy_sum, dynamic=False, fullgraph=True)
    results = [gradients(compiled) for _ in range(20)]
    assert len({b"".join(g.numpy().tobytes() for g in result) for result in results}) == 1
    assert len({weights_after(compiled) for _ in range(20)}) == 1
    model.load_state_dict(start)
    for ours, eager in zip(results[0], gradients(cross_entropy_sum), strict=True):
        assert float((ours - eager).norm()) < 0.03 * float(eager.norm())


def test_E_05_the_loss_of_a_point_is_of_its_own_batch_before_the_step(
    data: Shards, tmp_path: Path
) -> None:
    """No running average: each point of the curve equals its batch, scored again with the weights
    frozen as they were just before that step. `num_steps` is below CURVE_POINTS: each step is a point."""
    model, accumulation, micro_batch = tiny_model(), 2, 3
    optimizers = build_optimizers(model, OPTIM, torch.float32)
    windows = Stream(data, context_length=16, seed=1, sampling="epoch", eos_id=2)
    batches = Batches(windows, micro_batch)
    frozen = [{name: value.clone() for name, value in model.state_dict().items()}]
    points = fit(
        model, optimizers, batches, settings(accumulation=accumulation), ResumeStore(tmp_path / "s", {"a": 1}),
        validate=dict, on_resume=lambda _: None, extra={},
        on_point=lambda _: frozen.append({n: v.clone() for n, v in model.state_dict().items()}),
    )  # fmt: skip
    assert [point["step"] for point in points] == list(range(1, STEPS + 1))
    again = tiny_model()
    for point, weights in zip(points, frozen, strict=False):
        again.load_state_dict(weights)
        first = (point["step"] - 1) * accumulation
        nats, targets = 0.0, 0
        for number in range(first, first + accumulation):
            batch = batches[number]
            inputs, wanted = (torch.as_tensor(batch[name]) for name in ("inputs", "targets"))
            with torch.no_grad():
                logits = again(inputs)
            loss = F.cross_entropy(
                logits.flatten(0, 1), wanted.flatten().long(), ignore_index=IGNORE, reduction="sum"
            )
            nats, targets = nats + float(loss), targets + int((wanted != IGNORE).sum())
        assert point["loss"] == pytest.approx(nats / targets, rel=1e-5), point["step"]
    running = np.cumsum([point["loss"] for point in points]) / np.arange(1, STEPS + 1)
    assert points[-1]["loss"] < running[-1] - 0.01  # which the average of the epoch would hide


def test_code_hashes_name_our_modules_and_leave_tracking_out() -> None:
    import sifirdan.track  # noqa: F401

    hashes = code_hashes()
    assert "sifirdan.training.resume" in hashes and not any("track" in name for name in hashes)
