"""The figures that only the page about a corpus has: documents, ribbons, histograms of lengths.

What every page is built of lies in pages/figures.py; what is drawn is chosen in corpus_report.py.
"""

from collections.abc import Mapping, Sequence

from sifirdan.corpus.examples import SAMPLE_CHARS, Example
from sifirdan.pages.figures import escaped, sample_text


def article(example: Example, look: str) -> str:
    """A document with where it comes from; `look` is "lost" or "kept"."""
    note = f" · {escaped(example.note)}" if example.note else ""
    return (
        f'<article class="{look}"><p class="from">{escaped(example.source)} · {escaped(example.origin)}'
        f" · {escaped(example.id[:12])}{note}</p>{corpus_text(example.text)}</article>"
    )


def corpus_text(text: str) -> str:
    """A text of the corpus, which examples hold up to SAMPLE_CHARS."""
    return sample_text(text, cut=len(text) >= SAMPLE_CHARS)


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
