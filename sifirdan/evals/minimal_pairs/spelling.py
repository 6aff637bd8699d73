"""Phenomena inside a word: vowel harmony, softening, hardening and buffer letters.

Rules: Göksel & Kerslake, Turkish: A Comprehensive Grammar (2005), chapters 2, 3 and 6. A wrong form is
the right one with one choice made the other way. In every function each writing of the place is right
as often as wrong: -lar behind back stems and -ler behind front ones, in the same frames.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product

from sifirdan.evals.minimal_pairs.drafts import (
    Deck,
    Draft,
    even,
    four_way,
    is_front,
    is_open,
    is_voiceless,
    word,
)
from sifirdan.evals.minimal_pairs.lexicon import Lexicon
from sifirdan.evals.suffix_words import Stem, build

OTHER_HARMONY = str.maketrans("aeıi", "eaiı")
OTHER_VOICE = str.maketrans("dtcç", "tdçc")


@dataclass(frozen=True)
class Slot:
    """A sentence for words of some meaning with a chain of suffixes."""

    chain: str
    frame: str
    words: str  # a list of the lexicon


_TWO_WAY = (
    Slot("lAr", "Pazarda çok güzel {} vardı.", "things"),
    Slot("lAr ImIz", "Taşınırken bütün {} kayboldu.", "things"),
    Slot("lAr I nI", "Ayşe eski {} komşusuna verdi.", "things"),
    Slot("DA", "Bütün gün {} çalıştık.", "places"),
    Slot("lAr A", "Eskiden o {} çok giderdik.", "places"),
    Slot("lAr DAn", "Bunu {} öğrendik.", "people"),
    Slot("lAr ImIz A", "Bayramda bütün {} hediye aldık.", "people"),
    Slot("mAK tA", "Kardeşim {} kararlı.", "verbs"),
    Slot("(y)AcAK lAr", "Çocuklar yarın biraz {}.", "verbs"),
    Slot("mA DAn", "Bu çocuklar {} rahat edemez.", "verbs"),
    Slot("mAlI sInIz", "Bence siz de biraz {}.", "verbs"),
)
_TWO_WAY_INVENTED = (
    Slot("lAr", "Pazarda çok güzel {} vardı.", "invented"),
    Slot("lAr ImIz", "Taşınırken bütün {} kayboldu.", "invented"),
    Slot("DAn", "Çocuklar az önce {} söz etti.", "either"),
    Slot("mA DAn", "Bu çocuklar {} rahat edemez.", "invented_verbs"),
)
_LAST_ONLY = ("(y)AcAK lAr", "mAK tA")  # only their last suffix is wrong


def vowel_harmony_two_way(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """-lar or -ler: evler, not evlar."""
    decks = _decks(lexicon, rng)

    def make(case: tuple[Slot, bool]) -> Draft:
        slot, front = case
        stem = decks[slot.words].draw(lambda stem: is_front(stem) == front)
        parts = build(stem, slot.chain.split()).parts
        kept = len(parts) - 1 if slot.chain in _LAST_ONLY else 1
        wrong = "".join(parts[kept:]).translate(OTHER_HARMONY)
        return Draft("a or e", slot.frame, "".join(parts), "".join(parts[:kept]) + wrong, stem)

    return even(product(_TWO_WAY, (True, False)), 4, make) + even(
        product(_TWO_WAY_INVENTED, (True, False)), 4, make
    )


_FOUR_WAY = (
    Slot("(I)nIz I", "Babam sizin {} bana verdi.", "things"),
    Slot("(I)nIz", "Dün sizin {} kayboldu.", "things"),
    Slot("(I)mIz (n)In", "Bizim {} rengi çok güzel.", "things"),
    Slot("(n)In", "Az önce {} sesini duydum.", "animals"),
    Slot("sIz", "Taşınınca bir süre {} kaldık.", "things"),
    Slot("DI m", "Dün akşam ben de biraz {}.", "verbs"),
    Slot("DI nIz", "Siz dün bütün gün {}.", "verbs"),
    Slot("mIş sInIz", "Siz dün gece biraz {}.", "verbs"),
    Slot("DI K", "Biz bütün gün {}.", "verbs"),
)
_FOUR_WAY_INVENTED = (
    Slot("(I)nIz I", "Babam sizin {} bana verdi.", "invented"),
    Slot("DI m", "Dün akşam ben de biraz {}.", "invented_verbs"),
    Slot("DI nIz", "Siz dün bütün gün {}.", "invented_verbs"),
)


def vowel_harmony_four_way(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """-ı, -i, -u or -ü: gözü, not gözi."""
    decks = _decks(lexicon, rng)
    slots, invented = Deck(_FOUR_WAY, rng), Deck(_FOUR_WAY_INVENTED, rng)

    def make(case: tuple[tuple[str, str], bool]) -> Draft:
        (right, wrong), nonce = case
        slot = (invented if nonce else slots).draw()
        stem = decks[slot.words].draw(lambda stem: four_way(stem) == right)
        first, *suffixes = build(stem, slot.chain.split()).parts
        return Draft(
            f"{right} or {wrong}", slot.frame, first + "".join(suffixes),
            first + "".join(suffixes).replace(right, wrong), stem,
        )  # fmt: skip

    orders = list(permutations("ıiuü", 2))
    return even(product(orders, (False,)), 8, make) + even(product(orders, (True,)), 2, make)


_SOFTENING = (
    ("(y)I", "Bu {} hiç unutmadım."),
    ("(y)A", "Çocuk uzun uzun {} baktı."),
    ("(s)I nI", "Ayşe bize onun {} anlattı."),
    ("(s)I nDAn", "Ayşe bize onun {} söz etti."),
    ("(I)mIz DAn", "Herkese bizim {} söz ettik."),
    ("(I)mIz I", "Ayşe bizim {} görmüş."),
    ("(I)nIz I", "Herkes sizin {} konuşuyor."),
    ("(I)m DAn", "Babam herkese benim {} söz etti."),
)


def consonant_softening(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """kitabı, not kitapı, but topu, not tobu."""
    found = []
    for letter, num in (("p", 14), ("ç", 8), ("t", 19), ("k", 19)):
        decks = {
            softens: Deck(stems[letter], rng)
            for softens, stems in ((True, lexicon.softening), (False, lexicon.lasting))
        }

        def make(softens: bool, decks: dict[bool, Deck[Stem]] = decks) -> Draft:
            stem = decks[softens].draw()
            chain, frame = rng.choice(_SOFTENING)
            wrong = Stem(stem.text, stem.kind, not softens)
            rule = "softens" if softens else "stays hard"
            return Draft(rule, frame, word(stem, chain), word(wrong, chain), stem)

        found += even((True, False), num, make)
    return found


_HARDENING = (
    Slot("DA", "Anahtarımı {} unuttum.", "containers"),
    Slot("DAn", "Çocuklar {} yeni döndü.", "places"),
    Slot("DAn", "Ben bunu {} öğrendim.", "people"),
    Slot("DA ki lAr", "Şu {} çok eski.", "places"),
    Slot("CI lAr", "Bizim sokakta eski {} var.", "trades"),
    Slot("DI m", "Dün akşam ben de biraz {}.", "verbs"),
    Slot("DI K", "Biz dün bütün gün {}.", "verbs"),
    Slot("DIK ImIz I", "Ayşe bizim {} görmüş.", "verbs"),
    Slot("DIK DAn", "Çocuklar biraz {} sonra eve döndü.", "verbs"),
)
_HARDENING_INVENTED = (
    Slot("DA", "Anahtarımı {} unuttum.", "invented"),
    Slot("DAn", "Çocuklar az önce {} söz etti.", "invented"),
    Slot("DI m", "Dün akşam ben de biraz {}.", "invented_verbs"),
)


def consonant_hardening(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """kitapta, not kitapda, but evde, not evte."""
    decks = _decks(lexicon, rng)

    def make(case: tuple[Slot, bool]) -> Draft:
        slot, voiceless = case
        stem = decks[slot.words].draw(lambda stem: is_voiceless(stem) == voiceless)
        first, *suffixes = build(stem, slot.chain.split()).parts
        right = "".join(suffixes)
        wrong = right[0].translate(OTHER_VOICE) + right[1:]
        return Draft(
            "t or ç" if voiceless else "d or c", slot.frame, first + right, first + wrong, stem
        )

    return even(product(_HARDENING, (True, False)), 5, make) + even(
        product(_HARDENING_INVENTED, (True, False)), 5, make
    )


_BUFFERS = (
    Slot("(y)I", "Babam {} bana verdi.", "things"),
    Slot("(y)A", "Yarın sabah erkenden {} gideceğiz.", "places"),
    Slot("(s)I nDAn", "Herkese komşunun {} söz ettik.", "things"),
    Slot("(s)I nDAn", "Ayşe bize Elif'in {} söz etti.", "people"),
    Slot("(y)lA", "Çocuklar bütün gün {} oynadı.", "things"),
    Slot("(y)AlIm", "Hadi biz de biraz {}.", "verbs"),
    Slot("(y)Abil DI", "Kardeşim sonunda {}.", "verbs"),
    Slot("(y)IncA", "Sen {} herkes sustu.", "verbs"),
)
_BUFFERS_INVENTED = (
    Slot("(y)I", "Babam {} bana verdi.", "either"),
    Slot("(s)I nDAn", "Herkese komşunun {} söz ettik.", "either"),
    Slot("(y)lA", "Çocuklar bütün gün {} oynadı.", "either"),
)


def buffer_letters(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """arabayı, not arabaı, but evi, not evyi."""
    decks = _decks(lexicon, rng)

    def make(case: tuple[Slot, bool]) -> Draft:
        slot, opened = case
        stem = decks[slot.words].draw(lambda stem: is_open(stem) == opened and not stem.softens)
        letter, rest = slot.chain[1], slot.chain[3:]
        wrong = word(stem, rest if opened else letter + rest)
        rule = f"with {letter}" if opened else f"without {letter}"
        return Draft(rule, slot.frame, word(stem, slot.chain), wrong, stem)

    return even(product(_BUFFERS, (True, False)), 6, make) + even(
        product(_BUFFERS_INVENTED, (True, False)), 3, make
    )


def _decks(lexicon: Lexicon, rng: random.Random) -> dict[str, Deck[Stem]]:
    lists: dict[str, Sequence[Stem]] = {
        "things": lexicon.things,
        "places": lexicon.places,
        "containers": lexicon.containers,
        "people": lexicon.people,
        "animals": lexicon.animals,
        "trades": lexicon.trades,
        "verbs": lexicon.verbs,
        "invented": lexicon.invented,
        "invented_open": lexicon.invented_open,
        "invented_verbs": lexicon.invented_verbs,
        "either": [*lexicon.invented, *lexicon.invented_open],
    }
    return {name: Deck(stems, rng) for name, stems in lists.items()}
