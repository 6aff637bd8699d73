"""What the machine and the project folder have, as findings a person can act on."""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from sifirdan.device import pick_device, pick_dtype, should_compile

PACKAGES = ("torch", "transformers", "sentencepiece", "pyarrow", "datasets", "mlflow", "dvc")
_NEEDED_GB = 5  # environment, data, models and caches of the default run


@dataclass(frozen=True)
class Finding:
    """One line: is it well, does the pipeline need it, what is it, what to do."""

    ok: bool
    needed: bool
    text: str
    todo: str = ""


def examine(root: Path) -> list[Finding]:
    """Look at Python, packages, device, precision, compiler, memory, disk, Git and the project."""
    findings = [
        Finding(
            sys.version_info >= (3, 11), True,
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
            "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer, then make PYTHON=python3.12",
        )
    ]  # fmt: skip
    findings += [_package(name) for name in PACKAGES]
    findings += _device()
    findings += [
        _tool("git", "runs are versioned with it"),
        _disk(root),
        _memory(),
        *_project(root),
    ]
    return findings


def _package(name: str) -> Finding:
    try:
        return Finding(True, True, f"{name} {metadata.version(name)}")
    except metadata.PackageNotFoundError:
        return Finding(False, True, f"{name} is not installed", "make setup (or pip install -e .)")


def _device() -> list[Finding]:
    device = pick_device("auto")
    dtype = str(pick_dtype("auto", device)).removeprefix("torch.")
    compiles = should_compile("auto", device)
    findings = [
        Finding(True, False, f"device {device.type}, {torch.get_num_threads()} CPU threads, precision {dtype}"),
        Finding(
            compiles, False, f"torch.compile {'works' if compiles else 'does not work'} here",
            "" if compiles else "for faster training install a C++ compiler (Debian: sudo apt install g++)",
        ),
    ]  # fmt: skip
    if device.type == "cpu" and shutil.which("nvidia-smi") and not torch.version.cuda:
        findings.append(
            Finding(
                False,
                False,
                "an NVIDIA driver is here, but torch is the CPU build",
                "make clean; make TORCH=cuda",
            )
        )
    return findings


def _tool(name: str, why: str) -> Finding:
    found = shutil.which(name) is not None
    return Finding(
        found,
        True,
        f"{name}: {'found' if found else 'missing'} ({why})",
        "" if found else f"install {name}",
    )


def _disk(root: Path) -> Finding:
    free = shutil.disk_usage(root).free / 1e9
    enough = free >= _NEEDED_GB
    return Finding(
        enough, True, f"disk: {free:.0f} GB free", "" if enough else f"free {_NEEDED_GB} GB"
    )


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available / 1e9
    enough = free >= 4
    return Finding(
        enough,
        False,
        f"memory: {free:.1f} GB free, {os.cpu_count()} cores",
        "" if enough else "the default run needs 4 GB",
    )


def _project(root: Path) -> list[Finding]:
    findings = []
    inside = (root / "params.yaml").is_file() and (root / "dvc.yaml").is_file()
    findings.append(
        Finding(inside, True, f"project folder: {'here' if inside else 'no params.yaml and dvc.yaml here'}",
                "" if inside else "cd into the clone")
    )  # fmt: skip
    for folder in ("data/corpus", "data/tokens", "models/base", "models/chat"):
        made = (root / folder / "manifest.json").is_file()
        findings.append(
            Finding(
                made,
                False,
                f"{folder}: {'made' if made else 'not made yet'}",
                "" if made else "make",
            )
        )
    return findings
