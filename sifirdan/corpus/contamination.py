"""Decontamination: word n-grams that training text shares with text a model is evaluated on.

The default length, 13 words, is that of GPT-3 (Brown et al. 2020, appendix C). An evaluation text
shorter than that is looked for by its n-grams of `short_words`, and one shorter still only as a
whole text. The hashes of all evaluation n-grams lie sorted on disk, behind a bit table that turns
nearly all training n-grams away; memory is bounded by the table. Not for copies inside the
training text: see near_duplicates.py.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from sifirdan.corpus import records
from sifirdan.corpus.disk_rows import Buckets, DiskRows, buckets_for
from sifirdan.corpus.parallel import IN_PROCESS, Workers
from sifirdan.corpus.shingles import MASK, Ragged, ngrams, word_hashes, words_of
from sifirdan.errors import DataError, require

# The bit table is a Bloom filter (Bloom 1970): of strange n-grams one in 400 passes it, so that a
# search touches little of what lies on disk.
BITS_A_HASH = 16  # at least, memory allowing
PROBES = 4
_BLOCK = 512  # sorted hashes that are read together: 4 KB
BATCH_CHARS = 1 << 20


@dataclass(frozen=True)
class ContaminationParams:
    """What counts as shared text."""

    words: int
    short_words: int
    memory_mb: int

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this section's dotted name."""
        require(2 <= self.words <= 100, f"{key}.words", self.words, "from 2 to 100")
        allowed = f"from 1 to {key}.words, {self.words}"
        require(
            1 <= self.short_words <= self.words, f"{key}.short_words", self.short_words, allowed
        )
        require(self.memory_mb >= 16, f"{key}.memory_mb", self.memory_mb, "16 or more")


class EvaluationText:
    """The n-grams of everything that must not be trained on: `add` all of it, `finish`, then ask.
    A folder that was finished can be opened by any process."""

    def __init__(self, folder: Path, params: ContaminationParams) -> None:
        self._params = params
        self._long = _HashTable(folder / "long", params.memory_mb)
        self._short = _HashTable(folder / "short", params.memory_mb)

    def add(self, texts: Sequence[str]) -> None:
        """The next evaluation texts."""
        words = word_hashes(texts)
        is_long = words.sizes() >= self._params.words
        self._long.add(ngrams(_those(words, is_long), self._params.words).values)
        self._short.add(ngrams(_those(words, ~is_long), self._params.short_words).values)

    def finish(self) -> None:
        """Sort what was added; nothing can be added any more."""
        self._long.finish()
        self._short.finish()

    def overlaps(self, texts: Sequence[str]) -> np.ndarray:
        """How many n-grams of each text occur in evaluation text, int64, shape (texts,)."""
        return np.array([len(found) for found in self.shared(texts)], np.int64)

    def overlap(self, text: str) -> int:
        """How many n-grams of a text occur in evaluation text."""
        return int(self.overlaps([text])[0])

    def shared(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text the shared n-grams: number of the first word and of the word after the
        last, int64, shape (shared, 2); long ones first."""
        words = word_hashes(texts)
        sizes = words.sizes()
        found: list[list[np.ndarray]] = [[] for _ in texts]
        for table, length in (
            (self._long, self._params.words),
            (self._short, self._params.short_words),
        ):
            grams = ngrams(words, length)
            hits = np.flatnonzero(table.contains(grams.values))
            owners = np.searchsorted(grams.offsets, hits, side="right") - 1
            starts = hits - grams.offsets[owners]
            ends = np.minimum(starts + length, sizes[owners])
            for owner in np.unique(owners).tolist():
                mine = owners == owner
                found[owner].append(np.column_stack([starts[mine], ends[mine]]))
        empty = np.zeros((0, 2), np.int64)
        return [np.concatenate([empty, *parts]) for parts in found]


class _HashTable:
    """A set of 64-bit hashes on disk: sorted, each once, and a bit table before them."""

    def __init__(self, folder: Path, memory_mb: int) -> None:
        self._folder, self._memory_mb = folder, memory_mb
        self._firsts: np.ndarray | None = None  # of each block of the sorted hashes
        self._bits = np.zeros(0, np.uint8)
        if (folder / "bits").exists():
            self._open()
        else:
            self._rows = DiskRows(folder / "added", 1)

    def add(self, values: np.ndarray) -> None:
        self._rows.append(values)

    def finish(self) -> None:
        count = buckets_for(len(self._rows), 1, self._memory_mb)
        buckets = Buckets(self._folder / "by_hash", 1, count)
        for _, rows in self._rows.blocks():
            buckets.append_by_hash(rows)
        hashes = DiskRows(self._folder / "sorted", 1)
        for number in range(count):
            values = buckets.take(number)[:, 0]
            values.sort()  # np.unique would hash them first, at six times the cost
            hashes.append(values[np.diff(values, prepend=values[:1] ^ np.uint64(1)) != 0])
        self._rows.close()
        self._rows.path.unlink()
        num_bits = min(
            max(BITS_A_HASH * len(hashes), 1 << 10).bit_length(),
            ((self._memory_mb << 20) * 8).bit_length() - 1,
        )
        bits = np.zeros(1 << (num_bits - 3), np.uint8)
        firsts = [np.zeros(0, np.uint64)]
        for _, rows in hashes.blocks():
            firsts.append(rows[::_BLOCK, 0])  # BLOCK_ROWS is a multiple of it
            for number in range(PROBES):
                places = _places(rows[:, 0], number, num_bits)
                while len(places):  # of two places in one byte one is lost
                    bits[places >> np.uint64(3)] |= _bit_of(places)
                    places = places[~_are_set(bits, places)]
        hashes.close()
        bits.tofile(self._folder / "bits")
        np.concatenate(firsts).tofile(self._folder / "firsts")
        self._open()

    def contains(self, values: np.ndarray) -> np.ndarray:
        """Which of the values are in the set, bool, in the shape of `values`."""
        assert self._firsts is not None, "finish() comes first"
        found = np.zeros(len(values), bool)
        if len(self._firsts):
            maybe = np.arange(len(values))
            for number in range(PROBES):
                places = _places(values[maybe], number, self._num_bits)
                maybe = maybe[_are_set(self._bits, places)]
            found[maybe] = self._holds(values[maybe])
        return found

    def _holds(self, values: np.ndarray) -> np.ndarray:
        """The answer of the sorted hashes themselves. Their blocks are read and not mapped: mapped
        pages, and those that the system maps around them, would count as memory until the end."""
        assert self._firsts is not None, "finish() comes first"
        found = np.zeros(len(values), bool)
        order = np.argsort(values)
        blocks = np.searchsorted(self._firsts, values[order], side="right") - 1
        blocks[blocks < 0] = 0  # smaller than all: in no block
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        parts = np.split(order, starts[1:])
        with open(self._folder / "sorted", "rb", buffering=0) as file:
            for block, part in zip(blocks[starts].tolist(), parts, strict=len(order) > 0):
                file.seek(block * _BLOCK * 8)
                found[part] = np.isin(values[part], np.fromfile(file, np.uint64, _BLOCK))
        return found

    def _open(self) -> None:
        self._bits = np.asarray(np.memmap(self._folder / "bits", np.uint8, "r"))
        self._num_bits = (len(self._bits) * 8).bit_length() - 1
        self._firsts = np.fromfile(self._folder / "firsts", np.uint64)


def _places(values: np.ndarray, number: int, num_bits: int) -> np.ndarray:
    """The place of each hash in a table of 2**num_bits bits; another one for each number."""
    odd = np.uint64(2 * number * 0x9E3779B97F4A7C15 + 1 & MASK)
    return (values * odd) >> np.uint64(64 - num_bits)


def _are_set(bits: np.ndarray, places: np.ndarray) -> np.ndarray:
    found: np.ndarray = bits[places >> np.uint64(3)] & _bit_of(places) != 0
    return found


def _bit_of(places: np.ndarray) -> np.ndarray:
    return np.left_shift(np.uint8(1), (places & np.uint64(7)).astype(np.uint8))


def _those(words: Ragged, wanted: np.ndarray) -> Ragged:
    """The texts that `wanted` (bool, an entry a text) marks."""
    sizes = words.sizes()
    offsets = np.concatenate([[0], np.cumsum(sizes[wanted], dtype=np.int64)])
    return Ragged(words.values[np.repeat(wanted, sizes)], offsets)


# Taking shared passages out of a text

_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]*(?=\s)|\n""")


def without_passages(text: str, shared: np.ndarray) -> str:
    """The text without every sentence that a shared n-gram touches; `shared` as `EvaluationText.
    shared` gives it, shape (any, 2). Where sentences went, a paragraph ends. For text in NFC."""
    spans = _word_spans(text)
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    gone: list[tuple[int, int]] = []
    for first, after in sorted(map(tuple, shared.tolist())):
        start, end = spans[first][0], spans[after - 1][1]
        before = np.searchsorted(ends, start, side="right")
        behind = np.searchsorted(ends, end, side="left")
        start = ends[before - 1] if before else 0
        end = ends[behind] if behind < len(ends) else len(text)
        if gone and start <= gone[-1][1]:
            gone[-1] = (gone[-1][0], max(end, gone[-1][1]))
        else:
            gone.append((start, end))
    kept, at = [], 0
    for start, end in gone:
        kept.append(text[at:start].strip())
        at = end
    return "\n".join(part for part in [*kept, text[at:].strip()] if part)


def decontaminated(text: str, table: EvaluationText, max_cut_share: float) -> str:
    """The text as it may be trained on: as it is where it shares nothing, else without the
    sentences that do, or '' where more than `max_cut_share` of its characters would go."""
    left = text
    while len(shared := table.shared([left])[0]):
        left = without_passages(left, shared)
        if len(left) < (1 - max_cut_share) * len(text):
            return ""
    return left


def _word_spans(text: str) -> list[tuple[int, int]]:
    """Where each word of `words_of` stands in the text."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    words = [span for span in spans if _has_word(text[span[0] : span[1]])]
    return words or spans


def _has_word(token: str) -> bool:
    return token.isalnum() or words_of(f"{token} x") != ["x"]


# The proof, on finished folders


_SHOWN = 5


@dataclass
class Overlap:
    """What training text shares with evaluation text."""

    documents: int = 0  # of training text, looked at
    shared_documents: int = 0
    shared_ngrams: int = 0
    first: list[str] = field(default_factory=list)  # ids of the first shared documents


def overlap(
    train: Path,
    evaluation: Sequence[Path],
    params: ContaminationParams,
    workers: Workers = IN_PROCESS,
) -> Overlap:
    """What the documents of the folder `train` share with those of the evaluation folders; all as
    `clean` writes them."""
    total = Overlap()
    with tempfile.TemporaryDirectory() as scratch:
        table = EvaluationText(Path(scratch), params)
        held_out = chain.from_iterable(map(records.read_texts, evaluation))
        for batch in _text_batches(text for _, _, text in held_out):
            table.add(batch)
        table.finish()
        groups = (
            _RowGroup(Path(scratch), params, file, number)
            for file, number in records.row_groups(train)
        )
        for found in workers.map(_overlap_of, groups):
            total.documents += found.documents
            total.shared_documents += found.shared_documents
            total.shared_ngrams += found.shared_ngrams
            total.first = (total.first + found.first)[:_SHOWN]
    return total


@dataclass(frozen=True)
class _RowGroup:
    """Some training text, and where the table of evaluation text lies."""

    table: Path
    params: ContaminationParams
    file: Path
    number: int


def _overlap_of(group: _RowGroup) -> Overlap:
    table = EvaluationText(group.table, group.params)
    ids, _, texts = records.read_text_columns(group.file, group.number)
    found = Overlap(documents=len(ids))
    start = 0
    for some in _text_batches(texts):
        shared = table.overlaps(some)
        found.shared_documents += int((shared > 0).sum())
        found.shared_ngrams += int(shared.sum())
        found.first += [ids[start + place] for place in np.flatnonzero(shared).tolist()]
        start += len(some)
    found.first = found.first[:_SHOWN]
    return found


def require_no_overlap(
    train: Path,
    evaluation: Mapping[str, Path],
    params: ContaminationParams,
    workers: Workers = IN_PROCESS,
) -> None:
    """Refuse training text that shares an n-gram with any evaluation text."""
    if not overlap(train, list(evaluation.values()), params, workers).shared_documents:
        return
    for name, folder in evaluation.items():  # only to say which it is
        found = overlap(train, [folder], params, workers)
        if found.shared_documents:
            more = found.shared_documents - len(found.first)
            raise DataError(
                f"{train}: {found.shared_documents} of {found.documents} documents share text with"
                f" the evaluation set '{name}': {', '.join(found.first)}"
                + (f" and {more} more" if more else ""),
                expected=f"no {params.words} words in a row that are also in '{name}'",
                todo="make it anew: dvc repro -f -s clean",
            )
    raise AssertionError("shared with all sets together, but with none of them")


def _text_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts of about BATCH_CHARS characters at a time."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
