"""Files of any place: found by glob or URL, unpacked, and handed on as binary streams.

One after the other and in name order: a local path, an object of a store that fsspec knows, the
inside of .gz .bz2 .xz .zst, the members of .zip and .tar. Nothing is unpacked to the disk under a
name that an archive chose, and limits bound what a small file may turn into. What cannot be opened
comes as BadRecord, what is not meant to be read as NotRead, both with the reason; so every file is
either used or named. Not for what is inside a file: formats.py.
"""

import bz2
import glob
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import fsspec
import pyarrow as pa

from sifirdan.corpus import own_text
from sifirdan.corpus.records import BadRecord
from sifirdan.errors import ConfigError, DataError

BLOCK_BYTES = 1 << 20  # what is read at once

EMPTY = "the file is empty"
ARCHIVES = (".zip", ".tar")
_LONG_ENDINGS = {".tgz": ".tar.gz", ".tbz2": ".tar.bz2", ".txz": ".tar.xz", ".tzst": ".tar.zst"}
_TAR_END = 1024  # two blocks of zeros close an archive


@dataclass(frozen=True)
class Limits:
    """What one file may cost, whatever it claims to be."""

    max_document_bytes: int
    max_unpacked_bytes: int
    max_members: int


@dataclass(frozen=True)
class Place:
    """Where a file lies: `path` is a local path or a URL of fsspec; `origin` names it in the
    corpus, `name` has the endings that say what it is."""

    origin: str
    name: str
    path: str


@dataclass(frozen=True)
class File:
    """One file to be read; the stream is open until the next one is asked for."""

    origin: str
    name: str  # without the ending of its compression
    stream: io.BufferedReader


@dataclass(frozen=True)
class NotRead:
    """A file that was found and is not meant to be read."""

    origin: str
    reason: str


class LimitReached(Exception):
    """A file turned out larger than ingest's limits allow."""


# What reading a damaged file of any kind may raise.
DAMAGED = (
    OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError,
    pa.ArrowException, NotImplementedError, LimitReached,
)  # fmt: skip


def describe(error: Exception) -> str:
    """What an error of DAMAGED means for the user."""
    if isinstance(error, LimitReached) or str(error) == EMPTY:
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be opened: {error.strerror}"
    if isinstance(error, EOFError):
        return "ends in the middle: the file is cut off"
    return f"is damaged: {' '.join(str(error).split()) or type(error).__name__}"


# Finding.


def find_below(folder: Path) -> list[Place]:
    """All files below a folder, in name order; an origin is the path inside it."""
    return [
        Place(own_text.name_inside(path, folder), path.name, str(path))
        for path in own_text.list_files(folder)
    ]


def find(patterns: list[str], root: Path) -> list[Place]:
    """The files that globs name, each once, in the order of their origins. A pattern is relative
    to `root`, absolute, or a URL of fsspec; a folder stands for all files below it. An origin is
    the path from `root`, the path from the absolute pattern's first part with a wildcard, or the
    URL."""
    places: dict[str, Place] = {}
    for pattern in patterns:
        found = _find_remote(pattern) if "://" in pattern else _find_local(pattern, root)
        if not found:
            raise DataError(
                f"{pattern}: names no file",
                expected="at least one file",
                todo="check the spelling of paths (** means any depth), or remove it",
            )
        for place in found:
            known = places.setdefault(place.origin, place)
            if os.path.realpath(known.path) != os.path.realpath(place.path):
                raise ConfigError(
                    f"{known.path} and {place.path} would both be called '{place.origin}'",
                    expected="files that can be told apart in the corpus",
                    todo="give them to two sources, or name a folder that holds both",
                )
    return [places[origin] for origin in sorted(places)]


def is_inside(pattern: str) -> bool:
    """Whether a pattern is a path relative to the project."""
    return "://" not in pattern and not os.path.isabs(pattern)


def _find_local(pattern: str, root: Path) -> list[Place]:
    pattern = os.fsdecode(pattern.encode())  # so that ş finds ş under every locale
    if (root / pattern).is_dir():
        start = root / pattern
        paths = own_text.list_files(start)
    else:
        start = Path(_fixed_part(pattern))
        found = glob.glob(pattern, root_dir=root, recursive=True)
        paths = [root / name for name in found if not (root / name).is_dir()]
    base = start if os.path.isabs(pattern) else root
    return [
        Place(own_text.storable_name(Path(os.path.relpath(p, base)).as_posix()), p.name, str(p))
        for p in paths
    ]


def _fixed_part(pattern: str) -> str:
    """The folder that all files of a pattern lie in: '/a/b/**/*.txt' -> '/a/b'."""
    folder = os.path.dirname(pattern)
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    return folder


def _find_remote(pattern: str) -> list[Place]:
    try:
        system, path = fsspec.core.url_to_fs(pattern)
        names = [path] if system.isfile(path) else system.glob(path)
        urls = [system.unstrip_protocol(name) for name in names if system.isfile(name)]
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{pattern}: this kind of place cannot be read here: {error}",
            expected="a kind that fsspec knows, such as s3://",
            todo="for s3:// run: pip install 'sifirdan[s3]'",
        ) from None
    except OSError as error:
        raise DataError(
            f"{pattern}: cannot be listed: {error}",
            todo="check the address, the network, and your access to it",
        ) from None
    return [Place(url, PurePosixPath(url).name, url) for url in urls]


# Opening.


def walk(place: Place, limits: Limits) -> Iterator[File | BadRecord | NotRead]:
    """The file of a place, or its members if it is an archive."""
    if reason := _not_meant(place.name) or _no_file(place.path):
        yield NotRead(place.origin, reason)
        return
    try:
        with _open(place.path) as stream:
            if is_packed(place.name) and not stream.peek(1):
                raise EOFError(EMPTY)
            budget = _Budget(limits.max_unpacked_bytes)
            name, unpacked = _decompress(place.name, stream, budget)
            if ending(name) == ".zip":
                yield from _zip_members(place.origin, unpacked, budget, limits)
            elif ending(name) == ".tar":
                yield from _tar_members(place.origin, unpacked, limits)
            else:
                yield File(place.origin, name, unpacked)
    except DAMAGED as error:
        yield BadRecord(place.origin, describe(error))


def ending(name: str) -> str:
    """The last ending of a name, in small letters: 'Kitap.TXT' -> '.txt'."""
    path = PurePosixPath(name)
    return path.suffix.lower()


def seekable(stream: io.BufferedReader) -> IO[bytes]:
    """The stream, or a temporary copy of it where one must jump back and forth."""
    if stream.seekable():
        return stream
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    shutil.copyfileobj(stream, copy, BLOCK_BYTES)
    copy.seek(0)
    return copy


class _Budget:
    """The bytes that a file may still unpack to."""

    def __init__(self, num_bytes: int) -> None:
        self._allowed = self._left = num_bytes

    def spend(self, num_bytes: int) -> None:
        self._left -= num_bytes
        if self._left < 0:
            raise LimitReached(
                f"unpacks to more than {self._allowed} bytes (ingest.max_unpacked_bytes)"
            )


class _Counted(io.RawIOBase):
    """An unpacked stream that is paid for as it is read; knows where the zeros at its end begin."""

    def __init__(self, inner: IO[bytes], budget: _Budget) -> None:
        self._inner, self._budget = inner, budget
        self.num_read = 0
        self.zeros_from = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        block = self._inner.read(len(buffer))
        self._budget.spend(len(block))
        buffer[: len(block)] = block
        if content := block.rstrip(b"\0"):
            self.zeros_from = self.num_read + len(content)
        self.num_read += len(block)
        return len(block)


def _counted(inner: IO[bytes], budget: _Budget) -> io.BufferedReader:
    return io.BufferedReader(_Counted(inner, budget), BLOCK_BYTES)


def _open(path: str) -> io.BufferedReader:
    if "://" in path:
        system, name = fsspec.core.url_to_fs(path)
        return io.BufferedReader(system.open(name, "rb"), BLOCK_BYTES)
    return io.BufferedReader(io.FileIO(path), BLOCK_BYTES)


def _open_zstd(stream: IO[bytes]) -> IO[bytes]:
    unpacked: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")
    return unpacked


_DECOMPRESSORS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),  # type: ignore[dict-item,return-value]
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _open_zstd,
}


def _decompress(
    name: str, stream: io.BufferedReader, budget: _Budget
) -> tuple[str, io.BufferedReader]:
    """The name without the ending of its compression, and the unpacked stream."""
    if long := _LONG_ENDINGS.get(ending(name)):
        name = str(PurePosixPath(name).with_suffix(long))
    if opener := _DECOMPRESSORS.get(ending(name)):
        return name[: -len(ending(name))], _counted(opener(stream), budget)
    return name, stream


def is_packed(name: str) -> bool:
    """True for archives and compressed files, by their ending."""
    return ending(name) in {*ARCHIVES, *_LONG_ENDINGS, *_DECOMPRESSORS}


def _not_meant(name: str) -> str | None:
    base = PurePosixPath(name).name
    if base.startswith("."):
        return "a hidden file"
    return "the lock file of an office program" if base.startswith("~$") else None


def _no_file(path: str) -> str | None:
    """Why a local path is no file that could be read; to open a pipe would wait for ever."""
    if "://" in path or os.path.isfile(path):
        return None
    if os.path.isdir(path):
        return "a link to a folder" if os.path.islink(path) else None
    if os.path.exists(path):
        return "a pipe, a socket or a device"
    return "a link that leads nowhere" if os.path.islink(path) else None


# Archives. A member's name is used for nothing but its origin and its endings.

# What zipfile and tarfile stumble on in a damaged header: names that are not in the encoding they
# claim, or too short, fields that are cut off, numbers that are none, places before the start.
_SLIPS = (ValueError, LookupError, OverflowError, struct.error)


def _zip_members(
    origin: str, stream: io.BufferedReader, budget: _Budget, limits: Limits
) -> Iterator[File | BadRecord | NotRead]:
    with seekable(stream) as whole, _open_zip(whole) as archive:
        # Not by is_dir(), which fails on a name that damage has emptied.
        members = [one for one in archive.infolist() if not one.filename.endswith("/")]
        _check_count(len(members), limits)
        for member in sorted(members, key=lambda member: member.filename):
            place = f"{origin}!{member.filename}"
            if refusal := _refuse_member(place, member.filename):
                yield refusal
            elif stat.S_ISLNK(member.external_attr >> 16):
                yield NotRead(place, "a link")
            elif member.flag_bits & 1:
                yield BadRecord(place, "is encrypted")
            else:
                try:
                    with _open_zip_member(archive, member) as packed:
                        yield from _member(place, member.filename, packed, budget)
                except DAMAGED as error:
                    yield BadRecord(place, describe(error))
        listed, stated = len(archive.infolist()), _stated_count(whole)
        if stated not in (0xFFFF, listed % 0x10000):  # FFFF: more than the field holds
            reason = f"is damaged: its directory lists {listed} members, its end says {stated}"
            yield BadRecord(origin, reason)


def _stated_count(stream: IO[bytes]) -> int:
    """How many members the end of a zip says that there are; zipfile does not look."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size - 22 - 0xFFFF))  # the end has 22 bytes and a comment
    tail = stream.read()
    at = tail.rfind(b"PK\5\6") + 10
    return int.from_bytes(tail[at : at + 2], "little")


def _open_zip(stream: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(stream)
    except _SLIPS as error:
        raise zipfile.BadZipFile(f"the directory of the archive: {error}") from None


def _open_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(member)
    except _SLIPS as error:
        raise zipfile.BadZipFile(f"the header of the member: {error}") from None


def _tar_members(
    origin: str, stream: io.BufferedReader, limits: Limits
) -> Iterator[File | BadRecord | NotRead]:
    """In the order in which they stand, since the archive may be larger than memory and disk."""
    watched = _Counted(stream, _Budget(limits.max_unpacked_bytes))
    budget = _Budget(limits.max_unpacked_bytes)
    count = 0
    # Stated, as the encoding of names would be the locale's.
    with tarfile.open(
        fileobj=watched, mode="r|", bufsize=BLOCK_BYTES, encoding="utf-8", errors="replace",
        tarinfo=_TarInfo,
    ) as archive:  # fmt: skip
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # or it remembers all it has passed
            if member.isdir():
                continue
            count += 1
            _check_count(count, limits)
            place = f"{origin}!{member.name}"
            if refusal := _refuse_member(place, member.name):
                yield refusal
            elif not member.isreg():
                yield NotRead(place, "a link or a device")
            else:
                packed = archive.extractfile(member)
                assert packed is not None, member.name
                yield from _member(place, member.name, packed, budget)
    while watched.read(BLOCK_BYTES):  # to the end: tarfile takes a cut archive for a whole one
        pass
    end = archive.offset  # where tarfile met no further member
    if watched.zeros_from > end:
        yield BadRecord(
            origin,
            f"goes on after its end mark at byte {end}: are these several archives in one file?"
            " What follows is not read",
        )
    elif watched.num_read - end < _TAR_END:
        yield BadRecord(origin, "ends in the middle: the archive has no end mark")


class _TarInfo(tarfile.TarInfo):
    """A member's header. tarfile would take a damaged one for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_TarInfo":
        try:
            return super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, *_SLIPS) as error:  # type: ignore[attr-defined]
            at = archive.offset
            raise tarfile.ReadError(
                f"the header of a member at byte {at} is wrong ({error});"
                " what follows it is not read"
            ) from None


def _member(
    place: str, name: str, packed: IO[bytes], budget: _Budget
) -> Iterator[File | BadRecord | NotRead]:
    name, unpacked = _decompress(name, _counted(packed, budget), budget)
    if ending(name) in ARCHIVES:
        yield NotRead(place, "an archive inside an archive is not opened")
    else:
        yield File(place, name, unpacked)


def _refuse_member(place: str, name: str) -> BadRecord | NotRead | None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or path.parts[:1] and path.parts[0].endswith(":"):
        return BadRecord(place, "its name leads out of the archive")
    if reason := _not_meant(name):
        return NotRead(place, reason)
    return None


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.max_members:
        raise LimitReached(f"has more than {limits.max_members} members (ingest.max_members)")
