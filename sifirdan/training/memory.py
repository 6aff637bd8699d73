"""The memory of training: what a step takes, what the machine has, and how to take less of it.

Everything here is a function of sizes and of the machine's total memory, never of what is free at
the moment: the same machine comes to the same plan, and so to the same bits, after a kill.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sifirdan.model.transformer import Transformer

MAX_LOGITS_BYTES = 1 << 30  # of one chunk in fp32; matrix products gain nothing from more rows
USABLE_SHARE = (
    0.75  # of a device's memory; the rest is its allocator's, the system's, other programs'
)
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
_STATE_BYTES = 16  # a parameter: weight, gradient and two moments of AdamW in fp32
_LOGITS_COPIES = 3  # logits, their softmax and its gradient, each in fp32


def logits_chunk(tokens: int, vocab_size: int, limit: int = MAX_LOGITS_BYTES) -> int | None:
    """How many tokens of a micro-batch have their logits at a time: None, all, where these take at
    most `limit` bytes; else the micro-batch in the fewest parts, all but the last of one size."""
    parts = -(-tokens * vocab_size * 4 // limit)
    return None if parts <= 1 else -(-tokens // parts)


@dataclass(frozen=True)
class Need:
    """Bytes that training takes: in any case, and for each sequence of a micro-batch, apart from the
    logits, which are made `logits_chunk` tokens at a time."""

    fixed: int
    a_sequence: int
    context_length: int
    vocab_size: int

    def bytes_for(self, micro_batch: int) -> int:
        """The peak for micro-batches of that many sequences."""
        tokens = micro_batch * self.context_length
        rows = logits_chunk(tokens, self.vocab_size) or tokens
        return (
            self.fixed + micro_batch * self.a_sequence + rows * self.vocab_size * 4 * _LOGITS_COPIES
        )


def measure_need(
    model: Transformer, hidden_of: Callable[[int], Tensor], *, checkpointing: bool
) -> Need:
    """What training `model` takes; `hidden_of(n)` makes the final hidden states of n sequences. One
    and two are tried: the difference is what each costs, the rest is there once, like the weights in
    the type that is computed in. An eager pass is measured; a compiled one keeps less."""
    one, two = _kept_bytes(model, hidden_of, 1), _kept_bytes(model, hidden_of, 2)
    config, state = model.config, model.num_parameters() * _STATE_BYTES
    fixed, a_sequence = state + max(0, 2 * one - two), two - one
    if checkpointing:  # one block at a time with its gradients, and the input of each
        inputs = config.shape.num_layers * config.context_length * config.shape.hidden_size * 4
        a_sequence = min(a_sequence, 2 * a_sequence // config.shape.num_layers + inputs)
    return Need(fixed, a_sequence, config.context_length, config.vocab_size)


def _kept_bytes(model: Transformer, hidden_of: Callable[[int], Tensor], sequences: int) -> int:
    """Bytes that autograd keeps for the backward pass, every storage once; parameters do not count."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}  # held, so that no place is used twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden_of(sequences)
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


def device_memory(device: torch.device) -> int:
    """All the memory in bytes that the device has, or that this process may ever take on a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    import psutil

    limits = [psutil.virtual_memory().total]
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits += [limit] if limit != resource.RLIM_INFINITY else []
    with contextlib.suppress(OSError, ValueError):  # no container, or "max"
        limits.append(int(_CONTAINER_LIMIT.read_text()))
    return min(limits)


def largest_that_fits(need: Need, micro_batch: int, memory: int) -> int:
    """The largest divisor of `micro_batch` that takes at most USABLE_SHARE of `memory`, or 1."""
    sizes = (
        size for size in divisors_down(micro_batch) if need.bytes_for(size) <= memory * USABLE_SHARE
    )
    return next(sizes, 1)


def divisors_down(number: int) -> list[int]:
    """The divisors of `number`, the largest first."""
    return [divisor for divisor in range(number, 0, -1) if number % divisor == 0]


def checkpoint_blocks(model: Transformer) -> None:
    """Keep only each block's input for the backward pass and compute the rest again there: about a
    third more work for a fraction of the memory (arXiv:1604.06174). The same gradients."""
    for block in model.model.layers:
        assert isinstance(block, nn.Module)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, on any device, or Python could not get the memory it asked for."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
