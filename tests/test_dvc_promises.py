"""What DVC leaves open and the project promises, on the tiny project: rows D-02, D-03 and D-06."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import tiny

from sifirdan import dvc_cache

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.copy(tiny.finished(tmp_path_factory), tmp_path_factory.mktemp("dvc"))


def verify(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return tiny.run(project, "python", "-m", "sifirdan.cli", "verify", *arguments)


def test_D_02_dvc_trusts_a_damaged_object_and_verify_names_it(project: Path) -> None:
    cache = dvc_cache.cache_folder(project)
    (out,) = [o for o in dvc_cache.workspace_outs(project) if o.path == "models/base"]
    damaged = dvc_cache.object_path(
        cache, dvc_cache.members(cache, out.object)["model.safetensors"]
    )
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(content)
    damaged.chmod(0o444)
    assert "up to date" in tiny.run(project, "dvc", "status").stdout  # the reason for this command
    found = verify(project, "--cache", "models/base")
    assert found.returncode == 1 and "models/base: whole" in found.stdout
    named = damaged.relative_to(project).as_posix()
    assert f"{named}: is damaged" in found.stdout
    assert "used by models/base/model.safetensors" in found.stdout
    assert f"rm -f {named}" in found.stdout and "dvc commit -f train" in found.stdout
    damaged.unlink()  # as it says
    assert tiny.run(project, "dvc", "commit", "-f", "train").returncode == 0
    assert dvc_cache.check_cache(project).problems == []


class Background:
    """A command in the project, its words in a file."""

    def __init__(self, project: Path, name: str, *command: str) -> None:
        self.log = project.parent / f"{name}.log"
        with open(self.log, "w", encoding="utf-8") as file:
            self.process = psutil.Popen(
                command, cwd=project, env=tiny.environment(project), stdin=subprocess.DEVNULL,
                stdout=file, stderr=file,
            )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + 90
        while words not in self.said():
            assert time.monotonic() < end and self.process.is_running(), self.said()
            time.sleep(0.05)

    def kill(self) -> None:
        for process in [*self.process.children(recursive=True), self.process]:
            process.kill()
        self.process.wait(timeout=20)


@pytest.fixture
def first(project: Path) -> Iterator[Background]:
    """A `dvc repro` whose first stage is at work."""
    seed = int(time.time())  # another than any run before it
    tiny.edit_params(project, lambda params: params["report"].update(samples_on_card=seed))
    running = Background(project, "first", "dvc", "repro", "--single-item", "report")
    running.wait_for("Running stage 'report'")
    yield running
    if running.process.is_running():
        running.kill()


def test_D_03_a_second_make_waits_and_a_second_repro_harms_nothing(
    project: Path, first: Background
) -> None:
    second = tiny.repro(project, "--single-item", "report")  # what DVC does by itself
    assert second.returncode != 0 and "PID" in second.stdout + second.stderr
    make = tiny.run(project, "python", "-m", "stages")  # what `make` does before its `dvc repro`
    assert make.returncode == 0 and "waiting until it ends" in make.stderr
    assert (
        f"process {first.process.pid} (dvc repro --single-item report, making reports/index)"
        in make.stderr
    )
    assert first.process.wait(timeout=60) == 0, first.said()
    assert "up to date" in tiny.run(project, "dvc", "status").stdout


def test_D_03_after_a_kill_the_next_make_runs(project: Path, first: Background) -> None:
    first.kill()
    lock = project / ".dvc/tmp/rwlock"
    assert str(first.process.pid) in lock.read_text(encoding="utf-8")
    # the system gives the number to another program, as a container does with number 1
    other = subprocess.Popen(["sleep", "60"], cwd=project)
    try:
        noted = lock.read_text(encoding="utf-8").replace(str(first.process.pid), str(other.pid))
        lock.write_text(noted, encoding="utf-8")
        stuck = tiny.repro(project, "--single-item", "report")
        assert stuck.returncode != 0 and "is busy" in stuck.stderr + stuck.stdout
        make = tiny.run(project, "python", "-m", "stages")
        assert make.returncode == 0 and "removed the lock of a killed command" in make.stderr
        done = tiny.repro(project, "--single-item", "report")
        assert done.returncode == 0 and "Running stage 'report'" in done.stdout, done.stderr
    finally:
        other.kill()
        other.wait()


def test_D_06_a_failing_last_stage_leaves_every_output_ignored_by_git(
    project: Path, tmp_path: Path
) -> None:
    def kept() -> dict[str, bytes]:
        found = [p for p in project.rglob(".gitignore") if ".venv" not in p.parts]
        return {path.relative_to(project).as_posix(): path.read_bytes() for path in found}

    before = kept()
    shutil.rmtree(project / "reports/tokenizer")
    wrong = {"report": {"samples_on_card": -1}, "evaluate_tokenizer": {"chains_a_stem": 5}}
    tiny.edit_params(project, lambda params: [params[s].update(v) for s, v in wrong.items()])
    done = tiny.repro(project, "--keep-going")
    assert done.returncode != 0 and "Running stage 'evaluate_tokenizer'" in done.stdout
    assert "report.samples_on_card is -1" in done.stderr
    assert kept() == before and ".gitignore" in before
    outs = [out for out in tiny.OUTPUTS if (project / out).exists()]
    assert "reports/tokenizer" in outs and "models/base" in outs
    ignored = tiny.run(project, "git", "check-ignore", *outs).stdout.split()
    assert ignored == outs
    added = tiny.run(project, "git", "add", "--all", "--dry-run").stdout
    names = {line.split("'")[1] for line in added.splitlines()}
    assert names and all(
        n in ("dvc.lock", "params.yaml") or n.startswith("metrics/") for n in names
    )
