"""A pipeline that is killed in every stage ends with the same bytes as one that is left alone."""

import random
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import tiny
from tiny import STAGES

from sifirdan import runs, track_record

pytestmark = pytest.mark.slow

OTHER_STAGES = ["ingest", "clean", "train_tokenizer", "tokenize_corpus", "evaluate_base", "prepare_chat"]  # fmt: skip
PATIENCE = 120.0  # seconds for a stage to come to the moment it is killed at


class Repro:
    """A `dvc repro` in the background; its words go to a file."""

    def __init__(self, project: Path, name: str) -> None:
        self.log = project.parent / f"{name}.log"
        with open(self.log, "w", encoding="utf-8") as file:
            self.process = psutil.Popen(
                ["dvc", "repro"], cwd=project, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                env=tiny.environment(project, PYTHONHASHSEED="2"),
            )  # fmt: skip

    def wait_for(self, stage: str, moment: Callable[[], bool]) -> psutil.Process:
        """The process of `stage`, as soon as it runs and `moment` has come."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            if (process := self._find(stage)) and moment():
                return process
            time.sleep(0.003)
        raise AssertionError(f"{stage} never came to its moment:\n{self.said()}")

    def kill(self, stage: psutil.Process) -> bool:
        """kill -9 of DVC first, so that it can tidy up nothing, then of all it started; returns
        whether the stage was still at work."""
        hit = stage.is_running() and stage.status() != psutil.STATUS_ZOMBIE
        below = self.process.children(recursive=True)
        for process in [self.process, *below]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs([self.process, *below], timeout=20)
        return hit

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def _find(self, stage: str) -> psutil.Process | None:
        module = "stages." + stage.removesuffix("_base")
        for process in self.process.children(recursive=True):
            try:
                if process.cmdline()[1:3] == ["-m", module]:
                    return process
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return None


@dataclass
class Interrupted:
    """A project that was stopped again and again: which stages were hit at work, and what each
    `dvc repro` said."""

    project: Path
    hits: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)

    def kill(self, stage: str, moment: Callable[[], bool], delay: float, name: str = "") -> None:
        repro = Repro(self.project, name or stage)
        process = repro.wait_for(stage, moment)
        time.sleep(delay)
        if repro.kill(process):
            self.hits.append(stage)
        self.said[name or stage] = repro.said()
        for folder in filter(Path.exists, (self.project / out for out in tiny.OUTPUTS)):
            assert not runs.check_files(folder, runs.read_manifest(folder)), f"after {stage}"

    def ask_to_stop(self, stage: str, moment: Callable[[], bool]) -> None:
        repro = Repro(self.project, f"{stage}-asked")
        repro.wait_for(stage, moment).terminate()
        assert repro.process.wait(timeout=60) != 0
        self.said[f"{stage}-asked"] = repro.said()

    def finish(self) -> None:
        repro = Repro(self.project, "finish")
        code = repro.process.wait(timeout=300)
        self.said["finish"] = repro.said()
        assert code == 0, repro.said()

    def writing(self, folder: str) -> Callable[[], bool]:
        """The moment at which the output `folder` is being built."""
        final = self.project / folder
        return lambda: (final.parent / f".{final.name}.partial").exists()

    def saved(self, stage: str, step: int) -> Callable[[], bool]:
        """The moment at which the training state of a step from `step` on is on the disk."""
        states = self.project / "models/.resume" / stage
        return lambda: any(int(p.name[5:]) >= step for p in states.glob("*/step-*"))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = tmp_path_factory.mktemp("resume") / "yarıda kalan"
    it, rng = Interrupted(tiny.make_project(folder / "ığdır projesi")), random.Random(20)
    for number, stage in enumerate(OTHER_STAGES[:4]):
        kill_somewhere(it, stage, number, rng)
    it.kill("train", it.saved("train", 1), rng.uniform(0, 0.3))
    it.kill("train", it.writing("models/base"), rng.uniform(0, 0.02), "train at its end")
    for number, stage in enumerate(OTHER_STAGES[4:]):
        kill_somewhere(it, stage, number, rng)
    it.ask_to_stop("finetune", it.saved("finetune", 1))
    it.kill("finetune", it.saved("finetune", 20), rng.uniform(0, 0.2))
    it.finish()
    return it


def kill_somewhere(it: Interrupted, stage: str, number: int, rng: random.Random) -> None:
    """In turn while the stage builds its output, and anywhere from its start on."""
    if number % 2 == 0:
        it.kill(stage, it.writing(STAGES[stage][0]), rng.uniform(0, 0.1))
    else:
        it.kill(stage, lambda: True, rng.uniform(0, 2.5))


def resumed_steps(said: str) -> list[int]:
    return [int(step) for step in re.findall(r"resume: continuing at step (\d+) of", said)]


def test_R_01_killed_in_every_stage_ends_with_the_same_bytes_as_left_alone(
    interrupted: Interrupted, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # The other run has another folder and another PYTHONHASHSEED, too.
    alone = tiny.finished(tmp_path_factory)
    assert alone.returncode == 0, alone.stderr
    assert interrupted.hits.count("train") == 2 and "finetune" in interrupted.hits
    assert len(set(interrupted.hits)) >= 6, "too few kills came while the stage was at work"
    assert tiny.hashes(interrupted.project) == tiny.hashes(alone.path)


def test_D_01_training_goes_on_at_a_saved_step(interrupted: Interrupted) -> None:
    said = interrupted.said
    assert resumed_steps(said["train"]) == []
    (second,), (last,) = (
        resumed_steps(said[name]) for name in ("train at its end", "evaluate_base")
    )
    assert 0 < second < last == 80


def test_asked_to_stop_the_state_of_that_step_is_kept(interrupted: Interrupted) -> None:
    asked = interrupted.said["finetune-asked"]
    assert "stopped; run the same command again to continue" in asked and "Traceback" not in asked
    (first,), (second,) = map(
        resumed_steps, (interrupted.said["finetune"], interrupted.said["finish"])
    )
    assert 0 < first < second


def test_R_03_nothing_half_written_stays(interrupted: Interrupted) -> None:
    assert not tiny.leftovers(interrupted.project)
    assert not list((interrupted.project / "models/.resume").glob("*/*"))
    assert "up to date" in tiny.run(interrupted.project, "dvc", "status").stdout


def test_M_06_the_tracked_curve_is_one_line(interrupted: Interrupted) -> None:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{interrupted.project}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "sifirdan"]
    for stage in ("train", "finetune"):
        filter_string = f"tags.stage = '{stage}' and attributes.status = 'FINISHED'"
        (run,) = client.search_runs([experiment.experiment_id], filter_string)
        curve = track_record.read_curve(interrupted.project / f"reports/{stage}/curve.jsonl")
        expected = [step for step, values in curve if "loss" in values]
        name = track_record.metric_name(stage, "loss")
        tracked = client.get_metric_history(run.info.run_id, name)
        assert sorted(point.step for point in tracked) == expected
