"""Starting weights: two schemes, each with its source, for every combination of parts.

N(0, s) is the normal distribution with mean 0 and standard deviation s. Numbers are drawn in the order
of `named_parameters`, so one seed gives one model. Gains of norms start at 1, biases at 0.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, nn

from sifirdan.model.shape import ModelShape

RESIDUAL = ("o_proj.weight", "down_proj.weight")  # the two that write into the residual stream
TABLES = ("model.embed_tokens.weight", "model.positions.weight")


@torch.no_grad()
def zero_residual(model: nn.Module, shape: ModelShape, generator: Generator) -> None:
    """Embedding N(0, 0.8) and a nearly silent head N(0, 0.001) (modded-nanogpt, nanochat; one shared
    N(0, 0.02) table when tied), matrices N(0, 0.5/√fan_in), and zero for the two that write into the
    residual stream, so that every block starts as the identity. Learned positions as the embedding."""
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        elif name.endswith((*RESIDUAL, ".bias")):
            parameter.zero_()
        elif name in TABLES:
            std = 0.02 if shape.tie_embeddings else 0.8
            parameter.normal_(0.0, std, generator=generator)
        elif name == "lm_head.weight":
            parameter.normal_(0.0, 0.001, generator=generator)
        else:
            parameter.normal_(0.0, 0.5 / math.sqrt(parameter.shape[1]), generator=generator)


@torch.no_grad()
def gpt2(model: nn.Module, shape: ModelShape, generator: Generator) -> None:
    """N(0, 0.02) for tables, head and matrices (GPT-1's paper, section 4.1; GPT-2's released code has
    it too, but 0.01 for positions), and 1/√N of it for the N = 2L matrices that write into the
    residual stream (GPT-2's report, section 2.3)."""
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        elif name.endswith(".bias"):
            parameter.zero_()
        elif name.endswith(RESIDUAL):
            std = 0.02 / math.sqrt(2 * shape.num_layers)
            parameter.normal_(0.0, std, generator=generator)
        else:
            parameter.normal_(0.0, 0.02, generator=generator)


Scheme = Callable[[nn.Module, ModelShape, Generator], None]
SCHEMES: dict[str, Scheme] = {"zero_residual": zero_residual, "gpt2": gpt2}
