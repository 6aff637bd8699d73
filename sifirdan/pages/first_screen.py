"""The first screen of a model's page: how good, against what, what changed. The rest is model_page.py."""

import math
from collections.abc import Sequence

from sifirdan.compare.comparison import (
    NOISE_UNKNOWN,
    Comparison,
    MetricRow,
    noise_command,
    noise_hint,
)
from sifirdan.compare.measures import apart
from sifirdan.pages.figures import (
    bar,
    digits,
    escaped,
    large,
    percent,
    row,
    setting,
    tiles,
)
from sifirdan.pages.model_facts import ModelFacts

BLIND = 8.0  # bits a byte of a guess that favours none of the 256
# Other ways to say the held-out text, by the key of the split's metrics.
YARDSTICKS = {
    "unigram_bits_per_byte": "token frequencies alone",
    "xz_bits_per_byte": "the compressor xz",
    "gzip_bits_per_byte": "the compressor gzip",
}
ROWS_BESIDE_TILES = 3
MOST_CHANGES = 6  # shown on the first screen
SHARES = (
    "accuracy",
    "share",
    "distinct",
    "repetition",
    "partial_match",
)  # what in a name makes a number a percentage


def first_screen(facts: ModelFacts) -> str:
    """Header, the three cards and a row of numbers."""
    numbers = tiles(_tiles(facts))
    against = facts.against
    # a short card leaves room beside "how good"; otherwise the numbers take the whole width
    beside = not against or len(against.metrics) + 2 * len(against.refusals) <= ROWS_BESIDE_TILES
    return (
        f"<header>{_header(facts)}</header>\n"
        f'<div class="first"><div>{_how_good(facts)}{_what_changed(facts)}</div>'
        f"<div>{_against_what(facts)}{numbers if beside else ''}</div></div>\n"
        f"{'' if beside else numbers}\n"
    )


def metric_value(name: str, value: float | None) -> str:
    """A number of the metrics as people read it: a share in percent."""
    if value is None:
        return "–"
    last = name.rsplit(".", 1)[-1]
    return percent(value) if any(word in last for word in SHARES) else digits(value)


def metric_difference(name: str, before: float | None, after: float | None) -> str:
    """`after` less `before` with its sign; a share in points of a percent."""
    if before is None or after is None:
        return "–"
    change = after - before
    sign = "+" if change > 0 else "−" if change < 0 else "±"
    if metric_value(name, 0.5).endswith("%"):
        return f"{sign}{abs(100 * change):.1f} points"
    places = 3 if max(abs(before), abs(after)) < 10 else 1
    said = f"{abs(change):,.{places}f}"
    if change and not float(said.replace(",", "")):
        said = digits(abs(change))
    return f"{sign}{' ' if said.startswith('under') else ''}{said}"


def verdict(word: str, said: str = "") -> str:
    """A verdict as a coloured label; the words say it without the colour."""
    look = word if word in ("better", "worse") else ""
    return f'<span class="verdict {look}">{escaped(said or word)}</span>'


def row_verdict(one: MetricRow, place: int = 0) -> str:
    """What a metric's row says of the run at `place` after the first, as a label."""
    return verdict(one.verdicts[place], one.told(place))


def metric_values(name: str, values: Sequence[float | None]) -> list[str]:
    """Numbers of one row as people read them, in as many digits as show that they differ."""
    said = [metric_value(name, value) for value in values]
    there = {value for value in values if value is not None}
    if len({*said} - {"–"}) == len(there) or not all(map(math.isfinite, there)):
        return said
    factor, unit = (100, " %") if metric_value(name, 0.5).endswith("%") else (1, "")
    raised = [None if value is None else factor * value for value in values]
    return ["–" if text == "-" else f"{text}{unit}" for text in apart(raised)]


def _header(facts: ModelFacts) -> str:
    train = facts.metrics.get("train", {})
    shape = facts.config
    title = f"models/{facts.name}"
    if "parameters" in train:
        title += f": {large(train['parameters'])} parameters"
    said = []
    if layers := shape.get("num_hidden_layers") or shape.get("n_layer"):  # of a GPT-2
        width = shape.get("hidden_size") or shape.get("n_embd")
        window = shape.get("max_position_embeddings") or shape.get("n_positions")
        said.append(
            f"A Turkish language model of {layers} layers and width {width},"
            f" with a vocabulary of {digits(shape.get('vocab_size'))} and a window of {window} tokens."
        )
    if "tokens" in train:
        said.append(
            f"Trained from nothing on {large(train['tokens'])} tokens"
            + (f" ({train['epochs']:.2f} epochs)." if "epochs" in train else ".")
        )
    tuned = facts.metrics.get("finetune", {})
    if facts.name == "chat" and "conversations" in tuned:
        said.append(f"Then tuned on {digits(tuned['conversations'])} conversations.")
    return (
        '<p class="eyebrow">sifirdan · report on a model</p>'
        f'<h1>{escaped(title)}</h1><p class="lead">{escaped(" ".join(said))}</p>'
    )


def _how_good(facts: ModelFacts) -> str:
    val = facts.scores.get("val", {})
    if "bits_per_byte" not in val:
        return _card("How good", "<p>No held-out text was scored.</p>")
    bits = val["bits_per_byte"]
    rest = [(name, val[key]) for key, name in YARDSTICKS.items() if key in val]
    nearest = min(rest, key=lambda entry: entry[1]) if rest else None
    words = (
        f"On average it needs {bits:.2f} bits to say the next byte of Turkish text that it has never seen. "
        + (
            f"A blind guess needs 8, {nearest[0]} {nearest[1]:.2f}{_why(nearest[0], rest)}; lower is better."
            if nearest
            else f"A blind guess needs 8, so it says the text in {100 * bits / BLIND:.0f} % of the space; lower is better."
        )
    )
    documents = f"{digits(val.get('documents'))} held-out documents"
    spread = documents
    if "low" in val and "high" in val:
        spread = f"95 % interval {val['low']:.3f} to {val['high']:.3f} for other texts like the {documents}"
    if "token_perplexity" in val:
        spread += f" · token perplexity {digits(val['token_perplexity'])}"
    bars = [("this model", bits, ""), *((name, value, "plain") for name, value in rest)]
    before = facts.metrics.get("evaluate_base", {}).get("val", {}).get("bits_per_byte")
    if facts.name == "chat" and before is not None:
        bars.insert(1, ("before tuning", before, "plain"))
    shown = _shown(facts.against, f"evaluate_{facts.name}.val.bits_per_byte")
    if shown and not is_reference(facts):
        bars.insert(1, ("the reference", shown, "plain"))
    bars.append(("a blind guess", BLIND, "plain"))
    drawn = "".join(
        row(name, f"{value:.2f}", bar(value, BLIND, f"{name}: {value:.3f} bits per byte", look))
        for name, value, look in bars
    )
    return _card(
        "How good",
        f'<p class="big" id="headline">{bits:.3f} <small>bits per byte</small> {_standing_of(facts)}</p>'
        f'<p class="soft">{escaped(spread)}</p><p>{escaped(words)}</p>{drawn}',
    )


def _why(nearest: str, rest: Sequence[tuple[str, float]]) -> str:
    """Half a sentence where a compressor beats the frequencies of tokens."""
    if nearest == YARDSTICKS["unigram_bits_per_byte"] or len(rest) < 2:
        return ""
    return " (it also finds what comes again, whole entries and phrases; single frequencies do not)"


def _standing_of(facts: ModelFacts) -> str:
    """The verdict on the headline number itself."""
    for one in facts.against.metrics if facts.against and not is_reference(facts) else ():
        if one.name == f"evaluate_{facts.name}.val.bits_per_byte":
            told = one.told(0).replace(f"{NOISE_UNKNOWN}, ", "")
            if told.rsplit(" ", 1)[-1] not in ("better", "worse"):
                return verdict(told)
            rest = f", {NOISE_UNKNOWN}" if one.verdicts[0] == NOISE_UNKNOWN else ""
            return verdict(one.verdicts[0], f"{told} than the reference{rest}")
    return ""


def _shown(comparison: Comparison | None, name: str) -> float | None:
    """The reference's number, where it may stand beside ours."""
    for one in comparison.metrics if comparison else ():
        if one.name == name and one.verdicts != ("not compared",):
            return one.values[0]
    return None


def _against_what(facts: ModelFacts) -> str:
    if facts.against is None:
        return _card(
            "Against what",
            "<p>No run is set as the reference. <code>sifirdan reference</code> makes this one the run that"
            " later pages compare with.</p>",
        )
    name = facts.against.runs[0].name
    if is_reference(facts):
        return _card(
            "Against what",
            f"<p>This run is the reference itself, <b>{escaped(name)}</b>: the same parameters, data and"
            " numbers. Later runs are compared with it.</p>",
        )
    same = "".join(f'<p class="soft">{escaped(one)}</p>' for one in facts.against.same)
    refusals = "".join(f'<p class="refusal">{escaped(one)}</p>' for one in facts.against.refusals)
    compared = [one for one in facts.against.metrics if one.verdicts != ("not compared",)]
    if not compared and not refusals:
        refusals = "<p>It holds no number that this model has as well.</p>"
    rows = "".join(_standing(one) for one in compared)
    return _card(
        "Against what",
        f"<p>The reference run: <b>{escaped(name)}</b></p>{same}{refusals}{rows}{_noise_words(facts)}",
    )


def _standing(one: MetricRow) -> str:
    before, after = one.values
    said = metric_values(one.name, one.values)
    change = f" ({metric_difference(one.name, before, after)})" if before != after else ""
    return (
        f'<div class="stand"><span>{escaped(one.label)}</span>{row_verdict(one)}'
        f'<span class="num">{said[0]} → <b>{said[1]}</b>'
        f"{change}</span></div>"
    )


def is_reference(facts: ModelFacts) -> bool:
    """Whether this run is the reference itself, so that nothing is to be compared."""
    found = facts.against
    if found is None or found.params or found.data or found.refusals:
        return False
    return bool(found.metrics) and {row.verdicts for row in found.metrics} == {("equal",)}


def noise_words(rows: Sequence[MetricRow]) -> str:
    """The hint for rows whose noise is not known; empty where there is none."""
    command = noise_command(rows)
    hint = noise_hint(rows, "\0").split("\0")
    return f'<p class="soft">{f"<code>{command}</code>".join(hint)}.</p>' if command else ""


def _noise_words(facts: ModelFacts) -> str:
    hint = noise_words(facts.against.metrics if facts.against else ())
    if not facts.noise or not facts.noise["sigma"]:
        return hint
    seeds, tokens = len(facts.noise["seeds"]), facts.noise["params"].get("train.tokens")
    where = f" of a run with {large(tokens)} tokens" if tokens else ""
    said = f"Noise: {seeds} seeds{where}. A difference that they explain (95 %) is noise."
    return f'<p class="soft">{said}</p>{hint}'


def _what_changed(facts: ModelFacts) -> str:
    if facts.against is None or is_reference(facts):
        return ""
    changes = [
        f"<li><code>{escaped(key)}</code> {escaped(setting(old))} → <b>{escaped(setting(new))}</b></li>"
        for key, (old, new) in facts.against.params.items()
    ]
    folders = [escaped(folder) for folder in facts.against.data]
    if not changes and not folders:
        return _card(
            "What changed", "<p>Nothing: the same parameters, the same data.</p>", "card changed"
        )
    shown = "".join(changes[:MOST_CHANGES])
    more = len(changes) - MOST_CHANGES
    return _card(
        "What changed",
        (f"<ul>{shown}</ul>" if shown else "<p>No parameter.</p>")
        + (f'<p><a href="#changes">and {more} more</a></p>' if more > 0 else "")
        + (f"<p>Other content: {', '.join(folders)}</p>" if folders else "<p>The same data.</p>"),
        "card changed",
    )


def _tiles(facts: ModelFacts) -> list[tuple[str, str]]:
    scores = facts.scores
    pairs, known = scores.get("minimal_pairs", {}), scores.get("questions", {}).get("known", {})
    found = []
    if "own_question_share" in known:
        found.append(
            (percent(known["own_question_share"]), "tell their own question's answer (chance 50 %)")
        )
    if "stopped_share" in known:
        found.append((percent(known["stopped_share"]), "of answers end by themselves"))
    if "accuracy" in pairs:
        found.append((percent(pairs["accuracy"]), "of minimal pairs right (chance 50 %)"))
    for split, label in (("ood", "bits per byte out of domain"), ("test", "bits per byte on test")):
        if "bits_per_byte" in scores.get(split, {}):
            found.append((digits(scores[split]["bits_per_byte"]), label))
    written = scores.get("samples", {})
    if "known_word_share" in written:
        found.append(
            (
                percent(written["known_word_share"]),
                "of the words it writes occur in its training text",
            )
        )
    if "copied_share" in written:
        found.append((percent(written["copied_share"]), "of samples copy over 50 characters"))
    return found[:5]


def _card(title: str, content: str, look: str = "card") -> str:
    return f'<div class="{look}"><h2>{escaped(title)}</h2>{content}</div>'
