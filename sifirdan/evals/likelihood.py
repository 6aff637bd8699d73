"""Negative log-likelihoods of many short pieces in batches: what every score here is a sum of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from sifirdan.corpus.loader import IGNORE
from sifirdan.model.transformer import Transformer

BATCH_TOKENS = 8192  # bounds the logits of one forward pass; changes no result beyond rounding


@dataclass(frozen=True)
class Piece:
    """Something to score for the owner with the number `owner`: inputs and targets, each (T,), int64;
    targets that are IGNORE are not scored."""

    owner: int
    inputs: np.ndarray
    targets: np.ndarray


@torch.no_grad()
def nats_of(model: Transformer, pieces: Sequence[Piece], num_owners: int) -> list[float]:
    """The summed nats of each owner's targets, in fp32 and added up in float64. Padding is to the
    right, where a causal model cannot see it. The model's mode and the random generators are left
    as they were."""
    was_training = model.training
    model.eval()
    device = model.lm_head.weight.device
    nats = [0.0] * num_owners
    ordered = sorted(pieces, key=lambda piece: (len(piece.inputs), piece.owner))
    for batch in _batches(ordered):
        length = len(batch[-1].inputs)
        inputs = np.zeros((len(batch), length), np.int64)
        targets = np.full((len(batch), length), IGNORE, np.int64)
        for row, piece in enumerate(batch):
            inputs[row, : len(piece.inputs)] = piece.inputs
            targets[row, : len(piece.targets)] = piece.targets
        logits = model(torch.from_numpy(inputs).to(device)).float()  # (B, T, V)
        wanted = torch.from_numpy(targets).to(device)
        losses = F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORE, reduction="none"
        )
        for piece, value in zip(
            batch, losses.view(wanted.shape).double().cpu().sum(1).tolist(), strict=True
        ):
            nats[piece.owner] += value
    model.train(was_training)
    return nats


def _batches(ordered: list[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    for piece in ordered:  # sorted by length, so the newest is the longest
        if batch and (len(batch) + 1) * len(piece.inputs) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch
