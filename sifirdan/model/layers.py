"""What every part of the transformer is made of: matrices and dropout, and the wide type of delicate
sums. The parts themselves: positions.py, norms.py, attention.py, mlp.py; put together in transformer.py.

Each runs in the type of its input; weights stay fp32 masters.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def wide(x: Tensor) -> Tensor:
    """x in fp32, or in fp64 where it already is: the type of norms, softmaxes and losses."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Linear(nn.Linear):
    """A matrix without bias whose fp32 weight is cast to the input's type: explicit mixed
    precision, no autocast."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class LinearWithBias(nn.Linear):
    """The same with a bias, as GPT-2 has it."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


def linear(in_features: int, out_features: int, *, bias: bool) -> nn.Linear:
    kind = LinearWithBias if bias else Linear
    return kind(in_features, out_features)


def dropout(share: float) -> nn.Module:
    """In training this share of the numbers is zeroed (arXiv:1207.0580) and the others are divided by
    1 - share; otherwise nothing happens. It stands where the transformer's paper puts it
    (arXiv:1706.03762, section 5.4): on what a sublayer adds to the residual stream, and on the
    embeddings; never on attention's weights."""
    return nn.Dropout(share) if share > 0 else nn.Identity()
