"""A part of the training text, drawn by bytes: what a tokenizer learns from.

Long documents are drawn in pieces, so that one book cannot fill the sample or miss it. A piece is
in or out by a hash of (seed, document, place) alone: the same corpus gives the same pieces in any
order of files, and a larger sample holds the smaller one.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sifirdan.corpus.records import read_texts
from sifirdan.errors import ConfigError
from sifirdan.text import bounded

_PIECE_CHARS = 1 << 15
_BINS = 1 << 16  # of the hash; a source gives whole bins of pieces, counted from the first


@dataclass(frozen=True)
class Sample:
    """What is drawn: for each source its bytes, of how many, and the bins of the hash that give them."""

    folder: Path
    seed: int
    num_bytes: dict[str, int]
    totals: dict[str, int]
    _bins: dict[str, int]

    def texts(self) -> Iterator[str]:
        """The pieces, in the order of the corpus."""
        for source, piece, bin in _pieces(self.folder, self.seed):
            if bin < self._bins[source]:
                yield piece


def draw(folder: Path, max_bytes: int, weights: Mapping[str, float], seed: int) -> Sample:
    """At most `max_bytes` of the documents in `folder`, or one piece where even that is more. A piece
    of a source with weight 2 is drawn twice as likely as one with weight 1, which is the weight of
    sources that are not named; one with weight 0 never."""
    sizes: dict[str, np.ndarray] = {}
    for source, piece, bin in _pieces(folder, seed):
        if source not in sizes:
            sizes[source] = np.zeros(_BINS, np.int64)
        sizes[source][bin] += len(piece.encode())
    for source in weights:
        if sizes and source not in sizes:
            raise ConfigError(
                f"train_tokenizer.source_weights names {source!r}, which has no training text",
                expected=f"sources of the corpus: {', '.join(sorted(sizes))}",
            )
    bins = _bins(sizes, {source: weights.get(source, 1.0) for source in sizes}, max_bytes)
    drawn = {source: int(found[: bins[source]].sum()) for source, found in sizes.items()}
    if sizes and not any(drawn.values()):
        raise ConfigError(
            f"train_tokenizer.source_weights leaves out all text: {dict(weights)}",
            expected="a weight above 0 for one source at least",
        )
    totals = {source: int(found.sum()) for source, found in sizes.items()}
    return Sample(folder, seed, drawn, totals, bins)


def _bins(
    sizes: Mapping[str, np.ndarray], weights: Mapping[str, float], max_bytes: int
) -> dict[str, int]:
    """How many bins each source gives: its weight times one factor, at most all of them. The factor is
    the largest that keeps the budget, so what a short source cannot give, the others do."""
    open_sources = {source for source in sizes if weights[source] > 0}
    sums = {source: np.concatenate([[0], np.cumsum(sizes[source])]) for source in open_sources}

    def bins_at(factor: float) -> dict[str, int]:
        shares = {source: min(1.0, weights[source] * factor) for source in open_sources}
        return {source: int(shares.get(source, 0.0) * _BINS) for source in sizes}

    def bytes_at(factor: float) -> int:
        return sum(int(sums[source][bins_at(factor)[source]]) for source in open_sources)

    low, high = 0.0, max((1 / weights[source] for source in open_sources), default=0.0)
    if bytes_at(high) <= max_bytes:
        return bins_at(high)
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if bytes_at(middle) <= max_bytes else (low, middle)
    return bins_at(low if bytes_at(low) else high)


def _pieces(folder: Path, seed: int) -> Iterator[tuple[str, str, int]]:
    """Source, text and bin of every piece."""
    for document, source, text in read_texts(folder):
        for number, piece in enumerate(bounded(text, _PIECE_CHARS)):
            mark = hashlib.sha256(f"{seed}\0{document}\0{number}".encode()).digest()
            yield source, piece, int.from_bytes(mark[:2], "big")
