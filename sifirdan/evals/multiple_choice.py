"""Multiple choice and cloze: which of some continuations does a model find most likely?

An item is {"context", "choices", "answer"}, or with a gap {"before", "after", "choices", "answer"};
`answer` counts from 0. A choice follows the text before it after one space and, in a gap, is scored
together with the text behind it. Encoding is lm-eval's (its _encode_pair), so that figures agree:
text and choice are encoded together and parted by the number of ids that the text has alone; only a
tokenizer that puts a mark before every text puts one here. Texts that differ in the tested place
only are compared as wholes in minimal pairs, not here.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sifirdan.corpus.loader import IGNORE
from sifirdan.errors import DataError
from sifirdan.evals.likelihood import BATCH_TOKENS, Piece, nats_of

EncodeMany = Callable[[Sequence[str]], list[list[int]]]

FOLDER = Path(__file__).parent
DESCRIPTIONS = "tasks/tasks.json"
TASKS = {
    "es_anlam": "tasks/es_anlam.jsonl",
    "cloze_son_kelime": "tasks/cloze_son_kelime.jsonl",
    "ek_secimi": "tasks/ek_secimi.jsonl",
    "dunya": "tasks/dunya.jsonl",
}


@dataclass(frozen=True)
class Item:
    """`choices` are whole continuations of `context`, without the space before them."""

    context: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class ItemScore:
    """Of each choice of an item: nats after the context and after the start of a document alone, and
    its size; float64 and int64, shape (choices,)."""

    nats: np.ndarray
    nats_alone: np.ndarray
    num_tokens: np.ndarray
    num_bytes: np.ndarray
    answer: int

    def credit(self, values: np.ndarray) -> float:
        """1 where the answer has the lowest value, a share of it where others have the same."""
        best = np.isclose(values, values.min(), rtol=1e-6, atol=1e-9)
        return float(best[self.answer] / best.sum())


@dataclass(frozen=True)
class Accuracy:
    """Shares of items answered rightly. `accuracy` goes by the likelihood of the whole choice,
    `_by_bytes` and `_by_tokens` divide it by the choice's size, `_over_alone` by the choice's
    likelihood without the context (GPT-3, arXiv 2005.14165; as mutual information in Holtzman et al.
    2021, arXiv 2104.08315). `standard_error` is of `accuracy`."""

    items: int
    chance: float
    accuracy: float
    standard_error: float
    accuracy_by_bytes: float
    accuracy_by_tokens: float
    accuracy_over_alone: float


def read_task(name: str) -> list[Item]:
    """The items of one of our own tasks."""
    return read_items(FOLDER / TASKS[name])


def read_items(path: Path) -> list[Item]:
    """The items of a JSON Lines file; DataError names the line of one that cannot be used."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    items = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            items.append(_item(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}:{number}: is no item ({error!r})",
                expected='{"context": …, "choices": [at least two], "answer": from 0}, or "before" and'
                ' "after" in place of "context"',
            ) from None
    if not items:
        raise DataError(f"{path}: holds no item", expected="one a line")
    return items


def score_items(
    model: nn.Module,
    encode_many: EncodeMany,
    items: Sequence[Item],
    *,
    window: int,
    mark_id: int,
    mark_before_context: bool,
    batch_tokens: int = BATCH_TOKENS,
) -> list[ItemScore]:
    """A score for each item. `mark_id` stands before a choice alone and, if `mark_before_context`,
    before each context. What does not fit into `window` is cut from the left."""
    pairs = [(item.context, " " + choice) for item in items for choice in item.choices]
    contexts = encode_many([context for context, _ in pairs])
    wholes = encode_many([context + choice for context, choice in pairs])
    alone = encode_many([choice for _, choice in pairs])
    lead = [mark_id] if mark_before_context else []
    pieces, sizes = [], []
    for number, (pair, context, whole) in enumerate(zip(pairs, contexts, wholes, strict=True)):
        choice = whole[len(context) :]
        if not choice or len(choice) > window:
            raise DataError(
                f"{' +'.join(pair)!r}: the choice has {len(choice)} tokens of its own",
                expected=f"1 to {window}, the window",
                todo="give the choice a beginning that does not melt into the context, or shorten it",
            )
        sizes.append(len(choice))
        pieces.append(_piece(2 * number, lead + context, choice, window))
        pieces.append(_piece(2 * number + 1, [mark_id], alone[number], window))
    nats = nats_of(model, pieces, 2 * len(pairs), batch_tokens=batch_tokens)
    scores, start = [], 0
    for item in items:
        end = start + len(item.choices)
        scores.append(
            ItemScore(
                np.array(nats[2 * start : 2 * end : 2]),
                np.array(nats[2 * start + 1 : 2 * end : 2]),
                np.array(sizes[start:end]),
                np.array([len(choice.encode()) for choice in item.choices]),
                item.answer,
            )
        )
        start = end
    return scores


def accuracy(scores: Sequence[ItemScore]) -> Accuracy:
    """The shares of at least one item."""
    right = [score.credit(score.nats) for score in scores]
    spread = statistics.stdev(right) if len(right) > 1 else 0.0
    return Accuracy(
        items=len(scores),
        chance=statistics.fmean(1 / len(score.nats) for score in scores),
        accuracy=statistics.fmean(right),
        standard_error=spread / math.sqrt(len(right)),
        accuracy_by_bytes=statistics.fmean(s.credit(s.nats / s.num_bytes) for s in scores),
        accuracy_by_tokens=statistics.fmean(s.credit(s.nats / s.num_tokens) for s in scores),
        accuracy_over_alone=statistics.fmean(s.credit(s.nats - s.nats_alone) for s in scores),
    )


def _item(row: dict[str, Any]) -> Item:
    gap = "before" in row
    known = {"before", "after", "choices", "answer"} if gap else {"context", "choices", "answer"}
    if row.keys() - known:
        raise ValueError(f"unknown keys {sorted(row.keys() - known)}")
    context, after = row["before" if gap else "context"], row.get("after", "")
    if not isinstance(row["choices"], list):
        raise TypeError("choices is no list")
    choices = tuple(choice + after for choice in row["choices"])
    if not context or context != context.strip() or any(choice[:1].isspace() for choice in choices):
        raise ValueError("a context is empty or ends in a space, or a choice begins with one")
    if len(choices) < 2 or len(set(choices)) < len(choices) or not all(choices):
        raise ValueError("choices are fewer than two, empty or twice the same")
    if type(row["answer"]) is not int or not 0 <= row["answer"] < len(choices):
        raise ValueError(f"answer is {row['answer']!r}")
    return Item(context, choices, row["answer"])


def _piece(owner: int, before: list[int], scored: list[int], window: int) -> Piece:
    ids = np.array(before + scored, np.int64)[-(window + 1) :]
    targets = ids[1:].copy()
    targets[: len(targets) - len(scored)] = IGNORE
    return Piece(owner, ids[:-1], targets)
