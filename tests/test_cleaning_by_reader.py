"""The repairs and rules by source: what they mend, what they leave, in which order they come."""

import unicodedata
from collections import Counter

import pytest

from sifirdan.cleaning import by_reader
from sifirdan.cleaning.by_reader import repair


def test_I_02_repair_leaves_good_turkish_alone() -> None:
    line = "ÇOCUK ŞANLIURFA'DAN GELENLERİ ÖĞÜN OLARAK YİYOR\nİkinci satır.\tSekme"
    assert repair(line, "own_text") == (line, {})
    assert repair(line, "own_text", "web") == (line, {})


def test_I_02_repair_leaves_our_own_texts_alone(texts: list[str]) -> None:
    for document in texts:
        composed = unicodedata.normalize("NFC", document).strip()
        assert repair(composed, "own_text") == (composed, {})


def test_I_14_controls_go_and_are_counted() -> None:
    repaired, counts = repair("a\x00b\x1bc\x94d\ufeffe\ufffff\r\ng\rh\x85i\x0cj", "own_text")
    assert repaired == "abcdef\ng\nh\ni\nj"
    assert counts == {"strip_controls": 5, "unify_line_ends": 4}


def test_repair_composes() -> None:
    repaired, counts = repair(unicodedata.normalize("NFD", "Şırnak'ta öğün"), "own_text")
    assert repaired == "Şırnak'ta öğün"
    assert counts == {"compose": 1}


def test_an_accent_meets_its_letter_when_what_parted_them_is_gone() -> None:
    assert repair("s\u200b\u0327u", "own_text") == ("şu", {"strip_invisible": 1, "compose": 1})


@pytest.mark.parametrize("text_kind", ["curated", "web"])
def test_repair_is_stable(text_kind: by_reader.TextKind) -> None:
    for reader in by_reader.REPAIRS:
        once, _ = repair("kota (isim): sınır , pay \nÖrnek cümle; ", reader, text_kind)
        assert repair(once, reader, text_kind) == (once, {})


def test_only_web_text_loses_markup() -> None:
    line = "5 &lt; 6 &amp;nbsp;ve &ccedil;ay"
    assert repair(line, "own_text")[0] == line
    assert repair(line, "own_text", "web") == (
        "5 < 6  ve çay",
        Counter(unescape_entities=3, plain_spaces=1),
    )


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
    assert by_reader.repair_sentence(raw) == mended


def test_footnote_marks_go_but_numbers_stay() -> None:
    line = "Nuri1 oradaysa Urban’ın2, 3 kişi; C2 ve 1920 yılı, 5’inci Tümen, m2x"
    mended, count = by_reader.drop_footnote_marks(line)
    assert mended == "Nuri oradaysa Urban’ın, 3 kişi; C2 ve 1920 yılı, 5’inci Tümen, m2x"
    assert count == 2


def test_book_index_is_cut_only_where_references_fill_it() -> None:
    index = " ".join(f"Ad{n} (C-II)4{n}" for n in range(20))
    assert by_reader.cut_book_index(f"Son söz DİZİN A {index}") == ("Son söz", 1)
    assert by_reader.cut_book_index("Kitabın DİZİN kısmı") == ("Kitabın DİZİN kısmı", 0)


def test_wiki_rest_goes_only_from_the_start() -> None:
    assert by_reader.drop_wiki_rest(", 1 Mart 1921]]\n\nEfendiler;") == ("Efendiler;", 1)
    assert by_reader.drop_wiki_rest("Söz [[bağ]] söz") == ("Söz [[bağ]] söz", 0)


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
    found = by_reader.reject_reason(document, reader, min_chars=20, max_replacement_share=0.0)
    assert found == reason


def test_I_04_twenty_documents_of_a_thousand_are_turned_away() -> None:
    texts = [f"{n}. içeriğin ücretsiz olduğu bir yer" for n in range(1000)]
    for n in range(0, 1000, 50):
        texts[n] = texts[n].replace("ç", "\ufffd").replace("ğ", "\ufffd").replace("ü", "\ufffd")
    reasons = Counter(
        by_reader.reject_reason(document, "own_text", min_chars=20, max_replacement_share=0.0)
        for document in texts
    )
    assert reasons == {None: 980, "replacement_characters": 20}


def test_I_04_replacement_share_is_a_limit() -> None:
    line = "on karakter\ufffd ve biraz daha"
    for share, reason in ((0.5, None), (0.01, "replacement_characters")):
        found = by_reader.reject_reason(line, "own_text", min_chars=1, max_replacement_share=share)
        assert found == reason
