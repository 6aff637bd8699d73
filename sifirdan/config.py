"""Typed, strict reading of `params.yaml`: one dataclass a section, no hidden defaults.

Each section's dataclass lives beside its user. Unknown, missing and ill-typed keys are refused
with their dotted name and what is allowed; limits between values are checked in `__post_init__`
through `errors.require`. Nothing here knows what any key means.
"""

import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml

from sifirdan.errors import ConfigError

T = TypeVar("T")

PARAMS_FILE = Path("params.yaml")


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key given twice is refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ConfigError(
                    f"{key_node.start_mark.name}:{key_node.start_mark.line + 1}: "
                    f"the key {key!r} is given twice",
                    todo="keep one of the two lines",
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


# The core schema of YAML 1.2, which DVC reads: `3e-4` is a number, `on` and `1:30` are text.
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, or a ConfigError that names file and line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file",
            todo="run the command from the project's folder (where params.yaml lies)",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is not UTF-8", todo="save it as UTF-8"
        ) from None
    loader = _Loader(text)
    loader.name = str(path)
    try:
        content = loader.get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}", todo="mend the line named") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds {type(content).__name__}", expected="keys with values")
    return content


def read_values(text: str, name: str) -> list[Any]:
    """The values of a list as params.yaml would hold it, `1e-3,true,adamw`; `name` is for the error."""
    try:
        content = yaml.load(f"[{text}]", Loader=_Loader)
    except yaml.YAMLError:
        raise ConfigError(f"{name}: {text!r} is not YAML", expected="1,2,3") from None
    return list(content)


def load_params(path: Path, section: str, cls: type[T]) -> T:
    """The section `section` of a params file as an instance of the dataclass `cls`."""
    content = read_yaml(path)
    if section not in content:
        raise ConfigError(
            f"{path}: the section '{section}' is missing",
            expected=f"a section with the keys {', '.join(_field_types(cls))}",
            todo="copy it from the params.yaml in Git, or from presets/",
        )
    return typing.cast(T, build(cls, content[section], section))


def build(expected: Any, value: Any, name: str) -> Any:
    """`value` as an instance of the type `expected` (a dataclass, list, dict, Literal, union or
    scalar); `name` is its dotted place, for the message."""
    if dataclasses.is_dataclass(expected):
        return _build_dataclass(typing.cast(type, expected), value, name)
    origin = get_origin(expected)
    if origin is Literal:
        if value not in get_args(expected) or isinstance(value, bool) != (value in (True, False)):
            raise _refusal(name, value, "one of " + ", ".join(map(repr, get_args(expected))))
        return value
    if origin in (types.UnionType, typing.Union):
        return _build_union(expected, value, name)
    if origin is list:
        if not isinstance(value, list):
            raise _refusal(name, value, "a list")
        return [build(get_args(expected)[0], item, f"{name}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise _refusal(name, value, "keys with values")
        return {
            key: build(get_args(expected)[1], item, f"{name}.{key}") for key, item in value.items()
        }
    return _build_scalar(expected, value, name)


def _build_dataclass(cls: type, value: Any, name: str) -> Any:
    field_types = _field_types(cls)
    if not isinstance(value, dict):
        raise _refusal(name, value, f"the keys {', '.join(field_types)}")
    for key in value:
        if key not in field_types:
            raise ConfigError(
                f"{name}.{key} is not a known key",
                expected=f"one of {', '.join(field_types)}",
                todo="correct its spelling or remove it",
            )
    if missing := [key for key in field_types if key not in value]:
        others = f", and so are {', '.join(missing[1:])}" if missing[1:] else ""
        raise ConfigError(
            f"{name}.{missing[0]} is missing{others}",
            expected=f"a value of type {_type_name(field_types[missing[0]])}",
            todo="add it; params.yaml in Git and the examples in docs/DATA.md show good values",
        )
    values = {key: build(field_types[key], value[key], f"{name}.{key}") for key in field_types}
    try:
        return cls(**values)
    except ConfigError as error:  # a limit between values, which does not know its section
        if "." not in name:
            raise
        raise ConfigError(f"in {name}: {error}") from None


def _build_union(expected: Any, value: Any, name: str) -> Any:
    if value is None and type(None) in get_args(expected):
        return None
    options = [option for option in get_args(expected) if option is not type(None)]
    kinds = {
        kind: option
        for option in options
        if dataclasses.is_dataclass(option) and "kind" in _field_types(option)
        for kind in get_args(_field_types(option)["kind"])
    }
    if kinds:  # dataclasses told apart by their `kind`
        found = value.get("kind") if isinstance(value, dict) else value
        if not isinstance(value, dict) or not isinstance(found, str) or found not in kinds:
            raise _refusal(f"{name}.kind", found, "one of " + ", ".join(map(repr, kinds)))
        return build(kinds[value["kind"]], value, name)
    for option in options:
        try:
            return build(option, value, name)
        except ConfigError:
            continue
    raise _refusal(name, value, _type_name(expected))


def _build_scalar(expected: Any, value: Any, name: str) -> Any:
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise _refusal(name, value, _type_name(expected))
    if isinstance(value, float) and not (abs(value) < float("inf")):
        raise _refusal(name, value, "a finite number")
    return value


def _refusal(name: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(
        f"{name} is {value!r} ({type(value).__name__})", expected=expected, todo=f"change {name}"
    )


def _field_types(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _type_name(expected: Any) -> str:
    if get_origin(expected) is Literal:
        return "one of " + ", ".join(map(repr, get_args(expected)))
    if get_origin(expected) in (types.UnionType, typing.Union):
        return " or ".join("null" if a is type(None) else _type_name(a) for a in get_args(expected))
    plain = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return plain.get(expected, str(expected))
