"""The first pass of cleaning, a function over batches: every document of a batch is repaired and
judged by itself, and what it will be compared by is worked out.

A batch is a row group of data/raw, so batches depend on the text alone and not on the number of
workers. What grows with the text goes to scratch files; counts and samples are returned. What
documents have to do with each other is the business of the stage `clean`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sifirdan.cleaning.by_reader import RepairParams, TextKind, reject_reason, repair
from sifirdan.cleaning.flags import FlagParams, flag_reason, flags_of
from sifirdan.cleaning.language import LanguageParams, assess
from sifirdan.cleaning.personal import PersonalParams, mask_personal
from sifirdan.cleaning.quality import Check, QualityParams, quality_checks, quality_reason
from sifirdan.corpus.dedup import (
    RepeatedLineParams,
    definitions_of,
    key_hashes,
    line_hashes,
    priority,
    sentences_of,
)
from sifirdan.corpus.examples import SAMPLE_CHARS, Example, Samples
from sifirdan.corpus.near_duplicates import DuplicateParams, Fingerprints, fingerprints
from sifirdan.corpus.reasons import NOT_FOR_PRETRAINING
from sifirdan.corpus.records import Document, read_row_group, write_parquet
from sifirdan.corpus.shingles import Ragged

# Kept documents that a rule nearly turned away are shown beside those that it did: "nearly" is a
# fifth from the limit, looked for in one kept document of this many.
_NEAR = 0.2
_ONE_IN = 8
_AT_ONCE = 100  # documents that a rule sees before the next one starts
_MASK_ALL = PersonalParams(tckn="mask", iban="mask", card="mask", phone="mask", email="mask")


@dataclass(frozen=True)
class JudgeParams:
    """The settings of the rules that look at one document alone."""

    min_chars: int
    max_replacement_share: float
    repairs: RepairParams
    language: LanguageParams
    quality: QualityParams
    personal: PersonalParams
    flags: FlagParams
    duplicates: DuplicateParams
    repeated_lines: RepeatedLineParams
    samples: int


@dataclass(frozen=True)
class Batch:
    """One batch of one source. `number` counts all batches, `rank` the sources: the copy of the
    source with the smaller rank stays."""

    number: int
    part: Path
    row_group: int
    source: str
    rank: int
    reader: str
    text_kind: TextKind
    for_chat_only: bool
    scratch: Path
    params: JudgeParams

    def file(self, kind: str) -> Path:
        """Where this batch keeps its `kept` documents, its `rows` and its `prints`."""
        return self.scratch / f"{self.number:06d}.{kind}"


@dataclass
class Judged:
    """What is known of a batch after the first pass, beside its files."""

    batch: Batch
    documents: int = 0
    kept: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    personal: Counter[str] = field(default_factory=Counter)
    samples: Samples = field(default_factory=lambda: Samples(0))


@dataclass
class Verdict:
    """One document after the rules that have seen it, and why it is out, or None; `note` is what the
    rule saw."""

    document: Document
    reason: str | None = None
    flags: tuple[str, ...] = ()
    note: str = ""
    language_probability: float = 1.0


def judge_batch(batch: Batch) -> Judged:
    """Judge every document of a batch; writes its three files."""
    found = Judged(batch, samples=Samples(batch.params.samples))
    kept: list[Document] = []
    rows: list[tuple[str, str, str, str | None, int, list[str]]] = []
    raw = read_row_group(batch.part, batch.row_group)
    for start in range(0, len(raw), _AT_ONCE):
        some = raw[start : start + _AT_ONCE]
        for before, verdict in zip(some, judge(some, batch, found), strict=True):
            rows.append(
                (before.id, before.license, before.origin, verdict.reason, len(before.text),
                 list(verdict.flags))
            )  # fmt: skip
            if verdict.reason is None:
                kept.append(verdict.document)
            _offer(verdict, batch, found.samples)
    found.documents, found.kept = len(raw), len(kept)
    write_parquet(batch.file("kept"), kept)
    _write_rows(batch.file("rows"), rows)
    _write_prints(batch, kept)
    return found


def judge(documents: Sequence[Document], batch: Batch, found: Judged) -> list[Verdict]:
    """Some documents: repairs, personal data, then the rules; the first reason counts. Every rule
    sees all of them before the next one starts, so that its code and tables are still in the cache
    of the processor: half as fast again as document by document."""
    verdicts = [Verdict(document) for document in documents]
    if batch.for_chat_only:
        for verdict in verdicts:
            verdict.reason = NOT_FOR_PRETRAINING
        return verdicts
    for step in (_repair, _mask, _flag):  # flags also of what is out for its personal data
        for verdict in verdicts:
            step(verdict, batch, found)
    for rule in (*_RULES_FOR_ALL, *(_RULES_FOR_WEB if batch.text_kind == "web" else ())):
        for verdict in verdicts:
            if verdict.reason is None:
                rule(verdict, batch, found)
    return verdicts


def _repair(verdict: Verdict, batch: Batch, found: Judged) -> None:
    text = verdict.document.text
    text, counts = repair(text, batch.reader, batch.text_kind, batch.params.repairs)
    found.repairs.update(counts)
    verdict.document = replace(verdict.document, text=text)


def _mask(verdict: Verdict, batch: Batch, found: Judged) -> None:
    text, counts, verdict.reason = mask_personal(verdict.document.text, batch.params.personal)
    found.personal.update(counts)
    verdict.document = replace(verdict.document, text=text)


def _flag(verdict: Verdict, batch: Batch, found: Judged) -> None:
    verdict.flags = tuple(flags_of(verdict.document.text))


def _refuse(verdict: Verdict, batch: Batch, found: Judged) -> None:
    params = batch.params
    verdict.reason = reject_reason(
        verdict.document.text,
        batch.reader,
        min_chars=params.min_chars,
        max_replacement_share=params.max_replacement_share,
    ) or flag_reason(verdict.flags, params.flags)


def _assess_language(verdict: Verdict, batch: Batch, found: Judged) -> None:
    params = batch.params.language
    if params.allowed is None:
        return
    language, probability, verdict.reason = assess(verdict.document.text, params)
    found.languages[language] += 1
    verdict.language_probability = probability
    if verdict.reason:
        verdict.note = f"{language} {probability:.2f}"


def _assess_quality(verdict: Verdict, batch: Batch, found: Judged) -> None:
    text, params = verdict.document.text, batch.params.quality
    verdict.reason = quality_reason(text, params)
    if verdict.reason:
        (check,) = [c for c in quality_checks(text, params) if c.reason == verdict.reason]
        verdict.note = _measured(check)


_RULES_FOR_ALL = (_refuse,)
_RULES_FOR_WEB = (_assess_language, _assess_quality)


def _offer(verdict: Verdict, batch: Batch, samples: Samples) -> None:
    """Give the page for people what it may show of this document."""
    document = verdict.document
    if verdict.reason is None:
        if int(document.id[:4], 16) % _ONE_IN == 0:
            for reason, note in _near_misses(verdict, batch):
                samples.offer(reason, "kept", example_of(document, note))
    elif samples.wants(verdict.reason, "rejected", document.source, document.id):
        samples.offer(verdict.reason, "rejected", example_of(document, verdict.note))


def _measured(check: Check) -> str:
    """What a rule saw, and what it keeps."""
    limit = f"at least {check.low}" if check.low is not None else f"at most {check.high}"
    return f"{check.value:.3g}, kept: {limit}"


def _near_misses(verdict: Verdict, batch: Batch) -> Iterator[tuple[str, str]]:
    """The rules that nearly turned a kept document away, each with what it saw."""
    text, params = verdict.document.text, batch.params
    if len(text) < params.min_chars * (1 + _NEAR):
        yield "too_short", f"{len(text)} characters, kept: at least {params.min_chars}"
    if batch.text_kind != "web":
        return
    least = params.language.min_probability
    if verdict.language_probability < least * (1 + _NEAR):
        yield "uncertain_language", f"{verdict.language_probability:.2f}, kept: at least {least}"
    for check in quality_checks(text, params.quality):
        below = check.low is not None and check.value < check.low * (1 + _NEAR)
        above = check.high is not None and check.value > check.high * (1 - _NEAR)
        if (below or above) and (check.low or check.high):
            yield check.reason, _measured(check)


def example_of(document: Document, note: str = "") -> Example:
    """A document as people are shown it."""
    return Example(document.id, document.source, document.origin, masked(document.text), note)


def masked(text: str) -> str:
    """The beginning of a text, whatever the settings without anybody's personal data."""
    return mask_personal(text[: 2 * SAMPLE_CHARS], _MASK_ALL)[0]


ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("license", pa.string()),
        ("origin", pa.string()),
        ("reason", pa.string()),
        ("chars_in", pa.int64()),
        ("flags", pa.list_(pa.string())),
    ]
)


def read_rows(batch: Batch) -> pa.Table:
    """The documents of a batch in their order, with `reason` null where one was kept."""
    return pq.read_table(batch.file("rows"), schema=ROWS)


def read_kept_rows(batch: Batch) -> pa.Table:
    """Those of the kept documents alone."""
    rows = read_rows(batch)
    return rows.filter(rows.column("reason").is_null())


class Prints:
    """What the kept documents of a batch are compared by, an entry a document in each; read from
    the batch's file when it is asked for, as the n-grams alone are larger than the text."""

    def __init__(self, batch: Batch) -> None:
        self._path = batch.file("prints")

    @cached_property
    def keys(self) -> np.ndarray:
        """uint64, (kept, 2): hashes of the dedup keys."""
        return self._array("keys")

    @cached_property
    def priorities(self) -> np.ndarray:
        """uint64, (kept,)."""
        return self._array("priorities")

    @property
    def near(self) -> Fingerprints:
        return Fingerprints([], self._ragged("sets"), self._array("bands"))

    @cached_property
    def sentences(self) -> Ragged:
        """Hashes of lines, by place; 0: not looked at."""
        return self._ragged("sentences")

    @cached_property
    def definitions(self) -> Ragged:
        """The same for the definitions of dictionary lines."""
        return self._ragged("definitions")

    def _ragged(self, name: str) -> Ragged:
        return Ragged(self._array(f"{name}_values"), self._array(f"{name}_offsets"))

    def _array(self, name: str) -> np.ndarray:
        with np.load(self._path) as arrays:
            found: np.ndarray = arrays[name]
            return found


def _write_rows(path: Path, rows: list[tuple[str, str, str, str | None, int, list[str]]]) -> None:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(ROWS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=ROWS), path)


def _write_prints(batch: Batch, kept: list[Document]) -> None:
    texts = [document.text for document in kept]
    prints = fingerprints(texts, batch.params.duplicates)
    priorities = [priority(batch.rank, len(d.text), d.id) for d in kept]
    lines = batch.params.repeated_lines
    ragged = {
        "sets": prints.sets,
        "sentences": _lines(texts, lines.max_sentence_documents, lines.min_chars, sentences_of),
        "definitions": _lines(
            texts, lines.max_definition_documents, lines.min_chars, definitions_of
        ),
    }
    arrays: dict[str, Any] = {
        "keys": key_hashes(prints.keys),
        "bands": prints.bands,
        "priorities": np.array(priorities, np.uint64),
    }
    for name, part in ragged.items():
        arrays |= {f"{name}_values": part.values, f"{name}_offsets": part.offsets}
    with open(batch.file("prints"), "wb") as file:
        np.savez(file, **arrays)


def _lines(
    texts: list[str], limit: int | None, min_chars: int, split: Callable[[str], list[str]]
) -> Ragged:
    if limit is None:
        return Ragged(np.zeros(0, np.uint64), np.zeros(len(texts) + 1, np.int64))
    return line_hashes(texts, min_chars, split)
