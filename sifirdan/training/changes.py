"""Why a saved training state is not continued: what differs between its run and this one, by name,
and the way back to it. Only words; what is loaded and what is deleted is decided in resume.py.

A fingerprint has the parts `inputs`, `params`, `code`, `versions` and `runtime` (see session.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

MAX_NAMES = 8  # of one part that are named; the rest are counted
_ABSENT = object()
_WAYS_BACK = {  # part: how it becomes again what it was
    "inputs": "bring the earlier data and tokenizer back (dvc checkout, or the settings they were made with)",
    "params": "set these params back in params.yaml",
    "code": "bring the code of then back (git stash, git checkout)",
    "versions": "install those versions",
    "runtime": "set runtime back in params.yaml, on the same kind of device",
}


def describe_changes(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """A line for each part of the two fingerprints that differs; empty where they are equal.

    >>> describe_changes({"params": {"lr": 1}}, {"params": {"lr": 2}})
    ['params.lr is 1, was 2']
    """
    lines = []
    for part in changed_parts(here, there):
        one, other = here.get(part, {}), there.get(part, {})
        words = [_words(part, *change) for change in _differences({part: one}, {part: other})]
        more = f"; and {len(words) - MAX_NAMES} more" if len(words) > MAX_NAMES else ""
        lines.append("; ".join(words[:MAX_NAMES]) + more)
    return lines


def changed_parts(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """The parts that differ, in the order in which a user meets them."""
    names = [*_WAYS_BACK, *sorted((here.keys() | there.keys()) - _WAYS_BACK.keys())]
    return [name for name in names if here.get(name, _ABSENT) != there.get(name, _ABSENT)]


def way_back(parts: list[str]) -> str:
    """What to do to continue the other run after all."""
    ways = [_WAYS_BACK.get(part, f"undo the change of {part}") for part in parts]
    return "; ".join([*ways, "then run the same command again"])


def _differences(
    here: Mapping[str, Any], there: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, value here, value there) of every leaf that differs, by name."""
    for key in sorted(here.keys() | there.keys()):
        one, other = here.get(key, _ABSENT), there.get(key, _ABSENT)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, f"{prefix}{key}.")
        elif one != other:
            yield f"{prefix}{key}", one, other


def _words(part: str, name: str, here: Any, there: Any) -> str:
    if part in ("inputs", "code"):  # hashes say nothing to a reader
        if there is _ABSENT:
            return f"{name} was not there"
        return f"{name} is gone" if here is _ABSENT else f"{name} is another"
    return f"{name} is {_shown(here)}, was {_shown(there)}"


def _shown(value: Any) -> str:
    return "not there" if value is _ABSENT else repr(value)
