"""The stage `clean`: nothing is lost uncounted, splits never share a text, same bytes each time."""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpora
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import CLEAN, stored

from sifirdan import runs, text
from sifirdan.commands import project
from sifirdan.config import load_params
from sifirdan.corpus import card, ledger_file, records
from sifirdan.corpus.card import read_card
from sifirdan.corpus.conservation import law_lines
from sifirdan.corpus.ledger_file import SPLITS
from sifirdan.corpus.records import Document, PartWriter, Record, document
from sifirdan.errors import ConfigError, DataError
from stages.clean import Params

PROJECT = Path(__file__).parents[1]

Sources = dict[str, tuple[str, list[str], list[str]]]  # name: (reader, uses, texts)


def lines(count: int) -> list[str]:
    return [f"Bu {n} numaralı belgedir ve içinde {n}. ağaç geçer." for n in range(count)]


def make_raw(folder: Path, sources: Sources, left_out: Sequence[str] = ()) -> Path:
    with runs.new_folder(folder, kind="raw", inputs={}, params={}) as output:
        for name, (reader, uses, texts) in sources.items():
            with PartWriter(output.path / name) as writer:
                for n, line in enumerate(texts):
                    writer.add(document(Record(f"#{n}", line, {}), source=name, license="own"))
            output.counts[name] = {
                "documents": len(texts), "chars": sum(map(len, texts)), "license": "own",
                "uses": uses, "reader": reader, "text_kind": "curated", "bad_records": 0, "not_read": 0, "left_out": name in left_out,
            }  # fmt: skip
    return folder


def read_all(corpus: Path) -> dict[str, list[str]]:
    return {split: [d.text for d in found] for split, found in stored(corpus).items()}


def clean(raw: Path, corpus: Path, params: Params = CLEAN) -> dict[str, Any]:
    return corpora.clean(raw, corpus, params)


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Path]:
    odd = [
        "", "kısa", "i\ufffderi\ufffdin ücretsiz olduğu bir yer", *lines(1),
        "BU 0 NUMARALI BELGEDİR VE İÇİNDE 0. AĞAÇ GEÇER!",
    ]  # fmt: skip
    yield make_raw(
        tmp_path / "raw",
        {
            "sinav": ("treebank_web", ["ood"], [*lines(2), "Başka bir alandan gelen bir söz."]),
            "own": ("own_text", ["pretraining"], lines(400) + odd),
            "sozluk": ("kenet", ["pretraining", "chat"], ["su (isim): Renksiz sıvı \x94 , duru"]),
            "sohbet": ("chatterbot", ["chat"], ["Merhaba\nMerhaba, nasılsın bugün?"] * 2),
        },
    )


def test_the_params_in_git_are_accepted() -> None:
    assert load_params(PROJECT / "params.yaml", "clean", Params).val_share <= 0.03


def test_I_10_documents_in_are_documents_out_and_rejects(raw: Path, tmp_path: Path) -> None:
    metrics = clean(raw, tmp_path / "corpus")
    accounts = ledger_file.read_summary(tmp_path / "corpus")
    assert accounts == {
        n: {k: v for k, v in found.items() if k != "personal"}
        for n, found in metrics["sources"].items()
    }
    for name, account in accounts.items():
        total = sum(sum(account[part].values()) for part in ("out", "rejected", "duplicates"))
        assert account["in"] == total == runs.read_manifest(raw).counts[name]["documents"]
    assert accounts["own"]["rejected"] == {
        "empty": 1, "replacement_characters": 1, "too_short": 1
    }  # fmt: skip
    assert accounts["own"]["duplicates"] == {"duplicate": 2}
    assert accounts["sohbet"]["rejected"] == {"not_for_pretraining": 2}
    texts = read_all(tmp_path / "corpus")
    for name, count in metrics["splits"].items():
        assert count["documents"] == len(texts[name])
        assert count["chars"] == sum(map(len, texts[name]))
        assert count["bytes"] == sum(len(line.encode()) for line in texts[name])
    assert (
        runs.open_folder(tmp_path / "corpus", "corpus", made_by="clean").counts == metrics["splits"]
    )


def drop_a_document(corpus: Path) -> None:
    change_part(corpus / "train/part-00000.parquet", lambda rows: rows[1:])


def write_a_document_twice(corpus: Path) -> None:
    change_part(corpus / "train/part-00000.parquet", lambda rows: [*rows, rows[0]])


def cut_a_text(corpus: Path) -> None:
    change_part(
        corpus / "val/part-00000.parquet",
        lambda rows: [replace(rows[0], text=rows[0].text[:-1]), *rows[1:]],
    )


def put_a_document_for_another(corpus: Path) -> None:
    change_part(
        corpus / "test/part-00000.parquet",
        lambda rows: [replace(rows[0], id="0" * 32), *rows[1:]],
    )


def say_another_number(corpus: Path) -> None:
    summary = ledger_file.read_summary(corpus)
    summary["own"]["in"] += 1
    runs.write_json(corpus / ledger_file.SUMMARY_FILE, summary)


def say_another_reason(corpus: Path) -> None:
    summary = ledger_file.read_summary(corpus)
    rejected = summary["own"]["rejected"]
    rejected["too_short"], rejected["empty"] = 0, rejected["empty"] + rejected["too_short"]
    runs.write_json(corpus / ledger_file.SUMMARY_FILE, summary)


def lose_a_row(corpus: Path) -> None:
    table = pq.read_table(corpus / ledger_file.LEDGER_FILE)
    pq.write_table(table.slice(1), corpus / ledger_file.LEDGER_FILE)


def double_a_row(corpus: Path) -> None:
    table = pq.read_table(corpus / ledger_file.LEDGER_FILE)
    rows = pa.concat_tables([table.slice(1), table.slice(1, 1)])
    pq.write_table(rows, corpus / ledger_file.LEDGER_FILE)


def change_part(path: Path, change: Callable[[list[Document]], list[Document]]) -> None:
    records.write_parquet(path, change(list(records.read_parquet(path))))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (drop_a_document, "train holds"),
        (write_a_document_twice, "train holds"),
        (cut_a_text, "val holds"),
        (put_a_document_for_another, "other ids"),
        (say_another_number, "documents came in, but"),
        (say_another_reason, "does not say what"),
        (lose_a_row, "documents came in, but"),
        (double_a_row, "twice"),
    ],
)
def test_I_10_verify_finds_a_broken_law(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None], said: str,
) -> None:  # fmt: skip
    corpus = tmp_path / "corpus"
    clean(raw, corpus)
    spoil(corpus)
    manifest = json.loads((corpus / runs.MANIFEST).read_text(encoding="utf-8"))
    manifest["files"] = runs._describe_files(corpus)  # as if the stage itself had gone wrong
    del manifest["files"][runs.MANIFEST]
    runs.write_json(corpus / runs.MANIFEST, manifest)
    assert project.verify(argparse.Namespace(paths=[corpus], cache=False)) == 1
    shown = capsys.readouterr().out
    assert "own" in shown or "ledger" in shown
    assert said in shown


def test_repairs_follow_the_reader_and_are_counted(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "corpus")
    steps = card.read_card(tmp_path / "corpus")["steps"]
    mended = {s["name"]: s["places"]["sozluk"] for s in steps if "sozluk" in s["places"]}
    assert mended == {"add_final_marks": 1, "close_up_punctuation": 1, "strip_controls": 1}
    everything = sum(read_all(tmp_path / "corpus").values(), [])
    assert "su (isim): Renksiz sıvı, duru." in everything


def test_out_of_domain_text_that_is_in_the_corpus_is_dropped(raw: Path, tmp_path: Path) -> None:
    metrics = clean(raw, tmp_path / "corpus")
    assert metrics["sources"]["sinav"]["duplicates"] == {"duplicate": 2}
    assert read_all(tmp_path / "corpus")["ood"] == ["Başka bir alandan gelen bir söz."]


def test_no_text_nor_its_twin_is_in_two_splits(tmp_path: Path) -> None:
    texts = [t for line in lines(300) for t in (line, text.upper_tr(line), line.replace(" ", "  "))]
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], texts)})
    with pytest.raises(DataError, match=r"600 of 900 documents .*\n.*#0 \(duplicate of own: #2\)"):
        clean(raw, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()
    clean(raw, tmp_path / "corpus", replace(CLEAN, max_duplicate_share=0.7))
    assert split_keys(tmp_path / "corpus") == 300


def split_keys(corpus: Path) -> int:
    """The number of different texts in a corpus, none of which is in two splits."""
    keys = [set(map(text.dedup_key, texts)) for texts in read_all(corpus).values()]
    together = set.union(*keys)
    assert sum(map(len, keys)) == len(together)
    return len(together)


@pytest.mark.parametrize("seed", range(4))
def test_texts_that_lose_lines_or_sentences_are_in_one_split(tmp_path: Path, seed: int) -> None:
    """Documents put together from the same parts, so that parts go from many of them."""
    rng = random.Random(seed)
    parts = [corpora.sentence(rng, rng.choice((2, 3, 4, 6, 9, 14, 20))) for _ in range(300)]
    parts += [f"{part[:-1]} (isim): {corpora.sentence(rng)}" for part in parts[:40]]
    documents = [
        rng.choice((" ", "\n")).join(rng.choices(parts, k=rng.randint(1, 4))) for _ in range(900)
    ]
    raw = corpora.make_raw(tmp_path, {"a": documents[:600], "b": documents[600:]})
    clean(raw, tmp_path / "corpus", replace(CLEAN, max_duplicate_share=1.0))
    assert split_keys(tmp_path / "corpus") > 100


def test_texts_that_lose_their_last_line_are_no_twins_in_two_splits(tmp_path: Path) -> None:
    short, rng = "Kısa ama yeterli bir söz.", random.Random(1)
    last: dict[str, str] = {}  # by split: a line with which the text would fall there
    while len(last) < 3:
        line = corpora.sentence(rng)
        last.setdefault(records.split_of(text.dedup_key(f"{short}\n{line}"), 0.03), line)
    documents = ["\n".join(last.values()), *(f"{short}\n{line}" for line in last.values())]
    raw = corpora.make_raw(tmp_path, {"a": [*documents, *corpora.texts(400)]})
    clean(raw, tmp_path / "corpus")
    assert short in corpora.all_texts(tmp_path / "corpus")
    split_keys(tmp_path / "corpus")


def test_a_smaller_val_keeps_train_and_test(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "full")
    metrics = clean(raw, tmp_path / "part", replace(CLEAN, val_share=0.01))
    full, smaller = read_all(tmp_path / "full"), read_all(tmp_path / "part")
    assert full["train"] == smaller["train"] and full["test"] == smaller["test"]
    reserved = metrics["sources"]["own"]["rejected"]["reserved"]
    assert reserved == len(full["val"]) - len(smaller["val"]) > 0
    assert set(smaller["val"]) < set(full["val"])


def test_ids_and_provenance_survive(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "corpus")
    before = {d.id: d for name in ("own", "sozluk") for d in records.read_folder(raw / name)}
    for after in records.read_folder(tmp_path / "corpus/train"):
        origin = before[after.id]
        assert (after.source, after.origin, after.meta) == (
            origin.source, origin.origin, origin.meta
        )  # fmt: skip


def test_a_sample_of_rejects_is_kept(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "corpus")
    rows = (tmp_path / "corpus/rejected.jsonl").read_text(encoding="utf-8").splitlines()
    counts: dict[str, int] = {}
    for row in map(json.loads, rows):
        counts[row["reason"]] = counts.get(row["reason"], 0) + 1
    assert counts == {
        "duplicate": 2, "empty": 1, "not_for_pretraining": 2, "replacement_characters": 1,
        "too_short": 1,
    }  # fmt: skip
    page = (tmp_path / "corpus_report/report.html").read_text(encoding="utf-8")
    assert "Merhaba, nasılsın bugün?" in page


def test_every_reason_belongs_to_one_step_of_the_card(raw: Path, tmp_path: Path) -> None:
    metrics = clean(raw, tmp_path / "corpus")
    steps = card.read_card(tmp_path / "corpus")["steps"]
    named = [reason for step in steps for reason in step["reasons"]]
    assert len(named) == len(set(named))
    found = {
        reason
        for account in metrics["sources"].values()
        for part in ("rejected", "duplicates")
        for reason in account[part]
    }
    assert found <= set(named)


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from stages.clean import *
params = replace(load_params(Path(sys.argv[1]), "clean", Params), reject_sample=2)
corpus = Path(sys.argv[3])
clean(Path(sys.argv[2]), corpus, corpus.with_name(corpus.name + "_report"), params, 1)
"""


def test_I_06_same_bytes_in_any_process_folder_and_locale(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "a/corpus")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    other = os.environ | plain | {"PYTHONHASHSEED": "7", "PYTHONPATH": str(PROJECT)}
    preset = str(PROJECT / "presets/tiny.yaml")
    command = [sys.executable, "-c", SCRIPT, preset, str(raw), str(tmp_path / "x/b/corpus")]
    subprocess.run(command, check=True, env=other, cwd=tmp_path)
    first, second = (
        corpora.file_bytes(tmp_path / f / "corpus", tmp_path / f / "corpus_report")
        for f in ("a", "x/b")
    )
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_the_card_lets_datasets_load_the_splits(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    metrics = clean(raw, tmp_path / "corpus")
    loaded = datasets.load_dataset(str(tmp_path / "corpus"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == {
        name: count["documents"] for name, count in metrics["splits"].items()
    }
    page = (tmp_path / "corpus" / card.PAGE_FILE).read_text(encoding="utf-8")
    assert "Language Institute" in page and "close_up_punctuation" in page


def test_D_05_few_files_and_always_one_a_split(tmp_path: Path) -> None:
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], lines(300))})
    clean(raw, tmp_path / "corpus")
    for split in SPLITS:
        (path,) = (tmp_path / "corpus" / split).iterdir()
        assert pq.read_schema(path).equals(records.SCHEMA)
    assert "ood/" not in (tmp_path / "corpus/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("duplicates", "bands", 1_000_000), ("duplicates", "rows", 2**63),
        ("duplicates", "shingle_words", 10**30), ("duplicates", "containment_min_shared", 0),
        ("contamination", "words", 10**6), ("contamination", "short_words", 0),
    ],
)  # fmt: skip
def test_a_number_that_no_memory_could_hold_is_refused_by_name(
    section: str, key: str, value: int
) -> None:
    changed = replace(getattr(CLEAN, section), **{key: value})
    with pytest.raises(ConfigError, match=rf"clean\.{section}\.{key} is {value}"):
        replace(CLEAN, **{section: changed})


def test_a_rule_that_takes_everything_is_named(tmp_path: Path) -> None:
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], lines(300))})
    with pytest.raises(DataError, match=r"turned away \(too_short 300\): loosen that rule"):
        clean(raw, tmp_path / "corpus", replace(CLEAN, min_chars=10_000))


def test_a_source_that_was_left_out_is_said_to_be(tmp_path: Path) -> None:
    raw = make_raw(
        tmp_path / "raw",
        {"own": ("own_text", ["pretraining"], lines(300)), "yasak": ("files", ["pretraining"], [])},
        left_out=["yasak"],
    )
    clean(raw, tmp_path / "corpus")
    page = (tmp_path / "corpus/README.md").read_text(encoding="utf-8")
    assert "| yasak | own | pretraining | all: licence not allowed | 0 |" in page
    lines_told = law_lines(read_card(tmp_path / "corpus")["sources"])
    assert "left out: own is not in ingest.allowed_licenses" in lines_told[1]


def test_masked_places_are_counted_by_source_and_kind(tmp_path: Path) -> None:
    texts = [*lines(300), "Bize ali@ornek.com ya da 0532 123 45 67 ile ulaşın, bekliyoruz."]
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], texts)})
    metrics = clean(raw, tmp_path / "corpus")
    assert metrics["sources"]["own"]["personal"] == {"email": 1, "phone": 1}


@pytest.mark.parametrize("texts", [[], lines(5)])
def test_too_little_text_is_explained(tmp_path: Path, texts: list[str]) -> None:
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], texts)})
    with pytest.raises(DataError, match=r"no document is left for '(train|val)'.*\n.*\n.*data/own"):
        clean(raw, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min_chars", 0),
        ("max_replacement_share", 1.5),
        ("max_replacement_share", -0.1),
        ("val_share", 0.0),
        ("val_share", 0.04),
        ("reject_sample", -1),
        ("max_duplicate_share", 1.1),
        ("min_clean_share", -0.1),
    ],
)
def test_values_that_cannot_work_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"clean\.{key} is "):
        replace(CLEAN, **{key: value})
