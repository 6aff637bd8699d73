"""Personal data in a text: identity numbers, bank accounts, payment cards, telephone numbers and
e-mail addresses, each recognised by its check digits or its form, so that law and decision numbers,
ISBNs, dates and prices stay. Found places are masked, kept, or make the text be dropped.

Not for names and postal addresses, which no rule of this kind can find.
"""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Policy = Literal["mask", "drop", "keep"]

MASKS = {
    "email": "[E-POSTA]",
    "iban": "[IBAN]",
    "card": "[KART]",
    "phone": "[TELEFON]",
    "tckn": "[TCKN]",
}


@dataclass(frozen=True)
class PersonalParams:
    """What is done with each kind: put a mask in its place, drop the whole text, or keep it."""

    tckn: Policy
    iban: Policy
    card: Policy
    phone: Policy
    email: Policy


@dataclass(frozen=True)
class Found:
    """One place: text[start:end] is of this kind."""

    kind: str
    start: int
    end: int


def mask_personal(text: str, params: PersonalParams) -> tuple[str, Counter[str], str | None]:
    """The text with masks, how many places of each kind were masked or are a reason to drop it, and
    that reason: 'personal_' with the kind."""
    policies: dict[str, Policy] = vars(params)
    places = [place for place in find_personal(text) if policies[place.kind] != "keep"]
    counts = Counter(place.kind for place in places)
    for kind in counts:
        if policies[kind] == "drop":
            return text, counts, f"personal_{kind}"
    parts, end = [], 0
    for place in places:
        parts += [text[end : place.start], MASKS[place.kind]]
        end = place.end
    return "".join([*parts, text[end:]]), counts, None


def find_personal(text: str) -> list[Found]:
    """Every place, in order; none overlaps another."""
    found: list[Found] = []  # in order: a list of many numbers must not be compared pair by pair
    windows = list(_windows(text))
    for place in (*_emails(text), *_ibans(text, windows), *_numbers(text, windows)):
        at = bisect(found, place.start, key=lambda other: other.start)
        follows = at == 0 or found[at - 1].end <= place.start
        if follows and (at == len(found) or place.end <= found[at].start):
            found.insert(at, place)
    return found


# E-mail. Only what stands around an "@" is looked at: a search for an address from its first letter
# would try every word of the text.

_AT = re.compile(r"@|[\[(](?:at|et)[\])]")
_LOCAL_PART = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64} ?\Z")
_DOT = r"(?:\.| ?[\[(](?:dot|nokta)[\])] ?)"
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_DOMAIN = re.compile(rf" ?(?:{_LABEL}{_DOT}){{1,8}}[^\W\d_]{{2,24}}(?![^\W_]|@)")


def _emails(text: str) -> Iterator[Found]:
    if not any(sign in text for sign in ("@", "[at]", "(at)", "[et]", "(et)")):
        return
    for at in _AT.finditer(text):
        domain = _DOMAIN.match(text, at.end())
        local = _LOCAL_PART.search(text[max(0, at.start() - 65) : at.start()])
        plain = at[0] == "@"
        if not local or not domain or (plain and (local[0][-1] == " " or domain[0][0] == " ")):
            continue
        name = local[0].lstrip(".!#$%&'*+/=?^`{|}~-")
        if name.strip():
            yield Found("email", at.start() - len(name), domain.end())


# Every other kind has digits in a row. Only what stands around such a row is looked at.

_DIGIT_RUN = re.compile(r"[0-9][0-9 .\-/()\xa0]{6,}[0-9]")
_MARGIN = 40  # characters; an IBAN may begin with letters


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Parts of the text with many digits in a row, and what stands around them; none overlaps."""
    start = end = 0
    for run in _DIGIT_RUN.finditer(text):
        if run.start() - _MARGIN > end:
            if end:
                yield start, end
            start = max(0, run.start() - _MARGIN)
        end = run.end() + _MARGIN
    if end:
        yield start, end


# IBAN: two letters, two check digits, and by country a fixed number of letters and digits.

# Lengths by country, from the IBAN registry (ISO 13616; SWIFT publishes it).
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29,
    "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29,
    "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
    "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20,
    "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22,
    "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25,
    "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25,
    "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
_IBAN_START = re.compile(
    r"(?:[A-Z]{2}|tr|Tr)(?:(?<![A-Za-z0-9]..)|(?<=IBAN..)|(?<=[Ii]ban..)) ?[0-9]{2}(?=[ -]?[A-Za-z0-9])"
)
_PART_OF_IBAN = re.compile(r"[ \xa0-]?[A-Za-z0-9]")
_ASCII_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _ibans(text: str, windows: list[tuple[int, int]]) -> Iterator[Found]:
    for start in _search(_IBAN_START, text, windows):
        end = start.end()
        for _ in range(_IBAN_LENGTHS.get(start[0][:2].translate(_ASCII_UPPER), 0) - 4):
            part = _PART_OF_IBAN.match(text, end)
            if not part:
                break
            end = part.end()
        else:
            whole = text[start.start() : end]
            if not text[end : end + 1].isalnum() and iban_is_valid(whole):
                yield Found("iban", start.start(), end)


def iban_is_valid(iban: str) -> bool:
    """Its country's length, and the check of ISO 7064, MOD 97-10: moved round and written in digits,
    the number leaves 1."""
    plain = re.sub(r"[\s-]", "", iban).translate(_ASCII_UPPER)
    if not (plain.isascii() and plain.isalnum() and len(plain) == _IBAN_LENGTHS.get(plain[:2])):
        return False
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


# Numbers, told apart by length, prefix, check digits and grouping. Each stands alone: a longer
# number, a decimal, a date or a word around it makes it something else. What a pattern may begin with
# comes first: it is false at most places, and quicker to try than what must not stand before.

_ALONE_BEFORE = r"(?<![\w+#])(?<![0-9][.,/-])(?<!\b[A-ZÇĞİÖŞÜ]-)"
# not inside the groups of four of an IBAN or a card that failed its check
_NO_GROUPS_BEFORE = r"(?<![ -][0-9]{4}[ -])(?<![A-Z]{2}[0-9]{2} )"
_ALONE_AFTER = r"(?![\w/])(?![.,-][0-9])"
_SEP = r"[ .\-/\xa0]"
# What has check digits may also touch an underscore, or a slash and a word.
_CHECKED_BEFORE = r"(?<![^\W_])(?<![+#])(?<![0-9][.,/-])(?<!\b[A-ZÇĞİÖŞÜ]-)"
_CHECKED_AFTER = r"(?![^\W_])(?!/[0-9])(?![.,-][0-9])"
_TCKN = re.compile(
    rf"(?=[1-9])(?:{_CHECKED_BEFORE}|(?<=[Tt][Cc])|(?<=[Tt][Cc][Kk][Nn])|(?<=[Nn][Oo]))(?:[1-9][0-9]{{10}}"
    r"|(?<![0-9] )[1-9][0-9]{2}([ \xa0.-])[0-9]{3}\1[0-9]{3}\1[0-9]{2}(?! [0-9]))"
    rf"{_CHECKED_AFTER}"
)
_CARD = re.compile(
    rf"(?=[2-69]){_CHECKED_BEFORE}{_NO_GROUPS_BEFORE}(?:[0-9]{{14,19}}"
    r"|[0-9]{4}([ \xa0.-])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{1,3})?"
    rf"|3[0-9]{{3}}([ \xa0.-])[0-9]{{6}}\2[0-9]{{4,5}}){_CHECKED_AFTER}"
)
_REST = rf"[0-9]{{3}}{_SEP}?(?:[0-9]{{2}}{_SEP}?[0-9]{{2}}|[0-9]{_SEP}[0-9]{{3}})"
_PHONE = re.compile(
    # +90 532 …, 0090 (532) …, 0 (532) …, 0532 …, (0532) …; 444 and its like are nobody's own
    rf"(?=[0-9+(])(?:{_NO_GROUPS_BEFORE}(?:(?<![\w+])\+90{_SEP}?(?:\(0\){_SEP}?)?|{_ALONE_BEFORE}(?:0090|90 ?(?=\(?5)|\(?0))"
    rf"{_SEP}?\(?(?:[2-5][0-9]{{2}}|8[05]0)\)?{_SEP}{{0,2}}{_REST}(?!\w)"
    # 532 123 45 67: without a zero only mobile numbers in their usual groups
    rf"|{_ALONE_BEFORE}(?<![0-9] )(?:\(5[0-9]{{2}}\) ?|5[0-9]{{2}}[ -])"
    rf"[0-9]{{3}}[ -][0-9]{{2}}[ -]?[0-9]{{2}}{_ALONE_AFTER}"
    # +49 30 1234567, 0049-30-1234567
    rf"|{_NO_GROUPS_BEFORE}(?<![\w+#])(?:\+[1-9]|00[1-9][0-9]{{0,2}}[ -])"
    r"(?:[ .()\xa0/-]{0,2}[0-9]){8,13}(?!\w))"
)
# Ten bare digits are a number to call only where the text says so, before or after them.
_TEN_DIGITS = re.compile(r"(?<![0-9])[2-58][0-9]{9}(?!\w)")
_CALLED = re.compile(
    r"\b(?:(?:cep)?tel|telefon\w{0,5}|gsm|cep|mobil|whatsapp|faks|fax)[ .:=()/\xa0-]{0,4}(?:(?:tel\w{0,9}"
    r"|gsm|cep|faks|hat\w{0,3}|no\w{0,3}|numara\w{0,4}|[2-58][0-9]{9})[ .,:=()/\xa0-]{0,4}){0,3}\Z",
    re.IGNORECASE,
)
_CALLED_AFTER = re.compile(
    r" ?(?:numaralı|no['’]?lu|nolu) (?:cep |sabit |mobil )?(?:tel|gsm|hat)", re.IGNORECASE
)
# The area codes of the 81 provinces and the TRNC, then mobile codes, toll-free and shared numbers: the
# numbering plan of the Turkish regulator, BTK.
_TURKISH = re.compile(
    "2(?:[13][26]|[28][2468]|[45][268]|[67][246])|3(?:[13][28]|[24-6][2468]|[78][02468]|92)"
    "|4(?:[16][246]|[23578][2468]|4[26])|5[0-69][0-9]|8[05]0"
)
# Country codes of ITU-T E.164 (list of assigned codes).
_COUNTRY = re.compile(
    "1|7|2(?:[07]|1[12368]|[2346][0-9]|5[0-8]|9[01789])|3(?:[0-469]|5[0-9]|7[0-9]|8[0-35-79])"
    "|4(?:[013-9]|2[013])|5(?:[1-8]|0[0-9]|9[0-9])|6(?:[0-6]|7[02-9]|8[0-35-9]|9[0-2])"
    "|8(?:[1246]|0[08]|5[02356]|7[08]|8[0-368])|9(?:[0-58]|6[0-8]|7[0-79]|9[2-68])"
)
# Countries whose numbers all have ten digits, and how these begin.
_TEN_DIGITS_WITHIN = {
    country: re.compile(rf"(?=[0-9]{{10}})(?:{first})")
    for country, first in (("1", "[2-9]"), ("7", "[3-9]"), ("90", _TURKISH.pattern))
}
_DATE = re.compile(
    r"(?<![0-9])(?:(?:19|20)[0-9]{2}([./-])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12][0-9]|3[01])"
    r"|(?:0?[1-9]|[12][0-9]|3[01])([./-])(?:0?[1-9]|1[0-2])\2(?:19|20)[0-9]{2})(?![0-9])"
)
# References in groups of four, 0044-2345-6789-0, and rows of decimals, 0.212 100 50 25.
_REFERENCE = re.compile(r"[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1|0\.[0-9]+[ \xa0]")
# Not numbers to call: +10.000.000.000, +100 000 000, +41.0082376
_AMOUNT = re.compile(r"\+[0-9]{1,3}(?:(?:\.[0-9]{3})+|(?:[ .][0-9]{3})*[ .]000|\.[0-9]{4,})")


def _numbers(text: str, windows: list[tuple[int, int]]) -> Iterator[Found]:
    for match in _search(_CARD, text, windows):
        if card_is_valid(match[0]):
            yield Found("card", *match.span())
    for match in _phones(text, windows):
        brackets = match[0].count("(") - match[0].count(")")  # one may be the sentence's
        around = match[0][0] == "(" and brackets > 0
        yield Found("phone", match.start() + around, match.end())
    for match in _search(_TEN_DIGITS, text, windows):
        start, end = match.span()
        called = _CALLED.search(text, max(0, start - 40), start) or _CALLED_AFTER.match(text, end)
        if called and _TURKISH.match(match[0]):
            yield Found("phone", start, end)
    for match in _search(_TCKN, text, windows):
        if tckn_is_valid(match[0]):
            yield Found("tckn", *match.span())


def _phones(text: str, windows: list[tuple[int, int]]) -> Iterator[re.Match[str]]:
    for start, end in windows:
        while match := _PHONE.search(text, start, end):
            found = is_phone(match[0])
            start = match.end() if found else match.start() + 1  # one may follow a date
            if found:
                yield match


def is_phone(number: str) -> bool:
    """Of something in the form of a telephone number: a code that is in use, and no amount, date,
    reference or series."""
    if _AMOUNT.fullmatch(number) or _DATE.search(number) or _REFERENCE.match(number):
        return False
    groups = re.findall("[0-9]+", number)
    digits = "".join(groups)
    if number[0] != "+" and not digits.startswith("00") and len(digits) < 12:
        return bool(_TURKISH.match(digits.removeprefix("0")))
    return _is_phone_abroad(number[0] == "+", [groups[0].removeprefix("00"), *groups[1:]])


def _is_phone_abroad(plus: bool, groups: list[str]) -> bool:
    """Of the digits after + or 00."""
    digits = "".join(groups)
    country = _COUNTRY.match(digits)
    if not country or (len(groups[0]) <= 3 and groups[0] != country[0]):
        return False
    own = digits[country.end() :].lstrip("0")  # +90 (0212)
    if country[0] in _TEN_DIGITS_WITHIN and not _TEN_DIGITS_WITHIN[country[0]].match(own):
        return False
    if country[0] == "1" and not plus and own[3] in "01":  # 001 also begins a row of a table
        return False
    numbers = [int(group) for group in groups]
    rising = len(numbers) > 4 and sorted(numbers) in (numbers, numbers[::-1])
    return not rising and sum(len(group) == 1 for group in groups[1:]) <= 2


def _search(
    pattern: re.Pattern[str], text: str, windows: list[tuple[int, int]]
) -> Iterator[re.Match[str]]:
    for start, end in windows:
        yield from pattern.finditer(text, start, end)


def tckn_is_valid(number: str) -> bool:
    """Eleven digits of which the last two check the others (the rule of the Turkish registry)."""
    digits = [int(char) for char in re.sub(r"[\s.-]", "", number)]
    if len(digits) != 11 or not digits[0]:
        return False
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return digits[9] == tenth and digits[10] == sum(digits[:10]) % 10


# First digits and lengths of payment cards, from what the networks publish (ISO/IEC 7812): Visa,
# Mastercard, American Express, Diners, JCB, Discover, UnionPay, Troy, Mir and Maestro.
_CARD_RANGES: tuple[tuple[int, int, range], ...] = (
    (400000, 499999, range(16, 20)), (510000, 559999, range(16, 17)),
    (222100, 272099, range(16, 17)), (340000, 349999, range(15, 16)),
    (370000, 379999, range(15, 16)), (300000, 305999, range(14, 15)),
    (360000, 369999, range(14, 15)), (380000, 399999, range(14, 15)),
    (352800, 358999, range(16, 20)), (601100, 601199, range(16, 20)),
    (644000, 659999, range(16, 20)), (620000, 629999, range(16, 20)),
    (979200, 979299, range(16, 17)), (220000, 220499, range(16, 20)),
    (501800, 501899, range(16, 20)), (502000, 502099, range(16, 20)),
    (503800, 503899, range(16, 20)), (589300, 589399, range(16, 20)),
    (630400, 630499, range(16, 20)), (675900, 675999, range(16, 20)),
    (676100, 676399, range(16, 20)),
)  # fmt: skip


def card_is_valid(number: str) -> bool:
    """First digits and length of a payment card, and the check of Luhn (ISO/IEC 7812-1, annex B)."""
    plain = re.sub(r"[\s.-]", "", number)
    first = int(plain[:6])
    known = any(low <= first <= high and len(plain) in sizes for low, high, sizes in _CARD_RANGES)
    doubled = sum(sum(divmod(2 * int(char), 10)) for char in plain[-2::-2])
    return known and (doubled + sum(map(int, plain[::-2]))) % 10 == 0
