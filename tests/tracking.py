"""What the tests of tracking share: a project folder with a new MLflow store, and looks into the store."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sifirdan import runs, track

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
ROOT = Path(track.__file__).parents[1]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without experiments: making one takes seconds."""
    import mlflow

    folder = tmp_path_factory.mktemp("template")
    mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> Path:
    """A project folder without Git, with a space and Turkish letters in its name."""
    root = tmp_path / "ığdır projesi"
    root.mkdir()
    shutil.copy(empty_database, root / "mlflow.db")
    (root / "params.yaml").write_text("clean:\n  min_chars: 20\ntrain:\n  optim: {lr: 3e-4}\n")
    for variable in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_NAME", "RANK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(root)
    return root


def client() -> Any:
    import mlflow

    return mlflow.MlflowClient(track._store_uri())


def all_runs() -> list[Any]:
    experiment = client().get_experiment_by_name("sifirdan")
    return list(client().search_runs([experiment.experiment_id])) if experiment else []


def curve(run_id: str, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client().get_metric_history(run_id, name)]


def journals(project: Path) -> list[Path]:
    return sorted((project / ".track").glob("*.jsonl"))


def open_stage(name: str, **changes: Any) -> Any:
    return track.stage(name, **({"params": {}, "inputs": {}, "outputs": {}} | changes))


def run_python(code: str, project: Path, **options: Any) -> "subprocess.Popen[str]":
    place = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=project,
        env=os.environ | {"PYTHONPATH": place},
        text=True,
        **options,
    )


def make_folder(path: Path) -> Path:
    with runs.new_folder(path, kind="corpus", inputs={}, params={}) as output:
        (output.path / "text.txt").write_text("iyi günler")
        output.counts = {"documents": 1}
    return path
