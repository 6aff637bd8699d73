"""The gold set of the report card: words with known suffixes, their stems in bands by how often the
training text has them, and a band of stems that it does not have at all."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from sifirdan.evals.suffix_words import (
    Stem,
    SuffixWord,
    invented_stems,
    known_stems,
    softened,
    words,
)
from sifirdan.text import lower_tr

NUM_UNSEEN = 100
_LONGEST_STEM = 14  # characters
_BATCH_TEXTS = 1000
_LETTERS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Band:
    """Words whose stems are about equally frequent; the counts are of the rarest and of the most
    frequent of them in the training text."""

    name: str
    words: list[SuffixWord]
    fewest: int
    most: int

    @property
    def is_invented(self) -> bool:
        return all(word.stem.invented for word in self.words)

    @property
    def num_stems(self) -> int:
        return len({word.stem.text for word in self.words})


def gold_set(texts: Iterable[str], chains_a_stem: int, seed: int) -> list[Band]:
    """Three bands of equal size, the most frequent stems first, then `unseen`: NUM_UNSEEN invented
    stems with which no word of the texts begins."""
    listed = known_stems()
    forms = {stem: _forms(stem) for stem in listed}
    invented = list(islice(invented_stems(seed), 5 * NUM_UNSEEN))
    wanted = {form for some in forms.values() for form in some} | {stem.text for stem in invented}
    counts = _beginnings(texts, wanted)
    frequency = {stem: sum(counts[form] for form in forms[stem]) for stem in listed}
    seen = sorted(listed, key=lambda stem: (-frequency[stem], stem.text, stem.kind))
    unseen = [stem for stem in invented if not counts[stem.text]][:NUM_UNSEEN]
    third = -(-len(seen) // 3)
    parts = {"frequent": seen[:third], "middle": seen[third : 2 * third], "rare": seen[2 * third :]}
    bands = [
        Band(name, words(part, chains_a_stem, seed), frequency[part[-1]], frequency[part[0]])
        for name, part in parts.items()
    ]
    return [*bands, Band("unseen", words(unseen, chains_a_stem, seed), 0, 0)]


def _forms(stem: Stem) -> tuple[str, ...]:
    """How a stem may begin a word: kitap and kitab-."""
    return (stem.text, softened(stem.text)) if stem.softens else (stem.text,)


def _beginnings(texts: Iterable[str], wanted: set[str]) -> Counter[str]:
    """How many words of the texts begin with each of the wanted strings. Words are counted a batch of
    texts at a time: those of a whole corpus need not fit in memory."""
    remaining = iter(texts)
    counts: Counter[str] = Counter()
    while batch := list(islice(remaining, _BATCH_TEXTS)):
        words = Counter(word for text in batch for word in _LETTERS.findall(lower_tr(text)))
        for word, count in words.items():
            for beginning in _prefixes(word):
                if beginning in wanted:
                    counts[beginning] += count
    return counts


def _prefixes(word: str) -> Iterator[str]:
    return (word[:length] for length in range(2, min(len(word), _LONGEST_STEM) + 1))
