"""DVC's cache as it lies on the disk: which objects dvc.lock names, and whether they are whole.

DVC makes an object read-only and trusts it from then on: `dvc status` calls a damaged one fine, and
`dvc checkout` copies it out. Not for changing the cache: every command here only reads.
"""

import configparser
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sifirdan.errors import DataError

LOCK = "dvc.lock"
_OBJECT = re.compile(r"[0-9a-f]{32}(\.dir)?")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where it was built


@dataclass(frozen=True)
class Out:
    """An output that DVC keeps: its path in the project, the name of its object, and the stage or
    .dvc file it belongs to."""

    path: str
    object: str
    made_by: str


def cache_folder(root: Path) -> Path:
    """Where the project keeps its cache: `cache.dir` of its DVC settings, else `.dvc/cache`."""
    for name in ("config.local", "config"):
        settings = configparser.ConfigParser(interpolation=None, strict=False)
        settings.read(root / ".dvc" / name, encoding="utf-8")
        if settings.has_option("cache", "dir"):
            return (root / ".dvc" / settings.get("cache", "dir")).resolve()
    return root / ".dvc/cache"


def object_path(cache: Path, name: str) -> Path:
    """The file of an object; its name is the md5 of its content, and `.dir` for a folder's list."""
    return cache / "files/md5" / name[:2] / name[2:]


def object_name(path: Path) -> str:
    """The object that a file of the cache is, or "" for a file that is none."""
    name = path.parent.name + path.name
    return name if _OBJECT.fullmatch(name) else ""


def outs_in(text: str) -> list[Out]:
    """The outputs with an object in a dvc.lock or a .dvc file; none where it cannot be read."""
    try:
        content = yaml.load(text, _LOADER)
    except yaml.YAMLError:
        return []
    if not isinstance(content, dict):
        return []
    stages = content.get("stages")
    owners = stages if isinstance(stages, dict) else {"": content}
    return [out for name, owner in owners.items() for out in _outs_of(name, owner)]


def _outs_of(name: str, owner: Any) -> Iterator[Out]:
    entries = owner.get("outs") if isinstance(owner, dict) else None
    for entry in entries or []:
        if isinstance(entry, dict) and _OBJECT.fullmatch(str(entry.get("md5", ""))):
            yield Out(str(entry.get("path", "")), entry["md5"], name)


def workspace_outs(root: Path) -> list[Out]:
    """What the project's dvc.lock and .dvc files name now; paths are of the project's folder."""
    found = []
    lock = root / LOCK
    if lock.is_file():
        found += outs_in(lock.read_text(encoding="utf-8"))
    for path in sorted({*root.glob("*.dvc"), *root.glob("data/**/*.dvc")}):
        place = path.parent.relative_to(root)
        outs = outs_in(path.read_text(encoding="utf-8")) if path.is_file() else []
        dvc_file = path.relative_to(root).as_posix()
        found += [Out((place / out.path).as_posix(), out.object, dvc_file) for out in outs]
    return found


def uncached(root: Path) -> set[str]:
    """The outputs that dvc.yaml marks `cache: false`: Git keeps them, the cache need not."""
    pipeline = root / "dvc.yaml"
    content = yaml.load(pipeline.read_text("utf-8"), _LOADER) if pipeline.is_file() else {}
    entries = [
        entry
        for stage in content.get("stages", {}).values()
        for kind in ("outs", "metrics", "plots")
        for entry in stage.get(kind, [])
        if isinstance(entry, dict)
    ]
    return {
        path
        for entry in entries
        for path, how in entry.items()
        if how and how.get("cache") is False
    }


def members(cache: Path, name: str) -> dict[str, str]:
    """The objects a folder's list names, by path inside the folder; none for a file's object or a
    list that is missing or damaged."""
    if not name.endswith(".dir"):
        return {}
    try:
        rows = json.loads(object_path(cache, name).read_text(encoding="utf-8"))
        return {row["relpath"]: row["md5"] for row in rows}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def with_members(cache: Path, names: Iterable[str]) -> set[str]:
    """The objects, and what the folders among them hold."""
    found = set(names)
    for name in tuple(found):
        found.update(members(cache, name).values())
    return found


@dataclass(frozen=True)
class Check:
    """What `check_cache` found: problems, a line each, and how much was whole."""

    problems: list[str]
    num_objects: int
    num_bytes: int


def check_cache(root: Path) -> Check:
    """Hash again every object that the present dvc.lock and .dvc files name, and name the outputs
    that use a damaged or missing one."""
    cache, git_keeps = cache_folder(root), uncached(root)
    outs = workspace_outs(root)
    if not outs:
        raise DataError(
            f"{root / LOCK}: names no output",
            expected="a project that has run",
            todo="stand in the project's folder; make",
        )
    users: dict[str, list[tuple[Out, str]]] = {}  # of each object: the output, the path
    for out in outs:
        if out.path not in git_keeps or object_path(cache, out.object).is_file():
            users.setdefault(out.object, []).append((out, out.path))
            if not _problem(object_path(cache, out.object), out.object):
                for inside, name in members(cache, out.object).items():
                    users.setdefault(name, []).append((out, f"{out.path}/{inside}"))
    problems, num_bytes = [], 0
    for name in sorted(users):
        path = object_path(cache, name)
        said = _problem(path, name)
        if said:
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            problems.append(_with_remedy(shown, said, users[name]))
        else:
            num_bytes += path.stat().st_size
    return Check(problems, len(users), num_bytes)


def _problem(path: Path, name: str) -> str:
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
    except FileNotFoundError:
        return "is missing"
    return "" if found == name.removesuffix(".dir") else "is damaged: its md5 is not its name"


def _with_remedy(shown: Path, said: str, users: list[tuple[Out, str]]) -> str:
    paths = sorted({path for _, path in users})
    more = f" and {len(paths) - 3} more" if paths[3:] else ""
    out = users[0][0]
    again = "add the file anew: dvc add" if out.made_by.endswith(".dvc") else "dvc repro -f -s"
    what = out.path if out.made_by.endswith(".dvc") else out.made_by
    return (
        f"{shown}: {said}; used by {', '.join(paths[:3])}{more}\n"
        f"  what to do: rm -f {shown}; then, if there is a remote: dvc pull {out.path}; or, if "
        f"{out.path} itself is whole (sifirdan verify): dvc commit -f {out.made_by}; else {again} {what}"
    )
