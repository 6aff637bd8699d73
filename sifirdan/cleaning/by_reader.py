"""What `clean` does to a text by where it comes from: the order of the repairs, the mending and the
rules that only one source needs, and the rules that every text must pass.

Not for what characters are (unicode.py) nor for what a web text is worth (quality.py, language.py).
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sifirdan.cleaning.html import extract_main_text, unescape_entities
from sifirdan.cleaning.unicode import (
    compose,
    looks_sound,
    mend_mojibake,
    plain_spaces,
    strip_controls,
    strip_invisible,
    unify_line_ends,
)
from sifirdan.text import REPLACEMENT, Repair, Rule, has_surrogates

TextKind = Literal["curated", "web"]

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


# Which setting turns a repair off. Two can not be: the corpus is NFC and its lines end in LF.


@dataclass(frozen=True)
class RepairParams:
    """Which repairs are done, each true or false; `by_source` are those of one reader alone."""

    html: bool
    entities: bool
    mojibake: bool
    controls: bool
    invisible: bool
    spaces: bool
    by_source: bool


ALL_REPAIRS = RepairParams(**dict.fromkeys(RepairParams.__dataclass_fields__, True))

# In this order: a soft hyphen, a no-break space or a control may be half of a misread letter, and
# what is stripped may have stood between a letter and its accent.
REPAIRS_FOR_ALL: tuple[Repair, ...] = (
    mend_mojibake, unify_line_ends, strip_controls, strip_invisible, plain_spaces, compose,
)  # fmt: skip
REPAIRS_FOR_WEB: tuple[Repair, ...] = (extract_main_text, unescape_entities)  # before the others
REPAIRS: dict[str, tuple[Repair, ...]] = {  # by reader, after the others
    "ataturk_speeches": (
        drop_footnote_marks,
        drop_wiki_rest,
        cut_book_index,
        close_up_punctuation,
    ),
    "kenet": (close_up_punctuation, add_final_marks),
    "treebank_wiki": (close_up_punctuation,),
}
_SETTING: dict[Repair, str] = {
    extract_main_text: "html",
    unescape_entities: "entities",
    mend_mojibake: "mojibake",
    strip_controls: "controls",
    strip_invisible: "invisible",
    plain_spaces: "spaces",
}


def all_repairs() -> list[Repair]:
    """Every repair there is, each once, in the order they are made."""
    by_source = [repair for repairs in REPAIRS.values() for repair in repairs]
    return list(dict.fromkeys([*REPAIRS_FOR_WEB, *REPAIRS_FOR_ALL, *by_source]))


def repairs_for(reader: str, text_kind: TextKind, params: RepairParams) -> Iterator[Repair]:
    """The repairs that a text gets, in their order."""
    for mend in (*(REPAIRS_FOR_WEB if text_kind == "web" else ()), *REPAIRS_FOR_ALL):
        if mend not in _SETTING or getattr(params, _SETTING[mend]):
            yield mend
    if params.by_source:
        yield from REPAIRS.get(reader, ())


def repair(
    text: str, reader: str, text_kind: TextKind = "curated", params: RepairParams = ALL_REPAIRS
) -> tuple[str, Counter[str]]:
    """The text as `clean` stores it, and how many places each repair mended, by its name.
    `reader` says which reader the text came through."""
    counts: Counter[str] = Counter()
    sound: bool | None = None  # one look saves five passes over most texts
    for mend in repairs_for(reader, text_kind, params):
        if mend in _OF_CHARACTERS:
            sound = looks_sound(text) if sound is None else sound
            if sound:
                continue
        text, count = mend(text)
        counts[mend.__name__] += count
    return text.strip(), +counts


_OF_CHARACTERS = frozenset(REPAIRS_FOR_ALL) - {compose}  # what `looks_sound` speaks of


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


# Every reason that `reject_reason` gives.
REASONS = (
    "empty", "invalid", "replacement_characters", "index_page", "placeholder", "no_definition",
    "too_short",
)  # fmt: skip


def reject_reason(
    text: str, reader: str, *, min_chars: int, max_replacement_share: float
) -> str | None:
    """Why a repaired text of any kind does not enter the corpus, or None."""
    if not text:
        return "empty"
    if has_surrogates(text):
        return "invalid"
    if text.count(REPLACEMENT) > max_replacement_share * len(text):
        return "replacement_characters"
    for rule in RULES.get(reader, ()):
        if reason := rule(text):
            return reason
    return "too_short" if len(text) < min_chars else None
