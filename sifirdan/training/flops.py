"""Floating-point operations: how many training takes for a token, and how many the device does a second.

Their ratio is the utilisation that a run reports: the share of what the same device reaches in a bare
matrix product of the same type, measured in the same process, not of what a data sheet says.
"""

import time

import torch

from sifirdan.model.transformer import Transformer

FORMULA = "6·(matrices + head) + 12·layers·heads·head_size·context"
_SIZES = {"cuda": 8192, "mps": 4096}  # rows and columns of the matrices that are multiplied
_CPU_SIZE = 1024
_ROUNDS, _MAX_SECONDS = 20, 0.2


def weights_in_products(model: Transformer) -> int:
    """The weights that each token is multiplied with: the matrices in the blocks and the head. The
    embedding is a table to look up in, not a product, unless the head is tied to it."""
    blocks = sum(weight.numel() for weight in model.model.layers.parameters() if weight.ndim == 2)
    return blocks + model.lm_head.weight.numel()


def flops_per_token(model: Transformer) -> int:
    """Operations of the forward and backward pass for a token, as PaLM counts them (arXiv:2204.02311,
    appendix B): attention over the whole context, no recomputing."""
    shape = model.config.shape
    width = shape.num_heads * shape.head_size
    attention = 12 * shape.num_layers * width * model.config.context_length
    return 6 * weights_in_products(model) + attention


@torch.no_grad()
def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a big square matrix product, the best of some rounds; a quarter of a second or so
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
