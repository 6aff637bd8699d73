"""Causal self-attention with grouped heads, its cache for generation, and masks.

Shape letters are explained at the top of transformer.py.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sifirdan.model.layers import linear, wide
from sifirdan.model.norms import RMSNorm
from sifirdan.model.positions import Angles
from sifirdan.model.shape import ModelShape


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
    """Causal self-attention with grouped key-value heads (arXiv:2305.13245). `turn` rotates queries
    and keys (RoPE) or leaves them as they are: positions.py. With QK-norm every head's queries and
    keys get an RMSNorm before it (arXiv:2302.05442, as Qwen3 has it)."""

    def __init__(self, shape: ModelShape, turn: Callable[[Tensor, Angles], Tensor]) -> None:
        super().__init__()
        self.head_size, self.turn = shape.head_size, turn
        width, bias = shape.hidden_size, shape.bias
        queries, keys = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
        self.q_proj = linear(width, queries, bias=bias)
        self.k_proj = linear(width, keys, bias=bias)
        self.v_proj = linear(width, keys, bias=bias)
        self.o_proj = linear(queries, width, bias=bias)
        group = shape.num_heads // shape.num_kv_heads
        self.spread = SpreadHeads(group) if group > 1 else nn.Identity()
        eps = shape.rms_norm_eps
        self.q_norm = RMSNorm(self.head_size, eps) if shape.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(self.head_size, eps) if shape.qk_norm else nn.Identity()

    def forward(
        self, x: Tensor, angles: Angles, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        batch, length, _ = x.shape
        # (B, T, C) -> (B, T, H·D), (B, T, K·D), (B, T, K·D)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        # split: (B, T, H·D) -> (B, T, H, D) -> (B, H, T, D); k and v with K heads for H
        q = self.q_norm(q.view(batch, length, -1, self.head_size)).transpose(1, 2)
        k = self.k_norm(k.view(batch, length, -1, self.head_size)).transpose(1, 2)
        v = v.view(batch, length, -1, self.head_size).transpose(1, 2)
        q, k = self.turn(q, angles), self.turn(k, angles)  # (B, H, T, D), (B, K, T, D)
        if cache is not None:
            k, v = cache.append(k, v)  # (B, K, S, D)
        # join: (B, H, T, D) -> (B, T, H, D) -> (B, T, H·D) -> (B, T, C)
        y = attend(q, self.spread(k), self.spread(v), mask).transpose(1, 2)
        out: Tensor = self.o_proj(y.reshape(batch, length, -1))
        return out


class SpreadHeads(nn.Module):
    """Keys or values (B, K, S, D) -> (B, H, S, D): each head stands for a group of query heads (the
    field's repeat_kv)."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.group, dim=1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q·kᵀ/√D + mask)·v: q (B, H, T, D), k and v (B, H, S, D), mask (T, S) or (B or 1, 1, T, S)
    -> (B, H, T, D). Without a mask it is causal, for which S = T, or T = 1: the newest token looks at
    all so far. Where a CPU trains under a mask the steps are our own; torch's fused kernel serves
    everything else."""
    if mask is not None and q.requires_grad and q.device.type == "cpu":
        y: Tensor = SpelledOutAttention.apply(q, k, v, mask)
        return y
    causal = mask is None and q.shape[2] > 1
    mask = None if mask is None else mask.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


class SpelledOutAttention(torch.autograd.Function):
    """Attention step by step (arXiv:1706.03762): `forward` is the formula of the course, `backward`
    its gradient by hand. In training on a CPU this is faster than torch's fused kernel, at the price
    of memory that grows with T². By hand because the gradient of k.mT that autograd derives comes
    transposed, which torch 2.13 compiles to wrong code for bf16."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = wide(q @ k.mT) * q.shape[-1] ** -0.5 + mask  # (B, H, T, T)
        weights = scores.softmax(-1).to(q.dtype)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        # softmax: dS = P∘(dP − Σ dP∘P), with P the weights and S the scores
        along = wide(grad @ v.mT) * wide(weights)  # dP∘P
        grad_scores = along - wide(weights) * along.sum(-1, keepdim=True)
        grad_scores = (grad_scores * q.shape[-1] ** -0.5).to(q.dtype)
        return grad_scores @ k, grad_scores.mT @ q, weights.mT @ grad, None


def additive(allowed: Tensor) -> Tensor:
    """A boolean mask, true where a token may look, as what is added to the scores: 0 or -inf."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, -torch.inf)
