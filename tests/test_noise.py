"""How much numbers move by the seed: the arithmetic with given numbers, and the real runs once."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from tiny import ROOT, Finished

from sifirdan import runs
from sifirdan.compare import noise_runs, scratch_runs
from sifirdan.compare.noise import (
    load_noise,
    noise_lines,
    real_difference,
    summarise,
    t_quantile,
    without_sigma,
)
from sifirdan.config import read_yaml
from sifirdan.errors import ConfigError, DataError

BPB = "evaluate_base.val.bits_per_byte"


def area_of_t(limit: float, degrees: int) -> float:
    """The probability between -limit and limit, by Simpson's rule over the density itself."""
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
    steps = 20_000
    width = 2 * limit / steps
    values = [
        (1 + (-limit + k * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for k in range(steps + 1)
    ]
    inner = 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])
    return scale * width / 3 * (values[0] + inner + values[-1])


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 14, 19, 25, 30])
def test_the_quantiles_hold_95_percent_of_students_t(degrees: int) -> None:
    assert area_of_t(t_quantile(degrees), degrees) == pytest.approx(
        0.95, abs=1e-4
    )  # three decimals


def test_the_limit_falls_with_more_seeds_towards_the_normal_one() -> None:
    limits = [real_difference(1.0, seeds) for seeds in range(2, 40)]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] == pytest.approx(12.706 * 2**0.5) and limits[1] == pytest.approx(
        6.085, abs=1e-3
    )
    assert 1.96 * 2**0.5 < limits[-1] < 1.05 * 1.96 * 2**0.5
    assert real_difference(0.5, 5) == pytest.approx(0.5 * 2.776 * 2**0.5)


def seeds(*values: Any, name: str = "bits_per_byte") -> dict[int, dict[str, dict[str, Any]]]:
    return {
        seed: {"evaluate_base": {"window": 256, "val": {name: value, "documents": 7}}}
        for seed, value in enumerate(values, 1)
    }


def test_sigma_is_the_sample_standard_deviation() -> None:
    found = summarise({"train.tokens": 5}, seeds(1.0, 1.1, 1.5))
    assert found["seeds"] == [1, 2, 3] and found["params"] == {"train.tokens": 5}
    assert found["mean"] == {BPB: pytest.approx(1.2)}
    assert found["sigma"] == {BPB: pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))}
    text = "\n".join(noise_lines(found))
    assert "base model: bits per byte of val" in text and "± 0.26" in text and "6.1 sigma" in text


@pytest.mark.parametrize("bad", ["nan", "inf", None])
def test_a_number_that_one_seed_lacks_gets_no_sigma_and_is_named(bad: Any) -> None:
    by_seed = seeds(1.0, bad, 1.5)
    if bad is None:
        del by_seed[2]["evaluate_base"]["val"]["bits_per_byte"]
    found = summarise({}, by_seed)
    assert not found["sigma"] and not found["mean"]
    assert without_sigma(found, by_seed) == [BPB]
    assert f"no sigma for {BPB}" in "\n".join(noise_lines(found, [BPB]))


def test_a_noise_file_comes_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.json"
    assert load_noise(path) is None
    found = summarise({}, seeds(1.0, 1.1))
    runs.write_json(path, found)
    assert load_noise(path) == found
    for damage in (
        "{",
        "[]",
        '{"seeds": [1, 2]}',
        json.dumps({**found, "seeds": [1]}),
        json.dumps({**found, "sigma": {BPB: "nan"}}),
        json.dumps({**found, "sigma": {BPB: -1}}),
        json.dumps({**found, "mean": 3}),
    ):
        path.write_text(damage, encoding="utf-8")
        with pytest.raises(DataError, match="sifirdan noise"):
            load_noise(path)


@pytest.fixture(scope="module")
def files() -> dict[str, Any]:
    """What of params.yaml and dvc.yaml matters here; all of it takes long to read again and again."""
    params, stages = read_yaml(ROOT / "params.yaml"), read_yaml(ROOT / "dvc.yaml")["stages"]
    sections = ("clean", "train", "evaluate", "finetune", "runtime")
    kept = ("train", "evaluate_base", "finetune", "evaluate_chat")
    return {
        "params.yaml": {section: params[section] for section in sections},
        "dvc.yaml": {"stages": {stage: {"deps": stages[stage]["deps"]} for stage in kept}},
    }


@pytest.fixture
def project(tmp_path: Path, files: dict[str, Any]) -> Path:
    """A folder that looks as if its pipeline had run to tokenize_corpus."""
    for name, content in files.items():
        runs.write_json(tmp_path / name, content)
    for name in ("data/corpus", "data/tokens", "models/tokenizer"):
        with runs.new_folder(tmp_path / name, kind="x", inputs={}, params={"of": name}):
            pass
    (tmp_path / "sifirdan").mkdir()
    (tmp_path / "sifirdan/config.py").write_text("# code\n")
    return tmp_path


def plan(project: Path, **changes: Any) -> noise_runs.Plan:
    return noise_runs.plan(project, **({"num_seeds": 3, "tokens": None, "chat": False} | changes))


def test_a_plan_is_a_fifth_of_the_tokens_without_seeds(project: Path) -> None:
    made = plan(project)
    assert made.seeds == (1, 2, 3) and made.params["train"]["tokens"] == 440_000
    assert "seed" not in made.params["train"] and made.params["evaluate"]["seed"] == 1
    assert made.commands == ("train", "evaluate base")
    assert plan(project, tokens=4096).params["train"]["tokens"] == 4096


@pytest.mark.parametrize(("key", "value", "short"), [("steps", 1000, 200), ("epochs", 2.0, 0.4)])
def test_a_plan_is_a_fifth_of_whatever_budget_train_has(
    project: Path, files: dict[str, Any], key: str, value: float, short: float
) -> None:
    train = files["params.yaml"]["train"] | {"tokens": None, key: value}
    runs.write_json(project / "params.yaml", files["params.yaml"] | {"train": train})
    keys = ("tokens", "steps", "epochs")
    made = plan(project).params["train"]
    assert {name: made[name] for name in keys} == dict.fromkeys(keys) | {key: short}
    asked = plan(project, tokens=4096).params["train"]
    assert {name: asked[name] for name in keys} == dict.fromkeys(keys) | {"tokens": 4096}


def test_what_is_kept_belongs_to_params_data_and_code(project: Path) -> None:
    first = plan(project).fingerprint
    assert first == plan(project, num_seeds=5).fingerprint  # more seeds use those that are there
    prints = {first, plan(project, tokens=4096).fingerprint}
    text = (project / "params.yaml").read_text(encoding="utf-8")
    assert '"stride": 128' in text and '"min_chars": 20' in text
    (project / "params.yaml").write_text(
        text.replace('"stride": 128', '"stride": 64'), encoding="utf-8"
    )
    prints.add(plan(project).fingerprint)
    (project / "params.yaml").write_text(
        text.replace('"min_chars": 20', '"min_chars": 21'), encoding="utf-8"
    )
    assert plan(project).fingerprint == first  # a stage before: its folder would tell
    with runs.new_folder(project / "data/tokens", kind="x", inputs={}, params={"of": "other"}):
        pass
    prints.add(plan(project).fingerprint)
    (project / "sifirdan/config.py").write_text("# other code\n")
    prints.add(plan(project).fingerprint)
    assert len(prints) == 5


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_seeds": 1}, "--seeds is 1"),
        ({"tokens": 100}, "--tokens is 100"),
        ({"tokens": 0}, "--tokens is 0"),
    ],
)
def test_a_plan_that_says_nothing_is_refused(
    project: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(project, **changes)


@pytest.mark.parametrize("train", [{}, {"batch_tokens": "x2048", "tokens": 1}, {"batch_tokens": 2048, "tokens": None}])  # fmt: skip
def test_a_size_that_is_none_is_refused(project: Path, train: dict[str, Any]) -> None:
    params = json.loads((project / "params.yaml").read_text(encoding="utf-8")) | {"train": train}
    runs.write_json(project / "params.yaml", params)
    with pytest.raises(ConfigError, match=r"params.yaml: train.\w+ is "):
        plan(project)


def test_a_missing_stage_is_named(project: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)data/chat.*dvc repro prepare_chat"):
        plan(project, chat=True)
    shutil.rmtree(project / "data/tokens")
    with pytest.raises(DataError, match=r"(?s)data/tokens.*dvc repro tokenize_corpus"):
        plan(project)


def start(project: Path) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "sifirdan.cli",
        "noise",
        "--seeds",
        "2",
        "--tokens",
        "2048",
        "--chat",
    ]
    environment = tiny.environment(project)
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(
        command, cwd=project, env=environment, start_new_session=True, **options
    )


def listing(project: Path) -> set[str]:
    ignored = {".cache", ".git", "__pycache__"}
    return {
        path.relative_to(project).as_posix()
        for path in project.rglob("*")
        if not ignored & {*path.relative_to(project).parts}
    }


@pytest.mark.slow
def test_noise_runs_the_stages_and_goes_on_after_an_interruption(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """One seed is there already, the numbers of the project itself standing for it."""
    finished: Finished = tiny.finished(tmp_path_factory)
    project = tiny.copy(finished, tmp_path)
    before, models = listing(project), tiny.hashes(project)
    kept = project / noise_runs.KEPT
    made = plan(project, num_seeds=2, tokens=2048, chat=True)
    stages = ("train", "evaluate_base", "finetune", "evaluate_chat")
    first = {stage: json.loads((project / f"metrics/{stage}.json").read_text()) for stage in stages}
    runs.write_json(kept / made.fingerprint / "seed-1.json", first)
    process = start(project)
    try:
        until = time.monotonic() + 120
        while not [*kept.glob(".work-*/seed-2/.track")] and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)  # to it alone, while the stage `train` runs
        said, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, said
    assert "seed 1, 1 of 2, kept from before" in said and "seed 1, train" not in said
    assert {path.name for path in kept.iterdir()} == {".lock", made.fingerprint}
    assert listing(project) == before

    process = start(project)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "seed 2, evaluate chat" in said and "bits per byte of val" in said
    assert listing(project) - before == {"reference/noise.json"}
    assert {path.name for path in kept.iterdir()} == {".lock", made.fingerprint}
    assert tiny.hashes(project) == models  # models and metrics of the project are its own
    noise = load_noise(project / "reference/noise.json")
    assert noise and noise["seeds"] == [1, 2]
    assert noise["sigma"][BPB] > 0 and noise["sigma"]["evaluate_chat.val.bits_per_byte"] > 0
    assert noise["params"]["train.tokens"] == 2048 and "train.seed" not in noise["params"]
    second = json.loads((kept / made.fingerprint / "seed-2.json").read_text())
    assert set(second) == set(stages) and second["train"]["tokens"] == 2048


@pytest.mark.parametrize("whose", ["a stage's", "a seed's"])
def test_damaged_numbers_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    def stage(_command: object, folder: Path, _environment: object, of: str) -> float:
        runs.write_text(folder / "metrics/train.json", "{")
        return 0.0

    monkeypatch.setattr(scratch_runs, "run_stage", stage)
    if whose == "a seed's":
        kept = project / noise_runs.KEPT / plan(project).fingerprint
        runs.write_text(kept / "seed-1.json", "[]")
    name = "seed-1" if whose == "a seed's" else "train"
    with pytest.raises(DataError, match=rf"(?s){name}\.json: is damaged.*what to do"):
        noise_runs.measure_noise(project, plan(project))


def test_stages_run_with_the_projects_code_and_data_and_their_own_store(project: Path) -> None:
    """A stage that says what it sees stands for the real one."""
    (project / "stages").mkdir()
    script = """
import json, os, pathlib, sys
params = json.loads(pathlib.Path("params.yaml").read_text())
seen = {"seed": params["train"]["seed"], "of": params["evaluate"]["seed"], "arguments": sys.argv[1:],
        "store": os.environ["MLFLOW_TRACKING_URI"], "data": pathlib.Path("data/tokens/manifest.json").is_file(),
        "tokenizer": pathlib.Path("models/tokenizer/manifest.json").is_file()}
pathlib.Path("metrics").mkdir(exist_ok=True)
name = "_".join([pathlib.Path(__file__).stem, *sys.argv[1:]])
pathlib.Path(f"metrics/{name}.json").write_text(json.dumps(seen))
sys.exit(3 if seen["seed"] == 3 else 0)
"""
    for name in ("train", "evaluate"):
        (project / f"stages/{name}.py").write_text(script)
    with pytest.raises(
        DataError, match=r"(?s)seed 3: `python -m stages.train` ended with exit code 3"
    ):
        noise_runs.measure_noise(project, plan(project))
    kept = project / noise_runs.KEPT / plan(project).fingerprint
    assert sorted(path.name for path in kept.iterdir()) == ["seed-1.json", "seed-2.json"]
    for seed in (1, 2):
        found = json.loads((kept / f"seed-{seed}.json").read_text())
        assert list(found) == ["evaluate_base", "train"] and found["evaluate_base"][
            "arguments"
        ] == ["base"]
        one = found["train"]
        assert one["seed"] == seed and one["of"] == 1 and one["data"] and one["tokenizer"]
        assert ".cache/noise/.work-" in one["store"]
    assert {path.name for path in kept.parent.iterdir()} == {".lock", kept.name}
    noise_runs.measure_noise(project, plan(project, num_seeds=2))
