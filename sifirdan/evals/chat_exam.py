"""Examination of a chat model on instructions that it was not tuned on, by type of question.

Right words, form, ends; whether an answer belongs to its own question; and what one gets without
reading the question at all, without which none of these numbers means much. Not for asking: answers.py
does that.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifirdan.chat import Message
from sifirdan.evals.answers import Answer, answer, answer_nats, own_question_share
from sifirdan.generate import Sampling
from sifirdan.model.transformer import Transformer
from sifirdan.text import lower_tr
from sifirdan.tokenizer import Tokenizer

MAIN_TYPE = "definition"  # the type that the headline numbers of a set are of
_CONSTANTS = 100  # training answers of a type among which the best constant one is sought
_TOKEN = re.compile(r"\w+")
_MARK = re.compile(r"<\|\w+\|>|</?s>|<pad>|<unk>")


@dataclass(frozen=True)
class Question:
    """A conversation of one question and its right answer; `template` is the number of its wording."""

    type: str
    messages: list[Message]
    template: int | None

    @property
    def expected(self) -> str:
        return self.messages[-1]["content"]


def draw_questions(
    rows: Sequence[Mapping[str, Any]], *, main: int, others: int, seed: int
) -> list[Question]:
    """Questions drawn by seed from rows of data/chat/*.jsonl: `main` of the main type, up to `others` of
    each other type, grouped by type; the main type comes first."""
    by_type: dict[str, list[Question]] = {}
    for row in rows:
        question = Question(row["type"], row["messages"], row["template"])
        by_type.setdefault(row["type"], []).append(question)
    drawn = []
    for kind in sorted(by_type, key=lambda kind: (kind != MAIN_TYPE, kind)):
        random.Random(seed).shuffle(by_type[kind])
        drawn += by_type[kind][: main if kind == MAIN_TYPE else others]
    return drawn


def constant_answers(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, str]:
    """The best answer to all questions of a type at once: the training answer that matches the others
    best. What a model gets that does not read the question."""
    by_type: dict[str, list[str]] = {}
    for row in rows:
        by_type.setdefault(row["type"], []).append(row["messages"][-1]["content"])
    best = {}
    for kind, texts in sorted(by_type.items()):
        drawn = random.Random(seed).sample(texts, min(_CONSTANTS, len(texts)))
        bags = [Counter(words(text)) for text in drawn]
        scores = [sum(_overlap(bag, other) for other in bags) for bag in bags]
        best[kind] = drawn[scores.index(max(scores))]
    return best


def examine(
    model: Transformer,
    tokenizer: Tokenizer,
    questions: Sequence[Question],
    constants: Mapping[str, str],
    *,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> tuple[dict[str, Any], list[Answer]]:
    """Answers to the questions, and the numbers about them: of the main type under their own names, of
    the others, but for their form, under `types`."""
    asked = [question.messages for question in questions]
    answers = answer(
        model, tokenizer, asked, sampling=sampling, max_new_tokens=max_new_tokens, seed=seed
    )
    nats = answer_nats(model, tokenizer, asked)
    results: dict[str, Any] = form(answers)  # of all, where there is no question of the main type
    types: dict[str, Any] = {}
    for kind in dict.fromkeys(question.type for question in questions):
        here = [n for n, question in enumerate(questions) if question.type == kind]
        own = [questions[n] for n in here]
        given = [answers[n] for n in here]
        found = matches(given, constants.get(kind))
        found["nats_per_target"] = sum(nats[n][0] for n in here) / sum(nats[n][1] for n in here)
        wordings = {"own_question_share": [question.template for question in own]}
        if kind == MAIN_TYPE:
            wordings["own_question_share_any_wording"] = [None] * len(own)
        for name, numbers in wordings.items():
            share = own_question_share(model, tokenizer, [q.messages for q in own], numbers)
            if not math.isnan(share):  # else no two questions share a wording
                found[name] = share
        if kind == MAIN_TYPE:
            results = form(given) | found
        else:
            types[kind] = {"questions": len(own), **found}
    return results | {"types": types}, answers


def form(answers: Sequence[Answer]) -> dict[str, Any]:
    """Shape alone, whatever the answers say."""
    count = max(1, len(answers))
    return {
        "questions": len(answers),
        "stopped_share": sum(a.stopped for a in answers) / count,
        "one_sentence_share": sum(a.stopped and a.is_one_sentence for a in answers) / count,
        "well_formed_share": sum(is_well_formed(a) for a in answers) / count,
        "distinct_share": len({a.text for a in answers}) / count,
        "control_text_share": sum(bool(_MARK.search(a.text)) for a in answers) / count,
    }


def is_well_formed(answer: Answer) -> bool:
    """Ended by itself, begins with a capital, a digit or a quotation mark, ends with a closing mark,
    and does not say the same four words twice."""
    text = answer.text.strip()
    begins = text[:1].isupper() or text[:1].isdigit() or text[:1] in "“\"‘'("
    said = words(text)
    fours = list(zip(*(said[start:] for start in range(4)), strict=False))
    return answer.stopped and begins and text[-1:] in tuple(".!?…\"”’)") and len(set(fours)) == len(fours)  # fmt: skip


def matches(answers: Sequence[Answer], constant: str | None) -> dict[str, Any]:
    """Exact and partial match (see `partial_match`), each beside what is had without the question: by
    the best constant answer (`blind_…`), and by the model's own answer to the next question
    (`shifted_…`), which shares everything but the question."""
    count = max(1, len(answers))
    expected = [answer.expected for answer in answers]
    given = [answer.text for answer in answers]
    shifted = [*given[1:], *given[:1]]
    sides = {"": given, "shifted_": shifted}
    if constant is not None:
        sides["blind_"] = [constant] * len(answers)
    found = {}
    for name, texts in sides.items():
        pairs = list(zip(texts, expected, strict=True))
        found[f"{name}exact_match_share"] = sum(words(a) == words(b) for a, b in pairs) / count
        found[f"{name}partial_match"] = sum(partial_match(a, b) for a, b in pairs) / count
    return found


def partial_match(given: str, expected: str) -> float:
    """F1 of the words of two texts as bags, 0 to 1 (as SQuAD scores answers, Rajpurkar et al. 2016);
    case and punctuation do not count, by Turkish rules."""
    return _overlap(Counter(words(given)), Counter(words(expected)))


def words(text: str) -> list[str]:
    """Words and numbers in Turkish lower case."""
    return _TOKEN.findall(lower_tr(text))


def _overlap(first: Counter[str], second: Counter[str]) -> float:
    common = (first & second).total()
    return 2 * common / (first.total() + second.total()) if common else 0.0
