"""Instruction data that is not about words: provinces, given questions and answers, short talk,
the hand-written turns of the project, and the messages of users.

Pure functions except for the two readers of files. Not for dictionary entries.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from sifirdan.chat import Message, check_messages
from sifirdan.cleaning.by_reader import repair, repair_sentence
from sifirdan.corpus.dictionary_pairs import Candidate, capitalise, is_blocked
from sifirdan.corpus.instructions import Example, draw
from sifirdan.corpus.question_templates import PROVINCE_TEMPLATES, genitive, locative
from sifirdan.corpus.records import Document
from sifirdan.errors import DataError
from sifirdan.text import lower_tr, replace_surrogates

# Short talk with one of these does not come from us: it claims to be a robot, to eat electricity or
# to love a programming language, is a line of a broken translation, or sells somebody's product.
_FOREIGN_TALK = (
    "robot", "python", "java", "c++", "elektrik", "filozof", "maskeli", "nutuk", "savaşı", "ölümsüz",
    "kibir", "kibirli", "kısayım", "ego", "harika", "kıskanç", "yanlış mı", "değilim?", "yapmak",
    "seni yapar", "beni ne yapar", "hissed", "hissett", "deneyim", "sevdin", "duygular", "korku",
    "modun", "üzen", "üzmek", "üzüyor", "mutsuz", "kızdıran", "endişe", "sevmiyorsun", "sinirlendir",
    "cihaz", "bilgisayarın", "pizza", "kebap", "pasta", "kek", "şeker", "4 rakam", "beyni", "beynim",
    "kodlar", "yolo", "hiç yaşadım", "donanım", "randevu", "proje", "lezzetli", "programlama",
    "nasıl yemekler", "işlemci", "güç kaynağı", "dünyanın", "zeki gör", "akıllı oldu", "akıllı mısın",
    "ilginç", "rüya gördün", "daha erken", "hazırlamamı", "haberleri", "kitap ne", "hangi dilleri",
    "ne güzel haber", "neyi?", "nasıl yapıyorsun", "utan", "mutlu ola", "üzgün", "yer misin",
    "kardeş", "dünyalı", "chatbot", "mantıklı", "sistemde", "destekleniyor", "tesisli", "tatbikatı",
    "sevki", "kahvaltı", "saat kaç", "asla üz", "kaç yaş", "geliştiriyorum",
    "duygusal", "yalan", "öğrendin", "istediğin konu", "çok kötüsün",
)  # fmt: skip

_HANDWRITTEN_LICENSE = "Apache-2.0"


def province_candidates(documents: Iterable[Document]) -> list[Candidate]:
    """Plate number, region and districts of each province; a district only where its name is the
    only one of its kind (51 are called Merkez)."""
    documents = list(documents)
    names = Counter(name for document in documents for name in document.meta["districts"])
    return [
        Candidate(kind, subject, fills, answer, document.id, document.source, document.license)
        for document in documents
        for kind, subject, fills, answer in _province_facts(document.meta)
        if kind != "district" or names[subject] == 1
    ]


def _province_facts(
    meta: Mapping[str, Any],
) -> Iterator[tuple[str, str, dict[str, str], str]]:
    name, plate, districts = meta["province"], f"{meta['plate']:02d}", meta["districts"]
    of = genitive(name)
    fills = {"x": name, "of": of, "at": locative(name)}
    yield "plate", name, fills, f"{of} plaka kodu {plate}."
    yield "plate_owner", plate, {"x": plate}, f"{plate}, {of} plaka kodudur."
    yield "region", name, fills, f"{name}, {meta['region']} Bölgesi'ndedir."
    if len(districts) > 1:
        listed = f"{', '.join(districts[:-1])} ve {districts[-1]}"
        yield "districts", name, fills, f"{of} ilçeleri: {listed}."
    for district in districts:
        yield "district", district, {"x": district}, f"{district}, {of} bir ilçesidir."


def ask_about_provinces(
    candidates: Iterable[Candidate], caps: Mapping[str, int], *, seed: int, drops: Counter[str]
) -> list[Example]:
    """At most `caps[type]` examples a type, with every wording in turn."""
    pools: dict[str, list[Candidate]] = {kind: [] for kind in PROVINCE_TEMPLATES}
    for candidate in candidates:
        pools[candidate.type].append(candidate)
    return [
        example
        for kind, templates in PROVINCE_TEMPLATES.items()
        for example in draw(pools[kind], templates, caps[kind], seed=seed, drops=drops)
    ]


def given_questions(documents: Iterable[Document], cap: int, drops: Counter[str]) -> list[Example]:
    """Records that are a question and its answer already."""
    pairs = [(d, d.meta["question"], d.meta["answer"]) for d in documents]
    return _usable("qa", pairs, cap, drops)


def short_talk(documents: Iterable[Document], cap: int, drops: Counter[str]) -> list[Example]:
    """The first exchange of each conversation (later ones lean on turns that rarely fit together);
    where the lines are answers to choose from, a pair for each."""
    pairs = []
    for document in documents:
        question, *answers = document.meta["turns"]
        for answer in answers if document.meta["alternatives"] else answers[:1]:
            pairs.append((document, question, answer))
    return _usable("talk", pairs, cap, drops)


def _usable(
    kind: str, pairs: Iterable[tuple[Document, str, str]], cap: int, drops: Counter[str]
) -> list[Example]:
    examples: dict[str, Example] = {}
    for document, question, answer in pairs:
        question, answer = question.strip(), capitalise(repair_sentence(answer))
        reason = _reject_talk(question, answer)
        example = _exchange(kind, document.source, document.license, question, answer)
        if not reason and example.id in examples:
            reason = "duplicate"
        if not reason and len(examples) >= cap:
            reason = "over_cap"
        if reason:
            drops[f"{kind}/{reason}"] += 1
        else:
            examples[example.id] = example
    return list(examples.values())


def _reject_talk(question: str, answer: str) -> str | None:
    both = lower_tr(f"{question} {answer}")
    if not question or not answer:
        return "empty"
    if is_blocked(both):
        return "blocked_word"
    return "foreign_talk" if any(part in both for part in _FOREIGN_TALK) else None


def _exchange(kind: str, source: str, license: str, question: str, answer: str) -> Example:
    messages: tuple[Message, ...] = (
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    )
    return Example(kind, source, license, messages)


def handwritten(split: str, *, copies: int = 1) -> list[Example]:
    """The project's own turns: who the model is, greetings, thanks, what it cannot know. `split`
    is "train" or "heldout" (the same matters in other words)."""
    lines = resources.files("sifirdan.corpus").joinpath("handwritten_chat.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    return [
        Example(
            row["topic"], "handwritten", _HANDWRITTEN_LICENSE, tuple(row["messages"]), copy=copy
        )
        for row in rows
        if row["split"] == split
        for copy in range(copies)
    ]


def own_messages(folder: Path) -> list[Example]:
    """The conversations in the .jsonl files below a folder, in name order; none if it is missing.
    Raises DataError with file and line at the first that cannot be used."""
    examples = []
    for path in sorted(folder.rglob("*.jsonl")):
        with open(path, "rb") as file:  # binary lines end at LF only
            for number, line in enumerate(file, start=1):
                if line.strip():
                    messages = _read_messages(line, f"{path}, line {number}")
                    examples.append(Example("own", "own", "own", messages))
    return examples


def _read_messages(line: bytes, place: str) -> tuple[Message, ...]:
    expected = 'a line like {"messages": [{"role": "user", "content": "…"}, …]}'
    try:
        content = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}: byte {error.start} is not UTF-8", todo="save the file as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON: {error}", expected=expected) from None
    if not isinstance(content, dict) or "messages" not in content:
        raise DataError(f'{place}: has no key "messages"', expected=expected)
    try:
        check_messages(content["messages"])
        messages: list[Message] = [
            {"role": message["role"], "content": repair(message["content"], "messages")[0]}
            for message in content["messages"]
        ]
        check_messages(messages)
    except DataError as error:
        raise DataError(f"{place}: {error}", todo="mend or remove the line") from None
    if any(replace_surrogates(m["content"]) != m["content"] for m in messages):
        raise DataError(
            f"{place}: holds a lone surrogate such as \\ud83d",
            expected="whole Unicode characters",
            todo="mend or remove the line",
        )
    if not any(message["role"] == "assistant" for message in messages):
        raise DataError(
            f"{place}: has no assistant message, so there is nothing to learn from it",
            expected='an answer with the role "assistant"',
            todo="mend or remove the line",
        )
    return tuple(messages)
