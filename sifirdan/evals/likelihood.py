"""Negative log-likelihoods of many short pieces in batches: what every score here is a sum of.

Works for every module that maps ids (B, T) to logits (B, T, V) and sees backwards only: our own model
and those of others alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sifirdan.corpus.loader import IGNORE

BATCH_TOKENS = 8192  # bounds the logits of one forward pass; changes no result beyond rounding


@dataclass(frozen=True)
class Piece:
    """Something to score for the owner with the number `owner`: inputs and targets, each (T,), int64;
    targets that are IGNORE are not scored."""

    owner: int
    inputs: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class TokenScores:
    """Of the scored targets of one piece, in order, each (n,): their nats, the probability that the
    model gave to its likeliest token there, and whether that was the target."""

    nats: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray


def nats_of(
    model: nn.Module,
    pieces: Sequence[Piece],
    num_owners: int,
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> list[float]:
    """The summed nats of each owner's targets, in fp32 and added up in float64. The model's mode and
    the random generators are left as they were."""
    nats = [0.0] * num_owners
    for batch, _, losses, _ in _forward(model, pieces, batch_tokens):
        for piece, value in zip(batch, losses.double().cpu().sum(1).tolist(), strict=True):
            nats[piece.owner] += value
    return nats


def token_scores(model: nn.Module, pieces: Sequence[Piece]) -> list[TokenScores]:
    """The same for each token of each piece, in the order of the pieces."""
    places = {id(piece): place for place, piece in enumerate(pieces)}
    found: list[TokenScores | None] = [None] * len(pieces)
    for batch, targets, losses, logits in _forward(model, pieces, BATCH_TOKENS):
        top = logits.max(-1)
        chosen = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        # cross-entropy is logsumexp less the target's logit
        confidence = (top.values - losses - chosen).exp().cpu().numpy()
        correct = (top.indices == targets).cpu().numpy()
        nats, kept = losses.double().cpu().numpy(), (targets != IGNORE).cpu().numpy()
        for row, piece in enumerate(batch):
            scored = kept[row]
            found[places[id(piece)]] = TokenScores(
                nats[row][scored], confidence[row][scored], correct[row][scored]
            )
    return [scores for scores in found if scores is not None]


@torch.no_grad()
def _forward(
    model: nn.Module, pieces: Sequence[Piece], batch_tokens: int
) -> Iterator[tuple[list[Piece], Tensor, Tensor, Tensor]]:
    """Batches of pieces with their targets (B, T), losses (B, T), 0 where nothing is scored, and logits
    (B, T, V). Padding is to the right, where a causal model cannot see it."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    try:
        ordered = sorted(pieces, key=lambda piece: (len(piece.inputs), piece.owner))
        for batch in _batches(ordered, batch_tokens):
            length = len(batch[-1].inputs)
            inputs = np.zeros((len(batch), length), np.int64)
            wanted = np.full((len(batch), length), IGNORE, np.int64)
            for row, piece in enumerate(batch):
                inputs[row, : len(piece.inputs)] = piece.inputs
                wanted[row, : len(piece.targets)] = piece.targets
            logits = model(torch.from_numpy(inputs).to(device)).float()
            targets = torch.from_numpy(wanted).to(device)
            losses = F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none"
            )
            yield batch, targets, losses.view(targets.shape), logits
    finally:
        model.train(was_training)


def _batches(ordered: list[Piece], batch_tokens: int) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    for piece in ordered:  # sorted by length, so the newest is the longest
        if batch and (len(batch) + 1) * len(piece.inputs) > batch_tokens:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch
