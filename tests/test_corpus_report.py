"""The page about a corpus: its numbers add up, it opens offline, and no text can break it."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from html_page import Page, check_page
from tiny_corpus import STEPS, STORY, findings

from sifirdan.corpus.card import Step
from sifirdan.corpus.corpus_report import PAGE, flow, write_report
from sifirdan.corpus.examples import SAMPLE_CHARS, Example, Samples


def report(folder: Path, **changes: object) -> str:
    write_report(folder, findings(folder, **changes))
    return (folder / PAGE).read_text(encoding="utf-8")


def test_the_flow_adds_up(tmp_path: Path) -> None:
    found = flow(findings(tmp_path).summary, STEPS)
    came = len(STORY)
    for step in found:
        assert step.left == came - sum(step.removed.values())
        verdicts = [told for told in STORY if told.verdict in step.removed]
        assert sum(step.removed.values()) == len(verdicts)
        assert step.removed_chars == sum(len(told.text) for told in verdicts)
        came = step.left
    kept = [told for told in STORY if told.verdict in ("train", "val", "test", "ood")]
    assert came == len(kept)
    assert [step.name for step in found] == [step.name for step in STEPS if step.reasons]


def test_a_reason_that_no_step_names_is_shown_all_the_same(tmp_path: Path) -> None:
    some = [step for step in STEPS if step.name != "length"]
    found = flow(findings(tmp_path).summary, some)
    assert found[-1].name == "too_short" and found[-1].removed == {"too_short": 1}
    with pytest.raises(AssertionError):  # a reason counted twice
        flow(findings(tmp_path).summary, [*STEPS, Step("again", "", {}, ("too_short",))])


def test_every_number_of_the_ledger_is_on_the_page(tmp_path: Path) -> None:
    text = " ".join(Page(report(tmp_path)).text)
    for told in STORY:
        assert told.source in text
        if told.verdict not in ("train", "val", "test", "ood"):
            assert told.verdict in text
    for words in ("asciified", "phone", "az", "GPL-3.0", "the copy that stayed", "33 characters"):
        assert words in text
    for step in STEPS:
        assert step.name in text and step.what in text


def test_the_page_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    check_page(report(tmp_path))


NASTY = (
    "</p><script>alert(1)</script> <img src=x onerror=y> & \"x' \x00\x1b[2J\u202e \u200b İıĞğ 🙂"
)


def test_no_text_of_the_corpus_can_break_the_page(tmp_path: Path) -> None:
    story = [
        (reason, side) for reason in ("too_short", "duplicate") for side in ("rejected", "kept")
    ]
    samples = Samples(5)
    for n, (reason, side) in enumerate(story):
        shown = Example(f"{n:032x}", NASTY, NASTY, NASTY, NASTY, NASTY if n == 2 else None)
        samples.offer(reason, side, shown)  # type: ignore[arg-type]
    steps = [Step(NASTY, NASTY, {NASTY: NASTY}, ("too_short",)), *STEPS[3:]]
    source = report(tmp_path, samples=samples, steps=steps, links={NASTY: "x.html"})
    page = Page(source)
    assert not page.open and not page.tags & {"script", "img"}
    text = "".join(page.text)
    assert "<script>alert(1)</script>" in text and "İıĞğ 🙂" in text
    for mark in ("U+0000", "U+001B", "U+202E", "U+200B"):
        assert mark in text
    assert not set("\x00\x1b\u202e\u200b") & set(source)


def test_samples_of_turkish_are_marked_as_such(tmp_path: Path) -> None:
    source = report(tmp_path)
    assert '<p class="text" lang="tr">kısa</p>' in source


def test_an_empty_corpus_has_a_page(tmp_path: Path) -> None:
    nothing = {"languages": {}, "personal": {}, "samples": Samples(3), "links": {}, "steps": ()}
    page = Page(report(tmp_path, story=(), **nothing))
    assert not page.open and "No document came in." in page.text


def test_the_same_findings_give_the_same_bytes(tmp_path: Path) -> None:
    assert report(tmp_path / "a") == report(tmp_path / "b")


# Samples


def drawn(offers: list[Example], limit: int = 4) -> list[Example]:
    samples = Samples(limit)
    for one in offers:
        samples.offer("too_short", "rejected", one)
    return samples.of("too_short", "rejected")


def many() -> Iterator[Example]:
    draw = random.Random(3)
    for n in range(200):
        yield Example(
            f"{draw.getrandbits(128):032x}", "own", f"#{n}", "metin " * draw.randrange(300)
        )


def test_samples_do_not_depend_on_order_or_on_workers() -> None:
    offers = list(many())
    found = drawn(offers)
    assert [one.id for one in found] == sorted(one.id for one in offers)[:4]
    assert drawn(offers[::-1]) == found
    for parts in (2, 7):
        whole = Samples(4)
        for n in range(parts):
            samples = Samples(4)
            for one in offers[n::parts]:
                samples.offer("too_short", "rejected", one)
            whole.merge(samples)
        assert whole.of("too_short", "rejected") == found


def test_a_small_source_is_not_drowned_by_a_large_one() -> None:
    few = [replace(one, source="küçük", id=f"f{n}") for n, one in enumerate(list(many())[:2])]
    found = drawn([*many(), *few], 6)
    assert [one.source for one in found].count("küçük") == 2 and len(found) == 6
    assert drawn([*few, *many()], 6) == found


def test_samples_are_bounded() -> None:
    assert all(len(one.text) <= SAMPLE_CHARS for one in drawn(list(many())))
    assert drawn(list(many()), 0) == []
    long = Example("0" * 32, "own", "#", "a" * 10_000, "", "b" * 10_000)
    (one,) = drawn([long])
    assert len(one.text) == SAMPLE_CHARS == len(one.kept or "")
