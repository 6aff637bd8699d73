"""Two or more runs side by side: what changed in parameters and data, and what that did to the numbers.

A run is a record of parameters, metrics, curves and hashes, wherever it was kept: in the folder, in Git,
in MLflow. Numbers are compared only where that means something (see `Comparison.refusals`), and a difference
is called one only beyond the noise between seeds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sifirdan import json_files, track_record
from sifirdan.compare.measures import Better, Measure, find, flat, number, numbers, order
from sifirdan.compare.noise import real_difference


@dataclass(frozen=True)
class RunRecord:
    """One run. `params` and `hashes` are flat, by dotted name and by folder; `metrics` is the content of
    each stage's metrics file, `curves` the points of `train` and `finetune`."""

    name: str
    params: Mapping[str, Any]
    metrics: Mapping[str, Mapping[str, Any]]
    curves: Mapping[str, Sequence[Mapping[str, float]]]
    hashes: Mapping[str, str]
    samples: Sequence[str]


@dataclass(frozen=True)
class MetricRow:
    """A number of every run (None: it has none), and for each run but the first a verdict against the
    first: "better", "worse", "noise unknown", "within noise", "equal", "changed" or "not compared"."""

    name: str
    label: str
    values: tuple[float | None, ...]
    lower_is_better: bool
    sigma: float | None
    verdicts: tuple[str, ...]

    def told(self, place: int) -> str:
        """The verdict on the run at `place` after the first, in words: where the noise is not known, with
        the direction of the difference."""
        word = self.verdicts[place]
        first, other = self.values[0], self.values[place + 1]
        if word != NOISE_UNKNOWN or first is None or other is None:
            return word
        return f"{word}, looks {'better' if (other < first) == self.lower_is_better else 'worse'}"


@dataclass(frozen=True)
class Comparison:
    """`params` and `data` hold what differs alone, a value a run; `refusals` are whole sentences that
    say which numbers are not compared and why, `same` such that say which runs hold one model."""

    runs: tuple[RunRecord, ...]
    params: Mapping[str, tuple[Any, ...]]
    data: Mapping[str, tuple[str | None, ...]]
    metrics: tuple[MetricRow, ...]
    refusals: tuple[str, ...]
    same: tuple[str, ...] = ()


# How the folders of a run are called; the order is the pipeline's.
FOLDERS = {
    "data/raw": "the sources as they came in",
    "data/corpus": "the cleaned text and its splits",
    "models/tokenizer": "the tokenizer",
    "data/tokens": "the token shards",
    "models/base": "the base model",
    "data/chat": "the instruction data",
    "models/chat": "the chat model",
}
NOISE_UNKNOWN = "noise unknown"
MODELS = {"models/base": "base model", "models/chat": "chat model"}
BY_DVC = ".dvc"  # `data/raw.dvc` in RunRecord.hashes is DVC's hash of data/raw, `data/raw` its manifest's
MISSING = "(not there)"
_EQUAL = 1e-12  # relative; the same number through another file format
_STORED = re.compile(r"\d+ characters, in params/([0-9a-f]{12})\.txt")  # a long value in MLflow


def compare(runs: Sequence[RunRecord], noise: Mapping[str, Any] | None = None) -> Comparison:
    """Every run against the first. `noise` is the content of reference/noise.json.

    A difference is "within noise" up to `noise.real_difference`; without a sigma (MetricRow.sigma is
    None) nobody knows what it is worth, but for numbers that no seed moves: "noise unknown". A sigma of 0
    counts as none: some seeds agreed by chance, as shares of few items do."""
    assert runs, "nothing to compare"
    refused: dict[tuple[int, str], dict[str, None]] = {}
    values = [numbers(run.metrics) for run in runs]
    rows = []
    for name in sorted({name for one in values for name in one}, key=order):
        measure = find(name)
        if measure is None:
            continue
        sigma = (noise["sigma"].get(name) if noise else None) or None
        limit = real_difference(sigma, len(noise["seeds"])) if noise and sigma else None
        limit = 0.0 if measure.exact else limit
        found = tuple(one.get(name) for one in values)
        verdicts = []
        for index, value in enumerate(found[1:], 1):
            causes = _causes(runs[0], runs[index], name, measure, found[0], value)
            for kind, detail in causes:
                refused.setdefault((index, kind), {})[detail] = None
            verdicts.append(_verdict(found[0], value, measure.better, limit, causes))
        lower = measure.better != "higher"
        rows.append(MetricRow(name, measure.label, found, lower, sigma, tuple(verdicts)))
    sentences = [
        _sentence(kind, runs[0].name, runs[index].name, [*details])
        for (index, kind), details in refused.items()
    ]
    return Comparison(
        tuple(runs),
        _changed_params(runs),
        _changed_data(runs),
        tuple(rows),
        tuple(sentences),
        _same_models(runs),
    )


def noise_command(rows: Sequence[MetricRow]) -> str:
    """The command that measures the noise which these rows lack; "" where none lacks it."""
    lacking = {row.name.split(".")[0] for row in rows if NOISE_UNKNOWN in row.verdicts}
    if not lacking:
        return ""
    return "sifirdan noise --chat" if lacking & {"evaluate_chat", "finetune"} else "sifirdan noise"


def noise_hint(rows: Sequence[MetricRow], noise: str) -> str:
    """What "noise unknown" means and what to do, around `noise`, the command as it is to be shown."""
    measured = any(row.sigma is not None for row in rows)
    more = " (with more --seeds, where it found none)" if measured else ""
    return (
        f"{NOISE_UNKNOWN}: the difference may be chance, the direction is only what it looks like; "
        f"{noise} measures how much the seed alone moves these numbers{more}"
    )


def _verdict(
    first: float | None,
    other: float | None,
    better: Better,
    limit: float | None,
    causes: Sequence[Any],
) -> str:
    if first is None or other is None or causes:
        return "not compared"
    if first == other or math.isclose(first, other, rel_tol=_EQUAL):
        return "equal"
    if limit is not None and abs(first - other) <= limit:
        return "within noise"
    if not better:
        return "changed"
    if limit is None:
        return NOISE_UNKNOWN
    return "better" if (other < first) == (better == "lower") else "worse"


def _causes(
    first: RunRecord,
    other: RunRecord,
    name: str,
    measure: Measure,
    value: float | None,
    other_value: float | None,
) -> list[tuple[str, str]]:
    """Why the two numbers that these runs have under a name are not compared: (kind, detail) each."""
    if value is None or other_value is None:  # the table shows which has none
        return []
    if math.isnan(value) or math.isnan(other_value):
        return [("nan", measure.label)]
    stage = name.split(".")[0]
    checks = {
        "text": _text_cause,
        "windows": _windows_cause,
        "tokenizer": _tokenizer_cause,
        "folder": _folder_cause,
        "params": _params_cause,
        "items": _items_cause,
    }
    found = []
    for need in measure.needs:
        kind, _, what = need.partition(":")
        cause = checks[kind](first, other, stage, what)
        if cause:
            found.append(cause)
    return found


def _text_cause(
    first: RunRecord, other: RunRecord, stage: str, what: str
) -> tuple[str, str] | None:
    """`what` is the place of a split or set in the metrics, which holds the hash of its documents as
    `text`. Metrics of earlier releases lack it: then equal folders prove equal text."""
    hashes = [_recorded(run, stage, f"{what}.text") for run in (first, other)]
    questions = what.startswith("questions.")
    shown = what.removeprefix("questions.")
    if all(hashes):
        if hashes[0] == hashes[1]:
            return None
        detail = f"{shown}: {_short(hashes[0])} and {_short(hashes[1])}"
        return ("questions" if questions else "text"), detail
    folders = ("data/chat",) if questions else ("data/corpus", "data/tokens")
    pairs = [pair for folder in folders if (pair := _folder_hashes(first, other, folder))]
    if any(one == two for one, two in pairs):
        return None
    return ("unknown questions" if questions else "unknown text"), shown


def _windows_cause(
    first: RunRecord, other: RunRecord, stage: str, _: str
) -> tuple[str, str] | None:
    """Fewer tokens at once, or a longer way from window to window, give higher figures of one model."""
    differing = []
    for key in ("window", "stride"):
        values = [number(run.metrics.get(stage, {}).get(key)) for run in (first, other)]
        if values[0] != values[1]:
            told = ["unknown" if value is None else f"{value:g}" for value in values]
            differing.append(f"{key} {told[0]} and {told[1]}")
    return ("windows", ", ".join(differing)) if differing else None


def _tokenizer_cause(
    first: RunRecord, other: RunRecord, stage: str, _: str
) -> tuple[str, str] | None:
    hashes = [_recorded(run, stage, "tokenizer") for run in (first, other)]
    pair = (hashes[0], hashes[1]) if all(hashes) else None
    pair = pair or _folder_hashes(first, other, "models/tokenizer")
    if pair is None:
        return "unknown tokenizer", ""
    same = pair[0] == pair[1]
    return None if same else ("tokenizer", f"{_short(pair[0])} and {_short(pair[1])}")


def _folder_cause(first: RunRecord, other: RunRecord, _: str, what: str) -> tuple[str, str] | None:
    pair = _folder_hashes(first, other, what)
    if pair and pair[0] == pair[1]:
        return None
    return (
        "folder",
        f"{what} ({_short(pair[0])} and {_short(pair[1])})" if pair else f"{what} (not recorded)",
    )


def _params_cause(first: RunRecord, other: RunRecord, _: str, what: str) -> tuple[str, str] | None:
    values = first.params.get(what, MISSING), other.params.get(what, MISSING)
    if _same_value(*values):
        return None
    return "settings", f"{what} ({values[0]} and {values[1]})"


def _items_cause(
    first: RunRecord, other: RunRecord, stage: str, what: str
) -> tuple[str, str] | None:
    """`*` in `what` stands for every name at that place."""
    pattern = re.compile(re.escape(what).replace(r"\*", ".+"))
    counts = [
        {name: count for name, count in flat(run.metrics.get(stage, {})) if pattern.fullmatch(name)}
        for run in (first, other)
    ]
    if counts[0] == counts[1]:
        return None
    differing = sorted(
        name for name in {**counts[0], **counts[1]} if counts[0].get(name) != counts[1].get(name)
    )
    return (
        "items",
        f"{differing[0]} ({counts[0].get(differing[0], 0)} and {counts[1].get(differing[0], 0)})",
    )


def _recorded(run: RunRecord, stage: str, what: str) -> str | None:
    """A hash in the metrics: of the stage itself, else of the evaluation of the base model."""
    for place in dict.fromkeys((stage, "evaluate_base", "evaluate_chat")):
        value = dict(flat(run.metrics.get(place, {}))).get(what)
        if isinstance(value, str) and value:
            return value
    return None


def _folder_hashes(first: RunRecord, other: RunRecord, folder: str) -> tuple[str, str] | None:
    """The hashes of a folder in two runs, of one kind; None where they have none in common."""
    for key in (folder, folder + BY_DVC):
        one, two = first.hashes.get(key), other.hashes.get(key)
        if one and two:
            return one, two
    return None


def _short(hash_: str | None) -> str:
    return f"{(hash_ or '?')[:7]}…"


def _sentence(kind: str, first: str, other: str, details: list[str]) -> str:
    """Why numbers of two runs are not compared, and what to do, in one sentence or two."""
    runs, listed = f"{first} and {other}", "; ".join(details)
    score = "or score both models on one text: sifirdan score A B."
    again = (
        "A run in MLflow holds the hashes only if this release tracked it: name its Git commit instead, "
        "or measure again (dvc repro -f -s evaluate_base evaluate_chat, then dvc repro)"
    )
    sentences = {
        "text": f"{runs} were measured on different text ({listed}): their bits per byte, perplexities and "
        f"all else measured on it cannot be compared. Keep the data and clean.* equal, {score}",
        "unknown text": f"{runs} do not show that they were measured on the same text of {', '.join(details)}: "
        "the hash of the text is missing in one of them, and data/corpus is not known to be equal, so "
        f"that nothing measured on it is compared. {again}, {score}",
        "windows": f"{runs} were measured with {listed}: bits per byte, perplexities and all else scored in "
        "these windows are not compared, one model has other figures with each. Set evaluate.stride (and "
        "train.context_length) equal and run dvc repro, or score both models alike: sifirdan score A B "
        "--window W --stride S.",
        "tokenizer": f"{runs} have different tokenizers ({listed}): token perplexity, nats and shares a token "
        "count other tokens and cannot be compared. Compare bits per byte or word perplexity, which can.",
        "unknown tokenizer": f"{runs} do not show that they have the same tokenizer, so that token perplexity, "
        "nats and shares a token are not compared. Compare bits per byte or word perplexity.",
        "questions": f"{runs} were asked different questions ({listed}): their answers cannot be compared. "
        "Keep the data, prepare_chat.* and evaluate.num_questions equal.",
        "unknown questions": f"{runs} do not show that they were asked the same questions ({listed}), so "
        f"that their answers are not compared. {again}, or keep data/chat equal.",
        "folder": f"{runs} differ in {listed}, which some numbers are counted against: those are not "
        "compared.",
        "settings": f"{runs} were measured with other settings ({listed}): what depends on them is not "
        "compared. Set them equal and run evaluate again.",
        "nan": f"{runs} have no number for {listed} in one of them, but NaN, which compares with nothing: "
        "look at that run's curve and log.",
        "items": f"{runs} were tested on different items ({listed}): those scores are not compared. Run "
        "evaluate for both with one release.",
    }
    return sentences[kind]


def _changed_params(runs: Sequence[RunRecord]) -> dict[str, tuple[Any, ...]]:
    """What differs. Keys that a run lacks, as those of another release do, stand after the others, and
    the section `runtime`, which is about the machine, last."""
    names = {name for run in runs for name in run.params}
    found = {name: tuple(run.params.get(name, MISSING) for run in runs) for name in names}
    changed = {
        name: values
        for name, values in found.items()
        if not all(_same_value(values[0], value) for value in values[1:])
    }
    places = sorted(changed, key=lambda name: (is_runtime(name), MISSING in changed[name], name))
    return {name: changed[name] for name in places}


def _same_models(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Runs that hold one model, by the hash of its manifest: what differs there is how it was measured."""
    said = []
    for folder, what in MODELS.items():
        for run in runs[1:]:
            pair = _folder_hashes(runs[0], run, folder)
            if pair and pair[0] == pair[1]:
                both = f"{runs[0].name} and {run.name}"
                said.append(f"{both} hold the same {what} ({folder} {_short(pair[0])}).")
    return tuple(said)


def sample_texts(text: str | bytes, name: str) -> tuple[str, ...]:
    """The samples of a samples.jsonl, called `name` in messages, each with its prompt before it."""
    rows = json_files.parse_lines(text, name, todo="dvc repro, which restores it, or git checkout")
    return tuple(f"{row.get('prompt', '')}{row['text']}" for row in rows if "text" in row)


def is_runtime(name: str) -> bool:
    """Whether a parameter is about the machine alone, and no change of what is made."""
    return name.startswith("runtime.")


def _same_value(first: Any, other: Any) -> bool:
    """MLflow keeps every value as text, and a long one as its hash."""
    texts = [track_record.param_text(value) for value in (first, other)]
    for one, two in (texts, reversed(texts)):
        if match := _STORED.fullmatch(one):
            return two == one or track_record.digest_of(two) == match[1]
    if texts[0] == texts[1]:
        return True
    try:
        return float(texts[0]) == float(texts[1])
    except ValueError:
        return False


def _changed_data(runs: Sequence[RunRecord]) -> dict[str, tuple[str | None, ...]]:
    """The folders that are known to differ somewhere, by what they are, with their hashes."""
    changed = {}
    for folder, words in FOLDERS.items():
        by_kind = [tuple(run.hashes.get(key) for run in runs) for key in (folder, folder + BY_DVC)]
        hashes = max(by_kind, key=lambda one: len([*filter(None, one)]))  # one kind alone compares
        if len({*filter(None, hashes)}) > 1:
            changed[f"{words} ({folder})"] = tuple(hash_ and hash_[:12] for hash_ in hashes)
    return changed
