"""Files as they were at a Git revision: tracked ones out of Git, outputs of stages out of DVC's cache.

Nothing is checked out and nothing is fetched; what neither of the two holds is not there.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sifirdan.config import read_yaml
from sifirdan.errors import DataError

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
            return read_yaml(path)
        except Exception as error:
            raise DataError(str(error).replace(str(path), name)) from None


def locked_outputs(lock: Mapping[str, Any]) -> dict[str, str]:
    """Every output in a dvc.lock, with DVC's hash of it."""
    return {
        out["path"]: out["md5"]
        for entry in lock.get("stages", {}).values()
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
                rows = json.loads(listing.read_text(encoding="utf-8"))
                inside = {row["relpath"]: row["md5"] for row in rows}
                return self._object(inside.get(path.removeprefix(f"{output}/"), ""))
        return None

    def _object(self, md5: str) -> Path | None:
        path = self.folder / "files" / "md5" / md5[:2] / md5[2:]
        return path if md5 and path.is_file() else None


def _run(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", errors="replace")
