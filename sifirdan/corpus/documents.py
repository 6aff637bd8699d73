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
from sifirdan.corpus.files import NotRead
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.text import replace_surrogates

Found = Record | BadRecord | NotRead
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
    """One document: paragraphs and tables in their order, as they stand after all changes that are
    tracked, without headers, footers and notes."""
    import docx

    _refuse_large(stream, max_bytes)
    document = docx.Document(stream)
    text = _docx_text(document.element.body).strip()
    if text:
        yield _document(origin, text, document.core_properties.title)
    else:
        yield BadRecord(origin, "the document holds no text")


_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DOCX_SIGNS = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-"}
_DOCX_GONE = ("del", "moveFrom")  # text that has been deleted, or moved to elsewhere
_CELL_END = "\0"  # no XML can hold it


def _docx_text(element: Any) -> str:
    """All text of an element, whatever it is wrapped in (a form, a change, a text box); a paragraph
    and a row of a table end with a line break."""
    tag = str(element.tag)
    name = tag.removeprefix(_WORD)
    if name in _DOCX_GONE or name.endswith("Pr") or tag.endswith("}Fallback"):
        return ""  # properties are no text, and a fallback says the same for older programs
    if name == "t":
        return element.text or ""
    if name == "br":
        return "\n" if element.get(_WORD + "type", "textWrapping") == "textWrapping" else ""
    inside = _DOCX_SIGNS.get(name, "") + "".join(map(_docx_text, element))
    match name:
        case "p":
            return inside + "\n"
        case "txbxContent":  # it hangs inside a paragraph
            return "\n" + inside
        case "tc":
            return " ".join(inside.split()) + _CELL_END
        case "tr":
            return " | ".join(filter(None, inside.split(_CELL_END))) + "\n"
    return inside


def read_epub(stream: IO[bytes], origin: str, max_bytes: int) -> Iterator[Found]:
    """One document a chapter, in reading order."""
    _refuse_large(stream, max_bytes)
    with zipfile.ZipFile(stream) as book:
        container = ET.fromstring(book.read("META-INF/container.xml"))
        package = next(e for e in container.iter() if markup.local_name(e) == "rootfile")
        place = package.attrib["full-path"]
        opf = ET.fromstring(book.read(place))
        title = next((e.text for e in opf.iter() if markup.local_name(e) == "title"), None)
        items = {e.attrib["id"]: e for e in opf.iter() if markup.local_name(e) == "item"}
        spine = [e.attrib["idref"] for e in opf.iter() if markup.local_name(e) == "itemref"]
        count = 0
        for name in spine:
            if name not in items:
                yield BadRecord(f"{origin}!{name}", "the book lists this chapter and has no such")
            elif found := _epub_chapter(book, place, items[name], origin, title or ""):
                yield found
            else:
                continue
            count += 1
    if not count:
        yield BadRecord(origin, "the book holds no text")


def _epub_chapter(
    book: zipfile.ZipFile, package: str, item: ET.Element, origin: str, title: str
) -> Found | None:
    """One chapter; None where it holds no text, as a cover does."""
    path = posixpath.join(posixpath.dirname(package), unquote(item.attrib["href"]))
    name = posixpath.normpath(path)
    kind = item.attrib.get("media-type", "html")
    if kind.startswith("image/") and kind != "image/svg+xml":
        return None
    if "html" not in kind and kind not in _OLD_CHAPTERS:
        return NotRead(f"{origin}!{name}", f"a page of the kind {kind}")
    try:
        chapter, text = markup.page(book.read(name).decode("utf-8-sig"))
    except Exception as error:  # as below; the other chapters are whole
        return BadRecord(f"{origin}!{name}", f"the chapter cannot be read: {_reason(error)}")
    return _document(f"{origin}!{name}", text, chapter or title, book=title) if text else None


# What older books call their chapters.
_OLD_CHAPTERS = ("text/xml", "application/xml", "application/x-dtbook+xml", "text/x-oeb1-document")


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
            yield BadRecord(origin, f"cannot be read as {kind}: {_reason(error)}")

    return read


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


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
