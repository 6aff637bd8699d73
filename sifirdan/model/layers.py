"""The parts of the transformer by the names the course gives them: linear, norm, positions,
attention, MLP, block. Each runs in the type of its input; weights stay fp32 masters.

Shape letters are explained at the top of transformer.py.
"""

from typing import Any

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


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed wide (arXiv:1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * (wide(x) * scale).to(x.dtype)


class RotaryPositions(nn.Module):
    """Tables of cosines and sines for rotary positions (RoPE, arXiv:2104.09864)."""

    def __init__(self, head_size: int, context_length: int, theta: float) -> None:
        super().__init__()
        frequencies = theta ** -(torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
        angles = torch.arange(context_length, dtype=torch.float32)[:, None] * frequencies
        angles = torch.cat([angles, angles], dim=-1)  # (T, D): the two halves turn together
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions (B or 1, T) -> cos, sin, each (B or 1, 1, T, D)."""
        cos, sin = self.get_buffer("cos"), self.get_buffer("sin")
        return cos[positions][:, None].to(dtype), sin[positions][:, None].to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]) of x (B, H, T, D) by its position's angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class LayerCache:
    """Keys and values of one layer so far, in room made beforehand: each (B, K, room, D)."""

    def __init__(self, batch: int, kv_heads: int, room: int, head_size: int, like: Tensor) -> None:
        shape = (batch, kv_heads, room, head_size)
        self.keys = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.values = torch.empty_like(self.keys)
        self.length = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, K, T, D) at the end; return views of all so far."""
        end = self.length + keys.shape[2]
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Attention(nn.Module):
    """Causal self-attention with grouped key-value heads (arXiv:2305.13245)."""

    def __init__(self, hidden_size: int, num_heads: int, num_kv_heads: int, head_size: int) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_size = num_heads, num_kv_heads, head_size
        self.q_proj = Linear(hidden_size, num_heads * head_size)
        self.k_proj = Linear(hidden_size, num_kv_heads * head_size)
        self.v_proj = Linear(hidden_size, num_kv_heads * head_size)
        self.o_proj = Linear(num_heads * head_size, hidden_size)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.num_heads, self.head_size).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.num_kv_heads, self.head_size).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.num_kv_heads, self.head_size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)  # (B, H, T, D), (B, K, T, D)
        if cache is not None:
            k, v = cache.append(k, v)
        if self.num_kv_heads != self.num_heads:
            group = self.num_heads // self.num_kv_heads
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = attend(q, k, v, mask)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))  # (B, T, C)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q·k/√D + mask)·v, all (B, H, T, D); without a mask, causal. Where a CPU trains under a
    mask the steps are our own; torch's fused kernel serves everything else."""
    if mask is not None and q.requires_grad and q.device.type == "cpu":
        y: Tensor = SpelledOutAttention.apply(q, k, v, mask)
        return y
    causal = mask is None and q.shape[2] > 1
    mask = None if mask is None else mask.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


class SpelledOutAttention(torch.autograd.Function):
    """Attention step by step (arXiv:1706.03762), and its gradient by hand: faster in training than
    torch's fused kernel on a CPU, for memory that grows with T². By hand because the gradient of
    k.mT that autograd derives comes transposed, which torch 2.13 compiles to wrong code for bf16."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = wide(q @ k.mT) * q.shape[-1] ** -0.5 + mask  # (B, H, T, T)
        weights = scores.softmax(-1).to(q.dtype)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        along = wide(grad @ v.mT) * wide(weights)
        grad_scores = along - wide(weights) * along.sum(-1, keepdim=True)  # through the softmax
        grad_scores = (grad_scores * q.shape[-1] ** -0.5).to(q.dtype)
        return grad_scores @ k, grad_scores.mT @ q, weights.mT @ grad, None


def additive(allowed: Tensor) -> Tensor:
    """A boolean mask, true where a token may look, as what is added to the scores: 0 or -inf."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, -torch.inf)


class SwiGLU(nn.Module):
    """Gated MLP: down(silu(gate(x)) * up(x)) (arXiv:2002.05202)."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden_size, intermediate_size)
        self.up_proj = Linear(hidden_size, intermediate_size)
        self.down_proj = Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Pre-norm decoder block: attention and MLP, each added to the residual stream."""

    def __init__(
        self,
        *,
        hidden_size: int,
        intermediate_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(hidden_size, norm_eps)
        self.self_attn = Attention(hidden_size, num_heads, num_kv_heads, head_size)
        self.post_attention_layernorm = RMSNorm(hidden_size, norm_eps)
        self.mlp = SwiGLU(hidden_size, intermediate_size)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))
