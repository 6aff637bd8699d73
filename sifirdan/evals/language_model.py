"""How well a model predicts text, taken apart: by source, by length, by place in the context; with an
interval, and with how far its probabilities can be trusted. The stage `evaluate` reports from here.

Everything is a sum over tokens that were scored once, in the windows of bits_per_byte.py, divided once:
`measure` gives the same bits per byte as that file, which knows no parts. Bits per byte compare between
all models on one text; perplexities of words and characters do too, of tokens only within one tokenizer.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from torch import nn

from sifirdan.evals.bits_per_byte import windows
from sifirdan.evals.likelihood import token_scores

RESAMPLES = 1000  # of the bootstrap
BINS = 10  # of the calibration diagram, equally wide
_LENGTHS = (16, 32, 64, 128, 256, 512, 1024)  # tokens of a document, upper ends of the groups
_PLACES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # tokens seen before, lower ends


@dataclass(frozen=True)
class TextFacts:
    """What is known of a document beside its ids; `num_bytes` is of its UTF-8 text as stored."""

    source: str
    num_bytes: int
    num_words: int
    num_characters: int


def text_facts(source: str, text: str) -> TextFacts:
    """The facts of a text; a word is what stands between white space."""
    return TextFacts(source, len(text.encode()), len(text.split()), len(text))


@dataclass(frozen=True)
class DocumentScores:
    """Each (n,), one entry a token of the document, the closing mark included: nats, tokens that the
    model saw before it (the opening mark counts), confidence and correctness as in TokenScores."""

    nats: np.ndarray
    seen: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray


def score_tokens(
    model: nn.Module, documents: Sequence[np.ndarray], *, window: int, stride: int, eos_id: int
) -> list[DocumentScores]:
    """Scores for the tokens of each document, cut into windows as bits_per_byte.windows says."""
    pieces = [
        piece
        for owner, ids in enumerate(documents)
        for piece in windows(owner, ids, window, stride, eos_id)
    ]
    parts: list[list[tuple[np.ndarray, ...]]] = [[] for _ in documents]
    for piece, scores in zip(pieces, token_scores(model, pieces), strict=True):
        first = len(piece.targets) - len(scores.nats)  # what was scored is the end of the window
        seen = np.arange(first + 1, len(piece.targets) + 1)
        parts[piece.owner].append((scores.nats, seen, scores.confidence, scores.correct))
    empty = (np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
    return [
        DocumentScores(*(np.concatenate(column) for column in zip(*(some or [empty]), strict=True)))
        for some in parts
    ]


def measure(
    scores: Sequence[DocumentScores], facts: Sequence[TextFacts], *, seed: int
) -> dict[str, Any]:
    """The numbers of one split, as they stand in the metrics. A document without bytes cannot be
    scored: it is counted as unscorable and left out."""
    usable = [(s, f) for s, f in zip(scores, facts, strict=True) if f.num_bytes and len(s.nats)]
    unscorable = len(scores) - len(usable)
    if not usable:
        return {"documents": 0, "unscorable": unscorable}
    nats = np.array([score.nats.sum() for score, _ in usable])
    sizes = np.array([fact.num_bytes for _, fact in usable])
    tokens = np.array([len(score.nats) for score, _ in usable])
    total, low_high = float(nats.sum()), bootstrap_interval(nats, sizes, seed)
    words = sum(fact.num_words for _, fact in usable)
    characters = sum(fact.num_characters for _, fact in usable)
    sources = np.array([fact.source for _, fact in usable])
    every = [np.concatenate(column) for column in zip(*((s.nats, s.seen) for s, _ in usable), strict=True)]  # fmt: skip
    return {
        "bits_per_byte": bits(total) / int(sizes.sum()),
        "low": bits(low_high[0]),
        "high": bits(low_high[1]),
        "token_perplexity": perplexity(total, int(tokens.sum())),
        "word_perplexity": perplexity(total, words),
        "character_perplexity": perplexity(total, characters),
        "documents": len(usable),
        "unscorable": unscorable,
        "tokens": int(tokens.sum()),
        "words": words,
        "characters": characters,
        "bytes": int(sizes.sum()),
        "sources": {
            str(source): bits(float(nats[sources == source].sum()))
            / int(sizes[sources == source].sum())
            for source in sorted(set(sources.tolist()))
        },
        "lengths": _by_length(nats, sizes, tokens),
        "positions": _by_place(*every),
        "calibration": {
            name: value for name, value in calibration(scores).items() if name != "bins"
        },
    }


def bits(nats: float) -> float:
    """Nats as bits."""
    return nats / math.log(2)


def perplexity(nats: float, units: int) -> float:
    """exp(nats / units); infinite where there is no unit, or where it has no float."""
    try:
        return math.exp(nats / units)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def bootstrap_interval(
    sums: np.ndarray, sizes: np.ndarray, seed: int, *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Where sum(sums) / sum(sizes) lies in 95 % of resamples of the documents (Efron's percentile
    bootstrap): how much the number depends on which documents happened to be held out."""
    rng = np.random.default_rng(seed)
    ratios = np.empty(resamples)
    for number in range(resamples):
        drawn = rng.integers(0, len(sums), len(sums))
        ratios[number] = sums[drawn].sum() / sizes[drawn].sum()
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def calibration(scores: Sequence[DocumentScores]) -> dict[str, Any]:
    """Whether tokens that get probability p come in p of the cases, for the likeliest token at each
    place. `error` is the expected calibration error over equally wide bins (Guo et al. 2017, section
    2), `bins` what it is made of."""
    confidence = np.concatenate([score.confidence for score in scores]).astype(np.float64)
    correct = np.concatenate([score.correct for score in scores])
    if not len(confidence):
        return {"error": 0.0, "accuracy": 0.0, "confidence": 0.0, "bins": []}
    numbers = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = []
    for number in range(BINS):
        here = numbers == number
        if here.any():
            found = {"confidence": confidence[here].mean(), "accuracy": correct[here].mean()}
            bins.append({"tokens": int(here.sum())} | {k: float(v) for k, v in found.items()})
    off = sum(part["tokens"] * abs(part["confidence"] - part["accuracy"]) for part in bins)
    return {
        "error": off / len(confidence),
        "accuracy": float(correct.mean()),
        "confidence": float(confidence.mean()),
        "bins": bins,
    }


def fingerprint(documents: Sequence[str]) -> str:
    """12 hexadecimal digits for a set of documents, by their ids, which hash their texts. Numbers that
    were measured on texts with different fingerprints do not compare."""
    return hashlib.sha256("\n".join(sorted(documents)).encode()).hexdigest()[:12]


def token_counts(documents: Iterable[np.ndarray], vocab_size: int) -> np.ndarray:
    """How often each id occurs, (V,)."""
    counts = np.zeros(vocab_size, np.int64)
    documents = iter(documents)
    while some := list(islice(documents, 1000)):
        counts += np.bincount(np.concatenate(some), minlength=vocab_size)
    return counts


def unigram_bits_per_byte(
    counts: np.ndarray, documents: Sequence[np.ndarray], num_bytes: int
) -> float:
    """What the frequencies of the tokens alone would reach: `counts` (V,) of the training text, one
    added to each. The least that a model must beat."""
    chances = np.log2((counts + 1) / (counts.sum() + len(counts)))
    return float(-sum(chances[ids].sum() for ids in documents)) / num_bytes


def _by_length(nats: np.ndarray, sizes: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """Bits per byte of the documents of each length."""
    groups = np.searchsorted(_LENGTHS, tokens)
    return _grouped(
        groups, lambda group: _name_of_length(group),
        lambda here: bits(float(nats[here].sum())) / int(sizes[here].sum()),
    )  # fmt: skip


def _by_place(nats: np.ndarray, seen: np.ndarray) -> dict[str, float]:
    """Bits per token after so many tokens of context."""
    groups = np.searchsorted(_PLACES, seen, side="right") - 1
    return _grouped(groups, _name_of_place, lambda here: bits(float(nats[here].mean())))


def _grouped(
    groups: np.ndarray, name: Callable[[int], str], value: Callable[[np.ndarray], float]
) -> dict[str, float]:
    return {name(group): value(groups == group) for group in sorted(set(groups.tolist()))}


def _name_of_length(group: int) -> str:
    if group == len(_LENGTHS):
        return f"over {_LENGTHS[-1]}"
    return f"{_LENGTHS[group - 1] + 1 if group else 1}-{_LENGTHS[group]}"


def _name_of_place(group: int) -> str:
    first = _PLACES[group]
    last = _PLACES[group + 1] - 1 if group + 1 < len(_PLACES) else None
    return f"{first}" if last == first else f"{first}-{last}" if last else f"from {first}"
