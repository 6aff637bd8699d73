"""`dvc exp run` on the tiny project, as a sweep from the queue and in a copy: none loses its run, its
numbers or its outputs.

The changed setting is of the last stage, so that all others come from the cache.
"""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from test_teams import commit, done, share
from tiny import Finished

from sifirdan import disk

pytestmark = pytest.mark.slow

KEY = "report.samples_on_card"
PATIENCE = 240.0  # seconds for the queue to be empty


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return tiny.finished(tmp_path_factory)


@pytest.fixture(scope="module")
def tried(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after a sweep of three in the queue, of which the first cannot succeed, by two
    workers."""
    project = share(tiny.copy(finished, tmp_path_factory.mktemp("denemeler")))
    done(project, "dvc", "exp", "run", "--queue", "-S", f"{KEY}=-1,0,1")
    with open(project.parent / "queue.log", "w", encoding="utf-8") as log:  # workers keep it open
        subprocess.run(
            ["dvc", "queue", "start", "-j", "2"], cwd=project, env=tiny.environment(project),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True,
        )  # fmt: skip
    end = time.monotonic() + PATIENCE
    while len(experiments(project)) < 2 or "celery/failed" not in refs(project):
        assert time.monotonic() < end, done(project, "dvc", "queue", "status")
        time.sleep(1)
    while "0 active" not in done(project, "dvc", "queue", "status"):
        time.sleep(1)
    return project


def refs(project: Path) -> str:
    return done(project, "git", "for-each-ref", "--format=%(refname)", "refs/exps")


def experiments(project: Path) -> dict[str, str]:
    """From an experiment's name to its reference."""
    names = [ref for ref in refs(project).split() if disk.EXPERIMENT.match(ref)]
    return {ref.rsplit("/", 1)[1]: ref for ref in names}


def pipelines(project: Path) -> dict[str, list[Any]]:
    """The pipeline runs of experiments in the store, by the experiment's name."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{project}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "sifirdan"]
    found: dict[str, list[Any]] = {}
    for run in client.search_runs([experiment.experiment_id]):
        if "mlflow.parentRunId" not in run.data.tags and "dvc.exp.name" in run.data.tags:
            run.curve = client.get_metric_history(run.info.run_id, "train/loss")
            run.files = [
                file.path
                for child in client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
                for file in client.list_artifacts(child.info.run_id)
            ]  # fmt: skip
            found.setdefault(run.data.tags["dvc.exp.name"], []).append(run)
    return found


def test_every_experiment_has_its_run_with_its_numbers_and_curve(tried: Path) -> None:
    kept, runs = experiments(tried), pipelines(tried)
    assert {len(same) for same in runs.values()} == {1} and len(runs) == 3
    values = set()
    for name, ref in kept.items():
        (run,) = runs[name]
        assert run.info.status == "FINISHED" and run.info.run_name == name
        assert len(run.curve) == 80 and len(run.data.metrics) > 400
        made = json.loads(done(tried, "git", "show", f"{ref}:metrics/report.json"))
        assert run.data.metrics["report/val_bits_per_byte"] == made["val_bits_per_byte"]
        setting = f"samples_on_card: {run.data.params[KEY]}"
        assert setting in done(tried, "git", "show", f"{ref}:params.yaml")
        values.add(run.data.params[KEY])
        assert len(run.data.tags["dvc.exp.baseline.rev"]) == 40
    assert values == {"0", "1"}
    assert not list((tried / ".dvc/tmp").rglob("mlflow.db"))


def test_an_experiment_that_fails_is_failed_in_both_and_the_others_go_on(tried: Path) -> None:
    status = done(tried, "dvc", "queue", "status")
    assert (
        len(re.findall(r" Success\b", status)) == 2 and len(re.findall(r" Failed\b", status)) == 1
    )
    (name,) = re.findall(r"^\w+ +(\S+) .* Failed", status, re.M)
    (run,) = pipelines(tried)[name]
    assert run.info.status == "FAILED" and run.data.params[KEY] == "-1"
    assert "refused.txt" in run.files
    assert "report.samples_on_card is -1" in done(tried, "dvc", "queue", "logs", name)


def test_an_experiment_is_applied_with_its_outputs(tried: Path) -> None:
    (name,) = [name for name, (run,) in pipelines(tried).items() if run.data.params[KEY] == "1"]
    done(tried, "dvc", "exp", "apply", name)
    assert "up to date" in done(tried, "dvc", "status")
    card = (tried / "reports/index/card.txt").read_text(encoding="utf-8")
    assert len(re.findall("^    “", card, re.M)) == 1
    done(tried, "python", "-m", "sifirdan.cli", "verify", *tiny.OUTPUTS)


def test_disk_counts_what_dvc_would_remove(tried: Path) -> None:
    found = disk.disk(tried)
    (cache,) = [part for part in found["parts"] if part["place"] == ".dvc/cache/files"]
    kept = {share["owner"]: share["num_objects"] for share in cache["shares"]}
    for owners, flags in (
        (["experiments", "commits", "the run cache", "nothing"], ["--workspace"]),
        (["the run cache", "nothing"], ["--all-commits", "--all-experiments"]),
    ):
        said = tiny.run(tried, "dvc", "gc", "--dry", *flags)
        removed = re.search(r"Removed (\d+) objects from repo cache", said.stdout + said.stderr)
        assert removed and int(removed[1]) == sum(kept.get(owner, 0) for owner in owners), kept


def test_own_text_that_the_copy_lacks_is_refused_and_the_refusal_is_a_run(
    finished: Finished, tmp_path: Path
) -> None:
    project = tiny.copy(finished, tmp_path)
    commit(project, "the run, without its own text")
    refused = tiny.run(project, "dvc", "exp", "run", "--temp", "-n", "eksik", "-S", f"{KEY}=1")
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    assert "not in this experiment's copy" in refused.stderr and "dvc add" in refused.stderr
    (run,) = pipelines(project)["eksik"]
    assert run.info.status == "FAILED" and "refused.txt" in run.files
    assert experiments(project) == {}
