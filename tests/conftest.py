"""Shared small things: the project's own Turkish text, a tokenizer trained on it, a tiny model; and
the law of the ledger, checked after every use of the stage `clean`."""

import functools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The Hub of tests/hub_fixture.py has no xet storage; huggingface_hub reads this when it is imported.
os.environ["HF_HUB_DISABLE_XET"] = "1"
# A shell's background job ignores Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
import torch
from tracking import empty_database, project

from sifirdan.corpus.conservation import corpus_problems
from sifirdan.model.transformer import ModelConfig, ModelShape, Transformer
from sifirdan.tokenizer import Tokenizer
from sifirdan.tokenizer_training import train
from stages import clean

DATA = Path(__file__).parent / "data"
__all__ = ["empty_database", "project"]  # fixtures of the tests of tracking


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
        "positions": "rotary", "norm": "rmsnorm", "mlp": "swiglu", "qk_norm": False, "bias": False,
        "dropout": 0.0, "init": "zero_residual",
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


@pytest.fixture(scope="session")
def trained_model(tokenizer: Tokenizer, texts: list[str]) -> Transformer:
    """A tiny model that has learned something: its predictions are far from even and from certain."""
    model = tiny_model(tokenizer.vocab_size, 32).train()
    stream = torch.tensor([id for text in texts for id in [*tokenizer.encode(text), 2]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(30):
        starts = torch.randint(len(stream) - 33, (8,), generator=generator)
        windows = torch.stack([stream[start : start + 33] for start in starts.tolist()])
        logits = model(windows[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()
