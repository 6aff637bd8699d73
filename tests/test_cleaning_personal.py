"""Every planted number is found, look-alikes stay, and what is done follows the setting."""

import random
import re
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


@pytest.mark.parametrize(
    "text",
    [
        # dates after a number, rows of a table, series, references
        "001 2023-01-15", "Evrak no: 003 2024-11-05", "002 15.01.2023 14.30", "0044 1.12.2023 09.15",
        "007 2021/3/7 12", "0090 2023-01-15 10", "0 250 100 20 30", "0.250 100 50 25", "0.212 100 50 25",
        "0 270 340 50 60", "001 250 100 20 30", "007 250 100 20 30", "+5 10 15 20 25 30 35",
        "+12 3 4 5 6 7 8 9 10", "+20 25 30 35 40", "+30 32 36 41 45 52", "+60 50 40 30 20 10",
        "+1 2 3 4 5 6 7 8 9 10", "+7 1 9 2 8 3 7 4 6", "0012 3456 7890", "0012-2345-6789-0", "0044-2345-6789-0",
        # codes that are not in use
        "0570 123 45 67", "580 123 45 67", "0213 123 45 67", "+90 413 123 45 67", "0090 231 123 45 67",
        "+999 12 345 67 89", "+21 12 345 67 89", "+2190 123 45 67", "+90 444 1 444", "+1 115 555 26 71",
        # ten digits that nobody calls a telephone number, and what looks like an identity number
        "Sipariş no: 5321234567", "Otel: 5321234567", "telefon fiyatı 5321234567", "Telefon: 2131234567",
        "10000000146/2023", "A-10000000146", "B10000000146", "1.100 000 001 46", "7 100 000 001 46",
        "100 000 001 46 20", "100 000.001 46", "100 000 001 47", "4111.1111.1111.1112", "XIBNTR330006100519786457841326",
        "ali@example.com1",
    ],
)  # fmt: skip
def test_what_no_plan_of_numbers_knows_stays(text: str) -> None:
    assert find_personal(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "TC[10000000146]", "TCKN[10000000146]", "tc[10000000146]", "TCNo[10000000146]", "[10000000146]/Ahmet",
        "Ahmet/[10000000146]", "kimlik_[10000000146]_", "[100 000 001 46]", "No: [100-000-001-46].", "[100\xa0000\xa0001\xa046]",
        "IBAN[TR330006100519786457841326]", "iban[TR33 0006 1005 1978 6457 8413 26]", "[4111.1111.1111.1111]",
        "kart_[4111111111111111]_", "[5555 5555 5555 4444]/Ahmet", "[3782.822463.10005]",
        "Telefon numarası: [5321234567]", "TELEFON NUMARASI [5321234567]", "Tel. No.: [2121234567]",
        "cep telefonu numaram [5551234567]", "Telefon (cep): [5321234567]", "Tel/Faks: [3121234567]",
        "Tel: [5321234567], [5331234567]", "WhatsApp hattı [5321234567]’dir", "[5321234567] numaralı telefon",
        "[ali@example.com]_", "[_ali@example.com]__", "001 2023-01-15 [0532 123 45 67]", "[0392 123 45 67]",
        "[0505 123 45 67]", "[0516 123 45 67]", "[0561 123 45 67]", "[0592 123 45 67]", "[90 532 123 45 67]",
        "[+90 (0212) 123 45 67]", "[+1415 555 2671]", "[001 415 555 2671]", "[+7 495 123-45-67]",
        "[+33 6 12 34 56 78]", "[+45 12 34 56 78]", "[+994 50 123 45 67]", "[00905321234567]", "[+4930 1234567]",
    ],
)  # fmt: skip
def test_numbers_are_found_whatever_touches_them(text: str) -> None:
    plain = text.replace("[", "").replace("]", "")
    masked, counts, _ = mask_personal(plain, MASK_ALL)
    (kind,) = counts
    assert masked == re.sub(r"\[.*?\]", MASKS[kind], text)


def test_every_code_of_the_turkish_plan_is_known() -> None:
    codes = re.findall(  # in the order of the provinces' numbers, then the TRNC
        "[0-9]{3}",
        "322 416 272 472 358 312 242 466 256 266 228 426 434 374 248 224 286 376 364 258 412 284 424 446 442 222"
        " 342 454 456 438 326 246 324 212 216 232 474 366 352 288 386 262 332 274 422 236 344 482 252 436 384 388"
        " 452 464 264 362 484 368 346 282 356 462 428 414 276 432 354 372 382 458 338 318 488 486 378 478 476 226"
        " 370 348 328 380 392",
    )
    known = [code for code in map(str, range(200, 500)) if personal.is_phone(f"0{code} 123 45 67")]
    assert sorted(codes) == known and len(codes) == 83


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


def test_a_long_list_of_numbers_is_masked_whole() -> None:
    """Every place compared with every other would take an hour."""
    text = "\n".join(f"Tel: 0532 {n // 100:03} {n // 10 % 90 + 10} 67" for n in range(50_000))
    masked, counts, reason = mask_personal(text, MASK_ALL)
    assert counts == {"phone": 50_000} and reason is None
    assert masked.count("[TELEFON]") == 50_000 and "0532" not in masked
