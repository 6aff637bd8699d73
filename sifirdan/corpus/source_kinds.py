"""The kinds of sources that params.yaml may name: their keys, and what cannot work.

One dataclass a kind, told apart by `kind`. Every kind has license, uses, text_kind and on_error; all
but packages, whose readers know it, have attribution: what the data card has to say of the source.
How they are fetched and read: sources.py.
"""

import re
from dataclasses import dataclass
from typing import Literal

from sifirdan.corpus.files import is_inside
from sifirdan.corpus.formats import Encoding, Format, Reading
from sifirdan.corpus.readers import READERS
from sifirdan.errors import require

Use = Literal["pretraining", "ood", "chat"]
TextKind = Literal["curated", "web"]
OnError = Literal["stop", "quarantine"]


@dataclass(frozen=True)
class PackageSource:
    """A pinned artifact of the Python package index and the reader that knows its layout."""

    kind: Literal["package"]
    requirement: str
    sha256: str
    reader: str
    license: str
    uses: list[Use]
    text_kind: TextKind
    on_error: OnError

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        pinned = r"[A-Za-z0-9][\w.-]*==[\w.!+-]+"
        require(
            bool(re.fullmatch(pinned, self.requirement)),
            f"{key}.requirement", self.requirement, "an exact version such as name==1.2.3",
        )  # fmt: skip
        _check_sha256(self.sha256, f"{key}.sha256")
        require(
            self.reader in READERS, f"{key}.reader", self.reader, f"one of {', '.join(READERS)}"
        )


@dataclass(frozen=True)
class HuggingFaceSource:
    """A data set: the name of one on the Hub with its revision, or a local folder."""

    kind: Literal["huggingface"]
    path: str
    config: str | None
    split: str
    revision: str | None
    streaming: bool
    text_column: str
    meta_columns: list[str]
    max_documents: int | None
    license: str
    attribution: str | None
    uses: list[Use]
    text_kind: TextKind
    on_error: OnError

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        require(
            self.max_documents is None or self.max_documents > 0,
            f"{key}.max_documents", self.max_documents, "a number above 0, or null for all",
        )  # fmt: skip


@dataclass(frozen=True)
class FilesSource:
    """Files by glob: relative to the project, absolute, or at a URL of fsspec."""

    kind: Literal["files"]
    paths: list[str]
    format: Format
    encoding: Encoding
    text_column: str
    xml_element: str | None
    license: str
    attribution: str | None
    uses: list[Use]
    text_kind: TextKind
    on_error: OnError

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        require(bool(self.paths), f"{key}.paths", self.paths, "at least one path or glob")
        for path in self.paths:
            require(
                not _is_web(path), f"{key}.paths", path, "a path, or a URL such as s3://…",
                "give a web address to a source of the kind url, with its sha256",
            )  # fmt: skip

    def reading(self) -> Reading:
        return Reading(self.format, self.encoding, self.text_column, self.xml_element)

    def inside(self) -> list[str]:
        """The globs that are relative to the project."""
        return [path for path in self.paths if is_inside(path)]


@dataclass(frozen=True)
class UrlFile:
    """A file of the web and what it must be."""

    url: str
    sha256: str


@dataclass(frozen=True)
class UrlSource:
    """Files of the web, fetched once and read like local ones."""

    kind: Literal["url"]
    files: list[UrlFile]
    max_bytes: int
    format: Format
    encoding: Encoding
    text_column: str
    xml_element: str | None
    license: str
    attribution: str | None
    uses: list[Use]
    text_kind: TextKind
    on_error: OnError

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        _check_max_bytes(self.max_bytes, key)
        require(bool(self.files), f"{key}.files", self.files, "at least one url with its sha256")
        for number, file in enumerate(self.files):
            place = f"{key}.files[{number}]"
            require(_is_web(file.url), f"{place}.url", file.url, "http://… or https://…")
            _check_sha256(file.sha256, f"{place}.sha256")

    def reading(self) -> Reading:
        return Reading(self.format, self.encoding, self.text_column, self.xml_element)


@dataclass(frozen=True)
class MediaWikiSource:
    """A dump of a MediaWiki, such as trwiki-…-pages-articles.xml.bz2."""

    kind: Literal["mediawiki"]
    path: str
    sha256: str | None
    max_bytes: int
    license: str
    attribution: str | None
    uses: list[Use]
    text_kind: TextKind
    on_error: OnError

    def check(self, key: str) -> None:
        """Refuse values that cannot work; `key` is this source's dotted name."""
        _check_uses(self.uses, key)
        _check_max_bytes(self.max_bytes, key)
        if self.is_remote():
            _check_sha256(self.sha256 or "", f"{key}.sha256")
        else:
            require(self.sha256 is None, f"{key}.sha256", self.sha256, "null for a local file")

    def is_remote(self) -> bool:
        return _is_web(self.path)

    def inside(self) -> list[str]:
        """The path, if it is relative to the project."""
        return [self.path] if is_inside(self.path) else []


Source = PackageSource | HuggingFaceSource | FilesSource | UrlSource | MediaWikiSource


def reader_name(source: Source) -> str:
    """The name that repairs and rules know this source's text by."""
    return source.reader if isinstance(source, PackageSource) else source.kind


def _check_uses(uses: list[Use], key: str) -> None:
    usable = bool(uses) and not ("ood" in uses and "pretraining" in uses)
    require(usable, f"{key}.uses", uses, "pretraining or ood (not both), chat, or one with chat")


def _check_sha256(sha256: str, key: str) -> None:
    require(bool(re.fullmatch("[0-9a-f]{64}", sha256)), key, sha256, "64 hexadecimal digits")


def _check_max_bytes(max_bytes: int, key: str) -> None:
    require(max_bytes > 0, f"{key}.max_bytes", max_bytes, "a number above 0")


def _is_web(path: str) -> bool:
    return path.startswith(("http://", "https://"))
