"""Tracking against a real MLflow with SQLite: pipelines, resumed curves, limits, broken stores."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tracking import ROOT, all_runs, client, curve, journals, make_folder, open_stage, run_python

from sifirdan import runs, track, track_record
from sifirdan.compare import mlflow_record
from sifirdan.errors import ConfigError, DataError, SifirdanError


def test_M_01_a_stage_is_a_nested_run_and_its_numbers_stand_on_both(project: Path) -> None:
    corpus = make_folder(project / "data/corpus")
    digest = runs.read_manifest(corpus).sha256
    (project / "note.txt").write_text("not")
    with open_stage(
        "train",
        params={"lr": 1e-3, "model": {"layers": [1, 2]}},
        inputs={"corpus": corpus},
        outputs={"base": corpus},
    ) as run:
        for step in (1, 2, 3):
            run.log_metrics({"loss": 4.0 - step, "val_loss": 5.0 - step}, step=step)
        run.log_artifact(Path("note.txt"))
        run.log_text("örnek", "samples/bir.txt")
        run.finish({"loss": 0.9, "tokens": {"train": 12}}, Path("metrics/train.json"))
    child, parent = client().get_run(run.run_id), client().get_run(run.parent_id)
    assert child.data.tags["mlflow.parentRunId"] == run.parent_id
    for data in (child.data, parent.data):
        assert data.metrics == {
            "train/loss": 1.0,
            "train/loss_final": 0.9,
            "train/tokens.train": 12.0,
            "val/loss": 2.0,
        }
        assert data.tags["in.corpus"] == data.tags["out.base"] == digest
        assert data.tags["version.python"] and data.tags["device"]
    assert curve(run.parent_id, "train/loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert child.data.params == {"lr": "0.001", "model.layers": "[1, 2]"}
    assert parent.data.params == {"clean.min_chars": "20", "train.optim.lr": "0.0003"}
    assert child.inputs.dataset_inputs[0].dataset.digest == digest[:36]
    assert {file.path for file in client().list_artifacts(run.run_id)} == {
        "note.txt",
        "samples",
        "train.json",
    }
    assert [child.info.status, parent.info.status] == ["FINISHED", "FINISHED"]
    assert (project / "mlartifacts").is_dir()
    assert runs.read_manifest(corpus) and json.loads(Path("metrics/train.json").read_text())
    assert journals(project) == []  # the store holds everything


def test_tables_stand_on_both_runs_and_a_replay_does_not_double_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track_record.Journal, "remove", track_record.Journal.close)
    rows = [{"prompt": "Bir gün", "text": "çıktı\nğ"}, {"prompt": "", "text": ""}]
    with open_stage("evaluate_base") as run:
        run.log_table(rows, "samples/base.json")
        run.log_table([], "samples/none.json")
    track.replay(journals(project)[0])
    experiment = client().get_run(run.run_id).info.experiment_id
    for run_id in (run.run_id, run.parent_id):
        table = client().load_table(experiment, "samples/base.json", run_ids=[run_id])
        assert table.to_dict("records") == rows
        tag = json.loads(client().get_run(run_id).data.tags["mlflow.loggedArtifacts"])
        assert [entry["path"] for entry in tag] == ["samples/base.json", "samples/none.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_stage_that_ends_on_an_error_is_failed(project: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), open_stage("clean") as run:
        raise error
    assert {found.info.status for found in all_runs()} == {"FAILED"}
    assert client().get_run(run.parent_id).info.status == "FAILED"


def test_the_last_stage_replays_skipped_stages_and_closes_the_pipeline(project: Path) -> None:
    for stage, content in {
        "clean": {"documents": 7},
        "train": {"loss": 1.5, "best": {"step": 2}},
    }.items():
        runs.write_json(Path(f"metrics/{stage}.json"), content)
    Path("metrics/damaged.json").write_text("{")
    Path("curve.jsonl").write_text(
        '{"step": 1, "loss": 3.0, "note": "x"}\n{"step": 2, "loss": 1.5, "val_loss": NaN}\n{"st'
    )
    with open_stage("evaluate_base") as evaluated:
        evaluated.finish({"bits_per_byte": 2.5}, Path("metrics/evaluate_base.json"))
    with open_stage("report") as run:
        names = ("clean", "train", "evaluate_base", "damaged", "missing")
        metrics = {name: Path(f"metrics/{name}.json") for name in names}
        track.close_pipeline(metrics, {"train": Path("curve.jsonl")})
        assert client().get_run(run.parent_id).info.status == "FINISHED"
    assert run.parent_id == evaluated.parent_id
    data = client().get_run(run.parent_id).data
    assert data.metrics == {
        "data/clean/documents": 7.0,
        "train/loss": 1.5,
        "train/loss_final": 1.5,
        "train/best.step": 2.0,
        "val/loss.nonfinite": 1.0,
        "eval/base/bits_per_byte": 2.5,
    }
    assert curve(run.parent_id, "train/loss") == [(1, 3.0), (2, 1.5)]
    assert len(curve(run.parent_id, "eval/base/bits_per_byte")) == 1
    assert {name for name in data.tags if name.startswith("replayed.")} >= {"replayed.train"}
    assert "replayed.evaluate_base" not in data.tags


def test_texts_and_hashes_of_skipped_stages_come_back_from_the_store(project: Path) -> None:
    """Only `report` ran: the record holds what shows that its numbers compare."""
    content = {
        "window": 256,
        "tokenizer": "c" * 12,
        "val": {"bits_per_byte": 1.5, "text": "a" * 12},
    }
    runs.write_json(Path("metrics/evaluate_base.json"), content)
    corpus = make_folder(Path("data/corpus"))
    with open_stage("report") as run:
        folders = {"corpus": corpus, "base": Path("models/base"), track_record.CHAT_DATA: corpus}
        track.close_pipeline({"evaluate_base": Path("metrics/evaluate_base.json")}, {}, folders)
    record = mlflow_record.read(run.parent_id)
    assert record.metrics == {"evaluate_base": content}
    digest = track_record.folder_hash(corpus)
    assert record.hashes == {"data/corpus": digest, "data/chat": digest}


def test_a_stage_after_the_last_one_opens_the_pipeline_and_closes_it_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC runs leaves such as `publish` in any order, also after `report`."""
    key = f"dvc-{track_record.process_key()}"  # a dvc process that is alive: this one
    monkeypatch.setattr(track_record, "pipeline_key", lambda: key)

    def status() -> str:
        return str(client().get_run(report.parent_id).info.status)

    with open_stage("report") as report:
        track.close_pipeline({}, {})
    assert status() == "FINISHED"
    with open_stage("publish_tokenizer") as publish:
        publish.finish({"files": 7}, Path("metrics/publish_tokenizer.json"))
        assert status() == "RUNNING"
    assert publish.parent_id == report.parent_id and status() == "FINISHED"
    assert client().get_run(report.parent_id).data.metrics == {"publish/tokenizer/files": 7.0}
    with pytest.raises(ConfigError), open_stage("publish_base"):
        raise ConfigError("no token")
    assert status() == "FAILED"
    with open_stage("publish_chat"):
        pass
    assert status() == "FAILED"  # one failed, whatever came after it
    with open_stage("publish_base"):
        pass
    assert status() == "FINISHED"
    assert len(all_runs()) == 6 and "RUNNING" not in {run.info.status for run in all_runs()}


def test_a_pipeline_closed_after_a_failed_stage_is_failed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dvc repro --keep-going` runs `report` although a stage beside it failed."""
    key = f"dvc-{track_record.process_key()}"
    monkeypatch.setattr(track_record, "pipeline_key", lambda: key)
    with pytest.raises(ConfigError), open_stage("publish_base"):
        raise ConfigError("no token")
    with open_stage("report") as report:
        track.close_pipeline({}, {})
    assert client().get_run(report.parent_id).info.status == "FAILED"


ENDED_REPRO = """
from sifirdan import track, track_record
key = f"dvc-{track_record.process_key()}"
track_record.pipeline_key = lambda: key
for name in ("publish_tokenizer", "publish_base"):
    try:
        with track.stage(name, params={}, inputs={}, outputs={}):
            assert name != FAILING
    except AssertionError:
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failing", "status"), [("none", "FINISHED"), ("publish_tokenizer", "FAILED")]
)
def test_a_pipeline_without_report_is_ended_as_its_stages_did(
    project: Path, failing: str, status: str
) -> None:
    code = ENDED_REPRO.replace("FAILING", repr(failing))
    assert run_python(code, project).wait() == 0
    track.ui_url(5000)  # opening the pages ends the runs of processes that are gone
    (parent,) = [run for run in all_runs() if "mlflow.parentRunId" not in run.data.tags]
    assert parent.info.status == status


def test_closing_outside_a_stage_is_a_programmers_mistake() -> None:
    with pytest.raises(AssertionError):
        track.close_pipeline({}, {})


KILLED_TRAINING = """
import os, signal
from pathlib import Path
from sifirdan import track
with track.stage("train", params={"max_steps": 20}, inputs={}, outputs={}) as run:
    for step in range(1, 6):
        run.log_metrics({"loss": 100.0 - step}, step=step)
    run._store._flush()                    # what the page showed
    for step in range(6, 15):              # what was still buffered
        run.log_metrics({"loss": 100.0 - step}, step=step)
    Path("run_id").write_text(run.run_id)  # stands for the resume state, saved at step 10
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed_project(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """A project whose training was ended by SIGKILL."""
    root = tmp_path_factory.mktemp("killed")
    shutil.copy(empty_database, root)
    (root / "params.yaml").write_text("clean: {min_chars: 20}\n")
    assert run_python(KILLED_TRAINING, root).wait() == -signal.SIGKILL
    return root


@pytest.fixture
def killed_run(project: Path, killed_project: Path) -> str:
    shutil.copytree(killed_project, project, dirs_exist_ok=True)
    return Path("run_id").read_text()


def test_M_06_a_killed_run_is_marked_and_its_curve_goes_on_unbroken(killed_run: str) -> None:
    killed = client().get_run(killed_run)
    first_parent = killed.data.tags["mlflow.parentRunId"]
    assert killed.info.status == "RUNNING"
    with open_stage("prepare_chat") as earlier:  # ran in the second pipeline before its training
        assert client().get_run(killed_run).info.status == "KILLED"
        assert client().get_run(first_parent).info.status == "KILLED"
        earlier.finish({"conversations": 3}, Path("metrics/prepare_chat.json"))
    Path("params.yaml").write_text("clean:\n  min_chars: 30\n")
    with open_stage("train", params={"max_steps": 20}) as run:
        begun, second_parent = run.run_id, run.parent_id
        run.reopen(killed_run)
        assert (run.run_id, run.parent_id) == (killed_run, first_parent)
        assert client().get_run(killed_run).info.status == "RUNNING"
        for step in range(11, 21):  # from the checkpoint of step 10
            run.log_metrics({"loss": 100.0 - step}, step=step)
        run.finish({"loss": 80.0}, Path("metrics/train.json"))
    for run_id in (killed_run, first_parent):
        assert curve(run_id, "train/loss") == [(step, 100.0 - step) for step in range(1, 21)]
        assert client().get_run(run_id).info.status == "FINISHED"
    data = client().get_run(first_parent).data
    assert data.metrics["sft/prepare_chat/conversations"] == 3.0
    assert data.params["clean.min_chars"] == "20"
    assert data.tags["changed.clean.min_chars"] == "30"
    assert client().get_run(earlier.run_id).data.tags["mlflow.parentRunId"] == first_parent
    assert {client().get_run(gone).info.lifecycle_stage for gone in (begun, second_parent)} == {
        "deleted"
    }
    assert journals(Path.cwd()) == []
    with open_stage("evaluate_base") as later:  # finds the reopened pipeline
        assert later.parent_id == first_parent


def test_a_resumed_run_is_reopened_without_its_journal_and_twice(killed_run: str) -> None:
    for journal in journals(Path.cwd()):
        journal.unlink()
    for steps in (range(4, 8), range(7, 10)):  # the second resumes from step 6, before the end
        with pytest.raises(RuntimeError), open_stage("train", resume_run_id=killed_run) as run:
            for step in steps:
                run.log_metrics({"loss": 100.0 - step}, step=step)
            raise RuntimeError
        assert run.run_id == killed_run
    assert curve(killed_run, "train/loss") == [(step, 100.0 - step) for step in range(1, 10)]


def test_a_run_that_is_unknown_or_of_another_stage_is_not_reopened(project: Path) -> None:
    with open_stage("clean") as other:
        pass
    for run_id in ("0" * 32, "a name that is no id", other.run_id):
        with open_stage("train", resume_run_id=run_id) as run:
            assert run.run_id not in (run_id, other.run_id)
        assert client().get_run(run.run_id).info.status == "FINISHED"


def test_a_run_that_began_without_a_store_is_continued_in_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mlflow", None)  # not installed
        with pytest.raises(RuntimeError), open_stage("train") as first:
            first.log_metrics({"loss": 2.0}, step=1)
            raise RuntimeError
    assert journals(project)[0].stem == first.run_id
    with open_stage("train", resume_run_id=first.run_id) as run:
        run.log_metrics({"loss": 1.0}, step=2)
    assert curve(run.run_id, "train/loss") == [(1, 2.0), (2, 1.0)]
    assert [found.info.status for found in all_runs()] == ["FINISHED"] * 2
    assert journals(project) == []


def test_M_02_long_values_long_names_and_many_params(project: Path) -> None:
    long = "çok uzun bir değer " * 400
    params = {"değer": long, "k" * 300: 1, "k" * 299 + "x": 2} | {f"p{i}": i for i in range(150)}
    with open_stage("train", params=params) as run:
        pass
    stored = client().get_run(run.run_id).data.params
    assert len(stored) == 153
    assert stored["değer"].startswith(f"{len(long)} characters, in params/")
    file = stored["değer"].split(" in ")[1]
    assert Path(client().download_artifacts(run.run_id, file)).read_text() == long
    assert sorted(value for name, value in stored.items() if len(name) > 200) == ["1", "2"]
    assert client().get_run(run.run_id).info.status == "FINISHED"


START_TOGETHER = """
import os, sys
from pathlib import Path
import mlflow.store.db.utils  # once for all: loading it takes seconds
from sifirdan import track
children = []
for worker in range(4):
    children.append(os.fork())
    if not children[-1]:
        with track.stage("clean", params={}, inputs={}, outputs={}) as run:
            for step in range(200):
                run.log_metrics({"loss": float(step)}, step=step)
            run.finish({"worker": worker}, Path(f"metrics/{worker}.json"))
        os._exit(0)
sys.exit(sum(os.waitpid(child, 0)[1] for child in children))
"""


@pytest.mark.slow
def test_M_03_four_processes_start_together_on_a_new_database(project: Path) -> None:
    (project / "mlflow.db").unlink()
    process = run_python(START_TOGETHER, project, stderr=subprocess.PIPE)
    told = process.communicate()[1]
    assert (process.returncode, told) == (0, "")
    nested = [run for run in all_runs() if run.data.tags["stage"] == "clean"]
    assert sorted(run.data.metrics["data/clean/worker"] for run in nested) == [0, 1, 2, 3]
    assert all(len(curve(run.info.run_id, "data/clean/loss")) == 200 for run in nested)
    assert journals(project) == []


def test_M_04_nan_and_infinity_are_flags_and_stay_true_in_the_journal(project: Path) -> None:
    with open_stage("train") as run:
        run.log_metrics({"loss": float("nan"), "lr": 0.1}, step=1)
        run.finish(
            {"perplexity": float("inf"), "parts": [float("nan")]}, Path("metrics/train.json")
        )
    assert client().get_run(run.run_id).data.metrics == {
        "train/loss.nonfinite": 1.0,
        "train/lr": 0.1,
        "train/perplexity.nonfinite": 1.0,
    }
    written = json.loads(Path("metrics/train.json").read_text())
    assert written == {"perplexity": "inf", "parts": ["nan"]}
    assert track_record.numbers(written) == {"perplexity": float("inf")}
    (journal,) = journals(project)
    events = {event["event"]: event for event in track_record.read_journal(journal)}
    assert str(events["metrics"]["values"]["loss"]) == "nan"
    assert events["final"]["values"]["perplexity"] == float("inf")


def test_M_05_any_metric_name_is_stored_and_names_stay_apart(project: Path) -> None:
    names = [
        "ppl@1",
        "time(s)",
        "a,b",
        "kayıp/ğ",
        "ş",
        "a//b",
        "../x",
        "",
        "x" * 300,
        "x" * 301,
        "ppl-u40-1",
        "😀",
        "a:b",
        "%",
        "e\u0301",
        "é",
    ]
    with open_stage("clean") as run:
        run.finish({name: number for number, name in enumerate(names)}, Path("metrics/clean.json"))
    stored = client().get_run(run.run_id).data.metrics
    assert sorted(stored.values()) == list(range(len(names)))
    assert stored["data/clean/kayıp/ğ"] == 3.0
    assert client().get_run(run.run_id).info.status == "FINISHED" and journals(project) == []


def test_M_05_the_escape_cannot_be_forged() -> None:
    pieces = ["-", "u", "2", "8", "(", "-u28-", "/", ".", "", "a"]
    names = {a + b + c + d for a in pieces for b in pieces for c in pieces for d in pieces}
    assert len({track_record.safe_name(name, 250) for name in names}) == len(names)
    assert track_record.safe_name("train/val loss_1.x-y", 250) == "train/val loss_1.x-y"


def test_M_05_two_paths_with_one_name_keep_both_values() -> None:
    flat = track_record.flatten({"a.b": 1, "a": {"b": 2, "c": {}}, "a.b-2": 3})
    assert flat == {"a.b": 1, "a.b-2": 2, "a.c": {}, "a.b-2-2": 3}


def test_stage_prefixes_keep_stages_apart() -> None:
    assert len(set(track_record.PREFIXES.values())) == len(track_record.PREFIXES)
    assert track_record.metric_name("interpret", "x") == "interpret/x"


def test_a_bad_value_or_a_missing_file_warns_once_and_costs_nothing_else(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_stage("train") as run:
        for step in (1, 2):
            run.log_metrics({"loss": 1.0, "words": "many"}, step=step)
        run.log_metrics({"loss": 1.0}, step=None)
        run.log_artifact(Path("missing.png"))
    assert client().get_run(run.run_id).data.metrics == {"train/loss": 1.0}
    assert client().get_run(run.run_id).info.status == "FINISHED"
    assert [record.message.split(";")[0][:25] for record in caplog.records] == [
        "tracking: the metric word",
        "tracking: the record fail",
    ]


def break_with_garbage(project: Path, patch: pytest.MonkeyPatch) -> None:
    (project / "mlflow.db").write_bytes(b"not a database" * 1000)


def break_with_a_file_in_the_way(project: Path, patch: pytest.MonkeyPatch) -> None:
    (project / "file").write_text("")
    patch.setenv("DVC_ROOT", str(project / "file" / "below"))


def break_the_server(project: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def break_the_installation(project: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "mlflow", None)


@pytest.mark.parametrize(
    "break_store",
    [break_with_garbage, break_with_a_file_in_the_way, break_the_server, break_the_installation],
)
def test_a_broken_store_never_stops_a_stage(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    break_store: Any,
) -> None:
    with monkeypatch.context() as patch:
        break_store(project, patch)
        begun = time.monotonic()
        with open_stage("train", resume_run_id="0" * 32) as run:
            run.log_metrics({"loss": 1.0}, step=1)
            run.log_artifact(project / "params.yaml")
            run.finish({"loss": 0.5}, project / "metrics/train.json")
            track.close_pipeline({}, {})
        assert time.monotonic() - begun < 20
        assert run.run_id.startswith("train-")
        with pytest.raises(SifirdanError):
            track.ui_url(5000)
    assert json.loads((project / "metrics/train.json").read_text()) == {"loss": 0.5}
    told = [record for record in caplog.records if "goes on" in record.message]
    if break_store is break_with_a_file_in_the_way:  # the journal has no place either
        assert "without a journal" in told[-1].message
    else:
        assert len(told) == 1 and str(journals(project)[0]) in told[0].message


def test_a_journal_is_replayed_as_often_as_one_likes(project: Path, empty_database: Path) -> None:
    (project / "mlflow.db").write_bytes(b"garbage" * 1000)
    with open_stage("train", params={"lr": 1}) as run:
        for step in (1, 2, 3):
            run.log_metrics({"loss": 4.0 - step}, step=step)
        run.finish({"tokens": 12}, Path("metrics/train.json"))
    shutil.copy(empty_database, project / "mlflow.db")
    (journal,) = journals(project)
    Path("metrics/train.json").unlink()  # an artifact that is gone is left out
    first = track.replay(journal)
    assert track.replay(journal) == first
    assert len(all_runs()) == 2
    for found in all_runs():
        assert curve(found.info.run_id, "train/loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
        assert curve(found.info.run_id, "train/tokens") == [(0, 12.0)]
        assert found.info.status == "FINISHED"


def test_replay_of_a_killed_run_and_refusals(project: Path, killed_run: str) -> None:
    (journal,) = journals(project)
    assert track.replay(journal) == killed_run
    assert len(curve(killed_run, "train/loss")) == 14
    assert client().get_run(killed_run).info.status == "KILLED"
    with pytest.raises(DataError, match="no such journal"):
        track.replay(project / "missing.jsonl")
    with pytest.raises(DataError, match="not a journal"):
        track.replay(project / "params.yaml")
    (project / "mlflow.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(DataError, match="did not take it"):
        track.replay(journal)


@pytest.mark.parametrize("mended", [True, False])
def test_a_store_that_fails_in_the_middle_is_caught_up(project: Path, mended: bool) -> None:
    with open_stage("train") as run:
        run.log_metrics({"loss": 3.0}, step=1)
        run._store._flush()
        with sqlite3.connect(project / "mlflow.db") as database:
            database.execute("ALTER TABLE metrics RENAME TO away")
        run.log_metrics({"loss": 2.0}, step=2)
        run.finish({"tokens": 1}, Path("metrics/train.json"))
        run.log_metrics({"loss": 1.0}, step=3)
        if mended:
            with sqlite3.connect(project / "mlflow.db") as database:
                database.execute("ALTER TABLE away RENAME TO metrics")
    database.close()
    assert len(journals(project)) == (0 if mended else 1)
    if mended:
        assert curve(run.run_id, "train/loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
        assert client().get_run(run.parent_id).info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_database_that_is_taken_away_in_the_middle_loses_no_point(
    project: Path, comes_back: bool
) -> None:
    database, away = project / "mlflow.db", project / "away.db"
    with open_stage("train") as run:
        run.log_metrics({"loss": 3.0}, step=1)
        run._store._flush()
        database.rename(away)
        run.log_metrics({"loss": 2.0}, step=2)
        run._try("store", run._store._flush)
        run.finish({"tokens": 1}, Path("metrics/train.json"))
        if comes_back:
            away.rename(database)
    if not comes_back:  # a new process makes a new database
        (journal,) = journals(project)
        code = f"from pathlib import Path; from sifirdan import track; track.replay(Path({str(journal)!r}))"
        assert run_python(code, project).wait() == 0
        assert database.exists()
    assert len(journals(project)) == (0 if comes_back else 1)
    with sqlite3.connect(database) as opened:
        rows = opened.execute("SELECT step, value FROM metrics WHERE key = 'train/loss'").fetchall()
    opened.close()
    assert sorted(rows) == [(1, 3.0)] * 2 + [(2, 2.0)] * 2  # the run and its pipeline


def test_artifacts_that_cannot_be_stored_leave_the_numbers(project: Path) -> None:
    (project / "mlartifacts").write_text("a file in the way")
    with open_stage("train") as run:
        run.log_text("x", "x.txt")
        run.log_metrics({"loss": 1.0}, step=1)
    assert client().get_run(run.run_id).data.metrics == {"train/loss": 1.0}
    (journal,) = journals(project)
    with pytest.raises(DataError, match="did not take it"):
        track.replay(journal)
    (project / "mlartifacts").unlink()
    track.replay(journal)
    assert [file.path for file in client().list_artifacts(run.run_id)] == ["x.txt"]


@pytest.mark.parametrize("copied", [True, False])
def test_a_moved_or_copied_project_keeps_its_artifacts(
    project: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    with open_stage("train") as run:
        run.log_text("x", "old.txt")
    there = project.with_name("başka yer")
    (shutil.copytree if copied else shutil.move)(project, there)
    monkeypatch.chdir(there)
    with open_stage("train") as later:
        later.log_text("y", "new.txt")
    assert project.exists() == copied and not list(project.rglob("new.txt"))
    assert Path(client().download_artifacts(run.run_id, "old.txt")).read_text() == "x"
    assert len(list(there.rglob("new.txt"))) == 1


def test_a_deleted_experiment_is_restored(project: Path) -> None:
    with open_stage("clean"):
        pass
    client().delete_experiment(client().get_experiment_by_name("sifirdan").experiment_id)
    with open_stage("clean") as run:
        pass
    assert client().get_run(run.run_id).info.status == "FINISHED"


def test_D_03_stages_of_one_dvc_process_share_a_pipeline(project: Path) -> None:
    code = "from sifirdan.track_record import pipeline_key; print(pipeline_key())"
    (project / "dvc").write_text(
        f"import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-c', {code!r}])\n"
    )
    keys = []
    for _ in range(2):
        place = str(Path(track.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, str(project / "dvc")],
            env=os.environ | {"PYTHONPATH": place},
            capture_output=True,
            text=True,
            check=True,
        )
        keys += done.stdout.split()
    assert len(keys) == 4 and keys[0] == keys[1] != keys[2] == keys[3]
    assert all(key.startswith("dvc-") for key in keys)
    assert not track_record.is_alive(track_record.owner_of(keys[0]))
    assert track_record.pipeline_key() == f"manual-{track_record.process_key()}"


def test_processes_are_told_apart_by_number_and_start() -> None:
    assert track_record.is_alive(track_record.process_key())
    pid, start = track_record.process_key().split("-")
    assert track_record.is_alive(f"{pid}-{int(start) + 1}")  # the clock was set
    assert not track_record.is_alive(f"{pid}-{int(start) - 100}")  # a number used again
    assert not track_record.is_alive("") and not track_record.is_alive("x-1")


def test_an_experiment_copy_writes_to_the_real_root(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = project / ".dvc/tmp/exps/tmpabc"
    copy.mkdir(parents=True)
    (copy / "params.yaml").write_text("clean: {min_chars: 99}\n")
    monkeypatch.chdir(copy)
    monkeypatch.setenv("DVC_ROOT", str(copy))
    monkeypatch.setenv("DVC_EXP_NAME", "short-docs")
    with open_stage("clean") as run:
        run.log_text("x", "x.txt")
    assert not (copy / "mlflow.db").exists() and not (copy / ".track").exists()
    monkeypatch.chdir(project)
    monkeypatch.delenv("DVC_ROOT")
    parent = client().get_run(run.parent_id)
    assert parent.data.params == {"clean.min_chars": "99"}
    assert parent.info.run_name == parent.data.tags["dvc.exp.name"] == "short-docs"
    assert list((project / "mlartifacts").rglob("x.txt"))


def test_provenance_names_the_commit_and_keeps_uncommitted_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "git.dirty" not in track_record.provenance("clean")[0]  # a zip download
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)

    def git(*words: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *name, *words], check=True, capture_output=True)

    git("init", "-q")
    assert "git.dirty" not in track_record.provenance("clean")[0]  # no commit yet
    git("add", "params.yaml")
    git("commit", "-qm", "x")
    Path("mlflow.db").rename("../mlflow.db")
    tags, diff = track_record.provenance("clean")
    assert (tags["git.dirty"], diff, len(tags["mlflow.source.git.commit"])) == ("false", "", 40)
    Path("params.yaml").write_text("değişti: " + "x " * track_record.MAX_DIFF_CHARS)
    Path("../mlflow.db").rename("mlflow.db")
    with open_stage("clean") as run:
        pass
    assert client().get_run(run.run_id).data.tags["git.dirty"] == "true"
    diff = Path(client().download_artifacts(run.run_id, "git.diff")).read_text()
    assert "+değişti: x" in diff and "[cut: " in diff
    assert len(diff) < track_record.MAX_DIFF_CHARS + 100


def test_only_the_first_rank_tracks_and_writes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with open_stage("train") as run:
        run.log_metrics({"loss": 1.0}, step=1)
        run.reopen("0" * 32)
        run.finish({"loss": 1.0}, Path("metrics/train.json"))
        track.close_pipeline({}, {})
    assert not Path("metrics").exists() and not Path(".track").exists()


def test_system_metrics_are_on_the_nested_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.1")
    with open_stage("train") as run:
        time.sleep(0.6)
    names = client().get_run(run.run_id).data.metrics
    assert "system/cpu_utilization_percentage" in names


def test_M_07_the_pages_are_served_on_loopback_only(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = track.ui_command(5001)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--workers") + 1] == "1"
    environment = track.ui_environment()
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    assert track.ui_url(5001).startswith("http://127.0.0.1:5001/#/experiments/1/runs?")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match="a server already"):
        track.ui_command(5001)


def test_M_07_no_file_of_ours_opens_a_server_to_the_network_or_names_a_password() -> None:
    """Every tracked text file. What a page says against it is told apart by a word of refusal."""
    opened = re.compile(r"0\.0\.0\.0|--host[= ]+(?!127\.0\.0\.1|localhost)[\w.:*]+|\[::\]")
    password = re.compile(
        r"(?:admin_password|AUTH_ADMIN_PASSWORD|TRACKING_PASSWORD)\s*[=:]\s*[\"']?(\w+)"
    )
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    found = []
    for path in files:
        if path.suffix in (".png", ".ico") or path.parent.name == "tests" or not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8", errors="ignore").split("\n"):
            if opened.search(line) and not re.search(r"\b(never|not|no)\b", line):
                found.append(f"{path.name}: {line.strip()[:100]}")
            found += [f"{path.name}: password {word}" for word in password.findall(line)]
    assert found == []
    assert opened.search("mlflow server --host 0.0.0.0") and opened.search("--host=example.com")
    assert not opened.search("--host 127.0.0.1")
    assert password.search("export MLFLOW_TRACKING_PASSWORD=password1234")
    assert not password.search("MLFLOW_TRACKING_PASSWORD=$(cat ~/.mlflow-password)")


def test_mlflow_is_loaded_only_when_a_stage_runs(project: Path) -> None:
    code = "import sys, sifirdan.track; sys.exit('mlflow' in sys.modules or 'torch' in sys.modules)"
    assert run_python(code, project).wait() == 0


def test_a_journal_with_a_damaged_event_is_at_fault_itself(project: Path) -> None:
    (project / ".track").mkdir(exist_ok=True)
    (project / ".track/x.jsonl").write_text('{"event": "start"}\n')
    with pytest.raises(DataError, match=r"x\.jsonl: is damaged"):
        track.replay(project / ".track/x.jsonl")


@pytest.mark.slow
def test_a_first_creation_that_was_killed_leaves_no_database(project: Path) -> None:
    (project / "mlflow.db").unlink()
    script = """
import os, sqlalchemy
from sifirdan import track
seen = []
@sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "before_cursor_execute")
def kill(conn, cursor, statement, *rest):
    seen.append(statement)
    if len(seen) == 60:
        os.kill(os.getpid(), 9)
track._open_store()
"""
    environment = os.environ | {"PYTHONPATH": str(Path(track.__file__).parents[1])}
    killed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert killed.returncode == -9 and not (project / "mlflow.db").exists()
    assert list(project.glob(".mlflow.db.partial*"))
    with open_stage("train") as run:
        run.log_metrics({"loss": 1.0}, step=1)
    assert not journals(project) and curve(run.run_id, "train/loss") == [(1, 1.0)]
    assert not list(project.glob(".mlflow.db.partial*"))
