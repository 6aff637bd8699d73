"""Words built by rule: spelt as Turkish spells them, with boundaries where the suffixes begin."""

import re
from itertools import islice

import pytest

from sifirdan.evals.suffix_gold import NUM_UNSEEN, gold_set
from sifirdan.evals.suffix_words import (
    NOUN_CHAINS,
    VERB_CHAINS,
    Stem,
    build,
    invented_stems,
    known_stems,
    words,
)


@pytest.mark.parametrize(
    ("stem", "chain", "parts"),
    [
        (Stem("ev", "noun"), "lAr ImIz DAn", "ev ler imiz den"),
        (Stem("kitap", "noun", softens=True), "(I)m", "kitab ım"),
        (Stem("kitap", "noun", softens=True), "lAr", "kitap lar"),
        (Stem("kitap", "noun", softens=True), "CA", "kitap ça"),
        (Stem("renk", "noun", softens=True), "(s)I nI", "reng i ni"),
        (Stem("araba", "noun"), "(s)I nDA ki", "araba sı nda ki"),
        (Stem("köprü", "noun"), "(n)In", "köprü nün"),
        (Stem("göz", "noun"), "sIz lIK", "göz süz lük"),
        (Stem("çocuk", "noun", softens=True), "(y)A", "çocuğ a"),
        (Stem("kuş", "noun"), "DA ki lAr", "kuş ta ki ler"),
        (Stem("başla", "verb"), "Iyor lAr", "başl ıyor lar"),
        (Stem("yürü", "verb"), "Iyor um", "yürü yor um"),
        (Stem("gel", "verb"), "(y)AcAK lAr", "gel ecek ler"),
        (Stem("oku", "verb"), "(y)AcAK DI", "oku yacak tı"),
        (Stem("bak", "verb"), "mIş DI", "bak mış tı"),
        (Stem("gör", "verb"), "DIK lAr I nI", "gör dük ler i ni"),
        (Stem("yaz", "verb"), "(y)Abil DI", "yaz abil di"),
    ],
)  # fmt: skip
def test_words_are_spelt_as_turkish_spells_them(stem: Stem, chain: str, parts: str) -> None:
    assert " ".join(build(stem, chain.split()).parts) == parts


def test_boundaries_are_where_the_suffixes_begin() -> None:
    word = build(Stem("ev", "noun"), ["lAr", "ImIz", "DAn"])
    assert word.text == "evlerimizden" and word.boundaries == {2, 5, 9}


def test_the_listed_stems_are_many_and_each_once() -> None:
    listed = known_stems()
    assert len(listed) >= 300 and len({(stem.text, stem.kind) for stem in listed}) == len(listed)
    assert {stem.kind for stem in listed} == {"noun", "verb"}
    for stem in listed:
        chains = NOUN_CHAINS if stem.kind == "noun" else VERB_CHAINS
        for chain in chains:
            word = build(stem, chain)
            assert re.fullmatch("[abcçdefgğhıijklmnoöprsştuüvyzâîû]+", word.text), word
            assert len(word.parts) == len(chain) + 1 and all(word.parts)


def test_invented_stems_are_new_each_time_and_the_same_for_a_seed() -> None:
    some = list(islice(invented_stems(1), 500))
    assert len({stem.text for stem in some}) == 500 and all(stem.invented for stem in some)
    assert some == list(islice(invented_stems(1), 500))
    assert not {stem.text for stem in some} & {stem.text for stem in known_stems()}


def test_the_gold_set_has_its_bands_and_unseen_stems_are_unseen() -> None:
    first = next(invented_stems(4)).text
    text = f"Evler, «evin»; [kitabı] KİTAP! -{first}lar geldi. " + "yol " * 5
    bands = gold_set([text], chains_a_stem=6, seed=4)
    assert [band.name for band in bands] == ["frequent", "middle", "rare", "unseen"]
    assert sum(band.num_stems for band in bands) >= 300 and bands[-1].num_stems == NUM_UNSEEN
    assert sum(len(band.words) for band in bands) >= 2000
    assert bands[0].most == 5 and bands[2].fewest == bands[3].most == 0
    frequent = {word.stem.text for word in bands[0].words}
    assert {"yol", "ev", "kitap"} <= frequent
    assert first not in {word.stem.text for word in bands[-1].words}, (
        "the text begins a word with it"
    )


def test_words_are_drawn_by_seed_and_differ_within_a_stem() -> None:
    stems = list(known_stems())[:20]
    some = words(stems, 6, seed=1)
    assert some == words(stems, 6, seed=1) != words(stems, 6, seed=2)
    assert len({word.text for word in some}) == len(some) == 120
