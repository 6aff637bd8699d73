"""Fetching pinned packages and streaming data sets; pip and `datasets` run for real, offline."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import artifacts
import pytest

from sifirdan.config import build
from sifirdan.corpus import records, sources
from sifirdan.corpus.records import BadRecord, Record, document
from sifirdan.corpus.sources import HuggingFaceSource, PackageSource
from sifirdan.errors import ConfigError, DataError


@pytest.fixture
def food(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageSource:
    """A source whose package lies in a folder that pip is pointed at."""
    shop = tmp_path / "shop"
    for name, value in artifacts.offline_pip(shop).items():
        monkeypatch.setenv(name, value)
    wheel = artifacts.wheel(shop, "yemek-verisi", "1.0", artifacts.food())
    return PackageSource(
        kind="package",
        requirement="yemek-verisi==1.0",
        sha256=artifacts.sha256_of(wheel),
        reader="food_safety",
        license="own",
        uses=["pretraining"],
    )


def hugging_face(path: Path | str, **changes: Any) -> HuggingFaceSource:
    return HuggingFaceSource(
        **{
            "kind": "huggingface",
            "path": str(path),
            "config": None,
            "split": "train",
            "revision": None,
            "text_column": "text",
            "max_documents": None,
            "license": "own",
            "uses": ["pretraining"],
            **changes,
        }
    )


def test_a_package_is_fetched_once_and_read(
    food: PackageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(sources.read(food, tmp_path / "cache"))
    assert len(found) == 8
    assert isinstance(found[0], Record)
    assert found[0].origin == "yemek-verisi==1.0/food_safety_data/data/faq.json#0"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert list(sources.read(food, tmp_path / "cache")) == found
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [food.sha256[:16]]


def test_a_damaged_cache_is_fetched_anew(food: PackageSource, tmp_path: Path) -> None:
    path = sources.fetch(food, tmp_path / "cache")
    path.write_bytes(path.read_bytes()[:-1])
    assert artifacts.sha256_of(sources.fetch(food, tmp_path / "cache")) == food.sha256


def test_a_wrong_hash_is_refused(food: PackageSource, tmp_path: Path) -> None:
    wrong = dataclasses.replace(food, sha256="0" * 64)
    with pytest.raises(DataError, match=f"has the sha256 {food.sha256}") as error:
        sources.fetch(wrong, tmp_path / "cache")
    assert "0" * 64 in str(error.value)
    assert not any((tmp_path / "cache" / ("0" * 16)).iterdir())


def test_no_network_is_said_plainly(
    food: PackageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DataError, match=r"yemek-verisi==1.0: the package index cannot be reached"):
        sources.fetch(food, tmp_path / "cache")


def test_an_unknown_version_is_said_plainly(food: PackageSource, tmp_path: Path) -> None:
    other = dataclasses.replace(food, requirement="yemek-verisi==2.0", sha256="1" * 64)
    with pytest.raises(DataError, match=r"yemek-verisi==2.0: pip could not fetch it: ERROR"):
        sources.fetch(other, tmp_path / "cache")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("requirement", "yemek-verisi>=1.0"),
        ("requirement", "a==1 --index-url=http://x"),
        ("requirement", "-r x==1"),
        ("sha256", "ABC"),
        ("reader", "hepsi"),
        ("uses", []),
        ("uses", ["ood", "pretraining"]),
    ],
)
def test_values_that_cannot_work_are_refused(food: PackageSource, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"ingest\.sources\.yemek\.{key} is "):
        dataclasses.replace(food, **{key: value}).check("ingest.sources.yemek")


@pytest.mark.parametrize(("key", "value"), [("max_documents", 0), ("uses", [])])
def test_data_set_values_that_cannot_work_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"x\.{key} is "):
        hugging_face("a", **{key: value}).check("x")


def test_kinds_are_told_apart_in_params() -> None:
    with pytest.raises(ConfigError, match=r"sources\.a\.kind is 'url'"):
        build(
            dict[str, sources.PackageSource | HuggingFaceSource], {"a": {"kind": "url"}}, "sources"
        )


def test_a_local_data_set_is_streamed(tmp_path: Path) -> None:
    folder = tmp_path / "veri"
    folder.mkdir()
    rows = [{"metin": "Işık \u2028 var", "x": 1}, {"metin": None, "x": 2}, {"metin": "son", "x": 3}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = hugging_face(folder, text_column="metin")
    assert list(sources.read(source, tmp_path)) == [
        Record(f"{folder}/train#0", "Işık \u2028 var", {}),
        BadRecord(f"{folder}/train#1", "its text is NoneType, not text"),
        Record(f"{folder}/train#2", "son", {}),
    ]
    first = hugging_face(folder, text_column="metin", max_documents=1)
    assert len(list(sources.read(first, tmp_path))) == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"metin": "x", "no": 1}\n')
    with pytest.raises(DataError, match=r"has no column 'text'\n.*one of metin, no"):
        list(sources.read(hugging_face(tmp_path), tmp_path))


def test_an_unknown_split_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(DataError, match=r"the data set cannot be read: .*validation"):
        list(sources.read(hugging_face(tmp_path, split="validation"), tmp_path))


def test_I_08_a_cut_parquet_file_is_named(tmp_path: Path) -> None:
    for n in range(5):
        row = document(Record(f"{n}", "merhaba", {}), source="s", license="own")
        records.write_parquet(tmp_path / f"p{n}.parquet", [row])
    assert len(list(sources.read(hugging_face(tmp_path), tmp_path))) == 5
    bad = tmp_path / "p3.parquet"
    bad.write_bytes(bad.read_bytes()[:-100])
    with pytest.raises(
        DataError, match=rf"p3.parquet: is not a whole .*{bad.stat().st_size} bytes"
    ):
        list(sources.read(hugging_face(tmp_path), tmp_path))


def test_a_hub_name_needs_a_revision(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kim/veri: there is no such folder, and no revision"):
        list(sources.read(hugging_face("kim/veri"), tmp_path))


def test_a_hub_that_cannot_be_reached_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_DATASETS_CACHE", os.fspath(tmp_path))
    with pytest.raises(DataError, match=r"kim/veri@main: the data set cannot be read"):
        list(sources.read(hugging_face("kim/veri", revision="main"), tmp_path))
    assert "'main' is not a commit" in caplog.text
