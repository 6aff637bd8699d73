"""Data and models shared through a DVC remote, a folder or S3: a second clone has the same bytes and
nothing to run."""

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny

pytestmark = pytest.mark.slow

IDENTITY = ("-c", "user.name=Deneme", "-c", "user.email=deneme@example.org")


def done(project: Path, *command: str, **more: str) -> str:
    """Run a command that must succeed; what it said on standard output."""
    result = tiny.run(project, *command, **more)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def commit(project: Path, message: str) -> None:
    done(project, "git", "add", "--all")
    done(project, "git", *IDENTITY, "commit", "--quiet", "--message", message)


def share(project: Path) -> Path:
    """What its owner does with a finished project before others use it: own text into DVC, the run
    into Git."""
    own = [f"data/own/{path.name}" for path in (project / "data/own").iterdir() if path.name != ".gitkeep"]  # fmt: skip
    done(project, "dvc", "add", "--quiet", *own)
    assert "changed deps" in done(project, "dvc", "status"), "the .dvc files lie in data/own, too"
    done(project, "dvc", "commit", "--quiet", "--force", "ingest")  # `make` would read it again
    commit(project, "the run")
    return project


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return share(tiny.copy(tiny.finished(tmp_path_factory), tmp_path_factory.mktemp("takım işi")))


def clone(project: Path, folder: Path) -> Path:
    done(project, "git", "clone", "--quiet", str(project), str(folder))
    return folder


def assert_nothing_to_do(project: Path, of: Path, *arguments: str) -> None:
    """Same bytes as in the project `of`, and neither `dvc status` nor `dvc repro` finds work."""
    assert "up to date" in done(project, "dvc", "status")
    again = done(project, "dvc", "repro", *arguments)
    assert "Running stage" not in again and again.count("didn't change, skipping") >= 14
    assert tiny.hashes(project) == tiny.hashes(of)
    done(project, "python", "-m", "sifirdan.cli", "verify", "--cache", *tiny.OUTPUTS)
    assert done(project, "git", "status", "--porcelain") == ""


def test_a_second_clone_pulls_from_a_folder_and_runs_nothing(shared: Path, tmp_path: Path) -> None:
    done(shared, "dvc", "remote", "add", "--local", "--default", "--force", "ortak", str(tmp_path / "ortak"))  # fmt: skip
    done(shared, "dvc", "push")
    second = clone(shared, tmp_path / "ikinci")
    done(second, "dvc", "remote", "add", "--local", "--default", "ortak", str(tmp_path / "ortak"))
    done(second, "dvc", "pull")
    assert_nothing_to_do(second, shared, "--pull")
    third = clone(shared, tmp_path / "üçüncü")  # without a pull before it
    done(third, "dvc", "remote", "add", "--local", "--default", "ortak", str(tmp_path / "ortak"))
    pulled = done(third, "dvc", "repro", "--pull")
    assert "Running stage" not in pulled and tiny.hashes(third) == tiny.hashes(shared)


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of an S3 server on this machine, with an empty bucket."""
    pytest.importorskip("moto")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _make_bucket(address)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=20)


KEYS = {"AWS_ACCESS_KEY_ID": "ad", "AWS_SECRET_ACCESS_KEY": "gizli", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip


def _make_bucket(address: str) -> None:
    request = urllib.request.Request(f"{address}/takim", method="PUT")
    for _ in range(200):
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except ConnectionError:
            time.sleep(0.1)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            time.sleep(0.1)
    raise AssertionError("the S3 server did not come up")


def test_a_second_clone_pulls_from_s3_and_runs_nothing(
    shared: Path, tmp_path: Path, s3: str
) -> None:
    pytest.importorskip("dvc_s3")
    keys = KEYS | {"AWS_EC2_METADATA_DISABLED": "true"}

    def set_remote(project: Path) -> None:
        done(project, "dvc", "remote", "add", "--local", "--default", "--force", "bulut", "s3://takim/sifirdan")  # fmt: skip
        done(project, "dvc", "remote", "modify", "--local", "bulut", "endpointurl", s3)

    set_remote(shared)
    pushed = done(shared, "dvc", "push", **keys)
    assert re.search(r"\d+ files pushed", pushed)
    second = clone(shared, tmp_path / "ikinci")
    set_remote(second)
    done(second, "dvc", "pull", **keys)
    assert "up to date" in done(second, "dvc", "status")
    assert tiny.hashes(second) == tiny.hashes(shared)
    assert "gizli" not in (second / ".dvc/config").read_text(encoding="utf-8")
