"""Misread text comes back, correct text of any language stays, and nothing unseen remains."""

import random
import unicodedata
from pathlib import Path

import pytest

from sifirdan.cleaning import unicode
from sifirdan.cleaning.unicode import mend_mojibake, plain_spaces, strip_invisible

LANGUAGES = Path(__file__).parent / "data/languages"
CODE_PAGES = ("cp1252", "cp1254", "latin-1")


def lines(name: str) -> list[str]:
    return (LANGUAGES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def read_as(text: str, code_page: str) -> str:
    """UTF-8 read as a code page the way browsers do: a byte it lacks becomes a control."""
    bytes_ = text.encode("utf-8")
    return "".join(
        bytes([b]).decode(code_page, "replace").replace("\ufffd", chr(b)) for b in bytes_
    )


@pytest.mark.parametrize("second", [None, *CODE_PAGES])
@pytest.mark.parametrize("first", CODE_PAGES)
def test_I_05_utf8_read_as_a_code_page_comes_back(
    first: str, second: str | None, texts: list[str]
) -> None:
    typeset = "‘Şu “ığdır”lı – Ömer’in — 5 €’luk çayı… « güzel » mi? • 10 ₺ ½ m² 20 °C"
    for line in [*lines("tr"), typeset, *texts]:
        misread = read_as(line, first)
        if second:
            misread = read_as(misread, second)
        assert mend_mojibake(misread)[0] == line
        assert (mend_mojibake(misread)[1] > 0) == (not line.isascii())


@pytest.mark.parametrize(
    ("misread", "mended"),
    [
        ("gÃ¼neÅŸ Ä±ÅŸÄ±ÄŸÄ±", "güneş ışığı"),
        ("Ä°stanbulâ€™da 3 kiÅŸiâ€¦", "İstanbul’da 3 kişi…"),
        ("KÃ–Y", "KÖY"),
        ("Ã–nce", "Önce"),
        ("gÃƒÂ¼neÃ…Å¸", "güneş"),
        ("â€œEvetâ€ dedi", "“Evet” dedi"),
        ("Ã§ok iyi ğŸ˜€ ve ðŸ‘\x8d", "çok iyi 😀 ve 👍"),
        ("s\u00cc\u00a7u", "s\u0327u"),
        ("5 mÂ² ve 20Â°", "5 m² ve 20°"),
        ("dedi.Â\xa0", "dedi.\xa0"),
        ("Evet,Â\xa0ama 10Â\xa0000", "Evet,\xa0ama 10\xa0000"),
        ("Â\xa0Â\xa0Giriş", "\xa0\xa0Giriş"),
        ("Â«EvetÂ» dedi", "«Evet» dedi"),
        ("Â«EVETÂ» dedi", "«EVET» dedi"),
        ("Ã¼Ã§", "üç"),
        ("Ä±sÄ±", "ısı"),
        ("Ä°STANBUL", "İSTANBUL"),
        ("SÌ§EKER", "S\u0327EKER"),
        # doubtful by themselves, but not beside a form that is sure
        ("ANKARALÄ° gÃ¼neÅŸ", "ANKARALİ güneş"),
        ("Â© 2020 GÃ¼neÅŸ", "© 2020 Güneş"),
        ("IRMÃ§ gÃ¼n", "IRMç gün"),
    ],
)
def test_I_05_patterns_of_turkish_mojibake(misread: str, mended: str) -> None:
    assert mend_mojibake(misread)[0] == mended


def test_I_05_windows_1254_read_as_1252_comes_back() -> None:
    mended = 0
    for line in lines("tr"):
        misread = line.encode("cp1254").decode("cp1252")
        found, count = mend_mojibake(misread)
        assert found == (line if count else misread)
        mended += count > 0
    assert mended >= 9, "a line with too few signs of Turkish is left as it is"
    document = "\n".join(lines("tr"))
    assert mend_mojibake(document.encode("cp1254").decode("cp1252"))[0] == document
    for line in ("Bu kadýn ile kýzý", "Kapý açýk, bir halkýn evi", "Orada çok satýyor, bunu al."):
        assert mend_mojibake(line) == (line.replace("ý", "ı"), line.count("ý"))


@pytest.mark.parametrize(
    "text",
    [
        "HÂLÂ¹", "HÂLÂ² bitmedi.", "HÂLÂ©", "EMLÂ³ ve İMLÂ°", "BELÂ¿", "⟨Â²⟩", "Â·B̂", "Â±B̂", "Â·x̂ = 0",
        "iÂ²B̂ − 2Â·B̂", "[Â,B̂]Â²", "LUNEDÌ†", "VENERDÌ§ ve COSÌ‡", "IRMÃ§", "IRMÃ± e", "Ä±", "Ä±B", "«PAPÂ»",
        "HÂLÂ¹ «PAPÂ» IRMÃ§ Ä± LUNEDÌ†", "HÂLÂ\xa0VAR", "HÂLÂ\xa0var", "HÂ\xadKİM", "IRMÃ\xa0de", "IRMÃ–filho",
        "„Ä“ harfi", "Â\xa0ve Ê", "(Â±1)", "MAÇÃ”", "5 Â»",
    ],
)  # fmt: skip
def test_I_05_a_capital_before_a_sign_stays(text: str) -> None:
    assert mend_mojibake(text) == (text, 0)


@pytest.mark.parametrize("name", sorted(path.stem for path in LANGUAGES.glob("*.txt")))
def test_I_05_correct_text_of_any_language_stays(name: str, texts: list[str]) -> None:
    document = "\n".join(lines(name))
    for text in (document, document.upper(), document.lower(), *lines(name)):
        text = unicodedata.normalize("NFC", text)
        assert mend_mojibake(text) == (text, 0)
    if name == "tr":
        for text in texts:
            assert mend_mojibake(text) == (text, 0)


def test_I_05_a_foreign_name_in_turkish_stays() -> None:
    for text in (
        "Guðjohnsen ve Þórðarson bu maçta iki gol attı.",
        "Guðjohnsen iki gol daha atan Þór ile geldi.",
        "Bir kitap, Bedřich Nový adlı yazarın.",
        "Ðorđe bu yıl da yok.",
        "Çek yazar Novotný ile Malý bu romanda bir köyde geçen öyküyü ele alan Veselý gibi yazar.",
        "Hostýn ile Zlatýn bu yolun üstünde iki köy; daha çok gelen yok.",
        "Matematikçi Malý bu dersi Veselý ile verdi.",
    ):
        assert mend_mojibake(text) == (text, 0)


def test_every_misreading_stands_for_one_text() -> None:
    table = unicode._MISREADINGS
    for target in unicode._LETTERS + unicode._COMBINING + unicode._MARKS:
        for page in CODE_PAGES:
            assert table[read_as(target, page)] == target
            for other in CODE_PAGES:
                assert table[read_as(read_as(target, page), other)] == target
    turkish = set("çğıöşüÇĞİÖŞÜâîûÂÎÛ’“”–—… \n\t") | set(map(chr, range(32, 127)))
    assert not any(set(form) <= turkish for form in table)


def test_invisible_characters_go() -> None:
    text = "a\u200bb\xadc\u200dd\u2060e\u202ef\u202cg\u200fh\U000e0041i\u200cj\u2066k\u2069l\u061cm"
    assert strip_invisible(text) == ("abcdefghijklm", 12)


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d👩\u200d👧 👩🏽\u200d⚕\ufe0f ❤\ufe0f\u200d🔥 ☺\ufe0f 1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # England
        "می\u200cخواهم",  # Persian
        "क्\u200dष",  # Hindi
        "ÇOCUK ŞANLIURFA'DAN GELENLERİ ÖĞÜN OLARAK YİYOR",
    ],
)
def test_I_02_joiners_of_emoji_and_of_scripts_stay(text: str) -> None:
    assert strip_invisible(text) == (text, 0)


def test_spaces_of_all_widths_become_plain() -> None:
    assert plain_spaces("5\xa0kg\u202f%\u2009ve\u3000o") == ("5 kg % ve o", 4)


def test_line_ends_of_all_kinds_become_lf() -> None:
    assert unicode.unify_line_ends("a\r\nb\rc\x0bd\x0ce\x85f\n\u2028g") == (
        "a\nb\nc\nd\ne\nf\n\u2028g",
        5,
    )


def test_repairs_of_random_characters_are_stable() -> None:
    rng = random.Random(3)
    pool = "aıİşğÃÄÅÂâ€¼±Ÿ°\xad\xa0\x85\u200b\u200dðýþ \n😀" + "".join(map(chr, range(0x80, 0xA0)))
    for _ in range(3000):
        text = "".join(rng.choices(pool, k=rng.randint(1, 12)))
        once, _ = mend_mojibake(text)
        assert mend_mojibake(once) == (once, 0)
        for repair in (strip_invisible, plain_spaces, unicode.strip_controls, unicode.compose):
            once, count = repair(text)
            assert repair(once) == (once, 0) and (count == 0) == (once == text)


def test_a_text_that_looks_sound_needs_no_repair() -> None:
    repairs = (
        mend_mojibake, unicode.unify_line_ends, unicode.strip_controls, strip_invisible, plain_spaces
    )  # fmt: skip
    acted_on = [*unicode._MISREADINGS, "ğŸ˜€", "ðŸ˜€", *map(chr, range(0x3100)), "\ufeff", "\uffff"]
    acted_on += ["\ufdd0", "\ufff9", "\U000e0041", "çok bu iyi þey, þu kýzýn"]
    for text in acted_on:
        if unicode.looks_sound(text):
            assert all(repair(text) == (text, 0) for repair in repairs), ascii(text)
    for name in ("tr", "tr_ascii", "en", "az", "crh", "uz"):
        assert unicode.looks_sound("\n".join(lines(name)))
