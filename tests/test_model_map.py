"""The map of the course's parts in `sifirdan/model/__init__.py` leads to what it names. Not for what the
parts do: test_parts.py, test_model.py."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "sifirdan/model"
MAP = ast.get_docstring(ast.parse((MODEL / "__init__.py").read_text(encoding="utf-8"))) or ""
PARTS = ("attention.py", "mlp.py", "norms.py", "positions.py")


def places() -> list[tuple[str, str]]:
    """(file, name) of every place, as the map has them: `part   file.py: Name, Name (a remark); file…`."""
    found = []
    for line in MAP.splitlines():
        row = re.fullmatch(r" *\S.*? {2,}(\S+\.py: .*)", line)
        for place in re.sub(r" \(.*?\)", "", row[1]).split("; ") if row else []:
            file, names = place.split(": ")
            found += [(file, name) for name in names.split(", ")]
    return found


def names_in(path: Path) -> set[str]:
    """What a file defines at its top, and as `Class.name` the methods and attributes of its classes."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for name in members(node)}
        for target in targets(node):
            names |= {target.id} if isinstance(target, ast.Name) else set()
    return names


def members(owner: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(owner):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.register_buffer":
            names.add(ast.literal_eval(node.args[0]))
        for target in targets(node):
            is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
            names |= {target.attr} if is_own else set()
    return names


def targets(node: ast.AST) -> list[ast.expr]:
    """What an assignment assigns to; nothing for other nodes."""
    if isinstance(node, ast.AnnAssign):
        return [node.target]
    return node.targets if isinstance(node, ast.Assign) else []


def file_of(name: str) -> Path:
    """Files in the map are named from the model's folder, or from the library's."""
    return MODEL / name if (MODEL / name).is_file() else ROOT / "sifirdan" / name


@pytest.mark.parametrize(("file", "name"), places())
def test_every_place_in_the_map_is_there(file: str, name: str) -> None:
    assert name in names_in(file_of(file)), f"{file} has no {name}"


def test_every_row_of_the_map_is_read_and_its_preset_is_there() -> None:
    rows = [line for line in MAP.splitlines() if re.search(r"\S {2,}\S", line)]
    assert sum(line.count(".py: ") for line in rows) == MAP.count(".py") >= 20
    assert len({file for file, _ in places()}) >= 10 and len(places()) >= MAP.count(".py")
    (preset,) = re.findall(r"presets/\S+", MAP)
    assert (ROOT / preset).is_file()


def test_the_map_leaves_out_no_file_and_no_kind_of_part() -> None:
    files = {path.name for path in MODEL.glob("*.py")} - {"__init__.py"}
    assert files <= {file for file, _ in places()}
    for file in PARTS:
        body = ast.parse((MODEL / file).read_text(encoding="utf-8")).body
        classes = {node.name for node in body if isinstance(node, ast.ClassDef)}
        assert classes <= {name for found, name in places() if found == file}, file
