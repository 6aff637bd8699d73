"""The stage `train` as its params ask for it: budgets, ends, kept weights, and what it says of them."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_model_card import Silent, make_models, places

from sifirdan import runs
from sifirdan.config import PARAMS_FILE, load_params, read_yaml
from sifirdan.corpus.shards import Shards
from sifirdan.errors import ConfigError, DataError
from sifirdan.model.checkpoint import WEIGHTS, load_model
from sifirdan.runtime import Runtime
from sifirdan.training.session import CURVE_FILE, clear_state
from stages import finetune, train

ROOT = Path(__file__).parents[1]
TINY = ROOT / "presets/tiny.yaml"
NO_BUDGET = {"tokens": None, "steps": None, "epochs": None}


def make_params(**changes: Any) -> train.Params:
    return replace(load_params(TINY, "train", train.Params), **changes)


def budget(key: str, value: float, **changes: Any) -> train.Params:
    return make_params(**(NO_BUDGET | {key: value} | changes))


def test_steps_come_from_one_budget() -> None:
    """512 tokens a step; never more than asked for, at least one step."""
    assert budget("tokens", 40_000).num_steps(10**6) == 78
    assert budget("steps", 7).num_steps(10**6) == 7
    assert budget("epochs", 2).num_steps(5_130) == 20
    assert budget("epochs", 0.5).num_steps(5_130) == 5
    assert budget("epochs", 0.01).num_steps(5_130) == 1
    default = load_params(ROOT / PARAMS_FILE, "train", train.Params)
    assert default.num_steps(10**7) == 1074 and default.budgets == {"tokens": 2200000}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (NO_BUDGET, "the budget of train is {}"),
        ({"steps": 5}, "the budget of train is {'tokens': 40960, 'steps': 5}"),
        ({"epochs": 1.0}, "exactly one of tokens, steps and epochs"),
        ({"tokens": None, "steps": 0}, "train.steps is 0"),
        ({"tokens": None, "epochs": -1.0}, "train.epochs is -1.0"),
        ({"tokens": 511}, "train.tokens is 511"),
        ({"patience": 0}, "patience is 0"),
        ({"max_minutes": 0.0}, "max_minutes is 0.0"),
        ({"init_from": "models/start"}, "train.init_from_sha256 is None"),
        ({"init_from_sha256": "0" * 64}, "train.init_from_sha256 is '0000"),
    ],
)
def test_params_that_contradict_each_other_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        make_params(**changes)
    assert message in str(refusal.value)


def test_finetune_knows_the_same_words() -> None:
    params = load_params(TINY, "finetune", finetune.Params)
    assert (params.patience, params.keep) == (None, "last")
    assert not params.limits.need_validation
    assert replace(params, keep="best").limits.need_validation
    with pytest.raises(ConfigError, match="patience is 0"):
        replace(params, patience=0)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    return make_models(tmp_path_factory.mktemp("proje"), texts)


def fit_base(
    project: Path, name: str, params: train.Params, tracker: Silent | None = None
) -> dict[str, Any]:
    runtime = load_params(TINY, "runtime", Runtime)
    tokens, tokenizer = project / "data/tokens", project / "models/tokenizer"
    return train.train(
        tokens, tokenizer, places(project, name), params, runtime, tracker or Silent()
    )


def curve(project: Path, name: str) -> list[dict[str, Any]]:
    return runs.read_lines(project / "reports" / name / CURVE_FILE)


def card(project: Path, name: str) -> str:
    return (project / "models" / name / "README.md").read_text(encoding="utf-8")


def weights(project: Path, name: str) -> str:
    return runs.sha256_of(project / "models" / name / WEIGHTS)


WORSENS = budget("steps", 30, val_every_tokens=1024, patience=3, keep="best")
WORSENS = replace(WORSENS, optimizer=replace(WORSENS.optimizer, lr_head=0.5, lr_embedding=0.5))


@pytest.mark.slow
def test_a_budget_is_said_in_metrics_card_and_manifest(project: Path) -> None:
    per_epoch = Shards(project / "data/tokens/train").num_tokens
    for key, value, steps in (("steps", 3, 3), ("epochs", 0.5, per_epoch // 2 // 512)):
        metrics = fit_base(project, f"budget-{key}", budget(key, value))
        assert metrics["budget"] == {key: value} and metrics["ended"] == "budget"
        assert metrics["steps"] == metrics["planned_steps"] == metrics["kept_step"] == steps
        assert metrics["tokens"] == steps * 512 and metrics["reproducible"] is True
        counts = runs.read_manifest(project / f"models/budget-{key}").counts
        assert (counts["steps"], counts["ended"]) == (steps, "budget")
        text = card(project, f"budget-{key}")
        assert f"| budget | {value} {key} |" in text and "ended early" not in text


@pytest.mark.slow
def test_the_best_model_is_what_metrics_card_and_curve_say(project: Path) -> None:
    metrics = fit_base(project, "best", WORSENS)
    points = {p["step"]: p for p in curve(project, "best") if "val_bits_per_byte" in p}
    best = min(points.values(), key=lambda p: p["val_bits_per_byte"])
    assert metrics["ended"] == "patience" and metrics["steps"] == best["step"] + 6 < 30
    assert metrics["kept_step"] == best["step"] and metrics["loss"] == best["loss"]
    assert metrics["val_bits_per_byte"] == best["val_bits_per_byte"] < points[metrics["steps"]]["val_bits_per_byte"]  # fmt: skip
    assert metrics["tokens"] == metrics["steps"] * 512, "tokens trained on, not those of the kept"
    model = load_model(project / "models/best")
    score = train.validator(model, Shards(project / "data/tokens/val"), WORSENS.val_tokens, 2)
    assert score()["val_bits_per_byte"] == metrics["val_bits_per_byte"]
    text = card(project, "best")
    assert f"after step {metrics['steps']} of 30: validation no longer improved" in text
    assert f"of step {best['step']}, the best in validation" in text
    assert f"{metrics['val_bits_per_byte']:.3f}" in text


@pytest.mark.slow
def test_R_01_killed_with_patience_and_best_weights_ends_with_the_same_bytes(
    project: Path,
) -> None:
    """kill -9 at several steps, once right after a resume, one of them past the best step."""
    fit_base(project, "whole", WORSENS)
    kept = runs.read_manifest(project / "models/whole").counts["kept_step"]
    script = (
        "import os, signal, sys; from pathlib import Path; sys.path.append('tests')\n"
        "import test_train_stage as t\n"
        "class Kill(t.Silent):\n"
        "    def log_metrics(self, values, step):\n"
        "        if step >= int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "t.fit_base(Path(sys.argv[1]), 'cut', t.WORSENS, Kill())"
    )
    for step in (kept - 1, kept + 1, kept + 5):
        command = [sys.executable, "-c", script, str(project), str(step)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    (state,) = {path.parent for path in (project / "models/.resume/cut").glob("*/step-*")}
    assert max(state.glob("step-*")).name > "step-00000000"
    fit_base(project, "cut", WORSENS)
    assert weights(project, "cut") == weights(project, "whole")
    for folder in ("models", "reports"):
        assert (
            runs.read_manifest(project / folder / "cut").sha256
            == runs.read_manifest(project / folder / "whole").sha256
        )


@pytest.mark.slow
def test_a_run_out_of_minutes_leaves_a_usable_model_that_says_so(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = fit_base(project, "timed", budget("steps", 30, max_minutes=1e-9))
    assert (
        metrics["steps"] == 1
        and metrics["planned_steps"] == 30
        and metrics["ended"] == "max_minutes"
    )
    assert metrics["reproducible"] is False
    assert runs.open_folder(project / "models/timed", "model", made_by="train").counts["reproducible"] is False  # fmt: skip
    assert "not reproducible" in card(project, "timed") and "not reproducible" in caplog.text
    load_model(project / "models/timed")
    json.dumps(metrics, allow_nan=False)


@pytest.mark.slow
def test_a_warm_start_goes_on_from_the_weights_of_the_folder(project: Path) -> None:
    fit_base(project, "long", budget("steps", 40))
    shutil.copytree(project / "models/long", project / "models/start", dirs_exist_ok=True)
    sha256 = weights(project, "start")
    warm = budget("steps", 5, init_from=str(project / "models/start"), init_from_sha256=sha256)
    metrics = fit_base(project, "warm", warm)
    assert curve(project, "warm")[0]["loss"] < curve(project, "long")[0]["loss"] - 0.5
    assert sha256 in card(project, "warm") and "Started from other weights" in card(project, "warm")
    manifest = runs.read_manifest(project / "models/warm")
    assert manifest.params["init_from_sha256"] == sha256 and "init_from" not in manifest.params
    assert metrics["steps"] == 5
    moved = replace(warm, init_from=str(shutil.copytree(project / "models/start", project / "models/moved")))  # fmt: skip
    fit_base(project, "moved-warm", moved)
    assert runs.read_manifest(project / "models/moved-warm").sha256 == manifest.sha256


@pytest.mark.slow
def test_finetune_keeps_its_best_epoch(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This corpus keeps no answers out of tuning: refused where one would be chosen by them. Then those
    of training stand for them."""
    params = load_params(TINY, "finetune", finetune.Params)
    params = replace(params, epochs=6, patience=2, keep="best")
    params = replace(params, optimizer=replace(params.optimizer, lr_head=0.2, lr_embedding=0.2))
    runtime = load_params(TINY, "runtime", Runtime)
    base, chat = project / "models/base", project / "data/chat"
    with pytest.raises(
        DataError, match="finetune.patience and finetune.keep: best need validation"
    ):
        finetune.finetune(base, chat, places(project, "chatty"), params, runtime, Silent())
    monkeypatch.setattr(finetune, "Shards", lambda _: Shards(chat / "train"))
    metrics = finetune.finetune(base, chat, places(project, "chatty"), params, runtime, Silent())
    clear_state(places(project, "chatty").store)
    points = [p for p in curve(project, "chatty") if "known_nats_per_target" in p]
    best = min(points, key=lambda p: p["known_nats_per_target"])
    assert metrics["kept_step"] == best["step"]
    assert metrics["known_nats_per_target"] == best["known_nats_per_target"]
    assert metrics["ended"] == ("patience" if len(points) < 6 else "budget")


def test_presets_have_one_budget_each() -> None:
    for path in [ROOT / PARAMS_FILE, *sorted((ROOT / "presets").glob("*.yaml"))]:
        section = read_yaml(path)["train"]
        assert sum(section[key] is not None for key in NO_BUDGET) == 1, path
        load_params(path, "train", train.Params)
