"""The table says which figures compare, the best first, and what a model leaves out."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from conftest import tiny_model

from sifirdan.baselines.language_models import LanguageModel
from sifirdan.errors import CheckpointError, ConfigError, DataError
from sifirdan.evals.multiple_choice import TASKS, Item
from sifirdan.evals.side_by_side import (
    MAX_WINDOW,
    MIN_DOCUMENTS,
    Row,
    batch_tokens,
    for_machines,
    read_tasks,
    read_text_files,
    score_task,
    score_texts,
    table,
    task_table,
    unequal_terms,
    window_of,
)
from sifirdan.tokenizer import Tokenizer

TEXTS = ["Bir varmış, bir yokmuş.", "", "ığdır " * 60]


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> LanguageModel:
    return LanguageModel(
        "deneme", tiny_model(tokenizer.vocab_size, 64), tokenizer.vocab_size, 64,
        tokenizer.encode_many, tokenizer.decode, tokenizer.eos_id, "</s>", False, tokenizer.unk_id,
    )  # fmt: skip


def test_E_01_every_unit_is_of_the_same_sum(model: LanguageModel, tokenizer: Tokenizer) -> None:
    row = score_texts(model, TEXTS, window=64)
    assert (row.documents, row.unscorable, row.stride) == (2, 1, 32)
    assert row.words == 4 + 60 and row.characters == len(TEXTS[0]) + 360
    assert row.bytes == sum(len(text.encode()) for text in TEXTS)
    assert row.tokens == sum(map(len, tokenizer.encode_many(TEXTS)))  # no closing mark
    nats = row.bits_per_byte * math.log(2) * row.bytes
    for value, units in (
        (row.token_perplexity, row.tokens),
        (row.word_perplexity, row.words),
        (row.character_perplexity, row.characters),
    ):
        assert math.log(value) * units == pytest.approx(nats)


def test_nothing_to_score_is_said(model: LanguageModel) -> None:
    with pytest.raises(DataError, match=r"no text to score(?s:.*)what to do"):
        score_texts(model, ["", ""], window=64)


def test_windows_that_do_not_fit_are_refused(model: LanguageModel) -> None:
    for asked in (0, 65):
        with pytest.raises(ConfigError, match="--window"):
            window_of(model, asked)
    for stride in (0, 17):
        with pytest.raises(ConfigError, match="--stride"):
            score_texts(model, TEXTS, window=16, stride=stride)
    unknown = dataclasses.replace(model, context_length=None)
    assert (window_of(model, None), window_of(model, 10)) == (64, 10)
    assert (window_of(unknown, None), window_of(unknown, 9999)) == (MAX_WINDOW, 9999)
    long = dataclasses.replace(model, context_length=131072)
    assert window_of(long, None) == MAX_WINDOW


def test_a_large_vocabulary_gets_smaller_batches(model: LanguageModel) -> None:
    large = dataclasses.replace(model, vocab_size=1 << 18)
    assert batch_tokens(large, 64) == 1024 and batch_tokens(large, 2048) == 2048
    assert batch_tokens(model, 64) == 8192


def row(model: LanguageModel, name: str, bits: float, **changes: object) -> Row:
    found = score_texts(model, TEXTS, window=64)
    return dataclasses.replace(found, name=name, bits_per_byte=bits, **changes)  # type: ignore[arg-type]


def test_E_01_the_best_comes_first_and_token_perplexities_are_kept_apart(
    model: LanguageModel,
) -> None:
    same = [row(model, "kötü", 3.0), row(model, "iyi", 1.0, word_perplexity=3e9)]
    shown = "\n".join(table(same))
    assert shown.index("iyi") < shown.index("kötü") and "do not compare" not in shown
    assert "3e+09" in shown and "the closing mark of a document is not" in shown
    assert "iyi: </s> stands before each document" in shown
    other = row(model, "başka", 2.0, ids="0" * 12, mark_every_window=True, changed_texts=3)
    shown = "\n".join(table([*same, other]))
    assert "Token perplexities do not compare" in shown and "stands before every window" in shown
    assert "warning: başka: its tokenizer does not give back 3" in shown


def test_texts_come_from_files_as_they_are(tmp_path: Path) -> None:
    plain, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_bytes(b"bir\r\niki\n")
    lines.write_text(json.dumps({"text": "üç", "id": 1}) + "\n\n", encoding="utf-8")
    assert read_text_files([plain, lines]) == ["bir\r\niki\n", "üç"]
    for content in (
        b'{"text": "a"}\n{"metin": "b"}',
        b'{"text": "a"}\n[]',
        b'{"text": "a"}\n{"text": 3}',
        b'{"text": "a"}\n{"text": "a\\ud800b"}',
        b'{"text": "a"}\n' + b"[" * 100_000,
        b'{"text": "a"}\n{"text": "a", "n": ' + b"1" * 5000 + b"}",
    ):
        lines.write_bytes(content)
        with pytest.raises(DataError, match=r"b\.jsonl:2: (?s:.*)what to do"):
            read_text_files([lines])
    plain.write_bytes("ığdır".encode("cp1254"))
    with pytest.raises(DataError, match=r"is not UTF-8(?s:.*)iconv -f windows-1254"):
        read_text_files([plain])
    plain.write_bytes("ığdır".encode("utf-16"))
    with pytest.raises(DataError, match="iconv -f utf-16"):
        read_text_files([plain])
    with pytest.raises(DataError, match=r"yok\.txt"):
        read_text_files([tmp_path / "yok.txt"])


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    plain, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("Bir gün", encoding="utf-8-sig")
    lines.write_text('{"text": "bir"}\r\n{"text": "iki"}\r\n', encoding="utf-8-sig")
    assert read_text_files([plain, lines]) == ["Bir gün", "bir", "iki"]


def test_the_interval_is_that_of_evaluate(model: LanguageModel) -> None:
    texts = [f"{n} ev, {'ığdır ' * n}" for n in range(MIN_DOCUMENTS)]
    found = score_texts(model, texts, window=64)
    assert found.low is not None and found.high is not None
    assert found.low < found.bits_per_byte < found.high
    assert f"{found.low:.3f}–{found.high:.3f}" in table([found])[1]
    few = score_texts(model, texts[1:], window=64)
    assert few.low is None and any("takes 10 documents" in line for line in table([few]))


def test_unequal_windows_are_warned_of_with_what_suits_all(model: LanguageModel) -> None:
    rows = [score_texts(model, TEXTS, window=w, stride=s) for w, s in ((64, 16), (32, 32))]
    assert any("--window 32 --stride 16" in line for line in table(rows))
    assert not unequal_terms([rows[0], rows[0]]) and "docs/TASKS.md" in "\n".join(table(rows))


def test_what_is_no_number_is_refused_or_null(model: LanguageModel) -> None:
    blank = score_texts(model, ["   \n"], window=64)  # without a word
    content = for_machines([blank], [], [])
    assert content["texts"][0]["word_perplexity"] is None and " – " in table([blank])[1]
    json.dumps(content, allow_nan=False)
    broken = tiny_model(model.vocab_size, 64)
    broken.lm_head.weight.data.fill_(math.nan)
    sick = dataclasses.replace(model, model=broken)
    with pytest.raises(CheckpointError, match="deneme: .* no finite number"):
        score_texts(sick, TEXTS, window=64)
    with pytest.raises(CheckpointError, match="deneme: .* no finite number"):
        score_task(sick, "iş", [Item("Her sabah", ("kalkar", "yatar"), 0)], window=64)


def test_tasks_are_ours_by_name_and_others_by_file(tmp_path: Path) -> None:
    path = tmp_path / "benim.jsonl"
    path.write_text(
        '{"context": "Bir", "choices": ["gün.", "iki."], "answer": 0}', encoding="utf-8"
    )
    assert list(read_tasks([])) == list(read_tasks(["all"])) == list(TASKS)
    assert list(read_tasks([str(path)])) == [str(path)]
    assert list(read_tasks(["dunya", str(path), "all"]))[:2] == ["dunya", str(path)]


def test_few_items_have_no_standard_error(model: LanguageModel) -> None:
    items = [Item("Her sabah", ("kalkar", "yatar"), 0)] * 2
    found = score_task(model, "iş", items, window=64)
    shown = "\n".join(task_table([("deneme", "iş", found)]))
    assert "±" not in shown and "takes 10 items" in shown
    with pytest.raises(DataError, match="deneme: iş: item 1, Her sabah … kalkar: "):
        score_task(model, "iş", items, window=1)
