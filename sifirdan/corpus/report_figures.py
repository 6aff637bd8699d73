"""The figures and tables of a page for people, as HTML: bars, ribbons, histograms, samples of text.

Drawn in percent of the page's width, without script, font or picture from elsewhere, so a page
reads offline, on a phone as on a wide screen. Knows nothing of a corpus: see corpus_report.py.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sifirdan.corpus.examples import SAMPLE_CHARS, Example


def article(example: Example, look: str) -> str:
    """A document with where it comes from; `look` is "lost" or "kept"."""
    note = f" · {escaped(example.note)}" if example.note else ""
    return (
        f'<article class="{look}"><p class="from">{escaped(example.source)} · {escaped(example.origin)}'
        f" · {escaped(example.id[:12])}{note}</p>{sample_text(example.text)}</article>"
    )


def sample_text(text: str) -> str:
    """A text of the corpus, its line ends kept."""
    more = " …" if len(text) >= SAMPLE_CHARS else ""
    return f'<p class="text" lang="tr">{escaped(text) or "<i>empty</i>"}{more}</p>'


def labelled(name: str, number: str, figure: str) -> str:
    """A figure (HTML) under its name, with its number at the right."""
    return (
        f'<div class="step"><p><b>{escaped(name)}</b> <span class="num">{escaped(number)}</span></p>'
        f"{figure}</div>"
    )


def bar(part: float, whole: float, label: str, look: str) -> str:
    """A bar over `part` of `whole`; `label` says the same to a screen reader."""
    width = 100 * part / whole if whole else 0.0
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


def ribbon(before: int, after: int, whole: int, label: str) -> str:
    """The stream of documents through one step: what stays, and the edge that is taken off."""
    top, bottom = (100 * number / whole if whole else 0.0 for number in (before, after))
    return (
        '<svg class="ribbon" viewBox="0 0 100 20" preserveAspectRatio="none" role="img"'
        f' aria-label="{escaped(label)}"><polygon class="kept" points="0,0 {top:.3f},0 {bottom:.3f},20'
        f' 0,20"/><polygon class="lost" points="{top:.3f},0 {top:.3f},20 {bottom:.3f},20"/></svg>'
    )


def histogram(sides: Mapping[str, Sequence[int]], first: int, last: int) -> str:
    """How many documents came "in" and went "out" by length, over the buckets first to last."""
    num_buckets = last - first + 1
    most = max(max(sides["in"]), max(sides["out"]), 1)
    rects = [
        f'<rect class="{look}" x="{n - first + inset:.2f}" width="{1 - 2 * inset:.2f}"'
        f' y="{100 - 100 * sides[side][n] / most:.2f}" height="{100 * sides[side][n] / most:.2f}"/>'
        for side, look, inset in (("in", "duplicates", 0.06), ("out", "train", 0.2))
        for n in range(first, last + 1)
        if sides[side][n]
    ]
    ticks = "".join(
        f'<span style="left:{100 * (n - first) / num_buckets:.2f}%">{_short(_start(n))}</span>'
        for n in range(first, last + 1)
        if n == 0 or (n - 1) % 3 == 0
    )
    label = f"{sum(sides['in']):,} came in, {sum(sides['out']):,} kept, tallest bar {most:,}"
    return (
        f'<svg class="plot" viewBox="0 0 {num_buckets} 100" preserveAspectRatio="none" role="img"'
        f' aria-label="{label}">{"".join(rects)}</svg><div class="axis">{ticks}</div>'
        f'<p class="from">{label}</p>'
    )


def _start(bucket: int) -> int:
    return 1 << (bucket - 1) if bucket else 0


def bucket_name(bucket: int) -> str:
    """The lengths of a bucket: 5 -> '16–31'."""
    return f"{_start(bucket):,}–{(1 << bucket) - 1:,}" if bucket > 1 else str(_start(bucket))


def _short(number: int) -> str:
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """The colours (by name of a part) and what each stands for."""
    marks = "".join(
        f'<span><svg class="key"><rect class="{look}" width="100%" height="100%"/></svg>{escaped(label)}</span>'
        for look, label in entries
    )
    return f'<p class="legend">{marks}</p>'


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], wide: Iterable[int] = ()) -> str:
    """Numbers to the right; the columns in `wide` hold sentences."""
    looks = ["wide" if n in set(wide) else "" for n in range(len(head))]
    cells = "".join(
        "<tr>"
        + "".join(
            f'<td class="n">{cell:,}</td>'
            if isinstance(cell, int)
            else f'<td class="{look}">{escaped(str(cell))}</td>'
            for cell, look in zip(row, looks, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    numeric = {n for row in rows[:1] for n, cell in enumerate(row) if isinstance(cell, int)}
    heads = "".join(
        f'<th class="{"n" if n in numeric else ""}">{escaped(name)}</th>'
        for n, name in enumerate(head)
    )
    return f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></div>'


def details(content: str) -> str:
    """Content that a reader may open."""
    return f"<details><summary>the numbers</summary>{content}</details>"


def percent(part: float, whole: float) -> str:
    """2 of 3 -> '66.7 %'; a little is never shown as nothing."""
    share = 100 * part / whole if whole else 0.0
    return "under 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def escaped(text: str) -> str:
    """Text as HTML; what cannot be seen or turns the writing round is named instead."""
    seen = (c if c.isprintable() or c in "\n\t" else f"[U+{ord(c):04X}]" for c in text)
    return html.escape("".join(seen), quote=True)


STYLE = """
:root{--kept:#2a6f97;--lost:#c8553d;--line:#d9d7d0}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:68rem;margin:0 auto;
padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;margin:.5rem 0}
h2{font-size:1.25rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
.tiles{display:flex;flex-wrap:wrap;gap:.5rem}
.tiles div{flex:1 1 9rem;background:#f5f4ef;padding:.5rem .75rem;font-size:.85rem}
.tiles b{display:block;font-size:1.3rem}
nav{margin:1rem 0 0;display:flex;flex-wrap:wrap;gap:.2rem 1rem}
.step{margin:.5rem 0}
.step p{margin:0;display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 1rem}
.num,td.n{font-variant-numeric:tabular-nums}
svg{display:block;width:100%}
.bar{height:14px;background:#f0eee8;margin-top:2px}
.thin{height:7px}
.ribbon{height:20px}
.kept rect,polygon.kept{fill:var(--kept)}
.lost rect,polygon.lost{fill:var(--lost)}
rect.train{fill:#2a6f97}
rect.val{fill:#61a5c2}
rect.test{fill:#7b5ea7}
rect.ood{fill:#6a994e}
rect.rejected{fill:#c8553d}
rect.duplicates{fill:#e9b44c}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}
.legend span{display:flex;align-items:center;gap:.3rem}
svg.key{width:14px;height:14px}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1rem 1.5rem}
figure{margin:0}
figcaption{font-weight:600}
.plot{height:110px;border-bottom:1px solid #888}
.axis{position:relative;height:1.2rem;font-size:.75rem}
.axis span{position:absolute}
.table{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-size:.85rem;overflow-wrap:normal}
th,td{text-align:left;vertical-align:top;padding:.2rem .6rem;border-bottom:1px solid var(--line)}
th{white-space:nowrap}
th.n,td.n{text-align:right}
td{white-space:nowrap}
td.wide{white-space:normal;min-width:14rem}
summary{cursor:pointer}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:.75rem;align-items:start}
article{border-left:4px solid var(--lost);background:#faf9f6;padding:.4rem .6rem;margin:0 0 .6rem}
article.kept{border-color:var(--kept)}
.from{font-size:.75rem;color:#555;margin:0 0 .2rem}
.text{margin:0;white-space:pre-wrap;font-size:.9rem}
.text i{font-size:.75rem;background:#ffe3dc;padding:0 .2rem}
code{font-size:.85rem;background:#f5f4ef;padding:0 .2rem}
@media(max-width:44rem){.pair{grid-template-columns:minmax(0,1fr)}}
"""
