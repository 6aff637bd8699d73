"""Several processes, one a device, that train one model together; where there is one process, nothing
here does anything. The model and the files it is saved in know nothing of it.

torchrun starts the processes (see torchrun.py). Each takes its own sequences of a step;
what is added up over them is sums: of the gradient, the loss, the targets. `ddp` keeps the whole model
in each process, `fsdp` a share of every tensor's rows (FSDP2), for less memory and more traffic.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.runtime import Runtime

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)
LossOf = Callable[..., Tensor]


@dataclass(frozen=True)
class World:
    """This process's rank among `size` that train together. Alone, every method is the identity."""

    rank: int = 0
    size: int = 1
    parallel: str = "ddp"
    device: str = "cpu"

    @property
    def is_first(self) -> bool:
        """Whether this is the process that logs, tracks and writes outputs."""
        return self.rank == 0

    @property
    def is_sharded(self) -> bool:
        return self.size > 1 and self.parallel == "fsdp"

    @property
    def facts(self) -> dict[str, Any]:
        """What of it can change bits, for manifest and fingerprint."""
        return {} if self.size == 1 else {"processes": self.size, "parallel": self.parallel}

    def share(self, batch_sequences: int) -> int:
        """How many of a step's sequences this process takes."""
        if batch_sequences % self.size:
            raise ConfigError(
                f"a step has {batch_sequences} sequences (batch_tokens / context_length), "
                f"which {self.size} processes cannot share evenly",
                expected="a multiple of the number of processes",
                todo="change batch_tokens or PET_NPROC_PER_NODE",
            )
        return batch_sequences // self.size

    # The model

    def shard(self, model: nn.Module, blocks: nn.ModuleList, *, compiled: bool) -> None:
        """Under `fsdp`, keep only this process's rows of each parameter; before the optimisers are
        built. Each block is gathered by itself and, where asked for, compiled by itself."""
        if self.rank:  # dropout draws other numbers in each process
            torch.manual_seed(torch.initial_seed() + self.rank)
        if not self.is_sharded:
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        mesh = init_device_mesh(self.device, (self.size,))
        for block in blocks:
            if compiled:
                block.forward = _compiled_in_training(block.forward)
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for module in model.modules():
            if isinstance(module, FSDPModule):  # gradients are summed; the loop divides once
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def wrap(self, model: nn.Module, loss_of: LossOf, micro_batches_per_step: int) -> LossOf:
        """`loss_of`, which runs `model` on one micro-batch, so that its backward pass leaves the sum
        over all processes in the gradients: under `ddp` at a step's last micro-batch, under `fsdp`
        at each (whole gradients are never kept)."""
        if self.size == 1:
            return loss_of
        if self.is_sharded:
            from torch.distributed.fsdp import register_fsdp_forward_method

            model.training_loss = loss_of  # type: ignore[assignment]
            register_fsdp_forward_method(model, "training_loss")
            wrapped: LossOf = model.training_loss  # type: ignore[assignment]
            return wrapped
        return _replicated(model, loss_of, micro_batches_per_step)

    def whole(self, model: M) -> M:
        """The model with whole parameters, to be saved by process 0; every process must ask."""
        if not self.is_sharded:
            return model
        gathered = {}
        for name, value in model.state_dict().items():
            weight = full(value)
            if self.is_first:
                gathered[name] = weight.cpu()
        if not self.is_first:
            return model
        plain: M = type(model)(model.config)  # FSDP's class makes one of the model's own
        plain.to(next(iter(gathered.values())).dtype).load_state_dict(gathered)
        return plain

    # Numbers

    def sums(self, loss_sum: Tensor, targets: int) -> tuple[Tensor, int]:
        """Both, summed over the processes; the loss is not waited for."""
        if self.size == 1:
            return loss_sum, targets
        dist.all_reduce(loss_sum)
        count = torch.tensor(targets)
        dist.all_reduce(count)
        return loss_sum, int(count)

    def any(self, flag: bool) -> bool:
        """Whether any process says so: what depends on clocks and signals is agreed on."""
        if self.size == 1:
            return flag
        value = torch.tensor(int(flag))
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return bool(value)

    def agree(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values of process 0, for all; every process has the same names."""
        if self.size == 1 or not values:
            return dict(values)
        numbers = torch.tensor(list(values.values()), dtype=torch.float64)
        dist.broadcast(numbers, src=0)
        return dict(zip(values, numbers.tolist(), strict=True))

    def gather_texts(self, text: str) -> list[str]:
        """Everybody's text, by rank."""
        if self.size == 1:
            return [text]
        own = torch.frombuffer(bytearray(text.encode("utf-8")) or bytearray(1), dtype=torch.uint8)
        lengths = [torch.zeros((), dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor(len(text.encode("utf-8"))))
        room = max(1, *(int(length) for length in lengths))
        padded = torch.zeros(room, dtype=torch.uint8)
        padded[: len(own)] = own
        everybody = [torch.zeros_like(padded) for _ in range(self.size)]
        dist.all_gather(everybody, padded)
        return [
            bytes(data[: int(length)].tolist()).decode("utf-8")
            for data, length in zip(everybody, lengths, strict=True)
        ]

    def same_paths(self, paths: list[Path]) -> list[Path]:
        """Process 0's, for all: another may look earlier, or see a shared folder as it was."""
        if self.size == 1:
            return paths
        listed: list[str] = json.loads(self.gather_texts(json.dumps([str(p) for p in paths]))[0])
        return [Path(path) for path in listed]

    def agreed(self, make: Callable[[], T], kind: type[CheckpointError] = CheckpointError) -> T:
        """What `make` returns, unless it raises a CheckpointError in any process: then all raise that, as
        one of this kind. `make` may not talk to the other processes."""
        if self.size == 1:
            return make()
        problem, result = "", None
        try:
            result = make()
        except CheckpointError as error:
            problem = str(error)
        problems = [text for text in self.gather_texts(problem) if text]
        if problems:
            raise kind(problems[0])
        return result  # type: ignore[return-value]


ALONE = World()


def current(runtime: Runtime) -> World:
    """The world that this process has joined."""
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    device = "cuda" if "nccl" in dist.get_backend_config() else "cpu"
    return World(dist.get_rank(), dist.get_world_size(), runtime.parallel, device)


def local(tensor: Tensor) -> Tensor:
    """This process's rows of a sharded tensor; any other as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full(tensor: Tensor) -> Tensor:
    """The whole of a tensor that is spread over the processes; any other as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def on_whole_matrices(
    shards: list[Tensor], num_rows: int, compute: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """`compute` on matrices of which each process has only its rows: shards (rows here, columns) in,
    this process's rows of the results out. The matrices are dealt out, each process gets some of them
    whole, as a stack (N, rows, columns), and sends the rows back: a matrix crosses the wire twice."""
    size, (here, columns) = dist.get_world_size(), shards[0].shape
    each = -(-len(shards) // size)  # matrices a process
    rows = -(-num_rows // size)  # rows a process, the last ones perhaps fewer
    sent = shards[0].new_zeros(size * each, rows, columns)
    for index, shard in enumerate(shards):
        sent[index, :here] = shard
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)  # (process it came from · my matrix, rows, C)
    parts = received.view(size, each, rows, columns).transpose(0, 1)
    stack = parts.reshape(each, size * rows, columns)
    result = torch.zeros_like(stack)
    mine = min(each, max(0, len(shards) - dist.get_rank() * each))
    if mine:
        result[:mine, :num_rows] = compute(stack[:mine, :num_rows])
    back = result.view(each, size, rows, columns).transpose(0, 1).contiguous()
    dist.all_to_all_single(received, back.view(size * each, rows, columns))
    return [received[index, :here] for index in range(len(shards))]


def _compiled_in_training(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A block's forward pass, compiled for training alone: validation has windows of many lengths. FSDP's
    hooks are around it, outside of the graph."""
    compiled = torch.compile(forward, dynamic=False)

    def in_training(*inputs: Any) -> Tensor:
        result: Tensor = (compiled if torch.is_grad_enabled() else forward)(*inputs)
        return result

    return in_training


class _Pass(nn.Module):
    """The function that runs the model on a micro-batch, with the model's parameters: what DDP wraps.
    Buffers are the same everywhere and never sent."""

    def __init__(self, model: nn.Module, loss_of: LossOf) -> None:
        super().__init__()
        self.weights, self.loss_of = nn.ParameterList(model.parameters()), loss_of

    def forward(self, *batch: Any) -> Tensor:
        if batch:
            return self.loss_of(*batch)
        return torch.stack([weight.sum() for weight in self.weights]).sum() * 0.0


def _replicated(model: nn.Module, loss_of: LossOf, micro_batches_per_step: int) -> LossOf:
    """`loss_of` under DDP, whose mean over processes is replaced by the sum."""
    from torch.nn.parallel import DistributedDataParallel

    def add_up(
        _state: None,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    ddp = DistributedDataParallel(_Pass(model, loss_of), gradient_as_bucket_view=True)
    ddp.register_comm_hook(None, add_up)
    # DDP puts its buckets in another order after the first backward pass. A pass that changes nothing
    # settles that, so that a resumed run adds up in the same order as one that was left alone.
    ddp().backward()
    model.zero_grad(set_to_none=True)
    count = 0

    def loss(*batch: Any) -> Tensor:
        nonlocal count
        count += 1
        with contextlib.nullcontext() if count % micro_batches_per_step == 0 else ddp.no_sync():
            result: Tensor = ddp(*batch)
        return result

    return loss
