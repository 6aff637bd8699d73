"""Floating-point operations: how many training this model takes for a token (the count itself is in
model/flops.py), and how many the device does a second.

Their ratio is the utilisation that a run reports: the share of what the same device reaches in a bare
matrix product of the same type, measured in the same process, not of what a data sheet says.
"""

import time

import torch

from sifirdan.model import flops
from sifirdan.model.checkpoint import describe
from sifirdan.model.transformer import Transformer

_SIZES = {"cuda": 8192, "mps": 4096}  # rows and columns of the matrices that are multiplied
_CPU_SIZE = 1024
_ROUNDS, _MAX_SECONDS = 20, 0.2


def weights_in_products(model: Transformer) -> int:
    """The weights that each token is multiplied with."""
    return flops.weights_in_products(describe(model.config))


def flops_per_token(model: Transformer) -> int:
    """Operations of the forward and backward pass for a token."""
    return flops.flops_per_token(describe(model.config))


@torch.no_grad()
def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a big square matrix product, the best of some rounds; a quarter of a second or so.
    The global random state is left alone."""
    size = _SIZES.get(device.type, _CPU_SIZE)
    drawn = torch.randn(size, size, generator=torch.Generator().manual_seed(1))
    matrix = drawn.to(device, dtype)
    end, best = time.perf_counter() + _MAX_SECONDS, 0.0
    for round_number in range(_ROUNDS):
        start = time.perf_counter()
        product = matrix @ matrix
        float(product[0, 0])  # waits for the device
        seconds = time.perf_counter() - start
        if round_number:  # the first one warms up
            best = max(best, 2 * size**3 / seconds)
            if time.perf_counter() > end:
                break
    return best
