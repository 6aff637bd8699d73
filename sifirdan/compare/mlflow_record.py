"""A pipeline run of the tracking store as a record: the names that it was logged under, undone.

The store itself is read by `track.read_run`. What is in the files that stages kept with their runs counts
more than the store's numbers: hashes are no numbers.
"""

import re
from collections.abc import Mapping
from typing import Any

from sifirdan import track
from sifirdan.compare.comparison import RunRecord, sample_texts
from sifirdan.errors import DataError
from sifirdan.json_files import parse_object
from sifirdan.track_record import CHAT_DATA, METRICS_FOLDER, PREFIXES

# What the tags call the folders. `chat` is the instruction data to some stages, to others the model.
_FOLDERS = {
    "raw": "data/raw",
    "corpus": "data/corpus",
    "tokenizer": "models/tokenizer",
    "tokens": "data/tokens",
    "base": "models/base",
    "chat_model": "models/chat",
    CHAT_DATA: "data/chat",
}
_CHAT_DATA = ("prepare_chat", "finetune", "evaluate_chat")
_FINAL = "_final"  # of a number whose name a curve has already
_NONFINITE = ".nonfinite"  # a flag: the store cannot hold the value
_TODO = "name the run's Git commit instead, or remove this file from the run in MLflow"
_CURVES = ("train", "finetune")
_NO_STAGE = re.compile(r"system/|by_\w+/")  # MLflow's own numbers; curves once more, on other axes


def read(run_id: str) -> RunRecord:
    """The record of a pipeline run."""
    record = record_of(track.read_run(run_id, is_curve))
    if not record.metrics:
        raise DataError(
            f"{record.name}: this MLflow run holds no number",
            expected="a run in which a stage has finished",
            todo="name another one; `make ui` shows them",
        )
    return record


def record_of(run: Mapping[str, Any]) -> RunRecord:
    """The record of what `track.read_run` returns."""
    changed = {
        name.removeprefix("changed."): value
        for name, value in run["tags"].items()
        if name.startswith("changed.")  # at a later start of the same run
    }
    name = f"{run['name']} ({run['id'][:8]})"
    metrics: dict[str, dict[str, Any]] = {}
    for key, value in _last_values(run["metrics"], run["curves"]).items():
        stage, place = stage_metric(key)
        if not _NO_STAGE.match(key):
            metrics.setdefault(stage, {})[place] = value
    for stage, text in run["files"].items():  # of stages that DVC took from its cache
        metrics[stage] = parse_object(text, f"{name}: {METRICS_FOLDER}/{stage}.json", todo=_TODO)
    for stage, kept in run["stages"].items():
        if text := kept["files"].get(f"{stage}.json"):
            metrics[stage] = parse_object(text, f"{name}: {stage}.json", todo=_TODO)
    curves: dict[str, dict[int, dict[str, float]]] = {}
    for key, points in run["curves"].items():
        stage, place = stage_metric(key)
        for step, value in points:
            if step > 0:  # a number of the end stands at step 0
                curves.setdefault(stage, {}).setdefault(step, {"step": step})[place] = value
    samples = run["stages"].get("evaluate_base", {}).get("files", {}).get("samples.jsonl", "")
    return RunRecord(
        name=name,
        params={plain_name(name): value for name, value in run["params"].items()} | changed,
        metrics=metrics,
        curves={stage: [rows[step] for step in sorted(rows)] for stage, rows in curves.items()},
        hashes=_hashes(run),
        samples=sample_texts(samples, f"{name}: samples.jsonl"),
    )


def stage_metric(key: str) -> tuple[str, str]:
    """The stage of a number in the store and its dotted place in that stage's metrics file.

    >>> stage_metric("val/bits_per_byte"), stage_metric("sft/prepare_chat/sets")
    (('train', 'val_bits_per_byte'), ('prepare_chat', 'sets'))
    """
    key = plain_name(key)
    if key.startswith("val/"):
        return "train", "val_" + key.removeprefix("val/")
    fitting = [stage for stage, prefix in PREFIXES.items() if key.startswith(prefix)]
    if not fitting:
        stage, _, name = key.partition("/")
        return stage, name
    stage = max(fitting, key=lambda one: len(PREFIXES[one]))
    return stage, key.removeprefix(PREFIXES[stage])


def plain_name(name: str) -> str:
    """What `track_record.safe_name` was given, but for a name that it had to cut.

    >>> plain_name("ppl-u40-1")
    'ppl@1'
    """
    return re.sub("-u([0-9a-f]*)-", lambda match: chr(int(match[1], 16)) if match[1] else "", name)


def is_curve(key: str) -> bool:
    """Whether a number in the store may have many points: one of a training stage that is no part of
    a group."""
    stage, name = stage_metric(key)
    return stage in _CURVES and "." not in name and not name.endswith(_FINAL)


def _last_values(
    metrics: Mapping[str, float], curves: Mapping[str, list[tuple[int, float]]]
) -> dict[str, Any]:
    """The numbers of the metrics files; the last point of a curve, a speed say, is none of them."""
    values: dict[str, Any] = {}
    for key, value in metrics.items():
        if key.endswith(_NONFINITE):
            values[key.removesuffix(_NONFINITE)] = "nan"
        elif key.endswith(_FINAL) and key.removesuffix(_FINAL) in metrics:
            values[key.removesuffix(_FINAL)] = value
        elif not any(step > 0 for step, _ in curves.get(key, [])):
            values[key] = value
    return values


def _hashes(run: Mapping[str, Any]) -> dict[str, str]:
    """Of the folders, from the tags: what a stage made counts more than what one read."""
    hashes = {}
    for direction in ("in", "out"):
        for name, folder in _FOLDERS.items():
            if digest := run["tags"].get(f"{direction}.{name}"):
                hashes[folder] = digest
        for stage in _CHAT_DATA:
            if digest := run["stages"].get(stage, {}).get("tags", {}).get(f"{direction}.chat"):
                hashes["data/chat"] = digest
    return hashes
