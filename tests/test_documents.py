"""PDF, DOCX and EPUB files, made with real writers and read back."""

import builtins
import io
from typing import Any

import office
import pytest

from sifirdan.corpus import documents
from sifirdan.corpus.records import BadRecord, Record


def read(kind: str, content: bytes, max_bytes: int = 10**8) -> list[Record | BadRecord]:
    return list(documents.READERS[kind](io.BytesIO(content), f"a.{kind}", max_bytes))


def test_pdf_pages_are_one_document() -> None:
    found = read("pdf", office.pdf_bytes("Işığı söndür, çağ değişti.", "", "İkinci sayfa: ŞÖĞÜİ"))
    text = "Işığı söndür, çağ değişti.\nİkinci sayfa: ŞÖĞÜİ"
    assert found == [Record("a.pdf", text, {"pages": 3})]


def test_a_pdf_without_text_is_named() -> None:
    (found,) = read("pdf", office.pdf_bytes("", ""))
    assert isinstance(found, BadRecord) and found.reason.startswith(
        "no text on its 2 pages: a scan"
    )


def test_an_encrypted_pdf_is_named() -> None:
    import pypdf

    writer = pypdf.PdfWriter(io.BytesIO(office.pdf_bytes("gizli")))
    writer.encrypt("parola", algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    assert read("pdf", file.getvalue()) == [BadRecord("a.pdf", "is encrypted")]


def test_docx_paragraphs_and_tables_in_their_order() -> None:
    import docx

    document = docx.Document()
    document.add_paragraph("Önce bu.")
    table = document.add_table(rows=1, cols=3)
    table.rows[0].cells[0].merge(table.rows[0].cells[1]).text = "birleşik\nhücre"
    table.rows[0].cells[2].text = "tek"
    document.add_paragraph("Sonra bu.")
    file = io.BytesIO()
    document.save(file)
    assert read("docx", file.getvalue()) == [
        Record("a.docx", "Önce bu.\nbirleşik hücre | tek\nSonra bu.", {})
    ]
    assert read("docx", office.docx_bytes())[0] == Record(
        "a.docx", office.UTF8_TEXTS["Yıllık rapor.docx"], {"title": "Rapor"}
    )


def test_epub_chapters_in_reading_order() -> None:
    assert read("epub", office.epub_bytes()) == [
        Record(
            "a.epub!OEBPS/bir.xhtml", "Birinci bölüm\nBir varmış, bir yokmuş.",
            {"title": "Bir", "book": "Masallar"},
        ),
        Record(
            "a.epub!OEBPS/iki.xhtml", "Gökten üç elma düşmüş.",
            {"title": "Masallar", "book": "Masallar"},
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["pdf", "docx", "epub"])
def test_damaged_documents_are_named(kind: str) -> None:
    whole = {
        "pdf": office.pdf_bytes("metin"), "docx": office.docx_bytes(), "epub": office.epub_bytes(),
    }[kind]  # fmt: skip
    for size in (8, 100, len(whole) // 2):
        found = read(kind, whole[:size])
        assert len(found) == 1 and isinstance(found[0], BadRecord), (size, found)
        assert "\n" not in found[0].reason
    if kind != "pdf":
        (found_large,) = read(kind, whole, max_bytes=100)
        assert "more than ingest.max_document_bytes" in found_large.reason  # type: ignore[union-attr]


@pytest.mark.parametrize(("kind", "package"), [("pdf", "pypdf"), ("docx", "docx")])
def test_a_missing_package_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert read(kind, b"x") == [
        BadRecord(
            f"a.{kind}", f"reading .{kind} needs {package}: pip install 'sifirdan[documents]'"
        )
    ]
