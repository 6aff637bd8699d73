"""Two more axes for the curves of training: tokens seen and floating-point operations spent.

A chart of MLflow has one whole-number axis, the step, beside time. Steps of two batch sizes or models
do not compare, so `track_store.py` logs the curves again with these as their step. Both come from
the content of a metrics file: a stage that runs and one taken out of DVC's cache get the same. Not for
times, which MLflow keeps with every point, and not for what a machine reaches of its peak.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sifirdan.model.flops import flops_per_token

# What begins so in a point belongs to schedule and machine; the rest is what runs are compared by.
_NOT_COMPARED = (
    "grad_norm", "lr_factor", "learning_rate", "tokens_per_second", "utilisation", "seconds_left", "plan_",
)  # fmt: skip
_STAGES = {"train": "", "finetune": "sft_"}  # what a name begins with: each axis is one section


def axes_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What one step adds to each axis, from the metrics of `train` or `finetune`; empty where they
    do not say. Padding is no token seen, but it is computed like one."""
    try:
        tokens = metrics["tokens"] / metrics["steps"]
        computed = tokens / (1 - metrics.get("padding_share", 0.0))
        return {"tokens": tokens, "gflops": computed * flops_per_token(metrics["model"]) / 1e9}
    except (KeyError, TypeError, ZeroDivisionError):
        return {}


def points(
    stage: str, step: int, values: Mapping[str, float], per_step: Mapping[str, float]
) -> Iterator[tuple[str, int, float]]:
    """(name, place on its axis, value) of every curve on every axis.

    >>> list(points("finetune", 3, {"loss": 2.5, "lr_factor": 1.0}, {"tokens": 1441.1}))
    [('by_tokens/sft_loss', 4323, 2.5)]
    """
    if stage in _STAGES:
        for axis, size in per_step.items():
            for name, value in values.items():
                if not name.startswith(_NOT_COMPARED):
                    yield f"by_{axis}/{_STAGES[stage]}{name}", round(step * size), value
