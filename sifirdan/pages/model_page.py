"""The page about one model: first how good, against what and what changed, then every number, plots,
samples, the data and where it all came from. One file that opens offline and holds no script.

What stands on it comes as ModelFacts; a part without data is left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sifirdan.compare.measures import in_words
from sifirdan.pages.charts import (
    Point,
    Series,
    calibration_chart,
    line_chart,
    nice_ticks,
    point_rows,
)
from sifirdan.pages.chat_parts import chat_section
from sifirdan.pages.figures import (
    bar,
    details,
    digits,
    page_frame,
    percent,
    row,
    sections,
    table,
)
from sifirdan.pages.first_screen import first_screen, metric_value
from sifirdan.pages.model_facts import ModelFacts, collect
from sifirdan.pages.origin_parts import data_section, lineage_section
from sifirdan.pages.sample_parts import samples_section

__all__ = ["ModelFacts", "collect", "model_page"]

SPLITS = {"val": "val", "test": "test", "ood": "ood (out of domain)"}
LOOKS = {"val": 0, "test": 1, "ood": 2}  # colours
CERTAIN = 1.96  # standard errors of a 95 % interval
STAGES = {"train": "pretraining", "finetune": "instruction tuning"}
TOLD = {  # of a training stage's metrics
    "steps": "steps",
    "tokens": "tokens",
    "conversations": "conversations",
    "epochs": "epochs",
    "loss": "loss",
    "val_bits_per_byte": "bits per byte of val",
    "known_nats_per_target": "nats per token of answers to known questions",
}
WRITING = {  # measures of free samples, in words
    "samples": "samples",
    "distinct_1": "different words, of all words",
    "distinct_2": "different pairs of words, of all pairs",
    "distinct_3": "different triples of words, of all triples",
    "repetition": "groups of four words that came before in the sample",
    "known_word_share": "words that occur in the training text",
    "val_known_word_share": "the same for held-out text, written by people",
    "stopped_share": "samples that end by themselves",
    "longest_copy_chars": "longest piece copied from the training text, in characters",
    "copied_share": "samples with more than 50 characters copied",
    "searched_bytes": "bytes of training text that were searched for copies",
}


def model_page(facts: ModelFacts) -> str:
    """The whole page."""
    scores = facts.scores
    parts = [
        ("Held-out text", "text", _text_section(scores)),
        ("Length and context", "context", _context_section(scores)),
        ("Calibration", "calibration", _calibration_section(scores, facts.bins)),
        (
            "Minimal pairs",
            "pairs",
            _pairs_section(scores.get("minimal_pairs", {}), facts.pair_baselines),
        ),
        ("Tasks", "tasks", _tasks_section(scores.get("tasks", {}))),
        (
            "Chat",
            "chat",
            chat_section(scores, facts.samples, facts.params.get("evaluate.max_forgetting")),
        ),
        ("Training", "training", _training_section(facts)),
        ("Writing", "writing", _writing_section(scores.get("samples", {}))),
        ("Samples", "samples", samples_section(facts.samples)),
        ("Data", "data", data_section(facts.data_card)),
        ("Lineage", "lineage", lineage_section(facts)),
    ]
    drawn = ((title, anchor, "".join(content)) for title, anchor, content in parts)
    end = "<footer>Made by <code>sifirdan</code>, stage <code>report</code>. One file; it asks for nothing.</footer>"
    return page_frame(f"models/{facts.name}", first_screen(facts) + sections(drawn) + end)


def _text_section(scores: Mapping[str, Any]) -> Iterator[str]:
    there = {split: scores[split] for split in SPLITS if "bits_per_byte" in scores.get(split, {})}
    if not there:
        return
    yield (
        "<p>Bits per byte of the text as stored; each token is scored once"
        + (f", in windows of {scores['window']} tokens that move on by {scores['stride']}" if "stride" in scores else "")
        + ". Token perplexity compares within one tokenizer only, the others between any models on the same text.</p>"
    )  # fmt: skip
    columns = [
        (head, [one.get(key) for one in there.values()])
        for head, key in (
            ("bits per byte", "bits_per_byte"),
            ("token perplexity", "token_perplexity"),
            ("word", "word_perplexity"),
            ("character", "character_perplexity"),
            ("documents", "documents"),
            ("bytes", "bytes"),
            ("not scorable", "unscorable"),
        )
    ]
    columns.insert(1, ("95 % interval", [_interval(one) for one in there.values()]))
    known = [(head, cells) for head, cells in columns if any(cell is not None for cell in cells)]
    yield table(
        ["split", *(head for head, _ in known)],
        [[SPLITS[split], *(cells[n] for _, cells in known)] for n, split in enumerate(there)],
        numbers=range(1, len(known) + 1),
    )
    named = [(split, source, bits) for split, one in there.items() for source, bits in one.get("sources", {}).items()]  # fmt: skip
    if named:
        yield "<h3>By source</h3>"
        yield _split_legend({split for split, _, _ in named})
        yield _by_name(named, "bits per byte")


def _interval(score: Mapping[str, Any]) -> str | None:
    if "low" not in score or "high" not in score:
        return None
    return f"{score['low']:.3f} to {score['high']:.3f}"


def _split_legend(splits: set[str]) -> str:
    marks = "".join(
        '<span><svg class="key" aria-hidden="true">'
        f'<circle class="f{LOOKS[split]}" cx="50%" cy="50%" r="5"/></svg>{SPLITS[split]}</span>'
        for split in SPLITS
        if split in splits
    )
    return f'<p class="legend">{marks}</p>'


def _by_name(named: list[tuple[str, str, float]], unit: str) -> str:
    """(split, name, bits), a line a name."""
    rows: dict[str, list[tuple[str, float]]] = {}
    for split, name, bits in named:
        rows.setdefault(name, []).append((split, bits))
    finite = [bits for _, _, bits in named if math.isfinite(bits)] or [0.0]
    ticks = nice_ticks(min(finite), max(finite), 4)
    return point_rows(
        [
            (
                name,
                [Point(bits, look=LOOKS[split]) for split, bits in points],
                " / ".join(f"{bits:.2f}" for _, bits in points),
            )
            for name, points in rows.items()
        ],
        low=ticks[0],
        high=ticks[-1],
        unit=unit,
    )


def _context_section(scores: Mapping[str, Any]) -> Iterator[str]:
    named = [
        (split, name, bits)
        for split in SPLITS
        for name, bits in scores.get(split, {}).get("lengths", {}).items()
    ]
    places = {
        split: scores[split]["positions"]
        for split in SPLITS
        if scores.get(split, {}).get("positions")
    }
    if not named and not places:
        return
    yield '<div class="charts">'
    if named:
        yield "<figure><figcaption>Bits per byte by length of the document</figcaption>"
        yield _split_legend({split for split, _, _ in named})
        yield f"{_by_name(named, 'bits per byte')}</figure>"
    # by their lower ends: "128-255" is 128, and the last group ends where the window does
    starts = {
        split: {name.removeprefix("from ").split("-")[0]: bits for name, bits in by_place.items()}
        for split, by_place in places.items()
    }
    names = list(dict.fromkeys(name for by_place in starts.values() for name in by_place))
    yield line_chart(
        "Bits per token by place in the context",
        [
            Series(
                SPLITS[split],
                [(float(names.index(name)), bits) for name, bits in by_place.items()],
            )
            for split, by_place in starts.items()
        ],
        x_label="tokens seen before, from",
        y_label="bits per token",
        x_names={float(n): name for n, name in enumerate(names)},
        note="Other text stands at each place: every document has a beginning, but only long ones reach far."
        " So a line may rise where the text is harder, in speeches behind dictionary entries, say, and a rise"
        " or a fall alone does not show how much the model makes of what stands further back.",
    )
    yield "</div>"


def _calibration_section(
    scores: Mapping[str, Any], bins: Sequence[Mapping[str, float]]
) -> Iterator[str]:
    found = scores.get("val", {}).get("calibration", {})
    if "accuracy" not in found or "confidence" not in found:
        return
    sure, right = found["confidence"], found["accuracy"]
    lean = "surer than it is right" if sure > right else "less sure than it is right"
    yield (
        f'<div class="charts"><div><p>Its likeliest next token is right {percent(right)} of the time, and it says so with {percent(sure)}:'
        f" it is {lean}, by {abs(sure - right) * 100:.1f} points on the whole"
        + (f" and {percent(found['error'])} over all levels (expected calibration error)" if "error" in found else "")
        + ".</p>"
    )  # fmt: skip
    for name, share in (("how sure it is", sure), ("how often it is right", right)):
        yield row(name, percent(share), bar(share, 1, f"{name}: {percent(share)}", ""))
    yield "</div>"
    if bins:
        places = [(one["confidence"], one["accuracy"]) for one in bins]
        yield calibration_chart("By how sure it was", places)
    yield "</div>"


def _pairs_section(
    pairs: Mapping[str, Any], baselines: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    if "accuracy" not in pairs:
        return
    error = _plus_minus(pairs.get("standard_error"))
    marks = (
        "The dashed line is the best that needs no rule: guessing (50 %), or taking the more frequent words or tokens,"
        " or fewer of them, as counted in the training text"
        if baselines
        else "The dashed line is guessing (50 %); inside words, frequencies alone get more"
    )
    yield (
        f"<p>Of two sentences that differ in one place, one right and one wrong, the model finds the right one"
        f" likelier in <b>{percent(pairs['accuracy'])}{error}</b> of the pairs. {marks}. Whiskers and ± are 95 %"
        " intervals; grey: not above the dashed line for certain. Inside one word the order of words is no help, so a"
        " model of shuffled words can do as well there.</p>"
    )
    ranked = sorted(
        pairs.get("phenomena", {}).items(), key=lambda item: (-item[1]["accuracy"], item[0])
    )
    if not ranked:
        return
    rows, best = [], []
    for name, one in ranked:
        best.append(max([0.5, *(column[name] for column in baselines.values() if name in column)]))
        point = _share_point(one, best[-1], above=True)
        rows.append((in_words(name), [point], percent(one["accuracy"]) + _plus_minus(one.get("standard_error"))))  # fmt: skip
    lowest = min([40.0, *(p.low if p.low is not None else p.value for _, (p,), _ in rows)])
    low = max(0.0, 10 * (lowest // 10))
    yield point_rows(rows, low=low, high=100, unit="right", marks=[100 * mark for mark in best])
    numbers = [
        [
            in_words(name),
            one.get("pairs"),
            percent(one["accuracy"]),
            _half(one.get("standard_error")),
            _share(one.get("nonce_accuracy")),
            *(_share(column.get(name)) for column in baselines.values()),
        ]
        for name, one in ranked
    ]
    head = ["phenomenon", "pairs", "right", "± (95 %)", "with invented stems", *(f"by {name}" for name in baselines)]  # fmt: skip
    yield details(table(head, numbers, numbers=range(1, len(head))))


def _tasks_section(tasks: Mapping[str, Any]) -> Iterator[str]:
    known = {name: one for name, one in tasks.items() if "accuracy" in one}
    if not known:
        return
    yield (
        "<p>Multiple choice and cloze. The dashed line is chance; whiskers and ± are 95 % intervals; grey: not told apart from"
        " chance.</p>"
    )
    yield point_rows(
        [
            (
                in_words(name),
                [_share_point(one, one.get("chance"))],
                percent(one["accuracy"]) + _plus_minus(one.get("standard_error")),
            )
            for name, one in known.items()
        ],
        low=0,
        high=100,
        unit="right",
        marks=[100 * one["chance"] if "chance" in one else None for one in known.values()],
    )
    yield table(
        ["task", "items", "right", "by bytes of the answer", "± (95 %)", "chance"],
        [
            [
                in_words(name),
                one.get("items"),
                *(_share(one.get(key)) for key in ("accuracy", "accuracy_by_bytes")),
                _half(one.get("standard_error")),
                _share(one.get("chance")),
            ]
            for name, one in known.items()
        ],
        numbers=range(1, 6),
    )  # fmt: skip


def _share_point(one: Mapping[str, Any], chance: float | None, *, above: bool = False) -> Point:
    """A share in percent with its interval; grey where that reaches chance, with `above` also where it
    lies below it: to be surely worse than frequencies is no knowledge."""
    half = CERTAIN * one.get("standard_error", 0.0)
    low, high = one["accuracy"] - half, one["accuracy"] + half
    unclear = chance is not None and low <= chance and (above or chance <= high)
    return Point(100 * one["accuracy"], 100 * low, 100 * high, 6 if unclear else 0)


def _plus_minus(error: float | None) -> str:
    return "" if error is None else f" ± {CERTAIN * 100 * error:.1f}"


def _half(error: float | None) -> str | None:
    """Half of the 95 % interval, in points of a percent."""
    return None if error is None else f"{CERTAIN * 100 * error:.1f}"


def _share(value: float | None) -> str | None:
    return None if value is None else percent(value)


def _training_section(facts: ModelFacts) -> Iterator[str]:
    drawn = []
    for stage, what in STAGES.items():
        points = facts.curves.get(stage, ())
        per_step = facts.batch_tokens.get(stage) if stage == "train" else None
        x_label = "tokens seen" if per_step else "steps"
        note = f"A step is {digits(per_step)} tokens." if per_step else ""
        for key, title, unit in (
            ("loss", f"Loss, {what}", "nats per token"),
            ("val_bits_per_byte", f"Held-out text, {what}", "bits per byte of val"),
            ("known_nats_per_target", "Answers to known questions", "nats per token of the answer"),
        ):
            line = [(p["step"] * float(per_step or 1), p[key]) for p in points if key in p]
            drawn.append(
                line_chart(
                    title, [Series(unit, line)], x_label=x_label, y_label=unit, note=note
                )
            )  # fmt: skip
    if any(drawn):
        yield f'<div class="charts">{"".join(drawn)}</div>'
    for stage, what in STAGES.items():
        numbers = facts.metrics.get(stage, {})
        said = [f"{label} {digits(numbers[key])}" for key, label in TOLD.items() if key in numbers]
        if said and stage in facts.curves:
            yield f'<p class="from">After {what}: {", ".join(said)}.</p>'


def _writing_section(written: Mapping[str, Any]) -> Iterator[str]:
    """Free samples, and beside them the prompted ones by temperature."""
    sides = {"from nothing": written} | {
        f"prompts, temperature {name}": one for name, one in written.get("temperatures", {}).items()
    }
    keys = dict.fromkeys(
        k for one in sides.values() for k, v in one.items() if isinstance(v, int | float)
    )
    if not keys:
        return
    ordered = [key for key in WRITING if key in keys] + [key for key in keys if key not in WRITING]
    rows = [
        [
            WRITING.get(key, in_words(key)),
            *(metric_value(key, one.get(key)) for one in sides.values()),
        ]
        for key in ordered
    ]
    yield table(["measure", *sides], rows, numbers=range(1, len(sides) + 1))
