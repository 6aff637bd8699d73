"""Before a run: `python -m stages` checks the whole of params.yaml, then waits for its turn.

A stage reads its own section only, so a slip in a late section would show after the long stages
before it, and after DVC has taken their outputs away. And where another `make` or `dvc repro` is at
work on the project, DVC would fail half-way. `make` runs this first. Costs seconds, and the wait.
"""

import importlib
from pathlib import Path

from sifirdan.config import PARAMS_FILE, load_params, read_yaml
from sifirdan.dvc_busy import wait_for_turn
from sifirdan.errors import ConfigError, run_command
from sifirdan.runtime import Runtime


def check(path: Path) -> None:
    """Read every section as its stage does; refuse sections that no stage reads."""
    folder = Path(__file__).parent
    sections = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("__")}
    for name in read_yaml(path):
        if name not in sections | {"runtime"}:
            raise ConfigError(
                f"{path}: no stage reads the section '{name}'",
                expected=", ".join(sorted(sections | {"runtime"})),
                todo="correct its spelling or remove it",
            )
    load_params(path, "runtime", Runtime)
    for name in sorted(sections):
        load_params(path, name, importlib.import_module(f"stages.{name}").Params)


def main() -> None:
    check(PARAMS_FILE)
    wait_for_turn(Path())


if __name__ == "__main__":
    run_command(main)
