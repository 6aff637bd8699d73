"""Shared small things: the project's own Turkish text, a tokenizer trained on it, a tiny model; and
the law of the ledger, checked after every use of the stage `clean`."""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The Hub of tests/hub_fixture.py has no xet storage; huggingface_hub reads this when it is imported.
os.environ["HF_HUB_DISABLE_XET"] = "1"

import pytest
import torch

from sifirdan.corpus.conservation import corpus_problems
from sifirdan.model.transformer import ModelConfig, ModelShape, Transformer
from sifirdan.tokenizer import Tokenizer
from sifirdan.tokenizer_training import train
from stages import clean

DATA = Path(__file__).parent / "data"


def lawful(stage: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The stage `clean`, and then: documents in = documents out + rejects + duplicates."""

    @functools.wraps(stage)
    def clean_and_check(raw: Path, corpus: Path, *others: Any, **named: Any) -> dict[str, Any]:
        metrics = stage(raw, corpus, *others, **named)
        assert corpus_problems(corpus, raw) == []
        return metrics

    return clean_and_check


clean.clean = lawful(clean.clean)  # before a test module imports it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: a file stays with one worker, and so two workers end together."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Our own Turkish texts, one a paragraph."""
    plain = [path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*.[tm][xd][t]*"))]
    rows = [
        json.loads(line)["text"]
        for path in sorted(DATA.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").split("\n")
        if line
    ]
    return [part for text in [*plain, *rows] for part in text.split("\n\n") if part.strip()]


@pytest.fixture(scope="session")
def model_bytes(texts: list[str]) -> bytes:
    return train(texts, 800)[0]


@pytest.fixture(scope="session")
def tokenizer(model_bytes: bytes) -> Tokenizer:
    return Tokenizer(model_bytes)


def tiny_model(vocab_size: int = 300, context_length: int = 64, **changes: object) -> Transformer:
    """A small model with weights large enough that every part matters."""
    shape = {
        "hidden_size": 64, "intermediate_size": 96, "num_layers": 3, "num_heads": 4,
        "num_kv_heads": 2, "head_size": 16, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
        "tie_embeddings": False,
    }  # fmt: skip
    config = ModelConfig(vocab_size, context_length, ModelShape(**(shape | changes)))  # type: ignore[arg-type]
    model = Transformer(config)
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.15, generator=generator)
    return model.eval()
