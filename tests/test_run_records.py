"""Records of runs out of every place that keeps them: the folder, Git and DVC's cache, MLflow."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from tiny import Finished

from sifirdan import runs, track, track_record
from sifirdan.compare import mlflow_record, revision_files
from sifirdan.compare.comparison import compare
from sifirdan.compare.measures import find, flat
from sifirdan.compare.reference import REFERENCE_FILE, load_reference
from sifirdan.compare.run_records import load_record, write_reference
from sifirdan.errors import ConfigError, DataError

FOLDERS = ("data/corpus", "models/tokenizer", "data/tokens")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Deneme", "-c", "user.email=deneme@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def md5_of(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def keep(project: Path, content: bytes, ending: str = "") -> str:
    """Put an object into DVC's cache, as DVC does; returns its name."""
    name = md5_of(content) + ending
    path = project / ".dvc/cache/files/md5" / name[:2] / name[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return name


def keep_folder(project: Path, folder: str) -> str:
    names = [path for path in sorted((project / folder).rglob("*")) if path.is_file()]
    rows = [
        {"md5": keep(project, path.read_bytes()), "relpath": path.relative_to(project / folder).as_posix()}
        for path in names
    ]  # fmt: skip
    return keep(project, json.dumps(rows).encode(), ".dir")


def run_pipeline(project: Path, tokens: int, bits_per_byte: float) -> None:
    """What a run leaves, without running: parameters, metrics, curves, samples, folders, lock."""
    (project / "params.yaml").write_text(
        f"clean:\n  min_chars: 20\ntrain:\n  tokens: {tokens}\n  eps: 1.0e-10\n"
    )
    val = {"bits_per_byte": bits_per_byte, "text": "a" * 12}
    runs.write_json(project / "metrics/evaluate_base.json", {"tokenizer": "c" * 12, "val": val})
    runs.write_json(project / "metrics/train.json", {"loss": 4.0, "tokens": tokens})
    runs.write_json(project / "reference/noise.json", {"sigma": {}})
    points = "".join(f'{{"step": {step}, "loss": {9 - step}}}\n' for step in (1, 2))
    runs.write_text(project / "reports/train/curve.jsonl", points)
    sample = {"prompt": "Bir gün", "text": f" {tokens}", "temperature": 0.7, "stopped": True}
    runs.write_text(
        project / "reports/evaluate/base/samples.jsonl",
        json.dumps(sample, ensure_ascii=False) + "\n",
    )
    for name in FOLDERS:
        with runs.new_folder(project / name, kind="x", inputs={}, params={"of": name}):
            pass
    section = {"params.yaml": {"train": {"tokens": tokens, "eps": "1e-10"}}}
    places = (*FOLDERS, "reports/train", "reports/evaluate/base")
    outs = [{"path": place, "md5": keep_folder(project, place)} for place in places]
    lock = {"schema": "2.0", "stages": {"train": {"cmd": "x", "params": section, "outs": outs}}}
    (project / "dvc.lock").write_text(yaml.safe_dump(lock), encoding="utf-8")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in Git, in a folder inside the repository: first with 100 tokens, then with 200."""
    root = tmp_path_factory.mktemp("iki") / "depo" / "ığdır projesi"
    root.mkdir(parents=True)
    git(root.parent, "init", "--quiet", "-b", "ana")
    (root / ".gitignore").write_text("/.dvc\n/data\n/models\n/reports\n/.track\n")
    for tokens, bits in ((100, 1.6), (200, 1.5)):
        run_pipeline(root, tokens, bits)
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "-m", f"{tokens}")
    git(root, "tag", "ilk", "HEAD~1")
    return root


@pytest.fixture
def project(two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, which a test may change, as the working folder."""
    for variable in ("MLFLOW_TRACKING_URI", "DVC_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    root = shutil.copytree(two_runs.parent, tmp_path / "depo") / two_runs.name
    monkeypatch.chdir(root)
    return root


def test_the_workspace_is_the_folder_as_it_is(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = load_record("workspace")
    assert record.params == {"clean.min_chars": 20, "train.tokens": 200, "train.eps": 1e-10}
    assert set(record.metrics) == {"evaluate_base", "train"}
    assert record.curves == {"train": [{"step": 1, "loss": 8.0}, {"step": 2, "loss": 7.0}]}
    assert record.samples == ("Bir gün 200",)
    for name in FOLDERS:
        assert record.hashes[name] == runs.sha256_of(project / name / "manifest.json")
        assert record.hashes[f"{name}.dvc"].endswith(".dir")
    assert not caplog.records


@pytest.mark.parametrize("name", ["HEAD~1", "ilk", "git:ilk", "sha"])
def test_a_revision_is_read_out_of_git_and_the_cache(project: Path, name: str) -> None:
    if name == "sha":
        name = git(project, "rev-parse", "HEAD~1")[:9]
    record = load_record(name)
    assert record.name == name and record.params["train.tokens"] == 100
    assert record.metrics["evaluate_base"]["val"]["bits_per_byte"] == 1.6
    assert record.curves["train"][1] == {"step": 2, "loss": 7.0} and record.samples == (
        "Bir gün 100",
    )
    assert (
        record.hashes == load_record("workspace").hashes
    )  # both kinds: the folders did not change
    both = compare([record, load_record("workspace")])
    assert both.params == {"train.tokens": (100, 200)} and not both.data
    rows = {row.name: row.verdicts for row in both.metrics}
    assert rows["evaluate_base.val.bits_per_byte"] == ("noise unknown",)


def test_a_revision_whose_outputs_are_not_in_the_cache_says_so(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(project / ".dvc/cache")
    record = load_record("ilk")
    assert not record.curves and not record.samples
    assert set(record.hashes) == {f"{name}.dvc" for name in FOLDERS}
    assert "its curves are not in DVC's cache" in caplog.text


def test_parameters_changed_after_the_run_are_named(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (project / "params.yaml").read_text().replace("200", "300")
    (project / "params.yaml").write_text(text)
    assert load_record("workspace").params["train.tokens"] == 300
    assert "params.yaml was changed after the run (train.tokens)" in caplog.text


def test_an_unknown_name_is_answered_with_what_there_is(project: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_record("yok")
    for part in ("no run 'yok'", "ana, ilk", "experiments of DVC: none", "runs in MLflow: none"):
        assert part in str(caught.value)
    assert not (project / "mlflow.db").exists()  # who only reads makes no store
    for name in ("exp:ilk", "mlflow:ilk", "git:--all", "HEAD~7"):
        with pytest.raises(ConfigError, match="there is no run"):
            load_record(name)


def test_a_commit_without_a_run_is_refused(project: Path) -> None:
    git(project, "rm", "-r", "--quiet", "--cached", "metrics")
    git(project, "commit", "--quiet", "-m", "no metrics")
    with pytest.raises(DataError, match=r"(?s)no metrics files.*commit dvc.lock and metrics/"):
        load_record("HEAD")
    git(project, "rm", "--quiet", "--cached", "params.yaml")
    git(project, "commit", "--quiet", "-m", "no params")
    with pytest.raises(DataError, match="has no params.yaml"):
        load_record("HEAD")
    shutil.rmtree(project / "metrics")
    with pytest.raises(DataError, match="no metrics file in this folder"):
        load_record("workspace")


def test_damaged_files_are_named(project: Path) -> None:
    (project / "metrics/train.json").write_text("{")
    with pytest.raises(DataError, match=r"metrics.train.json: is damaged"):
        load_record("workspace")
    (project / "params.yaml").write_text("a: [")
    git(project, "commit", "--quiet", "-am", "damage")
    with pytest.raises(DataError, match=r"HEAD:params.yaml: not valid YAML"):
        load_record("HEAD")


def test_the_reference_keeps_the_numbers_and_deterministic_bytes(project: Path) -> None:
    assert load_reference() is None
    with pytest.raises(DataError, match="sifirdan reference"):
        load_record("reference")
    path = REFERENCE_FILE
    head = git(project, "rev-parse", "HEAD")[:10]
    assert write_reference(load_record("workspace")) == f"workspace on {head}"
    first = path.read_bytes()
    write_reference(load_record("workspace"))  # the reference itself is no metric of a stage
    assert path.read_bytes() == first
    record = load_record("reference")
    assert record.metrics == load_record("workspace").metrics and not record.curves
    both = compare([record, load_record("workspace")])
    assert not both.params and not both.data
    assert {verdict for row in both.metrics for verdict in row.verdicts} == {"equal"}
    assert write_reference(load_record("ilk")) == "ilk"
    assert write_reference(load_record("ilk"), called="dünkü koşu") == "dünkü koşu"
    assert load_reference().name == "dünkü koşu"


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"name": "a", "params": {}, "metrics": {"a": 1}, "hashes": {}}'])  # fmt: skip
def test_a_damaged_reference_is_refused(project: Path, damage: str) -> None:
    REFERENCE_FILE.write_text(damage)
    with pytest.raises(DataError, match=r"reference.run.json"):
        load_reference()


LISTED = [
    {"id": "abcd" + "1" * 28, "name": "deney"},
    {"id": "abcd" + "2" * 28, "name": "deney"},
    {"id": "f" * 32, "name": "öteki"},
]


def test_names_in_mlflow_are_found_by_id_beginning_and_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track, "list_runs", lambda: LISTED)
    monkeypatch.setattr(mlflow_record, "read", lambda run_id: run_id)
    for name in ("f" * 32, "ffff", "öteki", "mlflow:öteki"):
        assert load_record(name) == "f" * 32
    assert load_record("abcd1") == LISTED[0]["id"]
    for name in ("abcd", "deney"):
        with pytest.raises(
            ConfigError, match=f"(?s)'{name}' is the name of 2 MLflow runs.*abcd1.*abcd2"
        ):
            load_record(name)
    head = git(project, "rev-parse", "HEAD")
    monkeypatch.setattr(track, "list_runs", lambda: [{"id": head[:8] + "0" * 24, "name": "x"}])
    with pytest.raises(
        ConfigError, match=f"(?s)Git commit and the id of an MLflow run.*git:{head[:6]}"
    ):
        load_record(head[:6])
    assert load_record(f"mlflow:{head[:6]}") == head[:8] + "0" * 24
    assert load_record(f"git:{head[:6]}").params["train.tokens"] == 200  # type: ignore[attr-defined]


NAMES = [
    (stage, name)
    for stage in (*track_record.PREFIXES, "evaluate_tokenizer", "report")
    for name in ("loss", "val.bits_per_byte", "a b.c", "ppl@1", "şu (x), y", "x/../y", "a//b")
] + [("train", "val_bits_per_byte"), ("finetune", "steps"), ("prepare_chat", "sets.train.tokens")]


@pytest.mark.parametrize("stage, name", NAMES)
def test_M_05_every_name_comes_back_from_the_store(stage: str, name: str) -> None:
    stored = track_record.safe_name(track_record.metric_name(stage, name), 250)
    assert mlflow_record.stage_metric(stored) == (stage, name)


def test_a_run_out_of_mlflow_is_read_by_the_rules_it_was_logged_by() -> None:
    """Numbers at step 0 and with `_final` are those of the metrics files; points have steps."""
    train_file = json.dumps({"loss": 4.25, "tokens": 100, "note": "x"})
    run: dict[str, Any] = {
        "id": "ab" * 16,
        "name": "deney",
        "files": {},
        "params": {"train.tokens": "100", "train.a-u40-b": "x"},
        "tags": {"changed.train.tokens": "200", "in.raw": "1", "out.raw": "2", "in.base": "3", "in.chat": "9"},
        "metrics": {
            "train/loss": 4.0, "train/loss_final": 4.2, "train/tokens_per_second": 900.0, "train/tokens": 100.0,
            "val/bits_per_byte": 1.6, "val/bits_per_byte_final": 1.5, "sft/loss.nonfinite": 1.0,
            "sft/prepare_chat/sets.train.documents": 7.0, "eval/base/val.bits_per_byte": 1.5,
            "evaluate_tokenizer/gold_words": 3.0, "by_tokens/loss": 4.0, "system/disk": 1.0,
        },
        "curves": {
            "train/loss": [(1, 9.0), (2, 4.0)], "val/bits_per_byte": [(2, 1.6)], "train/tokens": [(0, 100.0)],
            "train/tokens_per_second": [(1, 800.0), (2, 900.0)],
        },
        "stages": {
            "train": {"tags": {}, "files": {"train.json": train_file}},
            "finetune": {"tags": {"in.chat": "4"}, "files": {}},
            "publish_chat": {"tags": {"in.chat": "9"}, "files": {}},  # the model
            "evaluate_base": {"tags": {}, "files": {"samples.jsonl": '{"prompt": "Bir", "text": " gün"}\n'}},
        },
    }  # fmt: skip
    record = mlflow_record.record_of(run)
    assert record.name == "deney (abababab)" and record.samples == ("Bir gün",)
    assert record.params == {"train.tokens": "200", "train.a@b": "x"}
    assert record.metrics["train"] == {"loss": 4.25, "tokens": 100, "note": "x"}
    run["stages"].pop("train")
    assert mlflow_record.record_of(run).metrics == {
        "train": {"loss": 4.2, "tokens": 100.0, "val_bits_per_byte": 1.5},
        "finetune": {"loss": "nan"},
        "prepare_chat": {"sets.train.documents": 7.0},
        "evaluate_base": {"val.bits_per_byte": 1.5},
        "evaluate_tokenizer": {"gold_words": 3.0},
    }
    assert record.curves["train"] == [
        {"step": 1, "loss": 9.0, "tokens_per_second": 800.0},
        {"step": 2, "loss": 4.0, "tokens_per_second": 900.0, "val_bits_per_byte": 1.6},
    ]
    assert record.hashes == {"data/raw": "2", "models/base": "3", "data/chat": "4"}
    text = '{"val": {"bits_per_byte": 1.5, "text": "aaaa"}}'
    record = mlflow_record.record_of({**run, "files": {"evaluate_base": text}})
    assert record.metrics["evaluate_base"] == json.loads(text)  # of a stage that DVC skipped
    for damage in (text[:9], "[]"):
        with pytest.raises(
            DataError, match=r"deney \(abababab\): metrics/evaluate_base.json: is damaged"
        ):
            mlflow_record.record_of({**run, "files": {"evaluate_base": damage}})


def test_a_run_in_mlflow_without_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("params", "tags", "metrics", "curves", "stages", "files")
    run = {"id": "ab" * 16, "name": "boş", **{key: {} for key in keys}}
    monkeypatch.setattr(track, "read_run", lambda *_: run)
    with pytest.raises(DataError, match=r"boş \(abababab\): this MLflow run holds no number"):
        mlflow_record.read("ab" * 16)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return tiny.finished(tmp_path_factory)


@pytest.mark.slow
def test_one_run_is_the_same_record_from_everywhere(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished pipeline as folder, as commit, as DVC experiment and as MLflow run."""
    project = tiny.copy(finished, tmp_path)
    for variable in ("MLFLOW_TRACKING_URI", "DVC_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(project)
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "-m", "run")
    tiny.edit_params(project, lambda params: params["train"].update(tokens=99_840))
    saved = tiny.run(project, "dvc", "exp", "save", "--name", "deneme")
    assert saved.returncode == 0, saved.stderr
    git(project, "checkout", "--quiet", "--", "params.yaml")

    (listed,) = track.list_runs()
    names = ("workspace", "HEAD", listed["name"], listed["id"][:6])
    folder, commit, by_name, by_id = map(load_record, names)
    assert by_name == by_id
    assert commit.curves == folder.curves and commit.samples == folder.samples
    assert {stage: len(points) for stage, points in by_id.curves.items()} == {
        stage: len(points) for stage, points in folder.curves.items()
    }
    for point, logged in zip(folder.curves["train"], by_id.curves["train"], strict=True):
        assert point.items() <= logged.items()
    manifests = {name: value for name, value in folder.hashes.items() if not name.endswith(".dvc")}
    assert by_id.hashes == manifests == {k: v for k, v in commit.hashes.items() if k in manifests}
    both = compare([folder, commit, by_name])
    assert not both.params and not both.data and not both.refusals
    assert len(both.metrics) > 30
    assert {verdict for row in both.metrics for verdict in row.verdicts} == {"equal"}

    numbers = _stored(listed["id"])
    compared = {name: value for name, value in numbers.items() if find(name)}
    assert len(compared) > 30
    for name, value in compared.items():
        assert value == pytest.approx(dict(flat(folder.metrics))[name]), name

    experiment = load_record("deneme")
    assert compare([folder, experiment]).params == {
        "train.tokens": (folder.params["train.tokens"], 99_840)
    }
    with pytest.raises(
        ConfigError, match=r"(?s)experiments of DVC: deneme.*runs in MLflow: pipeline"
    ):
        load_record("yok")


def _stored(run_id: str) -> dict[str, Any]:
    """The numbers of the store itself, without the files kept beside them."""
    run = track.read_run(run_id, mlflow_record.is_curve)
    return dict(flat(mlflow_record.record_of({**run, "stages": {}}).metrics))


@pytest.mark.slow
def test_the_command_compares_and_keeps_a_reference(finished: Finished, tmp_path: Path) -> None:
    project = tiny.copy(finished, tmp_path)
    command = ("python", "-m", "sifirdan.cli")
    kept = tiny.run(project, *command, "reference")
    assert kept.returncode == 0 and "the numbers of 14 stages" in kept.stdout, kept.stderr
    shown = tiny.run(project, *command, "compare", "reference", "--json")
    content = json.loads(shown.stdout)
    assert [run["name"][:9] for run in content["runs"]] == ["workspace", "workspace"]
    assert {verdict for row in content["metrics"] for verdict in row["verdicts"]} == {"equal"}
    wrong = tiny.run(project, *command, "compare", "yok", "--json")
    assert wrong.returncode == 1 and "there is no run 'yok'" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert revision_files.commit_of("--help") is None


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_the_page(finished: Finished, tmp_path: Path) -> None:
    project = tiny.copy(finished, tmp_path)
    command = ("python", "-m", "sifirdan.cli")
    assert tiny.run(project, *command, "reference").returncode == 0
    metrics = json.loads((project / "metrics/evaluate_base.json").read_text(encoding="utf-8"))
    metrics["val"]["bits_per_byte"] += 0.5
    runs.write_json(project / "metrics/evaluate_base.json", metrics)
    shown = tiny.run(project, *command, "compare", "reference")
    assert shown.returncode == 0, shown.stderr
    assert "noise unknown, looks worse" in shown.stdout and "sifirdan noise" in shown.stdout
    page = (project / "reports/compare.html").read_text(encoding="utf-8")
    assert "bits per byte" in page and not tiny.leftovers(project)
    assert "reports/compare.html" not in tiny.run(project, "git", "status", "--porcelain").stdout
