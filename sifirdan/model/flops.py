"""How many floating-point operations training takes for a token, from a model's description alone.

Plain arithmetic without torch, so that the charts of tracking and the plan of training count alike.
Not for what a device reaches of them: training/flops.py. Descriptions are those of checkpoint.describe.
"""

from collections.abc import Mapping
from typing import Any

FORMULA = "6·(matrices + head) + 12·layers·heads·head_size·context"


def weights_in_products(model: Mapping[str, Any]) -> int:
    """The weights that each token is multiplied with: the matrices in the blocks and the head. The
    embedding is a table to look up in, not a product, unless the head is tied to it."""
    width, layers = model["hidden_size"], model["num_layers"]
    query, key = (model[heads] * model["head_size"] for heads in ("num_heads", "num_kv_heads"))
    in_mlp = 2 if model.get("mlp") == "gelu" else 3  # matrices; earlier releases had SwiGLU only
    block = 2 * width * query + 2 * width * key + in_mlp * width * model["intermediate_size"]
    weights: int = layers * block + width * model["vocab_size"]
    return weights


def flops_per_token(model: Mapping[str, Any]) -> int:
    """Operations of the forward and backward pass for a token: 6 N + 12 L H D T, where N counts the
    weights above, L layers, H query heads, D head size, T context. The attention of all T places
    counts, as PaLM counts it (arXiv:2204.02311, appendix B); recomputing does not."""
    width = model["num_heads"] * model["head_size"]
    attention: int = 12 * model["num_layers"] * width * model["context_length"]
    return 6 * weights_in_products(model) + attention
