"""The stage `ingest`: licence gate, own text, conservation, and errors that say what to do."""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import artifacts
import pytest

from sifirdan import runs
from sifirdan.config import build, load_params
from sifirdan.corpus import records
from sifirdan.errors import ConfigError, DataError
from stages.ingest import Params, ingest, main

PROJECT = Path(__file__).parents[1]


def make_params(own: Path, **changes: Any) -> Params:
    own.mkdir(parents=True, exist_ok=True)
    section = {
        "own_text": str(own),
        "own_license": "own",
        "own_encoding": "utf-8",
        "bad_records": "error",
        "allowed_licenses": ["own", "CC-BY-4.0", "GPL-3.0"],
        "sources": {},
    }
    params: Params = build(Params, section | changes, "ingest")
    return params


def package(shop: Path, members: artifacts.Members, **changes: Any) -> dict[str, Any]:
    wheel = artifacts.wheel(shop, "paket", "1.0", members)
    return {
        "kind": "package",
        "requirement": "paket==1.0",
        "sha256": artifacts.sha256_of(wheel),
        "reader": "food_safety",
        "license": "CC-BY-4.0",
        "uses": ["pretraining"],
    } | changes


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in artifacts.offline_pip(tmp_path / "shop").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "shop"


def test_the_params_in_git_are_accepted() -> None:
    assert "kenet" in load_params(PROJECT / "params.yaml", "ingest", Params).sources


def test_sources_and_own_text_become_documents(tmp_path: Path, shop: Path) -> None:
    params = make_params(tmp_path / "own", sources={"yemek": package(shop, artifacts.food())})
    (tmp_path / "own/a.txt").write_text("Ilık bir gün.", encoding="utf-8")
    (tmp_path / "own/b.jsonl").write_text('{"text": "İkinci", "tür": "söz"}\n', encoding="utf-8")
    metrics = ingest(tmp_path / "raw", params, cache=tmp_path / "cache")
    manifest = runs.open_folder(tmp_path / "raw", "raw", made_by="ingest")
    assert list(manifest.counts) == ["own", "yemek"]
    assert manifest.counts["yemek"] | {"chars": 0} == {
        "documents": 8, "chars": 0, "bad_records": 0, "with_replacement": 0, "looks_misread": 0,
        "license": "CC-BY-4.0", "uses": ["pretraining"], "reader": "food_safety", "left_out": False,
    }  # fmt: skip
    assert metrics["documents"] == 10 and metrics["sources"]["own"]["chars"] == 19
    first, second = records.read_folder(tmp_path / "raw/own")
    assert (first.source, first.license, first.origin) == ("own", "own", "a.txt")
    assert (second.text, second.origin, second.meta) == ("İkinci", "b.jsonl:1", {"tür": "söz"})
    food = list(records.read_folder(tmp_path / "raw/yemek"))
    assert len({d.id for d in food}) == 8
    assert all(d.license == "CC-BY-4.0" and d.origin.startswith("paket==1.0/") for d in food)


def test_same_text_gives_the_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    for place in ("x", "y/z"):
        params = make_params(tmp_path / place / "own")
        (tmp_path / place / "own/a.txt").write_text("Merhaba dünya")
        ingest(tmp_path / place / "raw", params, cache=tmp_path)
    first, second = (tmp_path / place / "raw/manifest.json" for place in ("x", "y/z"))
    assert first.read_bytes() == second.read_bytes()


def test_a_licence_that_is_not_allowed_is_left_out(
    tmp_path: Path, shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = {"yemek": package(shop, artifacts.food(), license="GPL-3.0")}
    params = make_params(tmp_path / "own", sources=sources, allowed_licenses=["own"])
    (tmp_path / "own/a.txt").write_text("Merhaba dünya")
    metrics = ingest(tmp_path / "raw", params, cache=tmp_path / "cache")
    assert "source=yemek left out: its licence GPL-3.0" in caplog.text
    assert metrics["left_out_sources"] == 1
    counts = runs.read_manifest(tmp_path / "raw").counts["yemek"]
    assert counts["left_out"] and counts["documents"] == 0
    assert not (tmp_path / "raw/yemek").exists()
    assert not (tmp_path / "cache").exists(), "nothing is fetched for it either"


@pytest.mark.parametrize("allowed", [["own"], []])
def test_no_text_at_all_is_an_error_that_names_the_folder(
    tmp_path: Path, shop: Path, allowed: list[str]
) -> None:
    sources = {"yemek": package(shop, artifacts.food())}
    params = make_params(tmp_path / "own", sources=sources, allowed_licenses=allowed)
    with pytest.raises(DataError, match=rf"no text at all.*{tmp_path}/own"):
        ingest(tmp_path / "raw", params, cache=tmp_path / "cache")
    assert not (tmp_path / "raw").exists()


def test_other_files_are_named_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = make_params(tmp_path / "own")
    for name in (".gitkeep", "kitap.pdf", "resim.png", *(f"x{n:02d}" for n in range(11))):
        (tmp_path / "own" / name).touch()
    (tmp_path / "own/a.md").write_text("Merhaba dünya")
    ingest(tmp_path / "raw", params, cache=tmp_path)
    (line,) = [r.getMessage() for r in caplog.records if "not read" in r.getMessage()]
    assert ": kitap.pdf, resim.png, x00, " in line and line.endswith("x07 and 3 more")


def test_I_07_a_bad_record_stops_the_stage_and_leaves_nothing(tmp_path: Path) -> None:
    params = make_params(tmp_path / "own")
    (tmp_path / "own/a.jsonl").write_bytes(b'{"text": "bir"}\n{"text": "y')
    with pytest.raises(DataError, match=r"own: a.jsonl:2: not valid JSON") as error:
        ingest(tmp_path / "raw", params, cache=tmp_path)
    assert "quarantine" in str(error.value)
    assert not (tmp_path / "raw").exists()
    (tmp_path / "own/a.jsonl").write_bytes("ş".encode("windows-1254"))
    with pytest.raises(DataError, match=r"own: a.jsonl:1: byte 0 \(0xfe\) is not utf-8"):
        ingest(tmp_path / "raw", params, cache=tmp_path)


def test_I_07_quarantine_keeps_the_count(tmp_path: Path) -> None:
    params = make_params(tmp_path / "own", bad_records="quarantine")
    (tmp_path / "own/a.jsonl").write_bytes(b'{"text": "bir"}\n{"text": 7}\n\n{"text": "iki"}\n')
    (tmp_path / "own/b.txt").write_bytes(b"\xff")
    ingest(tmp_path / "raw", params, cache=tmp_path)
    counts = runs.open_folder(tmp_path / "raw", "raw", made_by="ingest").counts["own"]
    assert (counts["documents"], counts["bad_records"]) == (2, 3)
    lines = (tmp_path / "raw/quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["origin"] for line in lines] == ["a.jsonl:2", "a.jsonl:3", "b.txt"]


def test_I_04_I_05_alarms_are_counted_and_name_the_first_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = make_params(tmp_path / "own")
    (tmp_path / "own/a.txt").write_text("i\ufffderi\ufffdin", encoding="utf-8")
    (tmp_path / "own/b.txt").write_text("aðaç ve yaþ", encoding="utf-8")
    metrics = ingest(tmp_path / "raw", params, cache=tmp_path)
    assert metrics["sources"]["own"]["with_replacement"] == 1
    assert metrics["sources"]["own"]["looks_misread"] == 1
    assert "with_replacement: first in a.txt" in caplog.text
    assert "looks_misread: first in b.txt" in caplog.text


@pytest.mark.parametrize("name", ["own", "a/b", "a b", "ığdır", ""])
def test_source_names_are_folder_names(tmp_path: Path, shop: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a name of letters, digits and _"):
        make_params(tmp_path / "own", sources={name: package(shop, artifacts.food())})


def test_a_wrong_value_in_a_source_is_named(tmp_path: Path, shop: Path) -> None:
    with pytest.raises(ConfigError, match=r"ingest.sources.yemek.reader is 'x'"):
        make_params(tmp_path / "o", sources={"yemek": package(shop, artifacts.food(), reader="x")})


def test_a_data_set_is_a_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.jsonl").write_text('{"text": "Merhaba dünya"}\n', encoding="utf-8")
    source = {
        "kind": "huggingface", "path": str(tmp_path / "set"), "config": None, "split": "train",
        "revision": None, "text_column": "text", "max_documents": None, "license": "own",
        "uses": ["ood"],
    }  # fmt: skip
    params = make_params(tmp_path / "own", sources={"hazir": source})
    ingest(tmp_path / "raw", params, cache=tmp_path)
    assert runs.read_manifest(tmp_path / "raw").counts["hazir"]["reader"] == "huggingface"
    assert "datasets" in runs.read_manifest(tmp_path / "raw").versions
    assert "source=hazir documents=1 chars=13" in caplog.text


def test_an_experiment_without_the_own_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / ".dvc/tmp/exps/standard/tmp1"
    for root in (tmp_path, copy):
        (root / "data/own").mkdir(parents=True)
    (tmp_path / "data/own/a.txt").write_text("Merhaba")
    (copy / "params.yaml").write_bytes((PROJECT / "params.yaml").read_bytes())
    monkeypatch.chdir(copy)
    with pytest.raises(ConfigError, match="data/own/a.txt: not in this experiment's copy"):
        main()


def test_all_default_kinds_of_sources_go_through(tmp_path: Path, shop: Path) -> None:
    params = make_params(tmp_path / "own", sources=artifacts.build_all(shop))
    licenses = [source.license for source in params.sources.values()]
    params = dataclasses.replace(params, allowed_licenses=licenses)
    metrics = ingest(tmp_path / "raw", params, cache=tmp_path / "cache")
    assert list(metrics["sources"]) == list(params.sources)
    assert all(source["documents"] for source in metrics["sources"].values())
