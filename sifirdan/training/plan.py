"""The plan of a training run, made before it starts: micro-batch, type, compiling, and what to expect.

A plan is tried once on the run's first batch. What does not compile is trained eager and what does
not fit into the memory gets a smaller micro-batch, before anything is recorded or trained. Times and
sizes that are measured here go to the log and to tracking only.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sifirdan.corpus.loader import Batches, Windows
from sifirdan.device import pick_dtype, should_compile
from sifirdan.distributed import ALONE, World
from sifirdan.errors import ConfigError, require
from sifirdan.model.flops import FORMULA
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.training import flops, memory
from sifirdan.training.losses import loss_function, loss_of_batch

logger = logging.getLogger(__name__)

MIN_COMPILED_STEPS = 500  # a shorter run never gains back the minute that compiling costs
_MAX_GPU_MICRO_BATCH = 64  # sequences; more keep no GPU busier at the contexts trained here
_FEW_TOKENS = 5  # a parameter: below, a smaller model learns as much from the same text
_GOOD_TOKENS = 20  # a parameter, compute-optimal (arXiv:2203.15556)
_TILE = 128  # GPUs multiply matrices in tiles of so many columns


@dataclass(frozen=True)
class Plan:
    """How this machine carries out a step of `batch_sequences` windows. `logits_chunk` is how many
    tokens of a micro-batch have their logits at a time; None: all."""

    micro_batch: int
    accumulation: int
    dtype: torch.dtype
    compiled: bool
    logits_chunk: int | None = None
    gradient_checkpointing: bool = False
    deterministic: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What of it can change bits, for manifest and fingerprint."""
        return {
            "micro_batch": self.micro_batch,
            "dtype": str(self.dtype).removeprefix("torch."),
            "compiled": self.compiled,
            "logits_chunk": self.logits_chunk,
            "gradient_checkpointing": self.gradient_checkpointing,
            "deterministic": self.deterministic,
            "threads": torch.get_num_threads(),
        }

    def with_micro_batch(self, micro_batch: int, context_length: int, vocab_size: int) -> "Plan":
        """The same step in micro-batches of another size."""
        return replace(
            self,
            micro_batch=micro_batch,
            accumulation=self.micro_batch * self.accumulation // micro_batch,
            logits_chunk=memory.logits_chunk(micro_batch * context_length, vocab_size),
        )


@dataclass(frozen=True)
class Estimate:
    """What a run will take; `numbers` are for tracking."""

    parameters: int
    weights_in_products: int
    tokens: int
    flops: float
    memory_bytes: int
    seconds: float
    matmul_rate: float

    @property
    def numbers(self) -> dict[str, float]:
        return {
            "plan_parameters": self.parameters,
            "plan_matrices_and_head": self.weights_in_products,
            "plan_tokens_per_parameter": self.tokens / self.parameters,
            "plan_flops": self.flops,
            "plan_memory_gb": self.memory_bytes / 1e9,
            "plan_minutes": self.seconds / 60,
            "plan_matmul_gflops_a_second": self.matmul_rate / 1e9,
        }


def make_plan(
    batch_sequences: int, num_steps: int, precision: str, runtime: Runtime, device: torch.device
) -> Plan:
    """Split a step's sequences into equal micro-batches and pick type and compiling."""
    micro = runtime.micro_batch or (
        batch_sequences
        if device.type == "cpu"
        else next(
            size for size in memory.divisors_down(batch_sequences) if size <= _MAX_GPU_MICRO_BATCH
        )
    )
    require(
        batch_sequences % micro == 0, "runtime.micro_batch", micro,
        f"a divisor of the {batch_sequences} sequences of a step, or null",
    )  # fmt: skip
    pays = runtime.compile == "on" or num_steps >= MIN_COMPILED_STEPS
    compiled = pays and should_compile(runtime.compile, device)
    return Plan(
        micro,
        batch_sequences // micro,
        pick_dtype(precision, device),
        compiled,
        gradient_checkpointing=runtime.gradient_checkpointing,
        deterministic=runtime.deterministic,
    )


def settle(
    model: Transformer,
    windows: Windows,
    plan: Plan,
    runtime: Runtime,
    num_steps: int,
    world: World = ALONE,
) -> tuple[Plan, Estimate]:
    """The plan as it works for this model on this machine, and what the run will take. Weights,
    gradients and random states are left as they were."""
    device = next(model.parameters()).device
    config, batch_sequences = model.config, plan.micro_batch * plan.accumulation * world.size
    _say_if_vocabulary_is_odd(config.vocab_size, device)
    model.train()
    with _unchanged(model):
        need = memory.measure_need(
            model,
            lambda n: _hidden(model, _batch(windows, n, device), plan.dtype),
            checkpointing=plan.gradient_checkpointing,
        )
        room, micro = memory.device_memory(device), plan.micro_batch
        if device.type == "cpu":  # its memory is for all of them
            room //= world.size
        if runtime.micro_batch is None:
            micro = memory.largest_that_fits(need, micro, room)
        if need.bytes_for(micro) > room:
            logger.warning(
                "memory: about %.1f GB are needed for %d sequences at a time, and the device has %.1f",
                need.bytes_for(micro) / 1e9, micro, room / 1e9,
            )  # fmt: skip
        plan = plan.with_micro_batch(micro, config.context_length, config.vocab_size)
        if plan.gradient_checkpointing:
            memory.checkpoint_blocks(model)
        _log_plan(model, plan, num_steps, device, world)
        plan, seconds = _try_out(
            model, windows, plan, device, may_shrink=runtime.micro_batch is None
        )
    plan = _same_for_all(plan, model, world)
    tokens = num_steps * batch_sequences * config.context_length
    estimate = Estimate(
        parameters=model.num_parameters(),
        weights_in_products=flops.weights_in_products(model),
        tokens=tokens,
        flops=float(tokens) * flops.flops_per_token(model),
        memory_bytes=need.bytes_for(plan.micro_batch),
        seconds=seconds * plan.accumulation * num_steps,
        matmul_rate=flops.matmul_rate(device, plan.dtype),
    )
    logger.info(
        "estimate: %.1f minutes of forward and backward passes, up to %.1f GB, %.3g FLOPs (%s a token); "
        "a matrix product was measured at %.0f GFLOP/s",
        estimate.seconds / 60, estimate.memory_bytes / 1e9, estimate.flops, FORMULA,
        estimate.matmul_rate / 1e9,
    )  # fmt: skip
    return plan, estimate


def _same_for_all(plan: Plan, model: Transformer, world: World) -> Plan:
    """What was measured may differ between processes: the smallest micro-batch, compiled where all can."""
    if world.size == 1:
        return plan
    said = world.gather_texts(f"{plan.micro_batch} {int(plan.compiled)}")
    found = [[int(number) for number in text.split()] for text in said]
    micro, compiled = min(micro for micro, _ in found), all(flag for _, flag in found)
    config = model.config
    plan = plan.with_micro_batch(micro, config.context_length, config.vocab_size)
    return replace(plan, compiled=compiled)


@contextmanager
def plainly_refused(plan: Plan) -> Iterator[None]:
    """Turn an out-of-memory error of the block into one that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not memory.is_out_of_memory(error):
            raise
        smaller = memory.divisors_down(plan.micro_batch)[1:2]
        ways = [f"set runtime.micro_batch to {size} or less" for size in smaller]
        ways += (
            [] if plan.gradient_checkpointing else ["set runtime.gradient_checkpointing to true"]
        )
        raise ConfigError(
            f"out of memory at {plan.micro_batch} sequences a pass ({first_line(error)})",
            expected="micro-batches that fit into the memory of the device",
            todo=", or ".join([*ways, "take a shorter context or a smaller model"]),
        ) from None


def warn_of_few_tokens(tokens: int, parameters: int) -> None:
    """Say so where a model is trained from nothing on far too little for its size."""
    if tokens / parameters < _FEW_TOKENS:
        logger.warning(
            "tokens: %.2fM for %.2fM parameters are %.1f a parameter; about %d are compute-optimal, and "
            "below %d a smaller model learns as much in less time",
            tokens / 1e6, parameters / 1e6, tokens / parameters, _GOOD_TOKENS, _FEW_TOKENS,
        )  # fmt: skip


def _try_out(
    model: Transformer, windows: Windows, plan: Plan, device: torch.device, *, may_shrink: bool
) -> tuple[Plan, float]:
    """The plan with which a pass over the first batch works, and the seconds that it takes."""
    while True:
        try:
            return plan, _seconds_a_pass(model, windows, plan, device)
        except Exception as error:  # whatever the compiler stack raises here, eager works
            if memory.is_out_of_memory(error):
                if not may_shrink or plan.micro_batch == 1:
                    raise
                micro = memory.divisors_down(plan.micro_batch)[1]
                logger.info("memory: %d sequences do not fit; trying %d", plan.micro_batch, micro)
                config = model.config
                plan = plan.with_micro_batch(micro, config.context_length, config.vocab_size)
            elif plan.compiled:
                logger.info(
                    "torch.compile: fails for this model (%s); training eager (slower)",
                    first_line(error),
                )
                plan = replace(plan, compiled=False)
            else:
                raise
        model.zero_grad(set_to_none=True)


def _seconds_a_pass(
    model: Transformer, windows: Windows, plan: Plan, device: torch.device
) -> float:
    """Seconds of a forward and backward pass over a micro-batch, the second of two."""
    if plan.compiled:
        logger.info("compiling: up to a minute, once")
    loss_of = loss_function(plan.compiled, plan.logits_chunk)
    batch, seconds = _batch(windows, plan.micro_batch, device), 0.0
    for _ in range(2):
        start = time.perf_counter()
        loss = loss_of_batch(model, loss_of, batch, plan.dtype)
        loss.backward()
        float(loss.detach())  # waits for the device
        seconds = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
    return seconds


@contextmanager
def _unchanged(model: Transformer) -> Iterator[None]:
    """Leave random states and gradients behind as they were found."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
    model.zero_grad(set_to_none=True)


def _batch(windows: Windows, sequences: int, device: torch.device) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in Batches(windows, sequences)[0].items()}


def _hidden(model: Transformer, batch: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
    def hidden_of(
        model: Transformer, embedded: Tensor, _: Tensor, positions: Tensor, mask: Tensor | None
    ) -> Tensor:
        return model.model(embedded, positions, mask)

    return loss_of_batch(model, hidden_of, batch, dtype)


def _say_if_vocabulary_is_odd(vocab_size: int, device: torch.device) -> None:
    """Matrices are not padded: a row without a piece would be one more thing that others trip over."""
    if vocab_size % _TILE and device.type == "cuda":
        logger.warning(
            "vocabulary: %d pieces are no multiple of %d, which slows the output head down; "
            "train_tokenizer.vocab_size %d would not", vocab_size, _TILE,
            -(-vocab_size // _TILE) * _TILE,
        )  # fmt: skip


def _log_plan(
    model: Transformer, plan: Plan, num_steps: int, device: torch.device, world: World
) -> None:
    sequences = plan.micro_batch * plan.accumulation * world.size
    step_tokens = sequences * model.config.context_length
    tokens, parameters = num_steps * step_tokens, model.num_parameters()
    logger.info(
        "plan: parameters=%.2fM matrices_and_head=%.2fM tokens=%.2fM tokens_per_parameter=%.1f steps=%d "
        "batch_tokens=%d micro_batch=%d logits_chunk=%s precision=%s compiled=%s checkpointing=%s "
        "device=%s threads=%d",
        parameters / 1e6, flops.weights_in_products(model) / 1e6, tokens / 1e6, tokens / parameters,
        num_steps, step_tokens, plan.micro_batch, plan.logits_chunk or "all", plan.facts["dtype"],
        plan.compiled, plan.gradient_checkpointing, device.type, torch.get_num_threads(),
    )  # fmt: skip


def first_line(error: BaseException) -> str:
    """What an error says, as far as it fits into a line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
