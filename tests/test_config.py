"""params.yaml is read strictly: every mistake is named with its dotted place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from sifirdan.config import load_params, read_yaml
from sifirdan.errors import ConfigError, require


@dataclass(frozen=True)
class Inner:
    rate: float
    size: int | None


@dataclass(frozen=True)
class A:
    kind: Literal["a"]
    x: int


@dataclass(frozen=True)
class B:
    kind: Literal["b"]
    y: str


@dataclass(frozen=True)
class Params:
    name: str
    on: bool
    mode: Literal["epoch", "random"]
    rates: list[float]
    inner: Inner
    sources: dict[str, A | B]

    def __post_init__(self) -> None:
        require(len(self.rates) < 4, "stage.rates", self.rates, "fewer than 4")


GOOD = """
stage:
  name: ığdır
  on: true
  mode: epoch
  rates: [3e-4, 1, 1.5e-3, ]
  inner: {rate: 3e-4, size: null}
  sources: {one: {kind: a, x: 1}, two: {kind: b, y: z}}
"""


def load(tmp_path: Path, text: str) -> Params:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return load_params(path, "stage", Params)


def test_good_values_and_exponents_as_dvc_reads_them(tmp_path: Path) -> None:
    params = load(tmp_path, GOOD)
    assert params.inner == Inner(3e-4, None)
    assert params.rates == [3e-4, 1.0, 1.5e-3] and all(type(rate) is float for rate in params.rates)
    assert params.sources == {"one": A("a", 1), "two": B("b", "z")}


def test_dvc_and_we_read_the_same_numbers(tmp_path: Path) -> None:
    from dvc.utils.serialize import load_yaml

    path = tmp_path / "params.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert read_yaml(path) == load_yaml(str(path))


@pytest.mark.parametrize(
    ("old", "new", "place", "hint"),
    [
        ("name: ığdır", "nmae: ığdır", "stage.nmae", "name"),
        ("  on: true\n", "", "stage.on is missing", "true or false"),
        ("on: true", "on: 1", "stage.on", "true or false"),
        ("rate: 3e-4", "rate: hızlı", "stage.inner.rate", "a number"),
        ("rate: 3e-4", "rate: .inf", "stage.inner.rate", "finite"),
        ("size: null", "size: 1.5", "stage.inner.size", "whole number or null"),
        ("size: null", "size: true", "stage.inner.size", "whole number or null"),
        ("mode: epoch", "mode: all", "stage.mode", "'random'"),
        ("kind: b", "kind: c", "stage.sources.two.kind", "'a', 'b'"),
        ("x: 1", "x: '1'", "stage.sources.one.x", "whole number"),
        ("[3e-4, 1, 1.5e-3, ]", "yok", "stage.rates", "a list"),
        ("[3e-4, 1, 1.5e-3, ]", "[1, 2, 3, 4]", "stage.rates", "fewer than 4"),
        ("  name: ığdır", "  name: ığdır\n  name: b", "twice", "two lines"),
        ("stage:", "other:", "'stage' is missing", "name, on"),
        ("{rate: 3e-4, size: null}", "5", "stage.inner", "rate, size"),
        ("sources: {", "sources: [{", "", ""),
    ],
)
def test_wrong_values_are_named(tmp_path: Path, old: str, new: str, place: str, hint: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as error:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert place in str(error.value) and hint in str(error.value)


def test_missing_file_bad_bytes_and_no_mapping(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    with pytest.raises(ConfigError, match="no such file"):
        read_yaml(path)
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="byte 3 is not UTF-8"):
        read_yaml(path)
    path.write_text("- a\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds list"):
        read_yaml(path)
