"""Muon: momentum whose direction is orthogonalised (Keller Jordan, kellerjordan.github.io/posts/muon).

The rule is that of `torch.optim.Muon` with `adjust_lr_fn="original"`, to rounding (tests/test_muon.py),
and there are two reasons for one of our own. Matrices of one size are orthogonalised together, as one
stack: on a CPU a step of the default model takes half of torch's time or less, which goes one matrix at
a time (docs/LOG.md has the figures). And Newton-Schulz computes in the type of the run, where torch
always rounds to bf16, which processors without it emulate slowly, and fp32 and fp64 runs do not want.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from sifirdan.distributed import local, on_whole_matrices

_A, _B, _C = 3.4445, -4.7750, 2.0315  # of the quintic that lifts all singular values towards 1
_FLOOR = 1e-7  # of a matrix's norm


class Muon(Optimizer):
    """For the matrices inside the blocks; embedding, head and norms belong to AdamW. `dtype` is the
    type that Newton-Schulz computes in."""

    def __init__(
        self,
        matrices: Iterable[Tensor],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        num_steps: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.num_steps, self.dtype = num_steps, dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step down the gradients that are there."""
        assert closure is None, "Muon takes no closure"
        for group in self.param_groups:
            stacks: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                rows, columns = matrix.shape
                stacks[min(rows, columns), max(rows, columns)].append(matrix)
            for matrices in stacks.values():
                self._step(matrices, group["lr"], group["momentum"], group["weight_decay"])

    def _step(
        self, matrices: list[Tensor], lr: float, momentum: float, weight_decay: float
    ) -> None:
        gradients = [local(matrix.grad) for matrix in matrices if matrix.grad is not None]
        assert len(gradients) == len(matrices), "a matrix has no gradient"
        momenta = [
            local(self.state[matrix].setdefault("momentum", torch.zeros_like(matrix)))
            for matrix in matrices
        ]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        updates = torch._foreach_lerp(gradients, momenta, momentum)  # Nesterov's look ahead
        directions = self._directions(matrices, updates)
        weights = [local(matrix) for matrix in matrices]
        torch._foreach_mul_(weights, 1 - lr * weight_decay)
        for matrix, weight, direction in zip(matrices, weights, directions, strict=True):
            rows, columns = matrix.shape
            weight.add_(direction, alpha=-lr * max(1.0, rows / columns) ** 0.5)

    def _directions(self, matrices: list[Tensor], updates: Sequence[Tensor]) -> Sequence[Tensor]:
        """The orthogonalised updates; where matrices are sharded, `updates` and these are rows."""
        if local(matrices[0]) is not matrices[0]:
            return self._directions_of_shards(matrices, updates)
        stack = torch.stack([_wide(update).to(self.dtype) for update in updates])
        return [
            direction if matrix.shape[0] <= matrix.shape[1] else direction.mT
            for matrix, direction in zip(
                matrices, orthogonalise(stack, self.num_steps), strict=True
            )
        ]

    def _directions_of_shards(
        self, matrices: list[Tensor], updates: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Each process orthogonalises some of the matrices, whole, and gives the rows back."""

        def on_stack(stack: Tensor) -> Tensor:
            tall = stack.shape[1] > stack.shape[2]
            directions = orthogonalise(stack.mT if tall else stack, self.num_steps)
            return directions.mT if tall else directions

        directions: dict[int, Tensor] = {}
        for shape in dict.fromkeys(matrix.shape for matrix in matrices):
            same = [index for index, matrix in enumerate(matrices) if matrix.shape == shape]
            shards = [updates[index].to(self.dtype) for index in same]
            whole = on_whole_matrices(shards, shape[0], on_stack)
            directions |= dict(zip(same, whole, strict=True))
        return [directions[index] for index in range(len(matrices))]


def orthogonalise(stack: Tensor, num_steps: int) -> Tensor:
    """Matrices (N, rows, columns), rows <= columns, with their singular values brought near 1 by
    `num_steps` Newton-Schulz steps: about U·V^T of U·S·V^T."""
    x = stack / stack.norm(dim=(-2, -1), keepdim=True).clamp(min=_FLOOR)
    for _ in range(num_steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
