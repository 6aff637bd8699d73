"""How fast this machine multiplies matrices, and how many FLOPs a model's training takes: the two
numbers behind a utilisation. Used by bench/train.py and bench/gpu.py.
"""

import time

import torch

from sifirdan.model.transformer import Transformer

Shape = tuple[int, int, int]  # (M, K, N): (M, K) times (K, N)


def flops_per_token(model: Transformer) -> int:
    """Of a training step: 6 for each weight of the matrices and the head (forward 2, backward 4), and
    12·L·H·D·T for attention, the half that causal attention may leave out included
    (arXiv:2204.02311, appendix B)."""
    shape, length = model.config.shape, model.config.context_length
    matrices = sum(p.numel() for p in model.model.layers.parameters() if p.ndim == 2)
    attention = 12 * shape.num_layers * shape.num_heads * shape.head_size * length
    return 6 * (matrices + model.lm_head.weight.numel()) + attention


def shapes_of(model: Transformer, tokens: int) -> list[Shape]:
    """The products of one training step over `tokens` tokens: each matrix forward, the gradient of its
    input and its own. Attention is left out."""
    sizes = [tuple(p.shape) for p in model.model.layers.parameters() if p.ndim == 2]
    sizes.append(tuple(model.lm_head.weight.shape))
    return [
        shape
        for n, k in sizes
        for shape in ((tokens, k, n), (tokens, n, k), (n, tokens, k))
    ]  # fmt: skip


def rate(shapes: list[Shape], dtype: torch.dtype, device: torch.device, seconds: float) -> float:
    """FLOP/s of these products, one after the other, over about so many seconds."""
    operands = {
        (m, k, n): (
            torch.randn(m, k, device=device).to(dtype),
            torch.randn(k, n, device=device).to(dtype),
            torch.empty(m, n, device=device, dtype=dtype),
        )
        for m, k, n in set(shapes)
    }

    def once() -> None:
        for shape in shapes:
            left, right, out = operands[shape]
            torch.mm(left, right, out=out)
        _wait(device)

    once()  # warms up
    start, passes = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        once()
        passes += 1
    spent = time.perf_counter() - start
    return passes * sum(2 * m * k * n for m, k, n in shapes) / spent


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
