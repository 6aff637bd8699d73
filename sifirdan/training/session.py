"""What pretraining and instruction tuning share around the loop: the plan of steps and micro-batches,
the estimate before the start, the resume fingerprint, and the finished model and curve folders.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from sifirdan import chat, runs
from sifirdan.corpus.loader import Batches, Windows
from sifirdan.device import pick_dtype, should_compile
from sifirdan.errors import require
from sifirdan.model.checkpoint import save_model
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.tokenizer_files import save_hugging_face, save_readable
from sifirdan.training.loop import FitSettings, Point, eval_steps, fit
from sifirdan.training.losses import cross_entropy_sum
from sifirdan.training.optim import OptimParams, Schedule, build_optimizers
from sifirdan.training.resume import ResumeStore, code_hashes

logger = logging.getLogger(__name__)

CURVE_FILE = "curve.jsonl"
PACKAGES = ("torch", "numpy", "pyarrow", "safetensors", "sentencepiece")
_MAX_GPU_MICRO_BATCH = 32
MIN_COMPILED_STEPS = 500  # a shorter run never gains back the minute that compiling costs


@dataclass(frozen=True)
class Plan:
    """How this machine carries out a step of `batch_sequences` windows."""

    micro_batch: int
    accumulation: int
    dtype: torch.dtype
    compiled: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What of it can change bits, for manifest and fingerprint."""
        return {
            "micro_batch": self.micro_batch,
            "dtype": str(self.dtype).removeprefix("torch."),
            "compiled": self.compiled,
            "threads": torch.get_num_threads(),
        }


def make_plan(
    batch_sequences: int, num_steps: int, precision: str, runtime: Runtime, device: torch.device
) -> Plan:
    """Split a step's sequences into equal micro-batches and pick type and compiling."""
    micro = runtime.micro_batch or (
        batch_sequences
        if device.type == "cpu"
        else _largest_divisor(batch_sequences, _MAX_GPU_MICRO_BATCH)
    )
    require(
        batch_sequences % micro == 0, "runtime.micro_batch", micro,
        f"a divisor of the {batch_sequences} sequences of a step, or null",
    )  # fmt: skip
    pays = runtime.compile == "on" or num_steps >= MIN_COMPILED_STEPS
    compiled = pays and should_compile(runtime.compile, device)
    return Plan(micro, batch_sequences // micro, pick_dtype(precision, device), compiled)


def log_estimate(model: Transformer, recipe: "Recipe", plan: Plan, device: torch.device) -> None:
    """Say what is about to be trained, and roughly how long it will take on this machine."""
    step_tokens = recipe.batch_sequences * recipe.context_length
    seconds = _measured_pass_seconds(model, recipe.context_length, plan, device)
    state_bytes = model.num_parameters() * 4 * 4  # weights, gradients and two moments in fp32
    logits_bytes = plan.micro_batch * recipe.context_length * model.config.vocab_size * 4 * 3
    logger.info(
        "plan: parameters=%.2fM tokens=%.2fM steps=%d batch_tokens=%d micro_batch=%d precision=%s "
        "compiled=%s device=%s threads=%d",
        model.num_parameters() / 1e6, recipe.num_steps * step_tokens / 1e6, recipe.num_steps,
        step_tokens, plan.micro_batch, plan.facts["dtype"], plan.compiled, device.type,
        torch.get_num_threads(),
    )  # fmt: skip
    logger.info(
        "estimate: about %.1f minutes and %.1f GB; two eager passes were measured, %.2f s a step",
        seconds * plan.accumulation * recipe.num_steps / 60, (state_bytes + logits_bytes) / 1e9 + 0.5,
        seconds * plan.accumulation,
    )  # fmt: skip


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
    describe: Callable[[Path, list[Point]], None],
) -> list[Point]:
    """Train `model`, from the newest saved state if there is one, and write the finished folders;
    returns the curve. `describe` adds to the model's folder what says what it is, from the curve.
    The state stays until the caller clears it."""
    plan = make_plan(recipe.batch_sequences, recipe.num_steps, recipe.precision, runtime, device)
    log_estimate(model, recipe, plan, device)
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
    )
    store = ResumeStore(
        places.store, _fingerprint(inputs=inputs, params=params, plan=plan, device=device)
    )
    with runs.lock(places.store.parent / f".{places.store.name}.lock", doing="training"):
        points = fit(
            model,
            build_optimizers(model, recipe.optimizer, plan.dtype),
            Batches(recipe.windows, plan.micro_batch),
            settings,
            store,
            validate=recipe.validate,
            on_resume=lambda saved: tracker.reopen(saved.extra["run_id"]),
            on_point=lambda point: tracker.log_metrics(
                {name: value for name, value in point.items() if name != "step"}, step=point["step"]
            ),
            extra={"run_id": tracker.run_id},
        )
        made: dict[str, Any] = {
            "inputs": inputs,
            "params": dict(params) | {"runtime": plan.facts},
            "packages": PACKAGES,
        }
        with runs.new_folder(places.report, kind="curve", **made) as output:
            save_curve(output.path, points, recipe.curves)
        with runs.new_folder(places.out, kind="model", **made) as output:
            save_trained(output.path, model, tokenizer)
            describe(output.path, points)
            output.counts |= {"steps": recipe.num_steps, "parameters": model.num_parameters()}
    return points


def clear_state(store: Path) -> None:
    """Forget a stage's saved training state: its outputs are whole now."""
    ResumeStore(store, {}).clear()


def _fingerprint(
    *,
    inputs: Mapping[str, runs.Manifest],
    params: Mapping[str, Any],
    plan: Plan,
    device: torch.device,
) -> dict[str, Any]:
    """Everything that a resumed run must share with the one it continues."""
    return {
        "inputs": {name: manifest.sha256 for name, manifest in inputs.items()},
        "params": dict(params),
        "runtime": plan.facts | {"device": device.type},
        "code": code_hashes(),
        "versions": runs.versions(*PACKAGES),
    }


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


def _largest_divisor(number: int, limit: int) -> int:
    return max(divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0)


def _measured_pass_seconds(
    model: Transformer, context_length: int, plan: Plan, device: torch.device
) -> float:
    """Seconds of an eager forward and backward pass of one micro-batch, the second of two."""
    ids = torch.zeros(plan.micro_batch, context_length, dtype=torch.int64, device=device)
    positions = torch.arange(context_length, device=device)[None]
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        loss = cross_entropy_sum(model, model.embed(ids, plan.dtype), ids, positions, None)
        loss.backward()
        float(loss.detach())  # waits for the device
        seconds = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
    return seconds
