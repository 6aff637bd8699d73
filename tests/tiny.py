"""A tiny project of its own in a temporary folder, and the commands of a user in it.

`make_project` copies the working tree into a fresh Git repository with presets/tiny.yaml as its
params.yaml and the project's own Turkish text; no network, no file of the developer's own runs.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from artifacts import build_all, offline_pip

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
MADE_BY_RUNS = ("dvc.lock", "metrics/")  # tracked, but of the developer's own runs


def make_project(folder: Path, *, sources: bool = True) -> Path:
    """A clean clone of the working tree in `folder`, ready for `repro`; with `sources`, tiny
    packages stand for the default sources."""
    folder.mkdir(parents=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(MADE_BY_RUNS):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "presets/tiny.yaml", folder / "params.yaml")
    if sources:
        packages = build_all(folder.parent / "packages")
        edit_params(folder, lambda params: params["ingest"].update(sources=packages))
    fill_own_text(folder / "data/own")
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "tiny"]):
        identity = ["-c", "user.name=Deneme", "-c", "user.email=deneme@example.org"]
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return folder


def fill_own_text(folder: Path) -> None:
    """Copies of tests/data; of the long texts each paragraph also as a document of its own, so that
    there are enough for all splits."""
    for path in DATA.iterdir():
        shutil.copy(path, folder / path.name)
    paragraphs = [
        json.dumps({"text": part}, ensure_ascii=False) + "\n"
        for path in sorted(DATA.glob("*.txt"))
        for part in path.read_text(encoding="utf-8").split("\n\n")
        if part.strip()
    ]
    (folder / "paragraflar.jsonl").write_text("".join(paragraphs), encoding="utf-8")


def edit_params(project: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply `change` to the content of the project's params.yaml."""
    path = project / "params.yaml"
    params = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(params)
    path.write_text(yaml.safe_dump(params, allow_unicode=True, sort_keys=False), encoding="utf-8")


def environment(project: Path, **more: str) -> dict[str, str]:
    """The variables commands run with: this environment's programs first, one thread, no network,
    no tracking store but the project's own."""
    ours = ("MLFLOW", "DVC", "PIP_", "HF_", "TORCHINDUCTOR", "SIFIRDAN", "PYTHONPATH", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    fixed = {"PATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DVC_NO_ANALYTICS": "1"}
    cache = {"HF_HOME": str(project.parent / "hf"), "MLFLOW_DISABLE_TELEMETRY": "true"}
    return kept | fixed | cache | offline_pip(project.parent / "packages") | more


def run(project: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder; what it says is captured."""
    return subprocess.run(
        command, cwd=project, env=environment(project, **more), stdin=subprocess.DEVNULL,
        capture_output=True, encoding="utf-8", errors="replace", timeout=500,
    )  # fmt: skip


def repro(project: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`dvc repro` in the project's folder."""
    return run(project, "dvc", "repro", *arguments, **more)
