"""The report card of a tokenizer: every measure of every contestant, as numbers, page and picture.

The numbers are a function of the tokenizers and the texts alone; speeds are not among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sifirdan.baselines.contestants import Contestant
from sifirdan.evals.suffix_gold import Band
from sifirdan.evals.tokenizer_measures import (
    Agreement,
    TextMeasures,
    agreement,
    agreement_table,
    difference_interval,
    measure,
)
from sifirdan.evals.tokenizer_probes import cut_at_apostrophe_share, probes, tokens_of


@dataclass(frozen=True)
class Row:
    """What was found for one contestant."""

    name: str
    vocab_size: int
    text: TextMeasures  # held-out text, all domains
    domains: dict[str, TextMeasures]
    suffixes: Agreement  # all bands
    bands: dict[str, Agreement]
    difference: tuple[float, float, float]  # F1 less that of the first contestant, and its interval
    probe_tokens: dict[str, int]
    apart_at_apostrophe: float


def compare(
    contestants: Sequence[Contestant],
    held_out: Mapping[str, Sequence[str]],
    bands: Sequence[Band],
    *,
    seed: int,
) -> list[Row]:
    """A row for each contestant; `held_out` are texts by domain. The first one is the tokenizer
    that the others are compared with."""
    words = [word for band in bands for word in band.words]
    stems = [word.stem.text for word in words]
    tables = [agreement_table(contestant, words) for contestant in contestants]
    rows = []
    for contestant, table in zip(contestants, tables, strict=True):
        domains = {name: measure(contestant, texts) for name, texts in held_out.items()}
        ends = np.cumsum([len(band.words) for band in bands])
        parts = np.split(table, ends[:-1])
        rows.append(
            Row(
                contestant.name,
                contestant.vocab_size,
                sum(domains.values(), TextMeasures()),
                domains,
                agreement(table),
                {band.name: agreement(part) for band, part in zip(bands, parts, strict=True)},
                difference_interval(table, tables[0], stems, seed=seed),
                {kind: tokens_of(contestant, texts) for kind, texts in probes().items()},
                cut_at_apostrophe_share(contestant, probes()["apostrophes"]),
            )
        )
    return rows


def numbers(row: Row) -> dict[str, Any]:
    """A row as it stands in the metrics."""
    difference, low, high = row.difference
    return {
        "vocab_size": row.vocab_size,
        "bytes_per_token": row.text.bytes_per_token,
        "tokens_per_word": row.text.tokens_per_word,
        "whole_word_share": row.text.whole_word_share,
        "broken_character_share": row.text.broken_share,
        "unknown_share": row.text.unknown_share,
        "suffix_precision": row.suffixes.precision,
        "suffix_recall": row.suffixes.recall,
        "suffix_f1": row.suffixes.f1,
        "suffix_f1_difference": difference,
        "suffix_f1_difference_low": low,
        "suffix_f1_difference_high": high,
        "apart_at_apostrophe_share": row.apart_at_apostrophe,
        "bands_f1": {name: found.f1 for name, found in row.bands.items()},
        "domains_bytes_per_token": {n: found.bytes_per_token for n, found in row.domains.items()},
        "probe_tokens": row.probe_tokens,
    }


def page(
    rows: Sequence[Row],
    bands: Sequence[Band],
    facts: Mapping[str, str],
    skipped: Mapping[str, str],
) -> str:
    """The card as Markdown. `facts` stand above the tables, `skipped` are published tokenizers that
    could not be had, with the reason."""
    mine = rows[0]
    lines = ["# Report card of the tokenizer", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "![bytes per token and agreement with suffixes](card.png)", ""]
    lines += ["## What it means", "", *plain_words(mine), ""]
    lines += ["## Held-out text", ""]
    lines += [
        "At most some hundred documents of each source of val and ood; see `documents_a_domain`.",
        "",
    ]
    lines += _table(
        ["tokenizer", "ids", "bytes per token", "tokens per word", "whole words",
         "parts of characters", "unknown"],
        [
            [row.name, f"{row.vocab_size:,}", f"{row.text.bytes_per_token:.2f}",
             f"{row.text.tokens_per_word:.2f}", f"{row.text.whole_word_share:.1%}",
             f"{row.text.broken_share:.2%}", f"{row.text.unknown_share:.2%}"]
            for row in rows
        ],
    )  # fmt: skip
    lines += [
        "",
        "Whole words are words that one token holds. Parts of characters are tokens that hold some bytes of"
        " one, not a whole character; unknown ones have lost their text, so what they seem to hold counts for"
        " nothing.",
        "",
        "## Cuts and suffixes",
        "",
        f"{sum(len(band.words) for band in bands):,} words built by rule from"
        f" {sum(band.num_stems for band in bands)} stems: "
        + "; ".join(
            f"{band.name} ({band.num_stems} stems, {band.fewest:,} to {band.most:,} uses in the training text)"
            if not band.is_invented
            else f"{band.name} ({band.num_stems} invented stems with which no word of it begins)"
            for band in bands
        )
        + ".",
        "",
    ]
    lines += _table(
        ["tokenizer", "precision", "recall", "F1", *(f"F1 {band.name}" for band in bands),
         f"F1 minus that of {mine.name} [95 % interval]"],
        [
            [row.name, f"{row.suffixes.precision:.2f}", f"{row.suffixes.recall:.2f}", f"{row.suffixes.f1:.3f}",
             *(f"{row.bands[band.name].f1:.2f}" for band in bands),
             "" if row is mine else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*row.difference)]
            for row in rows
        ],
    )  # fmt: skip
    lines += [
        "",
        "Precision is the share of cuts that fall where a suffix begins, recall the share of such places"
        " that are cut, F1 their harmonic mean: 1 if both are. The interval says how much of a difference is"
        " chance of the stems chosen (they are drawn again, with replacement, a thousand times); if it does not"
        " hold 0, the difference is real.",
        "",
        "## Kinds of text, in tokens",
        "",
    ]
    kinds = list(probes())
    lines += _table(
        ["tokenizer", *kinds, "apart at the apostrophe"],
        [
            [row.name, *(f"{row.probe_tokens[kind]:,}" for kind in kinds), f"{row.apart_at_apostrophe:.0%}"]
            for row in rows
        ],
    )  # fmt: skip
    lines += [
        "",
        "`capitals` and `ascii` are the sentences of `plain` in capitals and without Turkish letters.",
        "",
        "## Domains, in bytes per token",
        "",
    ]
    domains = list(mine.domains)
    lines += _table(
        ["tokenizer", *domains],
        [
            [row.name, *(f"{row.domains[domain].bytes_per_token:.2f}" for domain in domains)]
            for row in rows
        ],
    )
    if skipped:
        lines += ["", "## Left out", ""]
        lines += ["`dvc repro -f -s evaluate_tokenizer` tries again.", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in skipped.items()]
    return "\n".join(lines) + "\n"


def plain_words(row: Row) -> list[str]:
    """What the numbers of the tokenizer say, for a reader who sees such a card for the first time."""
    seen, unseen = row.bands["frequent"].f1, row.bands["unseen"].f1
    capitals = row.probe_tokens["capitals"] / row.probe_tokens["plain"]
    ascii = row.probe_tokens["ascii"] / row.probe_tokens["plain"]
    return [
        f"- A word of Turkish text costs {row.text.tokens_per_word:.1f} tokens; {row.text.whole_word_share:.0%}"
        " of the words are one token. A context of 256 tokens holds about"
        f" {256 / max(0.1, row.text.tokens_per_word):.0f} words.",
        f"- Of the places where a suffix begins, it cuts {row.suffixes.recall:.0%}, and {row.suffixes.precision:.0%}"
        " of its cuts are such places: it learned what is frequent, not what a suffix is. The model has to"
        " learn the rest.",
        f"- With the stems it saw most often, cuts and suffixes agree to {seen:.2f} (F1), with invented ones to"
        f" {unseen:.2f}.",
        f"- Text in capitals costs {capitals:.1f} times as many tokens, and Turkish typed without its letters"
        f" {ascii:.1f} times: the further from 1.0, the stranger is such text to the model.",
        f"- {row.apart_at_apostrophe:.0%} of words like Ankara'dan come apart at the apostrophe.",
        "- Every text comes back as it was, whatever is in it; nothing is unknown.",
    ]


def plot(path: Path, rows: Sequence[Row]) -> None:
    """Two rows of bars: how much a token holds, and how well cuts and suffixes agree."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [
        f"{row.name} ({row.text.unknown_share:.0%} lost)"
        if row.text.unknown_share > 0.01
        else row.name
        for row in rows
    ]
    figure, axes = pyplot.subplots(
        1, 2, figsize=(10, 1.2 + 0.4 * len(rows)), sharey=True, layout="constrained"
    )
    values = {
        "bytes per token (held-out text)": [row.text.bytes_per_token for row in rows],
        "F1 of cuts and suffix boundaries": [row.suffixes.f1 for row in rows],
    }
    for axis, (label, bars) in zip(axes, values.items(), strict=True):
        drawn = axis.barh(names, bars, color=["C1", *["C0"] * (len(rows) - 1)])
        axis.bar_label(drawn, fmt="%.2f", padding=3)
        axis.set(xlabel=label)
        axis.margins(x=0.15)
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
