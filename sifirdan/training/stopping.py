"""When a run ends and which of its weights are kept: early stopping, best weights, a guard on minutes.

`Limits` are the settings, `Watch` is what a run has to remember of them; its record lies with the saved
state, so that a resumed run counts on. Steps and rates are no matter of this file: a run that ends early
has followed the schedule of its whole budget up to there.
"""

import math
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sifirdan.errors import DataError, require

Keep = Literal["last", "best"]
Why = Literal["budget", "patience", "max_minutes"]


@dataclass(frozen=True)
class Limits:
    """`measure` is the name of what validation lowers. Without `patience` and `max_minutes` a run
    takes all its steps."""

    measure: str = ""
    patience: int | None = None
    keep: Keep = "last"
    max_minutes: float | None = None

    def __post_init__(self) -> None:
        for key in ("patience", "max_minutes"):
            value = getattr(self, key)
            require(value is None or value > 0, key, value, "above 0, or null")

    @property
    def need_validation(self) -> bool:
        return self.patience is not None or self.keep == "best"

    def require_validation(self, there_is: bool, section: str, made_by: str) -> None:
        """Refuse, before any training, settings that nothing could be measured for."""
        if self.need_validation and not there_is:
            raise DataError(
                f"{section}.patience and {section}.keep: best need validation, and there is no text for it",
                expected="text that is kept out of training",
                todo=f"give {made_by} more text, or set {section}.patience: null and {section}.keep: last",
            )


@dataclass(frozen=True)
class Ending:
    """How a run ended: its steps done and planned, why it took no more, and the step whose weights
    were kept."""

    steps: int
    planned_steps: int
    why: Why
    kept_step: int

    @property
    def reproducible(self) -> bool:
        """Where the clock ended a run, another machine ends it elsewhere."""
        return self.why != "max_minutes"

    @property
    def facts(self) -> dict[str, Any]:
        """For metrics and manifest."""
        return {
            "steps": self.steps,
            "planned_steps": self.planned_steps,
            "ended": self.why,
            "kept_step": self.kept_step,
            "reproducible": self.reproducible,
        }

    @property
    def card_facts(self) -> dict[str, object]:
        """What the model's card says beside its other facts; nothing of an ordinary run."""
        facts: dict[str, object] = {}
        if self.why == "patience":
            facts["ended early"] = (
                f"after step {self.steps:,} of {self.planned_steps:,}: validation no longer improved"
            )
        elif self.why == "max_minutes":
            facts["ended early"] = (
                f"after step {self.steps:,} of {self.planned_steps:,}: the minutes allowed were over; "
                "not reproducible"
            )
        if self.kept_step != self.steps:
            facts["kept weights"] = f"of step {self.kept_step:,}, the best in validation"
        return facts


@dataclass
class _Seen:
    """What is stored of a watch."""

    best: float | None = None
    best_step: int = 0
    without_gain: int = 0  # validations since then
    seconds: float = 0.0  # in all processes that trained so far
    why: Why | None = None  # set once the run has ended


@dataclass
class Watch:
    """The limits of a run and what it has seen so far. The clock runs from `start` on."""

    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._seen = _Seen()
        self._started = time.monotonic()

    def start(self, record: dict[str, Any] | None) -> None:
        """Begin, or go on from the record of a saved state."""
        self._seen = _Seen(**record) if record else _Seen()
        self._started = time.monotonic()

    def record(self) -> dict[str, Any]:
        """What a saved state holds; plain values."""
        return asdict(self._seen) | {"seconds": self._seconds()}

    def see(self, step: int, measured: dict[str, float]) -> bool:
        """Take in a validation; returns whether it is the best so far."""
        if self.limits.measure not in measured:
            return False
        value, seen = measured[self.limits.measure], self._seen
        if math.isfinite(value) and (seen.best is None or value < seen.best):
            seen.best, seen.best_step, seen.without_gain = value, step, 0
            return True
        seen.without_gain += 1
        return False

    def is_out_of_time(self) -> bool:
        minutes = self.limits.max_minutes
        return minutes is not None and self._seconds() >= 60 * minutes

    def is_out_of_patience(self) -> bool:
        patience = self.limits.patience
        return patience is not None and self._seen.without_gain >= patience

    def end(self, why: Why) -> None:
        self._seen.why = why

    @property
    def has_ended(self) -> bool:
        return self._seen.why is not None

    def ending(self, steps: int, planned_steps: int) -> Ending:
        assert self._seen.why is not None, "the run has not ended"
        best = self.limits.keep == "best" and self._seen.best is not None
        kept = self._seen.best_step if best else steps
        return Ending(steps, planned_steps, self._seen.why, kept)

    def _seconds(self) -> float:
        return self._seen.seconds + time.monotonic() - self._started
