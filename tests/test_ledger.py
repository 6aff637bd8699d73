"""The ledger: written the same however it is batched, and a row lost or doubled is never overlooked."""

import dataclasses
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_corpus
from tiny_corpus import STORY, Told

from sifirdan.corpus import ledger as ledger_module
from sifirdan.corpus.conservation import id_problems
from sifirdan.corpus.ledger import LedgerWriter
from sifirdan.corpus.ledger_file import (
    LEDGER_FILE,
    LEDGER_SCHEMA,
    SPLITS,
    SUMMARY_FILE,
    LedgerRow,
    length_histograms,
    read_accounts,
    read_ledger,
)
from sifirdan.errors import DataError


def many(count: int) -> list[Told]:
    """A long story by a fixed draw: all verdicts, texts of all lengths."""
    draw = random.Random(5)
    story: list[Told] = []
    for n in range(count):
        source = draw.choice(list(tiny_corpus.SOURCES))
        verdict = draw.choice([*SPLITS, "too_short", "duplicate"])
        kept = draw.randrange(count) if verdict == "duplicate" else None
        flags = tuple(draw.sample(["asciified", "profanity"], draw.randrange(3)))
        story.append(Told(source, f"{n} " + "ş" * draw.randrange(3000), verdict, kept, flags=flags))
    return story


def write(folder: Path, story: list[Told] | tuple[Told, ...] = STORY) -> Path:
    folder.mkdir(parents=True)
    with LedgerWriter(folder, tiny_corpus.sources_of(story)) as ledger:
        for row in tiny_corpus.ledger_rows(story):
            ledger.add(row)
    return folder / LEDGER_FILE


def as_table(rows: list[LedgerRow]) -> pa.Table:
    return pa.Table.from_pylist([dataclasses.asdict(r) for r in rows], schema=LEDGER_SCHEMA)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    found = [row for table in read_ledger(path) for row in table.to_pylist()]
    assert found == [
        dataclasses.asdict(row) | {"flags": list(row.flags)} for row in tiny_corpus.ledger_rows()
    ]
    assert pq.read_schema(path).equals(LEDGER_SCHEMA, check_metadata=False)


def test_accounts_are_those_of_counting_by_hand(tmp_path: Path) -> None:
    story = many(500)
    path = write(tmp_path / "a", story)
    rows = tiny_corpus.ledger_rows(story)
    accounts = read_accounts(path)
    stated = json.loads((tmp_path / "a" / SUMMARY_FILE).read_text(encoding="utf-8"))
    assert stated == {name: account.summary() for name, account in accounts.items()}
    for name, account in accounts.items():
        own = [row for row in rows if row.source == name]
        assert account.documents_in == len(own)
        assert account.chars_in == sum(row.chars_in for row in own)
        for split in SPLITS:
            inside = [row for row in own if row.verdict == split]
            assert account.out[split] == len(inside)
            assert account.chars_out[split] == sum(row.chars_out for row in inside)
        assert account.rejected == Counter(r.verdict for r in own if r.verdict == "too_short")
        assert account.duplicates == Counter(r.verdict for r in own if r.kept_id)
        assert account.flags == Counter(flag for row in own for flag in row.flags)
        lost = sum(row.chars_in for row in own if row.verdict not in SPLITS)
        assert account.chars_lost.total() == lost
        assert account.documents_in == (
            account.out.total() + account.rejected.total() + account.duplicates.total()
        )


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
def test_the_same_rows_give_the_same_bytes_however_batched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(ledger_module, "ROW_GROUP_ROWS", 100)
    story = many(730)
    path = write(tmp_path / "a", story)
    rows = tiny_corpus.ledger_rows(story)
    (tmp_path / "b").mkdir()
    with LedgerWriter(tmp_path / "b", tiny_corpus.sources_of(story)) as ledger:
        ledger.add(rows[0])
        for start in range(1, len(rows), batch):
            ledger.add_table(as_table(rows[start : start + batch]))
    assert (tmp_path / "b" / LEDGER_FILE).read_bytes() == path.read_bytes()
    file = pq.ParquetFile(path)
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [100] * 7 + [30]


def test_length_histograms_are_those_of_counting_by_hand(tmp_path: Path) -> None:
    story = [*many(300), Told("own", "", "empty"), Told("own", "a", "train")]
    found = length_histograms(write(tmp_path / "a", story))
    for name, sides in found.items():
        own = [told for told in story if told.source == name]
        for side, chosen in (("in", own), ("out", [t for t in own if t.verdict in SPLITS])):
            expected = Counter(len(told.text).bit_length() for told in chosen)
            assert {n: c for n, c in enumerate(sides[side]) if c} == dict(expected)


def test_an_empty_ledger_is_a_ledger(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [])
    assert read_accounts(path) == {} and id_problems(path) == []
    stated = json.loads((tmp_path / "a" / SUMMARY_FILE).read_text(encoding="utf-8"))
    assert stated["own"]["in"] == 0 and length_histograms(path) == {}


# The law, when it is written.

Spoil = Callable[[list[LedgerRow]], list[LedgerRow]]
BROKEN: dict[str, tuple[Spoil, str]] = {
    "lost": (lambda rows: rows[1:], "source own: 15 documents came in, but 14"),
    "doubled": (lambda rows: [*rows, rows[3]], "source own: 15 documents came in, but 16"),
    "one lost, one doubled": (lambda rows: [*rows[1:], rows[3]], "in the ledger twice"),
    "given to another source": (
        lambda rows: [dataclasses.replace(rows[0], source="haber", license="GPL-3.0"), *rows[1:]],
        "source haber: 5 documents came in, but 6",
    ),
    "of a source that nobody knows": (
        lambda rows: [dataclasses.replace(rows[0], source="yok", license="?"), *rows[1:]],
        "source yok: 0 documents came in, but 1",
    ),
    "a copy that is nowhere": (
        lambda rows: [*rows[:13], dataclasses.replace(rows[13], kept_id="0" * 32), *rows[14:]],
        "no document of the ledger",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_row_lost_or_doubled_breaks_loudly(tmp_path: Path, kind: str) -> None:
    spoil, message = BROKEN[kind]
    with (
        pytest.raises(AssertionError, match=re.escape(message)),
        LedgerWriter(tmp_path, tiny_corpus.sources_of()) as ledger,
    ):
        for row in spoil(tiny_corpus.ledger_rows()):
            ledger.add(row)
    assert not (tmp_path / SUMMARY_FILE).exists()


def test_I_10_a_file_that_every_shard_read_whole_is_found(tmp_path: Path) -> None:
    """Every worker read all 100 documents: 8 times each, and the counts alone agree."""
    story = [Told("own", f"{n} numaralı belge", "train") for n in range(100)]
    with (
        pytest.raises(AssertionError, match="700 documents are in the ledger twice"),
        LedgerWriter(tmp_path, {"own": (800, "own")}) as ledger,
    ):
        for _ in range(8):
            ledger.add_table(as_table(tiny_corpus.ledger_rows(story)))


def test_an_error_inside_is_not_hidden_by_the_law(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), LedgerWriter(tmp_path, {"own": (3, "own")}):
        raise ZeroDivisionError


def test_a_ledger_of_another_format_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / LEDGER_FILE
    later = LEDGER_SCHEMA.with_metadata({b"ledger_format": b"2"})
    pq.write_table(pa.Table.from_pylist([], schema=later), path)
    with pytest.raises(DataError, match=r"format 2(.|\n)*format 1(.|\n)*dvc repro"):
        list(read_ledger(path))
    path.write_bytes(b"PAR1 half")
    with pytest.raises(DataError, match="cannot be read"):
        list(read_ledger(path))
    with pytest.raises(DataError, match="there is no ledger"):
        list(read_ledger(tmp_path / "none.parquet"))
