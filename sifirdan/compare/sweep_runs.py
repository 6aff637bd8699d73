"""The runs behind `sifirdan sweep`: a training for each setting and seed, in scratch folders.

All settings train equally long: for as many minutes, by the speed that each had in a short trial beside
the baseline's, or through as much of the text. All are scored on the whole of val. What a run gave is kept in
.cache/sweep/<fingerprint>/, so that an interrupted sweep, or one with more settings or seeds, goes on.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from sifirdan import json_files, runs
from sifirdan.compare import scratch_runs
from sifirdan.compare.sweep import SECTIONS, Row, Variant
from sifirdan.errors import ConfigError, DataError, require

KEPT = Path(".cache/sweep")
TRIAL_MINUTES = 0.4  # of a trial, by which the speed is measured; compiling comes before
_VALIDATIONS = 3  # on a run's curve, and one at its end; each reads all of val
_ALL = 10**15  # tokens of val: every document, whatever the tokenizer
_NO_BUDGET = dict.fromkeys(("tokens", "steps", "epochs", "max_minutes"))
_SAME_SPEED = ("train.optimizer.lr_", "train.optimizer.beta", "train.optimizer.eps",
               "train.optimizer.muon_momentum", "train.optimizer.weight_decay",
               "train.optimizer.max_grad_norm", "train.schedule.", "train.sampling", "train.model.init",
               "train.model.rope_theta", "train.model.rms_norm_eps")  # fmt: skip
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Budget:
    """How long each setting is trained: one of both."""

    minutes: float | None = None
    epochs: float | None = None


@dataclass(frozen=True)
class Sweep:
    """What is tried: the sections of params.yaml as they are, the settings, the seeds."""

    project: Path
    params: dict[str, dict[str, Any]]
    facts: dict[str, Any]  # of data, code and versions: with the params all that changes a result
    seeds: tuple[int, ...]
    budget: Budget


def plan(project: Path, *, num_seeds: int, budget: Budget) -> Sweep:
    """Read the project; refuses where a stage that comes before has not run."""
    require(num_seeds >= 2, "--seeds", num_seeds, "2 or more", "3 is the least that says something")
    for name in ("minutes", "epochs"):
        value = getattr(budget, name)
        require(value is None or value > 0, f"--{name}", value, "above 0")
    params = scratch_runs.sections(project, (*SECTIONS, "runtime"))
    if params["runtime"].get("compile") == "auto":
        params["runtime"]["compile"] = "on"  # as in the long run that a short one stands for
    facts = {
        "data": scratch_runs.hashes(project, scratch_runs.READ),
        "code": scratch_runs.code(project, ("train_tokenizer", "tokenize_corpus", "train")),
        "versions": runs.versions("torch", "sentencepiece"),
    }
    return Sweep(project, params, facts, tuple(range(1, num_seeds + 1)), budget)


def run(sweep: Sweep, tried: Sequence[Variant]) -> list[Row]:
    """Train every variant with every seed, the baseline first. One that fails is a row that says so, but
    for the baseline: there the DataError is raised."""
    kept = sweep.project / KEPT
    with runs.lock(kept / ".lock", doing="sweeping"), scratch_runs.scratch(kept) as work:
        _check(sweep, tried, work)
        place = _Place(sweep, work)
        return [place.row(variant, number) for number, variant in enumerate(tried)]


def _check(sweep: Sweep, tried: Sequence[Variant], work: Path) -> None:
    """Refuse a value that a stage would refuse, before anything is trained."""
    folder = work / "check"
    folder.mkdir()
    for number, variant in enumerate(tried):
        content = variant.applied(sweep.params)
        content["train"] |= _NO_BUDGET | {"epochs": 1.0}
        runs.write_json(folder / f"{number}.yaml", content)
    files = " ".join(f"{number}.yaml" for number in range(len(tried)))
    environment = scratch_runs.environment(sweep.project, work)
    try:
        scratch_runs.run_stage(f"__main__ {files}", folder, environment, of="checking the settings")
    except DataError:
        raise ConfigError(
            "one of the settings cannot be; what is wrong with it stands above",
            expected="values that the stage takes",
            todo="correct it, then run the command again",
        ) from None


class _Place:
    """The scratch folder with what the runs of a sweep share in it."""

    def __init__(self, sweep: Sweep, work: Path) -> None:
        self.sweep, self.work = sweep, work
        self.environment = scratch_runs.environment(sweep.project, work)
        self.baseline = _Prepared(self, Variant({}), work / "baseline")
        self.baseline_tokens = 0

    def row(self, variant: Variant, number: int) -> Row:
        """The variant's runs, kept or made now."""
        prepared = _Prepared(self, variant, self.work / f"variant-{number}")
        try:
            budget = self._budget(variant, prepared)
            found = [prepared.trained(seed, budget) for seed in self.sweep.seeds]
        except DataError as error:
            if not variant.changes:
                raise
            _log.warning("sweep: %s failed: %s", variant.name, error)
            return Row(variant, (), (), 0, 0.0, 0.0, 0, failure=str(error).splitlines()[0])
        finally:
            prepared.remove()
        return _row_of(variant, found)

    def _budget(self, variant: Variant, prepared: "_Prepared") -> dict[str, float]:
        """The budget of each of its runs: through as much text, or for as many minutes. The speed of a
        setting is measured right before the baseline's is again, so that a machine that is busier now than at
        the sweep's beginning does not shorten it."""
        if self.sweep.budget.epochs is not None:
            return {"epochs": self.sweep.budget.epochs}
        assert self.sweep.budget.minutes is not None
        if not variant.changes:
            seconds = self.sweep.budget.minutes * 60
            self.baseline_tokens = round(self._speed(prepared) * seconds)
            return {"tokens": self.baseline_tokens}
        if all(key.startswith(_SAME_SPEED) for key in variant.changes):
            return {"tokens": self.baseline_tokens}
        return {"tokens": round(self.baseline_tokens * self._speed(prepared))}

    def _speed(self, prepared: "_Prepared") -> float:
        """Tokens a second of the baseline; of another setting, how many times that. Kept or measured now."""
        file = prepared.kept / "speed.json"
        if not file.is_file():
            speed, how = prepared.trial(), "alone"
            if prepared.variant.changes:
                speed, how = speed / self.baseline.trial(), "beside the baseline"
            runs.write_json(file, {"speed": speed, "measured": how})
        return float(_read(file)["speed"])


class _Prepared:
    """One variant: its folder with its tokenizer and tokens, made when a run first needs them."""

    def __init__(self, place: _Place, variant: Variant, folder: Path) -> None:
        self.place, self.variant, self.folder = place, variant, folder
        self.params = variant.applied(place.sweep.params)
        self.kept = place.sweep.project / KEPT / _digest(self.params | place.sweep.facts)

    def trial(self) -> float:
        """Its tokens a second in a short training now."""
        folder = self.folder / "trial"
        params = scratch_runs.seeded(self.params, 1, self.place.sweep.project)
        params["train"] |= _NO_BUDGET | {
            "epochs": 1.0,
            "max_minutes": TRIAL_MINUTES,
            "val_tokens": 1,
        }
        _log.info("sweep: %s, trial of its speed", self.variant.name)
        speed = self._train(folder, params)
        scratch_runs.remove(folder)
        if not speed:
            raise DataError(
                f"{self.variant.name}: a trial of {TRIAL_MINUTES} minutes said no speed",
                expected="tokens_per_second in its lines",
                todo="give --epochs instead of --minutes",
            )
        return speed

    def trained(self, seed: int, budget: dict[str, float]) -> dict[str, Any]:
        """What a run gave: metrics of the stage, curve, tokens a second."""
        (unit, size), digest = next(iter(budget.items())), _digest(budget)
        file = self.kept / f"{digest}-seed-{seed}.json"
        said = f"seed {seed} of {len(self.place.sweep.seeds)}"
        if file.is_file():
            _log.info("sweep: %s, %s, kept from before", self.variant.name, said)
            return _read(file)
        params = scratch_runs.seeded(self.params, seed, self.place.sweep.project)
        train = params["train"]
        every = size if unit == "tokens" else size * self._tokens_per_epoch()
        train |= _NO_BUDGET | {unit: size, "val_tokens": _ALL}
        train["val_every_tokens"] = max(train["batch_tokens"], int(every / _VALIDATIONS) + 1)
        _log.info("sweep: %s, %s, %s %s", self.variant.name, said, f"{size:,}", unit)
        folder = self.folder / f"seed-{seed}"
        speed = self._train(folder, params)
        todo = "run the same command again"
        found = json_files.read_object(folder / "metrics/train.json", todo=todo)
        found["curve"] = json_files.read_lines(folder / "reports/train/curve.jsonl", todo=todo)
        found["tokens_per_second"] = speed
        runs.write_json(file, found)
        return found

    def remove(self) -> None:
        """The tokenizer and tokens made for it, and its models."""
        scratch_runs.remove(self.folder)

    def _train(self, folder: Path, params: dict[str, Any]) -> float:
        scratch_runs.lay_out(self._source(), folder, params)
        environment = self.place.environment
        speed = scratch_runs.run_stage("train", folder, environment, of=self.variant.name)
        scratch_runs.remove(folder / "models/base")
        return speed

    def _source(self) -> Path:
        """The project, or a copy of it that has this variant's tokenizer and tokens."""
        if not self.variant.remakes_tokens():
            return self.place.sweep.project
        source = self.folder / "source"
        if not source.is_dir():
            project, environment = self.place.sweep.project, self.place.environment
            scratch_runs.lay_out(project, source, self.params)
            for folder in ("data/tokens", "models/tokenizer"):
                scratch_runs.remove(source / folder)
            for stage in ("train_tokenizer", "tokenize_corpus"):
                _log.info("sweep: %s, making %s", self.variant.name, stage)
                scratch_runs.run_stage(stage, source, environment, of=self.variant.name)
        return source

    def _tokens_per_epoch(self) -> int:
        manifest = runs.read_manifest(self._source() / "data/tokens", made_by="tokenize_corpus")
        return int(manifest.counts["train"]["tokens"])


def _row_of(variant: Variant, found: Sequence[dict[str, Any]]) -> Row:
    """The mean curve over minutes: all seeds have points at the same steps and, here, the same speed."""
    speed = mean(one["tokens_per_second"] for one in found)
    tokens_a_step = found[0]["tokens"] / found[0]["steps"]
    curves = [
        {point["step"]: point["val_bits_per_byte"] for point in one["curve"] if "val_bits_per_byte" in point}
        for one in found
    ]  # fmt: skip
    curve = tuple(
        (step * tokens_a_step / speed / 60, mean(one[step] for one in curves))
        for step in curves[0]
        if all(step in one for one in curves)
    )
    return Row(
        variant,
        tuple(one["val_bits_per_byte"] for one in found),
        curve,
        tokens=found[0]["tokens"],
        epochs=found[0]["epochs"],
        minutes=found[0]["tokens"] / speed / 60,
        parameters=found[0]["parameters"],
    )


def _read(file: Path) -> dict[str, Any]:
    return json_files.read_object(file, todo=f"remove it, and run again: {file}")


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
