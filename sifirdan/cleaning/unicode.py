"""Repairs of characters: text that was decoded wrongly, composed forms, line ends, and what cannot
be seen. Each returns the mended text and how many places it mended, and leaves correct text alone.

Not for markup (html.py) and not for what only one source needs (by_reader.py).
"""

import re
import unicodedata

from sifirdan.text import looks_misread

# UTF-8 that was read as a one-byte code page: 'gÃ¼n' for 'gün', 'Ä±ÅŸÄ±k' for 'ışık'. What can
# come back is this list: the letters of Turkish and of the names in it, and the marks of good
# typesetting. A list, because a general decoder also "mends" correct text such as „Ä“ and MAÇÃ”.
_LETTERS = "ıİşŞğĞüÜöÖçÇâÂîÎûÛéèêëáàäÄñóôíúßéÉ"
_COMBINING = "\u0302\u0306\u0307\u0308\u0327"  # the marks of decomposed Turkish letters
_MARKS = "‘’‚“”„†•…‹›‐–—€₺™−\u200b\u200e\u2009\u202f\ufeff\xa0¡§©«\xad®°±²³´·¹º»¼½¾¿×"
_CODE_PAGES = ("cp1252", "cp1254", "latin-1")
# Emoji take four bytes: 'ðŸ˜€', or 'ğŸ˜€' through the Turkish code page.
_EMOJI = re.compile("[ðğ][Ÿ\x9f][\x80-\xbf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ€]{2}")
_MOST_PASSES = 4  # a text may have gone through the mill more than once


# Any character that the repairs of this file but `compose` act on, and some that they leave. Most
# texts have none of them, which two looks without a regular expression tell several times faster:
# controls, spaces and what cannot be seen are not printable, and the rest is named.
_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufdd0-\ufdef"
    "\ufeff\ufff9-\uffff\U000e0000-\U000e007fðýþÐÝÞÂÃÄÅÌï]|â[€‚„ˆ]|ğŸ"
)


# Of a pair the rarer letter: â and ğ are Turkish.
_VISIBLE_SUSPECTS = "ðýþÐÝÞÂÃÄÅÌï€‚„ˆŸ\ufffc\ufffd"


def looks_sound(text: str) -> bool:
    """True where no repair of this file but `compose` can find anything; one quick look."""
    plain = text.replace("\n", " ").replace("\t", " ").isprintable()
    return (plain and not any(map(text.__contains__, _VISIBLE_SUSPECTS))) or not _SUSPECT.search(
        text
    )


def _read_as(text: str, code_page: str) -> str:
    """UTF-8 bytes of `text` in a code page; a byte that it lacks becomes the control character
    that browsers and Windows put there."""
    return "".join(bytes([byte]).decode(code_page, "ignore") or chr(byte) for byte in text.encode())


def _misreadings() -> dict[str, str]:
    """Every misreading of every target, once and twice over, and what it stands for."""
    table: dict[str, str] = {}
    for target in _LETTERS + _COMBINING + _MARKS:
        once = {_read_as(target, page) for page in _CODE_PAGES}
        twice = {_read_as(form, page) for form in once for page in _CODE_PAGES}
        table |= dict.fromkeys(once | twice, target)
    return table | {"â€": "”"}  # its third byte is a control character, which others strip


_MISREADINGS = _misreadings()
_MISREAD = re.compile("|".join(map(re.escape, sorted(_MISREADINGS, key=len, reverse=True))))
# A capital and a sign may also be just that: „Ä“, «PAPÂ», HÂLÂ², IRMÃ§, ⟨Â²⟩. What stands around them
# tells, or a form elsewhere in the text that cannot be anything else.
_DOUBTFUL = {
    form
    for form in _MISREADINGS
    if len(form) == 2
    and form[0] in "ÂÃÄÌ"
    and unicodedata.category(form[1]) not in ("Lu", "Ll", "Cc")
}
# Of these what stands for a letter; à and í end in a space and a hyphen, as capitals do (IRMÃ DE).
_LETTER_FORMS = {form for form in _DOUBTFUL if form[0] in "ÃÄ" and form[1] not in "\xa0\xad"}
# Two of these in a row are no text.
_NEVER_TWICE = _LETTER_FORMS | {"Â\xa0"}
_CLAUSE_END = re.compile(r"(?:[.!?…]|\w[a-zçğıöşü][,;:)])\Z")


def mend_mojibake(text: str) -> tuple[str, int]:
    """Turkish that was decoded wrongly: 'gÃ¼neÅŸ' (UTF-8 read as a code page, once or twice) and
    'güneþ' (Windows-1254 read as 1252) become 'güneş'."""
    total = 0
    for _ in range(_MOST_PASSES):
        text, count = _mend_pass(text)
        total += count
        if not count:
            break
    text, count = _mend_turkish_letters(text)
    return text, total + count


def _mend_pass(text: str) -> tuple[str, int]:
    if not _MISREAD.search(text) and not _EMOJI.search(text):
        return text, 0
    text, emoji = _EMOJI.subn(_emoji, text)
    if not (emoji or any(map(_is_sure, _MISREAD.finditer(text)))):
        return text, 0
    text, count = _MISREAD.subn(lambda match: _MISREADINGS[match[0]], text)
    return text, count + emoji


def _is_sure(match: re.Match[str]) -> bool:
    """True where no capital with a sign after it can be meant."""
    form, text, start = match[0], match.string, match.start()
    before, after = text[start - 1 : start], text[match.end() : match.end() + 1]
    if form not in _DOUBTFUL:
        return True
    if form[0] == "Â" and "\u0302" in text[max(0, start - 40) : match.end() + 40]:
        return False  # operators of physics: iÂ²B̂
    if before.islower():  # mÂ²
        return True
    if form in _NEVER_TWICE and text[max(0, start - 2) : start] in _NEVER_TWICE:
        return True
    if form in _LETTER_FORMS:  # GÃ¼ney, KÃ–Y, Ä°stanbul, but not IRMÃ§ nor Ä±B
        upper = _MISREADINGS[form].isupper()
        fits = after.isupper() if upper else after.islower()
        return fits or (upper and after.islower() and not before.isupper())
    if form[0] == "Ì":  # a mark over the letter before
        return before.isupper() and after.isalpha()
    if form in ("Â\xa0", "Â»") and _CLAUSE_END.search(text, max(0, start - 3), start):
        return True
    if form in ("Â¡", "Â¿", "Â«"):
        return after.isalpha() and (not before or before.isspace())
    return form[0] == "Â" and form != "Â»" and before.isdecimal()  # 5Â°


_BYTES = {
    bytes([byte]).decode(page): byte
    for page in ("cp1254", "cp1252")
    for byte in range(0x80, 0x100)
    if bytes([byte]).decode(page, "ignore")
}


def _emoji(match: re.Match[str]) -> str:
    found = bytes(_BYTES.get(char, ord(char) & 0xFF) for char in match[0])
    return found.decode("utf-8", "ignore") or match[0]


# Windows-1254 and 1252 differ in six letters.
_TURKISH_LETTERS = str.maketrans("ðýþÐÝÞ", "ğışĞİŞ")
# A letter that Turkish lacks; ý beside a vowel, where Turkmen has it and Turkish has no ı.
_ONLY_ELSEWHERE = re.compile("[^\\W\\d_a-zA-ZçöüÇÖÜâîûÂÎÛðýþÐÝÞ]|ý[aeoöuüi]|[aeoöuüi]ý")
_WITNESS = re.compile(
    r"[çÇ]|\b(?:bir|bu|ile|olarak|olan|daha|gibi|kadar|sonra|için|deðil|yok|þu|þey|þimdi|hiç|ancak"
    r"|diye|iki|yeni|\w+(?:[ýiuü]yor|larý|dýr|mýþ|sýz)|\w{3,}(?:ýr|ý[kn]|ýn[ae]|ýný|ýnd[ae]n?|ð[ýiuü]n?))\b"
)

_DOTLESS_WORD = re.compile(r"(?=[^\WA-ZÇÖÜÝ])\w*ý")  # written small: Hostýn is a name


def _mend_turkish_letters(text: str) -> tuple[str, int]:
    """ð, ý and þ that stand for ğ, ı and ş. Other languages have these letters too, so it takes two
    signs of Turkish, the share of ı that Turkish has (Icelandic has few ý), and nothing foreign;
    where ý is the only one, also a Turkish word with it: it ends Czech names (Novotný)."""
    if not looks_misread(text):
        return text, 0
    dotless = text.count("ý") + text.count("Ý")
    found = sum(map(text.count, "ðþÐÞ")) + dotless
    witnesses = {match[0] for match in _WITNESS.finditer(text)}
    if dotless * 4 < found or _ONLY_ELSEWHERE.search(text) or len(witnesses) < 2:
        return text, 0
    if found == dotless and not any(map(_DOTLESS_WORD.match, witnesses)):
        return text, 0
    return text.translate(_TURKISH_LETTERS), found


def compose(text: str) -> tuple[str, int]:
    """Unicode NFC; counts 1 where anything changed."""
    if unicodedata.is_normalized("NFC", text):
        return text, 0
    return unicodedata.normalize("NFC", text), 1


_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85]")
# C0 and C1 controls except tab and LF, byte order marks, noncharacters.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff\ufdd0-\ufdef\ufffe\uffff]")


def unify_line_ends(text: str) -> tuple[str, int]:
    """CR LF, CR, vertical tab, form feed and NEL become LF."""
    return _LINE_END.subn("\n", text)


def strip_controls(text: str) -> tuple[str, int]:
    """Control characters, byte order marks and noncharacters go."""
    return _CONTROL.subn("", text)


_UNSEEN = re.compile(
    "[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_EMOJI_PART = "\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_INVISIBLE = re.compile(
    # a flag of a region is a black flag spelt out in tags
    "(?P<flag>\U0001f3f4[\U000e0030-\U000e007a]{3,6}\U000e007f)"
    # joiners inside emoji, and in the scripts that are written with them, are text
    f"|(?<![{_EMOJI_PART}\ufe0f\u0600-\u109f])\u200d|\u200d(?![{_EMOJI_PART}\u0600-\u109f])"
    "|(?<![\u0600-\u109f])\u200c|\u200c(?![\u0600-\u109f])"
    # soft hyphen, zero-width spaces, joiners, invisible operators, direction marks, tags
    "|[\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def strip_invisible(text: str) -> tuple[str, int]:
    """Soft hyphens, zero-width spaces and joiners, direction marks and tags go; emoji stay whole."""
    if not _UNSEEN.search(text):
        return text, 0
    flags = 0

    def strip(match: re.Match[str]) -> str:
        nonlocal flags
        flags += bool(match["flag"])
        return match["flag"] or ""

    stripped, count = _INVISIBLE.subn(strip, text)
    return stripped, count - flags


_SPACE = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def plain_spaces(text: str) -> tuple[str, int]:
    """No-break and typographic spaces become ordinary ones."""
    return _SPACE.subn(" ", text)
