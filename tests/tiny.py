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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from artifacts import build_all, offline_pip, sha256_of
from filelock import FileLock

from sifirdan.config import read_yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
# tracked, but of the developer's own runs
MADE_BY_RUNS = ("dvc.lock", "metrics/", "reference/run.json", "reference/noise.json")
STAGES = {  # in the order they run, with the folders they make
    "ingest": ("data/raw",),
    "clean": ("data/corpus", "reports/corpus"),
    "train_tokenizer": ("models/tokenizer",),
    "evaluate_tokenizer": ("reports/tokenizer",),
    "tokenize_corpus": ("data/tokens",),
    "train": ("models/base", "reports/train"),
    "evaluate_base": ("reports/evaluate/base",),
    "prepare_chat": ("data/chat",),
    "finetune": ("models/chat", "reports/finetune"),
    "evaluate_chat": ("reports/evaluate/chat",),
    "report": ("reports/index",),
    "publish_tokenizer": ("reports/publish/tokenizer",),
    "publish_base": ("reports/publish/base",),
    "publish_chat": ("reports/publish/chat",),
}
OUTPUTS = [folder for folders in STAGES.values() for folder in folders]


@dataclass(frozen=True)
class Finished:
    """A tiny project whose `dvc repro` has run to its end, and what that said."""

    project: str
    returncode: int
    stdout: str
    stderr: str
    recorded: str  # folder of what tests/recorder noted

    @property
    def path(self) -> Path:
        return Path(self.project)


def finished(factory: pytest.TempPathFactory) -> Finished:
    """The one finished project of this test run, whichever worker asks first. Read only: to change
    something take a `copy`."""
    shared = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    note = shared / "finished.json"
    with FileLock(shared / "finished.lock"):
        if not note.exists():
            project, records = make_project(shared / "finished" / "proje"), shared / "records"
            records.mkdir()
            recorder = {"PYTHONPATH": str(ROOT / "tests/recorder"), "RECORD_FOLDER": str(records)}
            done = repro(project, PYTHONHASHSEED="1", **recorder)
            result = (str(project), done.returncode, done.stdout, done.stderr, str(records))
            note.write_text(json.dumps(asdict(Finished(*result))), encoding="utf-8")
    return Finished(**json.loads(note.read_text(encoding="utf-8")))


def copy(finished: Finished, folder: Path) -> Path:
    """A copy of the finished project, to change and run again."""
    return shutil.copytree(finished.path, folder / "proje", symlinks=True)


def hashes(project: Path) -> dict[str, str]:
    """The sha256 of every output's manifest, which names every file in it, and of the weights."""
    files = [f"{out}/manifest.json" for out in OUTPUTS]
    files += [f"models/{name}/model.safetensors" for name in ("base", "chat")]
    files += [f"metrics/{stage}.json" for stage in STAGES]
    return {name: sha256_of(project / name) for name in files}


def leftovers(project: Path) -> list[str]:
    """Half-written or replaced things that a stage should have removed."""
    found = [p for kind in (".partial", ".old", ".scratch") for p in project.rglob(f".*{kind}")]
    return [path.relative_to(project).as_posix() for path in found if ".git" not in path.parts]


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
    """The files of tests/data; each paragraph of the long texts, but for one of them, is a document of
    its own, so that there are enough for all splits."""
    paragraphs = []
    for path in filter(Path.is_file, sorted(DATA.iterdir())):
        if path.suffix != ".txt" or path.name == "doga.txt":
            shutil.copy(path, folder / path.name)
        else:
            parts = path.read_text(encoding="utf-8").split("\n\n")
            paragraphs += [json.dumps({"text": part}, ensure_ascii=False) + "\n" for part in parts]
    (folder / "paragraflar.jsonl").write_text("".join(paragraphs), encoding="utf-8")


def edit_params(project: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply `change` to the content of the project's params.yaml."""
    path = project / "params.yaml"
    params = read_yaml(path)
    change(params)
    path.write_text(yaml.safe_dump(params, allow_unicode=True, sort_keys=False), encoding="utf-8")


def environment(project: Path, **more: str) -> dict[str, str]:
    """The variables commands run with: this environment's programs first, one thread, no network,
    no tracking store but the project's own."""
    ours = ("MLFLOW", "DVC", "PIP_", "HF_", "TORCHINDUCTOR", "SIFIRDAN", "PYTHONPATH", "PYTEST")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith((*ours, "PET_"))
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    fixed = {"PATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DVC_NO_ANALYTICS": "1"}
    cache = {"HF_HOME": str(project.parent / "hf"), "MLFLOW_DISABLE_TELEMETRY": "true"}
    packages = project.parent / "packages"
    links = {"PIP_FIND_LINKS": packages.as_uri()}  # pip splits a plain path at its spaces
    return kept | fixed | cache | offline_pip(packages) | links | more


def run(project: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's folder; what it says is captured."""
    return subprocess.run(
        command, cwd=project, env=environment(project, **more), stdin=subprocess.DEVNULL,
        capture_output=True, encoding="utf-8", errors="replace", timeout=500,
    )  # fmt: skip


def repro(project: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`dvc repro` in the project's folder."""
    return run(project, "dvc", "repro", *arguments, **more)
