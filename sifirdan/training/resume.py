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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from sifirdan import runs
from sifirdan.errors import CheckpointError
from sifirdan.model.checkpoint import set_weights, weights_of
from sifirdan.model.transformer import Transformer
from sifirdan.training.changes import changed_parts, describe_changes, way_back

logger = logging.getLogger(__name__)

KEEP = 2  # newest states kept: a damaged newest one leaves the one before
SPARE_BYTES = 1_000_000  # what a state takes beside its tensors, at most
_EXEMPT_MODULES = (
    "sifirdan.track",
    "sifirdan.errors",
    "sifirdan.cli",
)  # prefixes; they change no result
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
    """The saved states of one stage under one fingerprint."""

    def __init__(self, folder: Path, fingerprint: dict[str, Any]) -> None:
        self.stage_folder = Path(folder)
        self.fingerprint = json.loads(json.dumps(fingerprint))
        key = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = self.stage_folder / key

    def save(self, model: Transformer, optimizers: list[Optimizer], state: SavedState) -> None:
        """Write one state under a temporary name, fsync, rename; then let the oldest go. Where the
        disk has no room, CheckpointError names place and bytes, and the newest whole state stays."""
        final = self.folder / f"step-{state.step:08d}"
        partial = self.folder / f".{final.name}.partial"
        for left in self.folder.glob(".step-*.partial"):  # a kill came while it was written
            shutil.rmtree(left, ignore_errors=True)
        weights, others = weights_of(model), _optimizer_tensors(optimizers) | _random_states()
        best = state.best or {}
        needed = SPARE_BYTES + sum(t.nbytes for d in (weights, others, best) for t in d.values())
        try:
            partial.mkdir(parents=True)
            self._make_room(needed)
            save_file(weights, partial / _FILES[0])
            save_file(others, partial / _FILES[1])
            if state.best is not None:
                save_file(state.best, partial / _BEST_FILE)
            self._write_content(partial, state)
            runs.fsync_tree(partial)
            shutil.rmtree(final, ignore_errors=True)  # a damaged one, or it had been continued
            os.rename(partial, final)
            runs.fsync_tree(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise self._not_saved(state.step, needed, error) from error
        self._remove_old(state.step)

    def load_newest(self, model: Transformer, optimizers: list[Optimizer]) -> SavedState | None:
        """Fill model, optimisers and random generators from the newest whole state; says which it
        skipped and why. None where there is none. A whole state that does not fit is refused."""
        saved, found = self._saved(), None
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
        self._mention_other_runs()
        return found

    def mark_finished(self) -> None:
        """The run's outputs are whole: `clear` may forget it."""
        if self.folder.is_dir():
            (self.folder / _FINISHED).touch()

    def clear(self) -> None:
        """Forget every finished run of the stage; an unfinished one under other settings stays."""
        for run in self._runs():
            if (run / _FINISHED).exists():
                shutil.rmtree(run, ignore_errors=True)
        with contextlib.suppress(OSError):  # others are in it, or it was never made
            self.stage_folder.rmdir()

    def _write_content(self, partial: Path, state: SavedState) -> None:
        content: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "step": state.step,
            "points": state.points,
            "extra": state.extra,
            "sha256": {
                path.name: runs.sha256_of(path) for path in sorted(partial.glob("*.safetensors"))
            },
        }
        runs.write_json(partial / _FILES[2], content | {"sha256_of_this": _content_hash(content)})

    def _load(self, folder: Path, model: Transformer, optimizers: list[Optimizer]) -> SavedState:
        content, weights, others, best = _read(folder)
        if content["fingerprint"] != self.fingerprint:
            changes = describe_changes(self.fingerprint, content["fingerprint"])
            raise CheckpointError(
                f"{folder}: holds the state of another run ({'; '.join(changes)})",
                expected="the state of this run, which its folder's name says",
                todo=f"rm -r {folder}",
            )
        set_weights(model, weights, place=str(folder / _FILES[0]))
        _require_complete(optimizers, others, place=folder)
        _set_optimizer_tensors(optimizers, others)
        _set_random_states(others)
        return SavedState(content["step"], content["points"], content["extra"], best)

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))

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
            if run == self.folder or (run / _FINISHED).exists():
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


def _read(
    folder: Path,
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], dict[str, Tensor] | None]:
    """(state.json, weights, the other tensors, the best weights so far if they are kept) of a whole
    state; DamagedState names what is not."""
    name = _FILES[2]
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        if content.pop("sha256_of_this") != _content_hash(content):
            raise DamagedState(f"{name} is damaged")
        for name, expected in content["sha256"].items():
            if runs.sha256_of(folder / name) != expected:
                raise DamagedState(f"{name} is damaged")
        best = load_file(folder / _BEST_FILE) if _BEST_FILE in content["sha256"] else None
        return content, load_file(folder / _FILES[0]), load_file(folder / _FILES[1]), best
    except FileNotFoundError:
        raise DamagedState(f"{name} is missing") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedState(f"{name} cannot be read ({error})") from None


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


def _optimizer_tensors(optimizers: list[Optimizer]) -> dict[str, Tensor]:
    tensors = {}
    for number, optimizer in enumerate(optimizers):
        for index, entry in optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                tensors[f"{number}.{index}.{key}"] = torch.as_tensor(value).cpu().contiguous()
    return tensors


def _set_optimizer_tensors(optimizers: list[Optimizer], tensors: dict[str, Tensor]) -> None:
    for number, optimizer in enumerate(optimizers):
        content = optimizer.state_dict()
        content["state"] = {}
        for name, value in tensors.items():
            owner, _, rest = name.partition(".")
            if owner == str(number):
                index, _, key = rest.partition(".")
                # a copy: what was loaded is the file itself, mapped, which is deleted one day
                content["state"].setdefault(int(index), {})[key] = value.clone()
        optimizer.load_state_dict(content)


def _require_complete(
    optimizers: list[Optimizer], tensors: dict[str, Tensor], *, place: Path
) -> None:
    """Refuse what lacks the state of a parameter or of the generator."""
    if "random.cpu" not in tensors:
        raise CheckpointError(f"{place / _FILES[1]}: random.cpu is missing", todo=f"rm -r {place}")
    for number, optimizer in enumerate(optimizers):
        owned = {name.split(".")[1] for name in tensors if name.split(".")[0] == str(number)}
        expected = sum(len(group["params"]) for group in optimizer.param_groups)
        if len(owned) != expected:
            raise CheckpointError(
                f"{place / _FILES[1]}: has state of {len(owned)} parameters",
                expected=f"{expected}",
                todo=f"rm -r {place}",
            )


def _random_states() -> dict[str, Tensor]:
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random.cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
