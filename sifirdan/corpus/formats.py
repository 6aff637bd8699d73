"""What is inside a file: the reader of each format, from a binary stream to records.

Before anything is read, the first bytes must be what the file's ending says. All text comes through
as it stands in the file. Bytes become text in encodings.py; JSON, CSV, Parquet and Arrow are read by
tables.py, HTML and XML with markup.py, PDF, DOCX and EPUB by documents.py.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from sifirdan.cleaning.html import main_text
from sifirdan.corpus import documents, markup, tables
from sifirdan.corpus.encodings import (
    UTF8_MARK,
    UTF16_MARKS,
    UTF32_MARKS,
    decode,
    read_bytes,
    read_text,
)
from sifirdan.corpus.files import DAMAGED, EMPTY, File, Limits, NotRead, describe, ending, seekable
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.corpus.tables import Found
from sifirdan.corpus.tables import storable as storable  # for rows that are in no file
from sifirdan.text import replace_surrogates

Encoding = Literal["utf-8", "windows-1254", "iso-8859-9", "utf-16"]
Format = Literal[
    "auto", "txt", "md", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "html", "xml",
    "pdf", "docx", "epub",
]  # fmt: skip

ENDINGS: dict[str, Format] = {
    ".txt": "txt", ".md": "md", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json",
    ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".arrow": "arrow", ".html": "html",
    ".htm": "html", ".xhtml": "html", ".xml": "xml", ".pdf": "pdf", ".docx": "docx",
    ".epub": "epub",
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """How the files of one source are read; see params.yaml."""

    format: Format
    encoding: Encoding
    text_column: str
    xml_element: str | None


def read(file: File, how: Reading, limits: Limits) -> Iterator[Found | NotRead]:
    """The documents of one file. What cannot be read comes as BadRecord with the reason."""
    kind = ENDINGS.get(ending(file.name)) if how.format == "auto" else how.format
    if kind is None:
        yield NotRead(file.origin, f"its ending is none of {' '.join(ENDINGS)}")
        return
    how = replace(how, format=kind)
    try:
        head = file.stream.peek(1)[:1024]
        if not head:
            yield BadRecord(file.origin, EMPTY)
        elif reason := _mismatch(kind, head, how.encoding):
            yield BadRecord(file.origin, reason)
        else:
            yield from _READERS[kind](file, how, limits)
    except DAMAGED as error:
        yield BadRecord(file.origin, describe(error))


# What the first bytes of a file say that it is.

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "a PNG image", b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image", b"GIF89a": "a GIF image",
    b"RIFF": "a RIFF file (sound, film or WebP)", b"%PDF-": "a PDF file",
    b"PK\x03\x04": "a zip archive (as DOCX, XLSX and EPUB are)", b"PK\x05\x06": "an empty zip archive",
    b"\x1f\x8b\x08": "a gzip file", b"\xfd7zXZ\x00": "an xz file", b"\x28\xb5\x2f\xfd": "a zstd file",
    b"Rar!\x1a\x07": "a RAR archive", b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Office file (.doc, .xls, .ppt)",
    b"{\\rtf": "an RTF document", b"SQLite format 3\x00": "an SQLite database",
    b"PAR1": "a Parquet file", b"ARROW1\x00\x00": "an Arrow file", b"\x7fELF": "a program",
    b"OggS": "an Ogg file", b"fLaC": "a FLAC file", b"II*\x00": "a TIFF image",
    b"MM\x00*": "a TIFF image",
}  # fmt: skip
_ALSO_WORDS = (b"RIFF", b"PAR1", b"OggS", b"fLaC")  # a text may begin with them; but it has no NUL
_BINARY = {  # formats with a signature of their own
    "pdf": (b"%PDF-",), "docx": (b"PK\x03\x04",), "epub": (b"PK\x03\x04",), "parquet": (b"PAR1",),
    "arrow": (b"ARROW1\x00\x00", b"\xff\xff\xff\xff"),
}  # fmt: skip
_CONTROLS = bytes(set(range(0x20)) - set(b"\t\n\r\f\x0b\x1b"))


def _mismatch(kind: str, head: bytes, encoding: str) -> str | None:
    """Why the content of a file cannot be what its ending says."""
    known = next(
        (
            what
            for sign, what in _SIGNATURES.items()
            if head.startswith(sign) and (sign not in _ALSO_WORDS or b"\0" in head[:64])
        ),
        None,
    )
    if kind in _BINARY:
        if head.startswith(_BINARY[kind]) or (kind == "pdf" and b"%PDF-" in head):
            return None
        return f"is {known or 'something else'}, not {kind}"
    if known:
        return f"is {known}, not {kind}"
    if kind == "xml":  # says itself how it is encoded
        return None
    if head.startswith(UTF32_MARKS):
        return "byte 0: this is UTF-32; save it as UTF-8"
    if encoding == "utf-16":
        marked = head[:2] in UTF16_MARKS
        return None if marked else "byte 0: there is no byte order mark, so this is not UTF-16"
    if head[:2] in UTF16_MARKS:
        return "byte 0: this is UTF-16; save it as UTF-8, or set the encoding to utf-16"
    if encoding != "utf-8" and head.startswith(UTF8_MARK):
        return f"byte 0: this is UTF-8, not {encoding}"
    num_controls = len(head) - len(head.translate(None, _CONTROLS))
    return "is binary data, not text" if num_controls > max(8, len(head) // 32) else None


# One file, one document; of XML also one an element.


def _read_plain(file: File, how: Reading, limits: Limits) -> Iterator[Found]:
    text, reason = read_text(file, how.encoding, limits)
    yield BadRecord(file.origin, reason) if reason else Record(file.origin, text, {})


def _read_html(file: File, how: Reading, limits: Limits) -> Iterator[Found]:
    raw = read_bytes(file, limits)
    html, reason = decode(raw, how.encoding)
    if reason:
        declared = re.search(rb"charset\s*=\s*[\"']?\s*([\w-]+)", raw[:4096])
        said = f"; the page itself says {declared[1].decode()}" if declared else ""
        yield BadRecord(file.origin, reason + said)
        return
    title, everything = markup.page(html)
    text = main_text(html) or everything
    if text:
        yield Record(file.origin, replace_surrogates(text), {"title": title} if title else {})
    else:
        yield BadRecord(file.origin, "the page holds no text")


def _read_xml(file: File, how: Reading, limits: Limits) -> Iterator[Found]:
    # A file declares its encoding, or is UTF-8; a setting that says otherwise wins.
    encoding = None if how.encoding in ("utf-8", "utf-16") else how.encoding
    count = 0
    try:
        if how.xml_element is None:
            text = markup.whole(io.BytesIO(read_bytes(file, limits)), encoding)
            yield Record(file.origin, text, {}) if text else BadRecord(file.origin, "holds no text")
            return
        for text in markup.elements(file.stream, how.xml_element, encoding):
            yield Record(f"{file.origin}#{count}", text, {})
            count += 1
    except (ET.ParseError, ValueError, LookupError) as error:
        yield BadRecord(file.origin, f"is not well-formed XML: {error}")
        return
    if not count:
        yield BadRecord(file.origin, f"has no element '{how.xml_element}'")


def _read_table(file: File, how: Reading, limits: Limits) -> Iterator[Found]:
    column = how.text_column
    match how.format:
        case "jsonl":
            yield from tables.read_jsonl(file, column, how.encoding, limits)
        case "json":
            yield from tables.read_json(file, column, how.encoding, limits)
        case "csv":
            yield from tables.read_csv(file, column, how.encoding, limits)
        case "tsv":
            yield from tables.read_csv(file, column, how.encoding, limits, delimiter="\t")
        case "parquet":
            yield from tables.read_parquet(file, column)
        case "arrow":
            yield from tables.read_arrow(file, column)


def _read_document(file: File, how: Reading, limits: Limits) -> Iterator[Found | NotRead]:
    with seekable(file.stream) as stream:
        yield from documents.READERS[how.format](stream, file.origin, limits.max_document_bytes)


_READERS: dict[str, Callable[[File, Reading, Limits], Iterator[Found | NotRead]]] = {
    "txt": _read_plain, "md": _read_plain, "html": _read_html, "xml": _read_xml,
    "jsonl": _read_table, "json": _read_table, "csv": _read_table, "tsv": _read_table,
    "parquet": _read_table, "arrow": _read_table,
    "pdf": _read_document, "docx": _read_document, "epub": _read_document,
}  # fmt: skip
