"""How much of what a model writes stands word for word in its training text.

Of each text the longest run of characters that some training document holds, exactly, by hashes of
all runs of SEED characters and a comparison of the texts themselves wherever two hashes agree. Reads
the training text once, in batches; memory does not grow with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SEED = 24  # characters; shorter copies count as none, since any two texts of one language have them
_BATCH_CHARS = 1 << 20
_PAIRS = 1 << 20  # of equal runs that are compared at once
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64
_TABLE_BITS = 20


@dataclass(frozen=True)
class Copy:
    """The longest copy in one text: its length in characters (0: shorter than SEED) and the copied
    part itself."""

    length: int
    part: str


def longest_copies(texts: Sequence[str], training: Iterable[str]) -> list[Copy]:
    """The longest run of characters that each text shares with one training document."""
    ours = np.concatenate([_codes(text, end=True) for text in texts] or [_codes("", end=True)])
    hashes = _run_hashes(ours)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    table = np.zeros(1 << _TABLE_BITS, bool)
    table[_slots(ordered)] = True
    longest = np.zeros(len(ours), np.int64)  # by the place in `ours` where the run begins
    for theirs in _batches(training):
        found = _run_hashes(theirs)
        maybe = np.flatnonzero(table[_slots(found)])
        first = np.searchsorted(ordered, found[maybe])
        counts = np.searchsorted(ordered, found[maybe], side="right") - first
        parts = np.searchsorted(np.cumsum(counts), np.arange(_PAIRS, counts.sum(), _PAIRS))
        for some in np.split(np.arange(len(maybe)), parts):  # a loop meets a loop very often
            within = np.concatenate([[0], *(np.arange(count) for count in counts[some])])[1:]
            places = order[np.repeat(first[some], counts[some]) + within.astype(np.int64)]
            starts = np.repeat(maybe[some], counts[some])
            before = (places > 0) & (starts > 0) & (ours[places - 1] == theirs[starts - 1])
            places, starts = places[~before], starts[~before]  # the others are parts of these
            np.maximum.at(longest, places, _agreement(ours, places, theirs, starts))
    longest[longest < SEED] = 0
    copies, start = [], 0
    for text in texts:
        part = longest[start : start + len(text)]
        best = int(part.argmax()) if len(part) else 0
        length = int(part[best]) if len(part) else 0
        copies.append(Copy(length, text[best : best + length]))
        start += len(text) + 1
    return copies


def _codes(text: str, *, end: bool) -> np.ndarray:
    """A text as code points, closed by a sign that agrees with no other (see `_agreement`)."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.append(codes, np.uint32(0xFFFFFFFF if end else 0xFFFFFFFE))


def _batches(texts: Iterable[str]) -> Iterator[np.ndarray]:
    parts: list[np.ndarray] = []
    size = 0
    for text in texts:
        parts.append(_codes(text, end=False))
        size += len(text)
        if size >= _BATCH_CHARS:
            yield np.concatenate(parts)
            parts, size = [], 0
    if parts:
        yield np.concatenate(parts)


def _run_hashes(codes: np.ndarray) -> np.ndarray:
    """The hash of the SEED characters from each place, modulo 2^64: a polynomial in _BASE, taken from
    sums of all characters so far. Fewer places than characters."""
    if len(codes) < SEED:
        return np.zeros(0, np.uint64)
    powers = np.full(len(codes), _BASE)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    inverse = np.full(len(codes), np.uint64(pow(int(_BASE), -1, 1 << 64)))
    inverse[0] = 1
    inverse = np.multiply.accumulate(inverse)
    sums = np.concatenate([[np.uint64(0)], np.cumsum(codes.astype(np.uint64) * powers)])
    return (sums[SEED:] - sums[:-SEED]) * inverse[: len(codes) - SEED + 1]


def _slots(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)


def _agreement(
    ours: np.ndarray, places: np.ndarray, theirs: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """How many characters agree from each pair of places on, all pairs at once, a step a character."""
    lengths = np.zeros(len(places), np.int64)
    going = np.arange(len(places))
    step = 0
    while len(going):
        mine, other = places[going] + step, starts[going] + step
        inside = (mine < len(ours)) & (other < len(theirs))
        going = going[inside]
        same = ours[mine[inside]] == theirs[other[inside]]
        going = going[same]
        lengths[going] += 1
        step += 1
    return lengths
