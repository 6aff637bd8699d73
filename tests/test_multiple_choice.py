"""Choices are scored as one token after another would be, and the tasks give nothing away."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from conftest import tiny_model

from sifirdan.errors import DataError
from sifirdan.evals import multiple_choice
from sifirdan.evals.multiple_choice import (
    Item,
    ItemScore,
    accuracy,
    read_items,
    read_task,
    score_items,
)
from sifirdan.tokenizer import Tokenizer

ITEMS = [
    Item("Her sabah", ("okula gider.", "okuldan gider.", "okul."), 0),
    Item("“ak” sözünün eş anlamlısı:", ("kara", "beyaz"), 1),
    Item("Ağaçlar", ("yüzer.", "büyür.", "konuşur.", "uyur."), 1),
]


def nats_of_tail(model: torch.nn.Module, before: list[int], scored: list[int]) -> float:
    """One token at a time."""
    nats, seen = 0.0, list(before)
    for token in scored:
        logits = model(torch.tensor([seen]))[0, -1].double()
        nats -= float(logits.log_softmax(-1)[token])
        seen.append(token)
    return nats


@pytest.mark.parametrize("marked", [False, True])
def test_each_choice_equals_brute_force(tokenizer: Tokenizer, marked: bool) -> None:
    model = tiny_model(tokenizer.vocab_size, 64)
    scores = score_items(
        model, tokenizer.encode_many, ITEMS, window=64, mark_id=2, mark_before_context=marked
    )
    with torch.no_grad():
        for item, score in zip(ITEMS, scores, strict=True):
            context = tokenizer.encode(item.context)
            lead = [2] if marked else []
            for number, choice in enumerate(item.choices):
                tail = tokenizer.encode(f"{item.context} {choice}")[len(context) :]
                expected = nats_of_tail(model, lead + context, tail)
                assert score.nats[number] == pytest.approx(expected, rel=1e-5)
                alone = nats_of_tail(model, [2], tokenizer.encode(f" {choice}"))
                assert score.nats_alone[number] == pytest.approx(alone, rel=1e-5)
                assert score.num_tokens[number] == len(tail)
                assert score.num_bytes[number] == len(choice.encode())


def test_what_does_not_fit_is_cut_from_the_left(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size, 64)
    item = Item("Bir varmış bir yokmuş, " * 20 + "sonra", ("uyudu.", "uyandı."), 0)
    (score,) = score_items(
        model, tokenizer.encode_many, [item], window=16, mark_id=2, mark_before_context=False
    )
    whole = tokenizer.encode(f"{item.context} uyudu.")
    tail = whole[len(tokenizer.encode(item.context)) :]
    with torch.no_grad():
        logprobs = model(torch.tensor([whole[-17:-1]]))[0].double().log_softmax(-1)
    expected = -sum(float(logprobs[-len(tail) + i, token]) for i, token in enumerate(tail))
    assert score.nats[0] == pytest.approx(expected, rel=1e-5)


def test_a_choice_that_melts_into_the_context_is_refused() -> None:
    def one_id(texts: list[str]) -> list[list[int]]:
        return [[5] for _ in texts]

    with pytest.raises(DataError, match="item 1, .* 0 tokens of its own"):
        score_items(tiny_model(), one_id, ITEMS[:1], window=8, mark_id=2, mark_before_context=False)


def test_a_choice_longer_than_the_window_is_refused_with_its_number(tokenizer: Tokenizer) -> None:
    model, long = tiny_model(tokenizer.vocab_size, 64), Item("Bir", ("a.", "uyandı " * 9 + "."), 0)
    with pytest.raises(DataError, match=r"(?s)item 2, Bir … uyandı .*longer context"):
        score_items(
            model, tokenizer.encode_many, [ITEMS[0], long], window=8, mark_id=2,
            mark_before_context=False,
        )  # fmt: skip


def scored(
    nats: list[float], alone: list[float], tokens: list[int], size: list[int], answer: int
) -> ItemScore:
    return ItemScore(np.array(nats), np.array(alone), np.array(tokens), np.array(size), answer)


def test_each_variant_divides_by_its_own_size() -> None:
    one = scored([4.0, 5.0], [4.0, 4.0], [1, 4], [4, 4], 0)  # right, and wrong by tokens
    two = scored([6.0, 5.0], [9.0, 5.0], [1, 1], [9, 1], 0)  # wrong, right by bytes and over alone
    found = accuracy([one, two] * 5)
    assert (found.items, found.chance, found.accuracy) == (10, 0.5, 0.5)
    assert (found.accuracy_by_tokens, found.accuracy_by_bytes) == (0.0, 1.0)
    assert found.accuracy_over_alone == 1.0
    assert found.standard_error == pytest.approx(statistics.stdev([1, 0] * 5) / math.sqrt(10))
    assert accuracy([one, two]).standard_error is None  # too few to say


def test_ties_are_shared(tokenizer: Tokenizer) -> None:
    assert (
        scored([3.0, 3.0, 4.0], [0.0] * 3, [1] * 3, [1] * 3, 0).credit(np.array([3, 3, 4])) == 0.5
    )
    model = tiny_model(tokenizer.vocab_size, 64)
    model.lm_head.weight.data.zero_()  # every token has the same probability
    scores = score_items(
        model, tokenizer.encode_many, ITEMS, window=64, mark_id=2, mark_before_context=False
    )
    for score in scores:
        exact = score.num_tokens * math.log(tokenizer.vocab_size)
        assert score.nats == pytest.approx(exact, rel=1e-6)
        assert score.credit(score.nats / score.num_tokens) == 1 / len(score.nats)
    assert accuracy(scores).accuracy_by_tokens == pytest.approx(accuracy(scores).chance)


def test_a_gap_is_scored_with_what_follows_it(tmp_path: Path) -> None:
    row = {"before": "Her sabah", "after": " giderim.", "choices": ["okula", "okulu"], "answer": 0}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row) + "\n\n", encoding="utf-8")
    assert read_items(path) == [Item("Her sabah", ("okula giderim.", "okulu giderim."), 0)]


@pytest.mark.parametrize(
    "change",
    [
        {"context": "Her sabah "},
        {"context": ""},
        {"choices": ["tek"]},
        {"choices": ["iki", "iki"]},
        {"choices": ["iki", " üç"]},
        {"choices": ["iki", ""]},
        {"choices": ["iki", "iki "]},
        {"choices": ["iki", 3]},
        {"choices": ["iki", "\ud83d"]},
        {"choices": "ab"},
        {"after": "."},
        {"answer": 2},
        {"answer": "0"},
        {"answer": True},
        {"label": 1},
    ],
)
def test_an_item_that_cannot_be_used_is_named(tmp_path: Path, change: dict) -> None:
    good = {"context": "Her sabah", "choices": ["kalkar", "yatar"], "answer": 0}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, (good, good | change))), encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl:2: [^\n]*\n  expected: .*\n  what to do: "):
        read_items(path)


@pytest.mark.parametrize("choices", [["", "a"], ["a", "a "], ["tek"]])
def test_a_gap_is_not_filled_with_nothing(tmp_path: Path, choices: list[str]) -> None:
    path = tmp_path / "a.jsonl"
    row = {"before": "Her", "after": " gün.", "choices": choices, "answer": 0}
    path.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*choice"):
        read_items(path)
    for line in ("[]", "{", "[" * 100_000, '{"before": ["a"], "choices": ["a", "b"], "answer": 0}'):
        path.write_text(line, encoding="utf-8")
        with pytest.raises(DataError, match=r"a\.jsonl:1: "):
            read_items(path)


def test_files_without_items_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "boş.jsonl"
    empty.write_text("\n", encoding="utf-8")
    for path in (empty, tmp_path / "yok.jsonl"):
        with pytest.raises(DataError, match=path.name):
            read_items(path)


@pytest.mark.parametrize("task", multiple_choice.TASKS)
def test_tasks_are_balanced_and_lengths_give_nothing_away(task: str) -> None:
    items = read_task(task)
    assert len(items) >= 60 and all(len(item.choices) == 4 for item in items)
    assert len(set(items)) == len(items)
    places = Counter(item.answer for item in items)
    assert max(places.values()) - min(places.values()) <= 1
    sizes: list[Callable[[str], int]] = [len, lambda choice: len(choice.encode())]
    for size in sizes:
        for sign in (1, -1):
            guesses = [
                scored(
                    [sign * size(c) for c in item.choices], [0.0] * 4, [1] * 4, [1] * 4, item.answer
                )
                for item in items
            ]
            assert abs(accuracy(guesses).accuracy - 0.25) <= 0.08, (task, sign)


def test_every_task_is_described() -> None:
    described = (tiny.ROOT / "docs/TASKS.md").read_text(encoding="utf-8")
    for name in multiple_choice.TASKS:
        assert f"| `{name}` | {len(read_task(name))} |" in described
    files = {f"tasks/{file.name}" for file in (multiple_choice.FOLDER / "tasks").iterdir()}
    assert files == set(multiple_choice.TASKS.values())
