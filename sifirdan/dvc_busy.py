"""Which DVC command is at work on the project, so that a second one waits its turn.

DVC locks the project for itself, but not while a stage runs; a second `dvc repro` then fails at the
first thing that is in use, or after three seconds. Not a lock: two commands of the same moment still
meet in DVC's own. Lock files only note numbers of processes, which the system gives out again: after
a kill -9, or in a container where every command has the number 1, another process may bear a noted one.
"""

import json
import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from sifirdan.errors import ConfigError

PAUSE_SECONDS = 2.0
NOTE_SECONDS = 600.0
READ_TRIES = 20

_NAME = re.compile(r"(^|[/\\])dvc(\.exe)?$")  # dvc …, python …/dvc …, python -m dvc …
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """A running DVC command of the project, and an output that it is making ("" between stages)."""

    pid: int
    command: str
    making: str


def wait_for_turn(root: Path) -> None:
    """Return when no other DVC command is at work on the project; say who is. A note that a killed
    command left behind, and DVC would take for a running one, is removed."""
    said = float("-inf")
    while found := holder(root):
        if time.monotonic() - said > NOTE_SECONDS:
            making = f", making {found.making}" if found.making else ""
            _log.info(
                "dvc: process %d (%s%s) is at work on this project; waiting until it ends. "
                "Ctrl-C gives up, and harms nothing",
                found.pid, found.command, making,
            )  # fmt: skip
            said = time.monotonic()
        time.sleep(PAUSE_SECONDS)
    if stale := stale_notes(root):
        _rwlock(root).unlink(missing_ok=True)
        _log.info("dvc: removed the lock of a killed command: %s", "; ".join(stale))


def holder(root: Path) -> Holder | None:
    """The DVC command that is at work on the project, if there is one."""
    for pid, path in _notes(root):
        if command := _dvc_command(pid, root):
            return Holder(pid, command, path)
    lock = root / ".dvc/tmp/lock"
    with suppress(OSError, ValueError):
        pid = int(lock.read_text(encoding="utf-8"))
        # The number stays there after use, and an experiment in a copy lives on for hours.
        if (command := _dvc_command(pid, root)) and _is_held(lock):
            return Holder(pid, command, "")
    return None


def _is_held(lock: Path) -> bool:
    """Whether a process holds this file's lock. On Windows, never: there DVC's own must do."""
    try:
        import fcntl
    except ImportError:
        return False
    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # DVC takes it for itself alone
        except OSError:
            return True
    return False


def stale_notes(root: Path) -> list[str]:
    """What DVC's lock file says of processes whose number now belongs to another program."""
    return [
        f"{path} by process {pid}"
        for pid, path in _notes(root)
        if psutil.pid_exists(pid) and not _dvc_command(pid, root)
    ]


def _rwlock(root: Path) -> Path:
    return root / ".dvc/tmp/rwlock"


def _notes(root: Path) -> list[tuple[int, str]]:
    """Process and path of each note in DVC's lock file, those of outputs first."""
    for left in reversed(range(READ_TRIES)):
        try:
            content = json.loads(_rwlock(root).read_text(encoding="utf-8"))
            written = [(row["pid"], path) for path, row in content.get("write", {}).items()]
            read = [(row["pid"], p) for p, rows in content.get("read", {}).items() for row in rows]
            break
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            if left:
                time.sleep(PAUSE_SECONDS / READ_TRIES)  # DVC is writing it
                continue
            raise ConfigError(
                f"{_rwlock(root)}: is damaged (a command was killed while writing it?)",
                expected="DVC's list of what is in use",
                todo=f"when no dvc command runs: rm {_rwlock(root)}",
            ) from None
    return [(pid, _inside(path, root)) for pid, path in (*written, *read)]


def _inside(path: str, root: Path) -> str:
    place = Path(path)
    return (
        place.relative_to(root.resolve()).as_posix()
        if place.is_relative_to(root.resolve())
        else path
    )


def _dvc_command(pid: int, root: Path) -> str:
    """The command line of a process, if it is DVC in this project's folder; else ""."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return _command_here(pid, root.resolve())
    return ""


def _command_here(pid: int, root: Path) -> str:
    process = psutil.Process(pid)
    try:
        words = process.cmdline()
        dvc = [i for i, word in enumerate(words[:3]) if _NAME.search(word)]
        if not dvc or process.status() == psutil.STATUS_ZOMBIE:
            return ""
        if not Path(process.cwd()).is_relative_to(root):
            return ""
    except psutil.AccessDenied:  # another user's: perhaps a colleague's, on this project
        return "dvc of another user"
    return " ".join(["dvc", *words[dvc[0] + 1 :]])
