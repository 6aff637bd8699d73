"""What a page about a model says, gathered from the files of one run. Draws nothing: see model_page.py.

A file that is not there leaves its part of the page out; a damaged one is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sifirdan import json_files, runs
from sifirdan.compare.comparison import FOLDERS, Comparison, RunRecord
from sifirdan.compare.measures import flat
from sifirdan.pages.standing import against

# The folder behind each input that a manifest names.
INPUTS = {
    "raw": "data/raw",
    "corpus": "data/corpus",
    "tokenizer": "models/tokenizer",
    "tokens": "data/tokens",
    "base": "models/base",
    "chat": "data/chat",
}
TRAINING = {"base": ("train",), "chat": ("train", "finetune")}  # stages behind a model


@dataclass(frozen=True)
class ModelFacts:
    """`name` is "base" or "chat". `config` is the model's config.json, `metrics` the metrics file of
    each stage. `batch_tokens` are tokens a step, by stage; `samples` the lines of samples.jsonl,
    `bins` those of the calibration on val, `pair_baselines` what frequencies would get of each phenomenon
    of the minimal pairs, by kind of frequency.
    `folders` are manifest hashes by folder, in the order of the pipeline; `params` are flat, by dotted
    name. `code` says with which code, a name and a hash or version. `against` compares the reference
    run (first) with this one; `noise` is the content of reference/noise.json."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    curves: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    batch_tokens: Mapping[str, int] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()
    bins: Sequence[Mapping[str, float]] = ()
    pair_baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    data_card: Mapping[str, Any] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    against: Comparison | None = None
    noise: Mapping[str, Any] | None = None

    @property
    def scores(self) -> Mapping[str, Any]:
        """The metrics of this model's evaluation."""
        return self.metrics.get(f"evaluate_{self.name}", {})


def collect(
    name: str,
    metrics: Mapping[str, Mapping[str, Any]],
    reports: Path,
    models: Path,
    reference: RunRecord | None,
    noise: Mapping[str, Any] | None,
    code: Mapping[str, str] | None = None,
) -> ModelFacts:
    """Read what a page about models/NAME needs. `metrics` is the content of each stage's metrics file,
    `noise` that of reference/noise.json and `reference` the run in reference/run.json, None where there
    is none; `code` is shown as it is given."""
    made = {
        "clean": reports / "corpus",
        "train_tokenizer": models / "tokenizer",
        "train": models / "base",
        "finetune": models / "chat",
        "evaluate": reports / "evaluate" / name,
    }
    if name == "base":
        del made["finetune"]
    manifests = {stage: read_json(folder / runs.MANIFEST) for stage, folder in made.items()}
    params = {f"{s}.{k}": v for s, m in manifests.items() for k, v in flat(m.get("params", {}))}  # fmt: skip
    folders = _folders(manifests, made)
    curves = {
        stage: [unspelled(point) for point in _lines(reports / stage / "curve.jsonl")]
        for stage in TRAINING[name]
    }
    samples = _lines(made["evaluate"] / "samples.jsonl")
    metrics = unspelled(metrics)
    this = RunRecord("this run", params, metrics, curves, folders, ())
    return ModelFacts(
        name=name,
        config=read_json(models / name / "config.json"),
        metrics=metrics,
        curves={stage: points for stage, points in curves.items() if points},
        batch_tokens={
            stage: params[f"{stage}.batch_tokens"]
            for stage in curves
            if f"{stage}.batch_tokens" in params
        },
        samples=samples,
        bins=read_json(made["evaluate"] / "calibration.json").get("val", []),
        pair_baselines=read_json(made["evaluate"] / "pair_baselines.json"),
        data_card=read_json(models / name / "data_card.json"),
        folders=folders,
        params=params,
        versions={
            package: version
            for manifest in manifests.values()
            for package, version in sorted(manifest.get("versions", {}).items())
        },
        code=code or {},
        against=against(reference, this, noise, name) if reference else None,
        noise=noise,
    )


def _folders(
    manifests: Mapping[str, Mapping[str, Any]], made: Mapping[str, Path]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for manifest in manifests.values():
        for role, sha256 in manifest.get("inputs", {}).items():
            if role in INPUTS:
                found[INPUTS[role]] = sha256
    own = {"train_tokenizer": "models/tokenizer", "train": "models/base", "finetune": "models/chat"}
    for stage, folder in own.items():
        if manifests.get(stage):
            found[folder] = runs.sha256_of(made[stage] / runs.MANIFEST)
    return {folder: found[folder] for folder in FOLDERS if folder in found}


def unspelled(value: Any) -> Any:
    """Metrics with their "nan", "inf" and "-inf", which JSON cannot hold, as numbers again."""
    if isinstance(value, Mapping):
        return {key: unspelled(part) for key, part in value.items()}
    return float(value) if value in ("nan", "inf", "-inf") else value


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty where there is none."""
    return (
        json_files.read_object(path, todo="dvc repro, which restores it") if path.is_file() else {}
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return (
        json_files.read_lines(path, todo="dvc repro, which restores it") if path.is_file() else []
    )
