"""The law of the ledger: a document lost or doubled is found, also where every hash is right."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_corpus
from test_ledger import as_table, many

from sifirdan import runs
from sifirdan.corpus import conservation
from sifirdan.corpus.conservation import corpus_problems, id_problems
from sifirdan.corpus.ledger_file import LEDGER_FILE, LEDGER_SCHEMA
from sifirdan.corpus.records import PartWriter, read_folder
from sifirdan.errors import DataError


@pytest.mark.parametrize("held", [1, 7, 50, 10_000])
def test_ids_are_checked_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(conservation, "MAX_IDS_HELD", held)
    rows = tiny_corpus.ledger_rows(many(100))
    pq.write_table(as_table(rows), tmp_path / "good.parquet")
    assert id_problems(tmp_path / "good.parquet") == []
    pq.write_table(as_table([*rows, rows[17], rows[40]]), tmp_path / "bad.parquet")
    (problem,) = id_problems(tmp_path / "bad.parquet")
    assert problem.startswith("2 documents") and (rows[17].id in problem or rows[40].id in problem)


def test_ids_that_are_no_ids_are_refused(tmp_path: Path) -> None:
    rows = tiny_corpus.ledger_rows()
    for wrong in ("kısa", "g" * 32, "A" * 32):
        pq.write_table(as_table([dataclasses.replace(rows[0], id=wrong)]), tmp_path / "x.parquet")
        with pytest.raises(DataError, match="32 hex digits"):
            id_problems(tmp_path / "x.parquet")


# The law, on a finished folder.


def build(root: Path, spoil: Callable[[Path], None] = lambda corpus: None) -> tuple[Path, Path]:
    """A corpus folder that `spoil` changed before its manifest was written, so that every hash in
    it is right and only the law can tell."""
    raw = tiny_corpus.make_raw(root / "raw")
    whole = root / "whole"
    tiny_corpus.make_corpus(whole, raw)
    with runs.new_folder(root / "corpus", kind="corpus", inputs={"raw": raw}, params={}) as output:
        for name in runs.read_manifest(whole).files:
            (output.path / name).parent.mkdir(exist_ok=True)
            (output.path / name).write_bytes((whole / name).read_bytes())
        spoil(output.path)
    return root / "corpus", root / "raw"


def rewrite_split(split: str, change: Callable[[list], list]) -> Callable[[Path], None]:
    def spoil(corpus: Path) -> None:
        kept = change(list(read_folder(corpus / split)))
        for path in (corpus / split).iterdir():
            path.unlink()
        (corpus / split).rmdir()
        with PartWriter(corpus / split) as writer:
            for document in kept:
                writer.add(document)

    return spoil


def rewrite_ledger(change: Callable[[list[dict]], list[dict]]) -> Callable[[Path], None]:
    def spoil(corpus: Path) -> None:
        path = corpus / LEDGER_FILE
        rows = change(pq.read_table(path).to_pylist())
        pq.write_table(pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA), path)

    return spoil


def shorten(documents: list) -> list:
    return [dataclasses.replace(documents[0], text=documents[0].text[:-1]), *documents[1:]]


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "text lost": (rewrite_split("train", lambda d: d[1:]), "own: train holds 12 documents"),
    "text doubled": (rewrite_split("val", lambda d: [*d, d[0]]), "haber: val holds 2 documents"),
    "text cut": (rewrite_split("test", shorten), "haber: test holds 1 documents"),
    "another text": (
        rewrite_split("val", lambda d: [dataclasses.replace(d[0], id="ab" * 16)]),
        "and other ids",
    ),
    "row lost": (rewrite_ledger(lambda rows: rows[1:]), "own: 15 documents came in, but 14"),
    "row doubled": (rewrite_ledger(lambda rows: [*rows, rows[0]]), "in the ledger twice"),
    "verdict changed": (
        rewrite_ledger(lambda rows: [rows[0] | {"verdict": "val"}, *rows[1:]]),
        "does not say what",
    ),
    "id changed": (
        rewrite_ledger(lambda rows: [*rows[:-1], rows[-1] | {"id": "cd" * 16}]),
        "with other ids",
    ),
    "no ledger": (lambda corpus: (corpus / LEDGER_FILE).unlink(), "run dvc repro clean"),
}


def test_a_whole_corpus_keeps_the_law(tmp_path: Path) -> None:
    corpus, raw = build(tmp_path)
    assert corpus_problems(corpus, raw) == [] == corpus_problems(corpus, None)
    runs.open_folder(corpus, "corpus", made_by="clean")


@pytest.mark.parametrize("kind", SPOILT)
def test_a_broken_law_is_found_where_every_hash_is_right(tmp_path: Path, kind: str) -> None:
    spoil, message = SPOILT[kind]
    corpus, raw = build(tmp_path, spoil)
    runs.open_folder(corpus, "corpus", made_by="clean")
    problems = corpus_problems(corpus, raw)
    assert any(message in problem for problem in problems), problems
