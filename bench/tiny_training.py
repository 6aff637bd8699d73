"""A tiny training for bench/interruptions.py: what it reads, its settings, and what is imported once.
Not for judging anything.
"""

import io
import json
from dataclasses import replace
from pathlib import Path

from matplotlib import pyplot

from bench import generated_corpus
from sifirdan import runs
from sifirdan.config import build, load_params, read_yaml
from stages import clean, ingest, prepare_chat, tokenize_corpus, train_tokenizer

ROOT = Path(__file__).parent.parent
PRESET = ROOT / "presets/tiny.yaml"
STEPS, INTERVAL, BATCH_TOKENS = 40, 5, 128
UPDATES = 2  # a step: of Muon and of AdamW


def prepare(project: Path, *, tracked: bool) -> None:
    """The inputs of `train` and `finetune`, made by the real stages from generated text."""
    data, models = project / "data", project / "models"
    texts = [part for text in generated_corpus.documents(250_000, 1) for part in text.split("\n\n")]
    own = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts]
    runs.write_text(data / "own/texts.jsonl", "".join(own))
    talks = [
        {"question": f"{n} kilo elma kaç liradır?", "answer": f"{2 * n} liradır."}
        for n in range(60)
    ]
    lines = "".join(
        json.dumps({"text": t["question"], **t}, ensure_ascii=False) + "\n" for t in talks
    )
    runs.write_text(data / "pazar.jsonl", lines)
    source = {
        "kind": "files", "paths": ["pazar.jsonl"], "format": "auto", "encoding": "utf-8",
        "text_column": "text", "xml_element": None, "license": "own", "attribution": None,
        "uses": ["chat"], "text_kind": "curated", "on_error": "stop",
    }  # fmt: skip
    wanted = read_yaml(PRESET)["ingest"] | {
        "own_text": str(data / "own"),
        "sources": {"pazar": source},
    }
    ingest.ingest(
        data / "raw", build(ingest.Params, wanted, "ingest"), cache=project / "cache", root=data
    )
    params = load_params(PRESET, "clean", clean.Params)
    clean.clean(data / "raw", data / "corpus", project / "reports/corpus", params, 1)
    pieces = train_tokenizer.Params("bpe", 400, 10**6, {}, seed=1)
    train_tokenizer.train_tokenizer(data / "corpus", models / "tokenizer", pieces)
    shards = tokenize_corpus.Params(max_shard_tokens=10**9)
    tokenize_corpus.tokenize_corpus(data / "corpus", models / "tokenizer", data / "tokens", shards)
    asked = load_params(PRESET, "prepare_chat", prepare_chat.Params)
    asked = replace(asked, own_messages=str(project / "none"))
    prepare_chat.prepare_chat(
        data / "raw", data / "corpus", models / "tokenizer", data / "chat", asked
    )
    if tracked:
        import mlflow

        mlflow.MlflowClient(f"sqlite:///{project}/empty.db").search_experiments()


def write_params(project: Path) -> None:
    """The tiny preset, with short steps and a state every few of them."""
    params = read_yaml(PRESET)
    budget = {"tokens": STEPS * BATCH_TOKENS, "val_every_tokens": STEPS // 2 * BATCH_TOKENS}
    params["train"] |= budget | {"batch_tokens": BATCH_TOKENS, "val_tokens": 500}
    params["train"]["model"] |= {"num_layers": 1}
    params["finetune"] |= {"epochs": 1, "batch_tokens": 192}
    params["runtime"] |= {"checkpoint_every_steps": INTERVAL, "threads": 1, "device": "cpu"}
    runs.write_text(project / "params.yaml", json.dumps(params, ensure_ascii=False))  # JSON is YAML


def import_once(*, tracked: bool) -> None:
    """What every child would need seconds for."""
    import pandas  # noqa: F401 - pyarrow imports it
    import torch._dynamo  # noqa: F401 - an optimiser imports it

    pyplot.switch_backend("Agg")
    pyplot.figure().savefig(io.BytesIO())  # finds the fonts
    pyplot.close()
    if tracked:
        import mlflow.store.tracking.sqlalchemy_store
        import mlflow.system_metrics.system_metrics_monitor  # noqa: F401
        from sqlalchemy.orm import configure_mappers

        configure_mappers()
