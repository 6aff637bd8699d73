"""Words, n-grams and signatures: the arrays equal plain Python, in any batch."""

import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from sifirdan import text as text_module
from sifirdan.corpus import shingles
from sifirdan.corpus.shingles import (
    Ragged,
    as_sets,
    band_hashes,
    keys_and_words,
    ngrams,
    shingle_hashes,
    signature,
    signatures,
    whole_hashes,
    word_hashes,
    words_of,
)

DATA = Path(__file__).parent / "data"
ODD = [
    "", " ", "\n\t ", "?", "?! …", "a", "İ", "I\u0307stanbul", "Bİ\u0331R", "ΟΔΟΣ Σ", "“IĞDIR’da 3.000 kişi” — dedi; ÂLEM…",
    "1,5 1.2.3 1,,5 ,5 5, 1-2 ٣٫٥ 1\u00a05", "s\u0327is\u0327", "\x00\x1c\x85sıfır\x00", "yarım \ud83d çift", "😀 👨‍👩‍👧 C++ C# a_b",
    "Привет мир", "你好。再见", "किताब का", "ǅ ﬁ ŉ ẞ", "Ⓐ Ⓑ", "- - -", "kâr kar ılık ilik ILIK İLİK",
]  # fmt: skip


def own_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*.*")) if path.is_file()]


def plain_hashes(text: str) -> list[int]:
    return [shingles._hash_of_word(word) for word in words_of(text)]


def plain_ngrams(text: str, num_words: int) -> list[tuple[str, ...]]:
    words = words_of(text)
    last = max(len(words) - num_words, 0)
    return [tuple(words[i : i + num_words]) for i in range(last + 1)] if words else []


def random_texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    letters = list("aıiIİâkr  \n\n.,'-1230|Σ\u0307éß😀\u2028\u00a0")
    return ["".join(rng.choice(letters, rng.integers(0, 60)).tolist()) for _ in range(count)]


@pytest.mark.parametrize("piece", [shingles.PIECE_CHARS, 7, 1])
def test_keys_and_words_are_those_of_dedup_key(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shingles, "PIECE_CHARS", piece)
    texts = ODD + random_texts(2000, 1) + own_texts()
    if piece < 10:
        texts = [t for t in texts if len(t) < 1000]
    keys, words = keys_and_words(texts)
    for number, text in enumerate(texts):
        assert keys[number] == text_module.dedup_key(text), repr(text)
        assert words[number].tolist() == plain_hashes(text), repr(text)
    assert word_hashes(texts).values.tolist() == words.values.tolist()


def test_every_character_is_folded_as_dedup_key_does() -> None:
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Lo")]
    texts = [f"a{chr(c)}1{chr(c)}2" for c in codes]
    keys, _ = keys_and_words(texts)
    wrong = [t for t, key in zip(texts, keys, strict=True) if key != text_module.dedup_key(t)]
    assert not wrong, wrong[:10]


def test_a_batch_gives_each_text_what_it_gets_alone() -> None:
    texts = ODD + random_texts(300, 2) + own_texts()
    together = as_sets(ngrams(word_hashes(texts), 3))
    table = signatures(together, 24)
    for number, text in enumerate(texts):
        alone = shingle_hashes(text, 3)
        assert together[number].tolist() == alone.tolist()
        assert table[number].tolist() == signature(alone, 24).tolist()


def test_hashes_are_the_same_in_any_process() -> None:
    script = "from sifirdan.corpus.shingles import *;print(shingle_hashes('Dağ başını duman almış', 2), signature(shingle_hashes('bir iki üç', 1), 4))"
    command = [sys.executable, "-c", script]
    outputs = {
        subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True,
            cwd=Path(__file__).parents[1],
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(outputs) == 1


@pytest.mark.parametrize("num_words", [1, 2, 3, 5, 13])
def test_ngrams_are_those_of_plain_words(num_words: int) -> None:
    texts = ODD + random_texts(400, 3) + own_texts()
    grams = ngrams(word_hashes(texts), num_words)
    hashes: dict[tuple[str, ...], int] = {}
    for number, text in enumerate(texts):
        plain = plain_ngrams(text, num_words)
        assert len(plain) == len(grams[number])
        for gram, value in zip(plain, grams[number].tolist(), strict=True):
            assert hashes.setdefault(gram, value) == value
    assert len(set(hashes.values())) == len(hashes), "different n-grams have different hashes"


def test_sets_are_sorted_and_unique() -> None:
    texts = ["a b a b a b a b", "", "a", "a a a a a"]
    sets = as_sets(ngrams(word_hashes(texts), 2))
    assert [len(row) for row in (sets[n] for n in range(4))] == [2, 0, 1, 1]
    assert (np.diff(sets[0].astype(object)) > 0).all()


def test_whole_hashes_tell_texts_apart() -> None:
    texts = ["bir iki", "iki bir", "bir", "", "Bir, iki!", "bir iki üç"]
    hashes = whole_hashes(word_hashes(texts)).tolist()
    assert hashes[0] == hashes[4] and hashes[3] == 0
    assert len(set(hashes)) == 5


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("İstanbul'da ŞİŞ", "I\u0307stanbul'da s\u0327is\u0327", True),
        ("kar yağdı", "kâr yağdı", False),
        ("ılık su", "ilik su", False),
        ("1,5 kilo", "15 kilo", False),
        ("1 2 300", "1 2 3", False),
    ],
)
def test_I_12_only_twins_share_words(first: str, second: str, same: bool) -> None:
    assert (shingle_hashes(first, 5).tolist() == shingle_hashes(second, 5).tolist()) is same


@pytest.mark.parametrize("size", [5, 10, 100, 2000])
@pytest.mark.parametrize("similarity", [0.5, 0.8, 0.95])
def test_signatures_estimate_the_similarity(size: int, similarity: float) -> None:
    rng = np.random.default_rng(size)
    pairs, num_slots, truth = 400, 96, []
    rows = []
    for _ in range(pairs):
        union = rng.integers(0, 1 << 63, size, dtype=np.uint64) * np.uint64(2)
        shared = round(similarity * size)
        split = shared + (size - shared) // 2
        truth.append(shared / size)
        rows += [union[:split], np.concatenate([union[:shared], union[split:]])]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    table = signatures(as_sets(Ragged(np.concatenate(rows), offsets)), num_slots)
    equal = (table[0::2] == table[1::2]).mean(axis=1)
    assert equal.mean() == pytest.approx(np.mean(truth), abs=0.03)
    classic = np.sqrt(similarity * (1 - similarity) / num_slots)
    assert equal.std() < 1.6 * classic + 0.01, "not much worse than 96 independent MinHashes"


def test_an_empty_set_shares_no_slot_with_another() -> None:
    table = signatures(Ragged(np.array([3, 4], np.uint64), np.array([0, 0, 1, 2])), 8)
    assert not (table[0] == table[1]).any() and not (table[1] == table[2]).any()


def test_bands_hash_their_own_slots_only() -> None:
    table = np.arange(24, dtype=np.uint64).reshape(2, 12)
    table[1, :9] = table[0, :9]
    first, second = band_hashes(table, 4)
    assert (first == second).tolist() == [True, True, True, False]
    same = band_hashes(np.zeros((1, 12), np.uint64), 4)[0]
    assert len(set(same.tolist())) == 4
