"""Numbers about generated text, and copies of the training text, against searches by hand."""

import random

import pytest

from sifirdan.evals.generation import (
    against_training,
    by_temperature,
    distinct,
    measure_samples,
    repetition,
)
from sifirdan.evals.memorisation import SEED, longest_copies
from sifirdan.evals.samples import Sample


def longest_by_hand(text: str, training: list[str]) -> int:
    best = 0
    for start in range(len(text)):
        while start + best < len(text) and any(
            text[start : start + best + 1] in other for other in training
        ):
            best += 1
    return best if best >= SEED else 0


def test_the_longest_copy_equals_a_search_by_hand(texts: list[str]) -> None:
    rng = random.Random(3)
    training = texts[:40]
    samples = []
    for length in (SEED - 1, SEED, SEED + 1, 60, 200):
        source = rng.choice([text for text in training if len(text) > length + 10])
        start = rng.randrange(len(source) - length)
        samples.append("Öncesi başka, " + source[start : start + length] + "@ sonrası da.")
    samples += ["", "kısa", "ab" * 60, texts[-1][:150], training[7]]
    training.append("ab" * 50)
    copies = longest_copies(samples, training)
    assert [copy.length for copy in copies] == [longest_by_hand(s, training) for s in samples]
    for sample, copy in zip(samples, copies, strict=True):
        assert copy.part in sample and len(copy.part) == copy.length
    assert copies[-1].part == training[7]


def test_a_copy_never_joins_two_texts_or_two_samples() -> None:
    half = "abcdefghijklmnopqrstuvwxyz"[: SEED - 4]
    assert longest_copies([half + half], [half, half])[0].length == 0
    assert longest_copies([half, half], [half + half])[0].length == 0


def test_loops_meet_loops_without_end() -> None:
    (copy,) = longest_copies(["." * 400], ["." * 20_000, "x" + "." * 50])
    assert copy.length == 400


def test_letters_outside_the_first_plane_and_case_count() -> None:
    line = "İstanbul'da 🙂 ığdır şöyle böyle"
    assert longest_copies([line], [f"… {line} …"])[0].length == len(line)
    assert longest_copies([line.replace("İ", "I")], [line])[0].length == len(line) - 1


def test_variety_and_repetition_by_hand() -> None:
    assert distinct(["bir iki bir", "İki"], 1) == 2 / 4
    assert distinct(["bir iki bir", "iki bir"], 2) == 2 / 3
    assert distinct([], 1) == 0.0
    assert repetition(["a b c d a b c d"]) == pytest.approx(1 - 4 / 5)
    assert repetition(["a b c d", "a a a a a"]) == pytest.approx((0 + 0.5) / 2)
    assert repetition(["kısa"]) == 0.0


def test_samples_are_measured_apart_by_temperature() -> None:
    copied = "Bu cümle eğitim metninde olduğu gibi aynen durmaktadır, baştan sona."
    samples = [
        Sample("", copied, 0.0, True),
        Sample("", "zırtapoz kelimeler burada", 1.0, False),
    ]
    found = against_training(samples, ["başka"], [f"Önce. {copied} Sonra.", "Başka kelimeler."])
    assert found.known >= {"başka", "kelimeler", "cümle"} and "zırtapoz" not in found.known
    both = measure_samples(samples, found)
    assert both["copied_share"] == 0.5 and both["longest_copy_chars"] == len(copied)
    assert both["stopped_share"] == 0.5
    parts = by_temperature(samples, found)
    assert list(parts) == ["0", "1"]
    assert parts["0"]["copied_share"] == 1.0 and parts["0"]["known_word_share"] == 1.0
    assert parts["1"]["copied_share"] == 0.0
    assert parts["1"]["known_word_share"] == pytest.approx(1 / 3)
