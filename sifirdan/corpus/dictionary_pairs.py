"""Facts about words, from dictionary entries: meaning, use in a sentence, synonyms and so on.

What cannot be shown as one clean sentence, or should not be taught, is dropped and counted. Pure
functions. Not for the choice of words for training or evaluation (instructions.py), nor for the
wording of questions (question_templates.py).
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from sifirdan.cleaning.by_reader import close_up_punctuation, repair_sentence
from sifirdan.corpus.records import Document
from sifirdan.text import lower_tr, upper_tr

MAX_SENTENCE_WORDS = 20  # a longer example is mostly a literary quotation
MAX_SYNONYMS = 3
# Two words with one of these are an ordinary compound ("tecrit etmek"), not an idiom.
_LIGHT_VERBS = {
    "etmek", "edilmek", "ettirmek", "olmak", "olunmak", "yapmak", "yapılmak", "kılmak", "eylemek",
}  # fmt: skip

_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_BREAK = re.compile(r"[.!?…][\"”’)]?\s+[\"“‘(]?[A-ZÇĞİÖŞÜÂÎÛ]")
_FINAL_MARK = re.compile(r"[.!?…][\"”’]?$")
_SPELLING = str.maketrans("âîû", "aiu", " '-")
_FIRST_LETTER = re.compile(r"^\W*\w")


@dataclass(frozen=True)
class Candidate:
    """A fact that a question can be asked about: `subject` is what the question names, `fills`
    what its templates need, `record` the id of the document it comes from."""

    type: str
    subject: str
    fills: Mapping[str, str]
    answer: str
    record: str
    source: str
    license: str


def dictionary_candidates(
    entries: Iterable[Document], *, max_answer_chars: int, drops: Counter[str]
) -> list[Candidate]:
    """Every usable pair of the entries; what is dropped is counted as "type/reason"."""
    entries = list(entries)
    senses = Counter(word for entry in entries for word in set(entry.meta["headwords"]))
    found: dict[tuple[str, str, str], Candidate] = {}
    for entry in entries:
        for kind, derive in _DERIVERS.items():
            for word, answer in derive(entry.meta, senses):
                key = (kind, word, entry.id)  # one example sentence a sense is enough
                if key in found:
                    drops[f"{kind}/second_of_entry"] += 1
                    continue
                answer = capitalise(repair_sentence(answer))
                if reason := reject_reason(word, answer, max_answer_chars):
                    drops[f"{kind}/{reason}"] += 1
                    continue
                shown, _ = close_up_punctuation(word)
                fills = {"x": shown, "X": capitalise(shown)}
                found[key] = Candidate(
                    kind, word, fills, answer, entry.id, entry.source, entry.license
                )
    return _without_shared_answers(list(found.values()), drops)


def _without_shared_answers(found: list[Candidate], drops: Counter[str]) -> list[Candidate]:
    """Leave out answers that several entries give, such as "İstanbul iline bağlı ilçelerden biri.":
    they tell no word from another, and would carry a held-out answer into training."""
    records: dict[tuple[str, str], set[str]] = defaultdict(set)
    for candidate in found:
        records[candidate.type, candidate.answer].add(candidate.record)
    kept = [c for c in found if len(records[c.type, c.answer]) == 1]
    shared = Counter(c.type for c in found if len(records[c.type, c.answer]) > 1)
    drops.update({f"{kind}/shared_answer": count for kind, count in shared.items()})
    return kept


def capitalise(sentence: str) -> str:
    """A capital first letter, by the Turkish rule and behind an opening quote too."""
    return _FIRST_LETTER.sub(lambda match: upper_tr(match[0]), sentence)


def reject_reason(word: str, answer: str, max_chars: int) -> str | None:
    """Why a pair is not fit for instruction data, or None."""
    if word.startswith("("):
        return "placeholder"
    if not answer:
        return "empty"
    if is_blocked(f"{word} {answer}"):
        return "blocked_word"
    if "(" in answer or " / " in answer:
        return "not_plain"
    if _SENTENCE_BREAK.search(answer):
        return "not_one_sentence"
    if not _FINAL_MARK.search(answer):
        return "no_final_mark"
    if len(answer) > max_chars:
        return "too_long"
    return "too_short" if len(answer.split()) < 2 else None


def is_blocked(text: str) -> bool:
    """Whether a vulgar or insulting word, or one of terror, stands in the text."""
    return any(
        word in _BLOCKED_WORDS or word.startswith(_BLOCKED_STEMS)
        for word in _WORD.findall(lower_tr(text))
    )


def _read_blocked() -> tuple[frozenset[str], tuple[str, ...]]:
    listed = json.loads(
        resources.files("sifirdan.corpus").joinpath("blocked_words.json").read_text("utf-8")
    )
    return frozenset(listed["words"]), tuple(listed["stems"])


_BLOCKED_WORDS, _BLOCKED_STEMS = _read_blocked()

# Derivers: from the meta of an entry and the number of senses of each headword to (word, answer).

_Pairs = Iterator[tuple[str, str]]


def _definition(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    for word in meta["headwords"]:
        if senses[word] == 1 and len(word.split()) == 1:
            yield word, meta["definition"]


def _idiom(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    for phrase in meta["headwords"] if meta["pos"] == "v" else []:
        words = phrase.split()
        is_compound = len(words) == 2 and words[-1] in _LIGHT_VERBS
        if senses[phrase] == 1 and len(words) >= 2 and not is_compound:
            yield phrase, meta["definition"]


def _proverb(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    for phrase in meta["headwords"] if meta["pos"] == "i" else []:
        if senses[phrase] == 1 and len(phrase.split()) >= 3:
            yield phrase, meta["definition"]


def _sentence(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    for word in meta["headwords"]:
        if len(word.split()) == 1:
            for example in meta["examples"]:
                if 3 <= len(example.split()) <= MAX_SENTENCE_WORDS and uses_word(example, word):
                    yield word, example


def _synonym(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    bare = {word: _bare(word) for word in meta["headwords"]}
    for word in bare:
        others = [other for other in bare if bare[other] != bare[word]][:MAX_SYNONYMS]
        if not others or senses[word] > 1 or len(word.split()) > 1:
            continue
        if len(others) == 1:
            yield word, f"“{capitalise(word)}” ile “{others[0]}” eş anlamlıdır."
        else:
            listed = ", ".join(f"“{other}”" for other in others)
            yield word, f"“{capitalise(word)}” ile eş anlamlı sözcükler: {listed}."


def _bare(word: str) -> str:
    """What spellings of one word share: 'askerî' and 'askeri', 'süt dişi' and 'sütdişi'."""
    return lower_tr(word).translate(_SPELLING)


def _antonym(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    opposites = [word for word in meta["antonyms"] if len(word.split()) == 1]
    for word in meta["headwords"]:
        if opposites and senses[word] == 1 and len(word.split()) == 1:
            first = capitalise(word)
            yield word, f"“{first}” sözcüğünün zıt anlamlısı “{opposites[0]}” sözcüğüdür."


def _english(meta: Mapping[str, Any], senses: Mapping[str, int]) -> _Pairs:
    for word in meta["headwords"]:
        if meta["english"] and senses[word] == 1 and len(word.split()) == 1:
            yield word, f"“{capitalise(word)}” İngilizcede “{meta['english'][0]}” demektir."


_DERIVERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, int]], _Pairs]] = {
    "definition": _definition,
    "idiom": _idiom,
    "proverb": _proverb,
    "sentence": _sentence,
    "synonym": _synonym,
    "antonym": _antonym,
    "english": _english,
}


def uses_word(sentence: str, word: str) -> bool:
    """Whether a word of the sentence begins with the stem: gitmek in 'gidiyor', kitap in 'kitabı'."""
    stem = lower_tr(word)
    if stem.endswith(("mek", "mak")) and len(stem) > 4:
        stem = stem[:-3]
    if len(stem) > 2 and stem[-1] in "pçtk":  # these soften before a vowel
        stem = stem[:-1]
    return any(token.startswith(stem) for token in _WORD.findall(lower_tr(sentence)))
