"""What can be known without knowing Turkish: accuracy by the length of a sentence and by how frequent its
characters, words or tokens are. Not for models: scoring.py does that."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from sifirdan.evals.minimal_pairs.pairs import Pair

T = TypeVar("T")
_WORDS = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_DECIMALS = 9  # of a score in nats; what differs less is a tie


def words_of(text: str) -> list[str]:
    """What is written between spaces and marks; an apostrophe inside a word belongs to it."""
    return _WORDS.findall(text)


def count(texts: Iterable[str], cut: Callable[[str], Iterable[T]]) -> Counter[T]:
    """How often each piece occurs in some texts."""
    counts: Counter[T] = Counter()
    for text in texts:
        counts.update(cut(text))
    return counts


def unigram_accuracy(
    pairs: Sequence[Pair], counts: Mapping[T, int], cut: Callable[[str], Iterable[T]]
) -> dict[str, float]:
    """By phenomenon, the share of pairs whose right member has the more likely pieces, in sum; a
    piece that was never counted is as likely as one counted once."""
    total = math.log(max(1, sum(counts.values())))

    def score(text: str) -> float:
        return math.fsum(math.log(max(1, counts.get(piece, 0))) - total for piece in cut(text))

    return accuracy(pairs, score)


def length_accuracy(pairs: Sequence[Pair], length: Callable[[str], int] = len) -> dict[str, float]:
    """By phenomenon, the share of pairs whose right member is the shorter one."""
    return accuracy(pairs, lambda text: -float(length(text)))


def accuracy(pairs: Sequence[Pair], score: Callable[[str], float]) -> dict[str, float]:
    """By phenomenon, the share of pairs whose right member scores higher; a tie counts half."""
    points: dict[str, list[float]] = {}
    for pair in pairs:
        difference = round(score(pair.good) - score(pair.bad), _DECIMALS)
        points.setdefault(pair.phenomenon, []).append(
            0.5 if difference == 0 else float(difference > 0)
        )
    return {name: sum(some) / len(some) for name, some in points.items()}
