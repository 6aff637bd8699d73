"""The words of lexicon.json by what they can stand for in a sentence."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from sifirdan.evals.suffix_words import Stem, listed_stem


@dataclass(frozen=True)
class Action:
    """A verb with what stands before it: ("okula", git)."""

    complement: str
    verb: Stem


@dataclass(frozen=True)
class Lexicon:
    """Stems by meaning; `government` has the verbs that want the first case of its key and cannot take
    the second, `alternating` the stems that soften and those that do not, by their last consonant."""

    things: Sequence[Stem]
    places: Sequence[Stem]
    containers: Sequence[Stem]
    people: Sequence[Stem]
    animals: Sequence[Stem]
    trades: Sequence[Stem]
    verbs: Sequence[Stem]
    cities: Sequence[Stem]
    invented: Sequence[Stem]
    invented_open: Sequence[Stem]
    invented_verbs: Sequence[Stem]
    actions: Sequence[Action]
    government: dict[str, Sequence[Action]]
    softening: dict[str, Sequence[Stem]]
    lasting: dict[str, Sequence[Stem]]
    adjectives: Sequence[str]
    names: Sequence[str]

    @property
    def nouns(self) -> Sequence[Stem]:
        """Things, people and animals."""
        return [*self.things, *self.people, *self.animals]


@cache
def read_lexicon() -> Lexicon:
    path = resources.files("sifirdan.evals.minimal_pairs").joinpath("lexicon.json")
    listed = json.loads(path.read_text("utf-8"))

    def nouns(key: str) -> list[Stem]:
        return [listed_stem(text, "noun") for text in listed[key].split()]

    def invented(key: str) -> list[Stem]:
        return [listed_stem(text, "noun", invented=True) for text in listed[key].split()]

    return Lexicon(
        things=nouns("things"),
        places=nouns("places"),
        containers=nouns("containers"),
        people=nouns("people"),
        animals=nouns("animals"),
        trades=nouns("trades"),
        verbs=[listed_stem(text, "verb") for text in listed["verbs"].split()],
        cities=nouns("cities"),
        invented=invented("invented"),
        invented_open=invented("invented_open"),
        invented_verbs=[Stem(stem.text, "verb", invented=True) for stem in invented("invented")],
        actions=[_action(text) for text in listed["complements"]],
        government={
            key: [_action(text.replace("|", " ")) for text in verbs.split()]
            for key, verbs in listed["government"].items()
        },
        softening={key: nouns(f"soft_{key}") for key in "pçtk"},
        lasting={key: nouns(f"hard_{key}") for key in "pçtk"},
        adjectives=listed["adjectives"].split(),
        names=listed["names"].split(),
    )


def _action(text: str) -> Action:
    complement, _, verb = text.rpartition(" ")
    return Action(complement, listed_stem(verb, "verb"))
