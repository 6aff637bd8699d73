"""Turkish-safe text that every part shares: case, the key of duplicates, and alarms.

Pure functions. Never use `str.lower` or `str.upper` on text of the corpus: they spoil I, ı, İ and i.
What `clean` mends and rejects is in cleaning/.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

Repair = Callable[[str], tuple[str, int]]  # the mended text, and how many places were mended
Rule = Callable[[str], str | None]  # a reason to reject the text, or None

REPLACEMENT = "\ufffd"

# An i that still carries the dot of a decomposed İ: the dot is part of i.
_DOTTED_I = re.compile("([iị][\u0300-\u0306\u0308-\u036f]*)\u0307")


def lower_tr(text: str) -> str:
    """Lower case by the Turkish rule, for text in NFC; 'IĞDIR İZMİR' -> 'ığdır izmir'."""
    lowered = text.replace("I\u0307", "i").replace("I", "ı").replace("İ", "i").lower()
    return _DOTTED_I.sub(r"\1", lowered) if "\u0307" in lowered else lowered


def upper_tr(text: str) -> str:
    """Upper case by the Turkish rule; 'ılık ilik' -> 'ILIK İLİK'."""
    return text.replace("i", "İ").replace("ı", "I").upper()


class _WithoutPunctuation(dict[int, str | None]):
    """A table for str.translate that fills itself: Unicode punctuation goes, the rest stays."""

    def __missing__(self, code: int) -> str | None:
        kept = None if unicodedata.category(chr(code)).startswith("P") else chr(code)
        self[code] = kept
        return kept


_PUNCTUATION = _WithoutPunctuation()
_MARK_IN_NUMBER = re.compile(r"(?<=\d)[^\w\s](?=\d)")


def dedup_key(text: str) -> str:
    """What two texts share when they are the same for a reader: case, spacing and punctuation do
    not count; letters and numbers do, so kâr is not kar, ılık not ilik and 1,5 not 15."""
    composed = lower_tr(unicodedata.normalize("NFC", text))
    # "|" is a symbol, so it outlives the removal of punctuation.
    bare = _MARK_IN_NUMBER.sub("|", composed).translate(_PUNCTUATION)
    return " ".join(bare.split()) or " ".join(composed.split())


_SURROGATE = re.compile("[\ud800-\udfff]")


def has_surrogates(text: str) -> bool:
    """True where half of a character stands alone, which no UTF-8 file can hold."""
    try:
        text.encode()  # twice as fast as a search
    except UnicodeEncodeError:
        return True
    return False


def replace_surrogates(text: str) -> str:
    """Lone surrogates become U+FFFD."""
    return _SURROGATE.sub(REPLACEMENT, text)


_MISREAD = re.compile("[ðýþÐÝÞ]")
_TURKISH_ONLY = re.compile("[ğışĞİŞ]")


def looks_misread(text: str) -> bool:
    """True for Turkish that was decoded as Western European: it has ð, ý or þ where ğ, ı and ş
    belong, and none of these."""
    return bool(_MISREAD.search(text)) and not _TURKISH_ONLY.search(text)


def bounded(text: str, max_chars: int) -> Iterator[str]:
    """A text in parts of at most `max_chars` characters, none of them empty, cut before a space or
    line end where there is one; joined they are the text."""
    start = 0
    while len(text) - start > max_chars:
        end = start + max_chars
        cut = max(text.rfind(" ", start + 1, end + 1), text.rfind("\n", start + 1, end + 1))
        cut = cut if cut > start else end
        yield text[start:cut]  # the space goes with the word behind it
        start = cut
    if start < len(text):
        yield text[start:]
