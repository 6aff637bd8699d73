"""Choose what is asked in instruction data, and which words are held out for evaluation.

Every word is in one of three sets: `unseen` (no entry of it was pretrained on), `known` (pretrained
on, but none of its entries is used in instructions) and train (the rest). Pure functions, equal
results for equal inputs and seed. What can be asked comes from dictionary_pairs.py and
chat_sources.py, the wording from question_templates.py.
"""

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sifirdan.chat import Message
from sifirdan.corpus.dictionary_pairs import Candidate
from sifirdan.corpus.question_templates import DICTIONARY_TEMPLATES
from sifirdan.corpus.records import Document
from sifirdan.text import lower_tr

Where = Literal["train", "heldout", "absent"]  # of a record: pretrained on, in val or test, neither

_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Example:
    """One conversation of the instruction data. `template` numbers the wording of its question
    (None where people wrote it); `template_heldout` says that training never shows that wording."""

    type: str
    source: str
    license: str
    messages: tuple[Message, ...]
    template: int | None = None
    template_heldout: bool = False
    copy: int = 0

    @property
    def id(self) -> str:
        content = json.dumps([self.copy, *self.messages], ensure_ascii=False, sort_keys=True)
        return f"{self.type}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def row(self) -> dict[str, Any]:
        """The line of a readable file."""
        return {
            "id": self.id,
            "type": self.type,
            "source": self.source,
            "license": self.license,
            "template": self.template,
            "template_heldout": self.template_heldout,
            "messages": list(self.messages),
        }


@dataclass(frozen=True)
class HeadwordSets:
    """The words held out of training, none of them in both."""

    known: frozenset[str]
    unseen: frozenset[str]


def split_headwords(
    entries: Iterable[Document],
    candidates: Iterable[Candidate],
    where: Mapping[str, Where],
    *,
    caps: Mapping[str, int],
    known: int,
    unseen: int,
    seed: int,
) -> HeadwordSets:
    """Choose the words to hold out: a plain draw, rare words or not, spread over the types as `caps`
    spreads training. Each comes from another entry, so that no answer is asked for twice. `where`
    tells of each record whether it was pretrained on."""
    places: dict[str, set[Where]] = defaultdict(set)
    for entry in entries:
        for word in entry.meta["headwords"]:
            places[word].add(where[entry.id])
    reserved = {w for w, seen in places.items() if "train" not in seen and "heldout" in seen}
    pretrained = {w for w, seen in places.items() if "train" in seen}
    candidates = list(candidates)
    asked = [c for c in candidates if where[c.record] == "train" and c.subject in pretrained]
    held = [c for c in candidates if where[c.record] == "heldout" and c.subject in reserved]
    return HeadwordSets(_pick(asked, caps, known, seed), _pick(held, caps, unseen, seed))


def divide(
    candidates: Iterable[Candidate],
    entries: Iterable[Document],
    where: Mapping[str, Where],
    sets: HeadwordSets,
    drops: Counter[str],
) -> dict[str, list[Candidate]]:
    """The candidates of `train`, `known` and `unseen`. A record that lists a held-out word among its
    headwords or antonyms teaches nothing in train, not even under another word."""
    heldout = sets.known | sets.unseen
    tainted = {
        entry.id
        for entry in entries
        if not heldout.isdisjoint([*entry.meta["headwords"], *entry.meta["antonyms"]])
    }
    divided: dict[str, list[Candidate]] = {"train": [], "known": [], "unseen": []}
    for candidate in candidates:
        if candidate.subject in sets.unseen:
            divided["unseen"].append(candidate)
        elif where[candidate.record] != "train":
            drops[f"{candidate.type}/not_pretrained_on"] += 1
        elif candidate.subject in sets.known:
            divided["known"].append(candidate)
        elif candidate.record in tainted:
            drops[f"{candidate.type}/record_of_heldout_word"] += 1
        else:
            divided["train"].append(candidate)
    return divided


def ask_for_training(
    candidates: Iterable[Candidate],
    uses: Mapping[str, int],
    *,
    caps: Mapping[str, int],
    heldout_templates: int,
    min_uses: int,
    seed: int,
    drops: Counter[str],
) -> list[Example]:
    """At most `caps[type]` examples a type, never with a held-out template; words that occur at
    least `min_uses` times come first (phrases are not counted and come with them)."""
    by_type = _by_type(candidates)
    examples: list[Example] = []

    def rare_last(candidate: Candidate) -> tuple[bool, bytes]:
        rare = candidate.subject in uses and uses[candidate.subject] < min_uses
        return rare, _shuffled(candidate, seed)

    for kind, templates in DICTIONARY_TEMPLATES.items():
        pool = sorted(by_type[kind], key=rare_last)
        asked = templates[: len(templates) - heldout_templates]
        examples += draw(pool, asked, caps[kind], seed=seed, drops=drops)
    return examples


def ask_for_evaluation(
    candidates: Iterable[Candidate], *, heldout_templates: int, seed: int
) -> list[Example]:
    """Each word once a type, half of them in a wording that training never shows."""
    examples: list[Example] = []
    for kind, pool in _by_type(candidates).items():
        templates = DICTIONARY_TEMPLATES[kind]
        num_asked = len(templates) - heldout_templates
        rng = random.Random(f"{seed} evaluation {kind}")
        for candidate in {c.subject: c for c in pool}.values():
            is_heldout = rng.random() < 0.5
            choices = range(num_asked, len(templates)) if is_heldout else range(num_asked)
            number = rng.choice(choices)
            examples.append(_example(candidate, number, templates[number], heldout=is_heldout))
    return examples


def draw(
    pool: list[Candidate],
    templates: tuple[str, ...],
    cap: int,
    *,
    seed: int,
    drops: Counter[str],
) -> list[Example]:
    """At most `cap` examples, best candidates first: every subject is asked about once, with a
    template drawn for it, before any is asked about again with the next one."""
    if not pool:
        return []
    rng = random.Random(f"{seed} templates {pool[0].type}")
    once: dict[str, Candidate] = {}
    for candidate in pool:
        once.setdefault(candidate.subject, candidate)
    drops[f"{pool[0].type}/same_question"] += len(pool) - len(once)
    firsts = [rng.randrange(len(templates)) for _ in once]
    examples: list[Example] = []
    for turn in range(len(templates)):
        for candidate, first in zip(once.values(), firsts, strict=True):
            if len(examples) < cap:
                number = (first + turn) % len(templates)
                examples.append(_example(candidate, number, templates[number], heldout=False))
    drops[f"{pool[0].type}/over_cap"] += max(0, len(once) - cap)
    return examples


def count_uses(texts: Iterable[str], words: Iterable[str]) -> dict[str, int]:
    """How often each of `words` (single ones) stands in the texts, whatever its case."""
    keys = {word: lower_tr(word) for word in words}
    counts = dict.fromkeys(keys.values(), 0)
    for text in texts:
        for word in _WORD.findall(lower_tr(text)):
            if word in counts:
                counts[word] += 1
    return {word: counts[key] for word, key in keys.items()}


def _shuffled(candidate: Candidate, seed: int) -> bytes:
    """A key that sorts candidates at random, alike in every process."""
    mixed = f"{seed} {candidate.type} {candidate.subject} {candidate.record}"
    return hashlib.sha256(mixed.encode()).digest()


def _pick(
    candidates: list[Candidate], caps: Mapping[str, int], count: int, seed: int
) -> frozenset[str]:
    words: set[str] = set()
    records: set[str] = set()
    total = sum(caps[kind] for kind in DICTIONARY_TEMPLATES) or 1
    for kind, pool in _by_type(candidates).items():
        quota = min(round(count * caps[kind] / total), count - len(words))
        for candidate in sorted(pool, key=lambda candidate: _shuffled(candidate, seed)):
            if quota > 0 and candidate.subject not in words and candidate.record not in records:
                words.add(candidate.subject)
                records.add(candidate.record)
                quota -= 1
    return frozenset(words)


def _by_type(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    by_type: dict[str, list[Candidate]] = {kind: [] for kind in DICTIONARY_TEMPLATES}
    for candidate in candidates:
        by_type[candidate.type].append(candidate)
    return by_type


def _example(candidate: Candidate, number: int, template: str, *, heldout: bool) -> Example:
    messages: tuple[Message, ...] = (
        {"role": "user", "content": template.format(**candidate.fills)},
        {"role": "assistant", "content": candidate.answer},
    )
    return Example(candidate.type, candidate.source, candidate.license, messages, number, heldout)
