"""Phenomena between words of a sentence: government, agreement, number, negation, tense, order.

Rules: Göksel & Kerslake, Turkish: A Comprehensive Grammar (2005), chapters 12 to 23. All but word order
are crossed: the same two forms stand in two sentences, and each is right in one of them. Word order
swaps two words, so no count can tell its members apart.
"""

import random
from collections.abc import Sequence
from itertools import combinations

from sifirdan.evals.minimal_pairs.drafts import PLACE, Deck, Draft, crossed, even, word
from sifirdan.evals.minimal_pairs.lexicon import Action, Lexicon
from sifirdan.evals.suffix_words import Stem

_CASES = {"DAn": "DAn", "A": "(y)A", "I": "(y)I"}
_CASE_NAMES = {"DAn": "ablative", "A": "dative", "I": "accusative"}


def case_government(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """kediden korktum, not kediye korktum, but kediye inandım. With a verb of the first person a
    form like öğretmeni cannot be read as "his teacher" and taken for the subject."""
    nouns = Deck([*lexicon.people, *lexicon.animals], rng)
    verbs = {key: Deck(actions, rng) for key, actions in lexicon.government.items()}
    frames = Deck(("Ben o {} {}.", "Ben o yıl tuhaf bir {} {}.", "Ben o {} hiç {}."), rng)
    found: list[Draft] = []
    for first, second in (("DAn", "A"), ("DAn", "I"), ("A", "I")):
        for _ in range(20):
            noun, frame = nouns.draw(), frames.draw()
            ending = "mA DI m" if "hiç" in frame else "DI m"
            sentences = [
                (
                    f"{_CASE_NAMES[wanted]}, not {_CASE_NAMES[other]}",
                    frame.format(PLACE, _said(verbs[f"{wanted} {other}"].draw(), ending)),
                )
                for wanted, other in ((first, second), (second, first))
            ]
            forms = (word(noun, _CASES[first]), word(noun, _CASES[second]))
            found += crossed(noun, forms, sentences)
    return found


_PERSONS = {
    "Ben": ("m", "(y)Im"), "Sen": ("n", "sIn"), "O": ("", ""), "Biz": ("K", "(y)Iz"), "Siz": ("nIz", "sInIz"),
}  # fmt: skip


def subject_verb_agreement(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """Ben gideceğim, not Ben gideceksin, but Sen gideceksin."""
    actions = Deck(lexicon.actions, rng)
    tenses = Deck((("dün", "DI", 0), ("yarın", "(y)AcAK", 1), ("bugün", "Iyor", 1)), rng)
    found: list[Draft] = []
    for pair in combinations(_PERSONS, 2):
        for _ in range(6):
            action, (when, tense, kind) = actions.draw(), tenses.draw()
            forms = [word(action.verb, f"{tense} {_PERSONS[person][kind]}") for person in pair]
            sentences = [
                (person, f"{person} {when} {action.complement} {PLACE}.") for person in pair
            ]
            found += crossed(action.verb, forms, sentences)
    return found


_OWNERS = {"benim": "(I)m", "senin": "(I)n", "bizim": "(I)mIz", "sizin": "(I)nIz"}


def possessive_agreement(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """benim evim, not benim evin, but senin evin."""
    decks = {False: Deck(lexicon.things, rng), True: Deck(lexicon.invented, rng)}
    frames = Deck(
        (("Dün {} {} kayboldu.", ""), ("Herkes {} {} çok beğendi.", "I"), ("Ayşe herkese {} {} söz etti.", "DAn")),
        rng,
    )  # fmt: skip
    found: list[Draft] = []
    for pair in combinations(_OWNERS, 2):
        for nonce in [False] * 8 + [True] * 2:
            noun, (frame, case) = decks[nonce].draw(), frames.draw()
            forms = [word(noun, f"{_OWNERS[owner]} {case}") for owner in pair]
            sentences = [(owner, frame.format(owner, PLACE)) for owner in pair]
            found += crossed(noun, forms, sentences)
    return found


_NUMBERS = [
    "iki",
    "üç",
    "dört",
    "beş",
    "altı",
    "yedi",
    "sekiz",
    "on",
    "yirmi",
    "otuz",
    "yüz",
    "birkaç",
]


def singular_after_numbers(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """üç kitap, not üç kitaplar, but bazı kitaplar, not bazı kitap."""
    decks = {False: Deck(lexicon.things, rng), True: Deck(lexicon.invented, rng)}
    numbers = Deck(_NUMBERS, rng)
    frames = Deck(
        (
            ("Rafta {number} {} duruyor.", "Rafta bazı {} duruyor."),
            ("Çarşıda {number} {} daha gördük.", "Çarşıda bazı {} gördük."),
            ("Her {} ayrı bir kutuda.", "Bu {} birbirine çok benziyor."),
        ),
        rng,
    )
    found: list[Draft] = []
    for nonce in [False] * 50 + [True] * 10:
        noun, (single, several) = decks[nonce].draw(), frames.draw()
        single = single.replace("{number}", numbers.draw())
        forms = (noun.text, word(noun, "lAr"))
        found += crossed(noun, forms, [("singular", single), ("plural", several)])
    return found


def negation(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """Kimse gelmedi, not Kimse geldi; with ne … ne and çoktan the verb is not negated."""
    actions, names = Deck(lexicon.actions, rng), Deck(lexicon.names, rng)
    negated = Deck(
        ("Bugün kimse {} {}.", "Bu hafta hiç kimse {} {}.", "Dün hiçbir çocuk {} {}.", "Bizden hiçbiri {} {}."), rng
    )  # fmt: skip
    plain = Deck(("Dün ne {name} ne {name} {} {}.", "{name} {} çoktan {}."), rng)
    found: list[Draft] = []
    for _ in range(60):
        action, frame = actions.draw(), plain.draw()
        rule = "ne … ne" if " ne " in frame else "çoktan"
        while "{name}" in frame:
            frame = frame.replace("{name}", names.draw(), 1)
        forms = (word(action.verb, "mA DI"), word(action.verb, "DI"))
        sentences = [("negated", negated.draw()), (rule, frame)]
        filled = [(rule, frame.format(action.complement, PLACE)) for rule, frame in sentences]
        found += crossed(action.verb, forms, filled)
    return found


_TIMES = (
    ("dün", "yarın"), ("geçen hafta", "gelecek hafta"), ("dün sabah", "yarın sabah"), ("geçen ay", "önümüzdeki ay"),
    ("geçen pazar", "önümüzdeki pazar"), ("dün akşam", "yarın akşam"),
)  # fmt: skip


def tense_adverb(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """dün geldi, not dün gelecek, but yarın gelecek."""
    actions, names, times = (
        Deck(lexicon.actions, rng),
        Deck(lexicon.names, rng),
        Deck(_TIMES, rng),
    )
    found: list[Draft] = []
    for _ in range(60):
        action, name, (past, future) = actions.draw(), names.draw(), times.draw()
        forms = (word(action.verb, "DI"), word(action.verb, "(y)AcAK"))
        sentences = [
            (rule, f"{name} {when} {action.complement} {PLACE}.")
            for rule, when in (("past", past), ("future", future))
        ]
        found += crossed(action.verb, forms, sentences)
    return found


_POSTPOSITIONS = (
    ("Bunları {} aldık.", "için", "", "people"),
    ("Çocuk tıpkı bir {} davrandı.", "gibi", "", "animals"),
    ("Bu soru bir {} soruldu.", "tarafından", "", "people"),
    ("Biz bugün {} yürüdük.", "kadar", "(y)A", "places"),
    ("Herkes yeni {} konuştu.", "hakkında", "", "places"),
)


def word_order(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """öğretmen için, not için öğretmen; eski ev, not ev eski; en büyük, not büyük en."""
    lists: dict[str, Sequence[Stem]] = {
        "people": lexicon.people, "animals": lexicon.animals, "places": lexicon.places,
        "things": lexicon.things, "invented": lexicon.invented,
    }  # fmt: skip
    decks = {name: Deck(stems, rng) for name, stems in lists.items()}
    adjectives, numbers = Deck(lexicon.adjectives, rng), Deck(_NUMBERS, rng)

    def postposition(case: tuple[str, str, str, str]) -> Draft:
        frame, behind, suffix, words = case
        noun = decks[words].draw()
        return _swapped("postposition", frame, word(noun, suffix), behind, noun)

    def adjective(words: str) -> Draft:
        noun = decks[words].draw()
        frame = "Depoda birkaç {} daha vardı."
        return _swapped("adjective", frame, adjectives.draw(), noun.text, noun)

    def number(words: str) -> Draft:
        noun = decks[words].draw()
        return _swapped("number", "Ayşe çarşıdan {} aldı.", numbers.draw(), noun.text, noun)

    def degree(case: tuple[str, str, str]) -> Draft:
        frame, degree, words = case
        noun = decks[words].draw()
        return _swapped(
            "degree", frame.replace("{noun}", noun.text), degree, adjectives.draw(), noun
        )

    degrees = (
        ("Buradaki {} {noun} benim.", "en", "things"),
        ("Bu {noun} ötekinden {} görünüyor.", "daha", "things"),
    )
    return [
        *even(_POSTPOSITIONS, 10, postposition),
        *even([("Çocuk tıpkı bir {} davrandı.", "gibi", "", "invented")], 4, postposition),
        *even(["things"], 24, adjective),
        *even(["invented"], 6, adjective),
        *even(["things"], 16, number),
        *even(degrees, 10, degree),
    ]


def _swapped(rule: str, frame: str, first: str, second: str, stem: Stem) -> Draft:
    return Draft(rule, frame, f"{first} {second}", f"{second} {first}", stem)


def _said(action: Action, ending: str) -> str:
    """The verb with what stands before it: yardım ettim."""
    return f"{action.complement} {word(action.verb, ending)}".strip()
