"""Training state on disk: saved whole, found again after any kill, never mixed between runs.

It lies in an undeclared, git-ignored folder (`models/.resume/<stage>/<fingerprint>/`), because DVC
deletes a stage's outputs before it runs the stage. The fingerprint names everything that can change
a bit: inputs, parameters, code, library versions, device and runtime. Safetensors and JSON only.
"""

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

logger = logging.getLogger(__name__)

KEEP = 2  # newest states kept: a damaged newest one leaves the one before
_EXEMPT_MODULES = (
    "sifirdan.track",
    "sifirdan.errors",
    "sifirdan.cli",
)  # prefixes; they change no result
_FILES = ("weights.safetensors", "optimizer.safetensors", "state.json")


@dataclass
class SavedState:
    """What a training run continues from. `points` is the curve so far, `extra` the caller's own."""

    step: int
    points: list[dict[str, Any]]
    extra: dict[str, Any]


class ResumeStore:
    """The saved states of one stage under one fingerprint."""

    def __init__(self, folder: Path, fingerprint: dict[str, Any]) -> None:
        self.stage_folder = Path(folder)
        self.fingerprint = json.loads(json.dumps(fingerprint))
        key = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = self.stage_folder / key

    def save(self, model: Transformer, optimizers: list[Optimizer], state: SavedState) -> None:
        """Write one state under a temporary name, fsync, rename; then let the oldest go."""
        final = self.folder / f"step-{state.step:08d}"
        partial = self.folder / f".{final.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(weights_of(model), partial / _FILES[0])
        save_file(_optimizer_tensors(optimizers) | _random_states(), partial / _FILES[1])
        content = {
            "fingerprint": self.fingerprint,
            "step": state.step,
            "points": state.points,
            "extra": state.extra,
            "sha256": {name: runs.sha256_of(partial / name) for name in _FILES[:2]},
        }
        runs.write_json(partial / _FILES[2], content)
        runs.fsync_tree(partial)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)
        for old in self._saved()[:-KEEP]:
            shutil.rmtree(old)

    def load_newest(self, model: Transformer, optimizers: list[Optimizer]) -> SavedState | None:
        """Fill model, optimisers and random generators from the newest whole state; says which it
        skipped and why. None where there is none."""
        self._mention_other_runs()
        for folder in reversed(self._saved()):
            try:
                return self._load(folder, model, optimizers)
            except CheckpointError as error:
                logger.warning("resume: skipping %s: %s", folder.name, error)
        return None

    def clear(self) -> None:
        """Forget every state of the stage: its outputs are whole now."""
        shutil.rmtree(self.stage_folder, ignore_errors=True)

    def _load(self, folder: Path, model: Transformer, optimizers: list[Optimizer]) -> SavedState:
        for name in _FILES:
            if not (folder / name).is_file():
                raise CheckpointError(f"{name} is missing")
        try:
            content = json.loads((folder / _FILES[2]).read_text(encoding="utf-8"))
            for name, expected in content["sha256"].items():
                if runs.sha256_of(folder / name) != expected:
                    raise CheckpointError(f"{name} is damaged")
            weights, optimizer_tensors = (
                load_file(folder / _FILES[0]),
                load_file(folder / _FILES[1]),
            )
            state = SavedState(content["step"], content["points"], content["extra"])
        except (ValueError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"cannot be read ({error})") from None
        set_weights(model, weights, place=str(folder / _FILES[0]))
        _set_optimizer_tensors(optimizers, optimizer_tensors)
        _set_random_states(optimizer_tensors)
        return state

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))

    def _mention_other_runs(self) -> None:
        for state_file in sorted(self.stage_folder.glob(f"*/step-*/{_FILES[2]}")):
            if state_file.parent.parent == self.folder:
                continue
            try:
                other = json.loads(state_file.read_text(encoding="utf-8"))["fingerprint"]
            except (ValueError, KeyError):
                continue
            changed = sorted(_differences(self.fingerprint, other))
            logger.info(
                "resume: %s is of another run and stays unused; changed: %s",
                state_file.parent.name, ", ".join(changed[:8]),
            )  # fmt: skip


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


def _differences(left: dict[str, Any], right: dict[str, Any], prefix: str = "") -> set[str]:
    names = set()
    for key in left.keys() | right.keys():
        a, b = left.get(key), right.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            names |= _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            names.add(f"{prefix}{key}")
    return names


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
                content["state"].setdefault(int(index), {})[key] = value
        expected = sum(len(group["params"]) for group in optimizer.param_groups)
        if len(content["state"]) != expected:
            raise CheckpointError(
                f"{_FILES[1]}: has state of {len(content['state'])} parameters",
                expected=f"{expected}",
            )
        optimizer.load_state_dict(content)


def _random_states() -> dict[str, Tensor]:
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random.cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_states(tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
