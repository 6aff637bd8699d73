"""A folder of mixed files as an office has them, made when a test asks for it.

`build` returns what each file is good for: the texts it holds, or nothing where it cannot be read.
"""

import io
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

LONG_LINE = "Uzun satırın bir parçası daha; " * 150_000  # 5 MB in one line
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + bytes(200)

EXCEL = (
    "ad;açıklama;text\r\n"
    'Şükrü Öğüt;"önemli; acele";"Birinci satır\nikinci satır"\r\n'
    "Ümit Çağ;;Teklifi beğenmedi.\r\n"
)
PAGE = """<!doctype html><html lang="tr"><head><title>Bayram duyurusu</title>
<style>p { color: red }</style></head><body>
<nav><a href="/">Ana sayfa</a> <a href="/iletisim">İletişim</a></nav>
<article><h1>Bayram duyurusu</h1>
<p>Değerli çalışanlarımız, bayram süresince ofisimiz kapalı olacaktır. Acil işler için nöbetçi
arkadaşlarımıza ulaşabilirsiniz; telefon numaraları girişteki panoda asılıdır.</p>
<p>Herkese sağlıklı, huzurlu ve mutlu bir bayram dileriz. Bayramdan sonra görüşmek üzere.</p>
</article><footer>Tüm hakları saklıdır.</footer></body></html>"""

# What can be read as UTF-8, by the origin of each document; the rest is to be named.
UTF8_TEXTS = {
    "Arşiv.tar.gz!notlar/çağrı.md": "# Çağrı\n\nYarın saat dokuzda.\n",
    "Yıllık rapor.docx": "Yıllık rapor\nSatışlar iyi gitti.\nürün | adet\nçay | 12",
    "müşteri listesi.csv:2": "Birinci satır\nikinci satır",
    "müşteri listesi.csv:4": "Teklifi beğenmedi.",
    "uzun satır.txt": LONG_LINE,
    "şema.xml": "Kısa açıklama",
    "web/duyuru.html": PAGE,  # its main text
    "çalışma planı.pdf": "Çalışma planı: ığdır ağacı dikilecek.",
    "kitap.epub!OEBPS/bir.xhtml": "Birinci bölüm\nBir varmış, bir yokmuş.",
    "kitap.epub!OEBPS/iki.xhtml": "Gökten üç elma düşmüş.",
    "Belgeler.zip!mektup/Sayın Öğüt.txt": "Sayın Öğüt,\r\nbilginize sunarım.",
}
NAMED = {  # origin -> part of the reason
    "boş.txt": "empty",
    "yedek.zip": "damaged",
    "yarım.jsonl.gz": "cut off",
    "logo.txt": "PNG",
    "tarama.pdf": "scan",
    "çöp.csv": "binary",
    "eski/mektup 1998.txt": "not utf-8",
    "eski/dilekçe.txt": "not utf-8",
    "notlar/toplantı.txt": "UTF-16",
    "sahte.docx": "not docx",
    "foto.png": "ending",
    ".gizli": "hidden",
    "~$Yıllık rapor.docx": "lock file",
    "Belgeler.zip!iç.zip": "inside an archive",
    "Belgeler.zip!../kaçak.txt": "leads out",
}
LATIN_TEXTS = {
    "mektup 1998.txt": "Işığı söndürdüm, ağacın altında bekledim.",
    "dilekçe.txt": "Gereğini saygıyla arz ederim. ŞİĞ",
}
UTF16_TEXTS = {"toplantı.txt": "Toplantı: üç görüş, bir karar.\r\n"}


def build(folder: Path) -> list[str]:
    """Make the folder; returns the names of its files, in order."""
    for name in ("eski", "notlar", "web"):
        (folder / name).mkdir(parents=True)
    contents = {
        "boş.txt": b"",
        "yedek.zip": zip_bytes({"a.txt": b"metin" * 1000})[:-400],
        "yarım.jsonl.gz": _gzip(b'{"text": "' + bytes(range(65, 91)) * 4000)[:-200],
        "logo.txt": PNG,
        "foto.png": PNG,
        "çöp.csv": bytes(range(32)) * 40,
        "eski/mektup 1998.txt": LATIN_TEXTS["mektup 1998.txt"].encode("windows-1254"),
        "eski/dilekçe.txt": LATIN_TEXTS["dilekçe.txt"].encode("iso-8859-9"),
        "notlar/toplantı.txt": UTF16_TEXTS["toplantı.txt"].encode("utf-16"),
        "sahte.docx": b"Ben bir belge degilim.",
        ".gizli": "saklı".encode(),
        "~$Yıllık rapor.docx": b"\x05Ayse",
        "müşteri listesi.csv": b"\xef\xbb\xbf" + EXCEL.encode(),
        "uzun satır.txt": LONG_LINE.encode(),
        "şema.xml": "<?xml version='1.0'?><a><b>Kısa</b> açıklama</a>".encode(),
        "web/duyuru.html": PAGE.encode(),
        "kitap.epub": epub_bytes(),
        "Arşiv.tar.gz": tar_bytes({"notlar/çağrı.md": "# Çağrı\n\nYarın saat dokuzda.\n".encode()}),
        "Belgeler.zip": zip_bytes(
            {
                "mektup/Sayın Öğüt.txt": "Sayın Öğüt,\r\nbilginize sunarım.".encode(),
                "iç.zip": zip_bytes({"b.txt": b"ic"}),
                "../kaçak.txt": b"kacak",
            }
        ),
        "çalışma planı.pdf": pdf_bytes("Çalışma planı: ığdır ağacı dikilecek."),
        "tarama.pdf": pdf_bytes(""),
        "Yıllık rapor.docx": docx_bytes(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return sorted(contents)


def zip_bytes(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


def tar_bytes(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def _gzip(content: bytes) -> bytes:
    packer = zlib.compressobj(level=0, wbits=31)
    return packer.compress(content) + packer.flush()


def pdf_bytes(*pages: str) -> bytes:
    """A PDF with a line of text on each page, in an embedded font."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}), PdfPages(file) as pdf:
        for line in pages:
            figure = Figure(figsize=(6, 2))
            if line:
                figure.text(0.1, 0.5, line)
            pdf.savefig(figure)
    return file.getvalue()


def docx_bytes() -> bytes:
    import docx

    document = docx.Document()
    document.core_properties.title = "Rapor"
    document.add_heading("Yıllık rapor")
    document.add_paragraph("Satışlar iyi gitti.")
    table = document.add_table(rows=2, cols=2)
    for row, values in zip(table.rows, (("ürün", "adet"), ("çay", "12")), strict=True):
        for cell, value in zip(row.cells, values, strict=True):
            cell.text = value
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def epub_bytes() -> bytes:
    """A book of two chapters, the second with an empty page before it."""
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{}</title></head><body>{}</body></html>'
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/content.opf"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<metadata><dc:title>Masallar</dc:title></metadata><manifest>"
        '<item id="b" href="iki.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="o" href="orta.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="bir.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="r" href="kapak.png" media-type="image/png"/></manifest>'
        '<spine><itemref idref="r"/><itemref idref="a"/><itemref idref="o"/><itemref idref="b"/>'
        "</spine></package>"
    )
    return zip_bytes(
        {
            "mimetype": b"application/epub+zip",
            "META-INF/container.xml": container.encode(),
            "OEBPS/content.opf": package.encode(),
            "OEBPS/bir.xhtml": page.format(
                "Bir", "<h1>Birinci bölüm</h1><p>Bir varmış,\n bir yokmuş.</p>"
            ).encode(),
            "OEBPS/orta.xhtml": page.format("", "<p/>").encode(),
            "OEBPS/iki.xhtml": page.format("", "<p>Gökten <i>üç</i> elma düşmüş.</p>").encode(),
            "OEBPS/kapak.png": PNG,
        }
    )
