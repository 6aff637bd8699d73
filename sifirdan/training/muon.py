"""Muon: momentum whose direction is orthogonalised (Keller Jordan, kellerjordan.github.io/posts/muon).

The rule is that of `torch.optim.Muon` with `adjust_lr_fn="original"`, to rounding (tests/test_muon.py),
and there are two reasons for one of our own. Matrices of one size are orthogonalised together, as one
stack: on a CPU a step of the default model takes half of torch's time or less, which goes one matrix at
a time (docs/LOG.md has the figures). And Newton-Schulz computes in the type of the run, where torch
always rounds to bf16, which processors without it emulate slowly, and fp32 and fp64 runs do not want.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

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
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        assert len(gradients) == len(matrices), "a matrix has no gradient"
        momenta = [
            self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
            for matrix in matrices
        ]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        updates = torch._foreach_lerp(gradients, momenta, momentum)  # Nesterov's look ahead
        stack = torch.stack([_wide(update).to(self.dtype) for update in updates])
        directions = orthogonalise(stack, self.num_steps)
        torch._foreach_mul_(matrices, 1 - lr * weight_decay)
        for matrix, direction in zip(matrices, directions, strict=True):
            rows, columns = matrix.shape
            turned = direction if rows <= columns else direction.mT
            matrix.add_(turned, alpha=-lr * max(1.0, rows / columns) ** 0.5)


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
