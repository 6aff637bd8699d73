"""The part of a model's page about chat: how it answers questions that it was not tuned on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sifirdan.compare.measures import ANSWERS
from sifirdan.pages.charts import Point, point_rows
from sifirdan.pages.figures import bar, details, digits, escaped, percent, row, sample_text, table
from sifirdan.pages.first_screen import metric_value

SETS = {
    "known": "words it was pretrained on, never asked about in tuning",
    "unseen": "words whose entries it has never seen",
    "handwritten": "short talk, in wordings that tuning did not show",
}
SHOWN = 24  # answers beside the dictionary's


def chat_section(
    scores: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], max_forgetting: float | None
) -> Iterator[str]:
    """Empty for a model that is not asked."""
    yield from _forgetting(scores.get("forgetting", {}), max_forgetting)
    groups = {name: one for name, one in scores.get("questions", {}).items() if one}
    if groups:
        yield (
            "<p>Questions: "
            + "; ".join(
                f"<b>{escaped(name)}</b>, {escaped(SETS.get(name, 'questions'))}" for name in groups
            )
            + ".</p>"
        )
        yield from _checks(groups)
        yield from _types(groups)
    talk = [one for one in samples if one.get("question") and one.get("expected", "-") == "-"]
    asked = [one for one in samples if one.get("question") and one.get("expected", "-") != "-"]
    if talk:
        said = "".join(
            f'<p class="asked" lang="tr">{escaped(one["question"])}</p>'
            f'<p class="said" lang="tr">{escaped(one["text"])}</p>'
            for one in talk
        )
        yield f'<h3>A talk, unedited</h3><div class="talk">{said}</div>'
    if asked:
        yield "<h3>Answers beside the dictionary's, unedited</h3>"
        shown = asked[:SHOWN]
        yield f'<div class="samples">{"".join(map(_answer, shown))}</div>'
        yield f'<p class="from">The first {len(shown)} of {len(asked)} in the order drawn; all are in samples.jsonl.</p>'


def _answer(one: Mapping[str, Any]) -> str:
    return (
        f'<article><p class="from" lang="tr">{escaped(one["question"])}</p>{sample_text(one["text"])}'
        f'<p class="from">dictionary: <span lang="tr">{escaped(one["expected"])}</span></p></article>'
    )


def _forgetting(found: Mapping[str, Any], limit: float | None) -> Iterator[str]:
    """Bits per byte on the base corpus before and after tuning."""
    before, after = found.get("before"), found.get("after")
    if before is None or after is None:
        return
    yield "<h3>What tuning made it forget</h3>"
    most = max(before, after)
    for name, value, look in (("before tuning", before, "plain"), ("after tuning", after, "")):
        yield row(
            name, f"{value:.3f}", bar(value, most, f"{name}: {value:.3f} bits per byte", look)
        )
    rise = after - before
    said = f"Bits per byte on the held-out text of the base corpus {'rose' if rise > 0 else 'fell'} by {abs(rise):.3f}"
    if found.get("above_limit") or (limit is not None and rise > limit):
        allowed = "is" if limit is None else f"the {digits(limit)} that are"
        yield f'<p class="refusal">{said}, more than {allowed} allowed: it has forgotten much.</p>'
    else:
        yield f"<p>{said}{f'; up to {digits(limit)} is allowed' if limit is not None else ''}.</p>"


def _checks(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The numbers that a set has for itself: those of the main type, what a word means."""
    groups = {n: one for n, one in groups.items() if any(isinstance(v, int | float) for v in one.values())}  # fmt: skip
    if not groups:
        return
    keys = dict.fromkeys(k for one in groups.values() for k, v in one.items() if isinstance(v, int | float))  # fmt: skip
    ordered = [key for key in ANSWERS if key in keys] + [key for key in keys if key not in ANSWERS]
    rows = [
        [
            ANSWERS.get(key, _words(key)),
            *(metric_value(key, one.get(key)) for one in groups.values()),
        ]
        for key in ordered
    ]
    yield table(["check", *groups], rows, wide=(0,), numbers=range(1, len(groups) + 1))


def _types(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Nested numbers: by type of question, mostly."""
    for key in dict.fromkeys(
        k for one in groups.values() for k, v in one.items() if isinstance(v, Mapping)
    ):
        parts = {name: one[key] for name, one in groups.items() if one.get(key)}
        deep = all(isinstance(v, Mapping) for part in parts.values() for v in part.values())
        title = "By other types of question" if key == "types" else _words(key)
        yield f"<h3>{escaped(title)}</h3>"
        rows = {
            kind: {name: part[kind] for name, part in parts.items() if kind in part}
            for part in parts.values()
            for kind in part
        }
        if not deep:
            yield table(
                ["", *parts],
                [
                    [_words(kind), *(metric_value(kind, by.get(name)) for name in parts)]
                    for kind, by in rows.items()
                ],
                numbers=range(1, len(parts) + 1),
            )
            continue
        yield _type_points(rows, list(parts))
        for name, part in parts.items():
            columns = list(dict.fromkeys(column for value in part.values() for column in value))
            yield details(
                table(
                    ["type", *(ANSWERS.get(column, _words(column)) for column in columns)],
                    [
                        [_words(kind), *(metric_value(c, value.get(c)) for c in columns)]
                        for kind, value in part.items()
                    ],
                    numbers=range(1, len(columns) + 1),
                ),
                f"the numbers, {name}",
            )


def _type_points(rows: Mapping[str, Mapping[str, Mapping[str, Any]]], names: list[str]) -> str:
    """One share for each type of question and each set: own_question_share, where there is one."""
    columns = list(dict.fromkeys(c for by in rows.values() for value in by.values() for c in value))
    shares = [column for column in columns if column.endswith(("_share", "accuracy"))]
    if not shares:
        return ""
    best = "own_question_share" if "own_question_share" in shares else shares[0]
    key = "".join(
        f'<span><svg class="key" aria-hidden="true"><circle class="f{n}" cx="50%" cy="50%" r="5"/></svg>{escaped(name)}</span>'
        for n, name in enumerate(names)
    )
    drawn = [
        (
            _words(kind),
            [
                Point(100 * by[name][best], look=n)
                for n, name in enumerate(names)
                if best in by.get(name, {})
            ],
            " / ".join(percent(by[name][best]) for name in names if best in by.get(name, {})),
        )
        for kind, by in rows.items()
    ]
    mark = 50 if best == "own_question_share" else None
    return (
        f'<p class="from">{escaped(ANSWERS.get(best, _words(best)))}</p><p class="legend">{key}</p>'
        + point_rows(drawn, low=0, high=100, unit="of answers", mark=mark)
    )


def _words(name: str) -> str:
    return name.replace("_", " ")
