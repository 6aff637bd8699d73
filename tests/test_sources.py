"""Fetching packages and files of the web, streaming data sets; pip, a web server on loopback and
`datasets` run for real, offline."""

import bz2
import dataclasses
import gzip
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import artifacts
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sifirdan.config import build
from sifirdan.corpus import records, sources
from sifirdan.corpus.files import Limits, NotRead
from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.records import BadRecord, Record, document
from sifirdan.corpus.source_kinds import (
    FilesSource,
    HuggingFaceSource,
    MediaWikiSource,
    PackageSource,
    Source,
    UrlFile,
    UrlSource,
)
from sifirdan.errors import ConfigError, DataError

LIMITS = Limits(max_document_bytes=10**8, max_unpacked_bytes=10**9, max_members=1000)


def read(source: Source, folder: Path) -> list[Record | BadRecord | NotRead]:
    return list(sources.read(source, cache=folder / "cache", root=folder, limits=LIMITS))


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
        text_kind="curated",
        on_error="stop",
    )


def hugging_face(path: Path | str, **changes: Any) -> HuggingFaceSource:
    return HuggingFaceSource(
        **{
            "kind": "huggingface",
            "path": str(path),
            "config": None,
            "split": "train",
            "revision": None,
            "streaming": True,
            "text_column": "text",
            "meta_columns": [],
            "max_documents": None,
            "license": "own",
            "attribution": None,
            "uses": ["pretraining"],
            "text_kind": "web",
            "on_error": "stop",
            **changes,
        }
    )


def test_a_package_is_fetched_once_and_read(
    food: PackageSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read(food, tmp_path)
    assert len(found) == 8
    assert isinstance(found[0], Record)
    assert found[0].origin == "yemek-verisi==1.0/food_safety_data/data/faq.json#0"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))
    assert read(food, tmp_path) == found
    assert [p.name for p in (tmp_path / "cache/packages").iterdir()] == [food.sha256[:16]]


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
    with pytest.raises(ConfigError, match=r"sources\.a\.kind is 'web'"):
        build(dict[str, Source], {"a": {"kind": "web"}}, "sources")
    for odd in ([], {}, 3, None):
        with pytest.raises(ConfigError, match=r"sources\.a\.kind is"):
            build(dict[str, Source], {"a": {"kind": odd}}, "sources")
    with pytest.raises(ConfigError, match=r"sources\.a\.max_bytes is missing, and so are format"):
        build(dict[str, Source], {"a": {"kind": "url", "files": []}}, "sources")


def test_a_local_data_set_is_streamed(tmp_path: Path) -> None:
    folder = tmp_path / "veri"
    folder.mkdir()
    rows = [{"metin": "Işık \u2028 var", "x": 1}, {"metin": None, "x": 2}, {"metin": "son", "x": 3}]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = hugging_face(folder, text_column="metin")
    assert read(source, tmp_path) == [
        Record(f"{folder}/train#0", "Işık \u2028 var", {}),
        BadRecord(f"{folder}/train#1", "its text is NoneType, not text"),
        Record(f"{folder}/train#2", "son", {}),
    ]
    first = hugging_face(folder, text_column="metin", max_documents=1)
    assert len(read(first, tmp_path)) == 1


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("num_files", [1, 3, 7])
def test_I_13_each_document_comes_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming: bool, num_files: int
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    folder = tmp_path / "veri"
    folder.mkdir()
    numbers = list(range(10))
    for part in range(num_files):
        lines = [json.dumps({"text": f"belge {n}", "no": n}) for n in numbers[part::num_files]]
        (folder / f"{part}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = hugging_face(folder, streaming=streaming, meta_columns=["no"])
    found = read(source, tmp_path)
    order = [n for part in range(num_files) for n in numbers[part::num_files]]
    assert [item.text for item in found if isinstance(item, Record)] == [
        f"belge {n}" for n in order
    ]
    assert [item.meta for item in found if isinstance(item, Record)] == [{"no": n} for n in order]
    assert read(source, tmp_path) == found
    assert read(dataclasses.replace(source, max_documents=4), tmp_path) == found[:4]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"metin": "x", "no": 1}\n')
    with pytest.raises(DataError, match=r"has no column 'text'\n.*one of metin, no"):
        read(hugging_face(tmp_path), tmp_path)
    with pytest.raises(DataError, match=r"has no column 'url'(.|\n)*change meta_columns"):
        read(hugging_face(tmp_path, text_column="metin", meta_columns=["url"]), tmp_path)


def test_an_unknown_split_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(DataError, match=r"the data set cannot be read: .*validation"):
        read(hugging_face(tmp_path, split="validation"), tmp_path)


def test_I_08_a_cut_parquet_file_is_named(tmp_path: Path) -> None:
    for n in range(5):
        row = document(Record(f"{n}", "merhaba", {}), source="s", license="own")
        records.write_parquet(tmp_path / f"p{n}.parquet", [row])
    assert len(read(hugging_face(tmp_path), tmp_path)) == 5
    bad = tmp_path / "p3.parquet"
    bad.write_bytes(bad.read_bytes()[:-100])
    with pytest.raises(
        DataError, match=rf"p3.parquet: is not a whole .*{bad.stat().st_size} bytes"
    ):
        read(hugging_face(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "values", [pa.array([2**62], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "Yok/Yer"))]
)
def test_a_data_set_with_a_value_that_python_cannot_hold_is_named(
    tmp_path: Path, values: pa.Array
) -> None:
    pq.write_table(pa.table({"text": ["bir"], "gün": values}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="the data set cannot be read: "):
        read(hugging_face(tmp_path), tmp_path)


def test_a_hub_name_needs_a_revision(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kim/veri: there is no such folder, and no revision"):
        read(hugging_face("kim/veri"), tmp_path)


def test_a_hub_that_cannot_be_reached_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_DATASETS_CACHE", os.fspath(tmp_path))
    with pytest.raises(DataError, match=r"kim/veri@main: the data set cannot be read"):
        read(hugging_face("kim/veri", revision="main"), tmp_path)
    assert "'main' is not a commit" in caplog.text


# Files and the web.


def files_source(*paths: str, **changes: Any) -> FilesSource:
    keys: dict[str, Any] = {
        "kind": "files", "paths": list(paths), "format": "auto", "encoding": "utf-8",
        "text_column": "text", "xml_element": None, "license": "own", "attribution": None,
        "uses": ["pretraining"], "text_kind": "curated", "on_error": "stop",
    }  # fmt: skip
    return FilesSource(**(keys | changes))


def url_source(files: list[UrlFile], **changes: Any) -> UrlSource:
    keys = dataclasses.asdict(files_source())
    del keys["paths"]
    return UrlSource(**(keys | {"kind": "url", "files": files, "max_bytes": 10**6} | changes))


def dump_source(path: str, **changes: Any) -> MediaWikiSource:
    keys: dict[str, Any] = {
        "kind": "mediawiki", "path": path, "sha256": None, "max_bytes": 10**6, "license": "own",
        "attribution": None, "uses": ["pretraining"], "text_kind": "curated", "on_error": "stop",
    }  # fmt: skip
    return MediaWikiSource(**(keys | changes))


DUMP = """<mediawiki><page><title>Ankara</title><ns>0</ns><id>3</id><revision><id>1</id>
<text>'''Ankara''' [[Türkiye]]'nin başkentidir.</text></revision></page></mediawiki>"""


def test_files_of_a_project_are_read_with_their_settings(tmp_path: Path) -> None:
    (tmp_path / "eski").mkdir()
    (tmp_path / "eski/a.txt").write_bytes("ığdır".encode("windows-1254"))
    (tmp_path / "eski/b.csv").write_bytes("gövde;x\nşiir;1\n".encode("windows-1254"))
    (tmp_path / "eski/c.xyz").write_bytes(b"?")
    source = files_source("eski/*", encoding="windows-1254", text_column="gövde")
    first, second, other = read(source, tmp_path)
    assert first == Record("eski/a.txt", "ığdır", {})
    assert second == Record("eski/b.csv:2", "şiir", {"x": "1"})
    assert isinstance(other, NotRead) and other.origin == "eski/c.xyz"
    (refused,) = read(files_source("eski/a.txt"), tmp_path)
    assert isinstance(refused, BadRecord) and "windows-1254" in refused.reason


def test_a_dump_is_read_from_a_path(tmp_path: Path) -> None:
    (tmp_path / "trwiki.xml").write_text(DUMP, encoding="utf-8")
    assert read(dump_source("trwiki.xml"), tmp_path) == [
        Record("trwiki.xml#3", "Ankara Türkiye'nin başkentidir.", {"title": "Ankara", "page": 3})
    ]


class _Shop(BaseHTTPRequestHandler):
    """Serves what its server holds; a path /kesik breaks off, /uzun never says how long it is."""

    def do_GET(self) -> None:
        shop: dict[str, bytes] = self.server.shop  # type: ignore[attr-defined]
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        content = shop.get(self.path)
        self.send_response(200 if content is not None else 404)
        if not self.path.startswith("/uzun"):
            self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write((content or b"")[: -5 if self.path.startswith("/kesik") else None])

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    server.shop, server.asked = {}, []  # type: ignore[attr-defined]
    server.address = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def offer(web: Any, path: str, content: bytes) -> UrlFile:
    web.shop[path] = content
    return UrlFile(f"{web.address}{path}", hashlib.sha256(content).hexdigest())


def test_files_of_the_web_are_fetched_once_and_read(tmp_path: Path, web: Any) -> None:
    lines = offer(web, "/veri/a%20b.jsonl.gz?x=1", gzip.compress(b'{"text": "bir"}\n'))
    page = offer(web, "/b.txt", "ığdır".encode())
    source = url_source([lines, page])
    expected = [Record(f"{lines.url}:1", "bir", {}), Record(page.url, "ığdır", {})]
    assert read(source, tmp_path) == expected
    assert read(source, tmp_path) == expected
    assert web.asked == ["/veri/a%20b.jsonl.gz?x=1", "/b.txt"]
    (kept,) = (tmp_path / "cache/downloads" / lines.sha256[:16]).iterdir()
    assert kept.name == "a b.jsonl.gz"
    kept.write_bytes(b"bozuk")
    assert read(source, tmp_path) == expected and len(web.asked) == 3


def test_a_dump_of_the_web_is_fetched(tmp_path: Path, web: Any) -> None:
    file = offer(web, "/trwiki.xml.bz2", bz2.compress(DUMP.encode()))
    (found,) = read(dump_source(file.url, sha256=file.sha256), tmp_path)
    assert isinstance(found, Record) and found.origin == f"{file.url}#3"


@pytest.mark.parametrize(
    ("path", "size", "message"),
    [
        ("/b.txt", 20, "sends has the sha256"),
        ("/b.txt", 2000, "has 2000 bytes or more"),
        ("/uzun.txt", 5_000_000, "bytes or more"),
        ("/kesik.txt", 500, "broke after 495 of 500 bytes"),
        ("/yok.txt", None, "cannot be fetched: Not Found"),
    ],
)
def test_what_the_web_sends_instead_is_refused(
    tmp_path: Path, web: Any, path: str, size: int | None, message: str
) -> None:
    if size is not None:
        web.shop[path] = b"x" * size
    source = url_source([UrlFile(f"{web.address}{path}", "0" * 64)], max_bytes=1000)
    with pytest.raises(DataError, match=message):
        read(source, tmp_path)
    assert not any(p.is_file() for p in (tmp_path / "cache").rglob("*"))


def test_no_answer_is_said_plainly(tmp_path: Path) -> None:
    source = url_source([UrlFile("http://127.0.0.1:9/a.txt", "0" * 64)])
    with pytest.raises(DataError, match="127.0.0.1:9/a.txt: cannot be fetched: .*refused"):
        read(source, tmp_path)


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (files_source(), "paths"),
        (files_source("https://ornek.org/a.txt"), "paths"),
        (files_source("a", uses=[]), "uses"),
        (url_source([]), "files"),
        (url_source([UrlFile("file:///etc/passwd", "0" * 64)]), r"files\[0\].url"),
        (url_source([UrlFile("http://x/a", "A" * 64)]), r"files\[0\].sha256"),
        (url_source([UrlFile("http://x/a", "0" * 64)], max_bytes=0), "max_bytes"),
        (dump_source("https://ornek.org/a.xml"), "sha256"),
        (dump_source("a.xml", sha256="0" * 64), "sha256"),
    ],
)
def test_values_of_files_that_cannot_work_are_refused(source: Source, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"x\.{key} is "):
        source.check("x")


@pytest.mark.slow
def test_workers_change_neither_order_nor_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files in batches, large and packed ones between them, and bad ones among both."""
    folder = tmp_path / "metinler"
    folder.mkdir()
    for number in range(150):
        (folder / f"{number:03} küçük.txt").write_text(f"Metin {number}.", encoding="utf-8")
    (folder / "020 büyük.jsonl").write_text('{"text": "büyük"}\n' * 100_000, encoding="utf-8")
    (folder / "050 paketli.txt.gz").write_bytes(gzip.compress(b"paketli"))
    (folder / "070 bozuk.txt").write_bytes(b"ya\xff")
    (folder / "090 kesik.txt.gz").write_bytes(gzip.compress(b"kesik" * 99)[:-9])
    monkeypatch.setattr(sources, "_BATCH_FILES", 16)
    limits = Limits(10**8, 10**9, 1000)
    found = []
    for num_workers in (1, 3):
        with Workers(num_workers) as workers:
            found.append(list(sources.read_own_text(folder, "utf-8", limits, workers)))
    assert found[0] == found[1] and len(found[0]) == 150 + 100_000 + 3
    names = [one.origin.split(":")[0] for one in found[0]]
    assert names == sorted(names)
    assert [one.origin for one in found[0] if isinstance(one, BadRecord)] == [
        "070 bozuk.txt", "090 kesik.txt.gz"
    ]  # fmt: skip
