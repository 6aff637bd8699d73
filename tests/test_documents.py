"""PDF, DOCX and EPUB files, made with real writers and read back."""

import builtins
import io
from typing import Any

import office
import pytest

from sifirdan.corpus import documents
from sifirdan.corpus.files import NotRead
from sifirdan.corpus.records import BadRecord, Record


def read(kind: str, content: bytes, max_bytes: int = 10**8) -> list[documents.Found]:
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


def docx_with(body: str) -> bytes:
    """A document whose body is this XML."""
    import docx
    from docx.oxml import parse_xml
    from docx.oxml.ns import nsdecls

    spaces = (
        nsdecls("w") + ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    )
    document = docx.Document()
    for number, block in enumerate(parse_xml(f"<w:body {spaces}>{body}</w:body>")):
        document.element.body.insert(number, block)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_text_of_a_docx_is_read_whatever_it_is_wrapped_in() -> None:
    box = f"<w:txbxContent><w:p>{run('Kutu.')}</w:p></w:txbxContent>"
    both = f"<mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    body = (
        f"<w:sdt><w:sdtPr/><w:sdtContent><w:p>{run('Form.')}</w:p></w:sdtContent></w:sdt>"
        f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>{run('Baş ')}"
        f"<w:ins>{run('EKLENEN ')}</w:ins><w:smartTag>{run('AKILLI ')}</w:smartTag>"
        f"<w:sdt><w:sdtContent>{run('SDTSATIR ')}</w:sdtContent></w:sdt>"
        f"<w:del><w:r><w:delText>yok</w:delText></w:r>{run('yok')}</w:del>"
        f"<w:moveFrom>{run('yok')}</w:moveFrom><!-- yok -->{run('son.')}</w:p>"
        "<w:p/><w:customXml><w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t>"
        '<w:br w:type="page"/><w:noBreakHyphen/><w:t>d</w:t></w:r></w:p></w:customXml>'
        f"<w:tbl><w:sdt><w:sdtContent><w:tr><w:tc><w:p>{run('x')}</w:p><w:p>{run('y')}</w:p></w:tc>"
        f"<w:sdt><w:sdtContent><w:tc><w:p>{run('z')}</w:p></w:tc></w:sdtContent></w:sdt></w:tr>"
        "</w:sdtContent></w:sdt></w:tbl>"
        f"<w:p><w:r><w:pict>{both}</mc:AlternateContent></w:pict></w:r>{run('Bitti.')}</w:p>"
    )
    text = "Form.\nBaş EKLENEN AKILLI SDTSATIR son.\n\na\tb\nc-d\nx y | z\n\nKutu.\nBitti."
    assert read("docx", docx_with(body)) == [Record("a.docx", text, {})]


def epub_with(chapters: dict[str, tuple[str, bytes]], *spine: str) -> bytes:
    """A book of chapters with their media types, in the order of the spine."""
    items = "".join(
        f'<item id="{name}" href="{name}" media-type="{kind}"/>'
        for name, (kind, _) in chapters.items()
    )
    refs = "".join(f'<itemref idref="{name}"/>' for name in spine)
    container = '<container><rootfile full-path="k.opf"/></container>'
    package = f"<package><manifest>{items}</manifest><spine>{refs}</spine></package>"
    contents = {name: content for name, (_, content) in chapters.items()}
    files = {"META-INF/container.xml": container.encode(), "k.opf": package.encode()}
    return office.zip_bytes(files | contents)


def test_each_chapter_of_an_epub_is_read_or_named() -> None:
    html = "application/xhtml+xml"
    chapters = {
        "a": (html, b"<p>bir</p>"), "b": (html, "<p>ş</p>".encode("windows-1254")),
        "c": ("text/xml", "<p>üç</p>".encode()), "d": ("image/svg+xml", b"<svg/>"),
        "e": ("image/jpeg", b"x"), "f": (html, b"<p>alt\xc4\xb1</p>"),
    }  # fmt: skip
    found = read("epub", epub_with(chapters, "a", "b", "yok", "c", "d", "e", "f"))
    assert [(item.origin, getattr(item, "text", type(item))) for item in found] == [
        ("a.epub!a", "bir"), ("a.epub!b", BadRecord), ("a.epub!yok", BadRecord),
        ("a.epub!c", "üç"), ("a.epub!d", NotRead), ("a.epub!f", "altı"),
    ]  # fmt: skip
    assert [item.reason for item in found if not isinstance(item, Record)] == [
        "the chapter cannot be read: 'utf-8' codec can't decode byte 0xfe in position 3: "
        "invalid start byte",
        "the book lists this chapter and has no such",
        "a page of the kind image/svg+xml",
    ]
    assert read("epub", epub_with(chapters, "e")) == [BadRecord("a.epub", "the book holds no text")]


def test_a_damaged_chapter_costs_itself_only() -> None:
    html = "application/xhtml+xml"
    whole = epub_with({"a": (html, b"<p>bir</p>"), "b": (html, b"<p>iki</p>")}, "a", "b")
    damaged = whole.replace(b"<p>bir</p>", b"<p>b\xc4r</p>")  # another checksum
    first, second = read("epub", damaged)
    assert isinstance(first, BadRecord) and "Bad CRC-32" in first.reason
    assert second == Record("a.epub!b", "iki", {"book": ""})


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
