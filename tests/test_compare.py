"""The second pass of cleaning: which document stays, for which copy, and which lines go."""

from dataclasses import replace
from pathlib import Path

import corpora
import pytest
from corpora import CLEAN

from sifirdan.corpus import ledger_file
from sifirdan.corpus.records import Document
from sifirdan.errors import DataError
from sifirdan.text import upper_tr

LONG = " ".join(corpora.texts(12, seed=5))
SENTENCES = corpora.texts(400, seed=9)
ALL = replace(CLEAN, max_duplicate_share=1.0)


def cleaned(
    folder: Path, sources: dict[str, list[str]], params: object = ALL
) -> dict[str, Document]:
    """The documents of a corpus by origin."""
    raw = corpora.make_raw(folder, {**sources, "rest": corpora.texts(400, seed=3)})
    corpora.clean(raw, folder / "corpus", params)  # type: ignore[arg-type]
    documents = [d for split in corpora.stored(folder / "corpus").values() for d in split]
    return {f"{d.source} {d.origin.rsplit(':', 1)[-1]}": d for d in documents}


def rows(folder: Path) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    found: list[dict[str, object]] = pq.read_table(
        folder / "corpus" / ledger_file.LEDGER_FILE
    ).to_pylist()
    return found


def test_a_copy_of_a_near_duplicate_names_the_text_that_stays(tmp_path: Path) -> None:
    longer = f"{LONG} Bir iki söz daha."
    cleaned(tmp_path, {"a": [longer], "b": [LONG, upper_tr(LONG)]})
    mine = [row for row in rows(tmp_path) if row["source"] in "ab"]
    stays = mine[0]["id"]
    verdicts = [(row["verdict"], row["kept_id"]) for row in mine]
    assert verdicts[1:] == [("near_duplicate", stays), ("duplicate", stays)] or verdicts[1:] == [
        ("duplicate", stays), ("near_duplicate", stays)
    ]  # fmt: skip


def test_lines_of_a_copy_that_goes_count_for_nothing(tmp_path: Path) -> None:
    """Or the line would go from the text that stays, as it stood in the copy before."""
    shared = SENTENCES[0]
    first = f"{SENTENCES[1]}\n{shared}"
    longer = f"{SENTENCES[1]}\n{shared}!"  # the same for a reader, and longer: it stays
    found = cleaned(tmp_path, {"a": [first, longer]})
    (text,) = [d.text for name, d in found.items() if name.startswith("a ")]
    assert shared in text and SENTENCES[1] in text


def test_repeated_sentences_go_from_all_but_the_first(tmp_path: Path) -> None:
    shared = SENTENCES[0]
    texts = [f"{own}\n{shared}" for own in SENTENCES[1:5]]
    found = cleaned(tmp_path, {"a": texts, "b": [f"{SENTENCES[5]}\n{shared}"]})
    holding = [name for name, d in found.items() if shared in d.text]
    assert sorted(name[0] for name in holding) == ["a", "b"]  # counted by source
    assert all(own in "".join(d.text for d in found.values()) for own in SENTENCES[:6])


def test_repeated_definitions_have_their_own_limit(tmp_path: Path) -> None:
    definition = "İstanbul iline bağlı ilçelerden biridir."
    texts = [f"Yer{n} (isim): {definition}\n{SENTENCES[n]}" for n in range(6)]
    lines = replace(CLEAN.repeated_lines, max_definition_documents=2)
    found = cleaned(tmp_path, {"a": texts}, replace(ALL, repeated_lines=lines))
    assert sum(definition in d.text for d in found.values()) == 2
    off = replace(lines, max_definition_documents=None)
    found = cleaned(tmp_path / "off", {"a": texts}, replace(ALL, repeated_lines=off))
    assert sum(definition in d.text for d in found.values()) == 6


def test_what_has_nothing_left_is_out_for_its_lines(tmp_path: Path) -> None:
    lines = SENTENCES[:6]
    cleaned(tmp_path, {"a": ["\n".join(lines[:3]), "\n".join(lines[3:]), "\n".join(lines[2:4])]})
    assert [row["verdict"] for row in rows(tmp_path) if row["source"] == "a"][2] == "repeated_lines"


def test_near_duplicates_and_containment_can_be_turned_off(tmp_path: Path) -> None:
    copies = {"a": [LONG], "b": [f"{LONG} Bir iki söz daha.", f"{LONG} {' '.join(SENTENCES[:9])}"]}
    nothing = replace(CLEAN.duplicates, similarity=None, containment=None)
    cleaned(tmp_path, copies, replace(ALL, duplicates=nothing))
    assert not any(row["kept_id"] for row in rows(tmp_path))


def test_I_11_a_source_that_would_lose_most_stops_with_examples(tmp_path: Path) -> None:
    copies = [text for text in SENTENCES[:120] for _ in range(3)]
    with pytest.raises(DataError, match=r"(?s)a: 240 of 360 .*such as\n.*a\.jsonl.*\(duplicate of"):
        cleaned(tmp_path, {"a": copies}, CLEAN)
    assert not (tmp_path / "corpus").exists()
    assert not list(tmp_path.glob(".corpus*scratch"))
