"""One run as a record (`comparison.RunRecord`), from wherever it was kept: this folder, a Git revision,
a DVC experiment, MLflow (through `mlflow_record.py`), or reference/run.json.

Reads only. Not for judging: what may be compared is decided in `comparison.py`.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sifirdan import json_files, runs, track_record
from sifirdan.compare import mlflow_record, revision_files
from sifirdan.compare.comparison import BY_DVC, FOLDERS, RunRecord, sample_texts
from sifirdan.compare.measures import flat
from sifirdan.compare.reference import REFERENCE_FILE, load_reference
from sifirdan.config import PARAMS_FILE
from sifirdan.errors import ConfigError, DataError

WORKSPACE = "workspace"
REFERENCE = "reference"
CURVES = {name: f"reports/{name}/curve.jsonl" for name in ("train", "finetune")}
SAMPLES = "reports/evaluate/base/samples.jsonl"
NO_STAGES = ("noise", REFERENCE)  # files of metrics/ that no stage wrote
KINDS = ("git", "exp", "mlflow")
_LISTED = 12  # names of each kind in an error
_HEX = re.compile(r"[0-9a-f]{4,40}")

_log = logging.getLogger(__name__)


def load_record(name: str) -> RunRecord:
    """The run that `name` says: `workspace`, `reference`, a branch, tag or commit, a DVC experiment,
    or an MLflow run by its name, id or the beginning of it. They are tried in this order; `git:`,
    `exp:` and `mlflow:` before a name allow one kind alone."""
    if name == WORKSPACE:
        return workspace_record()
    if name == REFERENCE:
        return _reference()
    kind, _, wanted = name.partition(":")
    kinds: tuple[str, ...] = (kind,)
    if kind not in KINDS or not wanted:
        wanted, kinds = name, KINDS
    commit = revision_files.commit_of(wanted) if "git" in kinds else None
    abbreviated = commit and _HEX.fullmatch(wanted) and commit.startswith(wanted)
    if commit and abbreviated and "mlflow" in kinds and _mlflow_runs(wanted):
        raise ConfigError(
            f"{wanted!r} begins the name of a Git commit and the id of an MLflow run",
            todo=f"write git:{wanted}, mlflow:{wanted}, or more of it",
        )
    if commit:
        return revision_record(commit, name)
    experiments = revision_files.experiments() if "exp" in kinds else {}
    if wanted in experiments:
        return revision_record(experiments[wanted], name)
    found = _mlflow_runs(wanted) if "mlflow" in kinds else []
    if not found:
        raise _unknown(name)
    if len(found) > 1:
        raise ConfigError(
            f"{name!r} is the name of {len(found)} MLflow runs, or the beginning of their ids",
            expected="one of "
            + ", ".join(f"{run['id']} ({run['name']})" for run in found[:_LISTED]),
            todo="give the id, or more of it",
        )
    return mlflow_record.read(found[0]["id"])


def workspace_record() -> RunRecord:
    """The folder as it is."""
    params = revision_files.read_mapping(PARAMS_FILE)
    files = sorted(Path("metrics").glob("*.json"))
    metrics = {
        path.stem: json_files.read_object(
            path, todo=f"dvc repro {path.stem}, or git checkout {path}"
        )
        for path in files
        if path.stem not in NO_STAGES
    }
    if not metrics:
        raise DataError(
            "there is no metrics file in this folder",
            expected="metrics/<stage>.json of a finished run",
            todo="dvc repro, or name runs that are finished",
        )
    there = Path("dvc.lock").is_file()
    lock = revision_files.read_mapping(Path("dvc.lock")) if there else {}
    stages = revision_files.locked_stages(lock, "dvc.lock")
    _warn_of_other_params(WORKSPACE, params, stages)
    hashes = _hashes(revision_files.locked_outputs(stages), lambda path: _existing(Path(path)))
    return _record(WORKSPACE, params, metrics, hashes, lambda path: _existing(Path(path)))


def revision_record(commit: str, name: str) -> RunRecord:
    """The files of a commit; curves and samples as far as DVC's cache has them."""
    text = revision_files.tracked_text(commit, PARAMS_FILE.name)
    if text is None:
        raise DataError(
            f"{name}: the commit {commit[:10]} has no {PARAMS_FILE} in this folder",
            expected="a commit of a sifirdan project",
            todo="name another one; git log shows them",
        )
    params = revision_files.parse_yaml(text, f"{name}:{PARAMS_FILE}")
    metrics = {
        file.removesuffix(".json"): json_files.parse_object(
            revision_files.tracked_text(commit, f"metrics/{file}") or "",
            f"{name}:metrics/{file}",
            todo="name another commit; git log shows them",
        )
        for file in revision_files.tracked_names(commit, "metrics")
        if file.endswith(".json") and file.removesuffix(".json") not in NO_STAGES
    }
    if not metrics:
        raise DataError(
            f"{name}: the commit {commit[:10]} has no metrics files",
            expected="metrics/<stage>.json, as dvc repro leaves them",
            todo="commit dvc.lock and metrics/ after a run, and name that commit",
        )
    text = revision_files.tracked_text(commit, "dvc.lock")
    lock = revision_files.parse_yaml(text, f"{name}:dvc.lock") if text else {}
    stages = revision_files.locked_stages(lock, f"{name}:dvc.lock")
    _warn_of_other_params(name, params, stages)
    outputs, cache = revision_files.locked_outputs(stages), revision_files.Cache()

    def find(path: str) -> Path | None:
        return cache.file(outputs, path)

    record = _record(name, params, metrics, _hashes(outputs, find), find)
    if not record.curves:
        _log.warning(
            "%s: its curves are not in DVC's cache; dvc fetch --all-commits gets them from a remote",
            name,
        )
    return record


def write_reference(
    record: RunRecord, path: Path = REFERENCE_FILE, *, called: str | None = None
) -> str:
    """Keep a run as what later ones are compared with; returns the name it is kept under: `called`, or
    its own, which for the workspace is that of its commit."""
    name = called or record.name
    if name == WORKSPACE and (commit := revision_files.commit_of("HEAD")):
        name = f"{WORKSPACE} on {commit[:10]}"
    parts = {"params": record.params, "metrics": record.metrics, "hashes": record.hashes}
    content = {key: dict(sorted(part.items())) for key, part in parts.items()}
    runs.write_json(path, track_record.spell_nonfinite({"name": name, **content}))
    return name


def _reference() -> RunRecord:
    record = load_reference()
    if record is None:
        raise DataError(
            f"{REFERENCE_FILE}: there is no such file", todo="sifirdan reference RUN writes it"
        )
    return record


def _record(
    name: str,
    params: Mapping[str, Any],
    metrics: Mapping[str, Mapping[str, Any]],
    hashes: Mapping[str, str],
    find: Callable[[str], Path | None],
) -> RunRecord:
    """`find` gives the file that holds the content of a path of the run, if it is there."""
    curves = {
        stage: [{"step": step, **values} for step, values in track_record.read_curve(file)]
        for stage, path in CURVES.items()
        if (file := find(path))
    }
    samples = find(SAMPLES)
    texts = sample_texts(samples.read_bytes(), f"{name}:{SAMPLES}") if samples else ()
    return RunRecord(name, dict(flat(params)), metrics, curves, hashes, texts)


def _hashes(outputs: Mapping[str, str], find: Callable[[str], Path | None]) -> dict[str, str]:
    """Of each folder the sha256 of its manifest, and DVC's own hash: which of the two a run has
    depends on where it was kept."""
    hashes = {}
    for folder in FOLDERS:
        if manifest := find(f"{folder}/{runs.MANIFEST}"):
            hashes[folder] = runs.sha256_of(manifest)
        if folder in outputs:
            hashes[folder + BY_DVC] = outputs[folder]
    return hashes


def _warn_of_other_params(
    name: str, params: Mapping[str, Any], stages: Mapping[str, Mapping[str, Any]]
) -> None:
    """Whoever edits params.yaml and does not run would compare new settings with old numbers."""
    now, changed = dict(flat(params)), set()
    for entry in stages.values():
        made_with = entry.get("params", {}).get(PARAMS_FILE.name, {})
        for key, value in flat(made_with):
            if track_record.param_text(now.get(key)) != track_record.param_text(value):
                changed |= {key} if not _same_number(now.get(key), value) else set()
    if changed:
        _log.warning(
            "%s: params.yaml was changed after the run (%s): its numbers are of the values before; "
            "dvc repro brings them together", name, ", ".join(sorted(changed)[:5]),
        )  # fmt: skip


def _same_number(first: Any, second: Any) -> bool:
    """DVC writes 1e-06 as text."""
    try:
        return float(first) == float(second)
    except (TypeError, ValueError):
        return False


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _mlflow_runs(wanted: str) -> list[dict[str, str]]:
    """The pipeline runs of that id or name, else those whose id begins so."""
    from sifirdan import track

    listed = track.list_runs()
    exact = [run for run in listed if wanted in (run["id"], run["name"])]
    return exact or [run for run in listed if _HEX.match(wanted) and run["id"].startswith(wanted)]


def _unknown(name: str) -> ConfigError:
    from sifirdan import track

    refs = revision_files.git(
        "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags"
    )
    runs_there = [f"{run['name']} ({run['id'][:8]})" for run in track.list_runs()]
    there = {
        "in Git": (refs or "").splitlines(),
        "experiments of DVC": sorted(revision_files.experiments()),
        "runs in MLflow": runs_there,
    }
    lines = [f"{kind}: {_some(names)}" for kind, names in there.items()]
    return ConfigError(
        f"there is no run {name!r}",
        expected=f"'{WORKSPACE}', '{REFERENCE}', a Git revision, a DVC experiment or an MLflow run"
        + "".join(f"\n    {line}" for line in lines),
        todo="give one of these; a commit that this clone lacks comes with git fetch",
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return (", ".join(names[:_LISTED]) or "none") + more
