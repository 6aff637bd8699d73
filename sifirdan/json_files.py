"""JSON in files that anybody may have edited, cut or saved in another encoding: one reader, which names
file, fault and remedy. Not for what the numbers mean: that is known where they are used.
"""

import json
from pathlib import Path
from typing import Any

from sifirdan.errors import DataError

_MOST_LEVELS = 60  # of nesting; ours have 6
_MOST_DIGITS = 300  # of a whole number; more fit no float


def loads(text: str | bytes) -> Any:
    """What a JSON text says. Every fault is a ValueError, in words: no UTF-8, no JSON, nested too deep, a
    whole number too long for a float. NaN and infinities, which Python would write, are read."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        content = json.loads(decoded, parse_int=_whole)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    level, depth = [content], 0
    while level := [part for one in level for part in _parts(one)]:
        depth += 1
        if depth > _MOST_LEVELS:
            raise ValueError("it is nested too deep")
    return content


def parse_object(text: str | bytes, name: str, *, todo: str) -> dict[str, Any]:
    """The object in a JSON text that is called `name` in messages."""
    try:
        content = loads(text)
    except ValueError as error:
        raise damaged(name, str(error), todo=todo) from None
    if not isinstance(content, dict):
        raise damaged(name, f"it holds {kind_of(content)}", todo=todo)
    return content


def parse_lines(text: str | bytes, name: str, *, todo: str) -> list[dict[str, Any]]:
    """The objects of a JSON Lines text; empty lines are left out."""
    lines = (text.encode() if isinstance(text, str) else text).split(b"\n")
    return [
        parse_object(line, f"{name}:{number}", todo=todo)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def read_object(path: Path, *, todo: str) -> dict[str, Any]:
    """The object in a JSON file."""
    return parse_object(_bytes(path, todo), str(path), todo=todo)


def read_lines(path: Path, *, todo: str) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file."""
    return parse_lines(_bytes(path, todo), str(path), todo=todo)


def damaged(name: str, fault: str, *, todo: str, expected: str = "a JSON object") -> DataError:
    """The error about a file; `fault` says in words what is wrong in it."""
    return DataError(f"{name}: is damaged: {fault}", expected=expected, todo=todo)


def kind_of(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}
    return kinds.get(type(value), "something else")


def _bytes(path: Path, todo: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: is missing or cannot be read ({error.strerror})",
            expected="a JSON file",
            todo=todo,
        ) from None


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds a whole number of {len(digits)} digits")
    return int(digits)


def _parts(content: Any) -> list[Any]:
    """What is inside a list or object, one level down."""
    if isinstance(content, dict):
        return [*content.values()]
    return content if isinstance(content, list) else []
