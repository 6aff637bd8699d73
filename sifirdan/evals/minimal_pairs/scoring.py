"""How often a model finds the right member of a pair more likely, by phenomenon, with standard errors.

A member is scored whole, from the `</s>` that stands before every document in training, in nats summed
over its tokens and not divided by anything: both members are the same but for one place. A tie counts
half. Not for tokenizers or counts: baselines.py asks those.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from torch import nn

from sifirdan.evals.likelihood import Piece, nats_of
from sifirdan.evals.minimal_pairs.pairs import Pair


class Encoder(Protocol):
    """What is needed of a tokenizer."""

    eos_id: int

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""


@dataclass(frozen=True)
class PairResult:
    """The summed negative log-likelihoods of a pair's members, in nats."""

    pair: Pair
    good_nats: float
    bad_nats: float

    @property
    def point(self) -> float:
        """1 where the right member is more likely, 0 where it is less, 0.5 for a tie."""
        if self.good_nats == self.bad_nats:
            return 0.5
        return float(self.good_nats < self.bad_nats)


def score_pairs(model: nn.Module, tokenizer: Encoder, pairs: Sequence[Pair]) -> list[PairResult]:
    """The result of each pair, in their order."""
    members = list(chain.from_iterable((pair.good, pair.bad) for pair in pairs))
    pieces = [
        Piece(owner, np.array([tokenizer.eos_id, *ids[:-1]], np.int64), np.array(ids, np.int64))
        for owner, ids in enumerate(tokenizer.encode_many(members))
    ]
    nats = nats_of(model, pieces, len(members))
    return [
        PairResult(pair, good, bad)
        for pair, good, bad in zip(pairs, nats[::2], nats[1::2], strict=True)
    ]


def by_phenomenon(results: Sequence[PairResult]) -> dict[str, dict[str, Any]]:
    """For each phenomenon `accuracy`, its `standard_error`, the number of `pairs` and, where it has
    invented stems, `nonce_accuracy`."""
    groups: dict[str, list[PairResult]] = {}
    for result in results:
        groups.setdefault(result.pair.phenomenon, []).append(result)
    return {name: _summary(group) for name, group in groups.items()}


def overall(phenomena: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The mean of the phenomena's accuracies, and its standard error: phenomena are fixed, the pairs
    within them are a sample, so their variances add up."""
    num = len(phenomena)
    return {
        "accuracy": math.fsum(entry["accuracy"] for entry in phenomena.values()) / num,
        "standard_error": math.sqrt(
            math.fsum(entry["standard_error"] ** 2 for entry in phenomena.values())
        )
        / num,
    }


def standard_error(points: Sequence[float], clusters: Sequence[str]) -> float:
    """Of the mean of `points`, where those of one cluster are not independent: with the deviations
    from the mean summed in each of G clusters, sqrt(G / (G - 1) * sum of their squares) / points.
    Clusters of one give the usual s / sqrt(n); nan for fewer than two clusters. (Cameron & Miller
    2015, A practitioner's guide to cluster-robust inference, section II.)"""
    mean = math.fsum(points) / len(points)
    sums: dict[str, float] = {}
    for point, cluster in zip(points, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + point - mean
    if len(sums) < 2:
        return math.nan
    spread = math.fsum(value**2 for value in sums.values())
    return math.sqrt(len(sums) / (len(sums) - 1) * spread) / len(points)


def _summary(results: Sequence[PairResult]) -> dict[str, Any]:
    points = [result.point for result in results]
    summary = {
        "accuracy": math.fsum(points) / len(points),
        "standard_error": standard_error(points, [result.pair.stem for result in results]),
        "pairs": len(points),
    }
    invented = [result.point for result in results if result.pair.nonce]
    if invented:
        summary["nonce_accuracy"] = math.fsum(invented) / len(invented)
    return summary
