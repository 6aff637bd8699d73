"""The stage `clean`: nothing is lost uncounted, splits never share a text, same bytes each time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sifirdan import runs, text
from sifirdan.config import load_params
from sifirdan.corpus import records
from sifirdan.corpus.records import PartWriter, Record, document
from sifirdan.errors import ConfigError, DataError
from stages.clean import SPLITS, Params, clean

PROJECT = Path(__file__).parents[1]
PARAMS = Params(min_chars=20, max_replacement_share=0.0, val_share=0.03, reject_sample=2)

Sources = dict[str, tuple[str, list[str], list[str]]]  # name: (reader, uses, texts)


def lines(count: int, word: str = "ağaç") -> list[str]:
    return [f"Bu {n} numaralı belgedir ve içinde {word} geçer." for n in range(count)]


def make_raw(folder: Path, sources: Sources) -> Path:
    with runs.new_folder(folder, kind="raw", inputs={}, params={}) as output:
        for name, (reader, uses, texts) in sources.items():
            with PartWriter(output.path / name) as writer:
                for n, line in enumerate(texts):
                    writer.add(document(Record(f"#{n}", line, {}), source=name, license="own"))
            output.counts[name] = {
                "documents": len(texts), "chars": sum(map(len, texts)), "license": "own",
                "uses": uses, "reader": reader,
            }  # fmt: skip
    return folder


def read_all(corpus: Path) -> dict[str, list[str]]:
    return {s: [d.text for d in records.read_folder(corpus / s)] for s in SPLITS}


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Path]:
    odd = [
        "", "kısa", "i\ufffderi\ufffdin ücretsiz olduğu bir yer", *lines(1),
        "BU 0 NUMARALI BELGEDİR VE İÇİNDE AĞAÇ GEÇER!",
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
    metrics = clean(raw, tmp_path / "corpus", PARAMS)
    ledger = json.loads((tmp_path / "corpus/ledger.json").read_text(encoding="utf-8"))
    assert ledger == metrics["sources"]
    for name, account in ledger.items():
        total = sum(account["out"].values()) + sum(account["rejected"].values())
        assert account["in"] == total == runs.read_manifest(raw).counts[name]["documents"]
    assert ledger["own"]["rejected"] == {
        "duplicate": 2, "empty": 1, "replacement_characters": 1, "too_short": 1
    }  # fmt: skip
    assert ledger["sohbet"]["rejected"] == {"not_for_pretraining": 2}
    texts = read_all(tmp_path / "corpus")
    for name, count in metrics["splits"].items():
        assert count["documents"] == len(texts[name])
        assert count["chars"] == sum(map(len, texts[name]))
        assert count["bytes"] == sum(len(line.encode()) for line in texts[name])
    assert (
        runs.open_folder(tmp_path / "corpus", "corpus", made_by="clean").counts == metrics["splits"]
    )


def test_repairs_follow_the_reader_and_are_counted(raw: Path, tmp_path: Path) -> None:
    metrics = clean(raw, tmp_path / "corpus", PARAMS)
    assert metrics["sources"]["sozluk"]["repairs"] == {
        "add_final_marks": 1, "close_up_punctuation": 1, "strip_controls": 1
    }  # fmt: skip
    everything = sum(read_all(tmp_path / "corpus").values(), [])
    assert "su (isim): Renksiz sıvı, duru." in everything


def test_out_of_domain_text_that_is_in_the_corpus_is_dropped(raw: Path, tmp_path: Path) -> None:
    metrics = clean(raw, tmp_path / "corpus", PARAMS)
    assert metrics["sources"]["sinav"]["rejected"] == {"duplicate": 2}
    assert read_all(tmp_path / "corpus")["ood"] == ["Başka bir alandan gelen bir söz."]


def test_no_text_nor_its_twin_is_in_two_splits(tmp_path: Path) -> None:
    texts = [t for line in lines(300) for t in (line, text.upper_tr(line), line.replace(" ", "  "))]
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], texts)})
    clean(raw, tmp_path / "corpus", PARAMS)
    keys = {s: set(map(text.dedup_key, t)) for s, t in read_all(tmp_path / "corpus").items()}
    assert sum(map(len, keys.values())) == len(set.union(*keys.values())) == 300


def test_a_smaller_val_keeps_train_and_test(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "full", PARAMS)
    part = Params(min_chars=20, max_replacement_share=0.0, val_share=0.01, reject_sample=2)
    metrics = clean(raw, tmp_path / "part", part)
    full, smaller = read_all(tmp_path / "full"), read_all(tmp_path / "part")
    assert full["train"] == smaller["train"] and full["test"] == smaller["test"]
    reserved = metrics["sources"]["own"]["rejected"]["reserved"]
    assert reserved == len(full["val"]) - len(smaller["val"]) > 0
    assert set(smaller["val"]) < set(full["val"])


def test_ids_and_provenance_survive(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "corpus", PARAMS)
    before = {d.id: d for name in ("own", "sozluk") for d in records.read_folder(raw / name)}
    for after in records.read_folder(tmp_path / "corpus/train"):
        origin = before[after.id]
        assert (after.source, after.origin, after.meta) == (
            origin.source, origin.origin, origin.meta
        )  # fmt: skip


def test_a_sample_of_rejects_is_kept(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "corpus", PARAMS)
    rows = (tmp_path / "corpus/rejected.jsonl").read_text(encoding="utf-8").splitlines()
    counts: dict[Any, int] = {}
    for row in map(json.loads, rows):
        counts[row["source"], row["reason"]] = counts.get((row["source"], row["reason"]), 0) + 1
    assert max(counts.values()) <= 2 and len(counts) == 6


def test_same_bytes_in_any_process_and_folder(raw: Path, tmp_path: Path) -> None:
    clean(raw, tmp_path / "a", PARAMS)
    script = (
        "import sys; from pathlib import Path; from stages.clean import *;"
        "clean(Path(sys.argv[1]), Path(sys.argv[2]), Params(20, 0.0, 0.03, 2))"
    )
    other = os.environ | {"PYTHONHASHSEED": "7", "LC_ALL": "C", "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", script, str(raw), str(tmp_path / "x/b")]
    subprocess.run(command, check=True, env=other, cwd=tmp_path)
    first, second = (tmp_path / f / "manifest.json" for f in ("a", "x/b"))
    assert first.read_bytes() == second.read_bytes()


def test_the_card_lets_datasets_load_the_splits(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    metrics = clean(raw, tmp_path / "corpus", PARAMS)
    loaded = datasets.load_dataset(str(tmp_path / "corpus"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == {
        name: count["documents"] for name, count in metrics["splits"].items()
    }
    card = (tmp_path / "corpus/README.md").read_text(encoding="utf-8")
    assert "Language Institute" in card and "close_up_punctuation" in card


def test_D_05_few_files_and_always_one_a_split(tmp_path: Path) -> None:
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], lines(300))})
    clean(raw, tmp_path / "corpus", PARAMS)
    for split in SPLITS:
        (path,) = (tmp_path / "corpus" / split).iterdir()
        assert pq.read_schema(path).equals(records.SCHEMA)
    assert "ood/" not in (tmp_path / "corpus/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("texts", [[], lines(5)])
def test_too_little_text_is_explained(tmp_path: Path, texts: list[str]) -> None:
    raw = make_raw(tmp_path / "raw", {"own": ("own_text", ["pretraining"], texts)})
    with pytest.raises(DataError, match=r"no document is left for '(train|val)'.*\n.*\n.*data/own"):
        clean(raw, tmp_path / "corpus", PARAMS)
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
    ],
)
def test_values_that_cannot_work_are_refused(key: str, value: Any) -> None:
    good = {"min_chars": 20, "max_replacement_share": 0.0, "val_share": 0.03, "reject_sample": 2}
    with pytest.raises(ConfigError, match=rf"clean\.{key} is "):
        Params(**{**good, key: value})
