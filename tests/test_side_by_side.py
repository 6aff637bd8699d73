"""The table says which figures compare, the best first, and what a model leaves out."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from conftest import tiny_model

from sifirdan.baselines.language_models import LanguageModel
from sifirdan.errors import ConfigError, DataError
from sifirdan.evals.side_by_side import (
    MAX_WINDOW,
    Row,
    batch_tokens,
    read_text_files,
    score_texts,
    table,
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
    with pytest.raises(DataError, match="no text to score"):
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
    ):
        lines.write_bytes(content)
        with pytest.raises(DataError, match=r"b\.jsonl:2"):
            read_text_files([lines])
    plain.write_bytes("ığdır".encode("cp1254"))
    with pytest.raises(DataError, match="is not UTF-8"):
        read_text_files([plain])
    with pytest.raises(DataError, match=r"yok\.txt"):
        read_text_files([tmp_path / "yok.txt"])
