"""Who is at work on the project, read from DVC's lock files; real processes stand for DVC."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifirdan import dvc_busy
from sifirdan.errors import ConfigError

PROGRAM = """
import fcntl, sys
lock = open(".dvc/tmp/lock")
fcntl.flock(lock, fcntl.LOCK_EX)
print("on", flush=True)
sys.stdin.readline()
fcntl.flock(lock, fcntl.LOCK_UN)
print("off", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dvc_busy, "PAUSE_SECONDS", 0.02)
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def dvc(project: Path) -> Iterator[subprocess.Popen]:
    """A program called dvc, at work in the project until its standard input ends; it holds the lock."""
    program = project.parent / "bin/dvc"
    program.parent.mkdir(exist_ok=True)
    program.write_text(PROGRAM, encoding="utf-8")
    (project / ".dvc/tmp/lock").touch()
    process = subprocess.Popen(
        [sys.executable, str(program), "repro", "--keep-going"], cwd=project,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "on\n"
    yield process
    process.kill()
    process.communicate()


def note(project: Path, pid: int) -> Path:
    path = project / ".dvc/tmp/rwlock"
    row = {"pid": pid, "cmd": "dvc repro"}
    content = {"write": {str(project / "data/raw"): row}, "read": {str(project / "x"): [row]}}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_D_03_a_running_command_is_named_and_waited_for(
    project: Path, dvc: subprocess.Popen, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    path = note(project, dvc.pid)
    assert dvc_busy.holder(project) == dvc_busy.Holder(
        dvc.pid, "dvc repro --keep-going", "data/raw"
    )
    waits = []

    def end(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            dvc.communicate()  # it ends

    monkeypatch.setattr("time.sleep", end)
    caplog.set_level(logging.INFO)
    dvc_busy.wait_for_turn(project)
    assert len(waits) == 3 and len(caplog.messages) == 1
    assert f"process {dvc.pid} (dvc repro --keep-going, making data/raw)" in caplog.text
    assert path.exists()  # DVC itself removes what a dead process noted


def test_D_03_between_stages_the_other_lock_is_read(project: Path, dvc: subprocess.Popen) -> None:
    (project / ".dvc/tmp/lock").write_text(f" {dvc.pid}\n", encoding="utf-8")
    assert dvc_busy.holder(project) == dvc_busy.Holder(dvc.pid, "dvc repro --keep-going", "")
    assert dvc.stdin and dvc.stdout
    dvc.stdin.write("\n")
    dvc.stdin.flush()
    assert dvc.stdout.readline() == "off\n"
    assert dvc_busy.holder(project) is None  # `dvc exp run --temp`, at work in its copy
    other = project / "başka"
    (other / ".dvc/tmp").mkdir(parents=True)
    note(other, dvc.pid)
    assert dvc_busy.holder(other) is None  # it works on another project


def test_D_03_the_lock_of_a_killed_command_is_removed_when_its_number_lives_on(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = note(project, os.getpid())
    caplog.set_level(logging.INFO)
    dvc_busy.wait_for_turn(project)
    assert not path.exists()
    assert "removed the lock of a killed command" in caplog.text and "data/raw" in caplog.text


def test_D_03_a_lock_file_that_is_being_written_is_read_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / ".dvc/tmp/rwlock"
    path.touch()
    monkeypatch.setattr("time.sleep", lambda _: path.write_text("{}", encoding="utf-8"))
    assert dvc_busy.holder(project) is None
    assert path.read_text(encoding="utf-8") == "{}"


def test_D_03_a_damaged_lock_file_says_what_to_do(project: Path) -> None:
    (project / ".dvc/tmp/rwlock").write_text('{"write": ', encoding="utf-8")
    with pytest.raises(ConfigError, match="(?s)is damaged.*no dvc command runs: rm .*rwlock"):
        dvc_busy.wait_for_turn(project)


def test_a_project_without_lock_files_is_free(tmp_path: Path) -> None:
    dvc_busy.wait_for_turn(tmp_path)
