"""Bits per byte of whole documents: the one number that compares models with different tokenizers.

Total negative log-likelihood of every token, the closing mark of each document included where it is
given, divided once by the UTF-8 bytes of the documents' text as stored. Each document is scored on its
own from `</s>`, so the result depends on weights and text alone. A document longer than the window is cut
into windows that overlap by `window - stride` tokens of context, and every token is scored once.

`train` (val) and `sifirdan score` take their figure from here. The stage `evaluate` wants parts of it as
well and takes the figure from language_model.py: the same windows, of the function below, and the same
sum, token by token. A test holds the two equal.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from sifirdan.corpus.loader import IGNORE
from sifirdan.evals.likelihood import BATCH_TOKENS, Piece, nats_of


@dataclass(frozen=True)
class Score:
    """Sums that can be added up; the ratios are taken once, at the end."""

    nats: float
    tokens: int
    num_bytes: int
    documents: int

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.num_bytes

    @property
    def token_perplexity(self) -> float:
        return math.exp(self.nats / self.tokens)


def score_documents(
    model: nn.Module,
    documents: Sequence[np.ndarray],
    num_bytes: Sequence[int],
    *,
    window: int,
    stride: int,
    eos_id: int,
    mark_every_window: bool = False,
    batch_tokens: int = BATCH_TOKENS,
) -> list[Score]:
    """A Score for each document, given as its ids with the closing mark, or without it. A document of
    just `</s>` has one token to score. The mark `eos_id` stands before a document; where
    `mark_every_window`, as models want it that never saw a text without, before each window."""
    pieces = [
        piece
        for owner, ids in enumerate(documents)
        for piece in windows(owner, ids, window, stride, eos_id, mark_every_window)
    ]
    nats = nats_of(model, pieces, len(documents), batch_tokens=batch_tokens)
    return [
        Score(value, len(ids), size, 1)
        for value, ids, size in zip(nats, documents, num_bytes, strict=True)
    ]


def total(scores: Sequence[Score]) -> Score:
    """The sum of scores."""
    return Score(
        math.fsum(score.nats for score in scores),
        sum(score.tokens for score in scores),
        sum(score.num_bytes for score in scores),
        sum(score.documents for score in scores),
    )


def windows(
    owner: int,
    ids: np.ndarray,
    window: int,
    stride: int,
    mark: int,
    mark_every_window: bool = False,
) -> Iterator[Piece]:
    """A document's ids in windows of at most `window` inputs, `stride` apart, behind the mark; each id is
    a target once. The last window is moved back until it is full, as lm-eval does: context costs
    nothing there."""
    assert 1 <= stride <= window, (stride, window)
    targets = ids.astype(np.int64)
    inputs = np.concatenate([[mark], targets[:-1]])
    scored = start = 0
    while scored < len(ids):
        start = min(start, max(0, len(ids) - window))
        end = min(start + window, len(ids))
        seen, wanted = inputs[start:end].copy(), targets[start:end].copy()
        if mark_every_window:
            seen[0] = mark
        wanted[: scored - start] = IGNORE  # an earlier window scored these
        yield Piece(owner, seen, wanted)
        scored = end
        start += stride
