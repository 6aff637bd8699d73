"""The first page of a run: its headline numbers, its card, the way to every report, all metrics."""

from collections.abc import Mapping
from typing import Any

from sifirdan.compare.measures import flat
from sifirdan.pages.figures import (
    details,
    digits,
    escaped,
    large,
    page_frame,
    percent,
    table,
    tiles,
)


def index_page(
    card: str, links: Mapping[str, str], metrics: Mapping[str, Mapping[str, Any]]
) -> str:
    """`card` is the summary as plain text, `links` are labels by relative address, in the order shown,
    `metrics` the content of each stage's metrics file."""
    ways = "".join(
        f'<a href="{escaped(target)}"><b>{escaped(label)}</b><span class="soft">{escaped(_page_name(target))}</span></a>'
        for target, label in links.items()
    )
    tables = "".join(
        details(
            table(
                ["metric", "value"],
                [[key, value] for key, value in flat(one)],
                numbers=(1,),
            ),
            stage,
        )
        for stage, one in metrics.items()
    )
    return page_frame(
        "sifirdan: report",
        '<p class="eyebrow">sifirdan · report on a run</p><h1>Your model</h1>'
        '<p class="lead">Each HTML page is one file and opens without a network.</p>'
        f"{tiles(_headlines(metrics))}"
        + (f'<h2>Pages</h2><div class="ways">{ways}</div>' if ways else "")
        + f'<h2>Card</h2><pre class="summary">{escaped(card.strip(chr(10)))}</pre>'
        + (f"<h2>Every number, by stage</h2>{tables}" if tables else ""),
    )


def _page_name(target: str) -> str:
    """'../evaluate/base/report.md' -> 'evaluate/base/report.md'."""
    return target.removeprefix("../")


def _headlines(metrics: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    numbers = {f"{stage}.{key}": v for stage, one in metrics.items() for key, v in flat(one)}
    ends = [numbers.get(f"evaluate_base.val.{end}") for end in ("low", "high")]
    spread = "" if None in ends else f" (95 % interval {digits(ends[0])} to {digits(ends[1])})"
    wanted = (
        ("evaluate_base.val.bits_per_byte", digits, f"bits per byte of held-out text, models/base{spread}"),
        ("evaluate_base.minimal_pairs.accuracy", percent, "of minimal pairs right (chance 50 %)"),
        ("evaluate_chat.questions.known.own_question_share", percent, "tell their own question's answer, models/chat"),
        ("train.parameters", large, "parameters"),
        ("train.tokens", large, "tokens trained on"),
        ("clean.splits.train.bytes", large, "bytes of training text"),
    )  # fmt: skip
    return [(write(numbers[key]), label) for key, write, label in wanted if key in numbers]
