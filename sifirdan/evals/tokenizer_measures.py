"""What a tokenizer does to text, in numbers: how much a token holds, how words come apart, and
whether the cuts fall where Turkish puts its suffixes.

Everything follows from the ids of a text and the bytes where each ends (baselines/contestants.py). A
word is what stands between white space of ASCII; the space before it belongs to it.
"""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from sifirdan.baselines.contestants import Contestant
from sifirdan.evals.suffix_words import SuffixWord

_WORD = re.compile(rb"\S+")


@dataclass(frozen=True)
class TextMeasures:
    """Sums over texts; the shares are properties."""

    bytes: int = 0
    tokens: int = 0
    words: int = 0
    whole_words: int = 0  # of one token, with or without the space before
    broken_characters: int = 0  # tokens that hold a part of a character
    unknown: int = 0

    def __add__(self, other: "TextMeasures") -> "TextMeasures":
        return TextMeasures(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / max(1, self.tokens)

    @property
    def tokens_per_word(self) -> float:
        return self.tokens / max(1, self.words)

    @property
    def whole_word_share(self) -> float:
        return self.whole_words / max(1, self.words)

    @property
    def broken_share(self) -> float:
        return self.broken_characters / max(1, self.tokens)

    @property
    def unknown_share(self) -> float:
        return self.unknown / max(1, self.tokens)


def measure(contestant: Contestant, texts: Sequence[str]) -> TextMeasures:
    """The sums over some texts."""
    found = TextMeasures()
    for text, ids in zip(texts, contestant.encode_many(list(texts)), strict=True):
        raw = np.frombuffer(text.encode(), np.uint8)
        ends = contestant.ends(text, ids)
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        lost = np.array(ids) == contestant.unknown
        inside = np.append((raw & 0xC0) == 0x80, False)  # bytes that go on with a character
        spans = np.array([match.span() for match in _WORD.finditer(raw.tobytes())], np.int64)
        found += TextMeasures(
            bytes=len(raw),
            tokens=len(ids),
            words=len(spans),
            whole_words=_whole_words(spans.reshape(-1, 2), starts, ends, lost),
            broken_characters=int((inside[starts] | inside[ends]).sum()),
            unknown=int(lost.sum()),
        )
    return found


def _whole_words(spans: np.ndarray, starts: np.ndarray, ends: np.ndarray, lost: np.ndarray) -> int:
    """Words, given as (start, end) in bytes, that one known token holds, with at most a space before."""
    if not len(spans):
        return 0
    token = np.searchsorted(ends, spans[:, 0], side="right")  # the one that holds the first byte
    held = token < len(ends)  # a published tokenizer may drop what ends a text
    spans, token = spans[held], token[held]
    whole = (ends[token] == spans[:, 1]) & (spans[:, 0] - starts[token] <= 1) & ~lost[token]
    return int(whole.sum())


def cuts(contestant: Contestant, words: Sequence[str]) -> list[frozenset[int]]:
    """Where each word, with a space before it, comes apart: numbers of characters from its start. A
    cut inside a character counts as one before it."""
    spaced = [f" {word}" for word in words]
    found = []
    for text, ids in zip(spaced, contestant.encode_many(spaced), strict=True):
        raw = text.encode()
        places = {
            len(raw[:end].decode(errors="ignore")) - 1
            for end in contestant.ends(text, ids)[:-1].tolist()
        }
        found.append(frozenset(places - {-1, 0}))
    return found


@dataclass(frozen=True)
class Agreement:
    """How the cuts of a tokenizer and the boundaries of suffixes agree, over words."""

    shared: int
    cuts: int
    boundaries: int

    @property
    def precision(self) -> float:
        return self.shared / max(1, self.cuts)

    @property
    def recall(self) -> float:
        return self.shared / max(1, self.boundaries)

    @property
    def f1(self) -> float:
        return 2 * self.shared / max(1, self.cuts + self.boundaries)


def agreement_table(contestant: Contestant, words: Sequence[SuffixWord]) -> np.ndarray:
    """For each word the shared boundaries, the cuts and the boundaries; int64, shape (words, 3)."""
    rows = [
        (len(found & word.boundaries), len(found), len(word.boundaries))
        for word, found in zip(words, cuts(contestant, [w.text for w in words]), strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def agreement(table: np.ndarray) -> Agreement:
    """The agreement over the rows of a table."""
    return Agreement(*map(int, table.sum(axis=0)))


def difference_interval(
    first: np.ndarray, second: np.ndarray, stems: Sequence[str], *, seed: int, draws: int = 1000
) -> tuple[float, float, float]:
    """F1 of `first` less F1 of `second` on the same words, with the ends of its 95 % interval, by
    drawing whole stems with replacement: words of one stem are cut alike."""
    names, owners = np.unique(np.array(stems), return_inverse=True)
    sums = []
    for table in (first, second):
        by_stem = np.zeros((len(names), 3), np.int64)
        np.add.at(by_stem, owners, table)
        sums.append(by_stem)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(names), (draws, len(names)))
    scores = []
    for by_stem in sums:
        drawn = by_stem[chosen].sum(axis=1)  # (draws, 3)
        scores.append(2 * drawn[:, 0] / np.maximum(1, drawn[:, 1] + drawn[:, 2]))
    low, high = np.quantile(scores[0] - scores[1], [0.025, 0.975])
    return agreement(first).f1 - agreement(second).f1, float(low), float(high)
