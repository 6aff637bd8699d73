"""Wikitext as a reader sees it, and dumps page by page."""

import bz2
import io
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from sifirdan.corpus import files, mediawiki
from sifirdan.corpus.files import File, Limits
from sifirdan.corpus.records import BadRecord, Record

NAMES = {"dosya", "resim", "kategori", "file", "category"}

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="tr">
<siteinfo><namespaces><namespace key="0" case="first-letter" />
<namespace key="6" case="first-letter">Belgelik</namespace>
<namespace key="14" case="first-letter">Ulam</namespace></namespaces></siteinfo>
"""


def page(number: int, title: str, text: str | None, *, ns: int = 0, redirect: str = "") -> str:
    to = f'<redirect title="{redirect}" />' if redirect else ""
    body = f'<text bytes="1" xml:space="preserve">{escape(text)}</text>' if text is not None else ""
    return (
        f"<page><title>{title}</title><ns>{ns}</ns><id>{number}</id>{to}"
        f"<revision><id>{number + 7000}</id><contributor><id>5</id></contributor>"
        f"<comment>x</comment>{body}</revision></page>\n"
    )


def dump(*pages: str) -> bytes:
    return (HEAD + "".join(pages) + "</mediawiki>").encode()


def read(content: bytes) -> list[Record | BadRecord]:
    stream = io.BufferedReader(io.BytesIO(content))  # type: ignore[arg-type]
    return list(mediawiki.read(File("tr.xml", "tr.xml", stream)))


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Ankara''' [[Türkiye]]'nin {{x|y}}[[başkent]]idir.<ref>a</ref>", "Ankara Türkiye'nin başkentidir."),
        ("'''Iğdır''''ın [[il (idari)|ili]] ''ve'' '''''ilçesi'''''", "Iğdır'ın ili ve ilçesi"),
        ("a [https://ornek.org bağlantı] b [https://ornek.org]", "a bağlantı b"),
        ("[[Dosya:x.jpg|küçük|Bir [[kedi]] resmi]]Metin [[Kategori:A]][[resim:y.png]]", "Metin"),
        ("Bkz. [[:Kategori:Şehirler|şehirler]].", "Bkz. şehirler."),
        ("[[en:Ankara]]\n[[de:Berlin|Berlin]] ve [[:fr:Paris]]", "Berlin ve"),
        ("* bir\n** iki\n# üç\n; dört\n: beş", "bir\niki\nüç\ndört\nbeş"),
        ("satır<br />sonu &amp; &nbsp;&#305;şık &lt;b&gt;", "satır\nsonu & ışık <b>"),
        ("{| class=\"wikitable\"\n! a !! b\n|-\n| 1 ||\n{|\n| iç\n|}\n|}\nSon", "Son"),
        ("E=<math>mc^2</math> <gallery>\nDosya:a.jpg|b\n</gallery><nowiki>[[x]]</nowiki>", "E= [[x]]"),
        ("{{Bilgi kutusu\n| ad = {{x}}\n| resim = [[Dosya:a.png]]\n}}\nAnkara (; {{lang|en|x}}) ve ({{IPA}})", "Ankara ve"),
        ("__NOTOC__ __İÇİNDEKİLERYOK__ <!-- gizli -->görünen <small>küçük</small>", "görünen küçük"),
    ],
)  # fmt: skip
def test_wikitext_as_it_is_read(wikitext: str, text: str) -> None:
    assert mediawiki.plain_text(wikitext, NAMES) == text


def test_headings_stay_where_something_stands_below_them() -> None:
    wikitext = (
        "Giriş.\n== Tarih ==\n=== Eski ===\nMetin.\n=== Yeni ===\n{{boş}}\n== Nüfus ==\n{|\n|x\n|}\n"
        "== Ayrıca ==\n* [[Konya]]\n== Kaynakça ==\n<references />\n=== Dipnot ===\n"
    )
    expected = "Giriş.\nTarih\nEski\nMetin.\nAyrıca\nKonya"
    assert mediawiki.plain_text(wikitext, NAMES) == expected


@pytest.mark.parametrize(
    "odd", ["'''kapanmayan", "[[kapanmayan", "{{kapanmayan", "{| açık", "<ref>açık", "==="]
)
def test_unbalanced_markup_loses_no_text_before_it(odd: str) -> None:
    assert mediawiki.plain_text(f"İlk cümle. {odd}\nson", NAMES).startswith("İlk cümle.")


def test_articles_of_a_dump() -> None:
    found = read(
        dump(
            page(3, "Ankara", "Ankara, [[Belgelik:a.jpg]][[Ulam:Şehirler]]başkenttir."),
            page(4, "Angora", "#YÖNLENDİR [[Ankara]]", redirect="Ankara"),
            page(5, "Tartışma:Ankara", "Burada tartışılır.", ns=1),
            page(6, "Ulam:Şehirler", "Şehirler.", ns=14),
            page(7, "Silinmiş", None),
            page(8, "Iğdır", "Iğdır'da kayısı &amp; çay."),
        )
    )
    assert found == [
        Record("tr.xml#3", "Ankara, başkenttir.", {"title": "Ankara", "page": 3}),
        BadRecord("tr.xml#7", "the page 'Silinmiş' has no text"),
        Record("tr.xml#8", "Iğdır'da kayısı & çay.", {"title": "Iğdır", "page": 8}),
    ]


def test_a_packed_dump_and_a_cut_one(tmp_path: Path) -> None:
    path = tmp_path / "trwiki-20260101-pages-articles.xml.bz2"
    content = dump(*(page(n, f"Sayfa {n}", f"Metin {n}.") for n in range(1, 40)))
    limits = Limits(10**8, 10**8, 10)
    for raw, count in ((content, 39), (content[:-3000], None)):
        path.write_bytes(bz2.compress(raw))
        walking = files.walk(files.Place("dump", path.name, str(path)), limits)
        file = next(walking)
        assert isinstance(file, File) and file.name == "trwiki-20260101-pages-articles.xml"
        found = list(mediawiki.read(file))
        if count:
            assert [record.text for record in found] == [f"Metin {n}." for n in range(1, 40)]  # type: ignore[union-attr]
        else:
            assert len(found) > 10 and isinstance(found[-1], BadRecord)
            assert found[-1].reason.startswith("is no whole dump")


def test_what_is_no_dump_is_named() -> None:
    assert "is no whole dump" in read(b"merhaba")[0].reason  # type: ignore[union-attr]
    (bad,) = read(b"<a><b/></a>")
    assert isinstance(bad, BadRecord) and "pages-articles" in bad.reason


def test_memory_does_not_grow_with_the_dump() -> None:
    import tracemalloc

    pages = dump(*(page(n, f"Sayfa {n}", "Kısa metin. " * 400) for n in range(1, 801)))
    stream = io.BufferedReader(io.BytesIO(pages))  # type: ignore[arg-type]
    records = mediawiki.read(File("a", "a.xml", stream))
    next(records)
    tracemalloc.start()
    assert sum(1 for _ in records) == 799
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_500_000, "bytes; the pages together have 4 million"


@pytest.mark.parametrize("opening", ["{{a|", "[[a|", "{|\n", "<b>", "<ref>", "[http://a "])
def test_a_page_of_marks_that_are_never_closed_is_set_aside(opening: str) -> None:
    """The parser's time grows with the square of their number."""
    good = "Ankara [[Türkiye]]'nin {{a|b}} başkentidir.<ref name=x /><br>" * 400
    texts = [good, "metin " + opening * 20_000, good]
    found = read(dump(*(page(n, f"Sayfa {n}", text) for n, text in enumerate(texts))))
    assert [isinstance(one, Record) for one in found] == [True, False, True]
    assert isinstance(found[1], BadRecord)
    assert "'Sayfa 1' leaves" in found[1].reason and found[1].origin == "tr.xml#1"
