"""The runs behind `sifirdan noise`: a short training and its evaluation, once a seed, in scratch folders.

The stages themselves run, as processes, on the data and the tokenizer of this folder; its models, metrics
and tracking store stay as they are. What a seed gave is kept in .cache/noise/<fingerprint>/, so an
interrupted command goes on with the next seed. Not for arithmetic: `noise.py`.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifirdan import json_files, runs
from sifirdan.compare import scratch_runs
from sifirdan.compare.measures import flat
from sifirdan.compare.noise import summarise, without_sigma
from sifirdan.config import PARAMS_FILE
from sifirdan.errors import ConfigError, require

KEPT = Path(".cache/noise")
SHORT_SHARE = 5  # by default a run has so small a part of train's budget
_BASE = ("train", "evaluate base")
_CHAT = ("finetune", "evaluate chat")
_READ_FOR_CHAT = {"data/chat": "prepare_chat"}
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
    needed = scratch_runs.READ | (_READ_FOR_CHAT if chat else {})
    hashes = scratch_runs.hashes(project, needed)
    names = ("train", "evaluate", "runtime", *(("finetune",) if chat else ()))
    params = scratch_runs.sections(project, names)
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
    stages = ("train", "evaluate_base", *(("finetune", "evaluate_chat") if chat else ()))
    facts = {"params": params, "data": hashes, "chat": chat}
    facts["code"] = scratch_runs.code(project, stages)
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
    with (
        runs.lock(project / KEPT / ".lock", doing="measuring noise"),
        scratch_runs.scratch(project / KEPT) as work,
    ):
        for place, seed in enumerate(made.seeds, 1):
            file, said = kept / f"seed-{seed}.json", f"seed {seed}, {place} of {len(made.seeds)}"
            _log.info("noise: %s%s", said, ", kept from before" if file.is_file() else "")
            if not file.is_file():
                runs.write_json(file, _run_seed(project, made, seed, work))
            by_seed[seed] = json_files.read_object(file, todo=f"remove it, and run again: {file}")
    params = {name: value for name, value in flat(made.params) if not name.startswith("runtime.")}
    noise = summarise(params, by_seed)
    return noise, without_sigma(noise, by_seed)


def _run_seed(project: Path, made: Plan, seed: int, work: Path) -> dict[str, Any]:
    """The metrics of each stage, by its name. All seeds have one tracking store: making it takes seconds."""
    folder = work / f"seed-{seed}"
    scratch_runs.lay_out(project, folder, scratch_runs.seeded(made.params, seed, project))
    environment = scratch_runs.environment(project, work)
    for command in made.commands:
        _log.info("noise: seed %d, %s", seed, command)
        scratch_runs.run_stage(command, folder, environment, of=f"seed {seed}")
    return {
        path.stem: json_files.read_object(path, todo="run the same command again")
        for path in sorted((folder / "metrics").glob("*.json"))
    }
