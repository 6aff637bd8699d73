"""Multiple choice and cloze: which of some continuations does a model find most likely?

An item is {"context", "choices", "answer"}, or with a gap {"before", "after", "choices", "answer"};
`answer` counts from 0. A choice follows the text before it after one space and, in a gap, is scored
together with the text behind it. Encoding is lm-eval's (its _encode_pair), so that figures agree:
text and choice are encoded together and parted by the number of ids that the text has alone; only a
tokenizer that puts a mark before every text puts one here. Texts that differ in the tested place
only are compared as wholes in minimal pairs, not here.
"""

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
from sifirdan.evals.own_files import read_rows

MIN_ITEMS = (
    10  # for a standard error: of fewer, the spread says little, and nothing where all are right
)
_FORM = (
    '{"context": …, "choices": [two or more], "answer": from 0}, or "before" and "after" in place of'
    ' "context"'
)
_SEE = "docs/TASKS.md shows how an item is written"

EncodeMany = Callable[[Sequence[str]], list[list[int]]]

FOLDER = Path(__file__).parent
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
    2021, arXiv 2104.08315). `standard_error` is of `accuracy`; None for fewer than MIN_ITEMS."""

    items: int
    chance: float
    accuracy: float
    standard_error: float | None
    accuracy_by_bytes: float
    accuracy_by_tokens: float
    accuracy_over_alone: float


def read_task(name: str) -> list[Item]:
    """The items of one of our own tasks."""
    return read_items(FOLDER / TASKS[name])


def read_items(path: Path) -> list[Item]:
    """The items of a JSON Lines file; DataError names the line of one that cannot be used."""
    items = []
    for place, row in read_rows(path, expected=_FORM):
        if fault := _fault(row):
            raise DataError(f"{place}: {fault}", expected=_FORM, todo=_SEE)
        items.append(_item(row))
    if not items:
        raise DataError(f"{path}: holds no item", expected=_FORM, todo=_SEE)
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
    numbers = [number for number, item in enumerate(items, 1) for _ in item.choices]
    contexts = encode_many([context for context, _ in pairs])
    wholes = encode_many([context + choice for context, choice in pairs])
    alone = encode_many([choice for _, choice in pairs])
    lead = [mark_id] if mark_before_context else []
    pieces, sizes = [], []
    for owner, (context, whole) in enumerate(zip(contexts, wholes, strict=True)):
        choice = whole[len(context) :]
        lengths = sorted((len(choice), len(alone[owner])))
        if lengths[0] < 1 or lengths[1] > window:
            raise _unscorable(numbers[owner], pairs[owner], lengths, window)
        sizes.append(len(choice))
        pieces.append(_piece(2 * owner, lead + context, choice, window))
        pieces.append(_piece(2 * owner + 1, [mark_id], alone[owner], window))
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
    enough = len(right) >= MIN_ITEMS
    return Accuracy(
        items=len(scores),
        chance=statistics.fmean(1 / len(score.nats) for score in scores),
        accuracy=statistics.fmean(right),
        standard_error=statistics.stdev(right) / math.sqrt(len(right)) if enough else None,
        accuracy_by_bytes=statistics.fmean(s.credit(s.nats / s.num_bytes) for s in scores),
        accuracy_by_tokens=statistics.fmean(s.credit(s.nats / s.num_tokens) for s in scores),
        accuracy_over_alone=statistics.fmean(s.credit(s.nats - s.nats_alone) for s in scores),
    )


def _fault(row: dict[str, Any]) -> str:
    """Why a row is no item; empty where it is one."""
    gap = "before" in row
    needed = {"before", "choices", "answer"} if gap else {"context", "choices", "answer"}
    if missing := sorted(needed - row.keys()):
        return f'has no "{missing[0]}"'
    if unknown := sorted(row.keys() - needed - ({"after"} if gap else set())):
        return f'has the unknown key "{unknown[0]}"'
    key = "before" if gap else "context"
    if not isinstance(row[key], str) or not isinstance(row.get("after", ""), str):
        return f'its "{key}" or "after" is no text'
    if not row[key] or row[key] != row[key].strip():
        return f'its "{key}" is empty, or begins or ends with white space'
    choices = row["choices"]
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        return 'its "choices" are no list of texts'
    if len(choices) < 2 or len(set(choices)) < len(choices):
        return 'its "choices" are fewer than two, or twice the same'
    if any(not choice or choice != choice.strip() for choice in choices):
        return "a choice is empty, or begins or ends with white space"
    if type(row["answer"]) is not int or not 0 <= row["answer"] < len(choices):
        return f'its "answer" is no whole number from 0 to {len(choices) - 1}'
    return ""


def _item(row: dict[str, Any]) -> Item:
    after = row.get("after", "")
    choices = tuple(choice + after for choice in row["choices"])
    return Item(row.get("before") or row["context"], choices, row["answer"])


def _unscorable(number: int, pair: tuple[str, str], lengths: list[int], window: int) -> DataError:
    short = lengths[0] < 1
    return DataError(
        f"item {number}, {' …'.join(pair)}: the choice has {lengths[0] if short else lengths[1]} tokens"
        " of its own",
        expected=f"1 to {window}, the window",
        todo="begin the choice with what this tokenizer does not drop and does not join to the context,"
        " or leave the task out"
        if short
        else "score this task with models of a longer context only, or shorten the choice",
    )


def _piece(owner: int, before: list[int], scored: list[int], window: int) -> Piece:
    ids = np.array(before + scored, np.int64)[-(window + 1) :]
    targets = ids[1:].copy()
    targets[: len(targets) - len(scored)] = IGNORE
    return Piece(owner, ids[:-1], targets)
