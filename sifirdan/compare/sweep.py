"""What a sweep tries, and which of its settings are really better: words of the command line into
variants of params.yaml, and the arithmetic over their seeds. The runs are in `sweep_runs.py`.
"""

import difflib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from sifirdan.compare.measures import flat, plain
from sifirdan.compare.noise import t_quantile
from sifirdan.config import PARAMS_FILE, read_values
from sifirdan.errors import ConfigError
from sifirdan.text_table import aligned

BASELINE = "as params.yaml has it"
SECTIONS = ("train_tokenizer", "tokenize_corpus", "train")  # whose keys may be varied
_SET_BY_US = ("seed", "tokens", "steps", "epochs", "max_minutes", "val_tokens", "val_every_tokens")
BETTER, WORSE, WITHIN_NOISE, FAILED = "better", "worse", "within noise", "failed"


@dataclass(frozen=True)
class Variant:
    """A setting that is tried: values by dotted key; none for params.yaml as it is."""

    changes: Mapping[str, Any]

    @property
    def name(self) -> str:
        return " ".join(f"{key}={_said(value)}" for key, value in self.changes.items()) or BASELINE

    def remakes_tokens(self) -> bool:
        """Whether it needs a tokenizer or token shards of its own."""
        return any(key.split(".")[0] != "train" for key in self.changes)

    def applied(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """These sections of params with the changes in them."""
        changed = {section: dict(values) for section, values in params.items()}
        for key, value in self.changes.items():
            *path, last = key.split(".")
            place: dict[str, Any] = changed
            for part in path:
                place[part] = dict(place[part])
                place = place[part]
            place[last] = value
        return changed


def variants(words: Sequence[str], params: Mapping[str, Any]) -> list[Variant]:
    """params.yaml as it is, and what each word adds: `key=a,b` one variant for each value,
    `"key=a,b other=c,d"` one for each combination. ConfigError for what is no key or no value."""
    if not words:
        raise ConfigError(
            "nothing to vary", expected="KEY=VALUE,VALUE…",
            todo="for example: sifirdan sweep train_tokenizer.vocab_size=4096,8192,16384",
        )  # fmt: skip
    found = [Variant({})]
    for word in words:
        choices = [_choices(part, params) for part in word.split()]
        for values in itertools.product(*(tried for _, tried in choices)):
            keys = [key for key, _ in choices]
            if len(set(keys)) < len(keys):
                raise ConfigError(f"{word}: a key is named twice", expected="each once")
            pairs = zip(keys, values, strict=True)
            changes = {key: value for key, value in pairs if value != _look_up(params, key)}
            if changes and (variant := Variant(changes)) not in found:
                found.append(variant)
    if len(found) == 1:
        raise ConfigError(
            f"{' '.join(words)}: that is what {PARAMS_FILE} has already",
            expected="another value to compare it with",
        )
    return found


def _choices(part: str, params: Mapping[str, Any]) -> tuple[str, list[Any]]:
    key, equals, text = part.partition("=")
    if not equals or not text:
        raise ConfigError(f"{part!r} names no value", expected="KEY=VALUE,VALUE…")
    if key.split(".")[0] in SECTIONS and key.split(".")[-1] in _SET_BY_US:
        raise ConfigError(
            f"{key} is set by the sweep itself",
            expected="another key",
            todo="see sifirdan sweep --help for --seeds, --minutes, --epochs",
        )
    _look_up(params, key)
    values = read_values(text, key)
    if not values or any(isinstance(value, dict | list) for value in values):
        raise ConfigError(f"{part!r}: no list of values", expected="numbers, words, true, false, null")  # fmt: skip
    return key, values


def _look_up(params: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key now; ConfigError names near ones where there is none."""
    known = dict(flat(params))
    if key in known:
        return known[key]
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    raise ConfigError(
        f"{key!r} is no setting that can be varied",
        expected=f"a key of {', '.join(SECTIONS)} in {PARAMS_FILE}",
        todo=f"did you mean {' or '.join(near)}?" if near else "",
    )


def _said(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Row:
    """A variant with what its seeds gave: bits per byte of val at the end, the curve of their mean over
    minutes of training, and the size of one run."""

    variant: Variant
    values: tuple[float, ...]
    curve: tuple[tuple[float, float], ...]
    tokens: int
    epochs: float
    minutes: float
    parameters: int
    failure: str = ""

    @property
    def mean(self) -> float:
        return mean(self.values) if self.values else math.nan


@dataclass(frozen=True)
class Standing:
    """How far a row is from the first one, from where on that is more than the seeds, and the word."""

    difference: float
    limit: float
    verdict: str


def standing(row: Row, baseline: Row) -> Standing:
    """Two means of n seeds each differ by more than chance, at 95 %, from t · s · sqrt(2 / n) on, where s
    is the standard deviation of both together and t Student's quantile of 2 (n - 1) degrees of freedom."""
    if row.failure:
        return Standing(math.nan, math.nan, FAILED)
    seeds = len(row.values)
    assert seeds == len(baseline.values) >= 2, (seeds, baseline)
    variance = (stdev(row.values) ** 2 + stdev(baseline.values) ** 2) / 2
    limit = t_quantile(2 * (seeds - 1)) * math.sqrt(2 * variance / seeds)
    difference = row.mean - baseline.mean
    beyond = abs(difference) > limit
    word = (BETTER if difference < 0 else WORSE) if beyond else WITHIN_NOISE
    return Standing(difference, limit, word)


HEAD = ("setting", "bits per byte", "difference", "noise", "verdict", "minutes", "tokens", "parameters")  # fmt: skip


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table: the baseline first, the others from the best to the worst, failed ones last."""
    baseline, *others = rows
    others.sort(key=lambda row: (bool(row.failure), row.mean if row.values else 0.0))
    drawn = []
    for row in (baseline, *others):
        if row.failure:
            drawn.append([row.variant.name, *["–"] * 3, f"{FAILED}: {row.failure}", *["–"] * 3])
            continue
        found = standing(row, baseline)
        told = ["", "", ""]
        if row is not baseline:
            told = [f"{found.difference:+.4f}", f"{found.limit:.4f}", found.verdict]
        size = [f"{row.minutes:.1f}", f"{row.tokens:,}", f"{row.parameters:,}"]
        spread = f"{row.mean:.4f} ± {plain(stdev(row.values), 2)}"
        drawn.append([row.variant.name, spread, *told, *size])
    return drawn


def lines(rows: Sequence[Row]) -> list[str]:
    """The table for a terminal."""
    texts = [HEAD.index(title) for title in ("setting", "bits per byte", "verdict")]
    return list(aligned([HEAD, *cells(rows)], left=texts))


def record(rows: Sequence[Row], seeds: Sequence[int]) -> dict[str, Any]:
    """The same for machines."""
    return {"seeds": list(seeds), "rows": [_facts(row, rows[0]) for row in rows]}


def _facts(row: Row, baseline: Row) -> dict[str, Any]:
    names = ("tokens", "epochs", "minutes", "parameters")
    facts = {"changes": dict(row.variant.changes)} | {name: getattr(row, name) for name in names}
    if row.failure:
        return facts | {"failure": row.failure}
    found = standing(row, baseline)
    return facts | {
        "val_bits_per_byte": list(row.values),
        "difference": found.difference,
        "noise": found.limit,
        "verdict": found.verdict if row is not baseline else "",
        "curve": [list(point) for point in row.curve],
    }
