"""The page about two or more runs: what changed in parameters and data, curves overlaid, every number
with its difference, its noise and a verdict, samples side by side. Compares nothing itself: it draws a
Comparison. One file that opens offline and holds no script."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sifirdan.compare.comparison import NOISE_UNKNOWN, Comparison, MetricRow, RunRecord
from sifirdan.compare.measures import find
from sifirdan.pages.charts import COLOURS, Point, Series, line_chart, nice_ticks, point_rows
from sifirdan.pages.figures import (
    Html,
    details,
    digits,
    escaped,
    page_frame,
    sections,
    setting,
    table,
)
from sifirdan.pages.first_screen import (
    metric_difference,
    metric_value,
    metric_values,
    noise_words,
    row_verdict,
    verdict,
)

HEADLINE = "evaluate_base.val.bits_per_byte"
CURVES = (  # stage, key, title, unit
    ("train", "loss", "Loss, pretraining", "nats per token"),
    ("train", "val_bits_per_byte", "Held-out text, pretraining", "bits per byte of val"),
    ("finetune", "loss", "Loss, instruction tuning", "nats per token"),
    ("finetune", "known_nats_per_target", "Answers to known questions", "nats per token"),
)
MOST_SAMPLES = 6
MOST_ROWS = 24  # of a stage, before the fold
STAGES = {"evaluate_base": "Base model", "evaluate_chat": "Chat model"}  # headings
VERDICTS = ("better", "worse", NOISE_UNKNOWN, "within noise", "equal", "changed", "not compared")


def compare_page(comparison: Comparison) -> str:
    """The whole page. The first run is the one that the others are compared with."""
    comparison = replace(comparison, runs=_told_apart(comparison.runs))
    runs = comparison.runs
    parts = [
        ("What changed", "changes", _changes_section(comparison)),
        ("Curves", "curves", _curves_section(runs)),
        ("Every number", "numbers", _numbers_section(comparison)),
        ("Samples", "samples", _samples_section(runs)),
    ]
    drawn = ((title, anchor, "".join(content)) for title, anchor, content in parts)
    return page_frame("Comparison of runs", "".join(_first_screen(comparison)) + sections(drawn))


def _told_apart(runs: tuple[RunRecord, ...]) -> tuple[RunRecord, ...]:
    """Runs of one name get letters: the workspace may be compared with what it was."""
    if len({run.name for run in runs}) == len(runs):
        return runs
    return tuple(replace(run, name=f"{chr(65 + n % 26)}: {run.name}") for n, run in enumerate(runs))


def _first_screen(comparison: Comparison) -> Iterator[str]:
    first, *others = comparison.runs
    names = ", ".join(f"<b>{escaped(one.name)}</b>" for one in others)
    yield '<p class="eyebrow">sifirdan · comparison of runs</p>'
    yield f"<h1>{len(comparison.runs)} runs side by side</h1>"
    yield f'<p class="lead">{names} against <b>{escaped(first.name)}</b>.</p>'
    yield "".join(f"<p>{escaped(one)}</p>" for one in comparison.same)
    yield "".join(f'<p class="refusal">{escaped(one)}</p>' for one in comparison.refusals)
    yield '<div class="first"><div><div class="card"><h2>How good</h2>'
    yield from _headline(comparison)
    yield '</div></div><div><div class="card"><h2>Verdicts</h2>'
    for place, run in enumerate(others):
        told = Counter(one.verdicts[place] for one in comparison.metrics)
        ranked = sorted(told, key=VERDICTS.index)
        counts = " ".join(verdict(word, f"{told[word]} {word}") for word in ranked)
        yield f'<div class="stand"><span>{_run_name(place + 1, run)}</span><span class="num">{counts}</span></div>'
    if not others:
        yield "<p>One run alone: nothing to compare.</p>"
    yield noise_words(comparison.metrics)
    changed = [*comparison.params, *comparison.data]
    yield f"<p>{_count(len(comparison.params), 'parameter')} and {_count(len(comparison.data), 'folder')} differ.</p>"
    if changed:
        shown = ", ".join(f"<code>{escaped(name)}</code>" for name in changed[:5])
        yield f'<p>{shown}{" and more" if changed[5:] else ""} (<a href="#changes">all</a>)</p>'
    yield "</div></div></div>"


def _headline(comparison: Comparison) -> Iterator[str]:
    """The headline number of each run, large enough to see which is best."""
    rows = [one for one in comparison.metrics if one.name == HEADLINE] or comparison.metrics[:1]
    if not rows:
        yield "<p>The runs share no number.</p>"
        return
    (one,) = rows
    better = f"{'lower' if one.lower_is_better else 'higher'} is better"
    if "not compared" in one.verdicts:
        better += ", but not all of these may be compared"
    yield f'<p id="headline">{escaped(one.label)}; {better}.</p>'
    there = [value for value in one.values if value is not None and math.isfinite(value)]
    if not there:
        return
    ends = [*(value - (one.sigma or 0.0) for value in there), *(value + (one.sigma or 0.0) for value in there)]  # fmt: skip
    ticks = nice_ticks(min(ends), max(ends), 4)
    share = metric_value(one.name, 0.5).endswith("%")
    factor = 100 if share else 1
    if share:
        ticks = nice_ticks(100 * min(ends), 100 * max(ends), 4)
    yield point_rows(
        [
            (run.name, [_with_noise(value, one.sigma, factor, n)], metric_value(one.name, value))
            for n, (run, value) in enumerate(zip(comparison.runs, one.values, strict=True))
            if value is not None and math.isfinite(value)
        ],
        low=ticks[0],
        high=ticks[-1],
        unit=one.label,
    )
    yield (
        '<p class="soft">Whiskers: one standard deviation between seeds.</p>'
        if one.sigma
        else '<p class="soft">The noise between seeds of this number is not known.</p>'
    )


def _with_noise(value: float, sigma: float | None, factor: int, run: int) -> Point:
    low, high = (None, None) if not sigma else (factor * (value - sigma), factor * (value + sigma))
    return Point(factor * value, low, high, run % COLOURS)


def _changes_section(comparison: Comparison) -> Iterator[str]:
    names = [run.name for run in comparison.runs]
    if not comparison.params and not comparison.data:
        yield "<p>The same parameters and the same data.</p>"
    if comparison.params:
        yield "<h3>Parameters</h3>"
        yield table(
            ["parameter", *names],
            [[key, *map(setting, values)] for key, values in comparison.params.items()],
            wide=range(len(names) + 1),
        )
    if comparison.data:
        yield "<h3>Data and models, by the hash of the manifest</h3>"
        yield table(
            ["folder", *names],
            [
                [folder, *(Html(f"<code>{escaped(value[:12])}</code>") if value else None for value in values)]
                for folder, values in comparison.data.items()
            ],
            wide=(0,),
        )  # fmt: skip


def _curves_section(runs: Sequence[RunRecord]) -> Iterator[str]:
    drawn = []
    for stage, key, title, unit in CURVES:
        sizes = [_size(run.params.get(f"{stage}.batch_tokens")) for run in runs]
        tokens = stage == "train" and all(n for n, run in zip(sizes, runs, strict=True) if run.curves.get(stage))  # fmt: skip
        lines = []
        for run, size in zip(runs, sizes, strict=True):
            each = size if tokens and size else 1.0
            points = [(p["step"] * each, p[key]) for p in run.curves.get(stage, ()) if key in p]
            lines.append(Series(run.name, points))
        drawn.append(
            line_chart(title, lines, x_label="tokens seen" if tokens else "steps", y_label=unit)
        )
    if any(drawn):
        yield f'<div class="charts">{"".join(drawn)}</div>'


def _size(value: Any) -> float | None:
    """A number of tokens, also out of MLflow, which keeps it as text; None for anything else."""
    try:
        return max(0.0, float(value)) or None
    except (TypeError, ValueError):
        return None


def _numbers_section(comparison: Comparison) -> Iterator[str]:
    if not comparison.metrics:
        return
    first, *others = comparison.runs
    yield (
        f"<p>In brackets the difference to {escaped(first.name)}. ↓ lower is better, ↑ higher is better. Noise is the"
        " standard deviation between seeds; a difference that seeds explain is called noise.</p>"
    )
    stages: dict[str, list[MetricRow]] = {}
    for one in comparison.metrics:
        stages.setdefault(one.name.split(".")[0], []).append(one)
    head = ["", first.name, *(run.name for run in others), "noise"]
    wide, numbers = range(2, len(head) - 1), (1, len(head) - 1)
    for stage, rows in stages.items():
        yield f"<h3>{escaped(STAGES.get(stage, stage))}</h3>"
        shown = [one for one in rows if _is_told(one)][:MOST_ROWS]
        rest = [one for one in rows if one not in shown]
        if shown:
            yield table(head, [_number_row(one) for one in shown], wide=(0, *wide), numbers=numbers)
        if rest:
            more = table(head, [_number_row(one) for one in rest], wide=(0, *wide), numbers=numbers)
            yield details(more, f"{len(rest)} {'more' if shown else 'numbers'}")


def _is_told(one: MetricRow) -> bool:
    """Whether a number stands before the fold: a headline, or one that got better or worse."""
    measure = find(one.name)
    return (
        measure is None
        or measure.headline
        or bool({*one.verdicts} & {"better", "worse", NOISE_UNKNOWN})
    )


def _label(one: MetricRow) -> str:
    """The label under its stage's heading, with the direction that is better."""
    measure = find(one.name)
    arrow = "" if measure and not measure.better else "↓ " if one.lower_is_better else "↑ "
    model = one.name.split(".")[0].removeprefix("evaluate_")
    return arrow + one.label.removeprefix(f"{model} model: ")


def _number_row(one: MetricRow) -> list[Any]:
    first, *others = one.values
    said = metric_values(one.name, one.values)
    cells: list[Any] = [_label(one), said[0]]
    for place, (value, word) in enumerate(zip(others, one.verdicts, strict=True)):
        told = word not in ("not compared", "equal") and first is not None and value is not None
        change = f" ({metric_difference(one.name, first, value)})" if told else ""
        cells.append(Html(f"{said[place + 1]}{change} {row_verdict(one, place)}"))
    spread = None
    if one.sigma is not None:
        share = metric_value(one.name, 0.5).endswith("%")
        spread = f"{100 * one.sigma:.2g} points" if share else digits(one.sigma)
    return [*cells, spread]


def _samples_section(runs: Sequence[RunRecord]) -> Iterator[str]:
    most = max((len(run.samples) for run in runs), default=0)
    if not most:
        return
    yield "<p>Unedited, in the order drawn.</p>"
    drawn = []
    for n in range(most):
        texts = "".join(
            f'<article class="k{place % COLOURS}"><p class="from">{_run_name(place, run)}</p>'
            f'<p class="text" lang="tr">{escaped(run.samples[n]) or "<i>empty</i>"}</p></article>'
            for place, run in enumerate(runs)
            if n < len(run.samples)
        )
        drawn.append(f'<div class="samples beside">{texts}</div>')
    yield "".join(drawn[:MOST_SAMPLES])
    if drawn[MOST_SAMPLES:]:
        yield details("".join(drawn[MOST_SAMPLES:]), f"{len(drawn) - MOST_SAMPLES} more")


def _run_name(place: int, run: RunRecord) -> str:
    """A run's name beside its colour."""
    return (
        '<svg class="key" aria-hidden="true">'
        f'<circle class="f{place % COLOURS}" cx="50%" cy="50%" r="5"/></svg> {escaped(run.name)}'
    )


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
