"""What the project takes on the disk, to whom each part belongs, and how to free it.

Only reads: freeing is left to the command that each part names, because most of them lose something.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sifirdan import dvc_cache
from sifirdan.errors import ConfigError

EXPERIMENT = re.compile(r"refs/exps/[0-9a-f]{2}/[0-9a-f]{38}/")


@dataclass(frozen=True)
class Share:
    """A part of DVC's cache that one kind of owner keeps alive."""

    owner: str
    num_bytes: int
    num_objects: int


@dataclass(frozen=True)
class Part:
    """Something on the disk: its size, what it is, and how to free it (command, what is lost)."""

    place: str
    num_bytes: int
    num_files: int
    what: str
    free: list[tuple[str, str]] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)


# Where, what, and how to free it. Earlier rows own what later ones link to or contain.
_PLACES: list[tuple[tuple[str, ...], str, list[tuple[str, str]]]] = [
    (
        ("data/.cache",), "packages and files that `ingest` fetched",
        [("rm -r data/.cache", "the next `ingest` fetches them again")],
    ),
    (
        ("models/.resume",), "the state of trainings that have not ended",
        [("rm -r models/.resume", "a training that was stopped begins anew")],
    ),
    (
        ("data/.*", "models/.*", "reports/.*", "reports/*/.*"),
        "working files of stages, empty locks, and what a killed stage left half-written",
        [("rm -r data/.*.scratch data/.*.partial models/.*.partial reports/.*.partial",
          "no harm while no stage runs")],
    ),
    (
        ("mlartifacts",), "plots, samples and files of the runs in MLflow",
        [("sifirdan empty-bin", "only runs that you deleted on the page go, and those for good")],
    ),
    (
        ("mlflow.db*",), "MLflow's numbers and curves of all runs",
        [("sifirdan empty-bin", "only runs that you deleted on the page go, and those for good"),
         ("python -c \"import sqlite3; sqlite3.connect('mlflow.db').execute('VACUUM')\"",
          "gives back the room of what was deleted")],
    ),
    (
        (".track",), "journals of runs that MLflow did not take, or that hold NaN or infinity",
        [("sifirdan replay .track/*.jsonl, then rm .track/*.jsonl",
          "if the replay failed, these were the only copy; NaN and infinity are nowhere else")],
    ),
    (
        (".dvc/tmp",), "DVC's working files, with copies of the project for running experiments",
        [("dvc queue remove --success --failed", "their messages go, their results stay"),
         ("rm -r .dvc/tmp/exps/tmp*", "copies that killed experiments left; no harm while none runs")],
    ),
    ((".git",), "Git, with the commits of experiments", [("git gc", "no harm")]),
    (
        (".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache"), "the environment and caches of tools",
        [("make clean", "the next `make` installs again, `sifirdan noise` trains again")],
    ),
]  # fmt: skip


def disk(root: Path) -> dict[str, Any]:
    """Every part with its bytes on the disk, a hard link counted once; for `disk_lines` and JSON."""
    if not (root / "dvc.yaml").is_file():
        raise ConfigError(
            f"{root.resolve()}: there is no dvc.yaml", todo="stand in the project's folder"
        )
    seen: set[tuple[int, int]] = set()
    parts = [_cache(root, seen), _run_cache(root, seen), _outputs(root, seen)]
    for patterns, what, free in _PLACES:
        paths = sorted(path for pattern in patterns for path in root.glob(pattern))
        size, count = _measure(paths, seen)
        places = " ".join(pattern for pattern in patterns if any(root.glob(pattern)))
        parts.append(Part(places, size, count, what, free))
    return {
        "parts": [asdict(part) for part in parts if part.num_files],
        "num_bytes": sum(part.num_bytes for part in parts),
        "free_bytes": shutil.disk_usage(root).free,
        "outside": not dvc_cache.cache_folder(root).resolve().is_relative_to(root.resolve()),
    }


def _cache(root: Path, seen: set[tuple[int, int]]) -> Part:
    cache = dvc_cache.cache_folder(root)
    owners = _owners(root, cache)
    sizes: dict[str, list[int]] = {}
    for path in _files([cache / "files", *cache.glob("[0-9a-f][0-9a-f]")]):
        name = dvc_cache.object_name(path)
        owner = next((owner for owner, names in owners.items() if name in names), "nothing")
        sizes.setdefault(owner, []).append(_size(path, seen))
    shares = [
        Share(owner, sum(sizes[owner]), len(sizes[owner]))
        for owner in (*owners, "nothing")
        if owner in sizes
    ]
    kept = owners["commits"] | owners["experiments"]
    absent = any(
        name.endswith(".dir") and not dvc_cache.object_path(cache, name).is_file() for name in kept
    )
    skip = " --skip-failed" if absent else ""  # without it DVC then collects nothing at all
    passed_over = "; a commit that lacks a part of its data here is passed over, and loses the rest"
    free = [
        (f"dvc gc --all-commits --all-experiments{skip}",
         "goes: what only the run cache has; a return to earlier settings in params.yaml computes again, "
         f"dvc checkout of a commit and dvc exp apply do not{passed_over * absent}"),
        (f"dvc gc --all-commits{skip}", "goes, too: data and models of every experiment, which then cannot be applied any more"),
        ("dvc gc --workspace", "only the present state stays: no commit and no experiment can be brought back from this cache"),
    ]  # fmt: skip
    place = cache.relative_to(root) if cache.is_relative_to(root) else cache
    return Part(
        f"{place}/files", sum(map(sum, sizes.values())), sum(map(len, sizes.values())),
        "DVC's cache: every version of data, models and reports", free, shares,
    )  # fmt: skip


def _run_cache(root: Path, seen: set[tuple[int, int]]) -> Part:
    runs = dvc_cache.cache_folder(root) / "runs"
    size, count = _measure([runs], seen)
    place = runs.relative_to(root) if runs.is_relative_to(root) else runs
    lost = "a return to earlier settings computes again"
    return Part(
        str(place), size, count, "DVC's notes of which inputs gave which outputs",
        [(f"rm -r {place}", lost)],
    )  # fmt: skip


def _outputs(root: Path, seen: set[tuple[int, int]]) -> Part:
    paths = [root / out.path for out in dvc_cache.workspace_outs(root)]
    size, count = _measure([path for path in paths if path.exists()], seen)
    free = [
        ("rm -r data/raw data/corpus data/tokens data/chat",
         "while the cache has them, dvc checkout brings them back"),
        ("dvc config --local cache.type hardlink,copy; dvc checkout --relink",
         "cache and outputs are then the same files: never edit an output by hand"),
    ]  # fmt: skip
    return Part(
        "data models reports",
        size,
        count,
        "the outputs as they lie here (hard links into the cache count there, reflinks twice)",
        free,
    )


def _owners(root: Path, cache: Path) -> dict[str, set[str]]:
    """The objects that each kind of owner keeps alive; the first that has one owns it."""
    git_keeps = dvc_cache.uncached(root)  # DVC does not keep these alive either
    commits = _names(_history(root, ["HEAD", "--branches", "--tags", "--remotes"]), git_keeps)
    refs = _git(root, "for-each-ref", "--format=%(refname)", "refs/exps").split()
    experiments = [ref for ref in refs if EXPERIMENT.match(ref)]
    stopped = ["--not", "HEAD", "--branches", "--tags", "--remotes"]
    tried = _names(_history(root, [*experiments, *stopped]), git_keeps) if experiments else set()
    run_cache = _names(
        (path.read_text(encoding="utf-8", errors="replace") for path in _files([cache / "runs"])),
        set(),
    )
    outs = dvc_cache.workspace_outs(root)
    present = {out.object for out in outs if out.path not in git_keeps}
    named = {
        "the present state": present, "commits": commits, "experiments": tried,
        "the run cache": run_cache,
    }  # fmt: skip
    return {owner: dvc_cache.with_members(cache, names) for owner, names in named.items()}


def _names(texts: Iterable[str], git_keeps: set[str]) -> set[str]:
    outs = (out for text in texts for out in dvc_cache.outs_in(text))
    return {out.object for out in outs if out.path not in git_keeps}


def _history(root: Path, revisions: list[str]) -> Iterator[str]:
    """The content of every dvc.lock and .dvc file that the revisions ever had."""
    log = ("log", "-m", "--raw", "--no-abbrev", "--no-renames", "--format=", *revisions, "--")
    rows = _git(root, *log, "*dvc.lock", "*.dvc").splitlines()
    blobs = {row.split()[3] for row in rows if row.startswith(":")}
    wanted = [blob for blob in sorted(blobs) if set(blob) != {"0"}]
    answer = _git_bytes(root, "cat-file", "--batch", stdin="".join(f"{b}\n" for b in wanted))
    place = 0
    while place < len(answer):
        end = answer.index(b"\n", place)
        length = int(answer[place:end].split()[-1])
        yield answer[end + 1 : end + 1 + length].decode("utf-8", "replace")
        place = end + 1 + length + 1


def _git(root: Path, *arguments: str) -> str:
    return _git_bytes(root, *arguments).decode("utf-8", "replace")


def _git_bytes(root: Path, *arguments: str, stdin: str = "") -> bytes:
    """What Git says; nothing where there is no Git, no repository or no commit."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, input=stdin.encode(), capture_output=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout


def _measure(paths: Iterable[Path], seen: set[tuple[int, int]]) -> tuple[int, int]:
    """Bytes on the disk, without those already `seen`, and number of the files at and below."""
    sizes = [_size(path, seen) for path in _files(paths)]
    return sum(sizes), len(sizes)


def _size(path: Path, seen: set[tuple[int, int]]) -> int:
    """The room of a file on the disk, which 0 is where another name of it was counted."""
    try:
        stat = os.lstat(path)
    except OSError:  # gone meanwhile
        return 0
    key = (stat.st_dev, stat.st_ino)
    if key in seen:
        return 0
    seen.add(key)
    return getattr(stat, "st_blocks", -(-stat.st_size // 512)) * 512


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """All files at and below the paths; links are not followed."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            for place, _, names in os.walk(path):
                yield from (Path(place, name) for name in names)
        elif path.exists() or path.is_symlink():
            yield path


def disk_lines(found: dict[str, Any]) -> Iterator[str]:
    """The same for people, the largest part first."""
    for part in sorted(found["parts"], key=lambda part: -part["num_bytes"]):
        if not part["num_bytes"]:
            continue
        yield f"{_shown_size(part['num_bytes'])}  {part['place']}: {part['what']}"
        for share in part["shares"]:
            objects = f"{share['num_objects']} objects"
            yield f"{'':12}{_shown_size(share['num_bytes'])}  kept by {share['owner']} ({objects})"
        for command, lost in part["free"]:
            yield f"{'':12}to free: {command}"
            yield f"{'':21}{lost}"
    yield f"{_shown_size(found['num_bytes'])}  in all; {_shown_size(found['free_bytes']).strip()} free on this disk"
    yield "Nothing was deleted. `dvc gc` with --dry only says what it would remove."
    if found["outside"]:
        yield "The cache lies outside the project: if others share it, `dvc gc` deletes theirs, too (see --projects)."


def _shown_size(num_bytes: int) -> str:
    unit, size = next(
        (unit, num_bytes / size)
        for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
        if num_bytes >= size or unit == "kB"
    )
    return f"{size:7.1f} {unit}"
