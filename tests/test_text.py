"""Turkish case, the key of duplicates, surrogates and the alarm for misread text."""

import pytest

from sifirdan import text


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ("IĞDIR", "ığdır"),
        ("ILIK", "ılık"),
        ("İZMİR'DEN", "izmir'den"),
        ("ÇÖĞÜŞ ÂÎÛ", "çöğüş âîû"),
        ("WXQ 3", "wxq 3"),
    ],
)
def test_I_03_case_is_turkish(upper: str, lower: str) -> None:
    assert text.lower_tr(upper) == lower
    assert text.upper_tr(lower) == upper


@pytest.mark.parametrize("form", ["İ", "I\u0307", "İ\u0323", "i\u0307", "İ\u0302", "Bİ\u0331R"])
def test_I_03_no_stray_dot_remains(form: str) -> None:
    assert "\u0307" not in text.lower_tr(form)


def test_I_03_lower_keeps_offsets_of_composed_text() -> None:
    line = "İSTANBUL'DA IŞIKLI İĞDE, ŞANLIURFA'DA ÇOCUK; Şırnak’ta Âlim"
    assert len(text.lower_tr(line)) == len(line)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("İstanbul", "I\u0307stanbul"),
        ("şiş", "s\u0327is\u0327"),
        ("Dağ  başını\nduman almış!", "dağ başını duman almış"),
        ("IŞIK", "ışık"),
        ("“Gel” dedi.", '"Gel" dedi'),
    ],
)
def test_I_12_twins_share_a_key(first: str, second: str) -> None:
    assert text.dedup_key(first) == text.dedup_key(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("kar", "kâr"),
        ("ılık", "ilik"),
        ("1,5 kilo", "15 kilo"),
        ("1 2 300", "1 2 3"),
        ("Привет", "Пока"),
        ("你好", "再见"),
        ("कि", "का"),
        ("?", "!"),
        ("C++", "C"),
    ],
)
def test_I_12_different_texts_keep_different_keys(first: str, second: str) -> None:
    assert text.dedup_key(first) != text.dedup_key(second)


def test_a_key_is_the_key_of_itself() -> None:
    key = text.dedup_key("“IĞDIR’da 3.000 kişi” — dedi; ÂLEM…")
    assert text.dedup_key(key) == key


def test_I_14_a_lone_surrogate_is_found_and_replaced() -> None:
    assert text.has_surrogates("yarım \ud83d çift") and not text.has_surrogates("bütün 😀")
    assert text.replace_surrogates("yarım \ud83d çift 😀") == "yarım \ufffd çift 😀"


def test_I_05_turkish_read_as_western_european_raises_the_alarm() -> None:
    line = "Işığı söndürdüm, şimdi yağmur yağıyor"
    assert text.looks_misread(line.encode("windows-1254").decode("windows-1252"))
    assert not text.looks_misread(line)
    assert not text.looks_misread("ordinary text")
