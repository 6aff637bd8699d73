"""The runs behind `sifirdan noise`: a short training and its evaluation, once a seed, in scratch folders.

The stages themselves run, as processes, on the data and the tokenizer of this folder; its models, metrics
and tracking store stay as they are. What a seed gave is kept in .cache/noise/<fingerprint>/, so an
interrupted command goes on with the next seed. Not for arithmetic: `noise.py`.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifirdan import json_files, runs
from sifirdan.compare.measures import flat
from sifirdan.compare.noise import summarise, without_sigma
from sifirdan.config import PARAMS_FILE, read_yaml
from sifirdan.errors import ConfigError, DataError, require

KEPT = Path(".cache/noise")
SHORT_SHARE = 5  # by default a run has so small a part of train's budget
_BASE = ("train", "evaluate base")
_CHAT = ("finetune", "evaluate chat")
_READ = {"data/corpus": "clean", "data/tokens": "tokenize_corpus"}  # and the stage that makes it
_READ |= {"models/tokenizer": "train_tokenizer"}
_READ_FOR_CHAT = {"data/chat": "prepare_chat"}
_STOP_SECONDS = 20.0  # for a training process to save its state, which is thrown away
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What is repeated: the sections of params.yaml as they will be, but for the seeds."""

    seeds: tuple[int, ...]
    params: dict[str, Any]
    chat: bool
    fingerprint: str

    @property
    def commands(self) -> tuple[str, ...]:
        return _BASE + (_CHAT if self.chat else ())


def plan(project: Path, *, num_seeds: int, tokens: int | None, chat: bool) -> Plan:
    """Read the project and decide; refuses where a stage that comes before has not run."""
    require(num_seeds >= 2, "--seeds", num_seeds, "2 or more", "3 is the least that says something")
    content = read_yaml(project / PARAMS_FILE)
    needed = _READ | (_READ_FOR_CHAT if chat else {})
    hashes = {
        folder: runs.read_manifest(project / folder, made_by=stage).sha256
        for folder, stage in needed.items()
    }
    sections = ("train", "evaluate", "runtime", *(("finetune",) if chat else ()))
    for section in sections:
        if not isinstance(content.get(section), dict):
            raise ConfigError(f"{PARAMS_FILE}: the section '{section}' is missing")
    params = {section: dict(content[section]) for section in sections}
    least = _size(params["train"], "batch_tokens")
    require(
        tokens is None or tokens >= least,
        "--tokens",
        tokens,
        f"train.batch_tokens ({least}) or more",
    )
    params["train"] |= _short_budget(params["train"], tokens)
    for section in ("train", "finetune"):
        params.get(section, {}).pop("seed", None)
    facts = {"params": params, "data": hashes, "code": _code(project, chat), "chat": chat}
    facts["versions"] = runs.versions("torch", "sentencepiece")
    text = json.dumps(facts, sort_keys=True, default=str)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Plan(tuple(range(1, num_seeds + 1)), params, chat, fingerprint)


def _short_budget(train: dict[str, Any], tokens: int | None) -> dict[str, Any]:
    """The budget of one of the trainings: `tokens`, or SHORT_SHARE of what the section asks for."""
    if tokens is not None:
        return {"tokens": tokens, "steps": None, "epochs": None}
    if train.get("steps") is not None:
        return {"steps": max(1, _size(train, "steps") // SHORT_SHARE)}
    if isinstance(train.get("epochs"), float | int):
        return {"epochs": train["epochs"] / SHORT_SHARE}
    return {"tokens": max(train["batch_tokens"], _size(train, "tokens") // SHORT_SHARE)}


def _size(train: Mapping[str, Any], key: str) -> int:
    found = train.get(key)
    if type(found) is not int or found < 1:
        said = f"is {found!r}" if key in train else "is missing"
        raise ConfigError(
            f"{PARAMS_FILE}: train.{key} {said}",
            expected="a whole number, 1 or more",
            todo=f"set train.{key}; the params.yaml in Git has it",
        )
    return found


def measure_noise(project: Path, made: Plan) -> tuple[dict[str, Any], list[str]]:
    """The content of reference/noise.json, and the names that got no sigma. Costs a training and an
    evaluation for each seed that is not kept from before."""
    kept = project / KEPT / made.fingerprint
    by_seed: dict[int, dict[str, Any]] = {}
    with runs.lock(project / KEPT / ".lock", doing="measuring noise"), _work(project) as work:
        for place, seed in enumerate(made.seeds, 1):
            file, said = kept / f"seed-{seed}.json", f"seed {seed}, {place} of {len(made.seeds)}"
            _log.info("noise: %s%s", said, ", kept from before" if file.is_file() else "")
            if not file.is_file():
                runs.write_json(file, _run_seed(project, made, seed, work))
            by_seed[seed] = json_files.read_object(file, todo=f"remove it, and run again: {file}")
    params = {name: value for name, value in flat(made.params) if not name.startswith("runtime.")}
    noise = summarise(params, by_seed)
    return noise, without_sigma(noise, by_seed)


@contextlib.contextmanager
def _work(project: Path) -> Iterator[Path]:
    """A scratch folder that goes with all in it, also one that a killed process left."""
    for left in (project / KEPT).glob(".work-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=".work-", dir=project / KEPT))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_seed(project: Path, made: Plan, seed: int, work: Path) -> dict[str, Any]:
    """The metrics of each stage, by its name. All seeds have one tracking store: making it takes seconds."""
    folder = work / f"seed-{seed}"
    _lay_out(project, made, seed, folder)
    environment = _environment(project, work)
    for command in made.commands:
        _log.info("noise: seed %d, %s", seed, command)
        code = _run_stage(command.split(" "), folder, environment)
        if code:
            raise DataError(
                f"seed {seed}: `python -m stages.{command}` ended with exit code {code}",
                expected="0; what it said stands above",
                todo="mend that, then run the same command again: finished seeds are kept",
            )
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((folder / "metrics").glob("*.json"))
    }


def _lay_out(project: Path, made: Plan, seed: int, folder: Path) -> None:
    """Make `folder` look like the project to a stage."""
    (folder / "data").mkdir(parents=True)
    (folder / "models").mkdir()
    for path in (*(project / "data").iterdir(), project / "models/tokenizer"):
        if path.is_dir():
            _link(path, folder / path.relative_to(project))
    params = {section: dict(values) for section, values in made.params.items()}
    for section in ("train", "finetune"):
        if section in params:
            params[section]["seed"] = seed
    if params["train"].get("init_from") is not None:  # a path that starts at the project
        params["train"]["init_from"] = str((project / params["train"]["init_from"]).resolve())
    runs.write_json(folder / PARAMS_FILE, params)  # JSON is YAML


def _link(source: Path, target: Path) -> None:
    try:
        os.symlink(source.resolve(), target, target_is_directory=True)
    except OSError:  # Windows lets only some users link
        shutil.copytree(source, target)


def _environment(project: Path, work: Path) -> dict[str, str]:
    """That of this process, but with the project's code, a tracking store that is thrown away, and no
    word of a DVC command that this one may run in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    paths = [str(project.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    store = f"sqlite:///{(work / 'mlflow.db').resolve().as_posix()}"
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "MLFLOW_TRACKING_URI": store}


def _run_stage(command: list[str], folder: Path, environment: Mapping[str, str]) -> int:
    name, *arguments = command
    process = subprocess.Popen(
        [sys.executable, "-m", f"stages.{name}", *arguments],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
    )
    try:
        return process.wait()
    except BaseException:  # Ctrl-C may have come to us alone
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _code(project: Path, chat: bool) -> dict[str, str]:
    """The hashes of the code that the stages run, as dvc.yaml lists it."""
    stages = read_yaml(project / "dvc.yaml").get("stages", {})
    names = ["train", "evaluate_base", *(("finetune", "evaluate_chat") if chat else ())]
    files = {dep for name in names for dep in stages.get(name, {}).get("deps", [])}
    return {
        name: runs.sha256_of(project / name) for name in sorted(files) if (project / name).is_file()
    }
