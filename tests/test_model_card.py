"""A model's folder says what the model learned from: the real stages, from raw text to a chat model."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpora
import pytest
from test_card import table_under

from sifirdan import runs
from sifirdan.config import load_params
from sifirdan.corpus.card import CARD_FILE, PAGE_FILE
from sifirdan.corpus.model_card import data_section
from sifirdan.runtime import Runtime
from sifirdan.training.session import Places, clear_state
from stages import finetune, prepare_chat, tokenize_corpus, train, train_tokenizer

TINY = corpora.PROJECT / "presets/tiny.yaml"
QUESTIONS = [f"{n} kilo elma kaç liradır?" for n in range(12)]


class Silent:
    """A tracking run that records nothing, as on a machine without a store."""

    run_id = "none"

    def reopen(self, run_id: str) -> None: ...

    def log_axes(self, metrics: dict[str, Any]) -> None: ...

    def log_metrics(self, values: dict[str, float], step: int) -> None: ...


def places(root: Path, name: str) -> Places:
    return Places(root / "models" / name, root / "reports" / name, root / "models/.resume" / name)


def train_base(root: Path) -> dict[str, Any]:
    """models/base of a corpus in data, four steps long."""
    params = replace(load_params(TINY, "train", train.Params), tokens=2048, val_every_tokens=1024)
    runtime = load_params(TINY, "runtime", Runtime)
    tokens, tokenizer = root / "data/tokens", root / "models/tokenizer"
    metrics = train.train(tokens, tokenizer, places(root, "base"), params, runtime, Silent())
    clear_state(places(root, "base").store)
    return metrics


def tune(root: Path) -> dict[str, Any]:
    """models/chat of models/base, one epoch long."""
    params = replace(load_params(TINY, "finetune", finetune.Params), epochs=1)
    runtime = load_params(TINY, "runtime", Runtime)
    base, chat = root / "models/base", root / "data/chat"
    metrics = finetune.finetune(base, chat, places(root, "chat"), params, runtime, Silent())
    clear_state(places(root, "chat").store)
    return metrics


def make_models(root: Path, texts: list[str]) -> Path:
    data, tokenizer = root / "data", root / "models/tokenizer"
    rows = [{"text": q, "question": q, "answer": f"{n} liradır."} for n, q in enumerate(QUESTIONS)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    runs.write_text(data / "pazar.jsonl", lines)
    corpora.write_jsonl(data / "own/paragraphs.jsonl", texts)
    source = corpora.files_source("pazar.jsonl", license="CC-BY-4.0", uses=["chat"])
    raw = corpora.ingest(data, sources={"pazar": source})
    corpora.clean(raw, data / "corpus")
    sampled = train_tokenizer.Params("bpe", 600, 10**6, {}, seed=1)
    train_tokenizer.train_tokenizer(data / "corpus", tokenizer, sampled)
    whole = tokenize_corpus.Params(max_shard_tokens=10**9)
    tokenize_corpus.tokenize_corpus(data / "corpus", tokenizer, data / "tokens", whole)
    asked = load_params(TINY, "prepare_chat", prepare_chat.Params)
    asked = replace(asked, own_messages=str(root / "none"))
    prepare_chat.prepare_chat(raw, data / "corpus", tokenizer, data / "chat", asked)
    train_base(root)
    tune(root)
    return root


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    return make_models(tmp_path_factory.mktemp("proje"), texts)


def page(project: Path, name: str) -> str:
    return (project / "models" / name / PAGE_FILE).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["base", "chat"])
def test_the_data_card_reaches_every_model_unchanged(project: Path, name: str) -> None:
    model = project / "models" / name
    card = (project / "data/corpus" / CARD_FILE).read_bytes()
    assert (model / CARD_FILE).read_bytes() == card
    assert page(project, name).endswith(data_section(project / "data/corpus"))
    manifest = runs.open_folder(model, "model", made_by="train")
    assert {CARD_FILE, PAGE_FILE} <= set(manifest.files) and manifest.counts["parameters"] > 0
    assert "runtime" in manifest.params and "torch" in manifest.versions


def test_the_base_model_tells_its_numbers(project: Path) -> None:
    facts = dict(table_under(page(project, "base"), "# Base model"))
    counts = runs.read_manifest(project / "models/base").counts
    assert facts["parameters"] == f"{counts['parameters']:,}"
    assert facts["trained on, in tokens"] == "2,048" and facts["vocabulary"] == "600"
    assert 1 < float(facts["bits per byte of validation text"]) < 10
    assert "Instruction data" not in page(project, "base")
    assert [row[0] for row in table_under(page(project, "base"), "## Training data")] == ["own"]


def test_the_chat_model_tells_what_it_was_tuned_on(project: Path) -> None:
    rows = {row[0]: row[1:] for row in table_under(page(project, "chat"), "## Instruction data")}
    assert rows["pazar"][:2] == ["CC-BY-4.0", "10"]  # the tiny preset takes ten of a source
    total = runs.read_manifest(project / "data/chat").counts["train"]["documents"]
    assert sum(int(row[1].replace(",", "")) for row in rows.values()) == total
    assert "`pazar`: kind files" in page(project, "chat") and "Never tuned on: " in page(
        project, "chat"
    )
    facts = dict(table_under(page(project, "chat"), "# Chat model"))
    assert (
        int(facts["steps of tuning"]) == runs.read_manifest(project / "models/chat").counts["steps"]
    )


def test_the_same_training_gives_the_same_cards(project: Path) -> None:
    """No clock, no run id and no path stands in them."""
    before = {
        name: runs.read_manifest(project / "models" / name).sha256 for name in ("base", "chat")
    }
    train_base(project)
    tune(project)
    for name, sha256 in before.items():
        assert runs.read_manifest(project / "models" / name).sha256 == sha256
        assert str(project) not in page(project, name)
        assert not re.search(r"\b20\d\d-\d\d-\d\d\b", page(project, name))


def test_the_models_load_with_their_cards(project: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(project / "models/chat")
    counts = runs.read_manifest(project / "models/chat").counts
    assert sum(p.numel() for p in model.parameters()) == counts["parameters"]
