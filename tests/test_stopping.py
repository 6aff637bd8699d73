"""When a run ends and what it keeps: early stopping, best weights, minutes; and all of it over kills."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_model
from test_training import run, same, settings, token_shards

from sifirdan.corpus.shards import Shards
from sifirdan.errors import ConfigError, DataError
from sifirdan.model.checkpoint import weights_of
from sifirdan.training import stopping
from sifirdan.training.stopping import Ending, Limits, Watch

STEPS = 12
EVALS = frozenset({2, 4, 6, 8, 10, 12})


class Clock:
    """A clock that stands still until it is put forward; each step does so by a minute."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    asked = Watch.is_out_of_time

    def a_minute_later(watch: Watch) -> bool:
        clock.now += 60
        return asked(watch)

    monkeypatch.setattr(stopping, "time", clock)
    monkeypatch.setattr(Watch, "is_out_of_time", a_minute_later)
    return clock


@pytest.fixture
def data(tmp_path: Path) -> Shards:
    return token_shards(tmp_path / "tokens")


class Run:
    """Training processes over one folder of states. What a validation finds stands in `values`, by the
    step; the weights that it saw are noted."""

    def __init__(self, data: Shards, store: Path, values: dict[int, float], **limits: Any) -> None:
        self.data, self.store, self.values = data, store, values
        self.limits = Limits(**({"measure": "v"} | limits))
        self.seen: dict[int, dict[str, torch.Tensor]] = {}
        self.log: list[Any] = []

    def go(self, stop_at: int | None = None, **changes: Any) -> "Run":
        """One process, to its end or to the step at which it is killed."""
        self.model, self.watch, self.log = tiny_model(), Watch(self.limits), []
        forwards: list[int] = []  # one a step
        self.model.model.embed_tokens.register_forward_hook(lambda *_: forwards.append(1))

        def validate() -> dict[str, float]:
            resumed = [int(x.split()[1]) for x in self.log if str(x).startswith("resumed")]
            step = sum(resumed) + len(forwards)
            self.seen[step] = {
                name: value.clone() for name, value in weights_of(self.model).items()
            }
            return {"v": self.values[step]}

        setup = settings(STEPS, **({"eval_steps": EVALS, "checkpoint_every_steps": 3} | changes))
        _, self.points = run(
            self.data, self.store, setup=setup, stop_at=stop_at, model=self.model, log=self.log,
            watch=self.watch, validate=validate,
        )  # fmt: skip
        return self

    def killed_at(self, *steps: int, **changes: Any) -> "Run":
        for step in steps:
            with pytest.raises(RuntimeError, match="killed"):
                self.go(stop_at=step, **changes)
        return self

    @property
    def ending(self) -> Ending:
        return self.watch.ending(self.points[-1]["step"], STEPS)

    def has_weights_of(self, step: int) -> bool:
        now, then = weights_of(self.model), self.seen[step]
        return all(torch.equal(now[name], then[name]) for name in then)


VALUES = {2: 3.0, 4: 2.0, 6: 2.5, 8: 2.0, 10: 1.5, 12: 9.0}  # best at 4, at 10 in the end


def test_without_limits_a_run_takes_all_steps_and_keeps_the_last_weights(
    data: Shards, tmp_path: Path
) -> None:
    plain = Run(data, tmp_path / "a", VALUES).go()
    assert plain.ending == Ending(STEPS, STEPS, "budget", STEPS) and plain.has_weights_of(STEPS)
    assert plain.ending.reproducible and plain.ending.card_facts == {}
    untold, _ = run(data, tmp_path / "b", setup=settings(STEPS, eval_steps=EVALS))
    assert same(untold, plain.model), "watching changes no weight"
    assert not list(tmp_path.glob("a/*/*/best*"))


def test_the_best_weights_are_kept_and_the_run_goes_to_its_end(
    data: Shards, tmp_path: Path
) -> None:
    best = Run(data, tmp_path / "s", VALUES, keep="best").go()
    assert best.ending == Ending(STEPS, STEPS, "budget", 10)
    assert best.has_weights_of(10) and not best.has_weights_of(STEPS)
    assert best.ending.card_facts == {"kept weights": "of step 10, the best in validation"}
    # the saved state still has the last weights beside the best ones, to go on from
    assert {path.name for path in (tmp_path / "s").glob("*/step-00000012/*.safetensors")} == {
        "best.safetensors", "optimizer.safetensors", "weights.safetensors",
    }  # fmt: skip


def test_patience_ends_a_run_after_that_many_validations_without_gain(
    data: Shards, tmp_path: Path
) -> None:
    two = Run(data, tmp_path / "2", VALUES, patience=2).go()
    assert two.ending == Ending(8, STEPS, "patience", 8), "an equal value is no gain"
    assert two.has_weights_of(8) and two.points[-1]["step"] == 8 and two.ending.reproducible
    assert "after step 8 of 12" in str(two.ending.card_facts["ended early"])
    three = Run(data, tmp_path / "3", VALUES, patience=3, keep="best").go()
    assert three.ending == Ending(STEPS, STEPS, "budget", 10)
    best = Run(data, tmp_path / "4", VALUES, patience=2, keep="best").go()
    assert best.ending == Ending(8, STEPS, "patience", 4) and best.has_weights_of(4)


@pytest.mark.parametrize("end", [8, STEPS], ids=["ends early", "to the end"])
def test_killed_again_and_again_the_same_weights_are_kept_from_the_same_step(
    data: Shards, tmp_path: Path, end: int
) -> None:
    """Also where the state that is gone on from is older than the newest best weights."""
    limits: dict[str, Any] = {"keep": "best", "patience": 2 if end == 8 else 5}
    whole = Run(data, tmp_path / "whole", VALUES, **limits).go()
    assert whole.ending.steps == end
    cut = Run(data, tmp_path / "cut", VALUES, **limits)
    cut.killed_at(*(step for step in (1, 4, 5, 7, 8, 10, 11) if step <= end)).go()
    assert cut.log[0] == ("resumed 6" if end == 8 else "resumed 9"), "best of 10 came after 9"
    assert cut.ending == whole.ending and cut.points == whole.points
    assert same(cut.model, whole.model) and cut.has_weights_of(whole.ending.kept_step)


def test_an_ended_run_is_not_taken_further_when_started_again(data: Shards, tmp_path: Path) -> None:
    """The process may die between the last saved state and the finished folder."""
    first = Run(data, tmp_path / "s", VALUES, patience=2, keep="best").go()
    again = Run(data, tmp_path / "s", VALUES, patience=2, keep="best").go()
    assert again.log == ["resumed 8"] and again.ending == first.ending
    assert again.points == first.points and same(again.model, first.model)


def test_R_03_a_state_whose_best_weights_are_damaged_is_skipped(
    data: Shards, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Run(data, tmp_path / "whole", VALUES, keep="best").go()
    for how in ("damaged", "missing"):
        cut = Run(data, tmp_path / how, VALUES, keep="best").killed_at(10)
        newest = max((tmp_path / how).glob("*/step-*")) / "best.safetensors"
        if how == "damaged":
            newest.write_bytes(newest.read_bytes()[:-8] + b"\0" * 8)
        else:
            newest.unlink()
        cut.go()
        assert cut.log[0] == "resumed 6" and same(cut.model, whole.model)
        assert f"best.safetensors is {how}" in caplog.text


def test_max_minutes_ends_a_run_with_a_validated_saved_model(
    data: Shards, tmp_path: Path, clock: Clock
) -> None:
    timed = Run(data, tmp_path / "s", dict.fromkeys(range(1, 13), 1.0), max_minutes=5).go()
    assert timed.ending == Ending(5, STEPS, "max_minutes", 5) and timed.has_weights_of(5)
    assert timed.ending.facts["reproducible"] is False
    assert "not reproducible" in str(timed.ending.card_facts["ended early"])
    assert timed.points[-1]["v"] == 1.0, "validated where it ended"
    assert list((tmp_path / "s").glob("*/step-00000005"))
    schedule = settings(STEPS).schedule
    assert [point["lr_factor"] for point in timed.points] == [
        schedule.lr_factor(step, STEPS) for step in range(1, 6)
    ], "the rates are those of the whole budget"


def test_minutes_spent_before_an_interruption_count(
    data: Shards, tmp_path: Path, clock: Clock
) -> None:
    """A minute a step, states every 2 steps, killed at 5: the minutes since the state of 4 are lost."""
    cut = Run(data, tmp_path / "s", dict.fromkeys(range(1, 13), 1.0), max_minutes=7)
    cut.killed_at(5, checkpoint_every_steps=2)
    clock.now += 100_000  # nothing ran
    cut.go(checkpoint_every_steps=2)
    assert cut.log[0] == "resumed 4" and cut.ending == Ending(7, STEPS, "max_minutes", 7)
    again = Run(data, tmp_path / "s", cut.values, max_minutes=7).go()
    assert again.log == ["resumed 7"] and again.ending == cut.ending


def test_a_guard_that_does_not_bite_changes_nothing(data: Shards, tmp_path: Path) -> None:
    plain = Run(data, tmp_path / "a", VALUES).go()
    guarded = Run(data, tmp_path / "b", VALUES, max_minutes=1000).go()
    assert same(plain.model, guarded.model) and guarded.ending == plain.ending


@pytest.mark.parametrize("limits", [{"patience": 1}, {"keep": "best"}])
def test_limits_that_need_validation_are_refused_without_it(limits: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="train.patience and train.keep: best need validation"):
        Limits("v", **limits).require_validation(False, "train", "clean")
    Limits("v", **limits).require_validation(True, "train", "clean")
    Limits("v", max_minutes=1).require_validation(False, "train", "clean")


@pytest.mark.parametrize("limits", [{"patience": 0}, {"max_minutes": 0.0}, {"max_minutes": -1}])
def test_impossible_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(limits))):
        Limits("v", **limits)
