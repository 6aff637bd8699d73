"""Numbers about what a model writes: variety, repetition, known words, ends, copies of the training
text. Not for drawing samples (samples.py)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifirdan.evals.memorisation import Copy, longest_copies
from sifirdan.evals.samples import Sample, words_of

COPIED_CHARS = 50  # a sample with a longer copy counts as copied


@dataclass(frozen=True)
class Against:
    """What samples are held against: of the words that were asked for, those the training text has;
    and each sample's longest copy of it."""

    known: frozenset[str]
    copies: Sequence[Copy]


def against_training(
    samples: Sequence[Sample], other_words: Iterable[str], training: Iterable[str]
) -> Against:
    """Read the training text once, for the words of the samples and others, and for copies."""
    wanted = {word for sample in samples for word in words_of(sample.text)} | set(other_words)
    known: set[str] = set()

    def texts() -> Iterable[str]:
        for text in training:
            if len(known) < len(wanted):
                known.update(wanted.intersection(words_of(text)))
            yield text

    copies = longest_copies([sample.text for sample in samples], texts())
    return Against(frozenset(known), copies)


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct n-grams of words over all of them, in all texts together (distinct-n, Li et al. 2016,
    arXiv:1510.03055). It falls with the amount of text: compare equal numbers of samples only."""
    grams = [gram for text in texts for gram in _ngrams(text, n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def repetition(texts: Sequence[str], n: int = 4) -> float:
    """The mean share of a text's n-grams of words that came before in it (as in Welleck et al. 2019,
    arXiv:1908.04319); texts of fewer words count as 0."""
    shares = []
    for text in texts:
        grams = list(_ngrams(text, n))
        shares.append(1 - len(set(grams)) / len(grams) if grams else 0.0)
    return sum(shares) / len(shares) if shares else 0.0


def measure_samples(samples: Sequence[Sample], against: Against) -> dict[str, Any]:
    """The numbers of the free samples or of one temperature; `against` is of these samples."""
    texts = [sample.text for sample in samples]
    words = [word for text in texts for word in words_of(text)]
    lengths = [copy.length for copy in against.copies]
    count = max(1, len(samples))
    return {
        "samples": len(samples),
        "distinct_1": distinct(texts, 1),
        "distinct_2": distinct(texts, 2),
        "distinct_3": distinct(texts, 3),
        "repetition": repetition(texts),
        "known_word_share": sum(word in against.known for word in words) / max(1, len(words)),
        "stopped_share": sum(sample.stopped for sample in samples) / count,
        "longest_copy_chars": max(lengths, default=0),
        "copied_share": sum(length > COPIED_CHARS for length in lengths) / count,
    }


def by_temperature(samples: Sequence[Sample], against: Against) -> Mapping[str, Any]:
    """`measure_samples` for each temperature among the samples."""
    found = {}
    for temperature in sorted({sample.temperature for sample in samples}):
        here = [n for n, sample in enumerate(samples) if sample.temperature == temperature]
        part = Against(against.known, [against.copies[n] for n in here])
        found[f"{temperature:g}"] = measure_samples([samples[n] for n in here], part)
    return found


def _ngrams(text: str, n: int) -> Iterable[tuple[str, ...]]:
    words = words_of(text)
    return zip(*(words[start:] for start in range(n)), strict=False)
