"""Files that a user hands to `sifirdan score`, read strictly: UTF-8, with or without a byte order mark,
and what cannot be used is named by file and line. Lines end at LF only. Not for the sources of a corpus:
corpus/formats.py reads those, and counts what it cannot use.
"""

import json
from pathlib import Path
from typing import Any

from sifirdan.errors import DataError
from sifirdan.text import has_surrogates

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path) -> str:
    """The whole file as it stands, without a byte order mark."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror})",
            expected="a file of text",
            todo="correct the name, or the rights of the file",
        ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        other = "utf-16" if raw.startswith(_UTF16_MARKS) else "windows-1254"
        raise DataError(
            f"{path}: is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})",
            expected="text in UTF-8",
            todo=f"save it as UTF-8: iconv -f {other} -t utf-8",
        ) from None


def read_rows(path: Path, *, expected: str) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place, FILE:LINE; blank lines are skipped.
    `expected` is what an object should look like, for messages."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        row, fault = _parse(line)
        if fault:
            raise DataError(f"{path}:{number}: {fault}", expected=expected, todo="mend this line")
        rows.append((f"{path}:{number}", row))
    return rows


def _parse(line: str) -> tuple[dict[str, Any], str]:
    """The object and "", or why there is none."""
    try:
        row = json.loads(line)
        halves = has_surrogates(json.dumps(row, ensure_ascii=False))
    except json.JSONDecodeError as error:
        return {}, f"is not JSON ({error.msg}, character {error.colno})"
    except RecursionError:
        return {}, "has lists or objects too deep in each other"
    except ValueError:  # Python reads no longer ones
        return {}, "holds a number of more than 4,300 digits"
    if not isinstance(row, dict):
        return {}, "is not a JSON object in braces"
    if halves:
        return {}, r"holds half of a character, an escape such as \ud83d without the other half"
    return row, ""
