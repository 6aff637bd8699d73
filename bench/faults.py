"""Faults for one training process: killed, out of disk, asked to stop, at an exact place. POSIX.

`run` forks a child that runs a stage's `main` in a project's folder with one fault installed; a fork
after the imports costs milliseconds. Not for choosing faults or judging what came of them: see
bench/interruptions.py.
"""

import contextlib
import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from matplotlib import pyplot
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from sifirdan import runs
from sifirdan.errors import SifirdanError
from sifirdan.training import parts, resume

UPDATED = "one more step\n"  # what a process with a fault says at each step
SHORT_OF_DISK = 1000  # bytes that are free, where the disk is said to be full


@dataclass(frozen=True)
class Fault:
    """What happens to a process, at the `number`-th time that it comes to `place`.

    Places: `step` (an optimiser's update; each step has as many as optimisers), `resumed` (the state
    has been read, or there was none), `save` (of a state), in the `number`-th save `write`, `fsync`,
    `rename` and `remove` (of an old state), there at the `inner`-th time, and `output` (the rename of
    a finished folder). `when` is before, halfway or after. `how` is kill (-9), stop (SIGTERM), full
    (the system call fails for want of room), limit (the kernel refuses to make files longer) or
    low (little room is left)."""

    place: str
    number: int = 1
    when: str = "before"
    how: str = "kill"
    inner: int = 1

    def __str__(self) -> str:
        which = {"step": f"update {self.number}", "resumed": "the state is read"}.get(self.place)
        which = which or f"{self.place} {self.inner} of save {self.number}"
        which = f"finished folder {self.number}" if self.place == "output" else which
        which = f"save {self.number}" if self.place == "save" else which
        return f"{self.how} {self.when} {which}"


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status (-9: killed) and what it said."""

    status: int
    said: str


def run(main: Callable[[], None], project: Path, fault: Fault | None, *, tracked: bool) -> Ended:
    """`main` in a child process that stands in `project`; not tracked, it does without MLflow."""
    log = project / "said.log"
    child = os.fork()
    if child == 0:
        with open(log, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os._exit(_in_child(main, project, fault, tracked))
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), log.read_text(encoding="utf-8"))


def _in_child(main: Callable[[], None], project: Path, fault: Fault | None, tracked: bool) -> int:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    os.chdir(project)
    try:
        if not tracked:
            stage: Any = sys.modules[main.__module__]
            stage.track = SimpleNamespace(stage=_untracked)
        pyplot.Figure.savefig = lambda _, path, **__: path.touch()  # half of the child's time
        if fault:
            _install(fault)
        main()
        return 0
    except SifirdanError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException:
        import traceback

        traceback.print_exc()
        return 70
    finally:
        sys.stderr.flush()


@contextlib.contextmanager
def _untracked(*_: object, **__: object) -> Iterator[Any]:
    def finish(metrics: Mapping[str, Any], path: Path) -> None:
        runs.write_json(path, metrics)

    def nothing(*_: object, **__: object) -> None: ...

    yield SimpleNamespace(
        run_id="none", reopen=nothing, log_axes=nothing, log_metrics=nothing, log_artifact=nothing,
        finish=finish,
    )  # fmt: skip


class _Counter:
    """Counts how often each place is come to, and strikes at the right time."""

    def __init__(self, fault: Fault) -> None:
        self.fault, self.saves = fault, 0
        self.counts: dict[str, int] = {}
        self.in_save = False

    def come(self, place: str) -> None:
        self.counts[place] = self.counts.get(place, 0) + 1

    def is_at(self, place: str, when: str) -> bool:
        fault = self.fault
        if (fault.place, fault.when) != (place, when):
            return False
        if place in ("write", "fsync", "rename", "remove"):
            inside = self.in_save and self.saves == fault.number
            return inside and self.counts.get(place) == fault.inner
        return self.counts.get(place) == fault.number

    def strike(self) -> None:
        if self.fault.how == "stop":
            signal.raise_signal(signal.SIGTERM)
        elif self.fault.how == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, place: str, call: Callable[..., Any], halfway: Callable[..., Any]) -> Any:
        """`call`, counted as `place`; `halfway` does a part of it."""

        def counted(*arguments: Any, **named: Any) -> Any:
            if not self.in_save:
                return call(*arguments, **named)
            self.come(place)
            if self.is_at(place, "before"):
                self.strike()
            if self.is_at(place, "halfway"):
                halfway(*arguments, **named)
                self.strike()
            result = call(*arguments, **named)
            if self.is_at(place, "after"):
                self.strike()
            return result

        return counted


def _install(fault: Fault) -> None:
    counter = _Counter(fault)
    first: list[Any] = []

    def hook(when: str) -> Callable[..., None]:
        def at_step(optimizer: Any, *_: object) -> None:
            if when == "before":
                counter.come("step")
            elif optimizer is (first or [optimizer])[0]:
                first[:] = [optimizer]
                os.write(2, UPDATED.encode())
            if counter.is_at("step", when):
                counter.strike()

        return at_step

    register_optimizer_step_pre_hook(hook("before"))
    register_optimizer_step_post_hook(hook("after"))
    store: Any = resume.ResumeStore
    store.save = _counted_save(counter, store.save)
    store.load_newest = _counted_load(counter, store.load_newest)
    parts.save_file = counter.around("write", parts.save_file, _half_of(parts.save_file))
    runs.write_text = counter.around("write", runs.write_text, _half_of_text)
    os.fsync = counter.around("fsync", os.fsync, lambda *_: None)
    os.rename = counter.around("rename", _output(counter, os.rename), lambda *_: None)
    os.replace = counter.around("rename", os.replace, lambda *_: None)
    shutil.rmtree = counter.around("remove", shutil.rmtree, _half_removed)  # type: ignore[assignment]


def _counted_save(counter: _Counter, save: Callable[..., None]) -> Callable[..., None]:
    fault = counter.fault

    def counted(*arguments: Any) -> None:
        counter.saves += 1
        for place in ("write", "fsync", "rename", "remove"):
            counter.counts[place] = 0
        counter.come("save")
        if counter.is_at("save", "before") and fault.how in ("kill", "stop"):
            counter.strike()
        with _little_room(fault) if counter.is_at("save", "before") else contextlib.nullcontext():
            counter.in_save = True
            save(*arguments)
            counter.in_save = False
        if counter.is_at("save", "after"):
            counter.strike()

    return counted


def _counted_load(counter: _Counter, load: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        found = load(*arguments)
        counter.come("resumed")
        if counter.is_at("resumed", "after"):
            counter.strike()
        return found

    return counted


def _output(counter: _Counter, rename: Callable[..., None]) -> Callable[..., None]:
    """Renames of finished folders come outside of a save."""

    def renamed(source: Any, target: Any) -> None:
        finished = not counter.in_save and str(source).endswith(".partial")
        if finished:
            counter.come("output")
        if finished and counter.is_at("output", "before"):
            counter.strike()
        rename(source, target)
        if finished and counter.is_at("output", "after"):
            counter.strike()

    return renamed


@contextlib.contextmanager
def _little_room(fault: Fault) -> Iterator[None]:
    """While open, the kernel lets no file grow (`limit`), or the disk seems nearly full (`low`)."""
    if fault.how == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.inner, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    else:
        shutil.disk_usage = lambda _: SimpleNamespace(free=SHORT_OF_DISK)  # type: ignore
        yield


def _half_of(save: Callable[..., None]) -> Callable[..., None]:
    def half(tensors: Any, path: Path) -> None:
        save(tensors, path)
        os.truncate(path, path.stat().st_size // 2)

    return half


def _half_of_text(path: Path, text: str) -> None:
    path.with_name(f".{path.name}.partial").write_text(text[: len(text) // 2], encoding="utf-8")


def _half_removed(folder: Path, **_: object) -> None:
    for file in sorted(Path(folder).glob("*"))[:1]:
        file.unlink()
