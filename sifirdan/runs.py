"""Whole outputs or none: a stage's folder is built under a temporary name and renamed when done.

`manifest.json`, written last, holds counts, sizes and the sha256 of every file, the hashes of the
inputs' manifests, parameters and versions. A later stage opens its inputs through `open_folder`,
which re-hashes them, so a damaged or mixed-up input never trains a model. No times, run ids or
paths of the machine stand in a manifest: the same inputs give the same bytes anywhere.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from sifirdan.errors import ConfigError, DataError

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
LOCK_WAIT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What stands in a folder's manifest.json. `sha256` is the hash of the manifest file itself,
    which is how other manifests name this folder."""

    kind: str
    counts: dict[str, Any]
    inputs: dict[str, str]
    params: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, dict[str, Any]]
    sha256: str


@dataclasses.dataclass
class Output:
    """A folder being built: write into `path`, fill `counts`; the manifest follows by itself."""

    path: Path
    counts: dict[str, Any] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def new_folder(
    final: Path,
    *,
    kind: str,
    inputs: Mapping[str, Manifest],
    params: Mapping[str, Any],
    packages: tuple[str, ...] = (),
) -> Iterator[Output]:
    """Build the folder `final` as a whole: on success it replaces what was there, on failure
    nothing under that name changes. `packages` are those whose version can change the bytes."""
    final = Path(final)
    partial = final.parent / f".{final.name}.partial"
    with lock(final.parent / f".{final.name}.lock", doing=f"writing {final}"):
        shutil.rmtree(partial, ignore_errors=True)  # what a killed run left
        partial.mkdir(parents=True)
        try:
            output = Output(partial)
            yield output
            manifest = {
                "format_version": FORMAT_VERSION,
                "kind": kind,
                "counts": output.counts,
                "inputs": {name: manifest.sha256 for name, manifest in inputs.items()},
                "params": dict(params),
                "versions": versions(*packages),
                "files": _describe_files(partial),
            }
            write_json(partial / MANIFEST, manifest)
            _replace_folder(partial, final)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise DataError(
                f"{final}: could not be written: {error}",
                todo="free disk space or mend the folder's rights, then run the command again",
            ) from error
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def open_folder(path: Path, kind: str, *, made_by: str) -> Manifest:
    """The manifest of a whole, undamaged folder of the wanted kind; `made_by` names the stage
    that makes it. Every file is hashed again."""
    manifest = read_manifest(path, made_by=made_by)
    if manifest.kind != kind:
        raise DataError(f"{path}: is a '{manifest.kind}' folder", expected=f"a '{kind}' folder")
    problems = check_files(path, manifest)
    if problems:
        raise DataError(
            f"{path}: {problems[0]}" + (f" (and {len(problems) - 1} more)" if problems[1:] else ""),
            expected="the files named in its manifest.json, unchanged",
            todo=f"make it anew: dvc repro -f -s {made_by}",
        )
    return manifest


def require_same(
    manifest: Manifest, role: str, other: Manifest, *, what: str, made_by: str
) -> None:
    """Refuse a folder that was made with another `role` (say "tokenizer") than the one given."""
    if manifest.inputs.get(role) != other.sha256:
        raise DataError(
            f"{what} was made with another {role} "
            f"({str(manifest.inputs.get(role))[:12]}, not {other.sha256[:12]})",
            expected=f"{what} and {role} of one run",
            todo=f"make it anew: dvc repro {made_by}",
        )


def read_manifest(path: Path, *, made_by: str = "") -> Manifest:
    """The manifest of a folder, without looking at its other files."""
    todo = f"dvc repro {made_by}".strip()
    try:
        raw = (Path(path) / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path}: there is no {MANIFEST}", expected="a finished folder", todo=todo
        ) from None
    try:
        content = json.loads(raw)
        version = content.pop("format_version")
        manifest = Manifest(**content, sha256=hashlib.sha256(raw).hexdigest())
        _check_shape(manifest)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DataError(
            f"{path}/{MANIFEST}: is damaged", expected="a manifest", todo=todo
        ) from None
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path}: has format {version}",
            expected=f"format {FORMAT_VERSION}",
            todo=f"make it anew with this release ({todo}), or use the release that wrote it",
        )
    return manifest


def _check_shape(manifest: Manifest) -> None:
    """TypeError or KeyError where a part is not what other code takes it for."""
    parts = (manifest.counts, manifest.inputs, manifest.params, manifest.versions, manifest.files)
    if not all(isinstance(part, dict) for part in parts):
        raise TypeError("a part is no mapping")
    for entry in manifest.files.values():
        if not isinstance(entry["bytes"], int) or not isinstance(entry["sha256"], str):
            raise TypeError("a file without size and sha256")


def check_files(path: Path, manifest: Manifest) -> list[str]:
    """What differs between a folder and its manifest, a line each; empty when whole."""
    problems = []
    for name, entry in manifest.files.items():
        file = Path(path) / name
        if not file.is_file():
            problems.append(f"{name} is missing")
        elif file.stat().st_size != entry["bytes"]:
            problems.append(f"{name} has {file.stat().st_size} bytes, not {entry['bytes']}")
        elif sha256_of(file) != entry["sha256"]:
            problems.append(f"{name} is damaged: its sha256 has changed")
    extra = set(_list_files(Path(path))) - set(manifest.files) - {MANIFEST}
    problems += [f"{name} does not belong here" for name in sorted(extra)]
    return problems


def versions(*packages: str) -> dict[str, str]:
    """The versions of the packages named. Python's own stands in MLflow alone: outputs are the same
    under each, and a manifest that named it would differ between two machines of a team."""
    return {name: metadata.version(name) for name in packages}


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines that a stage wrote; empty where there is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except ValueError:
        raise DataError(
            f"{path}: is damaged",
            expected="a JSON object a line",
            todo="dvc repro, which restores it",
        ) from None


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that a reader sees the whole file or none; deterministic bytes."""
    text = json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with LF line ends under a temporary name, fsync, rename."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def lock(path: Path, *, doing: str) -> Iterator[None]:
    """One process at a time; the lock falls with the process, however it ends."""
    from filelock import FileLock, Timeout  # training alone, on a bare machine, does without it

    path.parent.mkdir(parents=True, exist_ok=True)
    guard = FileLock(path)
    try:
        guard.acquire(timeout=LOCK_WAIT_SECONDS)
    except Timeout:
        raise ConfigError(
            f"another process is {doing} (it holds {path})",
            todo="wait until it ends, or stop it, then run the command again",
        ) from None
    try:
        yield
    finally:
        guard.release()


def project_root(start: Path | None = None) -> Path:
    """The real repository root, also from the copy that a `dvc exp` run works in."""
    here = str((start or Path(os.environ.get("DVC_ROOT") or Path.cwd())).resolve())
    return Path(re.split(r"[/\\]\.dvc[/\\]tmp[/\\]exps[/\\]", here)[0])


def fsync_tree(folder: Path) -> None:
    """Flush every file below a folder, and the folder itself, to the disk."""
    for name in _list_files(folder):
        with open(folder / name, "rb") as file:
            os.fsync(file.fileno())
    _fsync_folder(folder)


def _replace_folder(partial: Path, final: Path) -> None:
    fsync_tree(partial)
    old = final.parent / f".{final.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        os.rename(final, old)
    os.rename(partial, final)
    _fsync_folder(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _fsync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder for this
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
        for name in _list_files(folder)
    }


def _list_files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
