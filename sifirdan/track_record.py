"""What a tracking record holds before any server sees it: names, numbers, provenance, journal.

Not for talking to MLflow (`track.py` does that alone) and not for deciding when something is
logged. Everything here works without MLflow and without a Git repository.
"""

import contextlib
import getpass
import hashlib
import json
import math
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any

import psutil

from sifirdan import json_files, runs

# Where a stage's numbers stand in the store; the chart page makes one section of each prefix.
# Stages that share a group keep their name, so that two `documents` never meet.
PREFIXES = {
    "ingest": "data/ingest/",
    "clean": "data/clean/",
    "tokenize_corpus": "data/tokenize_corpus/",
    "train_tokenizer": "tokenizer/",
    "train": "train/",
    "evaluate_base": "eval/base/",
    "evaluate_chat": "eval/chat/",
    "prepare_chat": "sft/prepare_chat/",
    "finetune": "sft/",
    "publish_tokenizer": "publish/tokenizer/",
    "publish_base": "publish/base/",
    "publish_chat": "publish/chat/",
}
METRICS_FOLDER = "metrics"  # of a pipeline run's files: those of stages that DVC skipped
CHAT_DATA = "chat_data"  # data/chat in the tags of a pipeline; `chat` is the model to some stages
MAX_DIFF_CHARS = 200_000
CLOCK_STEP_SECONDS = 2  # a process's start time moves when the system clock is set
_PACKAGES = ("torch", "numpy", "pyarrow", "sentencepiece", "transformers", "mlflow", "dvc")
_SPELLED_FLOATS = ("nan", "inf", "-inf")
# `-` is the escape sign: it is itself escaped where it could be read as one.
_ESCAPED = re.compile(r"[^/\w.\- ]|-(?=u[0-9a-f-])")


def metric_name(stage: str, name: str) -> str:
    """The name of a stage's number on the pipeline run.

    >>> metric_name("train", "loss"), metric_name("train", "val_loss")
    ('train/loss', 'val/loss')
    """
    if stage == "train" and name.startswith("val_"):
        return "val/" + name.removeprefix("val_")
    return PREFIXES.get(stage, f"{stage}/") + name


def safe_name(name: str, max_chars: int) -> str:
    """A name that the store accepts; different names stay different. Letters of any language
    stay; what the store refuses becomes `-u<code point>-`.

    >>> safe_name("ppl@1", 250)
    'ppl-u40-1'
    """
    escaped = "/".join(
        {"": "-u-", ".": "-u2e-", "..": "-u2e-."}.get(part, part)  # the store reads names as paths
        for part in _ESCAPED.sub(lambda match: f"-u{ord(match[0]):x}-", name).split("/")
    )
    if len(escaped) <= max_chars:
        return escaped
    return f"{escaped[: max_chars - 13]}-{digest_of(name)}"


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of nested mappings under dotted names; a list is one leaf. Where two paths give
    one name (`{"a.b": 1, "a": {"b": 2}}`) the later one gets a number."""
    flat: dict[str, Any] = {}
    for path, leaf in leaves(nested):
        name, count = path, 1
        while name in flat:
            count += 1
            name = f"{path}-{count}"
        flat[name] = leaf
    return flat


def leaves(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings under dotted names, in order; a list is one leaf."""
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among nested metrics, flattened. "nan" and "inf" count as numbers."""
    return {
        name: float(value)
        for name, value in flatten(metrics).items()
        if isinstance(value, Real) or (isinstance(value, str) and value in _SPELLED_FLOATS)
    }


def spell_nonfinite(content: Any) -> Any:
    """NaN and infinities as text, because JSON has no such numbers."""
    if isinstance(content, Mapping):
        return {key: spell_nonfinite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [spell_nonfinite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(float(content))
    return content


def read_content(path: Path) -> dict[str, Any]:
    """What stands in a metrics file."""
    return json_files.read_object(path, todo="run the stage that writes it again")


def read_metrics(path: Path) -> dict[str, float]:
    """The numbers of a metrics file."""
    return numbers(read_content(path))


def has_nonfinite(event: Mapping[str, Any]) -> bool:
    """Whether an event holds a value that the store cannot."""
    rows = [event.get("values", {}), *(values for _, values in event.get("points", []))]
    return not all(math.isfinite(value) for row in rows for value in row.values())


def read_curve(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The points of a JSONL curve, lines like {"step": 10, "loss": 4.2}; others are left out."""
    points = []
    for row in read_journal(path):
        if isinstance(row.get("step"), int):
            points.append((row.pop("step"), numbers(row)))
    return points


def param_text(value: Any) -> str:
    """A parameter as text: words as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def digest_of(text: str) -> str:
    """A short hash that stands for a long text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Journal:
    """Every event of a run as JSON lines on the disk, so that nothing is lost with the store or
    with the process. A file that a killed process left is continued."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run
        if self._file.tell():
            self._file.write("\n")  # the last line may have been cut by the kill

    def write(self, event: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def journal_folder() -> Path:
    return runs.project_root() / ".track"


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The events of a journal (or any JSONL file of objects); damaged lines are left out."""
    events = []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):
                event = json_files.loads(line)
                if isinstance(event, dict):
                    events.append(event)
    return events


def find_journal(run_id: str) -> Path | None:
    """The journal of a run, by its id in the store or by its own name."""
    for path in sorted(journal_folder().glob("*.jsonl")):
        if path.stem == run_id or any(
            event.get("event") == "stored" and event.get("run_id") == run_id
            for event in read_journal(path)
        ):
            return path
    return None


def process_key() -> str:
    """This process, told apart from a later one with the same number: `<pid>-<start time>`."""
    return _key_of(psutil.Process())


def pipeline_key() -> str:
    """The running `dvc` command this process belongs to, or the process itself."""
    with contextlib.suppress(psutil.Error):
        for parent in psutil.Process().parents():  # the nearest first
            with contextlib.suppress(psutil.Error):
                words = parent.cmdline()[:3]  # dvc …, python …/dvc …, python -m dvc …
                if any(re.split(r"[/\\]", word)[-1] in ("dvc", "dvc.exe") for word in words):
                    return f"dvc-{_key_of(parent)}"
    return f"manual-{process_key()}"


def owner_of(pipeline: str) -> str:
    """The process key inside a pipeline key."""
    return pipeline.split("-", 1)[1]


def same_process(first: str, second: str) -> bool:
    """Whether two keys name one process, on one host."""
    (pid, start), (other_pid, other_start) = first.split("-"), second.split("-")
    return pid == other_pid and abs(int(start) - int(other_start)) <= CLOCK_STEP_SECONDS


def is_alive(key: str) -> bool:
    """Whether the process a key names still runs on this host."""
    try:
        process = psutil.Process(int(key.split("-")[0]))
        return same_process(key, _key_of(process)) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.Error:  # it runs, but is not ours to look at
        return True


def _key_of(process: psutil.Process) -> str:
    return f"{process.pid}-{int(process.create_time())}"


def folder_hash(path: Path) -> str:
    """How manifests name a folder: the sha256 of its manifest.json; of a file, its own; else ""."""
    with contextlib.suppress(OSError):
        for file in (path / runs.MANIFEST, path):
            if file.is_file():
                return runs.sha256_of(file)
    return ""


def dataset(name: str, path: Path) -> dict[str, str] | None:
    """What is recorded of an input folder; None where there is nothing with a hash."""
    digest = folder_hash(path)
    if not digest:
        return None
    profile = "{}"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        counts = json.loads((path / runs.MANIFEST).read_text(encoding="utf-8"))["counts"]
        profile = json.dumps(counts, ensure_ascii=False)
    return {"name": name, "path": path.as_posix(), "digest": digest, "profile": profile}


def provenance(stage: str) -> tuple[dict[str, str], str]:
    """Tags that say which code, machine and versions made a run, and the uncommitted changes."""
    tags = {
        "stage": stage,
        "mlflow.source.name": f"stages/{stage}.py",
        "mlflow.source.type": "LOCAL",
        "host": socket.gethostname(),
        "device": _device(),
        "version.python": platform.python_version(),
    }
    with contextlib.suppress(Exception):  # no user name in some containers; what is raised varies
        tags["mlflow.user"] = getpass.getuser()
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            tags[f"version.{package}"] = metadata.version(package)
    for variable in ("DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV"):
        if os.environ.get(variable):
            tags[variable.lower().replace("_", ".")] = os.environ[variable]
    commit = head_commit()
    if not commit:
        return tags, ""
    tags["mlflow.source.git.commit"] = commit
    tags["git.dirty"] = str(bool(_git("status", "--porcelain").strip())).lower()
    diff = _git("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")
    if len(diff) > MAX_DIFF_CHARS:
        diff = f"{diff[:MAX_DIFF_CHARS]}\n[cut: {len(diff)} characters, {digest_of(diff)}]\n"
    return tags, diff


def head_commit() -> str:
    """The commit that is checked out, or ""."""
    return _git("rev-parse", "HEAD").strip()


def _device() -> str:
    torch = sys.modules.get("torch")  # only a stage that computes has it; never load it for a name
    if torch and torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return f"{os.cpu_count()} x {platform.machine()} CPU"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            timeout=20,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):  # no Git, no repository, no commit
        return ""
    return done.stdout.decode("utf-8", errors="replace")
