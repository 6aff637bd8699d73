"""A comparison of runs for the terminal and for machines; the page is `pages/compare_page.py`."""

from collections.abc import Iterator, Sequence
from typing import Any

from sifirdan.compare.comparison import (
    Comparison,
    MetricRow,
    is_runtime,
    noise_command,
    noise_hint,
)
from sifirdan.compare.measures import apart, find
from sifirdan.track_record import spell_nonfinite

_MAX_CHARS = 28  # of a value in a column
_MAX_ROWS = 20  # of each block


def comparison_lines(comparison: Comparison, *, whole: bool = False) -> Iterator[str]:
    """What changed, the headline numbers with their verdicts, and what was refused. `whole`: every
    number and every parameter."""
    names = [run.name for run in comparison.runs]
    for index, run in enumerate(comparison.runs):
        yield f"{_letter(index)}  {run.name}"
    for sentence in comparison.same:
        yield sentence
    made = {key: values for key, values in comparison.params.items() if not is_runtime(key)}
    machine = {key: values for key, values in comparison.params.items() if is_runtime(key)}
    yield from _block("parameters that differ", made, whole)
    yield from _block("runtime, which changes no more than last bits", machine, whole)
    yield from _block("data and models that differ", comparison.data, whole)
    if not (made or comparison.data):
        yield "\nno parameter and no data differ"
    rows = [row for row in comparison.metrics if whole or is_headline(row)]
    yield from _metrics_block(rows, names)
    for sentence in comparison.refusals:
        yield f"\nnot compared: {sentence}"
    if command := noise_command(rows):
        yield f"\n{noise_hint(comparison.metrics, command)}"
    verdicts = {verdict for row in rows for verdict in row.verdicts}
    if verdicts & {"within noise"}:
        yield "\nwithin noise: runs that differ in nothing but the seed differ as much"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data, without curves and samples. Numbers are null where a run has none
    and "nan" or "inf" where they are not finite."""
    return {
        "runs": [{"name": run.name, "hashes": dict(run.hashes)} for run in comparison.runs],
        "params": {name: list(values) for name, values in comparison.params.items()},
        "data": {name: list(values) for name, values in comparison.data.items()},
        "metrics": [
            {
                "name": row.name,
                "label": row.label,
                "values": spell_nonfinite(row.values),
                "lower_is_better": row.lower_is_better,
                "sigma": row.sigma,
                "verdicts": list(row.verdicts),
            }
            for row in comparison.metrics
        ],
        "refusals": list(comparison.refusals),
        "same": list(comparison.same),
    }


def is_headline(row: MetricRow) -> bool:
    """Whether a number belongs to the few that a short table shows."""
    measure = find(row.name)
    return measure is not None and measure.headline


def _block(title: str, rows: Any, whole: bool) -> Iterator[str]:
    if not rows:
        return
    yield f"\n{title}"
    width = max(map(len, rows))
    shown = list(rows.items())[: None if whole else _MAX_ROWS]
    for name, values in shown:
        yield f"  {name:<{width}}  " + "  ->  ".join(_cut(value) for value in values)
    if len(shown) < len(rows):
        yield f"  and {len(rows) - len(shown)} more: --all"


def _metrics_block(rows: Sequence[MetricRow], names: Sequence[str]) -> Iterator[str]:
    if not rows:
        return
    heads = [_letter(index) for index in range(len(names))]
    table = [["", *heads[:1], *(cell for head in heads[1:] for cell in (head, ""))]]
    for row in rows:
        first, *others = apart(row.values)
        cells = [row.label, first]
        for place, value in enumerate(others):
            cells += [value, row.told(place)]
        table.append(cells)
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    yield ""
    for line in table:
        first, *others = line
        text = f"{first:<{widths[0]}}"
        for column, cell in enumerate(others, 1):
            is_number = column == 1 or column % 2 == 0
            text += f"  {cell:>{widths[column]}}" if is_number else f"  {cell:<{widths[column]}}"
        yield text.rstrip()


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def _cut(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
