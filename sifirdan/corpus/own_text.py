"""The folders of the user's own files: what lies in them, and that an experiment's copy has it.

Not for reading the files: files.py and formats.py do that.
"""

import os
from pathlib import Path

from sifirdan.errors import ConfigError


def list_files(folder: Path) -> list[Path]:
    """The files below a folder in name order, without those that Git and DVC keep there. With them
    what may have been meant as one: links that lead nowhere or to a folder (which is not entered,
    as it may lie anywhere or lead in a circle), devices, folders that cannot be listed."""
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder",
            expected="the folder of your own text, which may be empty",
            todo="create it, or change ingest.own_text",
        )
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=lambda e: found.append(Path(e.filename))):
        inside = [Path(place, name) for name in folders]
        found.extend(path for path in inside if path.is_symlink())
        found.extend(Path(place, name) for name in names)
    kept = [path for path in found if not _belongs_to_git(path)]
    return sorted(kept, key=lambda path: name_inside(path, folder))


def name_inside(path: Path, folder: Path) -> str:
    """The path inside the folder; the same under every locale, and storable whatever its bytes."""
    return storable_name(path.relative_to(folder).as_posix())


def storable_name(name: str) -> str:
    """A file's name as the system gives it, as text that every UTF-8 file can hold."""
    return os.fsencode(name).decode("utf-8", "replace")


def refuse_missing_in_copy(own_text: str, *, copy: Path, root: Path) -> None:
    """Refuse to run in the copy of a `dvc exp` run that lacks the own text of the real folder:
    the model would silently be trained without it."""
    if copy == root or os.path.isabs(own_text) or not (root / own_text).is_dir():
        return
    files = [path for path in list_files(root / own_text) if path.is_file()]
    refuse_missing(files, copy=copy, root=root)


def refuse_missing(files: list[Path], *, copy: Path, root: Path) -> None:
    """The same for files of the real folder that are named one by one."""
    relative = [path.relative_to(root) for path in files]
    missing = [path.as_posix() for path in relative if not (copy / path).exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise ConfigError(
            f"{missing[0]}{more}: not in this experiment's copy of the project",
            expected="your own text in Git or DVC: an experiment works on a copy of what they track",
            todo=f"run `dvc add {missing[0]}` (and so on) and commit the .dvc files it writes, "
            "then start the experiment again",
        )


def _belongs_to_git(path: Path) -> bool:
    return path.name in (".gitkeep", ".gitignore") or path.suffix == ".dvc"
