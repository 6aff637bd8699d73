"""The measures of the report card, on tokenizers small enough to count by hand."""

import numpy as np
import pytest

from sifirdan.baselines import plain
from sifirdan.baselines.contestants import (
    Contestant,
    characters,
    ends_by_pieces,
    from_scratch,
    hugging_face,
    ours,
    sentencepiece,
    words,
)
from sifirdan.baselines.published import NotReachable, ends_by_spans, published
from sifirdan.evals.suffix_words import Stem, build
from sifirdan.evals.tokenizer_measures import (
    Agreement,
    agreement,
    agreement_table,
    cuts,
    difference_interval,
    measure,
)
from sifirdan.evals.tokenizer_probes import cut_at_apostrophe_share, probes, tokens_of
from sifirdan.tokenizer import METHOD_NAMES, Tokenizer

PIECES = [b" ev", b"ler", b"imiz", b"den", b" ", b"\xc5", b"\x9f", b"e", b"v"]


def by_hand(*order: bytes) -> Contestant:
    """A tokenizer that gives these pieces for whatever it is asked."""
    ids = [PIECES.index(piece) for piece in order]
    return Contestant("hand", len(PIECES), lambda some: [ids] * len(some), ends_by_pieces(PIECES))


def test_sums_over_a_text() -> None:
    found = measure(by_hand(b"e", b"v", b" ev", b" ev", b"ler"), ["ev ev evler"])
    assert (found.bytes, found.tokens, found.words, found.whole_words) == (11, 5, 3, 1)
    assert found.bytes_per_token == 11 / 5 and found.tokens_per_word == 5 / 3
    assert found.whole_word_share == 1 / 3 and found.broken_share == found.unknown_share == 0
    broken = measure(by_hand(b"\xc5", b"\x9f", b"e"), ["şe"])
    assert (broken.broken_characters, broken.tokens, broken.whole_words) == (2, 3, 0)
    both = measure(by_hand(b"\xc5", b"\x9f", b"e"), ["şe", "şe"])
    assert both == broken + broken
    assert measure(by_hand(), [""]).bytes_per_token == 0


def test_text_that_a_tokenizer_drops_at_the_end_is_no_whole_word() -> None:
    found = measure(by_hand(b"e", b"v"), ["ev evler"])
    assert (found.words, found.whole_words, found.tokens) == (2, 0, 2)
    assert measure(by_hand(), ["ev"]).words == 1


def test_lost_words_are_unknown_and_not_whole() -> None:
    trained = words(["bir iki", "bir iki üç"], 4)
    found = measure(trained, ["bir iki", "bir dört iki"])
    assert trained.unknown == plain.UNK
    assert (found.tokens, found.unknown, found.words, found.whole_words) == (5, 1, 5, 4)


def test_cuts_are_numbers_of_characters_without_the_space() -> None:
    assert cuts(by_hand(b" ev", b"ler", b"imiz", b"den"), ["evlerimizden"]) == [{2, 5, 9}]
    assert cuts(by_hand(b" ", b"e", b"v"), ["ev"]) == [{1}]
    assert cuts(by_hand(b" ", b"\xc5", b"\x9f", b"e"), ["şe"]) == [{1}]


def test_agreement_counts_shared_places() -> None:
    word = build(Stem("ev", "noun"), ["lAr", "ImIz", "DAn"])
    table = agreement_table(by_hand(b" ev", b"ler", b"imiz", b"den"), [word])
    assert table.tolist() == [[3, 3, 3]] and agreement(table).f1 == 1
    half = agreement(np.array([[1, 2, 3], [0, 2, 1]]))
    assert half == Agreement(1, 4, 4) and half.precision == half.recall == half.f1 == 0.25


def test_the_interval_holds_the_difference_and_equal_tables_differ_by_nothing() -> None:
    rng = np.random.default_rng(1)
    wanted = np.full(300, 3)
    cut = rng.integers(1, 4, 300)
    worse = np.column_stack([rng.integers(0, 2, 300), cut, wanted])
    better = worse + np.column_stack([rng.integers(0, 2, 300), np.zeros((300, 2), int)])
    stems = [f"kök{i // 3}" for i in range(300)]
    difference, low, high = difference_interval(better, worse, stems, seed=1)
    assert 0 < low < difference < high
    assert difference == agreement(better).f1 - agreement(worse).f1
    assert difference_interval(worse, worse, stems, seed=1) == (0, 0, 0)


def test_every_contestant_tells_where_its_ids_end(texts: list[str], tokenizer: Tokenizer) -> None:
    made = [make(texts, 800) for make in (characters, words, from_scratch, hugging_face)]
    made += [ours(tokenizer, "ours"), sentencepiece(texts, 800, "unigram")]
    some = [*texts[:20], "İstanbul'da 3 🙂\n\n  ğ", ""]
    for contestant in made:
        for text, ids in zip(some, contestant.encode_many(some), strict=True):
            ends = contestant.ends(text, ids)
            assert len(ends) == len(ids), contestant.name
            assert ends[-1] == len(text.encode()) if ids else text == ""
            assert (np.diff(ends) > 0).all()
        assert contestant.vocab_size <= 800


def test_probes_show_the_same_sentences_in_capitals_and_without_turkish_letters() -> None:
    kinds = probes()
    assert len(kinds["plain"]) == len(kinds["capitals"]) == len(kinds["ascii"])
    assert kinds["capitals"][5].startswith("IŞIKLAR SÖNÜNCE IĞIL IĞIL")
    assert kinds["ascii"][5].startswith("Isiklar sonunce igil igil") and kinds["ascii"][0].isascii()
    assert {"apostrophes", "numbers", "code", "emoji"} <= kinds.keys()
    letters = characters(kinds["plain"], 10**6)
    assert tokens_of(letters, ["ab", "c"]) == 3


def test_words_come_apart_at_the_apostrophe_or_not() -> None:
    pieces = [b" Ankara", b"'", b"dan", b"'dan", b" Ankara'dan", b" Ankara'd", b"an"]

    def giving(*ids: int) -> Contestant:
        return Contestant("x", 9, lambda some: [list(ids) for _ in some], ends_by_pieces(pieces))

    for ids, apart in (((0, 1, 2), 1), ((0, 3), 1), ((4,), 0), ((5, 6), 0)):
        assert cut_at_apostrophe_share(giving(*ids), ["Ankara'dan"]) == apart


def test_ids_that_share_a_character_divide_its_bytes() -> None:
    assert ends_by_spans("a🙂b", [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]).tolist() == [
        1,
        2,
        3,
        5,
        6,
    ]
    assert ends_by_spans("ğü", [(0, 2)]).tolist() == [4]


def test_published_tokenizers_that_cannot_be_had_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NotReachable, match=r"pip install tiktoken|Error"):
        published("tiktoken:o200k_base")
    with pytest.raises(NotReachable, match="Error: "):
        published("hub:kimse/yok")


def test_baselines_are_smaller_where_the_text_is_short() -> None:
    texts = ["kısa bir metin, çok kısa"] * 20
    for make in (characters, words, from_scratch, hugging_face):
        assert make(texts, 5000).vocab_size < 400
    for method in METHOD_NAMES:
        assert 264 < sentencepiece(texts, 5000, method).vocab_size < 400
