"""docs/colab.ipynb from its first cell to its last, as a reader runs it, on the tiny preset.

The notebook clones a local repository; `make` finds an environment that looks freshly installed (this
one, under another name) and so installs nothing. No network.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import tiny
from nbclient import NotebookClient

NOTEBOOK = tiny.ROOT / "docs/colab.ipynb"


def test_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or (not cell.outputs and cell.execution_count is None)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_every_cell_runs_and_the_model_answers(tmp_path: Path) -> None:
    upstream = make_upstream(tmp_path / "upstream")
    venv = installed_environment(tmp_path / "venv")
    port = free_port()
    environment = tiny.environment(
        upstream,
        SIFIRDAN_REPO=str(upstream),
        SIFIRDAN_PRESET="tiny",
        SIFIRDAN_PORT=str(port),
        VENV=str(venv),
        IPYTHONDIR=str(tmp_path / "ipython"),
    )
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute(env=environment)

    said = [printed(cell) for cell in notebook.cells]
    clone = tmp_path / "sifirdan"
    assert "params.yaml is now the preset tiny" in said[4]
    assert "Installing" not in said[4]
    assert said[6].strip() == (clone / "reports/index/card.txt").read_text(encoding="utf-8").strip()
    assert said[8].startswith(f"http://127.0.0.1:{port}/#/experiments/")
    assert said[11].startswith("“Deniz” ne demek?\n")
    assert said[13].count("Bir gün") == 3
    assert not is_open(port), "the kernel has ended, MLflow's server has not"
    assert git_status(clone) == [" M params.yaml", "?? dvc.lock", "?? metrics/"]


def make_upstream(folder: Path) -> Path:
    """A repository to clone: the working tree, with a preset `tiny` that reads the tiny packages,
    and text in data/own, which a clone would lack otherwise."""
    tiny.make_project(folder)
    shutil.move(folder / "params.yaml", folder / "presets/tiny.yaml")
    shutil.copy(tiny.ROOT / "params.yaml", folder / "params.yaml")
    for command in (["add", "--all", "--force", "data/own", "."], ["commit", "--quiet", "-m", "x"]):
        identity = ["-c", "user.name=Deneme", "-c", "user.email=deneme@example.org"]
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return folder


def installed_environment(folder: Path) -> Path:
    """This environment under another name, with the mark that `make` leaves after installing, dated
    an hour ahead: it has to be newer than the files of a clone that is yet to be made."""
    folder.mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".installed":
            (folder / path.name).symlink_to(path)
    mark = folder / ".installed"
    mark.touch()
    later = time.time() + 3600
    os.utime(mark, (later, later))
    return folder


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell wrote to its standard output."""
    outputs = cell.get("outputs", [])
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def git_status(folder: Path) -> list[str]:
    command = ["git", "status", "--porcelain"]
    result = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return result.stdout.decode().splitlines()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
