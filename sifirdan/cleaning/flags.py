"""Marks that a text gets for people to count or drop: Turkish typed without its letters, and vulgar
words. A flag changes no text; whether a flagged one stays is a setting.

Not the list of what instruction data leaves out (corpus/blocked_words.json), which is much wider.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from sifirdan.text import lower_tr

Policy = Literal["keep", "drop"]

ASCIIFIED, PROFANITY = "asciified", "profanity"


@dataclass(frozen=True)
class FlagParams:
    """What becomes of a text with each flag; the flag itself is always recorded."""

    asciified: Policy
    profanity: Policy


def flags_of(text: str) -> list[str]:
    """The flags of a text, in a fixed order."""
    tests = ((ASCIIFIED, is_asciified), (PROFANITY, has_profanity))
    return [name for name, test in tests if test(text)]


def flag_reason(flags: Sequence[str], params: FlagParams) -> str | None:
    """The first flag that a text is dropped for, or None."""
    policies: dict[str, Policy] = vars(params)
    return next((flag for flag in flags if policies[flag] == "drop"), None)


# Turkish without ç ğ ı ö ş ü: "cok guzel bir gun".

_OWN_LETTERS = "ışüğçöÇĞİÖŞÜ"  # frequent ones first
_MAX_OWN_SHARE = 0.005  # of the characters; Turkish has 0.10, and one name may be typed right
_MIN_EVIDENCE = 0.2  # of the words
_MAX_FOREIGN = 0.1  # of the words, with letters or pairs that Turkish has only in names


def _read_words() -> dict[str, frozenset[str]]:
    path = resources.files("sifirdan.cleaning").joinpath("asciified_words.json")
    listed = json.loads(path.read_text("utf-8"))
    return {name: frozenset(words) for name, words in listed.items() if name != "about"}


_WORDS = _read_words()
# Endings whose i, u, g or s stands for ı, ü, ğ or ş: an i behind a back vowel, as in kitaplari, and
# the g and s of -digi, -acagi and -mis.
_WRONG_ENDING = re.compile(
    r"\w+[aou][b-hj-np-tv-z]{1,2}(?:lari\w*|i(?:yor\w*|nda\w*|nin|ni|na|mi[zn]?\w*|niz|z)|mis\w*|dir|siz|"
    r"lik\w*|[td]i[mkn]?|ci(?:lar\w*)?|si|sina|sini)"
    r"|\w{2,}(?:[dt][iu]g[iu]\w{0,6}|[ae]cag(?:i|im|iz|imiz|ini)"
    r"|m[iu]st?[iu]r|l[ae]s(?:tir\w+|m[ae]\w*|[ae]n)|[iu]yormus)"
)
_TURKISH_ENDING = re.compile(
    r"\w{2,}(?:[iu]yor(?:um|sun|uz|lar|du)?|erek|arak|mek|mak|ken|ler[ie]\w*|larda)"
)
_FOREIGN = re.compile(r"[qwx]|[^\W\d_a-zçğıöşüâîû]|sh|ch|[og]['‘’ʻ`]")
_WORD = re.compile(r"[^\W\d_]+")


def is_asciified(text: str) -> bool:
    """True for Turkish typed without its own letters; false for other languages, and for Turkish in
    which they happen not to occur."""
    own, most = 0, _MAX_OWN_SHARE * len(text)
    for letter in _OWN_LETTERS:
        own += text.count(letter)
        if own > most:
            return False
    lowered = lower_tr(text.replace("I", "i"))
    words = _WORD.findall(lowered)
    if len(_FOREIGN.findall(lowered)) > _MAX_FOREIGN * len(words):
        return False
    typed = wrong = plain = shared = 0
    for word in words:
        if word in _WORDS["typed_without"]:
            typed += 1
        elif word in _WORDS["plain"]:
            plain += 1
        elif word in _WORDS["shared"] or _TURKISH_ENDING.fullmatch(word):
            shared += 1
        elif _WRONG_ENDING.fullmatch(word):
            wrong += 1
    evidence = typed + wrong + plain + shared
    return bool(typed or (wrong and plain)) and evidence >= max(2, _MIN_EVIDENCE * len(words))


# Vulgar words: whole words, with the endings of Turkish behind them and nothing else, so that
# götürmek, boks, sikke, sıçramak and amca are left in peace. "amcık" is not listed, since it is a
# pet form of amca as well, nor are abbreviations that laws have too.

# plural, possessive and case behind a consonant; what makes adjectives and nouns of nouns
_NOUN_ENDING = (
    r"(?:l[ae]r)?(?:[ıiuü](?:m|n|m[ıiuü]z|n[ıiuü]z)?(?:[ıiuüae]|d[ae]n?|n[ıiuü]n?|n[ae]|nd[ae]n?|l[ae])?"
    r"|[ae]|[dt][ae]n?|l[ae]|s[ıiuü]z|l[ıiuü](?:k|ğ[ıiuüae])?|[cç][ıiuü])?"
)
_TENSES = (
    r"(?:iyor|er|ece[kğ]|ti|mi[şs]|se|sin|eyim|elim|ip|erek|me[kzdys]?|mi?yor|il|iş|ik|tir)\w*"
)
_VULGAR = re.compile(
    rf"(?:göt|bok|piç|yarra[kğ]|dalyara[kğ]|taşşa[kğ]|puşt|pezeven[kg]|gavat){_NOUN_ENDING}"
    r"|(?:orospu|oruspu|ibne|kahpe)(?:l[ae]r|nin|n[ıiuü]n|y[ıiuüae]|s[ıiuü]|l[ıiuü][kğ]|c[ae]|d[ae]n?)?\w{0,4}"
    rf"|(?:has)?sik(?:i(?:m|n|mi|ni|me|ne)?|{_TENSES})?"
    r"|sıç(?:mak|ma[dym]\w*|t[ıi]\w*|ıyor\w*|ayım|acak\w*|ıp|arım|sın)"
    r"|amına(?:koy\w*)?|amını|amk|oç"
)
_STEMS = (
    "göt", "bok", "piç", "yarra", "dalyara", "taşşa", "puşt", "pezeven", "gavat", "orospu", "oruspu",
    "ibne", "kahpe", "sik", "hassik", "sıç", "amına", "amını", "amk", "oç",
)  # fmt: skip


def has_profanity(text: str) -> bool:
    """True where a vulgar word stands in the text. In asciified text "sik" is most likely "sık"."""
    found = {word for word in _suspects(lower_tr(text)) if _VULGAR.fullmatch(word)}
    doubtful = all(word.startswith("sik") and not word.startswith("siktir") for word in found)
    return bool(found) and not (doubtful and is_asciified(text))


def _suspects(lowered: str) -> Iterator[str]:
    """The words that begin with a stem. Looking for the stems is faster than cutting into words."""
    for stem in _STEMS:
        start = lowered.find(stem)
        while start >= 0:
            if not lowered[max(0, start - 1) : start].isalpha():
                word = _WORD.match(lowered, start)
                assert word is not None, stem
                yield word[0]
            start = lowered.find(stem, start + 1)
