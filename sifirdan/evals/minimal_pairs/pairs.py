"""The set of pairs: every phenomenon with its rule, and each pair as it is published. The set is fixed
by this code, the lexicon and SEED; it knows no corpus and no tokenizer. Not for scoring."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from sifirdan.evals.minimal_pairs import agreement, particles, spelling
from sifirdan.evals.minimal_pairs.drafts import PLACE, Draft
from sifirdan.evals.minimal_pairs.lexicon import Lexicon, read_lexicon

SEED = 5
_PHENOMENA: tuple[Callable[[Lexicon, random.Random], list[Draft]], ...] = (
    spelling.vowel_harmony_two_way,
    spelling.vowel_harmony_four_way,
    spelling.consonant_softening,
    spelling.consonant_hardening,
    spelling.buffer_letters,
    agreement.case_government,
    agreement.subject_verb_agreement,
    agreement.possessive_agreement,
    agreement.singular_after_numbers,
    particles.question_particle,
    particles.de_apart_or_together,
    particles.ki_apart_or_together,
    agreement.negation,
    agreement.tense_adverb,
    agreement.word_order,
    particles.apostrophe_suffixes,
)
# What each tests, in a line: the docstring of its function.
PHENOMENA = {
    function.__name__: " ".join((function.__doc__ or "").split()) for function in _PHENOMENA
}


@dataclass(frozen=True)
class Pair:
    """Two sentences that are the same but for good[start:good_end] and bad[start:bad_end], counted in
    characters. `stem` is the word that is varied; `nonce` says that it is invented."""

    id: str
    phenomenon: str
    rule: str
    good: str
    bad: str
    stem: str
    nonce: bool
    start: int
    good_end: int
    bad_end: int


@cache
def all_pairs() -> tuple[Pair, ...]:
    """Every pair, by phenomenon; each phenomenon has a random generator of its own."""
    lexicon = read_lexicon()
    return tuple(
        _pair(f"{function.__name__}-{number:03d}", function.__name__, draft)
        for function in _PHENOMENA
        for number, draft in enumerate(
            function(lexicon, random.Random(f"{SEED} {function.__name__}")), 1
        )
    )


def _pair(id: str, phenomenon: str, draft: Draft) -> Pair:
    start = draft.frame.index(PLACE)
    good, bad = (draft.frame.replace(PLACE, filled, 1) for filled in (draft.good, draft.bad))
    ends = (start + len(draft.good), start + len(draft.bad))
    return Pair(
        id, phenomenon, draft.rule, good, bad, draft.stem.text, draft.stem.invented, start, *ends
    )
