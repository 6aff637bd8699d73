"""The one training loop, for pretraining and instruction tuning alike.

`fit` steps from the newest saved state to `num_steps`, or to where its `Watch` ends it. One step: the
rate from the schedule; forward, loss and backward of each micro-batch (`_accumulate`); the mean of the
gradient, clipped (`_average_and_clip`); `optimizer.step` and `zero_grad`. The gradient is the sum over
the target tokens of all micro-batches, divided once by their number, so accumulation never changes the
result. Points of the curve (loss, learning rate, validation) are kept with the state; times and speeds
go to the log and to `on_point` only.
"""

import logging
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from sifirdan.corpus.loader import Batches, load_batches
from sifirdan.distributed import ALONE, World, full
from sifirdan.model.checkpoint import set_weights, weights_of
from sifirdan.model.transformer import Transformer
from sifirdan.training.feed import Feed
from sifirdan.training.losses import BatchLoss, batch_loss, cross_entropy_sum, loss_function
from sifirdan.training.non_finite import batch_refusal, require_finite_state
from sifirdan.training.optim import Schedule, set_learning_rates
from sifirdan.training.resume import ResumeStore, SavedState
from sifirdan.training.stopping import Watch

logger = logging.getLogger(__name__)

Point = dict[str, Any]
CURVE_POINTS = 100  # about so many points has a curve, whatever the machine
MAX_QUIET_SECONDS = 60.0  # where points are rarer, a line comes between them
MIN_LINE_SECONDS = 5.0  # where they are closer, only some get a line


@dataclass(frozen=True)
class FitSettings:
    """How a run is stepped. `eval_steps` are the steps after which `validate` is called;
    `logits_chunk` as in losses.py. For the log only: the full learning rate of the matrices, and the
    share of the device's measured rate that one token a second uses."""

    num_steps: int
    micro_batches_per_step: int
    schedule: Schedule
    max_grad_norm: float
    dtype: torch.dtype
    compiled: bool
    eval_steps: frozenset[int]
    checkpoint_every_steps: int
    loader_workers: int
    logits_chunk: int | None = None
    lr_matrices: float = 0.0
    utilisation_a_token: float = 0.0


def fit(
    model: Transformer,
    optimizers: list[Optimizer],
    batches: Batches,
    settings: FitSettings,
    store: ResumeStore,
    *,
    validate: Callable[[], dict[str, float]],
    on_resume: Callable[[SavedState], None],
    on_point: Callable[[Point], None],
    extra: dict[str, Any],
    watch: Watch | None = None,
    world: World = ALONE,
) -> list[Point]:
    """Train in place; returns the curve, a list of {"step", name: value, …}. `on_resume` gets the
    saved state a run continues from, `on_point` every new point with its speed; `extra` is stored
    with each state. `watch` may end the run early, and knows afterwards why; the model then has the
    weights that it keeps. After SIGTERM, Ctrl-C or the end of the terminal the state is saved and
    KeyboardInterrupt raised."""
    watch = watch or Watch()
    saved = store.load_newest(model, optimizers)
    watch.start(saved.extra.get("watch") if saved else None)
    if saved is not None:
        logger.info("resume: continuing at step %d of %d", saved.step, settings.num_steps)
        on_resume(saved)
        extra = saved.extra
    done = saved.step if saved else 0
    points = list(saved.points) if saved else []
    best = saved.best if saved else None
    device = next(model.parameters()).device
    accumulation = settings.micro_batches_per_step
    compiled = settings.compiled and not world.is_sharded  # there, each block by itself
    loss = loss_function(compiled, settings.logits_chunk)
    loss_of = world.wrap(model, batch_loss(model, loss, settings.dtype), accumulation)
    point_every = max(1, settings.num_steps // CURVE_POINTS)
    model.train()
    with _stop_when_asked() as stop_asked:
        # inside: a terminal asks all its processes, and those that are forked here go on meanwhile
        stream = load_batches(
            batches, done * accumulation, settings.num_steps * accumulation,
            num_workers=settings.loader_workers, pin_memory=device.type == "cuda",
        )  # fmt: skip
        feed = Feed(stream, device)
        clock = _Clock(done, settings.num_steps)
        for step in range(done + 1, settings.num_steps + 1):
            if watch.has_ended:
                break
            factor = settings.schedule.lr_factor(step, settings.num_steps)
            set_learning_rates(optimizers, factor)
            loss_sum, targets, inputs = _accumulate(loss_of, feed, accumulation, device)
            loss_sum, targets = world.sums(loss_sum, targets)
            grad_norm = _average_and_clip(model, targets, settings.max_grad_norm)
            if not math.isfinite(grad_norm):
                first = (step - 1) * accumulation
                plain = batch_loss(model, cross_entropy_sum, settings.dtype)
                raise batch_refusal(
                    step, range(first, first + accumulation), batches, model,
                    loss_of if world.is_sharded else plain, world,
                )  # fmt: skip
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            clock.count(inputs * world.size)
            if step == done + 1:
                clock.restart()  # the first step compiles, which says nothing about the others

            if step == settings.num_steps:
                watch.end("budget")
            elif watch.limits.max_minutes is not None and world.any(watch.is_out_of_time()):
                watch.end("max_minutes")
            validating = step in settings.eval_steps or watch.has_ended
            on_curve = validating or step == 1 or step % point_every == 0
            if on_curve or clock.is_quiet():
                point: Point = {
                    "step": step,
                    "loss": float(loss_sum) / targets,
                    "grad_norm": grad_norm,
                    "lr_factor": factor,
                }
                if validating:
                    clock.pause()
                    measured = world.agree(validate())
                    point |= measured
                    if watch.see(step, measured) and watch.limits.keep == "best":
                        best = _copy_of_weights(model, world)
                    if watch.is_out_of_patience() and not watch.has_ended:
                        watch.end("patience")
                    clock.resume()
                speed = clock.speed(settings.utilisation_a_token)
                speed["learning_rate"] = settings.lr_matrices * factor
                if step == 1 or validating or clock.is_line_due():
                    logger.info(_line(point, settings.num_steps, speed))
                if on_curve:
                    points.append(point)
                    on_point(point | speed)
            if (
                watch.has_ended
                or step % settings.checkpoint_every_steps == 0
                or world.any(stop_asked())
            ):
                clock.pause()
                require_finite_state(model, optimizers, step, world)
                state = SavedState(step, points, extra | {"watch": watch.record()}, best)
                store.save(model, optimizers, state)
                clock.resume()
                if not watch.has_ended and world.any(stop_asked()):
                    raise KeyboardInterrupt
    if best is not None:
        set_weights(model, best, place="the best weights")
    model.eval()
    return points


def eval_steps(num_steps: int, every: int) -> frozenset[int]:
    """Every `every`-th step and the last."""
    return frozenset(range(every, num_steps, every)) | {num_steps}


def _copy_of_weights(model: Transformer, world: World) -> dict[str, Tensor]:
    """The weights as they are now; of a sharded model this process's rows, on their device."""
    weights = weights_of(model)
    if world.is_sharded:
        own = model.state_dict()
        weights = {name: own[name].detach() for name in weights}
    return {name: value.clone() for name, value in weights.items()}


def _accumulate(
    loss_of: BatchLoss, feed: Feed, accumulation: int, device: torch.device
) -> tuple[Tensor, int, int]:
    """Add the gradients of one step's micro-batches; returns (loss sum, targets, input tokens)."""
    loss_sum = torch.zeros((), device=device)
    targets = inputs = 0
    for _ in range(accumulation):
        micro, counted = feed.take()
        targets += counted
        inputs += micro["inputs"].numel()
        loss = loss_of(micro)
        loss.backward()
        feed.fetch()
        loss_sum += loss.detach()
    return loss_sum, targets, inputs


@torch.no_grad()
def _average_and_clip(model: Transformer, targets: int, max_norm: float) -> float:
    """Divide the summed gradient by the number of targets and clip its norm, both in one go; returns
    the norm before clipping. Where it is not finite nothing is changed."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = float(full(torch.nn.utils.get_total_norm(gradients))) / max(targets, 1)
    if math.isfinite(norm):
        torch._foreach_mul_(gradients, min(1.0, max_norm / (norm + 1e-6)) / max(targets, 1))
    return norm


class _stop_when_asked:
    """While open, SIGTERM, Ctrl-C and SIGHUP (the terminal is closed) only set a flag; the value is a
    function that reads it. Under nohup, which ignores SIGHUP, that stays so."""

    def __enter__(self) -> Callable[[], bool]:
        self._asked = False
        numbers = [signal.SIGTERM, signal.SIGINT]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)  # Windows has none
        self._before = {number: signal.signal(number, self._note) for number in numbers}
        return lambda: self._asked

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _signum: int, _frame: FrameType | None) -> None:
        self._asked = True


class _Clock:
    """Tokens a second of training alone, and the time left."""

    def __init__(self, done: int, num_steps: int) -> None:
        self.steps_left = num_steps - done
        self._said = time.perf_counter()
        self.restart()

    def count(self, tokens: int) -> None:
        self.tokens += tokens
        self.steps_left -= 1

    def restart(self) -> None:
        self.num_steps_here = self.steps_left
        self.seconds, self.tokens, self._since = 0.0, 0, time.perf_counter()

    def pause(self) -> None:
        self.seconds += time.perf_counter() - self._since

    def resume(self) -> None:
        self._since = time.perf_counter()

    def is_quiet(self) -> bool:
        return time.perf_counter() - self._said > MAX_QUIET_SECONDS

    def is_line_due(self) -> bool:
        """Whether a line may be written again; if so, it counts as written."""
        if time.perf_counter() - self._said < MIN_LINE_SECONDS:
            return False
        self._said = time.perf_counter()
        return True

    def speed(self, utilisation_a_token: float) -> dict[str, float]:
        if self.tokens == 0:
            return {}
        seconds = self.seconds + time.perf_counter() - self._since
        per_step = seconds / max(1, self.num_steps_here - self.steps_left)
        return {
            "tokens_per_second": self.tokens / seconds,
            "utilisation": self.tokens / seconds * utilisation_a_token,
            "seconds_left": per_step * self.steps_left,
        }


def _line(point: Point, num_steps: int, speed: dict[str, float]) -> str:
    values = " ".join(f"{name}={value:.4g}" for name, value in point.items() if name != "step")
    line = f"step {point['step']}/{num_steps} {values} learning_rate={speed['learning_rate']:.3g}"
    if "seconds_left" not in speed:
        return line
    minutes, seconds = divmod(round(speed["seconds_left"]), 60)
    return (
        f"{line} tokens_per_second={speed['tokens_per_second']:.0f} "
        f"utilisation={speed['utilisation']:.0%} left={minutes}m{seconds:02d}s"
    )
