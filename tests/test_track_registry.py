"""Models in the registry: one version a manifest, `best` among equals, and faults that stop nothing."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tracking import client, journals, open_stage

from sifirdan import runs, track, track_record, track_registry
from sifirdan.errors import DataError

NAME = "sifirdan-base"


def make_model(project: Path, content: str) -> Path:
    """models/base with these weights, a file for people, and one that nobody needs to load it."""
    folder = project / "models/base"
    with runs.new_folder(folder, kind="model", inputs={}, params={}) as output:
        (output.path / "model.safetensors").write_text(content)
        (output.path / "config.json").write_text("{}")
        (output.path / "tokenizer.vocab").write_text("a\n")
    return folder


def measure(project: Path, content: str, bits_per_byte: float, text: str = "aaa") -> Any:
    """One execution of evaluate_base for the model with these weights."""
    folder = make_model(project, content)
    with open_stage("evaluate_base") as run:
        run.register_model("base", folder, bits_per_byte=bits_per_byte, text=text)
    return run


def versions() -> list[Any]:
    found = client().search_model_versions(f"name = '{NAME}'")
    return sorted(found, key=lambda version: int(version.version))


def best() -> Any:
    return client().get_model_version_by_alias(NAME, "best")


def download(folder: Path, uri: str = f"models:/{NAME}@best") -> dict[str, str]:
    import mlflow

    folder.mkdir(exist_ok=True)
    mlflow.set_tracking_uri(track._store_uri())
    try:
        there = Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(folder)))
    finally:
        mlflow.set_tracking_uri(None)
    return {file.name: file.read_text() for file in there.iterdir()}


def test_a_measured_model_is_a_version_that_can_be_loaded(project: Path, tmp_path: Path) -> None:
    run = measure(project, "weights", 1.5)
    (version,) = versions()
    digest = runs.read_manifest(project / "models/base").sha256
    assert version.run_id == run.run_id and best().version == version.version
    assert version.tags == {
        "manifest": digest,
        "val.bits_per_byte": "1.5",
        "val.text": "aaa",
        "measured": version.tags["measured"],
    }
    assert "1.5000 bits per byte on validation text aaa" in version.description
    shutil.rmtree(project / "models")  # the version is a copy
    files = {"model.safetensors": "weights", "config.json": "{}"}
    assert download(tmp_path / "a") == files == download(tmp_path / "b", f"models:/{NAME}/latest")
    assert journals(project) == []


def test_the_commit_is_a_tag(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track_record, "head_commit", lambda: "c" * 40)
    measure(project, "weights", 1.5)
    assert best().tags["git.commit"] == "c" * 40


@pytest.mark.slow
def test_one_manifest_is_one_version(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track_record.Journal, "remove", track_record.Journal.close)
    for _ in range(2):  # evaluated again, say with other prompts
        run = measure(project, "weights", 1.5)
    for journal in journals(project):
        track.replay(journal)
    assert len(versions()) == 1
    assert "model" not in {file.path for file in client().list_artifacts(run.run_id)}
    measure(project, "weights", 1.25, "bbb")  # the same model on other text
    (version,) = versions()
    assert (version.tags["val.bits_per_byte"], version.tags["val.text"]) == ("1.25", "bbb")
    assert "1.2500 bits per byte on validation text bbb" in version.description


@pytest.mark.slow
def test_best_goes_to_the_lowest_and_never_compares_other_text(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track_record.Journal, "remove", track_record.Journal.close)
    scores = [(1.5, "aaa"), (1.6, "aaa"), (1.4, "aaa"), (float("nan"), "aaa"), (1.9, "bbb"), (1.3, "aaa")]  # fmt: skip
    seen = []
    for number, (score, text) in enumerate(scores):
        measure(project, str(number), score, text)
        seen.append(int(best().version))
    assert seen == [1, 1, 3, 3, 5, 6]
    _, _, third, _, fifth, _ = versions()
    assert "moved here from version 1, which has 1.5000" in third.description
    assert "from version 3 because the validation text is another: aaa" in fifth.description
    for journal in journals(project)[:5]:  # old news does not move it
        track.replay(journal)
    assert int(best().version) == 6 and len(versions()) == 6


@pytest.mark.slow
def test_a_registry_that_fails_costs_only_itself(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def rename(old: str, new: str) -> None:
        with sqlite3.connect(project / "mlflow.db") as database:
            database.execute(f"ALTER TABLE {old} RENAME TO {new}")
        database.close()

    rename("registered_models", "away")
    folder = make_model(project, "weights")
    with open_stage("evaluate_base") as run:
        run.register_model("base", folder, bits_per_byte=1.5, text="aaa")
        run.log_metrics({"x": 1.0}, 1)
        run.finish({"y": 2.0}, Path("metrics/evaluate_base.json"))
    told = [record.message for record in caplog.records]
    assert len(told) == 1 and f"{NAME} is not in the registry" in told[0]
    assert client().get_run(run.run_id).data.metrics == {"eval/base/x": 1.0, "eval/base/y": 2.0}
    (journal,) = journals(project)
    with pytest.raises(DataError, match="did not take it"):
        track.replay(journal)
    rename("away", "registered_models")
    make_model(project, "other weights")  # by now
    with pytest.raises(DataError, match="is another model now"):
        track.replay(journal)
    make_model(project, "weights")
    track.replay(journal)
    assert len(versions()) == 1 and best().run_id == run.run_id


@pytest.mark.slow
def test_a_model_that_is_gone_or_unfinished_is_no_version(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "models/base").mkdir(parents=True)
    with open_stage("evaluate_base") as run:
        run.register_model("base", project / "models/base", bits_per_byte=1.5, text="aaa")
    assert "is no finished model folder" in caplog.text
    (project / "mlflow.db").rename(project / "away.db")
    (project / "mlflow.db").write_bytes(b"garbage" * 1000)
    measure(project, "weights", 1.5)
    (project / "away.db").replace(project / "mlflow.db")
    shutil.rmtree(project / "models")
    (journal,) = journals(project)
    track.replay(journal)
    assert versions() == []


@pytest.mark.slow
def test_best_loads_in_a_project_that_was_moved(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(project, "weights", 1.5)
    there = project.with_name("başka yer")
    shutil.move(project, there)
    monkeypatch.chdir(there)
    measure(there, "more weights", 1.4)
    for number in (1, 2):
        assert "config.json" in download(tmp_path / str(number), f"models:/{NAME}/{number}")


def test_only_what_loading_needs_is_copied() -> None:
    import fnmatch

    names = {
        "README.md": 1, "chat_template.jinja": 1, "config.json": 1, "generation_config.json": 1,
        "model.safetensors": 1, "model-00001-of-00002.safetensors": 1, "model.safetensors.index.json": 1,
        "tokenizer.json": 1, "tokenizer.model": 1, "tokenizer_config.json": 1,
        "tokenizer.vocab": 0, "data_card.json": 0, "manifest.json": 0, ".env": 0, "optimizer.pt": 0,
    }  # fmt: skip
    for name, wanted in names.items():
        kept = any(fnmatch.fnmatch(name, pattern) for pattern in track_registry.FILES)
        assert kept == bool(wanted), name


@pytest.mark.slow
def test_the_bin_is_emptied_in_this_project_alone_and_registered_models_stay(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mlflow gc` alone follows a copied project's old paths, and takes the model behind `best`."""
    registered = measure(project, "weights", 1.5)
    with open_stage("train") as other:
        other.log_artifact(project / "params.yaml")
    copy = tmp_path / "kopya"
    shutil.copytree(project, copy)
    monkeypatch.chdir(copy)
    for run in (registered, other):
        client().delete_run(run.run_id)
    assert track.empty_bin() == (1, 1)
    assert not [*(copy / "mlartifacts" / other.run_id).rglob("params.yaml")]
    assert (project / "mlartifacts" / other.run_id / "artifacts/params.yaml").is_file()
    assert download(tmp_path / "there")["model.safetensors"] == "weights"
    assert track.empty_bin() == (0, 1)


@pytest.mark.slow
def test_a_version_whose_files_are_gone_is_made_again(project: Path, tmp_path: Path) -> None:
    first = measure(project, "weights", 1.5)
    shutil.rmtree(project / "mlartifacts" / first.run_id)
    measure(project, "weights", 1.5)
    assert len(versions()) == 2 and int(best().version) == 2
    assert download(tmp_path / "there")["model.safetensors"] == "weights"
