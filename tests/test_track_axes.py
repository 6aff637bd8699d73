"""Curves against tokens and FLOPs: the count of operations, and the same points however they came in."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_model
from torch.utils.flop_counter import FlopCounterMode
from tracking import all_runs, client, curve, empty_database, journals, open_stage

from sifirdan import runs, track, track_axes, track_record
from sifirdan.model.checkpoint import describe
from sifirdan.model.flops import flops_per_token

__all__ = ["empty_database"]
MODEL = {
    "vocab_size": 8192, "context_length": 256, "hidden_size": 256, "intermediate_size": 704,
    "num_layers": 4, "num_heads": 4, "num_kv_heads": 4, "head_size": 64,
}  # fmt: skip
MADE = {"steps": 100, "tokens": 204_800, "model": MODEL}  # 2,048 tokens a step
GFLOPS = 2048 * flops_per_token(MODEL) / 1e9


@pytest.mark.parametrize("parts", [{}, {"num_kv_heads": 4}, {"mlp": "gelu", "bias": True}])
def test_the_count_of_operations_is_what_torch_counts(parts: dict[str, Any]) -> None:
    model = tiny_model(**parts)
    ids = torch.zeros(2, model.config.context_length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(ids).sum().backward()
    counted = counter.get_total_flops() / ids.numel()
    assert flops_per_token(describe(model.config)) == counted


def test_padding_is_computed_but_is_no_token_seen() -> None:
    plain, padded = track_axes.axes_of(MADE), track_axes.axes_of(MADE | {"padding_share": 0.2})
    assert plain == {"tokens": 2048.0, "gflops": GFLOPS}
    assert padded["tokens"] == 2048 and padded["gflops"] == pytest.approx(GFLOPS / 0.8)


@pytest.mark.parametrize(
    "metrics", [{}, {"steps": 3}, MADE | {"steps": 0}, MADE | {"model": {}}, MADE | {"tokens": "x"}]
)
def test_metrics_that_do_not_say_give_no_axes(metrics: dict[str, Any]) -> None:
    assert track_axes.axes_of(metrics) == {}


def train(steps: range, **changes: Any) -> Any:
    """An execution of the stage `train`, a point a step."""
    with open_stage("train", **changes) as run:
        run.log_axes(MADE)
        for step in steps:
            run.log_metrics(
                {"loss": 9.0 - step, "val_loss": 1.0, "grad_norm": 1.0, "seconds_left": 0.5}, step
            )
    return run


def test_curves_stand_on_both_axes_of_the_run_and_of_the_pipeline(project: Path) -> None:
    run = train(range(1, 4))
    for run_id in (run.run_id, run.parent_id):
        assert curve(run_id, "by_tokens/loss") == [(2048, 8.0), (4096, 7.0), (6144, 6.0)]
        places = [place for place, _ in curve(run_id, "by_gflops/val_loss")]
        assert places == [round(step * GFLOPS) for step in (1, 2, 3)]
        names = {name for name in client().get_run(run_id).data.metrics if name.startswith("by_")}
        assert names == {f"by_{axis}/{x}" for axis in ("tokens", "gflops") for x in ("loss", "val_loss")}  # fmt: skip


def test_steps_below_one_gflop_give_one_point_a_place(project: Path) -> None:
    with open_stage("train") as run:
        run.log_axes(MADE | {"tokens": 800})  # 8 tokens a step
        for step in range(1, 11):
            run.log_metrics({"loss": float(step)}, step)
    places = [place for place, _ in curve(run.run_id, "by_gflops/loss")]
    assert places == sorted(set(places)) and 2 < len(places) < 10


def test_a_value_that_is_not_finite_is_a_flag_on_every_axis(project: Path) -> None:
    with open_stage("finetune") as run:
        run.log_axes(MADE)
        run.log_metrics({"loss": float("nan")}, 1)
    assert client().get_run(run.run_id).data.metrics == {
        "sft/loss.nonfinite": 1.0,
        "by_tokens/sft_loss.nonfinite": 1.0,
        "by_gflops/sft_loss.nonfinite": 1.0,
    }


@pytest.mark.parametrize("journal_is_left", [True, False])
def test_a_resumed_run_has_no_doubles_on_any_axis(
    project: Path, monkeypatch: pytest.MonkeyPatch, journal_is_left: bool
) -> None:
    monkeypatch.setattr(track_record.Journal, "remove", track_record.Journal.close)
    with pytest.raises(RuntimeError), open_stage("train") as killed:
        killed.log_axes(MADE)
        for step in range(1, 8):
            killed.log_metrics({"loss": 9.0 - step}, step)
        raise RuntimeError
    for journal in journals(project) if not journal_is_left else []:
        journal.unlink()
    with open_stage("train") as run:
        run.log_axes(MADE)  # before it is known that there is something to continue
        run.reopen(killed.run_id)
        for step in range(4, 11):  # from the state of step 3
            run.log_metrics({"loss": 9.0 - step}, step)
    assert run.run_id == killed.run_id
    for run_id in (run.run_id, run.parent_id):
        assert curve(run_id, "by_tokens/loss") == [(2048 * n, 9.0 - n) for n in range(1, 11)]
        assert [place for place, _ in curve(run_id, "by_gflops/loss")] == [
            round(n * GFLOPS) for n in range(1, 11)
        ]


def test_a_journal_brings_the_axes_and_brings_them_once(
    project: Path, empty_database: Path
) -> None:
    (project / "mlflow.db").write_bytes(b"garbage" * 1000)
    train(range(1, 4))
    (project / "mlflow.db").write_bytes(empty_database.read_bytes())
    (journal,) = journals(project)
    assert track.replay(journal) == track.replay(journal)
    for found in all_runs():
        assert curve(found.info.run_id, "by_tokens/loss") == [(2048, 8.0), (4096, 7.0), (6144, 6.0)]


def test_a_curve_out_of_the_cache_has_the_axes_and_the_times_of_the_run_that_made_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(1_700_000_000, 1_800_000_000, 7))
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: next(ticks))
        live = train(range(1, 4))
    runs.write_json(Path("metrics/train.json"), MADE)
    rows = [{"step": n, "loss": 9.0 - n, "val_loss": 1.0} for n in (1, 2, 3)]
    runs.write_text(Path("curve.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(track_record, "pipeline_key", lambda: f"dvc-{track_record.process_key()}")
    with open_stage("report") as run:
        track.close_pipeline({"train": Path("metrics/train.json")}, {"train": Path("curve.jsonl")})
    assert run.parent_id != live.parent_id
    for name in ("train/loss", "by_tokens/loss", "by_gflops/loss", "by_gflops/val_loss"):
        before, after = (
            [(point.step, point.value, point.timestamp) for point in history]
            for history in (
                client().get_metric_history(i, name) for i in (live.run_id, run.parent_id)
            )
        )
        assert len(before) == 3 and after == before


def test_a_curve_that_no_run_here_made_has_the_time_of_its_replay(project: Path) -> None:
    train(range(1, 4))
    runs.write_text(Path("curve.jsonl"), '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n')
    with open_stage("report") as run:
        times = run._store._times_of("train", track_record.read_curve(Path("curve.jsonl")))
    assert times == {}
