"""Files as they were at a Git revision: tracked ones out of Git, outputs of stages out of DVC's cache.

Nothing is checked out and nothing is fetched; what neither of the two holds is not there.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sifirdan import json_files
from sifirdan.config import read_yaml
from sifirdan.errors import DataError, SifirdanError

_SECONDS = 60  # no command here takes as long; one that waits for a lock or a terminal would


def git(*arguments: str) -> str | None:
    """What a git command says in this folder; None where it fails or there is no Git."""
    return _run(["git", *arguments])


def commit_of(name: str) -> str | None:
    """The commit that a branch, tag, hash or HEAD~1 names; None where it names none."""
    if name.startswith("-"):
        return None
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return found.strip() if found else None


def experiments() -> dict[str, str]:
    """The DVC experiments of this repository: name and commit."""
    listed = git("for-each-ref", "--format=%(objectname) %(refname)", "refs/exps") or ""
    found = {}
    for line in listed.splitlines():
        commit, ref = line.split(" ", 1)
        parts = ref.split("/")  # refs/exps/<2 hex>/<38 hex of the commit it starts from>/<name>
        if len(parts) == 5 and len(parts[2]) == 2 and len(parts[3]) == 38:
            found[parts[4]] = commit
    return found


def tracked_text(commit: str, path: str) -> str | None:
    """A file of the commit, by its path from this folder."""
    return git("show", f"{commit}:./{path}")


def tracked_names(commit: str, folder: str) -> list[str]:
    """The names of a folder's files in the commit."""
    listed = git("ls-tree", "--name-only", "-z", commit, f"./{folder}/") or ""
    return [name.rsplit("/", 1)[-1] for name in listed.split("\0") if name]


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """YAML as DVC and params.yaml have it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "content.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            return read_mapping(path)
        except SifirdanError as error:
            raise DataError(str(error).replace(str(path), name)) from None


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        return read_yaml(path)
    except (RecursionError, ValueError) as error:  # a whole number of thousands of digits
        fault = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"{path}: {fault}", todo=f"git checkout {path}") from None


def locked_stages(lock: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """The stages of a dvc.lock that is called `name` in messages, as DVC writes them."""
    stages = lock.get("stages", {})
    if not isinstance(stages, dict) or not all(map(_is_stage, stages.values())):
        raise DataError(
            f"{name}: is not what DVC writes: 'stages' holds something else",
            expected="for each stage its parameters and outputs",
            todo="git checkout dvc.lock, or dvc repro",
        )
    return stages


def _is_stage(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    outs, params = entry.get("outs", []), entry.get("params", {})
    return (
        isinstance(outs, list)
        and all(isinstance(out, dict) and isinstance(out.get("path"), str) for out in outs)
        and all(isinstance(out.get("md5", ""), str) for out in outs)
        and isinstance(params, dict)
        and all(isinstance(values, dict) for values in params.values())
    )


def locked_outputs(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Every output that dvc.lock names, with DVC's hash of it."""
    return {
        out["path"]: out["md5"]
        for entry in stages.values()
        for out in entry.get("outs", [])
        if "md5" in out
    }


class Cache:
    """DVC's cache of this project. Its objects are named by the md5 of their content."""

    def __init__(self) -> None:
        there = Path(
            ".dvc/config"
        ).is_file()  # DVC knows of one elsewhere, but takes a second to say so
        said = _run([sys.executable, "-m", "dvc", "cache", "dir"]) if there else None
        self.folder = Path(said.strip()) if said else Path(".dvc/cache")

    def file(self, outputs: Mapping[str, str], path: str) -> Path | None:
        """The object that holds the file `path` of one of the outputs; None where it is not here."""
        for output, md5 in outputs.items():
            if path == output:
                return self._object(md5)
            if path.startswith(f"{output}/") and (listing := self._object(md5)):
                return self._object(_listed(listing).get(path.removeprefix(f"{output}/"), ""))
        return None

    def _object(self, md5: str) -> Path | None:
        path = self.folder / "files" / "md5" / md5[:2] / md5[2:]
        return path if md5 and path.is_file() else None


def _listed(listing: Path) -> dict[str, str]:
    """The files of a folder in the cache, by their place in it; none where that object is damaged."""
    try:
        rows = json_files.loads(listing.read_bytes())
        return {str(row["relpath"]): str(row["md5"]) for row in rows}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _run(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", errors="replace")
