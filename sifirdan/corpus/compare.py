"""The second pass of cleaning: which of the documents that passed the rules are copies of others,
and which of their lines stand in too many of them.

Works on the fingerprints that the first pass (judge.py) left on disk; what it decides goes back to
disk, so memory does not grow with the corpus. Documents are numbered in the order of the batches.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from sifirdan.corpus import judge, records
from sifirdan.corpus.dedup import (
    ExactDuplicates,
    RepeatedLineParams,
    RepeatedLines,
    check_removal_rate,
    drop_lines,
    key_hashes,
)
from sifirdan.corpus.disk_rows import BLOCK_ROWS, new_array
from sifirdan.corpus.judge import Judged
from sifirdan.corpus.near_duplicates import NEAR, Copies, DuplicateParams, NearDuplicates
from sifirdan.corpus.records import BUCKETS
from sifirdan.corpus.shingles import keys_and_words

DUPLICATE, NEAR_DUPLICATE, CONTAINED = "duplicate", "near_duplicate", "contained"
COPY_REASONS = (DUPLICATE, NEAR_DUPLICATE, CONTAINED)
REPEATED_LINES = "repeated_lines"  # hardly anything was left without them
_REASONS = ("", *COPY_REASONS, REPEATED_LINES)
_CODE = {reason: code for code, reason in enumerate(_REASONS)}
_EXAMPLES = 3


@dataclass(frozen=True)
class CompareParams:
    """The settings of this pass; see params.yaml for each."""

    min_chars: int
    duplicates: DuplicateParams
    repeated_lines: RepeatedLineParams
    max_duplicate_share: float


@dataclass(frozen=True)
class Decisions:
    """An entry a document, in arrays on disk. `kept` is the number of the copy that stays, -1 where
    there is none."""

    kept: np.ndarray  # int64
    code: np.ndarray  # uint8: a place in _REASONS
    similarity: np.ndarray  # float32
    bucket: np.ndarray  # uint16: of the split, see records.split_of_bucket

    def reasons(self, start: int, end: int) -> list[str]:
        """Why each of these documents is out; '' for what stays."""
        return [_REASONS[code] for code in self.code[start:end].tolist()]


def compare(judged: Sequence[Judged], scratch: Path, params: CompareParams) -> Decisions:
    """Decide about every document; writes the file `lines` of every batch."""
    exact = ExactDuplicates(scratch / "exact", params.duplicates.memory_mb)
    near = NearDuplicates(scratch / "near", params.duplicates)
    for batch in judged:
        prints = judge.Prints(batch.batch)
        exact.add(prints.keys, prints.priorities)
        near.add(prints.near, prints.priorities)
    same = exact.find()
    copies = near.find(left_out=_at_least_zero(same, scratch / "left_out"))
    decisions = _joined(same, copies, scratch)
    _mark_lines(judged, decisions, scratch, params)
    _compare_what_is_left(judged, decisions, scratch, params)
    _check_rates(judged, decisions, params.max_duplicate_share)
    return decisions


def read_lines(judged: Judged) -> dict[int, list[int]]:
    """The lines that a batch loses: their numbers, by the document's place in the batch."""
    with np.load(judged.batch.file("lines")) as arrays:
        places, numbers = arrays["places"].tolist(), arrays["numbers"].tolist()
    lines: dict[int, list[int]] = {}
    for place, number in zip(places, numbers, strict=True):
        lines.setdefault(place, []).append(number)
    return lines


def texts_left(
    judged: Judged, places: Sequence[int], lines: Mapping[int, Sequence[int]]
) -> list[str]:
    """The texts at some places of a batch without the lines that they lose; `lines` as `read_lines`
    gives them."""
    rows = records.read_rows(judged.batch.file("kept"), ["text"]).take(places)
    texts = zip(places, rows.column("text").to_pylist(), strict=True)
    return [drop_lines(text, lines[n]) if n in lines else text for n, text in texts]


def _at_least_zero(values: np.ndarray, path: Path) -> np.ndarray:
    found = new_array(path, len(values), np.uint8, 0)
    for part in _blocks(len(values)):
        found[part] = values[part] >= 0
    return found


def _joined(same: np.ndarray, copies: Copies, scratch: Path) -> Decisions:
    """One decision a document. The copy that an exact duplicate points to may have gone as a near
    one: then it is that one's copy which stays."""
    kept = new_array(scratch / "kept", len(same), np.int64, -1)
    code = new_array(scratch / "code", len(same), np.uint8, 0)
    bucket = new_array(scratch / "bucket", len(same), np.uint16, 0)
    for part in _blocks(len(same)):
        exact, near = np.asarray(same[part]), np.asarray(copies.kept[part])
        leader = np.asarray(copies.kept[np.maximum(exact, 0)])
        kept[part] = np.where(exact < 0, near, np.where(leader >= 0, leader, exact))
        nearly = np.where(copies.kind[part] == NEAR, _CODE[NEAR_DUPLICATE], _CODE[CONTAINED])
        code[part] = np.where(exact >= 0, _CODE[DUPLICATE], np.where(near >= 0, nearly, 0))
    return Decisions(kept, code, copies.similarity, bucket)


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK_ROWS) for start in range(0, length, BLOCK_ROWS))


def starts_of(judged: Sequence[Judged]) -> list[int]:
    """The number of the first document of each batch."""
    return np.cumsum([0, *(batch.kept for batch in judged)])[:-1].tolist()


def _check_rates(judged: Sequence[Judged], decisions: Decisions, max_share: float) -> None:
    documents: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for start, batch in zip(starts_of(judged), judged, strict=True):
        documents[batch.batch.source] += batch.documents
        copies = np.count_nonzero(decisions.kept[start : start + batch.kept] >= 0)
        removed[batch.batch.source] += int(copies)

    def examples(source: str) -> list[str]:
        return list(islice(_described_copies(judged, decisions, source), _EXAMPLES))

    check_removal_rate(documents, removed, max_share, "clean.max_duplicate_share", examples)


def _described_copies(judged: Sequence[Judged], decisions: Decisions, source: str) -> Iterator[str]:
    for start, batch in zip(starts_of(judged), judged, strict=True):
        if batch.batch.source == source:
            found = np.flatnonzero(decisions.kept[start : start + batch.kept] >= 0)
            for number in (start + found).tolist():
                mine, kept = origin_of(judged, number), origin_of(judged, decisions.kept[number])
                yield f"{mine} ({_REASONS[decisions.code[number]]} of {kept})"


def origin_of(judged: Sequence[Judged], number: int) -> str:
    """Source and place of the document of this number."""
    starts = starts_of(judged)
    at = int(np.searchsorted(starts, number, side="right")) - 1
    origins = judge.read_kept_rows(judged[at].batch).column("origin")
    return f"{judged[at].batch.source}: {origins[number - starts[at]]}"


def _mark_lines(
    judged: Sequence[Judged], decisions: Decisions, scratch: Path, params: CompareParams
) -> None:
    """Write for each batch which lines go. A copy that goes as a whole counts for no line, or a line
    might go everywhere."""
    limits, memory_mb = params.repeated_lines, params.duplicates.memory_mb
    sentences = _repeated(scratch / "sentences", memory_mb, limits.max_sentence_documents)
    definitions = _repeated(scratch / "definitions", memory_mb, limits.max_definition_documents)
    for start, batch in zip(starts_of(judged), judged, strict=True):
        prints = judge.Prints(batch.batch)
        stays = np.asarray(decisions.code[start : start + batch.kept]) == 0
        for repeated, lines in (
            (sentences, prints.sentences),
            (definitions, prints.definitions),
        ):
            if repeated is not None:
                lines.values[~np.repeat(stays, lines.sizes())] = 0
                repeated.add(batch.batch.rank, lines)
    found = [_Ahead(repeated.find()) for repeated in (sentences, definitions) if repeated]
    for start, batch in zip(starts_of(judged), judged, strict=True):
        pairs = [
            (document - start, number)
            for lines in found
            for document, numbers in lines.up_to(start + batch.kept)
            for number in numbers
        ]
        table = np.array(sorted(pairs), np.int64).reshape(-1, 2)
        with open(batch.batch.file("lines"), "wb") as file:
            np.savez(file, places=table[:, 0], numbers=table[:, 1])


def _repeated(folder: Path, memory_mb: int, limit: int | None) -> RepeatedLines | None:
    return None if limit is None else RepeatedLines(folder, memory_mb, limit)


class _Ahead:
    """Ascending (document, lines) pairs, taken a batch at a time."""

    def __init__(self, pairs: Iterator[tuple[int, list[int]]]) -> None:
        self._pairs = pairs
        self._next = next(pairs, None)

    def up_to(self, end: int) -> Iterator[tuple[int, list[int]]]:
        """The next pairs, those of documents before `end`."""
        while self._next is not None and self._next[0] < end:
            yield self._next
            self._next = next(self._pairs, None)


def _compare_what_is_left(
    judged: Sequence[Judged], decisions: Decisions, scratch: Path, params: CompareParams
) -> None:
    """What is left of documents that lost lines may be next to nothing, or the same as another: such
    a document goes after all. The split is by the text that is left."""
    exact = ExactDuplicates(scratch / "exact_left", params.duplicates.memory_mb)
    for start, batch in zip(starts_of(judged), judged, strict=True):
        prints, lines = judge.Prints(batch.batch), read_lines(batch)
        part = slice(start, start + batch.kept)
        if lines:
            places = list(lines)
            texts = texts_left(batch, places, lines)
            prints.keys[places] = key_hashes(keys_and_words(texts)[0])
            short = np.array([len(text) < params.min_chars for text in texts])
            decisions.code[start + np.array(places)[short]] = _CODE[REPEATED_LINES]
        decisions.bucket[part] = prints.keys[:, 0] % np.uint64(BUCKETS)
        exact.add(prints.keys, prints.priorities, np.asarray(decisions.code[part]) == 0)
    same = exact.find()
    for part in _blocks(len(same)):
        found, kept, code = same[part], decisions.kept[part], decisions.code[part]
        follows = same[np.maximum(kept, 0)]  # of a copy whose own copy went
        decisions.kept[part] = np.where(
            found >= 0, found, np.where((kept >= 0) & (follows >= 0), follows, kept)
        )
        decisions.code[part] = np.where(found >= 0, _CODE[DUPLICATE], code)
