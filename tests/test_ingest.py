"""The stage `ingest`: licence gate, own text, conservation, and errors that say what to do."""

import dataclasses
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import artifacts
import office
import pytest
import yaml
from corpora import files_source
from corpora import ingest_params as make_params

from sifirdan import runs
from sifirdan.config import load_params, read_yaml
from sifirdan.corpus import records
from sifirdan.errors import ConfigError, DataError
from stages.ingest import Params, ingest, main

PROJECT = Path(__file__).parents[1]


def package(shop: Path, members: artifacts.Members, **changes: Any) -> dict[str, Any]:
    wheel = artifacts.wheel(shop, "paket", "1.0", members)
    return {
        "kind": "package",
        "requirement": "paket==1.0",
        "sha256": artifacts.sha256_of(wheel),
        "reader": "food_safety",
        "license": "CC-BY-4.0",
        "uses": ["pretraining"],
        "text_kind": "curated",
        "on_error": "stop",
    } | changes


def run(folder: Path, params: Params, raw: str = "raw") -> dict[str, Any]:
    return ingest(folder / raw, params, cache=folder / "cache", root=folder)


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
    metrics = run(tmp_path, params)
    manifest = runs.open_folder(tmp_path / "raw", "raw", made_by="ingest")
    assert list(manifest.counts) == ["own", "yemek"]
    assert manifest.counts["yemek"] | {"chars": 0} == {
        "documents": 8, "chars": 0, "bad_records": 0, "not_read": 0, "with_replacement": 0,
        "looks_misread": 0, "license": "CC-BY-4.0", "uses": ["pretraining"],
        "reader": "food_safety", "text_kind": "curated", "left_out": False,
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
        run(tmp_path / place, params)
    first, second = (tmp_path / place / "raw/manifest.json" for place in ("x", "y/z"))
    assert first.read_bytes() == second.read_bytes()


def test_a_licence_that_is_not_allowed_is_left_out(
    tmp_path: Path, shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = {"yemek": package(shop, artifacts.food(), license="GPL-3.0")}
    params = make_params(tmp_path / "own", sources=sources, allowed_licenses=["own"])
    (tmp_path / "own/a.txt").write_text("Merhaba dünya")
    metrics = run(tmp_path, params)
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
        run(tmp_path, params)
    assert not (tmp_path / "raw").exists()


def test_other_files_are_named_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = make_params(tmp_path / "own")
    for name in (".gitkeep", "kitap.odt", "resim.png", *(f"x{n:02d}" for n in range(11))):
        (tmp_path / "own" / name).touch()
    (tmp_path / "own/a.md").write_text("Merhaba dünya")
    (tmp_path / "own/resim.png").write_bytes(office.PNG)
    metrics = run(tmp_path, params)
    (line,) = [r.getMessage() for r in caplog.records if "not read" in r.getMessage()]
    assert ": kitap.odt, resim.png, x00, " in line and line.endswith("x07 and 3 more")
    assert metrics["sources"]["own"]["not_read"] == 13
    first = quarantine(tmp_path)[0]
    assert (first["origin"], first["counted_as"]) == ("kitap.odt", "not_read")
    assert first["reason"].startswith("its ending is none of")


def quarantine(folder: Path) -> list[dict[str, str]]:
    lines = (folder / "raw/quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_I_07_a_bad_record_stops_the_stage_and_leaves_nothing(tmp_path: Path) -> None:
    params = make_params(tmp_path / "own")
    (tmp_path / "own/a.jsonl").write_bytes(b'{"text": "bir"}\n{"text": "y')
    with pytest.raises(DataError, match=r"own: a.jsonl:2: not valid JSON") as error:
        run(tmp_path, params)
    assert "quarantine" in str(error.value)
    assert not (tmp_path / "raw").exists()
    (tmp_path / "own/a.jsonl").write_bytes("ş".encode("windows-1254"))
    with pytest.raises(DataError, match=r"own: a.jsonl:1: byte 0 \(0xfe\) is not utf-8"):
        run(tmp_path, params)


def test_I_07_quarantine_keeps_the_count_of_each_source(tmp_path: Path) -> None:
    (tmp_path / "metin").mkdir()
    (tmp_path / "metin/a.csv").write_bytes(b"no,text\n1,bir\n2,iki,uc\n3,d\xf6rt\n")
    lines = {"kind": "files", "paths": ["metin/*"], "format": "auto", "encoding": "utf-8"}
    lines |= {"text_column": "text", "xml_element": None, "license": "own", "attribution": None}
    lines |= {"uses": ["pretraining"], "text_kind": "web", "on_error": "quarantine"}
    params = make_params(tmp_path / "own", own_on_error="quarantine", sources={"tablo": lines})
    (tmp_path / "own/a.jsonl").write_bytes(b'{"text": "bir"}\n{"text": 7}\n\n{"text": "iki"}\n')
    (tmp_path / "own/b.txt").write_bytes(b"\xff")
    run(tmp_path, params)
    counts = runs.open_folder(tmp_path / "raw", "raw", made_by="ingest").counts
    assert (counts["own"]["documents"], counts["own"]["bad_records"]) == (2, 3)
    assert (counts["tablo"]["documents"], counts["tablo"]["bad_records"]) == (1, 2)
    assert counts["tablo"]["text_kind"] == "web" and counts["tablo"]["reader"] == "files"
    assert [(line["source"], line["origin"]) for line in quarantine(tmp_path)] == [
        ("own", "a.jsonl:2"), ("own", "a.jsonl:3"), ("own", "b.txt"),
        ("tablo", "metin/a.csv:3"), ("tablo", "metin/a.csv:4"),
    ]  # fmt: skip
    strict = {"tablo": lines | {"on_error": "stop"}}
    with pytest.raises(DataError, match=r"tablo: metin/a.csv:3: has 3 values") as error:
        run(tmp_path, make_params(tmp_path / "own2", sources=strict))
    assert "ingest.sources.tablo.on_error" in str(error.value)


def test_I_08_a_cut_shard_among_whole_ones_is_set_aside(tmp_path: Path) -> None:
    params = make_params(tmp_path / "own", own_on_error="quarantine")
    for number in range(5):
        row = records.document(
            records.Record(f"{number}", f"metin {number}", {}), source="s", license="own"
        )
        records.write_parquet(tmp_path / f"own/p{number}.parquet", [row])
    bad = tmp_path / "own/p3.parquet"
    bad.write_bytes(bad.read_bytes()[:-100])
    metrics = run(tmp_path, params)
    assert metrics["sources"]["own"]["documents"] == 4
    assert metrics["sources"]["own"]["bad_records"] == 1
    (line,) = quarantine(tmp_path)
    assert line["origin"] == "p3.parquet"
    assert f"({bad.stat().st_size} bytes)" in line["reason"]
    with pytest.raises(DataError, match=rf"own: p3.parquet: is not a whole .*{bad.stat().st_size}"):
        run(tmp_path, dataclasses.replace(params, own_on_error="stop"))


def test_without_anything_set_aside_there_is_no_quarantine(tmp_path: Path) -> None:
    params = make_params(tmp_path / "own", own_on_error="quarantine")
    (tmp_path / "own/a.txt").write_text("Merhaba dünya")
    run(tmp_path, params)
    assert not (tmp_path / "raw/quarantine.jsonl").exists()


def test_I_04_I_05_alarms_are_counted_and_name_the_first_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = make_params(tmp_path / "own")
    (tmp_path / "own/a.txt").write_text("i\ufffderi\ufffdin", encoding="utf-8")
    (tmp_path / "own/b.txt").write_text("aðaç ve yaþ", encoding="utf-8")
    metrics = run(tmp_path, params)
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
        "revision": None, "streaming": True, "text_column": "text", "meta_columns": [],
        "max_documents": None, "license": "own", "attribution": None, "uses": ["ood"], "text_kind": "web",
        "on_error": "stop",
    }  # fmt: skip
    params = make_params(tmp_path / "own", sources={"hazir": source})
    run(tmp_path, params)
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
    (tmp_path / "data/own/a.txt").unlink()
    (tmp_path / "metin").mkdir()
    (tmp_path / "metin/b.txt").write_text("Merhaba")
    content = read_yaml(copy / "params.yaml")
    content["ingest"]["sources"] = {"metin": files_source("metin/*.txt")}
    (copy / "params.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(ConfigError, match="metin/b.txt: not in this experiment's copy"):
        main()


def test_all_default_kinds_of_sources_go_through(tmp_path: Path, shop: Path) -> None:
    params = make_params(tmp_path / "own", sources=artifacts.build_all(shop))
    licenses = [source.license for source in params.sources.values()]
    params = dataclasses.replace(params, allowed_licenses=licenses)
    metrics = run(tmp_path, params)
    assert list(metrics["sources"]) == list(params.sources)
    assert all(source["documents"] for source in metrics["sources"].values())


@pytest.mark.parametrize(
    ("large_mb", "count", "limit_mb"),
    [(20, 150, 330), pytest.param(300, 2000, 2400, marks=pytest.mark.slow)],
)
def test_I_09_one_large_document_among_many_stays_in_bounded_memory(
    tmp_path: Path, large_mb: int, count: int, limit_mb: int
) -> None:
    (tmp_path / "own").mkdir()
    megabyte = ("Iğdır'da kayısı bahçeleri çiçek açtı. " * 30_000).encode()[: 1 << 20]
    megabyte = megabyte.decode("utf-8", "ignore").encode()
    with open(tmp_path / "own/a.jsonl", "wb") as file:
        for number in range(count + 1):
            file.write(b'{"text": "')
            for _ in range(large_mb if number == count // 2 else 1):
                file.write(megabyte)
            file.write(b'"}\n')
    script = """
import resource, sys
from pathlib import Path
from test_ingest import make_params, run
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, folder = peak(), Path(sys.argv[1])
params = make_params(folder / "own", max_document_bytes=10**9)
documents = run(folder, params)["documents"]
print(documents, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=PROJECT / "tests",
        env=os.environ | {"PYTHONPATH": str(PROJECT)}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    documents, peak = done.stdout.split()
    assert int(documents) == count + 1
    assert float(peak) < limit_mb, f"MB; the texts together have {count + large_mb} MB"
