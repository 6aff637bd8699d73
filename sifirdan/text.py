"""Turkish-safe text: case, repairs, reject rules and keys, all pure functions.

A repair returns the mended text and how many places it mended; a rule returns a reason to reject
or None. `clean` runs them once, in a fixed order. Not for reading files or for splitting.
Never use `str.lower` or `str.upper` on text of the corpus: they spoil I, ı, İ and i.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable

Repair = Callable[[str], tuple[str, int]]
Rule = Callable[[str], str | None]

REPLACEMENT = "\ufffd"

_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_UPPER = str.maketrans({"ı": "I", "i": "İ"})
# An i that still carries the dot of a decomposed İ: the dot is part of i.
_DOTTED_I = re.compile("([iị][\u0300-\u0306\u0308-\u036f]*)\u0307")


def lower_tr(text: str) -> str:
    """Lower case by the Turkish rule, for text in NFC; 'IĞDIR İZMİR' -> 'ığdır izmir'."""
    return _DOTTED_I.sub(r"\1", text.replace("I\u0307", "i").translate(_LOWER).lower())


def upper_tr(text: str) -> str:
    """Upper case by the Turkish rule; 'ılık ilik' -> 'ILIK İLİK'."""
    return text.translate(_UPPER).upper()


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


# Repairs every text gets, in this order.

_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85]")
# C0 and C1 controls except tab and LF, byte order marks, noncharacters.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff\ufdd0-\ufdef\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def compose(text: str) -> tuple[str, int]:
    """Unicode NFC; counts 1 where anything changed."""
    composed = unicodedata.normalize("NFC", text)
    return composed, int(composed != text)


def unify_line_ends(text: str) -> tuple[str, int]:
    """CR LF, CR, vertical tab, form feed and NEL become LF."""
    return _LINE_END.subn("\n", text)


def strip_controls(text: str) -> tuple[str, int]:
    """Control characters, byte order marks and noncharacters go."""
    return _CONTROL.subn("", text)


def replace_surrogates(text: str) -> str:
    """Lone surrogates, which no UTF-8 file can hold, become U+FFFD."""
    return _SURROGATE.sub(REPLACEMENT, text)


# Repairs of one kind of text each.

_SPACE_BEFORE_MARK = re.compile(r"(?<=\S)[ \u00a0]+(?=[,.;:!?](?:\s|$))")
_ENDS_WELL = re.compile(r"""[.!?…:]["'”’»)\]]*$""")
_FOOTNOTE = re.compile(r"(?<=[a-zçğıöşüâîû’”])\d{1,2}(?=[\s,.;:])")
_WIKI_REST = re.compile(r"\A[^\[\]]{0,300}\]\]\s*")
_INDEX_ENTRY = re.compile(r"\(C-I{1,3}\)\d")


def close_up_punctuation(text: str) -> tuple[str, int]:
    """'geldi .' -> 'geldi.'"""
    return _SPACE_BEFORE_MARK.subn("", text)


def add_final_marks(text: str) -> tuple[str, int]:
    """A full stop after each line that has no final mark; a dangling comma gives way to it."""
    lines = text.split("\n")
    mended = [line if _ENDS_WELL.search(line) else line.rstrip(" ,;") + "." for line in lines]
    return "\n".join(mended), sum(a != b for a, b in zip(lines, mended, strict=True))


def drop_footnote_marks(text: str) -> tuple[str, int]:
    """Numbers glued to a word by a lost footnote: 'Nuri1 oradaysa' -> 'Nuri oradaysa'."""
    return _FOOTNOTE.subn("", text)


def drop_wiki_rest(text: str) -> tuple[str, int]:
    """The rest of a picture's caption before the first line: ', … 1 Mart 1921]]'."""
    return _WIKI_REST.subn("", text)


def cut_book_index(text: str) -> tuple[str, int]:
    """The index of the printed volumes that got stuck to the last speech: everything from the
    heading DİZİN on, if volume and page references such as '(C-II)248' fill it."""
    start = text.find(" DİZİN ")
    if start < 0 or len(_INDEX_ENTRY.findall(text, start)) < 20:
        return text, 0
    return text[:start], 1


REPAIRS_FOR_ALL: tuple[Repair, ...] = (compose, unify_line_ends, strip_controls)
REPAIRS: dict[str, tuple[Repair, ...]] = {  # by reader
    "ataturk_speeches": (
        drop_footnote_marks,
        drop_wiki_rest,
        cut_book_index,
        close_up_punctuation,
    ),
    "kenet": (close_up_punctuation, add_final_marks),
    "treebank_wiki": (close_up_punctuation,),
}


def repair(text: str, reader: str) -> tuple[str, Counter[str]]:
    """The text as `clean` stores it, and how many places each repair mended, by its name.
    `reader` says which reader the text came through."""
    counts: Counter[str] = Counter()
    for mend in (*REPAIRS_FOR_ALL, *REPAIRS.get(reader, ())):
        text, count = mend(text)
        counts[mend.__name__] += count
    return text.strip(), +counts


def repair_sentence(sentence: str) -> str:
    """One sentence made fit to be shown: no control characters, no space before a mark, a final
    mark; 'Kedi miyav\\x94 diye ses çıkarmak ' -> 'Kedi miyav diye ses çıkarmak.'"""
    sentence = strip_controls(compose(sentence)[0])[0].strip()
    return add_final_marks(close_up_punctuation(sentence)[0])[0] if sentence else ""


# Rules.

_DATED_TITLE = re.compile(r"\(\d{1,2} \w+ \d{4}\)$")


def index_page(text: str) -> str | None:
    """A page that only lists titles with their dates."""
    lines = text.split("\n")
    listed = len(lines) >= 5 and all(_DATED_TITLE.search(line) for line in lines)
    return "index_page" if listed else None


def placeholder(text: str) -> str | None:
    """A dictionary entry such as '(zaman)' that stands for a kind of word."""
    return "placeholder" if text.startswith("(") else None


def no_definition(text: str) -> str | None:
    """A dictionary entry whose definition is empty."""
    return "no_definition" if text.split("\n", 1)[0].endswith("):") else None


RULES: dict[str, tuple[Rule, ...]] = {  # by reader
    "ataturk_speeches": (index_page,),
    "kenet": (placeholder, no_definition),
}


def reject_reason(
    text: str, reader: str, *, min_chars: int, max_replacement_share: float
) -> str | None:
    """Why a repaired text does not enter the corpus, or None."""
    if not text:
        return "empty"
    if _SURROGATE.search(text):
        return "invalid"
    if text.count(REPLACEMENT) > max_replacement_share * len(text):
        return "replacement_characters"
    for rule in RULES.get(reader, ()):
        if reason := rule(text):
            return reason
    return "too_short" if len(text) < min_chars else None


def looks_misread(text: str) -> bool:
    """True for Turkish that was decoded as Western European: it has ð, ý or þ where ğ, ı and ş
    belong, and none of these."""
    return bool(re.search("[ðýþÐÝÞ]", text)) and not re.search("[ğışĞİŞ]", text)
