"""Norms: RMSNorm and LayerNorm, each over the last dimension. Computed wide, in fp32 at least."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sifirdan.model.layers import wide


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · gain: no mean is taken away, no bias (arXiv:1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * (wide(x) * scale).to(x.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / √(variance + eps) · gain (arXiv:1607.06450)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(wide(x), self.weight.shape, wide(self.weight), eps=self.eps)
        return y.to(x.dtype)


class LayerNormWithBias(nn.Module):
    """The same with a bias, as GPT-2 has it."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        gain, bias = wide(self.weight), wide(self.bias)
        return F.layer_norm(wide(x), self.weight.shape, gain, bias, self.eps).to(x.dtype)


def norm(kind: str, size: int, eps: float, *, bias: bool) -> nn.Module:
    """The norm of that name; an RMSNorm has no bias."""
    layer_norm = LayerNormWithBias if bias else LayerNorm
    return {"rmsnorm": RMSNorm, "layernorm": layer_norm}[kind](size, eps)
