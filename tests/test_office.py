"""A folder of mixed files as an office has it, through ingest and clean: each file is used, or named
with its reason."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import corpora
import office
import pytest

from sifirdan import runs
from sifirdan.corpus.card import read_card
from sifirdan.corpus.conservation import law_lines
from sifirdan.corpus.contents import contents, contents_lines
from sifirdan.corpus.ledger_file import LEDGER_FILE, SPLITS, read_ledger
from sifirdan.errors import DataError

FILLER = corpora.texts(400, seed=5)  # so that every split has text
OTHER_ENCODINGS = {
    "eski": corpora.files_source("own/eski/*.txt", encoding="windows-1254"),
    "notlar": corpora.files_source("own/notlar", encoding="utf-16"),
}


def filler(folder: Path) -> dict[str, Any]:
    corpora.write_jsonl(folder / "dolgu.jsonl", FILLER)
    return {"dolgu": corpora.files_source("dolgu.jsonl")}


def ingest_office(folder: Path) -> Path:
    """The office lies in folder/own; its old files are also sources with their encodings."""
    sources = OTHER_ENCODINGS | filler(folder)
    return corpora.ingest(folder, own_on_error="quarantine", sources=sources)


def file_of(origin: str) -> str:
    """The file in the folder that a document, or a bad place, is in."""
    return re.split(r"!|:\d+$", origin)[0]


def verdicts(corpus: Path) -> dict[tuple[str, str], str]:
    """What became of each document, by source and origin."""
    rows = [
        row
        for table in read_ledger(corpus / LEDGER_FILE, ["source", "origin", "verdict"])
        for row in table.to_pylist()
    ]
    found = {(row["source"], row["origin"]): row["verdict"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_file_is_used_or_named_with_its_reason(tmp_path: Path) -> None:
    names = office.build(tmp_path / "own")
    raw = ingest_office(tmp_path)
    used = corpora.raw_texts(raw)
    named = {line["origin"]: line["reason"] for line in corpora.quarantine(raw)}

    page = used["web/duyuru.html"]
    assert "nöbetçi" in page and "Ana sayfa" not in page
    assert used == office.UTF8_TEXTS | {"web/duyuru.html": page}
    assert named.keys() == office.NAMED.keys()
    for origin, part in office.NAMED.items():
        assert part in named[origin], origin
    assert not used.keys() & named.keys()
    counts = runs.read_manifest(raw).counts["own"]
    assert counts["documents"] == len(used)
    assert counts["bad_records"] + counts["not_read"] == len(named)
    unread = len(named)
    assert sorted(set(map(file_of, used | named))) == names
    for source, texts in (("eski", office.LATIN_TEXTS), ("notlar", office.UTF16_TEXTS)):
        found = corpora.raw_texts(raw, source)
        assert found == {f"own/{source}/{name}": text for name, text in texts.items()}

    metrics = corpora.clean(raw, tmp_path / "corpus")
    card = read_card(tmp_path / "corpus")["sources"]
    assert card["own"]["unread"] == unread and card["dolgu"]["unread"] == 0
    assert any(f"; {unread} unread" in line for line in law_lines(card))
    told = "\n".join(contents_lines(contents(tmp_path / "corpus", tmp_path / "tokens")))
    assert f"{unread} unread (data/raw/quarantine.jsonl says why)" in told
    became = verdicts(tmp_path / "corpus")
    assert {origin for source, origin in became if source == "own"} == used.keys()
    kept = {d.origin: d.text for d in sum(corpora.stored(tmp_path / "corpus").values(), [])}
    for origin, text in used.items():
        if became["own", origin] in SPLITS:
            assert kept[origin] == text.replace("\r\n", "\n").strip()
        else:
            assert became["own", origin] == "too_short" and len(text) < 20
    assert len(kept["uzun satır.txt"]) > 4_000_000
    for source, texts in (("eski", office.LATIN_TEXTS), ("notlar", office.UTF16_TEXTS)):
        assert sum(metrics["sources"][source]["out"].values()) == len(texts)


@pytest.mark.parametrize("pack", ["zip", "tar.gz", "tar.xz"])
def test_the_same_folder_in_one_archive_is_used_or_named_as_well(tmp_path: Path, pack: str) -> None:
    names = office.build(tmp_path / "ofis")
    members = {name: (tmp_path / "ofis" / name).read_bytes() for name in names}
    packed = (
        office.zip_bytes(members) if pack == "zip" else office.tar_bytes(members, f"w:{pack[4:]}")
    )
    (tmp_path / "own").mkdir()
    (tmp_path / f"own/Bütün ofis.{pack}").write_bytes(packed)
    raw = corpora.ingest(tmp_path, own_on_error="quarantine", sources=filler(tmp_path))
    used = corpora.raw_texts(raw)
    named = [line["origin"] for line in corpora.quarantine(raw) if line["source"] == "own"]
    members_seen = {re.split(r"!|:\d+$", o.split("!", 1)[1])[0] for o in [*used, *named]}
    assert sorted(members_seen) == names
    assert "not utf-8" in str(corpora.quarantine(raw))
    corpora.clean(raw, tmp_path / "corpus")
    became = verdicts(tmp_path / "corpus")
    assert {origin for source, origin in became if source == "own"} == used.keys()


def test_with_stop_the_first_bad_file_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    names = office.build(tmp_path / "own")
    seen = []
    for _ in names:  # mend one after the other, as a user would
        try:
            raw = corpora.ingest(tmp_path, sources={})
            break
        except DataError as error:
            (name,) = re.findall(r"^own: (.+?): ", str(error))
            assert "quarantine" in str(error) and "ingest.own_on_error" in str(error)
            seen.append(file_of(name))
            (tmp_path / "own" / seen[-1]).unlink()
        assert not (tmp_path / "raw").exists()
        assert [p.name for p in tmp_path.iterdir() if p.name != ".raw.lock"] == ["own"]
    bad = {file_of(origin) for origin in office.NAMED}
    assert seen == sorted(seen) and set(seen) <= bad
    assert "boş.txt" in seen and "yedek.zip" in seen and "logo.txt" in seen
    left = Counter(file_of(line["origin"]) for line in corpora.quarantine(raw))
    assert set(left) == bad - set(seen), "what no one would call text is passed over, and named"


SCRIPT = """
import sys
from pathlib import Path
import corpora, test_office
folder = Path(sys.argv[1])
corpora.clean(test_office.ingest_office(folder), folder / "corpus")
"""


@pytest.mark.slow
def test_I_06_an_office_gives_the_same_bytes_under_every_locale(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    folders = {"c": plain, "tr": {"LC_ALL": "C.UTF-8"}}
    for name, settings in folders.items():
        office.build(tmp_path / name / "own")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / name)], cwd=corpora.PROJECT / "tests",
            env=os.environ | settings | {"PYTHONPATH": str(corpora.PROJECT)}, capture_output=True,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    office.build(tmp_path / "burada/own")
    corpora.clean(ingest_office(tmp_path / "burada"), tmp_path / "burada/corpus")
    made = [
        corpora.file_bytes(*(tmp_path / name / f for f in ("raw", "corpus", "corpus_report")))
        for name in (*folders, "burada")
    ]
    assert made[0].keys() == made[1].keys() == made[2].keys()
    for name in made[0]:
        assert made[0][name] == made[1][name] == made[2][name], name
