"""Why a document is in or out, answered from the ledger."""

import json
from pathlib import Path

import pytest
import tiny_corpus
from tiny_corpus import STORY

from sifirdan.config import read_yaml
from sifirdan.corpus.ledger_file import LEDGER_FILE, SPLITS
from sifirdan.corpus.provenance import find_row, why, why_lines
from sifirdan.corpus.reasons import OUT, deciding, in_words
from sifirdan.corpus.records import QUARANTINE_FILE
from sifirdan.corpus.steps import steps_of
from sifirdan.errors import DataError

ROOT = Path(__file__).parent.parent
ROWS = tiny_corpus.ledger_rows()
# the first document of each verdict
VERDICTS = {told.verdict: n for n, told in reversed(list(enumerate(STORY)))}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus.make_data(tmp_path_factory.mktemp("proje"))


def ask(project: Path, wanted: str) -> dict:
    return why(project / "data/corpus", project / "data/raw", wanted)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_why_answers_for_every_kind_of_verdict(project: Path, verdict: str) -> None:
    number = VERDICTS[verdict]
    told, row = STORY[number], ROWS[number]
    found = ask(project, row.id)
    assert (found["id"], found["verdict"], found["source"]) == (row.id, verdict, told.source)
    assert found["in"] == (verdict in SPLITS)
    assert found["text"] == told.text
    assert found["text_from"].endswith(f"corpus/{verdict}" if found["in"] else told.source)
    assert found["because"] and found["flags"] == list(told.flags)
    if told.kept is None:
        assert found["kept"] is None
    else:
        assert found["kept"]["id"] == ROWS[told.kept].id
        assert found["kept"]["text"] == STORY[told.kept].text
    shown = "\n".join(why_lines(found))
    assert row.id in shown and row.origin in shown and row.license in shown
    assert told.text.split()[0] in shown
    assert ("0.910" in shown) == (verdict == "near_duplicate")


def test_why_knows_the_places_that_gave_no_document(tmp_path: Path) -> None:
    project = tiny_corpus.make_data(tmp_path)
    lines = [
        {
            "source": "own",
            "counted_as": "not_read",
            "origin": "eski/resim.jpg",
            "reason": "is none",
        },
        {"source": "own", "counted_as": "bad_records", "origin": "belge.csv#7", "reason": "byte 3"},
    ]
    quarantine = project / "data/raw" / QUARANTINE_FILE
    quarantine.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = ask(project, "resim.jpg")
    assert found["id"] is None and not found["in"]
    assert list(why_lines(found)) == ["own: eski/resim.jpg gave no document: is none"]
    with pytest.raises(DataError, match="no document of this corpus"):
        ask(project, "baska.jpg")
    both = {**lines[0], "origin": ROWS[0].origin}
    quarantine.write_text(json.dumps(both) + "\n", encoding="utf-8")
    shown = list(why_lines(ask(project, ROWS[0].origin)))
    assert "gave no document" in shown[0] and ROWS[0].id in shown[1]
    quarantine.write_text(json.dumps(both) + "\n{", encoding="utf-8")
    with pytest.raises(DataError, match=r"(?s)jsonl:2: is damaged.*dvc repro ingest"):
        ask(project, "resim.jpg")


def test_a_name_that_many_fit_is_answered_with_their_verdicts(project: Path) -> None:
    with pytest.raises(DataError, match=r"documents fit '#' \(train \d+, .*; and \d+ more"):
        ask(project, "#")


def test_why_tells_the_rule_and_its_setting(project: Path) -> None:
    found = ask(project, ROWS[VERDICTS["too_short"]].id)
    assert found["settings"] == {"clean.min_chars": 20}
    assert found["because"] == "it has too few characters" and found["step"] == "length"
    assert "clean.min_chars: 20" in "\n".join(why_lines(found))


def test_every_verdict_of_every_rule_is_told_in_words_with_its_settings() -> None:
    params = read_yaml(ROOT / "params.yaml")["clean"]
    steps = steps_of(params, {}, {}, {})
    reasons = [(step, reason) for step in steps for reason in step.reasons]
    assert len(reasons) > 30
    for step, reason in reasons:
        assert in_words(reason), reason
        decides = deciding(reason, step.settings)
        assert bool(decides) == bool(OUT.get(reason, (0, "limit"))[1]), (reason, decides)
    assert in_words("duplicate_5_grams") != in_words("duplicate_6_grams")
    assert in_words("a rule of another release") is None
    assert deciding("a rule of another release", {"a.b": 1}) == {"a.b": 1}


def test_a_document_is_found_by_part_of_its_id_or_by_its_origin(project: Path) -> None:
    ledger = project / "data/corpus" / LEDGER_FILE
    row = ROWS[4]
    assert find_row(ledger, row.id[:8])["id"] == row.id
    assert find_row(ledger, row.origin)["id"] == row.id
    assert find_row(ledger, "sinav.txt")["source"] == "sinav"
    assert find_row(ledger, "own.txt#1")["id"] == ROWS[1].id  # whole, though #10 begins so too


def test_an_unknown_or_unclear_id_names_the_nearest(project: Path) -> None:
    ledger = project / "data/corpus" / LEDGER_FILE
    right = ROWS[4].id
    other = "0" if right[20] != "0" else "1"
    for wrong in (right[:20] + other + right[21:], right[:-1], right[1:], right + "0"):
        if wrong != right[:-1]:  # a beginning is enough
            with pytest.raises(DataError, match=f"did you mean {right}"):
                find_row(ledger, wrong)
    with pytest.raises(DataError, match="15 documents fit 'own.txt'"):
        find_row(ledger, "own.txt")
    with pytest.raises(DataError, match=r"did you mean .*sinav\.txt"):
        find_row(ledger, "sinaf.txt#20")
    for wrong in ("", "yok", "f" * 32):
        with pytest.raises(DataError, match="no document of this corpus"):
            find_row(ledger, wrong)


def test_why_without_the_raw_folder_says_so(project: Path, tmp_path: Path) -> None:
    wanted = ROWS[VERDICTS["duplicate"]].id
    found = why(project / "data/corpus", tmp_path / "raw", wanted)
    assert found["text"] is None and "not on this disk" in found["text_from"]
    assert found["kept"]["text"] == STORY[0].text
    tiny_corpus.make_raw(tmp_path / "raw", STORY[:5])
    found = why(project / "data/corpus", tmp_path / "raw", wanted)
    assert found["text"] is None and "of another run" in found["text_from"]
    assert "not to be had" in "\n".join(why_lines(found))


def test_a_text_cannot_steer_the_terminal(tmp_path: Path) -> None:
    story = [*STORY, tiny_corpus.Told("own", "\x1b[2J\u202eters\x07 kısa", "too_short")]
    tiny_corpus.make_data(tmp_path, story)
    shown = "\n".join(why_lines(ask(tmp_path, tiny_corpus.ledger_rows(story)[-1].id)))
    assert "<U+001B>[2J<U+202E>ters<U+0007> kısa" in shown and "\x1b" not in shown
