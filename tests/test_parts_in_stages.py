"""Other parts than the default's through the real stages: trained, tuned, scored, continued, described."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_model_card import TINY, Silent, make_models, page, places, tune

from sifirdan import runs
from sifirdan.baselines.language_models import load_language_model
from sifirdan.commands import models as commands
from sifirdan.config import load_params
from sifirdan.evals.side_by_side import score_texts
from sifirdan.export.hub_card import card_problems
from sifirdan.model.checkpoint import load_model
from sifirdan.runtime import Runtime
from sifirdan.training.session import clear_state
from stages import train

pytestmark = pytest.mark.slow
GPT2 = {"positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True, "dropout": 0.1}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", GPT2 | {"init": "gpt2", "num_kv_heads": 4, "head_size": 12}),
    ("qwen3", {"qk_norm": True}),
    ("sifirdan", {"positions": "sinusoidal", "norm": "layernorm", "dropout": 0.1}),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Iterator[Path]:
    yield make_models(tmp_path_factory.mktemp("proje"), texts)


@pytest.mark.parametrize(("layout", "parts"), OTHERS)
def test_a_combination_goes_through_every_stage(
    project: Path, layout: str, parts: dict[str, Any], caplog: Any, capsys: Any, monkeypatch: Any
) -> None:
    params = load_params(TINY, "train", train.Params)
    params = replace(
        params, tokens=2048, val_every_tokens=1024, model=replace(params.model, **parts)
    )
    runtime = load_params(TINY, "runtime", Runtime)
    tokens, tokenizer = project / "data/tokens", project / "models/tokenizer"
    metrics = train.train(tokens, tokenizer, places(project, "base"), params, runtime, Silent())
    clear_state(places(project, "base").store)
    tune(project)
    ours = layout == "sifirdan"
    warned = [r.message for r in caplog.records if "only sifirdan loads it" in r.message]
    assert len(warned) == ours and metrics["model"]["positions"] == params.model.positions
    for name in ("base", "chat"):
        folder = project / "models" / name
        runs.open_folder(folder, "model", made_by="train")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert config["model_type"] == layout
        assert load_model(folder).config.shape == params.model
        assert card_problems(page(project, name)) == []
        assert ("only sifirdan loads it" in page(project, name)) is ours
        library = "sifirdan" if ours else "transformers"
        assert page(project, name).startswith(f"---\nlibrary_name: {library}\n")

    scored = load_language_model(str(project / "models/base"))
    row = score_texts(scored, ["Bir gün eve geldik."], window=32, stride=16)
    assert 1 < row.bits_per_byte < 20
    monkeypatch.chdir(project)
    options = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 1, "device": "cpu"}
    asked = argparse.Namespace(model="base", prompt="Bir", max_new_tokens=8, **options)
    commands.generate(asked)
    assert capsys.readouterr().out.startswith("Bir")
