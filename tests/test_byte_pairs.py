"""Our own byte-pair encoder against the Hugging Face one on the same words."""

import random

import pytest

from sifirdan.baselines import byte_pairs
from sifirdan.baselines.byte_pairs import BYTE_ORDER, BytePairs
from sifirdan.baselines.contestants import train_hugging_face


@pytest.fixture(scope="module")
def trained(texts: list[str]) -> BytePairs:
    return byte_pairs.train(texts, 1500)


def test_ids_and_merges_are_those_of_the_reference(texts: list[str], trained: BytePairs) -> None:
    theirs = train_hugging_face(texts, 1500)
    rng = random.Random(5)
    mixed = ["".join(rng.choice("abcçığ 1'\n\t.🙂É") for _ in range(60)) for _ in range(300)]
    for text in [*texts[:300], *mixed, "", " ", "\r\n\n x  "]:
        assert trained.encode(text) == theirs.encode(text).ids, text
    assert len(trained.pieces) == theirs.get_vocab_size() == 1500


@pytest.mark.parametrize("text", ["aaaaaaa aaaa aaa", "abababab ab abab", "ııııı şşşş ıııı"])
def test_repeated_letters_are_counted_as_the_reference_counts_them(text: str) -> None:
    ours, theirs = byte_pairs.train([text] * 3, 300), train_hugging_face([text] * 3, 300)
    assert ours.encode(text) == theirs.encode(text).ids
    assert len(ours.pieces) == theirs.get_vocab_size()


def test_every_text_comes_back(trained: BytePairs) -> None:
    rng = random.Random(1)
    characters = [*map(chr, range(0xD800)), *map(chr, range(0xE000, 0x11000))]
    for _ in range(500):
        text = "".join(rng.choices(characters, k=20))
        assert trained.decode(trained.encode(text)) == text


def test_frequent_words_become_one_piece(trained: BytePairs) -> None:
    assert len(trained.encode(" bir")) == 1
    assert trained.pieces[0] == b"!" and sorted(BYTE_ORDER) == list(range(256))


def test_a_text_with_nothing_to_join_learns_nothing() -> None:
    assert len(byte_pairs.train(["ab"], 1000).pieces) == 256
    assert byte_pairs.train([], 1000).encode("é") == byte_pairs.bytes_of("é")
