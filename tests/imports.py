"""Which files of ours a file imports, directly or through others, read from the syntax trees."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Tracking, messages and the command line cannot change a stage's results.
EXEMPT = ("errors", "cli", "track", "track_axes", "track_record", "track_registry", "track_store")


def module_file(name: str) -> Path | None:
    """The file of one of our modules, by its dotted name."""
    path = ROOT.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if name.split(".")[0] in ("sifirdan", "stages") and candidate.is_file():
            return candidate
    return None


def imported_names(path: Path) -> set[str]:
    """Every module a file imports anywhere in it (`from a import b` gives both a and a.b)."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def transitive_files(path: Path, exempt: tuple[str, ...] = EXEMPT) -> set[Path]:
    """`path` and every file of ours it reaches, without exempt modules and bare packages."""
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file in seen or file.stem in exempt or file.name == "__init__.py":
            continue
        seen.add(file)
        waiting += [found for name in imported_names(file) if (found := module_file(name))]
    return seen
