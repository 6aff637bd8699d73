"""The errors a user can fix, and how a command ends on one: a plain message, no traceback.

Every message says what was found, what was expected and what to do. A mistake of ours is an
`assert` or an ordinary exception and keeps its traceback.
"""

import logging
import os
import sys
from collections.abc import Callable


class SifirdanError(Exception):
    """Something the user can mend; carries the whole message."""

    def __init__(self, found: str, *, expected: str = "", todo: str = "") -> None:
        lines = [found]
        if expected:
            lines.append(f"  expected: {expected}")
        if todo:
            lines.append(f"  what to do: {todo}")
        super().__init__("\n".join(lines))


class ConfigError(SifirdanError):
    """A value in `params.yaml` or on the command line."""


class DataError(SifirdanError):
    """A source, a text or an intermediate file."""


class CheckpointError(SifirdanError):
    """A model folder or a saved training state."""


def require(condition: bool, key: str, found: object, expected: str, todo: str = "") -> None:
    """Refuse a value that has the right type but cannot be used."""
    if not condition:
        raise ConfigError(f"{key} is {found!r}", expected=expected, todo=todo or f"change {key}")


def run_command(main: Callable[[], int | None]) -> None:
    """Run an entry point and exit: 0, its own code, 1 after a fixable error, 130 after Ctrl-C,
    141 where nobody reads on."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "datasets", "alembic", "mlflow", "matplotlib"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        code = main() or 0
        sys.stdout.flush()
        sys.exit(code)
    except SifirdanError as error:
        sys.stderr.write(f"\n{type(error).__name__}: {error}\n")
        _note_in_experiment(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; run the same command again to continue\n")
        sys.exit(130)
    except BrokenPipeError:  # `sifirdan ledger | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _note_in_experiment(error: SifirdanError) -> None:
    """In a `dvc exp` run, where nobody watches the messages, tracking hears of it, too."""
    if "DVC_EXP_NAME" in os.environ:
        from sifirdan import track

        track.note_refusal(error)
