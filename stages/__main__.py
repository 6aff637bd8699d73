"""Before a run: `python -m stages` checks the whole of params.yaml, then waits for its turn.

A stage reads its own section only, so a slip in a late section would show after the long stages
before it, and after DVC has taken their outputs away. And where another `make` or `dvc repro` is at
work on the project, DVC would fail half-way. `make` runs this first. Costs seconds, and the wait.

`python -m stages FILE…` only checks the sections that there are in these files.
"""

import importlib
import sys
from pathlib import Path

from sifirdan.config import PARAMS_FILE, load_params, read_yaml
from sifirdan.dvc_busy import wait_for_turn
from sifirdan.errors import ConfigError, run_command
from sifirdan.runtime import Runtime


def check(path: Path, *, whole: bool = True) -> None:
    """Read every section as its stage does; refuse sections that no stage reads, and where the file
    must be `whole` also those that are missing."""
    folder = Path(__file__).parent
    sections = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("__")}
    content = read_yaml(path)
    for name in content:
        if name not in sections | {"runtime"}:
            raise ConfigError(
                f"{path}: no stage reads the section '{name}'",
                expected=", ".join(sorted(sections | {"runtime"})),
                todo="correct its spelling or remove it",
            )
    for name in ["runtime", *sorted(sections)]:
        if whole or name in content:
            of_stage = name != "runtime"
            cls = importlib.import_module(f"stages.{name}").Params if of_stage else Runtime
            load_params(path, name, cls)


def main() -> None:
    if files := sys.argv[1:]:
        for file in files:
            check(Path(file), whole=False)
        return
    check(PARAMS_FILE)
    wait_for_turn(Path())


if __name__ == "__main__":
    run_command(main)
