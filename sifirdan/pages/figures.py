"""Parts that every page for people is built of: escaped text, numbers, tables, bars, samples, the frame.

Drawn in percent of the page's width, without script, font or picture from elsewhere, so a page
reads offline, on a phone as on a wide screen. Knows nothing of what a page is about; lines and points
are drawn by charts.py.
"""

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sifirdan.pages.style import STYLE


@dataclass(frozen=True)
class Html:
    """A cell of a table that is HTML already."""

    source: str


def page_frame(title: str, body: str) -> str:
    """A whole page: the style, and a policy by which the browser itself lets nothing be fetched or run."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # what the page promises, enforced by the browser
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'\">"
        f"<title>{escaped(title)}</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def sections(parts: Iterable[tuple[str, str, str]]) -> str:
    """The menu and the sections (title, anchor, content) that have content."""
    there = [(title, anchor, content) for title, anchor, content in parts if content]
    menu = "".join(f'<a href="#{anchor}">{escaped(title)}</a>' for title, anchor, _ in there)
    return f"<nav>{menu}</nav>\n" + "\n".join(
        f'<section id="{anchor}"><h2>{escaped(title)}</h2>{content}</section>'
        for title, anchor, content in there
    )


def sample_text(text: str, *, cut: bool = False) -> str:
    """A Turkish text, its line ends kept; `cut` says that it goes on elsewhere."""
    more = " …" if cut else ""
    return f'<p class="text" lang="tr">{escaped(text) or "<i>empty</i>"}{more}</p>'


def labelled(name: str, number: str, figure: str) -> str:
    """A figure (HTML) under its name, with its number at the right."""
    return (
        f'<div class="step"><p><b>{escaped(name)}</b> <span class="num">{escaped(number)}</span></p>'
        f"{figure}</div>"
    )


def row(name: str, number: str, figure: str) -> str:
    """A figure (HTML) beside its name and number; on a phone it stands under them."""
    return (
        f'<div class="row"><span class="name">{escaped(name)}</span>'
        f'<span class="num">{escaped(number)}</span><div class="fig">{figure}</div></div>'
    )


def bar(part: float, whole: float, label: str, look: str) -> str:
    """A bar over `part` of `whole`; `label` says the same to a screen reader."""
    width = 100 * part / whole if whole and math.isfinite(part) else 0.0
    return (
        f'<svg class="bar {look}" role="img" aria-label="{escaped(label)}">'
        f'<rect width="{width:.2f}%" height="100%"/></svg>'
    )


def stacked_bar(parts: Sequence[tuple[str, int]], label: str) -> str:
    """One bar of several parts, each in the colour of its name."""
    total = sum(number for _, number in parts)
    rects, start = [], 0.0
    for look, number in parts:
        width = 100 * number / total if total else 0.0
        if number:
            rects.append(
                f'<rect class="{look}" x="{start:.2f}%" width="{width:.2f}%" height="100%"/>'
            )
        start += width
    return f'<svg class="bar" role="img" aria-label="{escaped(label)}">{"".join(rects)}</svg>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """The colours (by name of a part) and what each stands for."""
    marks = "".join(
        f'<span><svg class="key" aria-hidden="true"><rect class="{look}" width="100%" height="100%"/></svg>{escaped(label)}</span>'
        for look, label in entries
    )
    return f'<p class="legend">{marks}</p>'


def tiles(entries: Iterable[tuple[str, str]]) -> str:
    """Large numbers, each with what it is."""
    drawn = "".join(
        f"<div><b>{escaped(number)}</b>{escaped(label)}</div>" for number, label in entries
    )
    return f'<div class="tiles">{drawn}</div>' if drawn else ""


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    wide: Iterable[int] = (),
    numbers: Iterable[int] = (),
) -> str:
    """Numbers to the right, and so the columns in `numbers`; the columns in `wide` hold sentences."""
    right = {
        n
        for row in rows[:1]
        for n, cell in enumerate(row)
        if isinstance(cell, int | float) and not isinstance(cell, bool)
    } | set(numbers)
    looks = ["n" if n in right else "wide" if n in set(wide) else "" for n in range(len(head))]
    cells = "".join(
        "<tr>"
        + "".join(
            f'<td class="{look}">{_cell(cell)}</td>' for cell, look in zip(row, looks, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    heads = "".join(
        f'<th class="{"n" if n in right else ""}">{escaped(name)}</th>'
        for n, name in enumerate(head)
    )
    return f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></div>'


def _cell(cell: Any) -> str:
    if isinstance(cell, Html):
        return cell.source
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return digits(cell)
    return "–" if cell is None else escaped(str(cell))


def details(content: str, summary: str = "the numbers") -> str:
    """Content that a reader may open."""
    return f"<details><summary>{escaped(summary)}</summary>{content}</details>"


def percent(part: float, whole: float = 1) -> str:
    """2 of 3 -> '66.7 %'; a little is never shown as nothing."""
    share = 100 * part / whole if whole else 0.0
    if not math.isfinite(share):
        return str(share)
    return "under 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def digits(value: float | None) -> str:
    """A number to as many digits as a reader can use: 74153 -> '74,153', 68.2087 -> '68.2',
    1.54604 -> '1.546', 0.00041 -> '0.00041', 0.0000851 -> '0.000085'."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.01 or value == 0:
        return f"{value:.3f}"
    if size < 1e-6:
        return "under 0.000001" if value > 0 else "over −0.000001"
    return f"{value:.{1 - math.floor(math.log10(size))}f}"


def setting(value: Any) -> str:
    """A parameter as a file of parameters would have it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def large(number: float) -> str:
    """7407872 -> '7.41 M'."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:g}"


def escaped(text: str) -> str:
    """Text as HTML; what cannot be seen or turns the writing round is named instead."""
    seen = (c if c.isprintable() or c in "\n\t" else f"[U+{ord(c):04X}]" for c in text)
    return html.escape("".join(seen), quote=True)
