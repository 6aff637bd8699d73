"""The tokenizers of the course: a list of characters, and one of words."""

import random

from sifirdan.baselines import plain


def test_parts_joined_are_the_text() -> None:
    rng = random.Random(1)
    for _ in range(500):
        codes = [rng.choice([*range(0x500), 0x2019, 0x1F642]) for _ in range(30)]
        text = "".join(map(chr, codes))
        assert "".join(plain.words_and_marks(text)) == text


def test_words_keep_their_space_and_their_apostrophe_suffix() -> None:
    found = plain.words_and_marks("Dün Ankara'dan geldi; saat 1923’te\n\n  iki")
    assert found == [
        "Dün", " Ankara'dan", " geldi", ";", " saat", " 1923’te", "\n", "\n", " ", " iki",
    ]  # fmt: skip


def test_what_is_known_comes_back_and_the_rest_is_unknown() -> None:
    words = plain.train_words(["bir iki bir üç", "bir iki"], 4)
    assert words.parts == [plain.UNK_TEXT, " iki", "bir", " bir"]
    assert words.decode(words.encode("bir bir iki")) == "bir bir iki"
    assert words.encode("bir dört iki") == [2, plain.UNK, 1]
    letters = plain.train_characters(["aab"], 100)
    assert letters.parts == [plain.UNK_TEXT, "a", "b"]
    assert letters.decode(letters.encode("bac")) == "ba" + plain.UNK_TEXT


def test_the_order_of_the_texts_does_not_count() -> None:
    texts = ["çok güzel", "güzel çok", "ne güzel"]
    assert plain.train_words(texts, 9).parts == plain.train_words(texts[::-1], 9).parts
