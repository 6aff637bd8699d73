"""Where a token stands: learned, sinusoidal and rotary positions, or none.

A kind acts at one of two places. Learned and sinusoidal positions are added to the embeddings (B, T, C)
before the first block: `forward`. Rotary ones turn queries and keys in every layer: `turn`, with the
`angles` that are looked up once a forward pass. At the other place each does nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sifirdan.model.shape import ModelShape

Angles = tuple[Tensor, ...]  # what `turn` needs: cosines and sines, or nothing


def rotate(x: Tensor, angles: Angles) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]) of x (B, H or K, T, D) by its position's angle (B or 1, 1, T, D).
    Pairs as in Hugging Face's Llama; the paper pairs neighbours, x[2i] and x[2i + 1]."""
    cos, sin = angles
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


def leave(x: Tensor, angles: Angles) -> Tensor:
    """x as it is, in memory in the order of its axes, which torch 2.13 needs: compiled, the product of
    two transposed views in bf16 is NaN on a CPU."""
    return x.contiguous()


class RotaryPositions(nn.Module):
    """Queries and keys are turned, so that their product tells how far apart they are (RoPE,
    arXiv:2104.09864)."""

    turn = staticmethod(rotate)

    def __init__(self, shape: ModelShape, context_length: int) -> None:
        super().__init__()
        steps = torch.arange(0, shape.head_size, 2, dtype=torch.float32)
        frequencies = shape.rope_theta ** -(steps / shape.head_size)
        angles = torch.arange(context_length, dtype=torch.float32)[:, None] * frequencies
        # (context_length, D): the two halves turn together
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        return embedded

    def angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        """positions (B or 1, T) -> cos, sin, each (B or 1, 1, T, D)."""
        cos, sin = self.get_buffer("cos"), self.get_buffer("sin")
        return cos[positions][:, None].to(dtype), sin[positions][:, None].to(dtype)


class LearnedPositions(nn.Module):
    """A table with a learned row for each place in the context, added to the embedding (GPT-2)."""

    turn = staticmethod(leave)

    def __init__(self, shape: ModelShape, context_length: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(context_length, shape.hidden_size))

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        return embedded + F.embedding(positions, self.weight)  # (B, T, C) + (B or 1, T, C)

    def angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        return ()


class SinusoidalPositions(nn.Module):
    """A fixed table, added to the embedding (arXiv:1706.03762, section 3.5). Row t: sin(t/10000^(2i/C))
    and cos of the same, in turn. Their root mean square is 0.71. The paper multiplies embeddings by √C
    first (section 3.4), which is not done here: an embedding that starts as N(0, 0.8) is about as large."""

    turn = staticmethod(leave)

    def __init__(self, shape: ModelShape, context_length: int) -> None:
        super().__init__()
        width = shape.hidden_size
        frequencies = 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.arange(context_length, dtype=torch.float32)[:, None] * frequencies
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        # (context_length, C); of an odd C the last cosine has no place
        self.register_buffer("table", table[:, :width], persistent=False)

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        return embedded + F.embedding(positions, self.get_buffer("table"))

    def angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        return ()


class NoPositions(nn.Module):
    """None: order is felt through the causal mask alone (NoPE, arXiv:2305.19466)."""

    turn = staticmethod(leave)

    def __init__(self, shape: ModelShape, context_length: int) -> None:
        super().__init__()

    def forward(self, embedded: Tensor, positions: Tensor) -> Tensor:
        return embedded

    def angles(self, positions: Tensor, dtype: torch.dtype) -> Angles:
        return ()


Positions = RotaryPositions | LearnedPositions | SinusoidalPositions | NoPositions
POSITIONS: dict[str, type[Positions]] = {
    "rotary": RotaryPositions,
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
    "none": NoPositions,
}
