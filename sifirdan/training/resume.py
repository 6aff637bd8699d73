"""Training state on disk: saved whole, found again after any kill, never mixed between runs.

It lies in an undeclared, git-ignored folder (`models/.resume/<stage>/<fingerprint>/`), because DVC
deletes a stage's outputs before it runs the stage. The fingerprint names everything that can change
a bit: inputs, parameters, code, library versions, device and runtime. A run with another fingerprint
leaves the state alone, says by name what differs, and deletes nothing: an unfinished run may be days
of work. Safetensors and JSON only.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from torch import Tensor
from torch.optim import Optimizer

from sifirdan import runs
from sifirdan.distributed import ALONE, World
from sifirdan.errors import CheckpointError
from sifirdan.model.checkpoint import set_weights, weights_of
from sifirdan.model.transformer import Transformer
from sifirdan.training import parts
from sifirdan.training.changes import changed_parts, describe_changes, way_back
from sifirdan.training.state_tensors import (
    optimizer_tensors,
    parameter_of,
    random_states,
    require_complete,
    set_optimizer_tensors,
    set_random_states,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEEP = 2  # newest states kept: a damaged newest one leaves the one before
SPARE_BYTES = 1_000_000  # what a state takes beside its tensors, at most
# Prefixes of modules whose change leaves a saved state usable: they change no result, and DVC does not
# watch them for a training stage. json_files is loaded there by tracking alone. Not torchrun: it
# chooses threads and the back end that adds up, and so the last bits.
_EXEMPT_MODULES = ("sifirdan.track", "sifirdan.errors", "sifirdan.cli", "sifirdan.json_files")
_FILES = ("weights.safetensors", "optimizer.safetensors", "state.json")
_BEST_FILE = "best.safetensors"
MAX_MENTIONED = 2  # other unfinished runs that are described, the newest
_FINISHED = "finished"  # marks a run whose outputs are whole


class DamagedState(CheckpointError):
    """A state that is not whole; the one before it may be."""


@dataclass
class SavedState:
    """What a training run continues from. `points` is the curve so far, `extra` the caller's own,
    `best` the best weights up to this step where they are to be kept."""

    step: int
    points: list[dict[str, Any]]
    extra: dict[str, Any]
    best: dict[str, Tensor] | None = None


class ResumeStore:
    """The saved states of one stage under one fingerprint. `earlier_processes` says on how many
    processes a run was before it went on with another number, or another way to share."""

    def __init__(self, folder: Path, fingerprint: dict[str, Any], *, world: World = ALONE) -> None:
        self.stage_folder, self.world = Path(folder), world
        self.earlier_processes: list[str] = []
        self.fingerprint = json.loads(json.dumps(fingerprint))
        key = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = self.stage_folder / key

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says of a run whose number of processes has changed; else nothing."""
        return {"earlier_processes": self.earlier_processes} if self.earlier_processes else {}

    def save(self, model: Transformer, optimizers: list[Optimizer], state: SavedState) -> None:
        """Write one state under a temporary name, fsync, rename; then let the oldest go. Where the
        disk has no room, CheckpointError names place and bytes, and the newest whole state stays. Of
        several processes each writes its part, and the first makes it a state when all are there;
        where one of them fails, all do."""
        final = self.folder / f"step-{state.step:08d}"
        partial = self.folder / f".{final.name}.partial"
        weights, others = weights_of(model), optimizer_tensors(optimizers) | random_states()
        best = state.best or {}
        needed = SPARE_BYTES + sum(t.nbytes for d in (weights, others, best) for t in d.values())

        def begin() -> None:
            for left in self.folder.glob(".step-*.partial"):  # a kill came while it was written
                shutil.rmtree(left, ignore_errors=True)
            partial.mkdir(parents=True)
            self._make_room(needed)

        def write() -> dict[str, str]:
            written = parts.write(partial / _FILES[0], weights, self.world)
            written += parts.write(partial / _FILES[1], others, self.world)
            if state.best is not None:
                written += parts.write(partial / _BEST_FILE, state.best, self.world)
            return _hashes(written)

        def finish() -> None:
            self._write_content(partial, state, sha256)
            runs.fsync_tree(partial)
            shutil.rmtree(final, ignore_errors=True)  # a damaged one, or it had been continued
            os.rename(partial, final)
            runs.fsync_tree(self.folder)

        def together(do: Callable[[], T]) -> T:
            """Once this has returned, every process has done it; where one cannot, all raise."""

            def attempt() -> T:
                try:
                    return do()
                except (OSError, SafetensorError) as error:
                    shutil.rmtree(partial, ignore_errors=True)
                    raise self._not_saved(state.step, needed, error) from error

            return self.world.agreed(attempt)

        is_first = self.world.is_first
        together(lambda: begin() if is_first else None)
        sha256 = parts.merged(together(write), self.world)
        together(lambda: finish() if is_first else None)
        if is_first:
            self._remove_old(state.step)

    def load_newest(self, model: Transformer, optimizers: list[Optimizer]) -> SavedState | None:
        """Fill model, optimisers and random generators from the newest whole state; says which it
        skipped and why. None where there is none. A whole state that does not fit is refused."""
        saved, found = self.world.same_paths(self._usable()), None
        for folder in reversed(saved):
            try:
                found = self._load(folder, model, optimizers)
                break
            except DamagedState as error:
                logger.warning("resume: skipping %s: %s", folder.name, error)
        if saved and found is None:
            logger.warning(
                "resume: no saved state of this run is whole (%d looked at); it begins anew",
                len(saved),
            )
        if self.world.is_first:
            self._mention_other_runs()
        return found

    def mark_finished(self) -> None:
        """The run's outputs are whole: `clear` may forget it, also what it left on another number
        of processes."""
        for run in self._runs():
            if run == self.folder or self._is_of_other_world(run):
                (run / _FINISHED).touch()

    def clear(self) -> None:
        """Forget every finished run of the stage; an unfinished one under other settings stays."""
        for run in self._runs():
            if (run / _FINISHED).exists():
                shutil.rmtree(run, ignore_errors=True)
        with contextlib.suppress(OSError):  # others are in it, or it was never made
            self.stage_folder.rmdir()

    def _write_content(self, partial: Path, state: SavedState, sha256: Mapping[str, str]) -> None:
        content: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "step": state.step,
            "points": state.points,
            "extra": state.extra,
            "processes": self.world.size,
            "earlier_processes": self.earlier_processes,
            "sha256": dict(sorted(sha256.items())),
        }
        runs.write_json(partial / _FILES[2], content | {"sha256_of_this": _content_hash(content)})

    def _load(self, folder: Path, model: Transformer, optimizers: list[Optimizer]) -> SavedState:
        content = self.world.agreed(lambda: _read(folder, self.world), DamagedState)
        there = content["fingerprint"]
        same_world = there == self.fingerprint
        if not same_world and not parts.differs_in_processes_only(self.fingerprint, there):
            changes = describe_changes(self.fingerprint, there)
            raise CheckpointError(
                f"{folder}: holds the state of another run ({'; '.join(changes)})",
                expected="the state of this run, which its folder's name says",
                todo=f"rm -r {folder}",
            )
        weights, others, best = self.world.agreed(
            lambda: _tensors(folder, content, model, optimizers, self.world), DamagedState
        )
        set_weights(model, weights, place=str(folder / _FILES[0]))
        own_random = content["processes"] == self.world.size
        self.world.agreed(
            lambda: require_complete(optimizers, others, own_random, file=folder / _FILES[1])
        )
        set_optimizer_tensors(optimizers, others)
        set_random_states(others, content["step"])
        self.earlier_processes = content["earlier_processes"]
        if not same_world:
            earlier = parts.processes_of(there)
            self.earlier_processes = [*self.earlier_processes, earlier]
            logger.info(
                "resume: %s was saved by %s and goes on with %s: the same sequences follow, but sums "
                "differ in their last bits",
                folder.name, earlier, parts.processes_of(self.fingerprint),
            )  # fmt: skip
        return SavedState(content["step"], content["points"], content["extra"], best)

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))

    def _usable(self) -> list[Path]:
        """This run's states, also those saved on another number of processes, the newest last."""
        others = [
            state
            for run in self._runs()
            if run != self.folder and self._is_of_other_world(run)
            for state in run.glob("step-*")
        ]
        return sorted(
            [*others, *self._saved()],
            key=lambda folder: (folder.name, folder.parent == self.folder),
        )

    def _is_of_other_world(self, run: Path) -> bool:
        """Whether a folder has the states of this very run on another number of processes."""
        there = _fingerprint_in(sorted(run.glob("step-*")))
        return parts.differs_in_processes_only(self.fingerprint, there)

    def _runs(self) -> list[Path]:
        return sorted(path for path in self.stage_folder.glob("*") if path.is_dir())

    def _remove_old(self, step: int) -> None:
        """After the state of `step`: those beyond it, which were skipped as damaged, or it would
        have been continued there; and of the others all but the newest."""
        saved = self._saved()
        beyond = [folder for folder in saved if folder.name > f"step-{step:08d}"]
        for folder in beyond + [f for f in saved if f not in beyond][:-KEEP]:
            shutil.rmtree(folder, ignore_errors=True)

    def _make_room(self, needed: int) -> None:
        """Where the disk is short of `needed` bytes, the older states go, if the newest is whole;
        OSError where that is not enough."""
        saved = self._saved()
        if shutil.disk_usage(self.folder).free < needed and len(saved) > 1 and _is_whole(saved[-1]):
            for folder in saved[:-1]:
                shutil.rmtree(folder, ignore_errors=True)
            names = ", ".join(folder.name for folder in saved[:-1])
            logger.warning("resume: the disk is nearly full; %s had to go for the next", names)
        if shutil.disk_usage(self.folder).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _not_saved(self, step: int, needed: int, error: Exception) -> CheckpointError:
        left = [folder for folder in reversed(self._saved()) if _is_whole(folder)]
        goes_on = f"continues at step {int(left[0].name[5:])}" if left else "begins anew"
        free = shutil.disk_usage(self.folder if self.folder.is_dir() else Path.cwd()).free
        return CheckpointError(
            f"{self.folder}: the state of step {step} could not be saved: {error}",
            expected=f"{needed / 1e6:.1f} MB free there; free are {free / 1e6:.1f} MB",
            todo="free disk space (sifirdan disk says what takes it) or mend the folder's rights, then run "
            f"the same command again: it {goes_on}",
        )

    def _mention_other_runs(self) -> None:
        """Say by name why the states of other runs are not used, and what can be done with them."""
        others = []
        for run in self._runs():
            if run == self.folder or (run / _FINISHED).exists() or self._is_of_other_world(run):
                continue
            if any(run.glob("step-*")):
                others.append(run)
            else:  # killed before its first state
                shutil.rmtree(run, ignore_errors=True)
        others.sort(key=lambda run: run.stat().st_mtime, reverse=True)
        for run in others[:MAX_MENTIONED]:
            states = sorted(run.glob("step-*"))
            there = _fingerprint_in(states)
            unknown = ["its state.json cannot be read"]
            changes = describe_changes(self.fingerprint, there) if there else unknown
            logger.warning(
                "resume: %s holds another run, at step %d; nothing of it is used, for\n  %s\n"
                "  to continue that one: %s\n  to free its %.1f MB: rm -r %s",
                run, int(states[-1].name[5:]), "\n  ".join(changes),
                way_back(changed_parts(self.fingerprint, there)), _megabytes(run), run,
            )  # fmt: skip
        if more := others[MAX_MENTIONED:]:
            logger.warning(
                "resume: %d older runs, too, in %s (%.1f MB)",
                len(more), self.stage_folder, sum(map(_megabytes, more)),
            )  # fmt: skip


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _read(folder: Path, world: World = ALONE) -> dict[str, Any]:
    """state.json of a whole state; DamagedState names what is not. Of several processes each looks
    at some of the files."""
    name = _FILES[2]
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        if content.pop("sha256_of_this") != _content_hash(content):
            raise DamagedState(f"{name} is damaged")
        for index, (name, expected) in enumerate(content["sha256"].items()):
            if not (folder / name).is_file():
                raise DamagedState(f"{name} is missing")
            if index % world.size == world.rank and runs.sha256_of(folder / name) != expected:
                raise DamagedState(f"{name} is damaged")
        for name in _FILES[:2]:
            if parts.part_of(folder / name, 0, content["processes"]).name not in content["sha256"]:
                raise DamagedState(f"{name} is missing")
        return dict(content)
    except FileNotFoundError:
        raise DamagedState(f"{name} is missing") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedState(f"{name} cannot be read ({error})") from None


def _tensors(
    folder: Path,
    content: dict[str, Any],
    model: Transformer,
    optimizers: list[Optimizer],
    world: World,
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor] | None]:
    """(weights, the other tensors, the best weights so far if they are kept) of a state, of sharded
    ones this process's rows."""
    processes, best = content["processes"], None
    weight_of = model.state_dict().get
    name = _FILES[0]
    try:
        weights = parts.read(folder / name, processes, weight_of, world)
        name = _FILES[1]
        others = parts.read(folder / name, processes, parameter_of(optimizers), world)
        name = _BEST_FILE
        if parts.part_of(folder / name, 0, processes).name in content["sha256"]:
            best = parts.read(folder / name, processes, weight_of, world)
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise DamagedState(f"{name} cannot be read ({error})") from None
    return weights, others, best


def _hashes(files: Iterable[Path]) -> dict[str, str]:
    """The sha256 of each, by name."""
    return {file.name: runs.sha256_of(file) for file in files}


def _is_whole(folder: Path) -> bool:
    try:
        return bool(_read(folder))
    except DamagedState:
        return False


def _fingerprint_in(states: list[Path]) -> dict[str, Any]:
    """The fingerprint that the newest readable of these states names; empty where none is."""
    for folder in reversed(states):
        try:
            found = json.loads((folder / _FILES[2]).read_text(encoding="utf-8"))["fingerprint"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _content_hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def code_hashes() -> dict[str, str]:
    """The sha256 of every module of ours that this process has loaded, by name."""
    hashes = {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        ours = name.split(".")[0] in ("sifirdan", "stages") or name == "__main__"
        if ours and path and Path(path).is_file() and not name.startswith(_EXEMPT_MODULES):
            hashes[Path(path).stem if name == "__main__" else name] = runs.sha256_of(Path(path))[
                :16
            ]
    return hashes


def code_hash() -> str:
    """12 hexadecimal digits for all of them together: which code trained a model."""
    return hashlib.sha256(json.dumps(code_hashes(), sort_keys=True).encode()).hexdigest()[:12]
