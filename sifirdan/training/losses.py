"""The cross-entropy loss: a sum over target tokens, which the loop divides once by their number. Two
forms: over the logits of all tokens at once, which is fastest, or of some at a time, which needs little
memory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sifirdan.corpus.loader import IGNORE
from sifirdan.model.layers import wide
from sifirdan.model.transformer import Transformer, segment_mask

LossOf = Callable[[Transformer, Tensor, Tensor, Tensor, Tensor | None], Tensor]
BatchLoss = Callable[[Mapping[str, Tensor]], Tensor]


def loss_function(compiled: bool, logits_chunk: int | None) -> LossOf:
    """The loss that a run is trained with; `logits_chunk` is how many tokens have logits at a time,
    None: all."""

    def chunked(
        model: Transformer,
        embedded: Tensor,
        targets: Tensor,
        positions: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        assert logits_chunk is not None
        hidden = model.model(embedded, positions, mask).flatten(0, 1)  # (B·T, C)
        loss: Tensor = ChunkedCrossEntropy.apply(
            hidden, model.lm_head.weight, targets.flatten(), logits_chunk
        )
        return loss

    loss_of = cross_entropy_sum if logits_chunk is None else chunked
    return torch.compile(loss_of, dynamic=False, fullgraph=True) if compiled else loss_of


def batch_loss(model: Transformer, loss_of: LossOf, dtype: torch.dtype) -> BatchLoss:
    """`loss_of_batch` of this model, as a function of the batch alone."""
    return lambda batch: loss_of_batch(model, loss_of, batch, dtype)


def loss_of_batch(
    model: Transformer, loss_of: LossOf, batch: Mapping[str, Tensor], dtype: torch.dtype
) -> Tensor:
    """The loss of a batch of the loader, by now on the model's device."""
    mask, positions = None, batch.get("positions")
    if "segments" in batch:
        mask = segment_mask(batch["segments"])
    if positions is None:
        positions = torch.arange(batch["inputs"].shape[1], device=batch["inputs"].device)[None]
    embedded = model.embed(batch["inputs"], dtype, positions)
    return loss_of(model, embedded, batch["targets"], positions, mask)


def cross_entropy_sum(
    model: Transformer, embedded: Tensor, targets: Tensor, positions: Tensor, mask: Tensor | None
) -> Tensor:
    """Negative log-likelihood in nats, summed over the targets that are not IGNORE,
    in fp32 (fp64 for a model in fp64).

    embedded (B, T, C) from `model.embed`, targets (B, T), which are already shifted by one
    (corpus/loader.py), positions (B or 1, T). This is the function that is compiled; the lookup
    before it is not."""
    logits = wide(model.lm_head(model.model(embedded, positions, mask)))  # (B, T, V)
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )


class ChunkedCrossEntropy(torch.autograd.Function):
    """Output head and summed cross-entropy, some tokens at a time: the logits of all are never there
    at once. A chunk's gradient is made while its logits exist, so nothing is computed twice; softmax
    and sums are wide, as in `cross_entropy_sum`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int) -> Tensor:
        """hidden (N, C) in the computing type, weight (V, C), targets (N) -> nats."""
        head = weight.to(hidden.dtype)
        nats = torch.zeros((), dtype=weight.dtype, device=weight.device)
        grad_hidden, grad_weight = [], torch.zeros_like(weight)
        for x, wanted in zip(hidden.split(chunk), targets.split(chunk), strict=True):
            logits = wide(F.linear(x, head))  # (chunk, V)
            log_sum = logits.logsumexp(-1, keepdim=True)
            counts, place = (wanted != IGNORE)[:, None], wanted.clamp(min=0)[:, None]
            nats = nats + torch.where(counts, log_sum - logits.gather(1, place), 0.0).sum()
            grad = logits.sub_(log_sum).exp_()  # softmax, from which the target's 1 is taken
            grad = grad.scatter_add_(1, place, -torch.ones_like(log_sum)).mul_(counts).to(x.dtype)
            grad_hidden.append(grad @ head)
            grad_weight += grad.mT @ x
        ctx.save_for_backward(torch.cat(grad_hidden), grad_weight)
        return nats

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad, grad_weight * grad, None, None
