"""What tests/test_distributed.py has torchrun start: `python -m torch.distributed.run … ranks.py JOB FOLDER`.
Each process trains the same small model; process 0 leaves what the tests then compare."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import yaml
from conftest import tiny_model
from safetensors.torch import save_file
from test_training import OPTIM, SCHEDULE, adamw

from sifirdan.corpus import shards
from sifirdan.corpus.loader import Batches, Packed
from sifirdan.corpus.shards import Row, Shards
from sifirdan.distributed import ALONE, World, current
from sifirdan.errors import CheckpointError, DataError
from sifirdan.model.checkpoint import weights_of
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.torchrun import processes
from sifirdan.training.loop import FitSettings, Point, eval_steps, fit
from sifirdan.training.optim import build_optimizers
from sifirdan.training.resume import ResumeStore
from sifirdan.training.stopping import Limits, Watch

FROM_ONE = ("fsdp-muon", "ddp-adamw")
STEPS, ACCUMULATION, BATCH = 10, 2, 12
ROOT = Path(__file__).resolve().parent.parent
OPTIMS = {"muon": OPTIM, "adamw": adamw()}


def runtime(parallel: str = "ddp") -> Runtime:
    content = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))["runtime"]
    return replace(Runtime(**content), parallel=parallel, device="cpu", threads=1)


def write_talks(folder: Path) -> None:
    """Conversations of very unequal lengths and answers, so that ranks have unequal targets."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    rows = []
    for i in range(70):
        ids = rng.integers(4, 300, 3 + i % 14).tolist()
        answer = 1 + i % 2 * (len(ids) // 2)
        rows.append(Row(ids, f"d{i}", "s", 0, [0] * (len(ids) - answer) + [1] * answer))
    shards.write(folder / "part-00000.arrow", rows, vocab_size=300, loss_mask=True)


def train(
    talks: Path, store: Path, world: World = ALONE, *, optim: str = "muon", tied: bool = False,
    dtype: torch.dtype = torch.float64, stop_at: int = 0, log: list[str] | None = None,
    poison: Callable[[Transformer], None] | None = None, at_point: Callable[[Point], object] = bool,
    watch: Watch | None = None, measured: list[float] | None = None, logits_chunk: int | None = None,
) -> tuple[Transformer, list[Point], ResumeStore]:  # fmt: skip
    """Ten steps from the newest state in `store`, or until `stop_at`, where every process dies."""
    model = tiny_model(tie_embeddings=tied, vocab_size=301, num_layers=2).to(dtype)
    share = world.share(BATCH)
    windows = Packed(Shards(talks), context_length=16, seed=1, pad_id=3)
    facts = {"micro_batch": share // ACCUMULATION} | world.facts
    resume = ResumeStore(store, {"a": 1, "runtime": facts}, world=world)
    world.shard(model, model.model.layers, compiled=False)
    if poison:
        poison(model)
    scored = torch.arange(4, 20)[None]

    def validate() -> dict[str, float]:
        if measured:
            return {"val": measured.pop(0)}
        return {"val": float(model.eval()(scored, dtype=dtype).detach().square().sum())}

    def stop(point: Point) -> None:
        at_point(point)
        if point["step"] == stop_at:
            raise ZeroDivisionError("killed")

    points = fit(
        model, build_optimizers(model, OPTIMS[optim], dtype),
        Batches(windows, share // ACCUMULATION, world.rank, world.size),
        FitSettings(
            STEPS, ACCUMULATION, SCHEDULE, 1.0, dtype, False, eval_steps(STEPS, 5), 5, 0, logits_chunk
        ),
        resume,
        validate=validate,
        on_resume=lambda saved: log.append(f"resumed {saved.step}") if log is not None else None,
        on_point=stop, extra={"run_id": "r"}, world=world, watch=watch,
    )  # fmt: skip
    return world.whole(model), points, resume


def save(folder: Path, name: str, model: Transformer) -> None:
    save_file(weights_of(model), folder / f"{name}.safetensors")


def many_ways(folder: Path) -> None:
    """Two processes: train as the tests do alone, in every way; continue a state of one process; at
    last one of them fails while the other waits for it in a step."""
    said: dict[str, object] = {}
    for parallel, optim in (("ddp", "muon"), ("fsdp", "muon"), ("ddp", "adamw"), ("fsdp", "adamw")):
        world, name = current(runtime(parallel)), f"{parallel}-{optim}"
        ways = {"optim": optim, "tied": optim == "adamw"}
        model, points, _ = train(folder / "talks", folder / "stores" / name, world, **ways)
        said[name] = points
        if world.is_first:
            save(folder, name, model)
        if name in FROM_ONE:
            log: list[str] = []
            store = folder / "alone" / name
            model, _, resume = train(folder / "talks", store, world, log=log, **ways)
            said[f"{name}-from-1"] = [log, resume.facts]
            if world.is_first:
                save(folder, f"{name}-from-1", model)
    world = current(runtime("fsdp"))
    said["asked"] = asked_to_stop(folder, world)
    model, _, _ = train(folder / "talks", folder / "asked", world)
    if world.is_first:
        save(folder, "fsdp-muon-asked", model)
    world = current(runtime())
    said["texts"] = world.gather_texts(["", "İstanbul’da"][world.rank])
    said["any"] = [world.any(world.rank == 1), world.any(False)]
    said["agree"] = world.agree({"a": float(world.rank), "b": 0.1}) | world.agree({})
    said["paths"] = world.gather_texts(str(world.same_paths([Path(f"of-{world.rank}")])[0]))
    said["best"] = [kept_best(folder, current(runtime(parallel))) for parallel in ("ddp", "fsdp")]
    said["out of time"] = out_of_time(folder, world)
    said["not finite"] = world.gather_texts(_error(lambda: poisoned(folder, world)))
    said["damaged"] = world.gather_texts(_error(lambda: world.agreed(lambda: damaged(world))))
    if world.is_first:
        (folder / "said.json").write_text(json.dumps(said), encoding="utf-8")

    def fail(point: Point) -> None:
        if point["step"] == 2 and world.rank == 1:
            raise DataError("a shard is damaged", todo="mend it")

    train(folder / "talks", folder / "fails", world, at_point=fail)


def asked_to_stop(folder: Path, world: World) -> list[str]:
    """What each process does when one of them gets a SIGTERM in step 7."""

    def ask(point: Point) -> None:
        if point["step"] == 7 and world.rank == 1:
            signal.raise_signal(signal.SIGTERM)

    try:
        train(folder / "talks", folder / "asked", world, at_point=ask)
    except KeyboardInterrupt:
        states = sorted(path.name for path in (folder / "asked").glob("*/step-*"))
        return world.gather_texts(f"stopped with {states}")
    return world.gather_texts("went on")


def kept_best(folder: Path, world: World) -> list[str]:
    """Validation, as process 0 measures it, is best at step 5; process 1 would say the opposite. All are
    killed after the state of step 5 and go on."""
    store, name = folder / "best" / world.parallel, f"{world.parallel}-best"
    limits, watches = Limits("val", patience=1, keep="best"), []
    for stop_at, values in ((6, [1.0, 2.0]), (0, [2.0])):
        mine = [value if world.is_first else 3 - value for value in values]
        watches.append(Watch(limits))
        with contextlib.suppress(ZeroDivisionError):
            model, _, _ = train(
                folder / "talks", store, world, watch=watches[-1], measured=mine, stop_at=stop_at,
                logits_chunk=9,
            )  # fmt: skip
    if world.is_first:
        save(folder, name, model)
    return world.gather_texts(str(watches[-1].ending(STEPS, STEPS).kept_step))


def out_of_time(folder: Path, world: World) -> list[str]:
    """What each process does when the minutes are over by the clock of one of them, in step 3."""
    watch = Watch(Limits(max_minutes=60))

    def late(point: Point) -> None:
        if point["step"] == 2 and world.rank == 1:
            watch._started -= 3601

    _, points, _ = train(folder / "talks", folder / "late", world, watch=watch, at_point=late)
    ending = watch.ending(points[-1]["step"], STEPS)
    return world.gather_texts(f"{ending.why} after {ending.steps}")


def poisoned(folder: Path, world: World) -> None:
    """A gradient that is infinite in process 1 only."""

    def poison(model: Transformer) -> None:
        if world.rank == 1:
            model.lm_head.weight.register_hook(lambda gradient: gradient / 0)

    train(folder / "talks", folder / "poisoned", world, poison=poison)


def damaged(world: World) -> int:
    if world.rank == 1:
        raise CheckpointError("part 2 is damaged")
    return 1


def _error(run: Callable[[], object]) -> str:
    try:
        run()
    except (CheckpointError, DataError) as error:
        return str(error)
    return "none"


def three(folder: Path) -> None:
    """Three processes: continue a state of two; resume their own, where the order of sums shows; and
    at last one of them is killed while the others wait for it in a step."""
    world = current(runtime("fsdp"))
    model, _, resume = train(folder / "talks", folder / "of-two/fsdp-muon", world)
    if world.is_first:
        save(folder, "fsdp-muon-from-2", model)
        assert resume.earlier_processes == ["2 processes (fsdp)"]
    world = current(runtime("ddp"))
    single = {"dtype": torch.float32}
    left_alone, _, _ = train(folder / "talks", folder / "left-alone", world, **single)
    for stop_at in (8, 0):
        with contextlib.suppress(ZeroDivisionError):
            resumed, _, _ = train(
                folder / "talks", folder / "cut", world, stop_at=stop_at, **single
            )
    if world.is_first:
        save(folder, "left-alone", left_alone)
        save(folder, "resumed", resumed)

    def die(point: Point) -> None:
        if point["step"] == 7 and world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    train(folder / "talks", folder / "killed", world, at_point=die)


if __name__ == "__main__":
    with processes(runtime()):
        {"many_ways": many_ways, "three": three}[sys.argv[1]](Path(sys.argv[2]))
