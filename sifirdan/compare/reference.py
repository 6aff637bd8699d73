"""The reference run, reference/run.json: read and checked. Who writes it: `run_records.write_reference`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sifirdan.compare.comparison import RunRecord
from sifirdan.compare.noise import REFERENCE_FOLDER
from sifirdan.json_files import damaged, read_object

REFERENCE_FILE = REFERENCE_FOLDER / "run.json"
TODO = "sifirdan reference writes it anew, git checkout reference/run.json brings back the last one"


def load_reference(path: Path = REFERENCE_FILE) -> RunRecord | None:
    """The run in reference/run.json, without curves and samples; None where there is none."""
    return reference_record(read_object(path, todo=TODO), str(path)) if path.exists() else None


def reference_record(content: Mapping[str, Any], name: str) -> RunRecord:
    """The run that `content`, of a file called `name` in messages, holds."""
    parts = [content.get(key) for key in ("params", "metrics", "hashes")]
    for fault, found in (
        ("'name' is no text", not isinstance(content.get("name"), str)),
        ("'params', 'metrics' and 'hashes' are no objects", not _all(parts, dict)),
    ):
        if found:
            raise damaged(name, fault, expected="name, params, metrics and hashes", todo=TODO)
    params, metrics, hashes = (part or {} for part in parts)
    if not _all(metrics.values(), dict):
        raise damaged(name, "a stage in 'metrics' is no object", todo=TODO)
    if not _all(hashes.values(), str):
        raise damaged(name, "a hash in 'hashes' is no text", todo=TODO)
    return RunRecord(content["name"], params, metrics, {}, hashes, ())


def _all(values: Any, kind: type) -> bool:
    return all(isinstance(value, kind) for value in values)
