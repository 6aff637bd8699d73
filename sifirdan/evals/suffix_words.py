"""Turkish words with known suffix boundaries, built by rule: stems times chains of suffixes.

A gold set for tokenizers: ev + ler + imiz + den is evlerimizden, and its boundaries are 2, 5 and 8.
Suffixes are written as grammars write them (Göksel & Kerslake 2005, chapters 3 and 6): A is a or e
and I is ı, i, u or ü after the last vowel of the stem; D is d or t, C is c or ç after its last
consonant; a consonant in brackets stands after vowels only, a vowel in brackets after consonants
only. Stems are ordinary words that follow these rules, and invented ones that no text can hold (the
"wug" of Berko 1958). Not a morphological analyser: it builds words and takes none apart.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import accumulate
from typing import Literal

Kind = Literal["noun", "verb"]

VOWELS = "aeıioöuü"
BACK, ROUND = "aıou", "oöuü"
VOICELESS = "fstkçşhp"
_SOFT = {"p": "b", "ç": "c", "t": "d", "k": "ğ"}

# Chains from everyday text, each with its suffixes in their order.
NOUN_CHAINS = tuple(
    chain.split()
    for chain in (
        "lAr", "DA", "DAn", "(y)I", "(y)A", "(n)In", "(s)I", "(I)m", "(I)mIz", "(y)lA", "lAr DA",
        "lAr DAn", "lAr I", "lAr A", "lAr In", "(s)I nDA", "(s)I nDAn", "(s)I nI", "(s)I nA", "(s)I nIn",
        "lAr I nDA", "lAr I nDAn", "lAr I nI", "lAr Im", "lAr ImIz", "lAr ImIz DAn", "(I)mIz DA",
        "(I)nIz DAn", "DA ki", "DA ki lAr", "lAr DA ki", "(s)I nDA ki", "lI", "sIz", "sIz lIK", "lI lAr",
        "CA", "lAr ImIz DA ki lAr", "lAr I nDA ki lAr DAn", "DA DIr",
    )
)  # fmt: skip
VERB_CHAINS = tuple(
    chain.split()
    for chain in (
        "mAK", "DI", "DI m", "DI K", "DI lAr", "mIş", "mIş DI", "Iyor", "Iyor um", "Iyor uz", "Iyor lAr",
        "Iyor DI", "Iyor DI K", "(y)AcAK", "(y)AcAK lAr", "(y)AcAK DI", "mA DI", "mA mIş", "mA DI lAr",
        "(y)Ip", "(y)ArAK", "(y)An", "(y)An lAr", "(y)An lAr In", "mA (y)An", "mA sI", "mA sI nI",
        "mA lAr I", "mAlI", "mAlI (y)Iz", "DIK lAr I", "DIK lAr I nI", "DIK DAn", "sA", "sA (y)DI",
        "(y)IncA", "mAK tA", "mAK tA DIr", "(y)Abil DI", "(y)Abil (y)AcAK lAr",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Stem:
    """A word to attach suffixes to; `softens` says that its last consonant does before a vowel."""

    text: str
    kind: Kind
    softens: bool = False
    invented: bool = False


@dataclass(frozen=True)
class SuffixWord:
    """A word in its parts, the stem first; joined they are the word."""

    stem: Stem
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def boundaries(self) -> frozenset[int]:
        """Places between characters where a suffix begins."""
        return frozenset(accumulate(map(len, self.parts[:-1])))


def words(stems: list[Stem], chains_a_stem: int, seed: int) -> list[SuffixWord]:
    """Every stem with `chains_a_stem` different chains, drawn by `seed`."""
    rng = random.Random(seed)
    found = []
    for stem in stems:
        chains = NOUN_CHAINS if stem.kind == "noun" else VERB_CHAINS
        for chain in rng.sample(chains, min(chains_a_stem, len(chains))):
            found.append(build(stem, chain))
    return found


def build(stem: Stem, chain: list[str]) -> SuffixWord:
    """One stem with its suffixes; build(Stem("kitap", "noun", True), ["(I)m", "DA"]) has the parts
    kitab, ım and da."""
    parts = [stem.text]
    softens = stem.softens
    for suffix in chain:
        added = _spelled("".join(parts), suffix)
        if added[0] in VOWELS:
            if suffix == "Iyor" and parts[-1][-1] in VOWELS:
                parts[-1], added = _before_yor(parts, added)
            elif softens:
                parts[-1] = softened(parts[-1])
        parts.append(added)
        softens = suffix.endswith("K")  # -(y)AcAK and -lIK soften as stems do
    return SuffixWord(stem, tuple(parts))


def _spelled(word: str, suffix: str) -> str:
    """A suffix as it is spelt behind `word`."""
    after_vowel = word[-1] in VOWELS
    if match := re.match(r"\((.)\)", suffix):
        wanted = after_vowel if match[1] not in "IA" else not after_vowel
        suffix = (match[1] if wanted else "") + suffix[3:]
    vowel = next(char for char in reversed(word) if char in VOWELS)
    spelled = ""
    for char in suffix:
        if char == "A":
            char = vowel = "a" if vowel in BACK else "e"
        elif char == "I":
            row = "ıu" if vowel in BACK else "iü"
            char = vowel = row[vowel in ROUND]
        elif char in "DC":
            hard = (spelled or word)[-1] in VOICELESS
            char = {"D": "dt", "C": "cç"}[char][hard]
        elif char == "K":
            char = "k"
        elif char in VOWELS:
            vowel = char
        spelled += char
    return spelled


def _before_yor(parts: list[str], added: str) -> tuple[str, str]:
    """başla + ıyor is başlıyor, gelme + iyor is gelmiyor, and yürü + yor is yürüyor."""
    if parts[-1][-1] in "ae":
        return parts[-1][:-1], _spelled("".join(parts)[:-1], "Iyor")
    return parts[-1], added[1:]


def softened(part: str) -> str:
    """kitap as it stands before a vowel: kitab-."""
    return part[:-2] + "ng" if part.endswith("nk") else part[:-1] + _SOFT[part[-1]]


@cache
def known_stems() -> tuple[Stem, ...]:
    """The stems of turkish_stems.json."""
    path = resources.files("sifirdan.evals").joinpath("turkish_stems.json")
    listed = json.loads(path.read_text("utf-8"))
    kinds: tuple[tuple[str, Kind], ...] = (("nouns", "noun"), ("verbs", "verb"))
    return tuple(listed_stem(text, kind) for key, kind in kinds for text in listed[key])


def listed_stem(text: str, kind: Kind, *, invented: bool = False) -> Stem:
    """A stem as the lists write it: "kitap~" softens."""
    return Stem(text.rstrip("~"), kind, text.endswith("~"), invented)


def invented_stems(seed: int) -> Iterator[Stem]:
    """Words of two syllables that sound Turkish and mean nothing, without end; the caller leaves out
    those that occur. None ends in a consonant of which one cannot know whether it softens."""
    rng = random.Random(seed)
    seen = {stem.text for stem in known_stems()}
    while True:
        first = rng.choice("aeıioöuü")
        second = rng.choice(
            "aı" if first in "aı" else "ei" if first in "ei" else "au" if first in "ou" else "eü"
        )
        text = (
            rng.choice("bcçdfghklmnprsştvyz") + first + rng.choice(("", "l", "m", "n", "r", "s", "k"))
            + rng.choice("bcdfgklmnsştvz") + second + rng.choice("lmnrsşzy")
        )  # fmt: skip
        if text not in seen and not re.search(r"(.)\1", text):
            seen.add(text)
            yield Stem(text, rng.choice(("noun", "noun", "verb")), invented=True)
