"""The page of a sweep: every setting with its intervals, the table, curves overlaid. Decides nothing: it
draws rows. One file that opens offline and holds no script."""

from collections.abc import Iterator, Sequence
from statistics import stdev

from sifirdan.compare.sweep import BETTER, HEAD, Row, cells, standing
from sifirdan.pages.charts import COLOURS, Point, Series, line_chart, nice_ticks, point_rows
from sifirdan.pages.figures import escaped, page_frame, sections, table


def sweep_page(rows: Sequence[Row], *, each: str, seeds: int) -> str:
    """The whole page; the first row is what the others are compared with, `each` the length of a run."""
    parts = [
        ("All settings", "settings", "".join(_table(rows))),
        ("Curves", "curves", _curves(rows)),
    ]
    return page_frame("Sweep", "".join(_first_screen(rows, each, seeds)) + sections(parts))


def _first_screen(rows: Sequence[Row], each: str, seeds: int) -> Iterator[str]:
    baseline = rows[0]
    better = [row for row in rows[1:] if standing(row, baseline).verdict == BETTER]
    yield '<p class="eyebrow">sifirdan · sweep</p>'
    if better:
        best = min(better, key=lambda row: row.mean)
        yield f"<h1>Better: <code>{escaped(best.variant.name)}</code></h1>"
        gain = baseline.mean - best.mean
        yield f'<p class="lead">{gain:.4f} bits per byte below params.yaml as it is.</p>'
    else:
        yield "<h1>Nothing tried is better than params.yaml</h1>"
    yield (
        f"<p>{len(rows)} settings, {seeds} seeds, {escaped(each)} of training each, scored on the whole of"
        " val. What is better in short runs need not be in long ones: try the best again for longer.</p>"
    )
    yield '<div class="card"><h2>Bits per byte of val, lower is better</h2>'
    yield _points(rows)
    yield '<p class="soft">Whiskers: one standard deviation between seeds.</p></div>'


def _points(rows: Sequence[Row]) -> str:
    there = [(n, row, stdev(row.values)) for n, row in enumerate(rows) if row.values]
    ends = [row.mean + side * spread for _, row, spread in there for side in (-1, 1)]
    ticks = nice_ticks(min(ends), max(ends), 4)
    return point_rows(
        [
            (
                row.variant.name,
                [Point(row.mean, row.mean - spread, row.mean + spread, n % COLOURS)],
                f"{row.mean:.4f}",
            )
            for n, row, spread in there
        ],
        low=ticks[0],
        high=ticks[-1],
        unit="bits per byte",
    )


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "<p>Difference: to params.yaml as it is. It is more than chance, at 95 %, where it is larger than the"
        " noise beside it (Student's t from both settings' seeds).</p>"
    )
    yield table(list(HEAD), cells(rows), wide=(0,), numbers=range(1, len(HEAD)))


def _curves(rows: Sequence[Row]) -> str:
    lines = [Series(row.variant.name, row.curve) for row in rows]
    return line_chart(
        "Held-out text", lines, x_label="minutes of training", y_label="bits per byte of val"
    )
