"""What pretraining and instruction tuning share around the loop: from a plan to the finished model and
curve folders, with the resume fingerprint. The plan itself is made in plan.py.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from sifirdan import chat, runs
from sifirdan.corpus.loader import Batches, Windows
from sifirdan.device import attention_backends
from sifirdan.distributed import World, current
from sifirdan.errors import ConfigError
from sifirdan.model.checkpoint import save_model
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.tokenizer_files import save_hugging_face, save_readable
from sifirdan.training.changes import describe_changes
from sifirdan.training.flops import flops_per_token
from sifirdan.training.loop import FitSettings, Point, eval_steps, fit
from sifirdan.training.optim import OptimParams, Schedule, build_optimizers
from sifirdan.training.plan import Plan, make_plan, plainly_refused, settle
from sifirdan.training.resume import ResumeStore, code_hashes
from sifirdan.training.stopping import Ending, Limits, Watch

logger = logging.getLogger(__name__)

CURVE_FILE = "curve.jsonl"
PACKAGES = ("torch", "numpy", "pyarrow", "safetensors", "sentencepiece")


class Tracker(Protocol):
    """What a training run needs of the tracking run it reports to."""

    run_id: str

    def reopen(self, run_id: str) -> None:
        """Continue the earlier tracking run."""

    def log_axes(self, metrics: Mapping[str, Any]) -> None:
        """Draw its curves against what these numbers say of tokens and FLOPs, too."""

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to its curves."""


@dataclass(frozen=True)
class Recipe:
    """What a stage trains on and how; `curves` are the metrics to draw, with their labels."""

    windows: Windows
    context_length: int
    batch_sequences: int
    num_steps: int
    eval_every_steps: int
    precision: str
    optimizer: OptimParams
    schedule: Schedule
    validate: Callable[[], dict[str, float]]
    curves: dict[str, str]
    limits: Limits = Limits()


@dataclass(frozen=True)
class Trained:
    """What a finished run has to tell: its curve, and how it ended."""

    points: list[Point]
    ending: Ending

    @property
    def kept(self) -> Point:
        """The point of the curve at which the kept weights were."""
        return next(p for p in self.points if p["step"] == self.ending.kept_step)


@dataclass(frozen=True)
class Places:
    """Where a training stage writes: the model, the curve, and its state meanwhile."""

    out: Path
    report: Path
    store: Path


def train_to_folder(
    model: Transformer,
    tokenizer: Tokenizer,
    recipe: Recipe,
    places: Places,
    *,
    inputs: Mapping[str, runs.Manifest],
    params: Mapping[str, Any],
    runtime: Runtime,
    device: torch.device,
    tracker: Tracker,
    describe: Callable[[Path, Trained], None],
) -> Trained:
    """Train `model`, from the newest saved state if there is one, and write the finished folders.
    `describe` adds to the model's folder what says what it is. The state stays until the caller
    clears it."""
    world = current(runtime)
    share = world.share(recipe.batch_sequences)
    plan = make_plan(share, recipe.num_steps, recipe.precision, runtime, device)
    with plainly_refused(plan), attention_backends(device, runtime.deterministic):
        plan, estimate = settle(model, recipe.windows, plan, runtime, recipe.num_steps, world)
    settings = FitSettings(
        num_steps=recipe.num_steps,
        micro_batches_per_step=plan.accumulation,
        schedule=recipe.schedule,
        max_grad_norm=recipe.optimizer.max_grad_norm,
        dtype=plan.dtype,
        compiled=plan.compiled,
        eval_steps=eval_steps(recipe.num_steps, recipe.eval_every_steps),
        checkpoint_every_steps=runtime.checkpoint_every_steps,
        loader_workers=runtime.loader_workers,
        logits_chunk=plan.logits_chunk,
        lr_matrices=recipe.optimizer.lr_matrices,
        utilisation_a_token=flops_per_token(model) / (estimate.matmul_rate * world.size),
    )
    store = ResumeStore(
        places.store,
        _same_for_all(
            _fingerprint(inputs=inputs, params=params, plan=plan, device=device, world=world), world
        ),
        world=world,
    )
    watch = Watch(recipe.limits)
    lock = runs.lock(places.store.parent / f".{places.store.name}.lock", doing="training")
    with (
        lock if world.is_first else contextlib.nullcontext(),
        plainly_refused(plan),
        attention_backends(device, runtime.deterministic),
    ):
        world.shard(model, model.model.layers, compiled=plan.compiled)
        points = fit(
            model,
            build_optimizers(model, recipe.optimizer, plan.dtype),
            Batches(recipe.windows, plan.micro_batch, world.rank, world.size),
            settings,
            store,
            validate=recipe.validate,
            on_resume=lambda saved: tracker.reopen(saved.extra["run_id"]),
            on_point=lambda point: tracker.log_metrics(
                {name: value for name, value in point.items() if name != "step"}
                | (estimate.numbers if point["step"] == 1 else {}),
                step=point["step"],
            ),
            extra={"run_id": tracker.run_id},
            watch=watch,
            world=world,
        )
        trained = Trained(points, watch.ending(points[-1]["step"], recipe.num_steps))
        whole = world.whole(model)
        if not world.is_first:
            return trained
        _log_ending(trained)
        made: dict[str, Any] = {
            "inputs": inputs,
            "params": dict(params) | {"runtime": plan.facts | world.facts | store.facts},
            "packages": PACKAGES,
        }
        with runs.new_folder(places.report, kind="curve", **made) as output:
            save_curve(output.path, points, recipe.curves)
        with runs.new_folder(places.out, kind="model", **made) as output:
            save_trained(output.path, whole, tokenizer)
            describe(output.path, trained)
            output.counts |= trained.ending.facts | {"parameters": model.num_parameters()}
        store.mark_finished()
    return trained


def _log_ending(trained: Trained) -> None:
    """Say where a run ended before its budget, and which weights it kept."""
    ending, last = trained.ending, trained.points[-1]
    if ending.why == "max_minutes":
        logger.warning(
            "ended: max_minutes is over after step %d of %d, with the rates at %.0f %% of the full ones (the "
            "schedule is that of all steps); not reproducible: another machine ends elsewhere",
            ending.steps, ending.planned_steps, 100 * last["lr_factor"],
        )  # fmt: skip
    elif ending.why == "patience":
        logger.info(
            "ended: validation no longer improved, after step %d of %d",
            ending.steps, ending.planned_steps,
        )  # fmt: skip
    if ending.kept_step != ending.steps:
        logger.info("kept: the weights of step %d, the best in validation", ending.kept_step)


def clear_state(store: Path) -> None:
    """Forget the saved state of a stage's finished run: its outputs are whole now."""
    ResumeStore(store, {}).clear()


def _fingerprint(
    *,
    inputs: Mapping[str, runs.Manifest],
    params: Mapping[str, Any],
    plan: Plan,
    device: torch.device,
    world: World,
) -> dict[str, Any]:
    """Everything that a resumed run must share with the one it continues."""
    return {
        "inputs": {name: manifest.sha256 for name, manifest in inputs.items()},
        "params": dict(params),
        "runtime": plan.facts | world.facts | {"device": device.type},
        "code": code_hashes(),
        "versions": runs.versions(*PACKAGES),
    }


def _same_for_all(fingerprint: dict[str, Any], world: World) -> dict[str, Any]:
    """That of process 0, after a look that all train the same: on another machine code, packages or type
    may be others. Only the number of threads may differ."""
    if world.size == 1:
        return fingerprint
    first, *others = map(json.loads, world.gather_texts(json.dumps(fingerprint)))
    for rank, other in enumerate(others, start=1):
        other["runtime"]["threads"] = first["runtime"]["threads"]
        if changes := describe_changes(other, first):
            raise ConfigError(
                f"process {rank} would train something else than process 0 (is: process {rank}, "
                f"was: process 0): {'; '.join(changes)}",
                expected="the same checkout, environment and kind of device for every process",
                todo="bring the machines to the same state, then run the same command again",
            )
    return dict(first)


def save_trained(folder: Path, model: Transformer, tokenizer: Tokenizer) -> None:
    """A complete model folder: weights, configuration, tokenizer files."""
    save_model(folder, model, eos_ids=[tokenizer.eos_id, tokenizer.end_id], pad_id=tokenizer.pad_id)
    (folder / MODEL_FILE).write_bytes(tokenizer.proto.SerializeToString())
    save_readable(folder, tokenizer)
    save_hugging_face(folder, tokenizer, chat.TEMPLATE, model.config.context_length)


def save_curve(folder: Path, points: list[Point], metrics: Mapping[str, str]) -> None:
    """`curve.jsonl` and a picture of the curves in `metrics` (name: label)."""
    lines = "".join(json.dumps(point) + "\n" for point in points)
    runs.write_text(folder / CURVE_FILE, lines)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(metrics), figsize=(5.5 * len(metrics), 3.6), layout="constrained"
    )
    for axis, (name, label) in zip(
        [axes] if len(metrics) == 1 else axes, metrics.items(), strict=True
    ):
        known = [(point["step"], point[name]) for point in points if name in point]
        axis.plot(
            [step for step, _ in known],
            [value for _, value in known],
            marker="." if len(known) < 40 else "",
        )
        axis.set(xlabel="step", ylabel=label)
        axis.grid(alpha=0.3)
    figure.savefig(folder / "curve.png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
