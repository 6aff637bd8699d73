"""The user's own text: .txt, .md and .jsonl files of a folder, read strictly.

A .txt or .md file is one document; a line of a .jsonl file is one ({"text": …}, other keys are kept
as meta). A JSONL record ends at LF only, so U+2028 or NEL inside a text splits nothing. What cannot
be read is named with file and byte offset or line; whether that stops the stage is its decision.
A lone surrogate (an escape such as "\\ud83d") cannot be stored: it becomes U+FFFD, which `clean`
counts and rejects. Other characters come through unchanged; `clean` strips NUL and its like.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from sifirdan.corpus.records import BadRecord, Record
from sifirdan.errors import ConfigError
from sifirdan.text import replace_surrogates

ENDINGS = (".txt", ".md", ".jsonl")
_TURKISH_BYTES = "çğıöşüÇĞİÖŞÜ".encode("windows-1254")


def list_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The text files below a folder in name order, and the other files, which are not read (those
    that Git and DVC keep there are not mentioned)."""
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder",
            expected="the folder of your own text, which may be empty",
            todo="create it, or change ingest.own_text",
        )
    files = sorted(
        (path for path in folder.rglob("*") if path.is_file()),
        key=lambda path: _name(path, folder),
    )
    text = [path for path in files if path.suffix.lower() in ENDINGS and path.name[0] != "."]
    keeping = {p for p in files if p.name in (".gitkeep", ".gitignore") or p.suffix == ".dvc"}
    known = keeping.union(text)
    return text, [path for path in files if path not in known]


def read_folder(folder: Path, encoding: str) -> Iterator[Record | BadRecord]:
    """The documents of all text files below a folder; `origin` is the path inside it."""
    for path in list_files(folder)[0]:
        yield from read_file(path, _name(path, folder), encoding)


def read_file(path: Path, origin: str, encoding: str) -> Iterator[Record | BadRecord]:
    """The documents of one file, a .jsonl file line by line."""
    try:
        if path.suffix.lower() == ".jsonl":
            with open(path, "rb") as file:
                for number, line in enumerate(file, start=1):  # binary lines end at LF only
                    yield _read_line(line, f"{origin}:{number}", encoding)
        else:
            yield _read_whole(path.read_bytes(), origin, encoding)
    except OSError as error:
        yield BadRecord(origin, f"cannot be opened: {error.strerror}")


def refuse_missing_in_copy(own_text: str, *, copy: Path, root: Path) -> None:
    """Refuse to run in the copy of a `dvc exp` run that lacks the own text of the real folder:
    the model would silently be trained without it."""
    if copy == root or os.path.isabs(own_text) or not (root / own_text).is_dir():
        return
    present = {p.relative_to(copy) for p in (copy / own_text).rglob("*")}
    files = [path.relative_to(root) for path in list_files(root / own_text)[0]]
    missing = [path.as_posix() for path in files if path not in present]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise ConfigError(
            f"{missing[0]}{more}: not in this experiment's copy of the project",
            expected="your own text in Git or DVC: an experiment works on a copy of what they track",
            todo=f"run `dvc add {missing[0]}` (and so on) and commit the .dvc files it writes, "
            "then start the experiment again",
        )


def _name(path: Path, folder: Path) -> str:
    """The path inside the folder; the same under every locale, and storable whatever its bytes."""
    return os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "replace")


def _read_whole(raw: bytes, origin: str, encoding: str) -> Record | BadRecord:
    try:
        return Record(origin, _decode(raw, encoding), {})
    except UnicodeDecodeError as error:
        return BadRecord(origin, _describe(error, raw, encoding))


def _read_line(raw: bytes, origin: str, encoding: str) -> Record | BadRecord:
    try:
        line = _decode(raw, encoding)
        if not line.strip():
            return BadRecord(origin, "the line is empty")
        content = json.loads(line, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        return BadRecord(origin, _describe(error, raw, encoding))
    except (ValueError, RecursionError) as error:
        return BadRecord(origin, f"not valid JSON: {error}")
    if not isinstance(content, dict) or "text" not in content:
        return BadRecord(origin, 'not an object with a key "text"')
    text = content.pop("text")
    if not isinstance(text, str):
        return BadRecord(origin, f'"text" is {json.dumps(text)[:40]}, not a string')
    return Record(origin, replace_surrogates(text), _storable(content))


def _storable(meta: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(replace_surrogates(json.dumps(meta, ensure_ascii=False)))
    return plain


def _decode(raw: bytes, encoding: str) -> str:
    # `utf-8-sig` would strip the mark too, but then it counts offsets from behind it.
    text = raw.decode(encoding)
    return text.removeprefix("\ufeff") if encoding == "utf-8" else text


def _describe(error: UnicodeDecodeError, raw: bytes, encoding: str) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "byte 0: this is UTF-16; save it as UTF-8"
    found = f"byte {error.start} (0x{raw[error.start]:02x}) is not {encoding}"
    if encoding == "utf-8" and raw[error.start] in _TURKISH_BYTES:
        found += (
            "; an older Turkish file? save it as UTF-8, or set ingest.own_encoding to windows-1254"
        )
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
