"""What the rules are made of: a sentence with one place that is filled rightly or wrongly, and ways to
draw words so that every writing is right as often as it is wrong. Not for any phenomenon."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sifirdan.evals.suffix_words import VOICELESS, VOWELS, Stem, build

T = TypeVar("T")
C = TypeVar("C")
PLACE = "{}"
_TRIES = 400


@dataclass(frozen=True)
class Draft:
    """A pair without a number. `frame` holds PLACE once; `good` and `bad` are what stands there.
    `rule` names the case of the phenomenon, `stem` the word that is varied."""

    rule: str
    frame: str
    good: str
    bad: str
    stem: Stem


def crossed(stem: Stem, forms: Sequence[str], sentences: Sequence[tuple[str, str]]) -> list[Draft]:
    """Two pairs with the same two forms: the first is right in the first sentence (a rule and a frame),
    the second in the second. No count of letters, words or tokens can be right in both."""
    return [
        Draft(rule, frame, good, bad, stem)
        for (rule, frame), good, bad in zip(sentences, forms, reversed(forms), strict=True)
    ]


class Deck(Generic[T]):
    """Things in an order drawn once; `draw` gives the one that waited longest."""

    def __init__(self, things: Iterable[T], rng: random.Random) -> None:
        self._things = list(things)
        rng.shuffle(self._things)

    def draw(self, wanted: Callable[[T], bool] = lambda _: True) -> T:
        number = next(n for n, thing in enumerate(self._things) if wanted(thing))
        thing = self._things.pop(number)
        self._things.append(thing)
        return thing


def even(cases: Iterable[C], num: int, make: Callable[[C], Draft]) -> list[Draft]:
    """`num` drafts of each case, all with different right sentences."""
    found: dict[tuple[str, str], Draft] = {}  # by the right sentence
    for case in cases:
        wanted = len(found) + num
        for _ in range(_TRIES):
            draft = make(case)
            found.setdefault((draft.frame, draft.good), draft)
            if len(found) == wanted:
                break
        else:
            raise AssertionError(f"{case}: words for {len(found) - wanted + num} of {num} pairs")
    return list(found.values())


def word(stem: Stem, chain: str) -> str:
    """A stem with a chain of suffixes: word(kitap, "(I)mIz DA") is kitabımızda."""
    return build(stem, chain.split()).text


def last_vowel(text: str) -> str:
    return next(char for char in reversed(text) if char in VOWELS)


def is_front(stem: Stem) -> bool:
    return last_vowel(stem.text) in "eiöü"


def is_open(stem: Stem) -> bool:
    """Whether it ends in a vowel."""
    return stem.text[-1] in VOWELS


def is_voiceless(stem: Stem) -> bool:
    return stem.text[-1] in VOICELESS


_ROWS = {"a": "ı", "ı": "ı", "e": "i", "i": "i", "o": "u", "u": "u", "ö": "ü", "ü": "ü"}


def four_way(stem: Stem) -> str:
    """The vowel that I becomes behind it."""
    return _ROWS[last_vowel(stem.text)]
