"""Tracking to a real MLflow server over HTTP: the limits again, a server that dies and comes back, a
password; and four real stages that start at once on a store that is not there yet."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tracking import ROOT, all_runs, client, curve, journals, open_stage, run_python

from sifirdan import runs, track, track_record

pytestmark = pytest.mark.slow
# ASCII: MLflow sends a password as UTF-8 with numbers, but as Latin-1 with artifacts.
PASSWORD = "a secret of this test 42"
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


class Server:
    """An MLflow server on loopback, with its database and artifacts in a folder."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder, self._options, self._environment = folder, options, environment
        self.start()

    def start(self) -> None:
        places = ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"]
        places += ["--artifacts-destination", (self._folder / "artifacts").as_uri()]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *places, *where, *self._options],
            cwd=self._folder,
            env=os.environ | QUIET | self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
                return
            except urllib.error.HTTPError:  # it asks for a password: it is there
                return
            except OSError:
                assert self._process.poll() is None, "the server ended"
                time.sleep(0.2)
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "mlflow.db").write_bytes(empty_database.read_bytes())
    server = Server(folder)
    yield server
    server.stop()


@pytest.fixture
def remote(project: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose runs go to the server; each on an experiment of its own."""
    monkeypatch.setattr(track, "EXPERIMENT", f"sifirdan-{project.parent.name}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    return project


def test_M_02_M_04_M_05_the_limits_hold_over_http(remote: Path) -> None:
    long = ("çok uzun ğüşiöı " * 500)[:7000]
    params = {"değer": long, "k" * 300: 1, "k" * 299 + "x": 2} | {f"p{i}": i for i in range(150)}
    names = ["ppl@1", "time(s)", "a,b", "kayıp/ğ", "ş", "a//b", "../x", "", "x" * 300, "x" * 301]
    with open_stage("train", params=params) as run:
        run.log_metrics({"loss": float("nan")}, 1)
        values = {name: float(number) for number, name in enumerate(names)}
        run.finish(values | {"ppl": float("inf")}, Path("metrics/train.json"))
    found = client().get_run(run.run_id)
    assert (len(found.data.params), found.info.status) == (153, "FINISHED")
    file = found.data.params["değer"].split(" in ")[1]
    assert Path(client().download_artifacts(run.run_id, file)).read_text() == long
    flags = {name for name in found.data.metrics if name.endswith(".nonfinite")}
    assert flags == {"train/loss.nonfinite", "train/ppl.nonfinite"}
    stored = sorted(found.data.metrics[name] for name in found.data.metrics if name not in flags)
    assert stored == list(range(len(names)))
    (journal,) = journals(remote)  # it alone has the true values
    assert any(map(track_record.has_nonfinite, track_record.read_journal(journal)))


def test_a_model_goes_to_the_registry_of_a_server_and_loads_from_there(
    remote: Path, tmp_path: Path
) -> None:
    import mlflow

    name = f"{track.EXPERIMENT}-base"
    for weights, score in (("a", 1.5), ("b", 1.4), ("b", 1.4), ("c", 1.6)):
        with runs.new_folder(remote / "base", kind="model", inputs={}, params={}) as output:
            (output.path / "model.safetensors").write_text(weights)
        with open_stage("evaluate_base") as run:
            run.register_model("base", remote / "base", bits_per_byte=score, text="aaa")
    assert len(client().search_model_versions(f"name = '{name}'")) == 3
    mlflow.set_tracking_uri(track._store_uri())
    try:
        there = mlflow.artifacts.download_artifacts(f"models:/{name}@best", dst_path=str(tmp_path))
    finally:
        mlflow.set_tracking_uri(None)
    assert (Path(there) / "model.safetensors").read_text() == "b" and journals(remote) == []


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_server_killed_in_the_middle_loses_no_point(
    remote: Path, server: Server, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with open_stage("train") as run:
        for step in range(1, 6):
            run.log_metrics({"loss": 9.0 - step}, step)
        run._store._flush()
        server.stop()
        for step in range(6, 11):
            run.log_metrics({"loss": 9.0 - step}, step)
        run._try("store", run._store._flush)
        run.finish({"tokens": 12}, Path("metrics/train.json"))
        if comes_back:
            server.start()
    assert Path("metrics/train.json").is_file()
    if not comes_back:
        server.start()
        (journal,) = journals(remote)
        assert track.replay(journal) == track.replay(journal) == run.run_id
    assert journals(remote) == [] or not comes_back
    for run_id in (run.run_id, run.parent_id):
        assert curve(run_id, "train/loss") == [(step, 9.0 - step) for step in range(1, 11)]
        assert client().get_run(run_id).data.metrics["train/tokens"] == 12
        assert client().get_run(run_id).info.status == "FINISHED"


LOGGED_IN_STAGE = """
from pathlib import Path
from sifirdan import track
with track.stage("train", params={"lr": 1}, inputs={}, outputs={}) as run:
    run.log_metrics({"loss": 2.5}, 1)
    run.log_text("örnek", "samples.txt")
    run.finish({"tokens": 12}, Path("metrics/train.json"))
print(run.run_id)
"""


def test_a_server_with_a_password_takes_what_has_it_and_a_wrong_one_stops_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flask_wtf", reason="pip install 'mlflow[auth]'")
    folder = tmp_path / "server"
    folder.mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ayse")
    users = f"sqlite:///{folder}/users.db"
    config = folder / "auth.ini"
    config.write_text(
        f"[mlflow]\ndefault_permission = READ\ndatabase_uri = {users}\nadmin_username = ayse\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    server = Server(
        folder, "--app-name", "basic-auth",
        MLFLOW_AUTH_CONFIG_PATH=str(config), MLFLOW_AUTH_ADMIN_PASSWORD=PASSWORD,
        MLFLOW_FLASK_SERVER_SECRET_KEY="only for this test",
    )  # fmt: skip
    try:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        told = {}
        for password in (PASSWORD, "wrong"):
            monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
            done = run_python(
                LOGGED_IN_STAGE, project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            said, told[password] = done.communicate(timeout=120)
            assert "http" not in said  # MLflow would print addresses
            assert done.returncode == 0 and Path("metrics/train.json").is_file()
            assert len(journals(project)) == (0 if password == PASSWORD else 1)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        assert {run.info.status for run in all_runs()} == {"FINISHED"} and len(all_runs()) == 2
        assert "the stage goes on" in told["wrong"] and told[PASSWORD] == ""
        (journal,) = journals(project)
        assert track.replay(journal)
        assert len(all_runs()) == 4
        shown = repr([(run.data.params, run.data.tags) for run in all_runs()])
        places = [path.read_text(errors="replace") for path in project.rglob("*") if path.is_file()]
        for secret in (PASSWORD, "wrong"):
            assert not any(secret in text for text in [shown, *places, *told.values()])
    finally:
        server.stop()


def test_M_03_four_real_stages_start_at_once_on_a_store_that_is_not_there(project: Path) -> None:
    (project / "mlflow.db").unlink()
    (project / "params.yaml").write_text((ROOT / "presets/tiny.yaml").read_text(encoding="utf-8"))
    for name in ("tokenizer", "base", "chat"):
        kind = "tokenizer" if name == "tokenizer" else "model"
        with runs.new_folder(project / "models" / name, kind=kind, inputs={}, params={}) as output:
            (output.path / "config.json").write_text("{}")
    own = project / yaml.safe_load(Path("params.yaml").read_text())["ingest"]["own_text"]
    own.mkdir(parents=True)
    (own / "masal.txt").write_text("Iğdır'da bir gün kayısı ağaçları çiçek açtı.\n" * 5)
    commands = [["publish", "tokenizer"], ["publish", "base"], ["publish", "chat"], ["ingest"]]
    place = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"stages.{stage}", *words],
            env=os.environ | {"PYTHONPATH": place},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for stage, *words in commands
    ]
    told = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0], told
    assert not any("tracking" in text for text in told) and journals(project) == []
    for words in commands:
        stage = "_".join(words)
        (run,) = [found for found in all_runs() if found.data.tags["stage"] == stage]
        written = track_record.read_metrics(Path(f"metrics/{stage}.json"))
        wanted = {
            track_record.safe_name(track_record.metric_name(stage, name), 250): value
            for name, value in written.items()
        }
        got: dict[str, Any] = run.data.metrics
        assert {k: v for k, v in got.items() if not k.startswith("system/")} == wanted
        assert run.info.status == "FINISHED" and wanted
