"""Stages in scratch folders: a folder that looks like this project to a stage, and the stages run in it
as processes. What the project holds (models, metrics, tracking store) stays as it is.

`sifirdan noise` and `sifirdan sweep` train in such folders. Not for what is repeated or compared.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.config import PARAMS_FILE, read_yaml
from sifirdan.errors import ConfigError, DataError

READ = {"data/corpus": "clean", "data/tokens": "tokenize_corpus"}  # and the stage that makes it
READ |= {"models/tokenizer": "train_tokenizer"}
_STOP_SECONDS = 20.0  # for a training process to save its state, which is thrown away
_SPEED = re.compile(r"\btokens_per_second=(\d+)")  # as the training loop's lines say it


def hashes(project: Path, needed: Mapping[str, str]) -> dict[str, str]:
    """The manifest hashes of folders that stages read; refuses where one was not made."""
    return {
        folder: runs.read_manifest(project / folder, made_by=stage).sha256
        for folder, stage in needed.items()
    }


def sections(project: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """These sections of params.yaml, as they stand there."""
    content = read_yaml(project / PARAMS_FILE)
    for name in names:
        if not isinstance(content.get(name), dict):
            raise ConfigError(f"{PARAMS_FILE}: the section '{name}' is missing")
    return {name: dict(content[name]) for name in names}


def seeded(
    params: Mapping[str, Mapping[str, Any]], seed: int, project: Path
) -> dict[str, dict[str, Any]]:
    """The params of one run: with this seed for training, and paths that hold from everywhere."""
    made = {section: dict(values) for section, values in params.items()}
    for section in ("train", "finetune"):
        if section in made:
            made[section]["seed"] = seed
    if made["train"].get("init_from") is not None:
        made["train"]["init_from"] = str((project / made["train"]["init_from"]).resolve())
    return made


def code(project: Path, stages: Sequence[str]) -> dict[str, str]:
    """The hashes of the code that these stages run, as dvc.yaml lists it."""
    listed = read_yaml(project / "dvc.yaml").get("stages", {})
    files = {dep for name in stages for dep in listed.get(name, {}).get("deps", [])}
    return {
        name: runs.sha256_of(project / name) for name in sorted(files) if (project / name).is_file()
    }


@contextlib.contextmanager
def scratch(kept: Path) -> Iterator[Path]:
    """A folder in `kept` that goes with all in it, also one that a killed process left."""
    for left in kept.glob(".work-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=".work-", dir=kept))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lay_out(source: Path, folder: Path, params: Mapping[str, Mapping[str, Any]]) -> None:
    """Make `folder` look like the project in `source` to a stage, with other params."""
    (folder / "data").mkdir(parents=True)
    (folder / "models").mkdir()
    for path in (*(source / "data").iterdir(), source / "models/tokenizer"):
        if path.is_dir():
            _link(path, folder / path.relative_to(source))
    runs.write_json(folder / PARAMS_FILE, params)  # JSON is YAML


def _link(source: Path, target: Path) -> None:
    try:
        os.symlink(source.resolve(), target, target_is_directory=True)
    except OSError:  # Windows lets only some users link
        shutil.copytree(source, target)


def remove(path: Path) -> None:
    """A folder, or the link to one, that a scratch folder no longer needs."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def environment(project: Path, work: Path) -> dict[str, str]:
    """That of this process, but with the project's code, a tracking store in `work`, which is thrown
    away, and no word of a DVC command that this one may run in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    paths = [str(project.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    store = f"sqlite:///{(work / 'mlflow.db').resolve().as_posix()}"
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "MLFLOW_TRACKING_URI": store}


def run_stage(command: str, folder: Path, environment: Mapping[str, str], *, of: str) -> float:
    """Run `python -m stages.<command>` in `folder`; returns the tokens per second that it said last, 0
    where it said none. DataError where it fails; `of` says in that error what it was run for."""
    name, *arguments = command.split(" ")
    process = subprocess.Popen(
        [sys.executable, "-m", f"stages.{name}", *arguments],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    speed = 0.0
    try:
        assert process.stderr is not None
        with process.stderr as said:
            for line in said:
                sys.stderr.write(line)
                if found := _SPEED.search(line):
                    speed = float(found[1])
        returned = process.wait()
    except BaseException:  # Ctrl-C may have come to us alone
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if returned:
        raise DataError(
            f"{of}: `python -m stages.{command}` ended with exit code {returned}",
            expected="0; what it said stands above",
            todo="mend that, then run the same command again: finished runs are kept",
        )
    return speed
