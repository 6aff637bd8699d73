"""How a run stands against the reference run: the few numbers of a model's first screen, out of the
comparison of both. What may be compared, and what is noise, is decided in comparison.py."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sifirdan.compare.comparison import MISSING, Comparison, RunRecord, compare
from sifirdan.compare.measures import flat

# Numbers of an evaluation, and what they are called on the first screen.
NUMBERS = {
    "val.bits_per_byte": "Bits per byte, held-out text",
    "ood.bits_per_byte": "Bits per byte, out of domain",
    "minimal_pairs.accuracy": "Minimal pairs right",
    "questions.known.own_question_share": "Own question's answer",
    "questions.unseen.own_question_share": "The same, unseen words",
}
# What shows that two runs were measured on the same thing.
_EVIDENCE = re.compile(r".*\btext|window|stride|tokenizer|minimal_pairs\.phenomena\..*\.pairs")


def against(
    reference: RunRecord, run: RunRecord, noise: Mapping[str, Any] | None, model: str
) -> Comparison:
    """The reference (first) and a run, by the evaluation of models/MODEL. Of the parameters those that
    both name: a page knows of the run what its manifests hold."""
    stage = f"evaluate_{model}"
    found = compare([_short(reference, stage), _short(run, stage)], noise)
    rows = [
        replace(row, label=NUMBERS[name])
        for row in found.metrics
        if (name := row.name.removeprefix(f"{stage}.")) in NUMBERS and None not in row.values
    ]
    params = {
        key: found.params[key]
        for key in run.params  # in the order of the pipeline
        if key in found.params and MISSING not in found.params[key] and ".runtime." not in key
    }
    return replace(found, params=params, metrics=tuple(rows))


def _short(run: RunRecord, stage: str) -> RunRecord:
    """The run with no other numbers, so that no other ones are refused."""
    kept = {
        key: value
        for key, value in flat(run.metrics.get(stage, {}))
        if key in NUMBERS or _EVIDENCE.fullmatch(key)
    }
    return replace(run, metrics={stage: kept})
