"""The page about a corpus for people: what came in, what each step took away, what stayed.

One file, `report.html`, that opens offline: no script, no font, no picture from elsewhere. Figures
are drawn in percent of the page's width, so they read on a phone as on a wide screen, and each has
its numbers in a table. The numbers come from the ledger; `clean` adds what the ledger does not hold
(samples, languages, personal data). Not for machines: those read data_card.json.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.corpus.card import Step, license_shares
from sifirdan.corpus.examples import Samples
from sifirdan.corpus.ledger_file import SPLITS
from sifirdan.corpus.report_figures import article, bucket_name, corpus_text, histogram, ribbon
from sifirdan.pages.figures import (
    bar,
    details,
    escaped,
    labelled,
    legend,
    page_frame,
    percent,
    sections,
    stacked_bar,
    table,
    tiles,
)

PAGE = "report.html"
OUTCOMES = (*SPLITS, "rejected", "duplicates")


@dataclass(frozen=True)
class CorpusFindings:
    """What one run of `clean` found. `summary` is the ledger's account of each source, `lengths` its
    `length_histograms`, `steps` those of the data card in their order; `languages` and `personal`
    count documents by guessed language and places by kind of personal data, both by source;
    `links` are relative addresses of other pages and files, by their label."""

    summary: Mapping[str, Mapping[str, Any]]
    lengths: Mapping[str, Mapping[str, Sequence[int]]]
    steps: Sequence[Step]
    languages: Mapping[str, Mapping[str, int]]
    personal: Mapping[str, Mapping[str, int]]
    samples: Samples
    links: Mapping[str, str]


@dataclass(frozen=True)
class FlowStep:
    """A step of the flow: what it took away and what was left after it."""

    name: str
    what: str
    removed: dict[str, int]  # documents, by reason
    removed_chars: int
    left: int


def write_report(folder: Path, findings: CorpusFindings) -> None:
    """Write report.html into the folder."""
    runs.write_text(folder / PAGE, page(findings))


def flow(summary: Mapping[str, Mapping[str, Any]], steps: Sequence[Step]) -> list[FlowStep]:
    """What each step took away of all documents, in order. A reason that no step names comes last
    under its own name, so that the numbers always add up to what is kept."""
    removed: dict[str, int] = {}
    chars: dict[str, int] = {}
    for account in summary.values():
        for part in ("rejected", "duplicates"):
            for reason, number in account[part].items():
                removed[reason] = removed.get(reason, 0) + number
        for reason, number in account["chars_lost"].items():
            chars[reason] = chars.get(reason, 0) + number
    left = sum(account["in"] for account in summary.values())
    named = {reason for step in steps for reason in step.reasons}
    others = [
        Step(r, "no step of the card names it", {}, (r,)) for r in sorted(removed) if r not in named
    ]
    found = []
    for step in [*steps, *others]:
        taken = {reason: removed[reason] for reason in step.reasons if removed.get(reason)}
        if not step.reasons:
            continue  # it mends and takes nothing away
        left -= sum(taken.values())
        lost = sum(chars.get(reason, 0) for reason in taken)
        found.append(FlowStep(step.name, step.what, taken, lost, left))
    kept = sum(sum(account["out"].values()) for account in summary.values())
    assert left == kept, (left, kept)
    return found


def page(findings: CorpusFindings) -> str:
    """The whole page."""
    summary = findings.summary
    parts = [
        ("Flow", "flow", _flow_section(findings)),
        ("Sources", "sources", _sources_section(summary)),
        ("Licences", "licences", _licenses_section(summary)),
        ("Lengths", "lengths", _lengths_section(findings.lengths)),
        ("Languages", "languages", _languages_section(findings.languages)),
        ("Personal data and flags", "personal", _personal_section(findings)),
        ("Repairs", "repairs", _repairs_section(findings.steps)),
        ("Rejected, and nearly so", "examples", _examples_section(findings)),
    ]
    body = sections((title, anchor, "".join(content)) for title, anchor, content in parts)
    links = "".join(
        f'<li><a href="{escaped(target)}">{escaped(label)}</a></li>'
        for label, target in findings.links.items()
    )
    return page_frame(
        "Corpus report",
        f"<h1>Corpus report</h1>{_tiles(summary)}{body}\n"
        + (f"<section><h2>More</h2><ul>{links}</ul></section>" if links else ""),
    )


# Sections.


def _tiles(summary: Mapping[str, Mapping[str, Any]]) -> str:
    came = sum(account["in"] for account in summary.values())
    kept = sum(sum(account["out"].values()) for account in summary.values())
    train = sum(account["chars_out"]["train"] for account in summary.values())
    return tiles(
        (
            (f"{came:,}", "documents came in"),
            (f"{kept:,}", f"are kept ({percent(kept, came)})"),
            (f"{train:,}", "characters of training text"),
            (f"{len(summary)}", "sources"),
            (f"{len({account['license'] for account in summary.values()})}", "licences"),
        )
    )


def _flow_section(findings: CorpusFindings) -> Iterator[str]:
    steps = flow(findings.summary, findings.steps)
    came = sum(account["in"] for account in findings.summary.values())
    most = max((sum(step.removed.values()) for step in steps), default=0)
    yield (
        "<p>Documents from raw to kept. The band is as wide as what is left; the red edge is what the"
        " step took. The bar under it shows the same loss on a scale of its own, the largest being"
        " full width.</p>"
    )
    yield labelled("raw", f"{came:,}", "")
    before = came
    for step in steps:
        lost = sum(step.removed.values())
        label = f"{step.name}: {lost:,} of {before:,} documents out"
        number = f"{'−' if lost else ''}{lost:,} ({percent(lost, came)}), {step.left:,} left"
        band = ribbon(before, step.left, came, label)
        yield labelled(
            step.name, number, band + (bar(lost, most, label, "lost thin") if lost else "")
        )
        before = step.left
    drawn = bar(before, came, f"kept {before:,} of {came:,}", "kept")
    yield labelled("kept", f"{before:,} ({percent(before, came)})", drawn)
    yield table(
        ["step", "what it does", "reasons", "documents out", "characters out", "documents left"],
        [
            [
                step.name,
                step.what,
                ", ".join(f"{reason} {n:,}" for reason, n in step.removed.items()) or "none",
                sum(step.removed.values()),
                step.removed_chars,
                step.left,
            ]
            for step in steps
        ],
        wide={1, 2},
    )


def _sources_section(summary: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "<p>What became of each source's documents: in = out + rejected + duplicates.</p>"
    yield legend([(name, name) for name in OUTCOMES])
    rows = []
    for name, account in summary.items():
        parts = [
            *((split, account["out"][split]) for split in SPLITS),
            ("rejected", sum(account["rejected"].values())),
            ("duplicates", sum(account["duplicates"].values())),
        ]
        rows.append([name, account["license"], account["in"], *(number for _, number in parts)])
        rows[-1] += [account["chars_in"], sum(account["chars_out"].values())]
        label = ", ".join(f"{part} {number:,}" for part, number in parts)
        yield labelled(name, f"{account['in']:,}", stacked_bar(parts, label))
    yield table(["source", "licence", "in", *OUTCOMES, "characters in", "characters out"], rows)
    reasons = sorted(
        {r for a in summary.values() for p in ("rejected", "duplicates") for r in a[p]}
    )
    if reasons:
        yield "<h3>Reasons by source</h3>"
        yield table(
            ["reason", *summary],
            [
                [
                    r,
                    *(
                        a["rejected"].get(r, 0) + a["duplicates"].get(r, 0)
                        for a in summary.values()
                    ),
                ]
                for r in reasons
            ],
        )


def _licenses_section(summary: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    by_share = sorted(license_shares(summary).items(), key=lambda item: -item[1]["train_share"])
    shares = dict(by_share)
    yield "<p>Share of the training text's characters by licence.</p>"
    for name, entry in shares.items():
        share = percent(entry["train_share"], 1)
        yield labelled(name, share, bar(entry["train_share"], 1, f"{name} {share}", "kept"))
    yield table(
        ["licence", "sources", "training documents", "training characters", "share"],
        [
            [
                name,
                ", ".join(entry["sources"]),
                entry["train_documents"],
                entry["train_chars"],
                percent(entry["train_share"], 1),
            ]
            for name, entry in shares.items()
        ],
    )


def _lengths_section(lengths: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[str]:
    used = {n for sides in lengths.values() for h in sides.values() for n, c in enumerate(h) if c}
    if not used:
        yield "<p>No document came in.</p>"
        return
    first, last = min(used), max(used)
    yield (
        "<p>Documents by length in characters; each bar holds lengths up to twice as large as the"
        " last. Heights are per source.</p>"
    )
    yield legend([("duplicates", "came in"), ("train", "kept")])
    yield '<div class="plots">'
    for name, sides in lengths.items():
        yield f"<figure><figcaption>{escaped(name)}</figcaption>{histogram(sides, first, last)}</figure>"
    yield "</div>"
    heads = [f"{name} {side}" for name in lengths for side in ("in", "kept")]
    yield details(
        table(
            ["length", *heads],
            [
                [
                    bucket_name(n),
                    *(h[n] for sides in lengths.values() for h in (sides["in"], sides["out"])),
                ]
                for n in range(first, last + 1)
            ],
        )
    )


def _languages_section(languages: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if not any(languages.values()):
        yield "<p>No source is looked at by language: curated text is taken as it is.</p>"
        return
    yield "<p>Documents by guessed language, before any was turned away for it.</p>"
    rows = []
    for name, counts in languages.items():
        total = sum(counts.values())
        yield f"<h3>{escaped(name)}</h3>"
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        for language, number in ranked:
            rows.append([name, language, number, percent(number, total)])
        for language, number in ranked[:8]:
            share = percent(number, total)
            drawn = bar(number, total, f"{language} {number:,}", "kept thin")
            yield labelled(language, f"{number:,} ({share})", drawn)
        if len(ranked) > 8:
            yield f"<p>and {len(ranked) - 8} more, in the table</p>"
    yield details(table(["source", "language", "documents", "share"], rows))


def _personal_section(findings: CorpusFindings) -> Iterator[str]:
    flags = {name: account["flags"] for name, account in findings.summary.items()}
    for title, unit, counts in (
        ("Personal data found", "places", findings.personal),
        ("Flags", "documents", flags),
    ):
        kinds = sorted({kind for found in counts.values() for kind in found})
        yield f"<h3>{title}, in {unit}</h3>"
        if not kinds:
            yield "<p>none</p>"
            continue
        totals = {kind: sum(found.get(kind, 0) for found in counts.values()) for kind in kinds}
        most = max(totals.values())
        for kind, number in totals.items():
            yield labelled(
                kind, f"{number:,}", bar(number, most, f"{kind} {number:,}", "kept thin")
            )
        yield table(
            ["kind", *counts], [[k, *(f.get(k, 0) for f in counts.values())] for k in kinds]
        )


def _repairs_section(steps: Sequence[Step]) -> Iterator[str]:
    mending = [step for step in steps if any(step.places.values())]
    if not mending:
        yield "<p>Nothing was mended.</p>"
        return
    sources = sorted({name for step in mending for name in step.places})
    yield table(
        ["repair", "what it does", *(f"{name}, places" for name in sources)],
        [[s.name, s.what, *(s.places.get(name, 0) for name in sources)] for s in mending],
        wide={1},
    )


def _examples_section(findings: CorpusFindings) -> Iterator[str]:
    yield (
        "<p>With a red edge: documents that a rule turned away. With a blue edge: of a duplicate the"
        " copy that stayed, of another reason kept documents that the same rule, a little stricter,"
        " would have turned away. Drawn by the hash of each document, so not chosen by hand.</p>"
    )
    settings = {reason: step for step in findings.steps for reason in step.reasons}
    reasons = [reason for step in flow(findings.summary, findings.steps) for reason in step.removed]
    for reason in reasons:
        rejected = findings.samples.of(reason, "rejected")
        kept = findings.samples.of(reason, "kept")
        step = settings.get(reason)
        yield f'<h3 id="reason-{escaped(reason)}">{escaped(reason)}</h3>'
        if step:
            shown = ", ".join(f"{key}: {value}" for key, value in step.settings.items())
            yield f"<p>{escaped(step.what)}{f' <code>{escaped(shown)}</code>' if shown else ''}</p>"
        if any(example.kept is not None for example in rejected):
            for example in rejected:
                copy = example.kept if example.kept is not None else "(not to be had)"
                yield f'<div class="pair">{article(example, "lost")}'
                yield f'<article class="kept"><p class="from">the copy that stayed</p>{corpus_text(copy)}</article></div>'
            continue
        if not rejected:
            yield '<p class="from">no sample of these is kept</p>'
        left, right = (
            [article(one, "lost") for one in rejected],
            [article(one, "kept") for one in kept],
        )
        if not right:  # a rule that knows no near: its documents may fill both columns
            left, right = left[::2], left[1::2]
        yield f'<div class="pair"><div>{"".join(left)}</div><div>{"".join(right)}</div></div>'
