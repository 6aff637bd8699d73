"""The main text of a page without what surrounds it; what is a page and what only speaks of one."""

import pytest

from sifirdan.cleaning.html import (
    extract_main_text,
    looks_like_html,
    main_text,
    unescape_entities,
)

PARAGRAPHS = [
    "Göl kıyısındaki küçük kasabada her yıl ağustos ayında düzenlenen şenlik, bu yıl da binlerce"
    " kişiyi bir araya getirdi. Belediye başkanı açılışta kısa bir konuşma yaptı.",
    "Şenliğin ilk gününde çocuklar için uçurtma yarışması vardı; ödülleri öğretmenleri verdi."
    " Akşamüstü meydanda halk oyunları gösterisi izlendi.",
    "Son gün yağmur yağmasına rağmen kimse dağılmadı, türküler gece yarısına kadar sürdü.",
]
PAGE = (
    """<!DOCTYPE html><html lang="tr"><head><title>Göl Şenliği</title><style>p{color:red}</style>
<script>var izle = "gizli metin";</script></head><body>
<nav><ul><li><a href="/">Anasayfa</a></li><li><a href="/spor">Spor</a></li><li><a href="/iletisim">İletişim</a></li></ul></nav>
<div id="cookie" class="cookie-banner">Bu site çerez kullanır. <button>Kabul et</button></div>
<article><h1>Göl Şenliği</h1>"""
    + "".join(f"<p>{part}</p>" for part in PARAGRAPHS)
    + """</article><aside><a href="/x">Bunlar da ilginizi çekebilir</a></aside>
<footer>Tüm hakları saklıdır © 2024 <a href="/gizlilik">Gizlilik politikası</a></footer></body></html>"""
)


def test_the_main_text_is_left_and_nothing_around_it() -> None:
    found = main_text(PAGE)
    for paragraph in PARAGRAPHS:
        assert paragraph in found
    for around in ("Anasayfa", "çerez", "Kabul et", "hakları", "gizli metin", "ilginizi", "color"):
        assert around not in found
    assert extract_main_text(PAGE) == (found, 1)
    assert main_text(PAGE) == found, "the second time is like the first"


@pytest.mark.parametrize("html", ["", "   ", "<html><body></body></html>", "<p></p>", "<"])
def test_a_page_without_text_gives_nothing(html: str) -> None:
    assert main_text(html) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PAGE, True),
        ("\n<?xml version='1.0'?><!-- not --><HTML><body>x</body></HTML>", True),
        ("<div><p>Bir</p><p>İki</p></div>", True),
        ("3 < 5 ve 7 > 2; a<b>c", False),
        ("HTML'de <br> satırı böler, <p> ise paragraf açar.", False),
        ("List<String> ve Map<Integer, String> türleri", False),
        ("Düz metin.", False),
        ("", False),
    ],
)
def test_what_is_a_page(text: str, expected: bool) -> None:
    assert looks_like_html(text) is expected
    if not expected:
        assert extract_main_text(text) == (text, 0)


def test_comments_before_a_page_take_no_time() -> None:
    assert not looks_like_html("<!-- a -->" * 5000)


@pytest.mark.parametrize(
    ("text", "mended", "count"),
    [
        ("&ccedil;ay &amp; &#351;eker", "çay & şeker", 3),
        ("&amp;quot;Evet&amp;quot; &amp;amp;nbsp;", '"Evet" \xa0', 3),
        ("&#x131;&#305; &#146;", "ıı ’", 3),
        (
            "AT&T; R&D &bilinmez; &; & &notit; x&copy=1",
            "AT&T; R&D &bilinmez; &; & &notit; x&copy=1",
            0,
        ),
        ("düz", "düz", 0),
    ],
)
def test_entities(text: str, mended: str, count: int) -> None:
    assert unescape_entities(text) == (mended, count)
