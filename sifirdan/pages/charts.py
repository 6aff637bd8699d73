"""Lines, points with intervals and the calibration diagram, as SVG without script.

The drawing is stretched to the width there is; its labels are text of the page and keep their size, so
they read on a phone. Every figure says its numbers: in a title under the pointer, for a screen reader,
and in a table that opens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sifirdan.pages.figures import details, digits, escaped, percent, row, table

COLOURS = 7  # of the style; the eighth series has the first one's again
MOST_DOTS = 40  # of a series; more would hide the line


@dataclass(frozen=True)
class Series:
    """A line of a chart: points (x, y), x rising."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Point:
    """A number with its interval, if it has one; `look` is the number of a colour."""

    value: float
    low: float | None = None
    high: float | None = None
    look: int = 0


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    x_names: Mapping[float, str] | None = None,
    note: str = "",
) -> str:
    """Lines over one pair of axes. `x_names` gives the places on the x axis that have names instead of
    numbers. Points that are no finite number are left out; without two points of one line there
    is no chart."""
    lines = [Series(one.name, _finite(one.points)) for one in series]
    if not any(len(one.points) > 1 for one in lines):
        return ""
    xs = [x for one in lines for x, _ in one.points]
    ys = [y for one in lines for _, y in one.points]
    x_ticks = x_names or {x: _short(x) for x in nice_ticks(min(0.0, *xs), max(xs), 5)}
    y_ticks = nice_ticks(min(ys), max(ys), 5)
    x_range = (min(xs) if x_names else min(0.0, *xs), max(xs))
    y_range = (min(*y_ticks, *ys), max(*y_ticks, *ys))
    drawn = [f'<path class="grid" d="M0 {_down(y, y_range)}H100"/>' for y in y_ticks]
    drawn.append('<path class="base" d="M0 0V100H100"/>')
    for n, one in enumerate(lines):
        drawn.append(_line(one, n % COLOURS, x_range, y_range, x_names, x_label))
    label = f"{title}. " + " ".join(_in_words(one, x_names) for one in lines if one.points)
    return _frame(
        title,
        y_label,
        f'<svg class="lines" viewBox="0 0 100 100" preserveAspectRatio="none" role="img"'
        f' aria-label="{escaped(label)}">{"".join(drawn)}</svg>',
        {_across(x, x_range): name for x, name in x_ticks.items() if x_range[0] <= x <= x_range[1]},
        {_up(y, y_range): _short(y) for y in y_ticks},
        x_label,
        (_line_legend([one.name if one.points else "" for one in lines]) if len(lines) > 1 else "")
        + (f'<p class="from">{escaped(note)}</p>' if note else "")
        + details(_points_table([one for one in lines if one.points], x_label, x_names)),
    )


def calibration_chart(title: str, bins: Sequence[tuple[float, float]]) -> str:
    """How often a guess was right (up) against how sure the model was of it (across), both 0 to 1, by
    bins of sureness. On the dashed line it would be exactly as sure as right."""
    places = {0.0: "0 %", 25.0: "25 %", 50.0: "50 %", 75.0: "75 %", 100.0: "100 %"}
    drawn = [f'<path class="grid" d="M0 {100 - at:g}H100M{at:g} 0V100"/>' for at in places]
    drawn.append('<path class="base" d="M0 0V100H100"/><path class="mark" d="M0 100L100 0"/>')
    line = " ".join(f"{100 * x:.2f},{100 - 100 * y:.2f}" for x, y in bins)
    drawn.append(f'<polyline class="series c0" points="{line}"/>')
    drawn += [_dot(100 * x, 100 - 100 * y, 0, f"sure {x:.1%}, right {y:.1%}") for x, y in bins]
    said = "; ".join(f"sure {x:.0%}, right {y:.0%}" for x, y in bins)
    return _frame(
        title,
        "how often the likeliest next token was right",
        f'<svg class="lines" viewBox="0 0 100 100" preserveAspectRatio="none" role="img"'
        f' aria-label="{escaped(f"{title}: {said}")}">{"".join(drawn)}</svg>',
        places,
        places,
        "how sure the model was of it",
        details(
            table(["sure", "right"], [[percent(x), percent(y)] for x, y in bins], numbers=(0, 1))
        ),
        look="chart square",
    )


def point_rows(
    rows: Sequence[tuple[str, Sequence[Point], str]],
    *,
    low: float,
    high: float,
    unit: str,
    mark: float | None = None,
    marks: Sequence[float | None] = (),
) -> str:
    """Numbers with their intervals, a name a line, over one scale from `low` to `high`. `mark` is the
    place of a dashed line through all of them (chance), `marks` of one in each."""
    ticks = [tick for tick in nice_ticks(low, high, 5) if low <= tick <= high]
    across = {tick: _across(tick, (low, high)) for tick in ticks}
    drawn = []
    for n, (name, points, number) in enumerate(rows):
        at = marks[n] if marks else mark
        parts = [
            f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y2="100%"/>' for x in across.values()
        ]
        if at is not None:
            x = _across(at, (low, high))
            parts.append(f'<line class="mark" x1="{x:.2f}%" x2="{x:.2f}%" y2="100%"/>')
        spread = 18 if len(points) > 1 else 0  # so that none hides another
        parts += [
            _point(point, (low, high), 50 + spread * (k - (len(points) - 1) / 2))
            for k, point in enumerate(points)
            if math.isfinite(point.value)
        ]
        said = f"{name}: {number} {unit}" + (f", mark at {digits(at)}" if at is not None else "")
        figure = (
            f'<svg class="points" role="img" aria-label="{escaped(said)}">{"".join(parts)}</svg>'
        )
        drawn.append(row(name, number, figure))
    scale = "".join(
        f'<span style="left:{x:.2f}%">{_short(tick)}</span>' for tick, x in across.items()
    )
    return "".join(drawn) + row("", "", f'<div class="xs">{scale}</div>')


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers that span low to high: (0.3, 9.1, 5) -> [0, 2, 4, 6, 8, 10]."""
    assert math.isfinite(low) and math.isfinite(high), (low, high)
    span = (high - low) or abs(high) or 1.0
    raw = span / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _point(point: Point, scale: tuple[float, float], y: float) -> str:
    x = _across(point.value, scale)
    said = digits(point.value)
    whisker = ""
    if point.low is not None and point.high is not None:
        said += f" ({digits(point.low)} to {digits(point.high)})"
        left, right = (
            _across(min(max(end, scale[0]), scale[1]), scale) for end in (point.low, point.high)
        )
        whisker = f'<line class="whisker c{point.look}" x1="{left:.2f}%" x2="{right:.2f}%" y1="{y:g}%" y2="{y:g}%"/>'
    return f'<g><title>{escaped(said)}</title>{whisker}<circle class="f{point.look}" cx="{x:.2f}%" cy="{y:g}%" r="5"/></g>'


def _line(
    one: Series,
    colour: int,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_names: Mapping[float, str] | None,
    x_label: str,
) -> str:
    places = [(_across(x, x_range), _down(y, y_range)) for x, y in one.points]
    line = " ".join(f"{x:.2f},{y:.2f}" for x, y in places)
    few = len(places) <= MOST_DOTS
    said = [
        f"{one.name}: {digits(y)} at {x_names[x] if x_names else _at(x)} ({x_label})"
        for x, y in one.points
    ]
    dots = [
        _dot(x, y, colour, text) if few else f'<path class="hit" d="M{x:.2f} {y:.2f}h0"><title>{escaped(text)}</title></path>'
        for (x, y), text in zip(places, said, strict=True)
    ]  # fmt: skip
    return f'<polyline class="series c{colour}" points="{line}"/>{"".join(dots)}'


def _dot(x: float, y: float, colour: int, said: str) -> str:
    """A round dot also where the drawing is stretched: a line without length, with round ends."""
    return (
        f'<path class="dot c{colour}" d="M{x:.2f} {y:.2f}h0"><title>{escaped(said)}</title></path>'
    )


def _frame(
    title: str,
    y_label: str,
    svg: str,
    x_ticks: Mapping[float, str],
    y_ticks: Mapping[float, str],
    x_label: str,
    below: str,
    look: str = "chart",
) -> str:
    across = "".join(
        f'<span style="left:{at:.2f}%">{escaped(name)}</span>' for at, name in x_ticks.items()
    )
    up = "".join(
        f'<span style="bottom:{at:.2f}%">{escaped(name)}</span>' for at, name in y_ticks.items()
    )
    return (
        f'<figure class="{look}"><figcaption>{escaped(title)}</figcaption>'
        f'<p class="unit">↑ {escaped(y_label)}</p><div class="frame"><div class="ys">{up}</div>{svg}'
        f'<div class="xs">{across}</div></div><p class="axisname">{escaped(x_label)} →</p>{below}</figure>'
    )


def _line_legend(names: Sequence[str]) -> str:
    marks = "".join(
        f'<span><svg class="dash" aria-hidden="true" viewBox="0 0 26 12"><path class="series c{n % COLOURS}" d="M0 6H26"/></svg>'
        f"{escaped(name)}</span>"
        for n, name in enumerate(names)
        if name
    )
    return f'<p class="legend">{marks}</p>'


def _points_table(
    lines: Sequence[Series], x_label: str, x_names: Mapping[float, str] | None
) -> str:
    by_x: dict[float, list[float | None]] = {}
    for n, one in enumerate(lines):
        for x, y in one.points:
            by_x.setdefault(x, [None] * len(lines))[n] = y
    rows = [[x_names[x] if x_names else _at(x), *values] for x, values in sorted(by_x.items())]
    return table([x_label, *(one.name for one in lines)], rows, numbers=range(1, len(lines) + 1))


def _in_words(one: Series, x_names: Mapping[float, str] | None) -> str:
    (first_x, first), (last_x, last) = one.points[0], one.points[-1]
    a, b = (x_names[x] if x_names else _at(x) for x in (first_x, last_x))
    return f"{one.name}: {digits(first)} at {a}, {digits(last)} at {b}."


def _at(x: float) -> str:
    """A place on the x axis: 64.0 steps are 64."""
    return digits(int(x) if x == int(x) else x)


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _across(x: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return 100 * (x - low) / (high - low) if high > low else 50.0


def _up(y: float, scale: tuple[float, float]) -> float:
    return _across(y, scale)


def _down(y: float, scale: tuple[float, float]) -> float:
    return round(100 - _across(y, scale), 2)


def _short(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
