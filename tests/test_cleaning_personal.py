"""Every planted number is found, look-alikes stay, and what is done follows the setting."""

import random
import string
from collections import Counter
from collections.abc import Callable

import pytest

from sifirdan.cleaning import personal
from sifirdan.cleaning.personal import MASKS, PersonalParams, find_personal, mask_personal

MASK_ALL = PersonalParams(tckn="mask", iban="mask", card="mask", phone="mask", email="mask")
SENTENCES = [
    "Başvuru için {} numaralı kayda bakınız.", "Bilgi: {}.", "{} ile ulaşabilirsiniz", "({})",
    "Dün {}, bugün başka.", "Kaydı {}’dir; saklayınız.", "Belge\n{}\nson satır",
]  # fmt: skip


def digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def tckn(rng: random.Random) -> str:
    """Built from the rule's definition, not by the code under test."""
    first = [rng.randint(1, 9), *(rng.randint(0, 9) for _ in range(8))]
    odd, even = sum(first[0::2]), sum(first[1::2])
    tenth = (odd * 7 - even) % 10
    return "".join(map(str, [*first, tenth, (sum(first) + tenth) % 10]))


def luhn(payload: str) -> str:
    """The number with its check digit: the one of ten that makes the weighted sum end in 0."""
    for check in string.digits:
        total = 0
        for place, char in enumerate(reversed(payload + check)):
            value = int(char) * (1 + place % 2)
            total += value - 9 if value > 9 else value
        if total % 10 == 0:
            return payload + check
    raise AssertionError


def card(rng: random.Random) -> str:
    start, length = rng.choice(
        [("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("34", 15), ("37", 15), ("9792", 16),
         ("6011", 16), ("36", 14), ("3530", 16), ("62", 16)]
    )  # fmt: skip
    number = luhn(start + digits(rng, length - len(start) - 1))
    groups = {16: (4, 4, 4, 4), 15: (4, 6, 5), 14: (14,)}[length]
    separator, parts = rng.choice(["", " ", "-"]), []
    for size in groups:
        parts.append(number[:size])
        number = number[size:]
    return separator.join(parts)


def iban(rng: random.Random) -> str:
    country, body = rng.choice(
        [("TR", digits(rng, 5) + "0" + digits(rng, 16)), ("DE", digits(rng, 18)),
         ("NL", "INGB" + digits(rng, 10)), ("GB", "NWBK" + digits(rng, 14)), ("NO", digits(rng, 11))]
    )  # fmt: skip
    number = "".join(str(int(char, 36)) for char in body + country + "00")
    plain = f"{country}{98 - int(number) % 97:02d}{body}"
    if rng.random() < 0.5:
        return plain
    return " ".join(plain[n : n + 4] for n in range(0, len(plain), 4))


def phone(rng: random.Random) -> str:
    area = rng.choice(["505", "532", "541", "555", "212", "216", "312", "232", "462", "850"])
    a, b, c = digits(rng, 3), digits(rng, 2), digits(rng, 2)
    forms = [
        f"0{area}{a}{b}{c}", f"0 {area} {a} {b} {c}", f"0{area} {a} {b} {c}", f"0({area}) {a} {b} {c}",
        f"(0{area}) {a} {b} {c}", f"0 ({area}) {a} {b}{c}", f"0{area}-{a}-{b}-{c}", f"0{area}.{a}.{b}.{c}",
        f"+90 {area} {a} {b} {c}", f"+90{area}{a}{b}{c}", f"+90 ({area}) {a} {b} {c}",
        f"+90-{area}-{a}-{b}-{c}", f"0090 {area} {a} {b} {c}", f"0{area} {a}{b}{c}", f"0{area}/{a} {b} {c}",
        f"+90 (0) {area} {a} {b} {c}", f"+49 30 {a}{b}{c}", f"+1 (415) {a}-{b}{c}", f"+44 20 7{a} {b}{c}",
        f"0049 30 {a}{b}{c}",
    ]  # fmt: skip
    if area[0] == "5":
        forms += [f"{area} {a} {b} {c}", f"{area}-{a}-{b}-{c}", f"({area}) {a} {b} {c}"]
    return rng.choice(forms)


def email(rng: random.Random) -> str:
    name = rng.choice(["ayse.yilmaz", "info", "m_demir42", "ad+soyad", "şule.öz", "a-b", "x"])
    host = rng.choice(["ornek.com", "posta.ornek.com.tr", "site.org", "üni.edu.tr", "a1-b2.net"])
    at = rng.choice(["@", "@", "@", "[at]", " (at) "])
    return name + at + host


PLANTS: dict[str, Callable[[random.Random], str]] = {
    "tckn": tckn, "card": card, "iban": iban, "phone": phone, "email": email
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANTS)
def test_all_planted_kinds_are_found(kind: str) -> None:
    rng = random.Random(11)
    for _ in range(1000):
        planted, sentence = PLANTS[kind](rng), rng.choice(SENTENCES)
        if kind == "email" and "(at)" in planted and sentence == "({})":
            continue
        text = sentence.format(planted)
        masked, counts, reason = mask_personal(text, MASK_ALL)
        assert masked == sentence.format(MASKS[kind]), (text, find_personal(text))
        assert counts == {kind: 1} and reason is None


def test_several_in_one_text_are_found_once_each() -> None:
    rng = random.Random(5)
    for _ in range(300):
        kinds = rng.sample(list(PLANTS), 4)
        text = "; ".join(f"{n}) {PLANTS[kind](rng)}" for n, kind in enumerate(kinds))
        masked, counts, _ = mask_personal(text, MASK_ALL)
        assert masked == "; ".join(f"{n}) {MASKS[kind]}" for n, kind in enumerate(kinds))
        assert counts == Counter(kinds)


def test_two_numbers_side_by_side_are_two() -> None:
    text = "Tel: 0212 123 45 67 0532 123 45 67, faks 0212 123 45 67-68"
    assert mask_personal(text, MASK_ALL)[1] == {"phone": 3}


def lookalikes(rng: random.Random) -> list[str]:
    """One of each kind of number that is nobody's."""
    year, wrong = rng.randint(1985, 2025), tckn(rng)
    wrong = wrong[:-1] + str((int(wrong[-1]) + rng.randint(1, 9)) % 10)
    day, month = rng.randint(1, 28), rng.randint(1, 12)
    isbn = f"978-{rng.choice(['975', '605'])}-{digits(rng, 3)}-{digits(rng, 3)}-{digits(rng, 1)}"
    other = iban(random.Random(rng.random()))
    bad_iban = other[:2] + f"{(int(other[2:4]) + 1) % 97:02d}" + other[4:]
    return [
        f"{year}/{rng.randint(1, 9999)} E.", f"{year}/{rng.randint(1, 99999)} K.",
        f"{rng.randint(1000, 7500)} sayılı Kanun", f"{day:02d}.{month:02d}.{year} tarihli",
        f"{year}-{month:02d}-{day:02d}T{rng.randint(0, 23):02d}:05:09+03:00", isbn, isbn.replace("-", ""),
        f"Sipariş no: {digits(rng, 10)}", f"sipariş {rng.randint(1, 9)}{digits(rng, 11)}",
        f"SIP-{year}-{digits(rng, 8)}", wrong, f"TR{digits(rng, 6)}", bad_iban,
        f"{rng.randint(1, 23)}:{rng.randint(10, 59)}-{rng.randint(1, 23)}:{rng.randint(10, 59)}",
        f"{rng.randint(1, 999)}.{digits(rng, 3)}.{digits(rng, 3)},{digits(rng, 2)} TL",
        f"{rng.randint(1, 9)} {digits(rng, 3)} {digits(rng, 3)} {digits(rng, 3)} lira",
        f"+{rng.randint(1, 99)}.000.000.000 TL", f"v{rng.randint(1, 9)}.{digits(rng, 2)}.{digits(rng, 4)}",
        f"192.168.{rng.randint(0, 255)}.{rng.randint(1, 254)}", f"0,{digits(rng, 11)}",
        f"{rng.randint(36, 41)}.{digits(rng, 7)}, {rng.randint(26, 44)}.{digits(rng, 7)}",
        f"Dosya No: {digits(rng, 3)}/{digits(rng, 6)}-{digits(rng, 4)}", f"madde {rng.randint(1, 200)}/3-a",
        f"{year}-{year + 1} eğitim yılı 1. dönem {rng.randint(10, 40)} öğrenci", f"@{'kullanici'}{digits(rng, 4)}",
        f"Resmî Gazete: {day}.{month}.{year}/{digits(rng, 5)}", f"{digits(rng, 6)}-{digits(rng, 6)}",
        f"E-{digits(rng, 8)}-{digits(rng, 3)}.{digits(rng, 2)}-{digits(rng, 7)}", f"#{digits(rng, 12)}",
    ]  # fmt: skip


def test_of_500_lookalikes_at_most_one_in_a_hundred_is_masked() -> None:
    rng = random.Random(23)
    kinds = len(lookalikes(rng))
    samples = [lookalikes(rng)[n % kinds] for n in range(500)]
    hit = [text for text in samples if find_personal(rng.choice(SENTENCES).format(text))]
    assert len(hit) <= 5, hit


def test_lookalikes_in_number() -> None:
    """The same with many more, so that the share is known and not luck."""
    rng = random.Random(29)
    samples = [text for _ in range(400) for text in lookalikes(rng)]
    hit = [text for text in samples if find_personal(text)]
    assert len(hit) <= 0.01 * len(samples), (len(hit), len(samples), hit[:20])


@pytest.mark.parametrize(
    "text",
    [
        "(at) bir hayvandır. (et) yemez.", "foo@1.2.3 sürümü", "@ornek.com", "a @ b", "5237 sayılı TCK",
        "444 1 444", "0850", "IBAN TR00", "TR330006100519786457841327", "4111 1111 1111 1112",
        "1234 5678 9012 3456", "10000000147", "3.14159265358979", "00000000000", "+5 puan +10 puan",
        "C++ 2011 ve 1999-2003", "112, 155 ve 156", "978 0 306 40615 7",
    ],
)  # fmt: skip
def test_what_looks_alike_stays(text: str) -> None:
    assert find_personal(text) == []


def test_published_examples_are_found() -> None:
    for text, kind in [
        ("10000000146", "tckn"),  # the smallest number that passes
        ("TR33 0006 1005 1978 6457 8413 26", "iban"),  # the registry's example
        ("DE89370400440532013000", "iban"), ("GB82 WEST 1234 5698 7654 32", "iban"),
        ("4111 1111 1111 1111", "card"), ("5555555555554444", "card"), ("378282246310005", "card"),
    ]:  # fmt: skip
        (found,) = find_personal(text)
        assert (found.kind, found.start, found.end) == (kind, 0, len(text))


def test_what_is_done_follows_the_setting() -> None:
    text = "Bana ayse@ornek.com ya da 0532 123 45 67 ile yazın; ali@ornek.com olmaz."
    keep = PersonalParams(tckn="drop", iban="mask", card="mask", phone="mask", email="keep")
    assert mask_personal(text, keep) == (
        "Bana ayse@ornek.com ya da [TELEFON] ile yazın; ali@ornek.com olmaz.", {"phone": 1}, None
    )  # fmt: skip
    drop = PersonalParams(tckn="mask", iban="mask", card="mask", phone="mask", email="drop")
    assert mask_personal(text, drop) == (text, {"email": 2, "phone": 1}, "personal_email")
    assert mask_personal("Kimse yok.", drop) == ("Kimse yok.", {}, None)
    masked, _, _ = mask_personal(text, MASK_ALL)
    assert mask_personal(masked, MASK_ALL) == (masked, {}, None)


def test_a_long_text_of_odd_characters_takes_no_time() -> None:
    """Patterns that try again at every place would need minutes."""
    for piece in ("a.", "1 ", "1-", "a@", "@a", "(0", "+1", "TR00 ", "[at]", "0 5", "x" * 50 + "@"):
        find_personal(piece * (200_000 // len(piece)))


def test_check_digits_by_brute_force() -> None:
    rng = random.Random(2)
    for _ in range(2000):
        number = digits(rng, 16)
        total = sum(sum(divmod(2 * int(c), 10)) for c in number[::2]) + sum(map(int, number[1::2]))
        assert personal.card_is_valid("4" + number[1:]) == (
            (total - sum(divmod(2 * int(number[0]), 10)) + 8) % 10 == 0
        )
