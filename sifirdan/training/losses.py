"""The loss: a sum over target tokens, which the loop divides once by their number."""

import torch.nn.functional as F
from torch import Tensor

from sifirdan.corpus.loader import IGNORE
from sifirdan.model.layers import wide
from sifirdan.model.transformer import Transformer


def cross_entropy_sum(
    model: Transformer, embedded: Tensor, targets: Tensor, positions: Tensor, mask: Tensor | None
) -> Tensor:
    """Negative log-likelihood in nats, summed over the targets that are not IGNORE,
    in fp32 (fp64 for a model in fp64).

    embedded (B, T, C) from `model.embed`, targets (B, T), positions (B or 1, T). This is the
    function that is compiled; the lookup before it is not."""
    logits = wide(model.lm_head(model.model(embedded, positions, mask)))  # (B, T, V)
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )
