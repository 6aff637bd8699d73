"""How tracking events become runs in MLflow: the rules of pipelines, resumed curves and limits.

Not for deciding what is tracked (`track.py`) and, although all of this is MLflow calls, not for
importing MLflow: the opened client is handed in.
"""

import contextlib
import json
import logging
import math
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sifirdan import track_axes, track_record, track_registry

FLUSH_SECONDS = 10.0  # how far the curve on the page may lag behind
FLUSH_POINTS = 1000  # a log_batch of this size takes about 0.1 s on SQLite
TABLES_TAG = "mlflow.loggedArtifacts"  # what MLflow's page looks for tables in
MAX_SEARCHED_RUNS = 20  # the newest of a stage, for the times of a replayed curve

_log = logging.getLogger(__name__)


class Store:
    """An opened MLflow store with one nested run and its pipeline run. Every `apply` can be done
    twice: runs are found again by their tags, points by their step and time."""

    def __init__(self, mlflow: Any, client: Any, experiment_id: str) -> None:
        """`mlflow` is the module, `client` its MlflowClient: this file imports neither."""
        self.run_id = ""
        self.parent_id = ""
        self.experiment_id = experiment_id
        self.artifact_error: Exception | None = None
        self.registry_error: Exception | None = None
        self._client = client
        self._entities = mlflow.entities
        self._limits = mlflow.utils.validation  # read there: they differ between releases
        self._not_found = mlflow.exceptions.MlflowException
        self._stage = ""
        self._new_runs: set[str] = set()
        self._pending: dict[str, list[Any]] = {}
        self._last_steps: dict[tuple[str, str], int] = {}
        self._last_places: dict[tuple[str, str], int] = {}
        self._per_step: Mapping[str, float] = {}
        self._curves: set[str] = set()
        self._flushed = time.monotonic()

    @property
    def error(self) -> Exception | None:
        """Why something that an event asked for is not in the store."""
        return self.artifact_error or self.registry_error

    def apply(self, event: Mapping[str, Any]) -> None:
        actions = {
            "start": self._start,
            "reopen": self._reopen,
            "axes": self._axes,
            "metrics": self._metrics,
            "final": self._final,
            "replayed": self._replayed,
            "artifact": self._artifact,
            "text": self._text,
            "table": self._table,
            "model": self._model,
            "close": self._close,
            "end": self._end,
        }
        if event["event"] in actions:  # a later release may write others
            actions[event["event"]](event)

    def knows(self, run_id: str) -> bool:
        return self._lookup(run_id) is not None

    def catch_up(self, events: list[dict[str, Any]]) -> None:
        """The points that a killed process had not yet sent; then the steps are counted anew."""
        for event in events:
            if event["event"] in ("axes", "metrics"):
                self.apply(event)
        self._flush()
        self._last_steps.clear()
        self._last_places.clear()
        self._new_runs.clear()

    def settle(self, events: list[dict[str, Any]]) -> None:
        """After a replay: send what is buffered, and end the run if its process did not."""
        self._flush()
        begun = [event for event in events if event["event"] in ("start", "reopen")][-1]
        if events[-1]["event"] != "end" and not track_record.is_alive(begun["process"]):
            self._client.set_terminated(self.run_id, "KILLED", events[-1]["time"])
        self.sweep()

    def _start(self, event: Mapping[str, Any]) -> None:
        self.sweep()
        self._stage = event["stage"]
        tags, owner = event["tags"], track_record.owner_of(event["pipeline"])
        found = self._search(f"tags.`track.id` = '{event['track_id']}'")
        parent = (
            self._lookup(found[0].data.tags["mlflow.parentRunId"])
            if found
            else self._find_pipeline(event["pipeline"], tags["host"])
        )
        if parent is None:
            name = tags.get("dvc.exp.name") or time.strftime(
                "pipeline %Y-%m-%d %H:%M:%S", time.localtime(event["time"] / 1000)
            )
            pipeline = {
                "pipeline.key": event["pipeline"],
                "process": owner,
                "stage": "pipeline",
                "mlflow.source.name": "dvc.yaml",
            }
            self.parent_id = self._create(name, tags | pipeline, event)
        else:
            self.parent_id = parent.info.run_id
            if track_record.is_alive(owner):  # not when an old journal is replayed
                self._client.update_run(self.parent_id, status="RUNNING")
        own = {
            "track.id": event["track_id"],
            "process": event["process"],
            "mlflow.parentRunId": self.parent_id,
        }
        self.run_id = (
            found[0].info.run_id if found else self._create(self._stage, tags | own, event)
        )
        self._log_params(self.run_id, event["params"])
        self._log_params(self.parent_id, event["pipeline_params"])
        self._log_inputs(event["inputs"])
        for run_id in (self.run_id, self.parent_id):
            hashes = {f"in.{entry['name']}": entry["digest"] for entry in event["inputs"]}
            self._set_tags(run_id, hashes)

    def _reopen(self, event: Mapping[str, Any]) -> None:
        run = self._lookup(event["run_id"])
        if run is None or run.data.tags.get("stage") != self._stage:
            _log.info(
                "tracking: the store has no %s run %s to continue", self._stage, event["run_id"]
            )
            return
        self._flush()
        parent = self._lookup(run.data.tags.get("mlflow.parentRunId", ""))
        begun, self.run_id = self.run_id, run.info.run_id
        if begun != self.run_id:
            self._client.delete_run(begun)
        if parent is None:  # deleted by hand: the curve goes on under the pipeline of now
            self._set_tags(self.run_id, {"mlflow.parentRunId": self.parent_id})
        elif parent.info.run_id != self.parent_id:
            self._move_pipeline(self.parent_id, parent.info.run_id)
            self.parent_id = parent.info.run_id
        owner = track_record.owner_of(event["pipeline"])
        self._set_tags(self.run_id, {"process": event["process"], "resumed": "true"})
        self._set_tags(self.parent_id, {"process": owner, "pipeline.key": event["pipeline"]})
        self._log_params(self.parent_id, event["pipeline_params"])
        for run_id in (self.run_id, self.parent_id):
            self._client.update_run(run_id, status="RUNNING")

    def _move_pipeline(self, source: str, target: str) -> None:
        """What the stages before this one gave to the pipeline run `source` belongs to `target`."""
        for child in self._children(source):
            self._set_tags(child.info.run_id, {"mlflow.parentRunId": target})
        given = self._client.get_run(source).data
        hashes = {k: v for k, v in given.tags.items() if k.startswith(("in.", "out."))}
        self._set_tags(target, hashes)
        for name in given.metrics:
            for point in self._client.get_metric_history(source, name):
                if point.step == 0 or point.step > self._last_step(target, name):
                    self._pending.setdefault(target, []).append(point)
        self._client.delete_run(source)

    def _axes(self, event: Mapping[str, Any]) -> None:
        self._per_step = event["per_step"]

    def _metrics(self, event: Mapping[str, Any]) -> None:
        point = event["step"], event["values"], event["time"]
        for run_id in (self.run_id, self.parent_id):
            self._add_points(run_id, self._stage, *point, self._per_step)
        full = max(map(len, self._pending.values()), default=0) >= FLUSH_POINTS
        if full or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._flush()

    def _final(self, event: Mapping[str, Any]) -> None:
        for run_id in (self.run_id, self.parent_id):
            self._add_final(run_id, event["stage"], event["values"], event["time"])

    def _replayed(self, event: Mapping[str, Any]) -> None:
        done = {
            child.data.tags.get("stage")
            for child in self._children(self.parent_id)
            if child.info.status == "FINISHED"
        }
        if event["stage"] in done:
            return
        times, axes = self._times_of(event["stage"], event["points"]), event.get("axes", {})
        for step, values in event["points"]:
            when = times.get(step, event["time"])
            self._add_points(self.parent_id, event["stage"], step, values, when, axes)
        self._add_final(self.parent_id, event["stage"], event["values"], event["time"])
        self._set_tags(self.parent_id, {f"replayed.{event['stage']}": "true"})
        if content := event.get("content"):  # with the texts, hashes mostly, that are no numbers
            text = json.dumps(content, ensure_ascii=False)
            place = f"{track_record.METRICS_FOLDER}/{event['stage']}.json"
            self._put(self._client.log_text, self.parent_id, text, place)

    def _times_of(self, stage: str, points: list[Any]) -> dict[int, int]:
        """When the run that made this curve logged each step, where the store still has that run.
        A curve file has no times, and all of it would stand at one moment of the time axis."""
        wanted = {step: values["loss"] for step, values in points if "loss" in values}
        query = f"tags.stage = '{stage}' and attributes.status = 'FINISHED'"
        for run in self._search(query, MAX_SEARCHED_RUNS) if wanted else ():
            name = track_record.metric_name(stage, "loss")
            history = self._client.get_metric_history(run.info.run_id, name)
            if {point.step: point.value for point in history} == wanted:
                return {point.step: point.timestamp for point in history}
        return {}

    def _close(self, event: Mapping[str, Any]) -> None:
        self._flush()
        hashes = {f"out.{name}": digest for name, digest in event.get("folders", {}).items()}
        self._set_tags(self.parent_id, {"closed": "true"} | hashes)
        self._finish_pipeline(event["time"])

    def _finish_pipeline(self, when: int) -> None:
        """End the pipeline run: FAILED if the last execution of some stage was (the stages beside
        it went on, as `dvc repro --keep-going` lets them), else FINISHED."""
        children = sorted(self._children(self.parent_id), key=lambda run: run.info.start_time)
        last = {child.data.tags.get("stage"): child.info.status for child in children}
        status = "FAILED" if "FAILED" in last.values() else "FINISHED"
        self._client.set_terminated(self.parent_id, status, when)

    def _end(self, event: Mapping[str, Any]) -> None:
        self._flush()
        hashes = {f"out.{name}": digest for name, digest in event["outputs"].items() if digest}
        for run_id in (self.run_id, self.parent_id):
            self._set_tags(run_id, hashes)
        self._client.set_terminated(self.run_id, event["status"], event["time"])
        tags = self._client.get_run(self.parent_id).data.tags
        if tags["pipeline.key"].startswith("manual") or event["status"] != "FINISHED":
            self._client.set_terminated(self.parent_id, event["status"], event["time"])
        elif tags.get("closed") == "true":  # a stage that DVC ran after `report`, such as publish
            self._finish_pipeline(event["time"])

    def _artifact(self, event: Mapping[str, Any]) -> None:
        if Path(event["path"]).exists():  # a replay may come when it is gone
            self._put(self._client.log_artifact, self.run_id, event["path"])

    def _text(self, event: Mapping[str, Any]) -> None:
        self._put(self._client.log_text, self.run_id, event["text"], event["name"])

    def _table(self, event: Mapping[str, Any]) -> None:
        """In the form of MLflow's own tables: it has a call for that, which appends when repeated."""
        content = {"columns": event["columns"], "data": event["data"]}
        text = json.dumps(content, ensure_ascii=False, default=str)
        for run_id in (self.run_id, self.parent_id):
            self._put(self._client.log_text, run_id, text, event["name"])
            tags = self._client.get_run(run_id).data.tags
            tables = json.loads(tags.get(TABLES_TAG, "[]"))
            table = {"path": event["name"], "type": "table"}
            if table not in tables:
                self._set_tags(run_id, {TABLES_TAG: json.dumps([*tables, table])})

    def _put(self, action: Callable[..., object], *arguments: str) -> None:
        """Artifacts lie elsewhere than numbers; when that place fails the numbers go on."""
        if self.artifact_error:
            return
        try:
            action(*arguments)
        except Exception as error:  # file system, object store or server
            self.artifact_error = error
            _log.warning("tracking: artifacts of this run cannot be stored: %s", error)

    def _model(self, event: Mapping[str, Any]) -> None:
        """The registry fails for reasons of its own (an old server, no rights); the rest goes on."""
        try:
            track_registry.register(self._client, self.run_id, event)
        except Exception as error:  # server, file system or object store
            self.registry_error = error
            _log.warning("tracking: %s is not in the registry: %s", event["name"], error)

    def _add_points(
        self,
        run_id: str,
        stage: str,
        step: int,
        values: Mapping[str, float],
        when: int,
        per_step: Mapping[str, float],
    ) -> None:
        for raw, value in values.items():
            name, value = self._storable(track_record.metric_name(stage, raw), value)
            self._curves.add(name)
            if step > self._last_step(run_id, name):
                self._append(run_id, name, value, when, step)
        for raw, place, value in track_axes.points(stage, step, values, per_step):
            name, value = self._storable(raw, value)
            last = self._last_places.get((run_id, name), -1)
            if place > max(last, self._last_step(run_id, name)):  # steps may be below 1 GFLOP
                self._append(run_id, name, value, when, place)
                self._last_places[run_id, name] = place

    def _append(self, run_id: str, name: str, value: float, when: int, step: int) -> None:
        point = self._entities.Metric(name, value, when, step)
        self._pending.setdefault(run_id, []).append(point)

    def _add_final(self, run_id: str, stage: str, values: Mapping[str, float], when: int) -> None:
        """One number a name, at step 0; one that shares its name with a curve gets `_final`."""
        known = self._client.get_run(run_id).data.metrics
        for raw, value in values.items():
            name, value = self._storable(track_record.metric_name(stage, raw), value)
            if name in self._curves or self._last_step(run_id, name) > 0:
                name += "_final"
            if known.get(name) != value:
                self._append(run_id, name, value, when, 0)
        self._flush()

    def _storable(self, name: str, value: float) -> tuple[str, float]:
        """Name and value as the store takes them: SQL has no NaN and no infinity, so a flag
        stands for them; the true value is in the journal."""
        if not math.isfinite(value):
            name, value = f"{name}.nonfinite", 1.0
        return track_record.safe_name(
            name, self._limits.MAX_ENTITY_KEY_LENGTH - len("_final")
        ), value

    def _last_step(self, run_id: str, name: str) -> int:
        """The last step of a curve as it stood before this process logged to it, or -1."""
        if run_id in self._new_runs:
            return -1
        if (run_id, name) not in self._last_steps:
            history = self._client.get_metric_history(run_id, name)
            self._last_steps[run_id, name] = max((point.step for point in history), default=-1)
        return self._last_steps[run_id, name]

    def _flush(self) -> None:
        for run_id, points in self._pending.items():
            self._client.log_batch(run_id, metrics=points)
        self._pending.clear()
        self._flushed = time.monotonic()

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        """A parameter of a run can never change; another value, at a later start, becomes a tag.
        A value too long for the store becomes an artifact and stands as its hash."""
        limits, known, rows, changed = (
            self._limits,
            self._client.get_run(run_id).data.params,
            [],
            {},
        )
        for raw, value in params.items():
            name = track_record.safe_name(raw, limits.MAX_ENTITY_KEY_LENGTH)
            text = track_record.param_text(value)
            if len(text) > limits.MAX_PARAM_VAL_LENGTH:
                file = f"params/{track_record.digest_of(text)}.txt"
                self._put(self._client.log_text, run_id, text, file)
                text = f"{len(text)} characters, in {file}"
            if name not in known:
                rows.append(self._entities.Param(name, text))
            elif known[name] != text:
                changed[f"changed.{raw}"] = text
        for start in range(0, len(rows), limits.MAX_PARAMS_TAGS_PER_BATCH):
            self._client.log_batch(
                run_id, params=rows[start : start + limits.MAX_PARAMS_TAGS_PER_BATCH]
            )
        self._set_tags(run_id, changed)

    def _set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        rows = [self._entities.RunTag(name, value) for name, value in self._fit(tags).items()]
        self._client.log_batch(run_id, tags=rows)

    def _fit(self, tags: Mapping[str, str]) -> dict[str, str]:
        limits = self._limits
        return {
            track_record.safe_name(name, limits.MAX_ENTITY_KEY_LENGTH): value[
                : limits.MAX_TAG_VAL_LENGTH
            ]
            for name, value in tags.items()
        }

    def _log_inputs(self, entries: list[Mapping[str, str]]) -> None:
        limits = self._limits
        datasets = [
            self._entities.DatasetInput(
                self._entities.Dataset(
                    name=entry["name"],
                    digest=entry["digest"][: limits.MAX_DATASET_DIGEST_SIZE],
                    source_type="local",
                    source=track_record.param_text({"uri": entry["path"]}),
                    profile=entry["profile"][: limits.MAX_DATASET_PROFILE_SIZE],
                ),
                [self._entities.InputTag("mlflow.data.context", self._stage)],
            )
            for entry in entries
        ]
        if datasets:
            self._client.log_inputs(self.run_id, datasets)

    def _create(self, name: str, tags: Mapping[str, str], event: Mapping[str, Any]) -> str:
        run = self._client.create_run(
            self.experiment_id, start_time=event["time"], tags=self._fit(tags), run_name=name
        )
        run_id: str = run.info.run_id
        self._new_runs.add(run_id)
        if event["diff"]:
            self._put(self._client.log_text, run_id, event["diff"], "git.diff")
        return run_id

    def sweep(self) -> None:
        """End the runs of processes that are gone: KILLED, but a pipeline whose stages all ended
        is FINISHED or FAILED as they are (`dvc repro STAGE` never reaches `report`)."""
        stale = [
            run
            for run in self._search(
                f"attributes.status = 'RUNNING' and tags.host = '{socket.gethostname()}'"
            )
            if not track_record.is_alive(run.data.tags.get("process", ""))
        ]
        stale.sort(key=lambda run: "pipeline.key" in run.data.tags)  # stages before pipelines
        for run in stale:
            ends = {child.info.status for child in self._children(run.info.run_id)}
            whole = ends and ends <= {"FINISHED", "FAILED"}
            status = ("FAILED" if "FAILED" in ends else "FINISHED") if whole else "KILLED"
            self._client.set_terminated(run.info.run_id, status)

    def pipelines(self) -> list[Any]:
        """Every pipeline run, the newest first."""
        found = self._search("tags.stage = 'pipeline'")
        return sorted(found, key=lambda run: run.info.start_time, reverse=True)

    def binned(self) -> tuple[list[str], list[str]]:
        """The runs that were deleted on the page: those that may go for good, and those that hold a
        version of a registered model."""
        deleted = self._client.search_runs(
            [self.experiment_id], run_view_type=self._entities.ViewType.DELETED_ONLY
        )
        held = track_registry.held_runs(self._client)
        ids = [run.info.run_id for run in deleted]
        return [one for one in ids if one not in held], [one for one in ids if one in held]

    def read(self, run_id: str, is_curve: Callable[[str], bool]) -> dict[str, Any]:
        """See `track.read_run`."""
        run = self._client.get_run(run_id)
        children = sorted(self._children(run_id), key=lambda child: child.info.start_time)
        return {
            "id": run_id,
            "name": run.info.run_name or "",
            "params": dict(run.data.params),
            "tags": dict(run.data.tags),
            "metrics": dict(run.data.metrics),
            "curves": {
                name: [(p.step, p.value) for p in self._client.get_metric_history(run_id, name)]
                for name in run.data.metrics
                if is_curve(name)
            },
            "files": self._skipped_stages(run_id),
            "stages": {
                child.data.tags.get("stage", ""): {
                    "tags": dict(child.data.tags),
                    "files": self._texts(child),
                }
                for child in children
                if child.info.status == "FINISHED"
            },
        }

    def _skipped_stages(self, run_id: str) -> dict[str, str]:
        """The metrics files of the stages that DVC skipped, by stage."""
        texts = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
            for entry in self._client.list_artifacts(run_id, track_record.METRICS_FOLDER):
                got = Path(self._client.download_artifacts(run_id, entry.path, folder))
                texts[got.stem] = got.read_text(encoding="utf-8", errors="replace")
        return texts

    def _texts(self, run: Any) -> dict[str, str]:
        """The metrics file and the samples that a stage kept; none where that place cannot be read."""
        wanted = (f"{run.data.tags.get('stage')}.json", "samples.jsonl")
        texts = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
            for entry in self._client.list_artifacts(run.info.run_id):
                if entry.path in wanted:
                    got = self._client.download_artifacts(run.info.run_id, entry.path, folder)
                    texts[entry.path] = Path(got).read_text(encoding="utf-8", errors="replace")
        return texts

    def _find_pipeline(self, key: str, host: str) -> Any:
        kind, pid, _ = key.split("-")
        for run in self._search(
            f"tags.`pipeline.key` LIKE '{kind}-{pid}-%' and tags.host = '{host}'"
        ):
            owner = track_record.owner_of(run.data.tags["pipeline.key"])
            if track_record.same_process(owner, track_record.owner_of(key)):
                return run
        return None

    def _children(self, run_id: str) -> list[Any]:
        return self._search(f"tags.`mlflow.parentRunId` = '{run_id}'")

    def _search(self, query: str, max_results: int = 1000) -> list[Any]:
        found = self._client.search_runs([self.experiment_id], query, max_results=max_results)
        return list(found)

    def _lookup(self, run_id: str) -> Any:
        try:
            run = self._client.get_run(run_id)
        except self._not_found as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise
        return run if run.info.lifecycle_stage == "active" else None
