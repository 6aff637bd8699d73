"""MLflow tracking of the stages: one top-level run a `dvc repro`, one nested run a stage execution.

The only file that imports MLflow, and only inside functions. Not for results: metrics files and
outputs are complete without it, and no failure here may stop a stage. Every event is written to a
journal (`.track/<run>.jsonl`) and then applied to the store; applying one twice changes nothing,
so a journal can be replayed at any time (`sifirdan replay`). A journal is removed once the
store holds all of it; what a store cannot hold (NaN, infinities) stays in it.
"""

import contextlib
import logging
import os
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sifirdan import runs, track_axes, track_record
from sifirdan.config import PARAMS_FILE, read_yaml
from sifirdan.errors import ConfigError, DataError, SifirdanError
from sifirdan.track_store import Store

EXPERIMENT = "sifirdan"
ARTIFACT_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
LOCK_TRIES = 12  # of runs.LOCK_WAIT_SECONDS each
# A dead server may cost seconds, never the minutes that MLflow's own retries take.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves 0.6 GB of job workers
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}

_log = logging.getLogger(__name__)
_open_runs: list["Run"] = []
_begun: list[str] = []  # the stages that this process has tracked


@contextlib.contextmanager
def stage(
    name: str,
    *,
    params: Mapping[str, Any],
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    resume_run_id: str | None = None,
) -> Iterator["Run"]:
    """Track one execution of the stage `name`. `inputs` and `outputs` are folders with a
    manifest, whose hashes become data sets and the tags `in.*` and `out.*`."""
    _begun.append(name)
    run = Run(name, params, inputs)
    if resume_run_id:
        run.reopen(resume_run_id)
    _open_runs.append(run)
    status = "FAILED"
    try:
        yield run
        status = "FINISHED"
    finally:
        _open_runs.remove(run)
        run._end(status, outputs)


def note_refusal(error: SifirdanError) -> None:
    """A stage of an experiment that ended before it was tracked, say at a wrong setting, leaves a
    FAILED run: of ten experiments in a queue the store shows ten."""
    name = os.environ.get("DVC_STAGE")
    if not name or "DVC_EXP_NAME" not in os.environ or _begun:
        return
    with (
        contextlib.suppress(SifirdanError),
        stage(name, params={}, inputs={}, outputs={}) as run,
    ):
        run.log_text(f"{error}\n", "refused.txt")
        raise error


def close_pipeline(
    all_metrics: Mapping[str, Path],
    curves: Mapping[str, Path],
    folders: Mapping[str, Path] | None = None,
) -> None:
    """Give the pipeline run what the stages that DVC skipped left, and finish it. Called by the last
    stage inside its `with stage(...)`; the first two mappings go from stage to file. `folders` are
    outputs by the name of their tag `out.NAME`, whose hashes show what the run stands on."""
    assert _open_runs, "close_pipeline is called inside `with track.stage(...)`"
    _open_runs[-1]._close_pipeline(all_metrics, curves, folders or {})


def replay(path: Path) -> str:
    """Bring the store up to date with a journal; what it holds already is not doubled. Returns
    the id of the run in the store."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such journal", expected="a file .track/*.jsonl")
    events = track_record.read_journal(path)
    if not events or events[0].get("event") != "start":
        raise DataError(f"{path}: is not a journal of a run", expected="a file .track/*.jsonl")
    try:
        return _replay(events)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: is damaged: an event lacks what belongs to it ({error})",
            todo="bring the file back from a copy, or remove it: the run's own files are whole",
        ) from error
    except Exception as error:
        raise DataError(
            f"{path}: the store did not take it: {error}",
            todo="mend or replace the store (MLFLOW_TRACKING_URI, or mlflow.db), then replay again",
        ) from error


def ui_command(port: int) -> list[str]:
    """The command that serves the local store's pages on 127.0.0.1; see `ui_environment`."""
    if _is_server(_store_uri()):
        raise ConfigError(
            f"MLFLOW_TRACKING_URI is {_store_uri()}, which is a server already",
            todo=f"open {_store_uri()}, or unset the variable to see the local store",
        )
    server = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", _store_uri()]
    return [*server, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]


def ui_environment() -> dict[str, str]:
    """The environment for `ui_command`: no telemetry, no job workers."""
    return os.environ | _ENVIRONMENT


def ui_url(port: int) -> str:
    """The page that compares whole pipelines in charts; MLflow's own start page does not."""
    uri = _store_uri()
    server = uri.rstrip("/") if _is_server(uri) else f"http://127.0.0.1:{port}"
    with _reading() as store:
        store.sweep()
    query = "workflowType=machine_learning&compareRunsMode=CHART"
    return f"{server}/#/experiments/{store.experiment_id}/runs?{query}"


def empty_bin() -> tuple[int, int]:
    """Delete for good the runs that were deleted on the page of the local store, with their files, but
    for those that hold a registered model; how many went and how many stayed."""
    if os.environ.get("MLFLOW_TRACKING_URI"):
        raise ConfigError(
            f"MLFLOW_TRACKING_URI is {_store_uri()}; only the local store is emptied here",
            todo="unset the variable, or run `mlflow gc` where that store is",
        )
    with _reading() as store:  # it also moves the paths of a copied project, which gc would follow
        gone, held = store.binned()
    uri = ("--backend-store-uri", _store_uri(), "--tracking-uri", _store_uri())
    for start in range(0, len(gone), 100):  # ids in one command line
        command = [sys.executable, "-m", "mlflow", "gc", *uri, "--run-ids"]
        done = subprocess.run(
            [*command, ",".join(gone[start : start + 100])], env=ui_environment(), text=True,
            capture_output=True,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["mlflow gc failed"])[-1]
            raise DataError(f"{_store_uri()}: {said}", todo="end other programs that use the store")
    return len(gone), len(held)


def list_runs() -> list[dict[str, str]]:
    """The pipeline runs of the store, `id` and `name`, the newest first; none where there is no store."""
    local = runs.project_root() / "mlflow.db"
    if not os.environ.get("MLFLOW_TRACKING_URI") and not local.is_file():
        return []
    with _reading() as store:
        found = store.pipelines()
        return [{"id": run.info.run_id, "name": run.info.run_name or ""} for run in found]


def read_run(run_id: str, is_curve: Callable[[str], bool]) -> dict[str, Any]:
    """A pipeline run as plain data: `id`, `name`, `params`, `tags`, `metrics` (the last value each),
    `curves` (points (step, value) of the metrics that `is_curve`), `stages`: of each stage the tags of
    its last finished run and the texts of its metrics file and samples; and `files`: the texts of the
    metrics files of stages that DVC skipped."""
    with _reading() as store:
        return store.read(run_id, is_curve)


@contextlib.contextmanager
def _reading() -> Iterator[Store]:
    try:
        yield _open_store()
    except ConfigError:
        raise
    except Exception as error:  # file, database, server or network
        raise DataError(
            f"the tracking store {_store_uri()} cannot be read: {(str(error).splitlines() or [''])[0]}",
            todo="mend the store, or set MLFLOW_TRACKING_URI to the right one",
        ) from error


class Run:
    """One stage execution. No method but `finish` raises: tracking never stops a stage."""

    def __init__(self, stage: str, params: Mapping[str, Any], inputs: Mapping[str, Path]) -> None:
        self.stage = stage
        self.pipeline = ""
        self.run_id = f"{stage}-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}"
        self.parent_id = ""
        self._store: Store | None = None
        self._journal: track_record.Journal | None = None
        self._keep_journal = False
        self._warned: set[str] = set()
        self._monitor: Any = None
        self._axes: Mapping[str, float] = {}
        self._begun = time.monotonic()
        self._is_main = os.environ.get("RANK", "0") == "0"  # torchrun: the first process only
        if self._is_main:
            self._try("journal", lambda: self._open_journal(f"{self.run_id}.jsonl"))
            self._try("store", self._connect)
            self._try("record", lambda: self._start(params, inputs))

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Points of the run's curves; buffered. The journal has them at once."""
        good: dict[str, float] = {}
        for name, value in values.items():
            self._try(f"metric {name}", partial(_add_float, good, name, value))
        self._try("record", lambda: self._emit("metrics", step=int(step), values=good))

    def log_axes(self, metrics: Mapping[str, Any]) -> None:
        """Draw the curves against tokens and FLOPs too; called before the first point. `metrics` is
        what will stand in the stage's metrics file, as far as it is known at the start."""
        self._axes = track_axes.axes_of(metrics)
        self._try("record", lambda: self._emit("axes", per_step=self._axes))

    def log_artifact(self, path: Path) -> None:
        """Keep a copy of a file with the run."""
        self._try(
            "record", lambda: self._emit("artifact", path=str(Path(path).resolve(strict=True)))
        )

    def log_text(self, text: str, name: str) -> None:
        """Keep a text with the run, as the file `name`."""
        self._try("record", lambda: self._emit("text", name=name, text=text))

    def log_table(self, rows: Sequence[Mapping[str, Any]], name: str) -> None:
        """Keep rows of equal columns as the table `name` (say "samples.json"), on this run and its
        pipeline; MLflow's page shows the tables of several runs side by side."""
        columns = list(rows[0]) if rows else []
        data = [[row.get(column) for column in columns] for row in rows]
        self._try("record", lambda: self._emit("table", name=name, columns=columns, data=data))

    def register_model(self, name: str, folder: Path, *, bits_per_byte: float, text: str) -> None:
        """Keep a copy of the model `folder` as a version of the registered model `sifirdan-NAME`.
        `bits_per_byte` is its score on val, `text` the hash of that text; the alias `best` goes to
        the lowest score on the text that was measured last."""
        self._try("record", lambda: self._register(name, Path(folder), bits_per_byte, text))

    def finish(self, metrics: Mapping[str, Any], path: Path) -> None:
        """Write the stage's metrics file, then log its numbers to this run and its pipeline."""
        if not self._is_main:
            return
        runs.write_json(path, track_record.spell_nonfinite(metrics))
        values = track_record.numbers(metrics)
        self._try("record", lambda: self._emit("final", stage=self.stage, values=values))
        self.log_artifact(path)
        _log.info("%s: done in %.0f s; %s", self.stage, time.monotonic() - self._begun, path)

    def reopen(self, run_id: str) -> None:
        """Continue the earlier run that a resumed training belongs to, with its pipeline run;
        the run begun for this execution disappears, so call it before anything is logged. Steps that the killed process logged beyond
        its last checkpoint are not logged again, so the curve is one line without doubles."""
        self._try("record", lambda: self._reopen(run_id))

    def _open_journal(self, name: str) -> None:
        self._journal = track_record.Journal(track_record.journal_folder() / name)

    def _connect(self) -> None:
        self._store = _open_store()

    def _start(self, params: Mapping[str, Any], inputs: Mapping[str, Path]) -> None:
        self.pipeline = track_record.pipeline_key()
        tags, diff = track_record.provenance(self.stage)
        datasets = [track_record.dataset(name, Path(path)) for name, path in inputs.items()]
        self._emit(
            "start",
            track_id=self.run_id,
            stage=self.stage,
            pipeline=self.pipeline,
            process=track_record.process_key(),
            params=track_record.flatten(params),
            pipeline_params=_all_params(),
            tags=tags,
            diff=diff,
            inputs=[entry for entry in datasets if entry],
        )
        self._adopt_ids()

    def _adopt_ids(self) -> None:
        if self._store:
            self.run_id, self.parent_id = self._store.run_id, self._store.parent_id
            self._emit("stored", run_id=self.run_id, parent_id=self.parent_id)
            self._try("system metrics", self._start_monitor)

    def _start_monitor(self) -> None:
        """System metrics; a stage shorter than the sampling interval of 10 s gets none."""
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        self._monitor = SystemMetricsMonitor(
            self.run_id, resume_logging=True, tracking_uri=_store_uri()
        )
        self._monitor.start()

    def _stop_monitor(self) -> None:
        if self._monitor:
            self._monitor.finish()
            self._monitor = None

    def _reopen(self, run_id: str) -> None:
        if not self._is_main or run_id == self.run_id:
            return
        self._try("system metrics", self._stop_monitor)
        journal = track_record.find_journal(run_id)
        events = track_record.read_journal(journal) if journal else []
        if self._store and events and not self._store.knows(run_id):
            run_id = _replay(events)  # the earlier process had no store
        if journal and self._journal:
            self._journal.remove()
            self._open_journal(journal.name)
            self._keep_journal = any(map(track_record.has_nonfinite, events))
        self._emit(
            "reopen",
            run_id=run_id,
            pipeline=self.pipeline,
            process=track_record.process_key(),
            pipeline_params=_all_params(),
        )
        if self._axes:
            self._emit("axes", per_step=self._axes)
        if self._store and self._store.run_id == run_id:
            self._store.catch_up(events)
        self._adopt_ids()

    def _close_pipeline(
        self,
        all_metrics: Mapping[str, Path],
        curves: Mapping[str, Path],
        folders: Mapping[str, Path],
    ) -> None:
        for name in {**all_metrics, **curves}:
            files = all_metrics.get(name), curves.get(name)
            self._try("record", partial(self._replay_stage, name, *files))
        found = {name: track_record.folder_hash(path) for name, path in folders.items()}
        hashes = {name: digest for name, digest in found.items() if digest}
        self._try("record", lambda: self._emit("close", folders=hashes))

    def _replay_stage(self, name: str, metrics: Path | None, curve: Path | None) -> None:
        points = track_record.read_curve(curve) if curve and curve.is_file() else []
        content = track_record.read_content(metrics) if metrics and metrics.is_file() else {}
        self._emit(
            "replayed",
            stage=name,
            points=points,
            values=track_record.numbers(content),
            content=track_record.spell_nonfinite(content),
            axes=track_axes.axes_of(content),
        )

    def _register(self, name: str, folder: Path, bits_per_byte: float, text: str) -> None:
        digest = track_record.folder_hash(folder)
        if not digest:
            raise DataError(f"{folder}: is no finished model folder, and so not registered")
        self._emit(
            "model",
            name=f"{EXPERIMENT}-{name}",
            path=str(folder.resolve()),
            manifest=digest,
            bits_per_byte=float(bits_per_byte),
            text=text,
            commit=track_record.head_commit(),
        )

    def _end(self, status: str, outputs: Mapping[str, Path]) -> None:
        self._try("system metrics", self._stop_monitor)
        hashes = {name: track_record.folder_hash(Path(path)) for name, path in outputs.items()}
        self._try("record", lambda: self._emit("end", status=status, outputs=hashes))
        if self._store is None and self.parent_id:  # it worked once: perhaps it does again
            self._try("store", self._catch_up)
        if self._journal:
            whole = self._store and not self._store.error and not self._keep_journal
            self._try("journal", self._journal.remove if whole else self._journal.close)

    def _catch_up(self) -> None:
        assert self._journal
        _replay(track_record.read_journal(self._journal.path))
        self._store = _open_store()
        _log.info("tracking: the store is back and holds everything")

    def _emit(self, event: str, **content: Any) -> None:
        if not self._is_main:
            return
        record = {"event": event, "time": int(time.time() * 1000), **content}
        self._keep_journal = self._keep_journal or track_record.has_nonfinite(record)
        if self._journal:
            self._try("journal", partial(self._journal.write, record))
        if self._store:
            self._try("store", partial(self._store.apply, record))

    def _try(self, what: str, action: Callable[[], object]) -> None:
        """Do `action`; whatever fails in it, the stage goes on, with one warning."""
        try:
            action()
        except Exception as error:  # whichever package or disk it comes from
            if what == "store":
                self._store = None
            elif what == "journal":
                self._journal = None
            if what not in self._warned:
                _log.warning(
                    "tracking: the %s failed and the stage goes on (%s); %s: %s",
                    what,
                    f"later: sifirdan replay {self._journal.path}"
                    if self._journal
                    else "without a journal",
                    type(error).__name__,
                    (str(error).splitlines() or [""])[0],
                )
            self._warned.add(what)


def _replay(events: list[dict[str, Any]]) -> str:
    store = _open_store()
    for event in events:
        store.apply(event)
    store.settle(events)
    if store.error:
        raise store.error
    return store.run_id


def _store_uri() -> str:
    local = (runs.project_root() / "mlflow.db").as_posix()
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{local}"


def _is_server(uri: str) -> bool:
    return uri.startswith(("http:", "https:"))


def _open_store() -> Store:
    """The store, made if it is not there. One process at a time: MLflow's first migration of a
    database does not stand a second one beside it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow

    if not _is_server(_store_uri()):
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = 2  # of opening a database; MLflow's 10 take two minutes
    for noisy in ("mlflow", "alembic", "urllib3"):  # one warning of ours says it all
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        _enter_lock(stack)
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            _make_database(runs.project_root() / "mlflow.db")
        client = mlflow.MlflowClient(_store_uri())
        return Store(mlflow, client, _find_experiment(client))


def _make_database(path: Path) -> None:
    """MLflow's tables, made under another name and renamed: a first creation that was killed would
    leave a database that refuses every later run."""
    if path.exists():
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    partial = path.with_name(f".{path.name}.partial")
    for left in path.parent.glob(f"{partial.name}*"):
        left.unlink()
    artifacts = (path.parent / "mlartifacts").as_uri()
    SqlAlchemyStore(f"sqlite:///{partial.as_posix()}", artifacts).engine.dispose()
    os.replace(partial, path)


def _enter_lock(stack: contextlib.ExitStack) -> None:
    path = track_record.journal_folder() / "store.lock"
    for left in reversed(range(LOCK_TRIES)):
        try:
            stack.enter_context(runs.lock(path, doing="opening the tracking store"))
            return
        except ConfigError:
            if not left:
                raise


def _find_experiment(client: Any) -> str:
    """Its id. Artifacts of the local store lie beside it, under an absolute path, so that
    `dvc exp` copies use that place too; other stores have their own."""
    local = not os.environ.get("MLFLOW_TRACKING_URI")
    place = (runs.project_root() / "mlartifacts").as_uri() if local else None
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        note = {"mlflow.note.content": "One run a `dvc repro`; inside it, one a stage."}
        return str(client.create_experiment(EXPERIMENT, artifact_location=place, tags=note))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    if place and found.artifact_location != place:
        _move_artifacts(found.artifact_location, place)
    return str(found.experiment_id)


def _move_artifacts(old: str, new: str) -> None:
    """The project's folder was moved or copied: MLflow, which has no call for this, would go on
    writing into the old one."""
    database = sqlite3.connect(runs.project_root() / "mlflow.db", timeout=20)
    with contextlib.closing(database), database:
        for table, column in ARTIFACT_COLUMNS:
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE instr({column}, ?) = 1",
                (new, len(old) + 1, old),
            )


def _all_params() -> dict[str, Any]:
    """Everything in params.yaml, for the pipeline run; the stage itself tells what is wrong there."""
    with contextlib.suppress(ConfigError):
        return track_record.flatten(read_yaml(PARAMS_FILE))
    return {}


def _add_float(target: dict[str, float], name: str, value: Any) -> None:
    target[str(name)] = float(value)
