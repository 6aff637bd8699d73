"""Near duplicates and contained texts: found by shared hashes, judged by their true similarity.

Candidates share a band of a MinHash signature, or several n-grams that hardly any other text has.
Each is then compared by its whole set of word n-grams, and a text is only ever removed for a copy
that stays and that it was itself compared with: nothing follows from a chain of likenesses.
Of two texts the one with the smaller `dedup.priority` stays. Not for exact duplicates.

Everything that grows with the corpus lies in scratch files; `memory_mb` bounds what is held at
once. Disk: about as much as the text. Documents are numbered as they are added, from 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sifirdan.corpus.disk_rows import BLOCK_ROWS, Buckets, DiskRows, buckets_for, new_array
from sifirdan.corpus.shingles import (
    Ragged,
    as_sets,
    band_hashes,
    keys_and_words,
    ngrams,
    signatures,
)
from sifirdan.errors import require

# Of a group that shares a band each member is compared with the first of them only, or a group of
# n copies would cost n * n comparisons; the rest is found through other bands.
MAX_LEADERS = 32
# N-grams that more texts have than this are set phrases, and no evidence that texts are copies.
MAX_TEXTS_OF_RARE = 8
SAMPLE = 4  # one n-gram of so many (by its hash) is looked up to find contained texts
MIN_SAMPLED = 2  # of which so many must be shared

NEAR, CONTAINED = 1, 2
_RANK = np.uint64(32)  # a pair of ranks is one number: the later one << 32 | the earlier one
_LOW = np.uint64(0xFFFFFFFF)
_ROWS_A_DOCUMENT = 64  # pairs that a document has at most, on average, before they are made unique


@dataclass(frozen=True)
class DuplicateParams:
    """When two texts are copies, and what finding them may cost."""

    shingle_words: int
    bands: int
    rows: int
    similarity: float | None  # None: near duplicates stay
    containment: float | None  # None: contained texts stay
    containment_min_shared: int
    memory_mb: int

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this section's dotted name."""
        for name, most in (("shingle_words", 100), ("bands", 256), ("rows", 64)):
            value = getattr(self, name)
            require(1 <= value <= most, f"{key}.{name}", value, f"from 1 to {most}")
        shared = self.containment_min_shared
        require(shared >= 1, f"{key}.containment_min_shared", shared, "1 or more")
        for name in ("similarity", "containment"):
            share = getattr(self, name)
            ok = share is None or 0 < share <= 1
            require(ok, f"{key}.{name}", share, "above 0, at most 1, or null")
        require(self.memory_mb >= 16, f"{key}.memory_mb", self.memory_mb, "16 or more")


@dataclass(frozen=True)
class Fingerprints:
    """What a batch of texts is compared by: dedup keys, sets of n-gram hashes, band hashes."""

    keys: list[str]
    sets: Ragged
    bands: np.ndarray  # uint64, shape (texts, bands)


def fingerprints(texts: Sequence[str], params: DuplicateParams) -> Fingerprints:
    """A pure function of each text, for worker processes."""
    keys, words = keys_and_words(texts)
    sets = as_sets(ngrams(words, params.shingle_words))
    table = signatures(sets, params.bands * params.rows)
    return Fingerprints(keys, sets, band_hashes(table, params.bands))


@dataclass(frozen=True)
class Copies:
    """What `find` decided, an entry a document, in arrays on disk."""

    kept: np.ndarray  # int64: the number of the copy that stays, or -1 where this text stays
    similarity: (
        np.ndarray
    )  # float32: Jaccard similarity to it (NEAR), share found in it (CONTAINED)
    kind: np.ndarray  # uint8: 0, NEAR or CONTAINED


class NearDuplicates:
    """All documents of a corpus: add them, then `find` once."""

    def __init__(self, folder: Path, params: DuplicateParams) -> None:
        self._folder, self._params = folder, params
        self._values = DiskRows(folder / "ngrams", 1)
        self._ends = DiskRows(folder / "ends", 1)
        self._bands = DiskRows(folder / "bands", params.bands)
        self._priorities = DiskRows(folder / "priorities", 1)

    def add(self, prints: Fingerprints, priorities: np.ndarray) -> None:
        """The next documents and their `dedup.priority`, uint64, shape (texts,)."""
        self._ends.append(len(self._values) + prints.sets.offsets[1:])
        self._values.append(prints.sets.values)
        self._bands.append(prints.bands)
        self._priorities.append(priorities)

    def find(self, left_out: np.ndarray | None = None) -> Copies:
        """Decide about every document but those that `left_out` (bool, an entry a document) marks:
        exact duplicates, which are neither removed again nor kept for others."""
        total = len(self._priorities)
        copies = Copies(
            new_array(self._folder / "kept", total, np.int64, -1),
            new_array(self._folder / "similarity", total, np.float32, 0),
            new_array(self._folder / "kind", total, np.uint8, 0),
        )
        if total:
            ranks, documents = self._ranked()
            live = self._live(documents, left_out)
            search = _Search(self, ranks, documents, live, copies)
            if self._params.similarity is not None:
                search.run(search.band_pairs(), min_count=1, kinds=(NEAR,))
            if self._params.similarity is not None or self._params.containment is not None:
                search.run(search.rare_pairs(), min_count=MIN_SAMPLED, kinds=(NEAR, CONTAINED))
                search.mend_chains()
        for rows in (self._values, self._ends, self._bands, self._priorities):
            rows.close()
        return copies

    def _ranked(self) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each document by priority, and the document of each rank; on disk."""
        total = len(self._priorities)
        assert total < 1 << 32, total
        count = buckets_for(total, 2, self._params.memory_mb)
        step = max(1, total // (1 << 16))
        sample = [rows[(-start) % step :: step, 0] for start, rows in self._priorities.blocks()]
        ordered = np.sort(np.concatenate(sample))
        limits = ordered[np.arange(1, count) * len(ordered) // count]
        buckets = Buckets(self._folder / "by_priority", 2, count)
        for start, rows in self._priorities.blocks():
            numbers = np.arange(start, start + len(rows), dtype=np.uint64)
            found = np.searchsorted(limits, rows[:, 0], side="right")
            buckets.append(np.column_stack([rows[:, 0], numbers]), found)
        ranks = new_array(self._folder / "ranks", total, np.uint32, 0)
        documents = new_array(self._folder / "documents", total, np.uint32, 0)
        done = 0
        for number in range(count):
            rows = buckets.take(number)
            ordered = rows[np.lexsort((rows[:, 1], rows[:, 0])), 1].astype(np.int64)
            ranks[ordered] = np.arange(done, done + len(ordered))
            documents[done : done + len(ordered)] = ordered
            done += len(ordered)
        return ranks, documents

    def _live(self, documents: np.ndarray, left_out: np.ndarray | None) -> np.ndarray:
        """By rank: 1 for a document that may stay and may be removed; on disk."""
        live = new_array(self._folder / "live", len(documents), np.uint8, 1)
        if left_out is not None:
            for start in range(0, len(documents), BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                live[part] = ~np.asarray(left_out[documents[part]], bool)
        return live


class _Search:
    """One search: documents are named by their rank, and a pair is always (later, earlier)."""

    def __init__(
        self,
        texts: NearDuplicates,
        ranks: np.ndarray,
        documents: np.ndarray,
        live: np.ndarray,
        copies: Copies,
    ) -> None:
        self._texts, self._params = texts, texts._params
        self._ranks, self._documents, self._live, self._copies = ranks, documents, live, copies
        none = 2.0  # a share that nothing reaches
        self._similarity = none if self._params.similarity is None else self._params.similarity
        self._containment = none if self._params.containment is None else self._params.containment
        # A bucket of pairs holds those of neighbouring ranks, so that buckets are judged in order.
        wanted = buckets_for(len(ranks) * _ROWS_A_DOCUMENT, 1, self._params.memory_mb)
        self._width = max(1, -(-len(ranks) // wanted))

    # Candidates

    def band_pairs(self) -> Buckets:
        """Pairs that share a band."""
        bands = self._texts._bands
        by_hash = self._buckets("by_band", len(bands) * bands.width)
        for start, rows in bands.blocks():
            ranks = np.asarray(self._ranks[start : start + len(rows)])
            ends = self._texts._ends.read(start, start + len(rows))[:, 0]
            before = (
                self._texts._ends.read(start - 1, start)[0] if start else np.zeros(1, np.uint64)
            )
            wordless = ends == np.concatenate([before, ends[:-1]])
            used = np.flatnonzero((self._live[ranks] == 1) & ~wordless)
            rows = np.column_stack([rows[used].ravel(), np.repeat(ranks[used], bands.width)])
            by_hash.append_by_hash(rows)
        return self._paired(by_hash, "band_pairs", MAX_LEADERS, None)

    def rare_pairs(self) -> Buckets:
        """Pairs that share an n-gram found in few texts; as often as they share one."""
        values, ends = self._texts._values, self._texts._ends.mapped()
        by_hash = self._buckets("by_ngram", len(values) // SAMPLE)
        for start, rows in values.blocks():
            sampled = np.flatnonzero(rows[:, 0] % np.uint64(SAMPLE) == 0)
            owners = np.searchsorted(ends, (start + sampled).astype(np.uint64), side="right")
            ranks = np.asarray(self._ranks[owners])
            used = self._live[ranks] == 1
            by_hash.append_by_hash(np.column_stack([rows[sampled[used], 0], ranks[used]]))
        return self._paired(by_hash, "rare_pairs", MAX_TEXTS_OF_RARE, MAX_TEXTS_OF_RARE)

    def _buckets(self, name: str, num_rows: int) -> Buckets:
        count = buckets_for(num_rows, 2, self._params.memory_mb)
        return Buckets(self._texts._folder / name, 2, count)

    def _paired(
        self, by_hash: Buckets, name: str, num_leaders: int, max_texts: int | None
    ) -> Buckets:
        count = -(-len(self._ranks) // self._width)
        pairs = Buckets(self._texts._folder / name, 1, count)
        for number in range(by_hash.count):
            for found in _pairs_of(by_hash.take(number), num_leaders, max_texts):
                later = found >> _RANK
                pairs.append(found[:, None], later // np.uint64(self._width))
        return pairs

    # Verdicts

    def run(self, buckets: Buckets, *, min_count: int, kinds: tuple[int, ...]) -> None:
        """Judge all candidates found at least `min_count` times, in the order of the later text:
        what stays is known by then."""
        for number in range(buckets.count):
            pairs, counts = np.unique(buckets.take(number), return_counts=True)
            pairs = pairs[counts >= min_count]
            while len(pairs):
                pairs = pairs[self._are_live(pairs)]
                taken = self._that_fit(pairs)
                self._judge(pairs[:taken], kinds)
                pairs = pairs[taken:]

    def _are_live(self, pairs: np.ndarray) -> np.ndarray:
        return (self._live[pairs >> _RANK] == 1) & (self._live[pairs & _LOW] == 1)

    def _that_fit(self, pairs: np.ndarray) -> int:
        """How many of the pairs can be compared at once."""
        pairs = pairs[:BLOCK_ROWS]
        together = np.cumsum(self._sizes(pairs >> _RANK) + self._sizes(pairs & _LOW))
        limit = (self._params.memory_mb << 20) // (8 * 8)
        return max(1, int(np.searchsorted(together, limit, side="right"))) if len(pairs) else 0

    def _judge(self, pairs: np.ndarray, kinds: tuple[int, ...]) -> None:
        for rank, keeper, similarity, kind in self._copies_among(pairs):
            if kind in kinds and self._live[rank] and self._live[keeper]:
                self._live[rank] = 0
                self._note(rank, keeper, similarity, kind)

    def _note(self, rank: int, keeper: int, similarity: float, kind: int) -> None:
        document = self._documents[rank]
        self._copies.kept[document] = self._documents[keeper]
        self._copies.similarity[document] = similarity
        self._copies.kind[document] = kind

    def _copies_among(self, pairs: np.ndarray) -> Iterator[tuple[int, int, float, int]]:
        """The pairs that are copies: (later, earlier, similarity, kind), in their order."""
        params = self._params
        later, earlier = pairs >> _RANK, pairs & _LOW
        a, b = self._sizes(later), self._sizes(earlier)
        most = np.minimum(a, b)
        hopeful = (most >= self._similarity * np.maximum(a, b)) | (
            (most >= self._containment * a) & (most >= params.containment_min_shared)
        )
        later, earlier, a, b = later[hopeful], earlier[hopeful], a[hopeful], b[hopeful]
        shared = self._shared(later, earlier)
        jaccard = shared / np.maximum(a + b - shared, 1)
        share = shared / np.maximum(a, 1)
        near = jaccard >= self._similarity
        contained = (share >= self._containment) & (shared >= params.containment_min_shared)
        for i in np.flatnonzero(near | contained).tolist():
            values = (jaccard[i], NEAR) if near[i] else (share[i], CONTAINED)
            yield int(later[i]), int(earlier[i]), float(values[0]), values[1]

    def _sizes(self, ranks: np.ndarray) -> np.ndarray:
        starts, ends = self._extents(ranks)
        return ends - starts

    def _extents(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the n-grams of documents start and end in the file, int64."""
        documents = np.asarray(self._documents[ranks]).astype(np.int64)
        all_ends = self._texts._ends.mapped()
        starts = np.where(documents > 0, all_ends[np.maximum(documents - 1, 0)], np.uint64(0))
        return starts.astype(np.int64), all_ends[documents].astype(np.int64)

    def _shared(self, later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        """How many n-grams the two of each pair share, int64. By 40 bits of each hash: of two texts
        of 100,000 words each, one in a hundred such pairs counts one too many."""
        ranks, places = np.unique(np.concatenate([later, earlier]), return_inverse=True)
        starts, ends = self._extents(ranks)
        values = self._texts._values.gather(starts, ends) >> np.uint64(24)
        sizes = ends - starts
        first = np.cumsum(sizes) - sizes
        numbers = np.arange(len(later), dtype=np.uint64) << np.uint64(40)
        parts = []
        for place in (places[: len(later)], places[len(later) :]):
            owned = np.repeat(numbers, sizes[place])
            owned |= values[_ranges(first[place], first[place] + sizes[place])]
            parts.append(owned)
        both = np.concatenate(parts)
        both.sort()
        twice = both[1:][both[1:] == both[:-1]] >> np.uint64(40)
        return np.bincount(twice.astype(np.int64), minlength=len(later))

    def mend_chains(self) -> None:
        """A text whose kept copy was found contained in a third one is compared with that third:
        it is a copy of it too, or it stays after all."""
        kept = self._copies.kept
        for start in range(0, len(kept), BLOCK_ROWS):
            found = np.asarray(kept[start : start + BLOCK_ROWS])
            removed = np.flatnonzero(found >= 0)
            chained = removed[kept[found[removed]] >= 0]
            documents = start + chained
            ranks = self._ranks[documents].astype(np.uint64)
            keepers = self._ranks[kept[found[chained]]].astype(np.uint64)
            for number in range(len(documents)):
                kept[documents[number]] = -1
                self._copies.similarity[documents[number]] = 0
                self._copies.kind[documents[number]] = 0
                pair = ranks[number : number + 1] << _RANK | keepers[number]
                for copy in self._copies_among(pair):
                    self._note(*copy)


def _pairs_of(rows: np.ndarray, num_leaders: int, max_texts: int | None) -> Iterator[np.ndarray]:
    """Pairs of ranks (later << 32 | earlier) that have the same hash, uint64: every member of a
    group with each of its first `num_leaders`; none of a group of more than `max_texts`."""
    hashes = np.ascontiguousarray(rows[:, 0])
    order = np.argsort(hashes)
    hashes = hashes[order]
    same = hashes[1:] == hashes[:-1]
    grouped = np.zeros(len(rows), bool)
    grouped[1:] |= same
    grouped[:-1] |= same
    rows = rows[order[grouped]]
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    if not len(rows):
        return
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:, 0] != rows[:-1, 0]
    starts = np.flatnonzero(first)
    sizes = np.diff(starts, append=len(rows))
    if max_texts is not None:
        usable = np.repeat(sizes <= max_texts, sizes)
        rows, sizes = rows[usable], sizes[sizes <= max_texts]
        starts = np.cumsum(sizes) - sizes
    start = np.repeat(starts, sizes)
    place = np.arange(len(rows)) - start
    for leader in range(min(num_leaders, int(sizes.max(initial=1)) - 1)):
        later = np.flatnonzero(place > leader)
        pairs = rows[later, 1] << _RANK | rows[start[later] + leader, 1]
        yield pairs[rows[later, 1] != rows[start[later] + leader, 1]]


def _ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """All numbers from each start up to its end, one range after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
