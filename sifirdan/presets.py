"""Presets of model and training, presets/model/NAME.yaml: only the keys that differ. One is laid over
params.yaml line by line, so that your sources, the other keys and every comment stay as they are.

The whole files beside them (presets/NAME.yaml) take the place of params.yaml, which `make` does.
"""

import re
from pathlib import Path
from typing import Any

from sifirdan.config import PARAMS_FILE, build, read_yaml
from sifirdan.errors import ConfigError

FOLDER = Path("presets/model")
KEPT = Path("params.before.yaml")
_LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value>[^#\n]*)(?P<comment>#.*)?")


def names(project: Path) -> list[str]:
    """The presets there are."""
    return sorted(path.stem for path in (project / FOLDER).glob("*.yaml"))


def use_preset(project: Path, name: str) -> list[str]:
    """Lay the preset over params.yaml, and keep the old one as params.before.yaml; returns the lines
    that changed. Where nothing changes, nothing is written."""
    if name not in names(project):
        raise ConfigError(
            f"there is no {FOLDER / name}.yaml", expected=f"one of {', '.join(names(project))}"
        )
    params = project / PARAMS_FILE
    before = params.read_text(encoding="utf-8")
    after = lay_over(before, read_yaml(project / FOLDER / f"{name}.yaml"))
    if after != before:
        (project / KEPT).write_text(before, encoding="utf-8", newline="\n")
        partial = params.with_name(f".{params.name}.partial")
        partial.write_text(after, encoding="utf-8", newline="\n")
        partial.replace(params)
    old = before.splitlines()
    return [line for place, line in enumerate(after.splitlines()) if line != old[place]]


def lay_over(text: str, changes: dict[str, Any]) -> str:
    """The text of a params file with the scalars in `changes` (nested by key) in their places.

    >>> lay_over("a:\\n  b: 1  # why\\n  c: 2\\n", {"a": {"b": 30}})
    'a:\\n  b: 30 # why\\n  c: 2\\n'
    """
    wanted = _leaves(changes)
    path: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = _LINE.fullmatch(line)
        if not found:
            continue
        path = [*path[: len(found["indent"]) // 2], found["key"]]
        if (place := ".".join(path)) in wanted:
            lines[number] = _with_value(found, wanted.pop(place))
    if wanted:
        raise ConfigError(
            f"{PARAMS_FILE} has no key {', '.join(wanted)}",
            expected="every key that the preset sets",
            todo=f"take {PARAMS_FILE} from Git again: git checkout {PARAMS_FILE}",
        )
    return "\n".join(lines)


def _leaves(changes: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in changes.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = _scalar(value, f"{prefix}{key}")
    return found


def _scalar(value: Any, name: str) -> str:
    """A value as YAML has it in one word; a whole text, list or mapping is no value of a preset."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str) and not re.fullmatch(r"[\w.-]+", value):
        raise ConfigError(f"{name} is {value!r}", expected="one word or a number")
    word: str = str(build(str | int | float, value, name))
    return word


def _with_value(found: re.Match[str], value: str) -> str:
    """The line with another value, its comment where it was if there is room."""
    line = f"{found['indent']}{found['key']}: {value}"
    if not found["comment"]:
        return line
    return f"{line:<{found.start('comment') - 1}} {found['comment']}"
