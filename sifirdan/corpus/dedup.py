"""Exact duplicates, repeated lines, and the rule which copy of a text stays. Not for near duplicates.

The copy that stays is the one of the earlier source; within a source the longer, then the one with
the smaller id. Memory is bounded by a setting, whatever the number of documents: what has to be
compared lies on disk and is sorted a bucket at a time.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sifirdan.corpus.disk_rows import Buckets, DiskRows, buckets_for, new_array
from sifirdan.corpus.shingles import Ragged, whole_hashes, word_hashes
from sifirdan.errors import DataError, require

MAX_SOURCES = 1 << 12
_LENGTH_BITS, _ID_BITS = 28, 24
MIN_DOCUMENTS_FOR_RATE = 100  # of fewer documents a rate says nothing


def priority(source: int, num_chars: int, document_id: str) -> int:
    """Of two copies the one with the smaller number stays: the earlier source (its place in
    params), then the longer text (all above 268 million characters count as equally long), then
    the smaller id by its first 6 hexadecimal digits. Copies that still tie keep the order of
    reading."""
    assert 0 <= source < MAX_SOURCES, source
    shortness = (1 << _LENGTH_BITS) - 1 - min(num_chars, (1 << _LENGTH_BITS) - 1)
    return (source << _LENGTH_BITS | shortness) << _ID_BITS | int(document_id[:6], 16)


def key_hashes(keys: Sequence[str]) -> np.ndarray:
    """128 bits of each dedup key's sha256, uint64, shape (keys, 2)."""
    digests = b"".join(hashlib.sha256(key.encode()).digest()[:16] for key in keys)
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)


class ExactDuplicates:
    """Which documents have the same key; documents are numbered as they are added, from 0."""

    def __init__(self, folder: Path, memory_mb: int) -> None:
        self._folder, self._memory_mb = folder, memory_mb
        self._rows = DiskRows(folder / "keys", 4)
        self._total = 0

    def add(
        self, hashes: np.ndarray, priorities: np.ndarray, taking: np.ndarray | None = None
    ) -> None:
        """The `key_hashes` of the next documents and their priorities, uint64; with `taking` (bool,
        an entry a document) only those that it marks can be or have copies."""
        numbers = np.arange(self._total, self._total + len(hashes), dtype=np.uint64)
        self._total += len(hashes)
        rows = np.column_stack([hashes, priorities.astype(np.uint64), numbers])
        self._rows.append(rows if taking is None else rows[taking])

    def find(self) -> np.ndarray:
        """For each document the number of the copy that stays, or -1 where it stays itself; int64,
        an array on disk."""
        count = buckets_for(len(self._rows), 4, self._memory_mb)
        buckets = Buckets(self._folder / "by_key", 4, count)
        for _, rows in self._rows.blocks():
            buckets.append_by_hash(rows)
        kept = new_array(self._folder / "kept", self._total, np.int64, -1)
        for number in range(buckets.count):
            rows = buckets.take(number)
            rows = rows[np.lexsort(rows.T[::-1])]  # by key, priority, number
            first = np.ones(len(rows), bool)
            first[1:] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
            documents = rows[:, 3].astype(np.int64)
            leaders = documents[first][np.cumsum(first) - 1]
            kept[documents[~first]] = leaders[~first]
        self._rows.close()
        return kept


# Lines that occur in many documents. A dictionary line is compared by its definition: of 'Bafa
# (isim): Bir göl.' that is 'Bir göl.'; every other line is a sentence, or several.

_HEADWORD = re.compile(r"^[^\n:]{1,80} \([^()\n]{1,20}\): ")


@dataclass(frozen=True)
class RepeatedLineParams:
    """In how many documents of its source a line may stand; null: in any number. Lines of fewer
    than `min_chars` characters are not looked at."""

    min_chars: int
    max_sentence_documents: int | None
    max_definition_documents: int | None

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this section's dotted name."""
        for name, value in vars(self).items():
            ok = value is None or value >= 1
            require(ok, f"{key}.{name}", value, "1 or more, or null")


def sentences_of(text: str) -> list[str]:
    """The lines of a text; '' in the place of a dictionary line."""
    return ["" if _HEADWORD.match(line) else line for line in text.split("\n")]


def definitions_of(text: str) -> list[str]:
    """The definitions of a text's dictionary lines; '' in the place of every other line."""
    found = [_HEADWORD.match(line) for line in text.split("\n")]
    return [match.string[match.end() :] if match else "" for match in found]


def line_hashes(
    texts: Sequence[str], min_chars: int, split: Callable[[str], list[str]] = sentences_of
) -> Ragged:
    """A hash of each line's words; 0 for a line of fewer characters or without words."""
    parts = [split(text) for text in texts]
    lines = [line if len(line) >= min_chars else "" for part in parts for line in part]
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    hashes = whole_hashes(word_hashes(lines))
    return Ragged(hashes, np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]))


def drop_lines(text: str, numbers: Sequence[int]) -> str:
    """The text without the lines of these numbers."""
    gone = set(numbers)
    return "\n".join(line for n, line in enumerate(text.split("\n")) if n not in gone).strip()


@dataclass
class RepeatedLines:
    """Lines of a source found in more than `max_documents` of its documents: they stay in the
    first `max_documents` and go from all later ones. Documents are numbered as they are added."""

    folder: Path
    memory_mb: int
    max_documents: int

    def __post_init__(self) -> None:
        assert self.max_documents >= 1, self.max_documents
        self._rows = DiskRows(self.folder / "lines", 4)
        self._num_documents = 0

    def add(self, source: int, lines: Ragged) -> None:
        """The `line_hashes` of the next documents, all of one source."""
        sizes = lines.sizes()
        documents = np.repeat(self._num_documents + np.arange(len(lines)), sizes)
        places = np.arange(len(lines.values)) - np.repeat(lines.offsets[:-1], sizes)
        columns = [lines.values, np.full(len(documents), source), documents, places]
        rows = np.column_stack([column.astype(np.uint64) for column in columns])
        self._rows.append(rows[lines.values != 0])
        self._num_documents += len(lines)

    def find(self) -> Iterator[tuple[int, list[int]]]:
        """The numbers of documents that lose lines, ascending, with the numbers of these lines."""
        total = len(self._rows)
        by_line = Buckets(self.folder / "by_line", 4, buckets_for(total, 4, self.memory_mb))
        for _, rows in self._rows.blocks():
            by_line.append_by_hash(rows)
        self._rows.close()
        num_ranges = buckets_for(total, 2, self.memory_mb)
        width = max(1, -(-self._num_documents // num_ranges))
        by_document = Buckets(self.folder / "by_document", 2, num_ranges)
        for number in range(by_line.count):
            rows = self._surplus(by_line.take(number))
            by_document.append(rows, rows[:, 0] // np.uint64(width))
        return self._in_order(by_document)

    def _surplus(self, rows: np.ndarray) -> np.ndarray:
        """Document and line of the occurrences that go, of all occurrences of some lines."""
        if not len(rows):
            return rows[:, 2:]
        rows = rows[np.lexsort((rows[:, 3], rows[:, 2], rows[:, 0], rows[:, 1]))]
        new_line = np.ones(len(rows), bool)
        new_line[1:] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        new_document = new_line.copy()
        new_document[1:] |= rows[1:, 2] != rows[:-1, 2]
        group = np.cumsum(new_line) - 1
        nth = np.cumsum(new_document)  # documents so far, over all lines
        nth -= nth[np.flatnonzero(new_line)][group] - 1  # now from 1 for each line
        return rows[nth > self.max_documents, 2:]

    def _in_order(self, by_document: Buckets) -> Iterator[tuple[int, list[int]]]:
        for number in range(by_document.count):
            rows = by_document.take(number)
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            documents, starts = np.unique(rows[:, 0], return_index=True)
            parts = np.split(rows[:, 1], starts[1:])
            for document, places in zip(documents.tolist(), parts, strict=False):
                yield document, places.tolist()


def check_removal_rate(
    documents: Mapping[str, int],
    removed: Mapping[str, int],
    max_share: float,
    key: str,
    examples: Callable[[str], Sequence[str]] = lambda source: (),
) -> None:
    """Stop where more than `max_share` of a source's documents are to be removed as copies: so
    large a share more often means a mistake in a rule than a source of copies. `key` is the
    setting's dotted name; `examples` shows some of a source. Sources of under 100 documents are
    not judged."""
    for name, total in documents.items():
        gone = removed.get(name, 0)
        if total >= MIN_DOCUMENTS_FOR_RATE and gone > max_share * total:
            shown = "".join(f"\n    {example}" for example in examples(name))
            raise DataError(
                f"{name}: {gone} of {total} documents ({gone / total:.1%}) are copies of others"
                + (f", such as{shown}" if shown else ""),
                expected=f"at most {max_share:.1%} ({key})",
                todo=f"look at some of them; if the source is indeed that repetitive, raise {key},"
                " else remove the source",
            )
