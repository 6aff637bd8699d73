"""`python -m stages.clean` killed anywhere, or one of its workers, and run again: the same bytes as if
nothing had happened, nothing half-written, nothing that hangs."""

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import corpora
import psutil
import pytest
import tiny

pytestmark = pytest.mark.slow

PATIENCE = 60.0  # seconds until the stage must have ended, or come to a moment
OUTPUTS = ("data/corpus", "reports/corpus")
# Many small batches, so that there is a time for kills to come in.
INGEST = """
from sifirdan.corpus import records
from sifirdan.errors import run_command
from stages import ingest
records.ROW_GROUP_CHARS = 2000
run_command(ingest.main)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with data/raw, and the outputs of one undisturbed run in the folder `alone`."""
    project = tiny.make_project(tmp_path_factory.mktemp("killed") / "ığdır proje", sources=False)
    texts = corpora.texts(900)
    corpora.write_jsonl(project / "data/own/a.jsonl", [*texts, *texts[::7], "kısa"])
    tiny.edit_params(project, lambda params: params["runtime"].update(corpus_workers=2))
    assert tiny.run(project, "python", "-c", INGEST).returncode == 0
    done = tiny.run(project, "python", "-m", "stages.clean")
    assert done.returncode == 0, done.stderr
    for name in OUTPUTS:
        shutil.move(project / name, project.parent / "alone" / name)
    return project


class Clean:
    """The stage in the background; its words go to a file."""

    def __init__(self, project: Path) -> None:
        self.project, self.log = project, project.parent / "clean.log"
        with open(self.log, "w", encoding="utf-8") as file:
            self.process = psutil.Popen(
                ["python", "-m", "stages.clean"], cwd=project, env=tiny.environment(project),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip

    def wait_for(self, moment: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and not moment():
            assert time.monotonic() < end, self.said()
            time.sleep(0.002)

    def begun(self) -> bool:
        """The text is being worked on: the output exists under its temporary name."""
        return (self.project / "data/.corpus.partial").exists()

    def workers(self) -> list[psutil.Process]:
        try:
            children = self.process.children()
            return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        except psutil.NoSuchProcess:
            return []

    def ended(self) -> int:
        try:
            return int(self.process.wait(timeout=PATIENCE))
        except psutil.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the stage hangs:\n{self.said()}") from None

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")


def leftovers(project: Path) -> list[str]:
    """What stands in the folders of the outputs, beside outputs and locks."""
    found = [*(project / "data").iterdir(), *(project / "reports").iterdir()]
    names = {path.relative_to(project).as_posix() for path in found if path.suffix != ".lock"}
    expected = {"data/raw", "data/own", "data/own_chat", "data/README.md", "data/.cache"}
    return sorted(names - expected - {"data/.gitignore", "reports/.gitignore", "reports/README.md"})


def check_like_alone(project: Path) -> None:
    alone = [project.parent / "alone" / name for name in OUTPUTS]
    expected = corpora.file_bytes(*alone)
    found = corpora.file_bytes(*(project / name for name in OUTPUTS))
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert leftovers(project) == sorted(OUTPUTS)


def remove_outputs(project: Path) -> None:
    for name in OUTPUTS:
        shutil.rmtree(project / name, ignore_errors=True)


@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_and_run_again_gives_the_same_bytes(prepared: Path, seed: int) -> None:
    rng = random.Random(seed)
    remove_outputs(prepared)
    for _ in range(2):
        stage = Clean(prepared)
        if rng.random() < 0.8:
            stage.wait_for(stage.begun)
        time.sleep(rng.uniform(0, 4))
        below = stage.process.children(recursive=True) if stage.process.is_running() else []
        stage.process.kill()
        stage.ended()
        _, alive = psutil.wait_procs(below, timeout=PATIENCE)
        assert not alive, "workers outlive their parent"
        for name in OUTPUTS:  # whole or not there
            if (prepared / name).exists():
                assert (prepared / name / "manifest.json").exists()
    done = tiny.run(prepared, "python", "-m", "stages.clean")
    assert done.returncode == 0, done.stderr
    check_like_alone(prepared)


def test_a_killed_worker_ends_in_one_clear_message_or_in_the_same_bytes(prepared: Path) -> None:
    rng, failed = random.Random(4), 0
    for _ in range(3):
        remove_outputs(prepared)
        stage = Clean(prepared)
        stage.wait_for(stage.workers)
        time.sleep(rng.uniform(0, 2))
        for worker in stage.workers()[:1]:
            worker.kill()
        if stage.ended():
            failed += 1
            said = stage.said()
            assert "DataError: a worker process was ended from outside" in said
            assert "what to do:" in said and "Traceback" not in said
            assert leftovers(prepared) == []
        else:
            check_like_alone(prepared)
    assert failed, "no kill came while a worker was at work"
    assert tiny.run(prepared, "python", "-m", "stages.clean").returncode == 0
    check_like_alone(prepared)
