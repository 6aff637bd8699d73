"""How fast this machine multiplies the matrices of a model, one after the other: what a utilisation is
measured against in bench/train.py and bench/gpu.py. The FLOPs of training are counted in training/flops.py.
"""

import time

import torch

from sifirdan.model.transformer import Transformer

Shape = tuple[int, int, int]  # (M, K, N): (M, K) times (K, N)


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
