"""Each rule at its limit, measures against brute force, and the limits of FineWeb-2 as they are."""

import random
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pytest

from sifirdan.cleaning import quality
from sifirdan.cleaning.quality import QualityParams, Tokens, quality_checks, quality_reason
from sifirdan.config import build
from sifirdan.errors import ConfigError

# The limits of FineWeb-2 for tur_Latn and of Gopher, as params.yaml should have them.
PARAMS = QualityParams(
    min_words=50, max_words=100_000, min_mean_word_chars=3, max_mean_word_chars=21,
    max_symbol_share=0.1, min_letter_word_share=0.773, max_digit_share=0.2, min_stop_words=2,
    stop_words=["ve", "bir", "olarak", "bu", "ile", "için", "olan", "da", "de", "tarafından", "yılında", "sonra", "en", "daha", "ilk"],
    min_final_mark_line_share=0.2, max_bullet_line_share=0.9, max_ellipsis_line_share=0.3,
    max_short_line_share=None, short_line_chars=30, max_line_breaks_per_word=0.273,
    max_duplicate_line_share=0.303, max_duplicate_line_char_share=0.1,
    max_duplicate_paragraph_share=0.3, max_top_n_gram_share={2: 0.094, 3: 0.114, 4: 0.136},
    max_duplicate_n_gram_share={5: 0.168, 6: 0.151, 7: 0.135, 8: 0.123, 9: 0.116, 10: 0.107},
)  # fmt: skip
OFF = replace(
    PARAMS,
    **{name: None for name, value in asdict(PARAMS).items() if not isinstance(value, list | dict)}
    | {"short_line_chars": 30, "max_top_n_gram_share": {}, "max_duplicate_n_gram_share": {}},
)

GOOD = (
    "Sabahın erken saatlerinde limana inen balıkçılar, gece boyunca topladıkları ağları kıyıya"
    " serdiler. Güneş yükseldikçe pazar yeri kalabalıklaştı; esnaf tezgâhını açtı, çocuklar okul"
    " yoluna düştü.\nBir yandan çay demlenirken bir yandan da günün haberleri konuşuluyordu. Yaşlı"
    " kaptan, bu yıl denizin bereketli olduğunu söyledi ve eski günlerden bir hikâye anlattı.\n"
    "Öğleye doğru rüzgâr çıktı, tekneler birbirine çarpmaya başladı. Herkes halatlarını yeniden"
    " bağladı; sonra lokantaya geçip sıcak çorbalarını içtiler."
)


def random_text(rng: random.Random, words: int) -> str:
    pool = ["ev", "su", "kitap", "deniz", "güneşli", "ve", "bir", "12", "bu", "geldi.", "ağaç,"]
    return "".join(
        rng.choice(pool) + rng.choice([" ", " ", " ", " ", "\n", "\n\n"]) for _ in range(words)
    )


def test_a_good_text_passes_every_rule() -> None:
    assert quality_reason(GOOD, PARAMS) is None
    checks = quality_checks(GOOD, PARAMS)
    assert all(check.passed for check in checks) and len(checks) == 24


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "too_few_words"),
        ("kısa metin", "too_few_words"),
        (" ".join(["a", "b", "c", "ç", "d", "e"] * 20), "short_words"),
        (" ".join(["çokuzunbirkelimedirbukesinlikle"] * 60), "long_words"),
        (GOOD + " #" * 30, "symbols"),
        (GOOD + " 12" * 40, "few_words_with_letters"),
        (GOOD.replace(" ", " a123456789 "), "digits"),
        (
            " ".join(word for word in GOOD.split() if word not in PARAMS.stop_words),
            "few_stop_words",
        ),
        (GOOD.replace(" ", " \n "), "line_breaks"),
        (GOOD.replace(".", "").replace(" ", "  "), "few_final_marks"),
        ("\n".join(f"- {line}" for line in [GOOD.replace("\n", " ")] * 1), "bullet_lines"),
        (GOOD.replace(".\n", "...\n") + "...", "ellipsis_lines"),
        ("\n".join([GOOD] * 2), "duplicate_lines"),
        (GOOD + "\n" + GOOD.split("\n")[0], "duplicate_line_chars"),
        (GOOD + " çok güzel" * 12, "top_2_gram"),
        (GOOD.replace("\n", " ") + " Son. " + GOOD.replace("\n", " "), "duplicate_5_grams"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    assert quality_reason(text, PARAMS) == reason


def test_every_rule_can_be_turned_off_and_alone_decides_when_on() -> None:
    rng = random.Random(4)
    texts = [random_text(rng, n) for n in (0, 3, 30, 60, 200)] + [GOOD, GOOD * 3]
    assert all(quality_reason(text, OFF) is None for text in texts)
    assert all(quality_checks(text, OFF) == [] for text in texts)
    for name, value in asdict(replace(PARAMS, max_short_line_share=0.5)).items():
        if name in ("stop_words", "short_line_chars"):
            continue
        alone = replace(OFF, **{name: value})
        for text in texts:
            failed = [check.reason for check in quality_checks(text, alone) if not check.passed]
            assert quality_reason(text, alone) == (failed[0] if failed else None)


def test_the_reason_is_the_first_check_that_fails() -> None:
    rng = random.Random(8)
    strict = replace(PARAMS, min_words=5, max_short_line_share=0.6, max_duplicate_line_share=0.5)
    seen = Counter()
    for _ in range(800):
        text = random_text(rng, rng.randint(1, 150))
        failed = [check.reason for check in quality_checks(text, strict) if not check.passed]
        assert quality_reason(text, strict) == (failed[0] if failed else None)
        seen[quality_reason(text, strict)] += 1
    assert len(seen) >= 4


def test_short_lines_are_counted_when_asked_for() -> None:
    text = GOOD + "\n" + "\n".join(f"Satır {n}." for n in range(9))
    alone = replace(OFF, max_short_line_share=0.67)
    (check,) = quality_checks(text, alone)
    assert (check.reason, check.value, check.passed) == ("short_lines", 9 / 12, False)
    assert quality_checks(text, replace(alone, short_line_chars=5))[0].value == 0


def brute_top(words: list[str], n: int, text: str) -> float:
    counts = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    most = max(counts.values(), default=1)
    if most == 1:
        return 0.0
    return max(len(" ".join(gram)) for gram, c in counts.items() if c == most) * most / len(text)


def brute_duplicate(words: list[str], n: int, text: str) -> float:
    seen, covered = set(), set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            covered.update(range(i, i + n))
        seen.add(gram)
    return sum(len(words[i]) for i in covered) / len(text)


def test_n_gram_shares_equal_brute_force() -> None:
    rng = random.Random(6)
    for _ in range(400):
        text = random_text(rng, rng.randint(1, 120))
        tokens = Tokens(text)
        for n in (2, 3, 4, 5, 7, 10):
            for measure, brute in (
                (quality.top_n_gram_share, brute_top),
                (quality.duplicate_n_gram_share, brute_duplicate),
            ):
                expected = brute(text.split(), n, text)
                assert measure(tokens, n) == pytest.approx(expected)
                for enough in (0.05, 0.2, 0.9):
                    bounded = measure(tokens, n, enough=enough)
                    assert (bounded <= enough) == (expected <= enough)
                    assert expected <= enough or bounded == pytest.approx(expected)


def test_character_counts_equal_brute_force() -> None:
    rng = random.Random(9)
    pool = "aİşé1٣2 \t\n\u00a0\u2003.,#😀中ə"
    for _ in range(500):
        text = "".join(rng.choices(pool, k=rng.randint(1, 40)))
        tokens = Tokens(text)
        assert tokens.num_visible == sum(not char.isspace() for char in text)
        assert tokens.num_digits == sum(char in "0123456789" for char in text)
        assert tokens.num_letter_words == sum(any(map(str.isalpha, w)) for w in text.split())


def test_stop_words_are_seen_with_a_capital_too() -> None:
    stop_words = ["ile", "için", "ve"]
    assert quality.count_stop_words(Tokens("İle başlar, Ve sürer. için için"), stop_words) == 3
    assert quality.count_stop_words(Tokens("veda iler"), stop_words) == 0


def test_the_same_in_every_process() -> None:
    """The hash of a word differs from process to process; what is measured does not."""
    import os
    import subprocess
    import sys
    from pathlib import Path

    script = (
        "import sys; sys.path.insert(0, 'tests'); import random; from test_cleaning_quality import *;"
        "rng = random.Random(1); print([quality_checks(random_text(rng, 150), PARAMS) for _ in range(9)])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[1],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min_words", -1),
        ("max_digit_share", 1.5),
        ("max_top_n_gram_share", {2: 2.0}),
        ("max_top_n_gram_share", {1: 0.5}),
        ("max_duplicate_n_gram_share", {6: 0.1, 5: 0.1}),
        ("min_stop_words", 16),
    ],
)
def test_values_that_cannot_work_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        replace(PARAMS, **{key: value})


def test_params_can_come_from_yaml() -> None:
    assert build(QualityParams, asdict(PARAMS), "clean.quality") == PARAMS


def test_null_turns_every_rule_off() -> None:
    limits = {key: None for key in asdict(PARAMS) if key.startswith(("min_", "max_"))}
    off = build(QualityParams, asdict(PARAMS) | limits, "clean.quality")
    assert quality_reason("a " * 1000, off) is None and quality_checks("a " * 1000, off) == []
