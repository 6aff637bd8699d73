"""PDF, DOCX and EPUB files as text, with the libraries of the extra `documents`.

Their layout is gone afterwards: paragraphs are lines, table rows are lines with " | " between the
cells. A book in EPUB gives one document a chapter. Scanned pages hold no text and are named.
"""

import logging
import posixpath
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any
from urllib.parse import unquote

from sifirdan.corpus import markup
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.text import replace_surrogates

Found = Record | BadRecord
Reader = Callable[[IO[bytes], str, int], Iterator[Found]]


def read_pdf(stream: IO[bytes], origin: str, max_bytes: int) -> Iterator[Found]:
    """One document, page after page."""
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it comments on every slip of a file
    reader = pypdf.PdfReader(stream)
    if reader.is_encrypted and not reader.decrypt(""):
        yield BadRecord(origin, "is encrypted")
        return
    pages = [page.extract_text() for page in reader.pages]
    text = "\n".join(filter(None, (page.strip() for page in pages)))
    if text:
        title = reader.metadata.title if reader.metadata else None
        yield _document(origin, text, title, pages=len(pages))
    else:
        yield BadRecord(
            origin, f"no text on its {len(pages)} pages: a scan, which needs OCR first?"
        )


def read_docx(stream: IO[bytes], origin: str, max_bytes: int) -> Iterator[Found]:
    """One document: paragraphs and tables in their order, without headers, footers and notes."""
    import docx
    from docx.table import Table

    _refuse_large(stream, max_bytes)
    document = docx.Document(stream)
    text = "\n".join(_docx_lines(document, Table)).strip()
    if text:
        yield _document(origin, text, document.core_properties.title)
    else:
        yield BadRecord(origin, "the document holds no text")


def _docx_lines(container: Any, table: Any) -> Iterator[str]:
    for block in container.iter_inner_content():
        if not isinstance(block, table):
            yield block.text
            continue
        for row in block.rows:
            # A merged cell comes once for each column it spans.
            cells = {id(cell._tc): cell for cell in row.cells}.values()
            texts = (" ".join(" ".join(_docx_lines(c, table)).split()) for c in cells)
            yield " | ".join(filter(None, texts))


def read_epub(stream: IO[bytes], origin: str, max_bytes: int) -> Iterator[Found]:
    """One document a chapter, in reading order."""
    _refuse_large(stream, max_bytes)
    with zipfile.ZipFile(stream) as book:
        container = ET.fromstring(book.read("META-INF/container.xml"))
        package = next(e for e in container.iter() if markup.local_name(e) == "rootfile")
        place = package.attrib["full-path"]
        opf = ET.fromstring(book.read(place))
        title = next((e.text for e in opf.iter() if markup.local_name(e) == "title"), None)
        files = {e.attrib["id"]: e for e in opf.iter() if markup.local_name(e) == "item"}
        spine = [e.attrib["idref"] for e in opf.iter() if markup.local_name(e) == "itemref"]
        count = 0
        for item in (files[name] for name in spine if name in files):
            name = posixpath.normpath(
                posixpath.join(posixpath.dirname(place), unquote(item.attrib["href"]))
            )
            if "html" not in item.attrib.get("media-type", ""):
                continue
            chapter, text = markup.page(book.read(name).decode("utf-8-sig"))
            if text:
                yield _document(f"{origin}!{name}", text, chapter or title, book=title or "")
                count += 1
    if not count:
        yield BadRecord(origin, "the book holds no text")


def _guarded(reader: Reader, kind: str) -> Reader:
    def read(stream: IO[bytes], origin: str, max_bytes: int) -> Iterator[Found]:
        try:
            yield from reader(stream, origin, max_bytes)
        except ModuleNotFoundError as error:
            install = "pip install 'sifirdan[documents]'"
            yield BadRecord(origin, f"reading .{kind} needs {error.name}: {install}")
        except (
            Exception
        ) as error:  # of a damaged file these libraries raise whatever they stumble on
            reason = " ".join(str(error).split()) or type(error).__name__
            yield BadRecord(origin, f"cannot be read as {kind}: {reason}")

    return read


READERS: dict[str, Reader] = {
    "pdf": _guarded(read_pdf, "pdf"),
    "docx": _guarded(read_docx, "docx"),
    "epub": _guarded(read_epub, "epub"),
}


def _refuse_large(stream: IO[bytes], max_bytes: int) -> None:
    with zipfile.ZipFile(stream) as archive:
        num_bytes = sum(member.file_size for member in archive.infolist())
    if num_bytes > max_bytes:
        raise ValueError(f"unpacks to {num_bytes} bytes, more than ingest.max_document_bytes")
    stream.seek(0)


def _document(origin: str, text: str, title: str | None, **meta: Any) -> Record:
    named = {"title": replace_surrogates(title)} if title else {}
    return Record(origin, replace_surrogates(text), named | meta)
