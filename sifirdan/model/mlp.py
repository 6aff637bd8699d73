"""The feed-forward network (MLP) of a block, which looks at each token alone: C -> intermediate_size
(4C in GPT-2) -> C. SwiGLU, or GELU as in GPT-2.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from sifirdan.model.layers import linear


class SwiGLU(nn.Module):
    """Gated MLP: down(silu(gate(x)) * up(x)) (arXiv:2002.05202)."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, bias: bool) -> None:
        super().__init__()
        self.gate_proj = linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.silu(self.gate_proj(x)) * self.up_proj(x)  # (B, T, intermediate_size)
        y: Tensor = self.down_proj(hidden)  # (B, T, C)
        return y


class GELUMLP(nn.Module):
    """down(gelu(up(x))), with the tanh form of GELU that GPT-2 uses (arXiv:1606.08415)."""

    def __init__(self, hidden_size: int, intermediate_size: int, *, bias: bool) -> None:
        super().__init__()
        self.up_proj = linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up_proj(x), approximate="tanh")  # (B, T, intermediate_size)
        y: Tensor = self.down_proj(hidden)  # (B, T, C)
        return y


MLPS = {"swiglu": SwiGLU, "gelu": GELUMLP}
