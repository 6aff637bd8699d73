"""Phenomena of what is written apart, together or with an apostrophe: mI, de/da, ki, proper nouns.

Rules: the spelling guide of the Turkish Language Association (TDK, Yazım Kılavuzu), on the question
particle, the conjunctions de and ki, and the apostrophe. Apart is right as often as together.
"""

import random
from itertools import permutations, product

from sifirdan.evals.minimal_pairs.drafts import (
    PLACE,
    Deck,
    Draft,
    crossed,
    even,
    four_way,
    is_front,
    is_voiceless,
    word,
)
from sifirdan.evals.minimal_pairs.lexicon import Lexicon
from sifirdan.evals.minimal_pairs.spelling import OTHER_HARMONY, OTHER_VOICE
from sifirdan.evals.suffix_words import Stem, build
from sifirdan.text import upper_tr

_ASKED = ("Bunu sana {noun} {} verdi?", "Dün seni bir {noun} {} aradı?", "Bu işi {noun} {} yaptı?")
_YOU = {"Sen": ("n", "sIn"), "Siz": ("nIz", "sInIz")}


def question_particle(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """öğretmen mi, not öğretmen mı; gidecek misin, not gideceksin mi; gittin mi, not gittinmi."""
    actions, people = Deck(lexicon.actions, rng), Deck(lexicon.people, rng)

    def harmony(case: tuple[str, str]) -> Draft:
        right, wrong = case
        noun = people.draw(lambda noun: four_way(noun) == right)
        return Draft(
            f"{right} or {wrong}", rng.choice(_ASKED).replace("{noun}", noun.text),
            f"m{right}", f"m{wrong}", noun,
        )  # fmt: skip

    def person(case: tuple[tuple[str, str], str]) -> Draft:
        (when, tense), who = case
        action = actions.draw()
        bare, ending = word(action.verb, tense), _YOU[who][tense != "DI"]
        full = word(action.verb, f"{tense} {ending}")
        particle = word(action.verb, f"{tense} mI")[len(bare) :]
        good, bad = f"{full} {particle}", f"{bare} {particle}{full[len(bare) :]}"
        if tense != "DI":
            good, bad = bad, good
        return Draft("place", f"{who} {when} {action.complement} {PLACE}?", good, bad, action.verb)

    def apart(who: str) -> Draft:
        action = actions.draw()
        verb = word(action.verb, f"DI {_YOU[who][0]}")
        particle = word(action.verb, f"DI {_YOU[who][0]} mI")[len(verb) :]
        frame = f"{who} dün {action.complement} {PLACE}?"
        return Draft("apart", frame, f"{verb} {particle}", verb + particle, action.verb)

    def together(who: str) -> Draft:
        action = actions.draw()
        good = word(action.verb, f"mA Iyor {_YOU[who][1]}")
        cut = len(action.verb.text)
        frame = f"{who} artık {action.complement} {PLACE}."
        return Draft("together", frame, good, f"{good[:cut]} {good[cut:]}", action.verb)

    later = (("yarın", "(y)AcAK"), ("bugün", "Iyor"))
    return [
        *even(permutations("ıiuü", 2), 4, harmony),
        *even(product(later, _YOU), 5, person),
        *even(product((("dün", "DI"),), _YOU), 10, person),
        *even(_YOU, 10, apart),
        *even(_YOU, 10, together),
    ]


def de_apart_or_together(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """Bu çanta da bizim, not Bu çantada bizim, but Anahtarımı çantada unuttum."""
    things = ("Anahtarımı {} unuttum.", "Bu {} bizim.")
    frames = {
        "containers": (things, ("Bütün paramız {} kalmış.", "Şu {} sizin.")),
        "people": (
            ("Evin anahtarı {} kaldı.", "Yarın {} bizimle gelecek."),
            ("Eski defter hâlâ {} duruyor.", "Bence {} haklı."),
        ),
        "invented": (things,),
    }
    lists = {
        "containers": lexicon.containers,
        "people": lexicon.people,
        "invented": lexicon.invented,
    }
    found: list[Draft] = []
    for words, num in (("containers", 20), ("people", 30), ("invented", 10)):
        nouns, sentences = Deck(lists[words], rng), Deck(frames[words], rng)
        for _ in range(num):
            noun, (inside, also) = nouns.draw(), sentences.draw()
            forms = (word(noun, "DA"), f"{noun.text} {'de' if is_front(noun) else 'da'}")
            found += crossed(noun, forms, [("together", inside), ("apart", also)])
    return found


_RELATIVE = (
    ("DA ki", "Şu {} eşyalar çok eski.", "places"),
    ("(n)In ki", "Bu çanta eski ama {} yeni.", "people"),
    ("(n)In ki", "Benim köyüm uzak ama {} yakın.", "people"),
    ("DA ki", "Şu {} eşyalar çok eski.", "invented"),
    ("(n)In ki", "Bu çanta eski ama {} yeni.", "invented"),
)
_CONJUNCTION = (
    ("DI", "Kardeşim o kadar çok {} kimse inanamadı.", "verbs"),
    ("DI m", "Ben dün öyle çok {} kimse inanamadı.", "verbs"),
    ("DI", "Ayşe dün öyle çok {} kimse inanamadı.", "verbs"),
    ("DI", "Kardeşim o kadar çok {} kimse inanamadı.", "invented_verbs"),
)


def ki_apart_or_together(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """o kadar güldü ki, not güldüki, but evdeki, not evde ki."""
    decks = {
        "places": Deck(lexicon.places, rng), "people": Deck(lexicon.people, rng), "invented": Deck(lexicon.invented, rng),
        "verbs": Deck(lexicon.verbs, rng), "invented_verbs": Deck(lexicon.invented_verbs, rng),
    }  # fmt: skip

    def relative(case: tuple[str, str, str]) -> Draft:
        chain, frame, words = case
        noun = decks[words].draw()
        good = word(noun, chain)
        return Draft("together", frame, good, f"{good[:-2]} ki", noun)

    def conjunction(case: tuple[str, str, str]) -> Draft:
        chain, frame, words = case
        verb = decks[words].draw()
        said = word(verb, chain)
        return Draft("apart", frame, f"{said} ki", f"{said}ki", verb)

    *known, place, owner = _RELATIVE
    return [
        *even(known, 15, relative),
        *even([place], 8, relative),
        *even([owner], 7, relative),
        *even(_CONJUNCTION, 15, conjunction),
    ]


_CITY_FRAMES = (
    ("DA", "Geçen yaz {} kaldık."),
    ("DAn", "Annem dün {} döndü."),
    ("(y)A", "Gelecek hafta {} gideceğiz."),
    ("(n)In", "Babam {} havasını çok sever."),
)


def apostrophe_suffixes(lexicon: Lexicon, rng: random.Random) -> list[Draft]:
    """Ankara'da, not Ankarada or Ankara'de, but Ankaralı and okulda without an apostrophe."""
    named = [
        Stem(upper_tr(s.text[0]) + s.text[1:], "noun", invented=True) for s in lexicon.invented
    ]
    decks = {
        "cities": Deck(lexicon.cities, rng), "named": Deck(named, rng),
        "places": Deck(lexicon.places, rng), "invented": Deck(lexicon.invented, rng),
    }  # fmt: skip
    frames = Deck(_CITY_FRAMES, rng)

    def inflected(words: str) -> Draft:
        city, (chain, frame) = decks[words].draw(), frames.draw()
        return Draft("with apostrophe", frame, _marked(city, chain), word(city, chain), city)

    def without(case: tuple[str, str, str]) -> Draft:
        words, chain, frame = case
        noun = decks[words].draw(lambda noun: not noun.softens)
        return Draft("without apostrophe", frame, word(noun, chain), _marked(noun, chain), noun)

    def harmony(case: tuple[tuple[str, str], bool]) -> Draft:
        (chain, frame), front = case
        city = decks["cities"].draw(lambda city: is_front(city) == front)
        bad = city.text + _marked(city, chain)[len(city.text) :].translate(OTHER_HARMONY)
        return Draft("a or e", frame, _marked(city, chain), bad, city)

    def hardening(case: tuple[tuple[str, str], bool]) -> Draft:
        (chain, frame), voiceless = case
        city = decks["cities"].draw(lambda city: is_voiceless(city) == voiceless)
        bad = city.text + _marked(city, chain)[len(city.text) :].translate(OTHER_VOICE)
        return Draft("d or t", frame, _marked(city, chain), bad, city)

    places = ("places", "DA", "Bütün gün {} çalıştık.")
    demonyms = ("cities", "lI", "Yeni komşumuz {} bir öğretmen.")
    return [
        *even(["cities"], 30, inflected),
        *even([places, demonyms], 15, without),
        *even(["named"], 8, inflected),
        *even([("invented", "DA", "Anahtarımı {} unuttum.")], 8, without),
        *even(product(_CITY_FRAMES[:3], (True, False)), 5, harmony),
        *even(product(_CITY_FRAMES[:2], (True, False)), 4, hardening),
    ]


def _marked(noun: Stem, chain: str) -> str:
    first, *suffixes = build(noun, chain.split()).parts
    return f"{first}'{''.join(suffixes)}"
