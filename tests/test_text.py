"""Turkish case, keys, repairs and rules."""

import unicodedata

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


def test_I_02_repair_leaves_good_turkish_alone() -> None:
    line = "ÇOCUK ŞANLIURFA'DAN GELENLERİ ÖĞÜN OLARAK YİYOR\nİkinci satır.\tSekme"
    assert text.repair(line, "own_text") == (line, {})


def test_I_14_controls_go_and_are_counted() -> None:
    repaired, counts = text.repair("a\x00b\x1bc\x94d\ufeffe\ufffff\r\ng\rh\x85i\x0cj", "own_text")
    assert repaired == "abcdef\ng\nh\ni\nj"
    assert counts == {"strip_controls": 5, "unify_line_ends": 4}


def test_repair_composes() -> None:
    repaired, counts = text.repair(unicodedata.normalize("NFD", "Şırnak'ta öğün"), "own_text")
    assert repaired == "Şırnak'ta öğün"
    assert counts == {"compose": 1}


def test_repair_is_stable() -> None:
    for reader in text.REPAIRS:
        once, _ = text.repair("kota (isim): sınır , pay \nÖrnek cümle; ", reader)
        assert text.repair(once, reader) == (once, {})


@pytest.mark.parametrize(
    ("raw", "mended"),
    [
        ("Kedi miyav\x94 diye ses çıkarmak", "Kedi miyav diye ses çıkarmak."),
        ("Modele bakarak resim yapıyordu .", "Modele bakarak resim yapıyordu."),
        ("Nereye gidiyorsun ?", "Nereye gidiyorsun?"),
        ("Bir abam var , atarım ;", "Bir abam var, atarım."),
        ("“Gel!”", "“Gel!”"),
        ("“Gel”", "“Gel”."),
        ("Sonra…", "Sonra…"),
        ("saat 10 .30'da", "saat 10 .30'da."),
        ("  ", ""),
        (",", "."),
    ],
)
def test_repair_sentence(raw: str, mended: str) -> None:
    assert text.repair_sentence(raw) == mended


def test_footnote_marks_go_but_numbers_stay() -> None:
    line = "Nuri1 oradaysa Urban’ın2, 3 kişi; C2 ve 1920 yılı, 5’inci Tümen, m2x"
    mended, count = text.drop_footnote_marks(line)
    assert mended == "Nuri oradaysa Urban’ın, 3 kişi; C2 ve 1920 yılı, 5’inci Tümen, m2x"
    assert count == 2


def test_book_index_is_cut_only_where_references_fill_it() -> None:
    index = " ".join(f"Ad{n} (C-II)4{n}" for n in range(20))
    assert text.cut_book_index(f"Son söz DİZİN A {index}") == ("Son söz", 1)
    assert text.cut_book_index("Kitabın DİZİN kısmı") == ("Kitabın DİZİN kısmı", 0)


def test_wiki_rest_goes_only_from_the_start() -> None:
    assert text.drop_wiki_rest(", 1 Mart 1921]]\n\nEfendiler;") == ("Efendiler;", 1)
    assert text.drop_wiki_rest("Söz [[bağ]] söz") == ("Söz [[bağ]] söz", 0)


@pytest.mark.parametrize(
    ("document", "reader", "reason"),
    [
        ("", "own_text", "empty"),
        ("kısa", "own_text", "too_short"),
        ("i\ufffderi\ufffdin ücretsiz olduğu bir yer", "own_text", "replacement_characters"),
        ("yarım bir çift \ud83d burada duruyor", "own_text", "invalid"),
        ("(zaman) (isim): Bir zaman dilimi.", "kenet", "placeholder"),
        ("(zaman) diye başlayan kendi metnim.", "own_text", None),
        ("akıcı davranan (sıfat):", "kenet", "no_definition"),
        ("akıcı (sıfat): Kolayca akan, durmayan.", "kenet", None),
        ("\n".join(["Açış (1 Mart 1921)"] * 5), "ataturk_speeches", "index_page"),
        ("\n".join(["Açış (1 Mart 1921)"] * 4 + ["Söz."]), "ataturk_speeches", None),
    ],
)
def test_I_04_reject_reasons(document: str, reader: str, reason: str | None) -> None:
    found = text.reject_reason(document, reader, min_chars=20, max_replacement_share=0.0)
    assert found == reason


def test_I_04_replacement_share_is_a_limit() -> None:
    line = "on karakter\ufffd ve biraz daha"
    for share, reason in ((0.5, None), (0.01, "replacement_characters")):
        found = text.reject_reason(line, "own_text", min_chars=1, max_replacement_share=share)
        assert found == reason


def test_I_05_turkish_read_as_western_european_raises_the_alarm() -> None:
    line = "Işığı söndürdüm, şimdi yağmur yağıyor"
    assert text.looks_misread(line.encode("windows-1254").decode("windows-1252"))
    assert not text.looks_misread(line)
    assert not text.looks_misread("ordinary text")
