"""The pages for people: every number is there, what is missing is left out, no text can break them."""

import copy
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import page_facts
import pytest
from html_page import Page, check_page
from page_facts import NOISE, all_metrics, comparison, make_files, reference

from sifirdan.compare.reference import reference_record
from sifirdan.errors import DataError
from sifirdan.pages.charts import (
    Point,
    Series,
    calibration_chart,
    line_chart,
    nice_ticks,
    point_rows,
)
from sifirdan.pages.compare_page import compare_page
from sifirdan.pages.figures import digits, large, percent, setting, table
from sifirdan.pages.first_screen import metric_difference, metric_value, metric_values
from sifirdan.pages.index_page import index_page
from sifirdan.pages.model_facts import ModelFacts, collect
from sifirdan.pages.model_page import model_page

SECTIONS = [
    "text",
    "context",
    "calibration",
    "pairs",
    "tasks",
    "training",
    "writing",
    "samples",
    "data",
    "lineage",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_files(tmp_path_factory.mktemp("run"))


def facts_of(files: tuple[Path, Path], name: str = "base", **changes: Any) -> ModelFacts:
    made = {"metrics": all_metrics(), "reference": reference(), "noise": NOISE} | changes
    other = made["reference"] and reference_record(made["reference"], "run.json")
    return collect(name, made["metrics"], *files, other, made["noise"], {"sifirdan": "0.1.0"})


def page_of(files: tuple[Path, Path], name: str = "base", **changes: Any) -> str:
    return model_page(facts_of(files, name, **changes))


def anchors(source: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', source)


def words(source: str) -> str:
    return " ".join(" ".join(Page(source).text).split())


def first(source: str) -> str:
    """What stands before the menu."""
    return words(source[: source.index("<nav>")] + "</body></html>")


# A model's page


@pytest.mark.parametrize("name", ["base", "chat"])
def test_the_page_is_whole_and_asks_for_nothing(files: tuple[Path, Path], name: str) -> None:
    source = page_of(files, name)
    check_page(source)
    expected = [*SECTIONS[:5], "chat", *SECTIONS[5:]] if name == "chat" else SECTIONS
    assert anchors(source) == expected


def test_the_first_screen_says_how_good_against_what_and_what_changed(
    files: tuple[Path, Path],
) -> None:
    said = first(page_of(files))
    for part in (
        "7.41 M parameters", "4 layers", "1.546 bits per byte", "better than the reference",
        "95 % interval 1.516 to 1.586 for other texts like the 2,400 held-out documents", "On average it needs 1.55 bits",
        "token frequencies alone 2.41", "the compressor xz 2.73", "a blind guess 8.00", "the reference 1.61",
        "default of July", "1.612 → 1.546 (−0.066)", "75.3 % of minimal pairs right (chance 50 %)",
        "80.0 % → 75.3 % (−4.7 points)", "3 seeds of a run with 400 k tokens",
        "train.optimizer.lr_matrices 0.01 → 0.02", "data/tokens",
    ):  # fmt: skip
        assert part in said, part
    assert "threads" not in said  # about the machine alone
    verdicts = re.findall(r'<span class="verdict (\w*)">([\w ]+)</span>', page_of(files))
    assert [word for _, word in verdicts] == ["better than the reference", "better", "within noise", "worse"]  # fmt: skip
    assert [look for look, _ in verdicts] == ["better", "better", "", "worse"]


def test_E_01_numbers_on_another_text_are_refused_in_words(files: tuple[Path, Path]) -> None:
    other = reference()
    other["metrics"]["evaluate_base"]["val"]["text"] = "ffff00001111"
    said = first(page_of(files, reference=other))
    assert "not compared" in said and "ffff000…" in said and "a1b2c3d…" in said
    assert "1.612" not in said and "the reference 1.61" not in said
    assert "within noise" in said  # the others are compared all the same
    del other["metrics"]["evaluate_base"]["val"]["text"]
    assert "not compared" in first(page_of(files, reference=other))


def test_without_noise_a_difference_is_grey_and_says_what_measures_it(
    files: tuple[Path, Path],
) -> None:
    for name, command in (("base", "sifirdan noise"), ("chat", "sifirdan noise --chat")):
        other = reference()
        other["metrics"]["evaluate_chat"]["val"]["bits_per_byte"] = 2.2
        source = page_of(files, name, noise=None, reference=other)
        assert not re.search(r'class="verdict (better|worse)"', source)
        said = first(source)
        assert "looks better than the reference, noise unknown" in said
        assert "noise unknown, looks better" in said and f"{command} measures" in said


def test_without_a_reference_the_page_says_how_to_set_one(files: tuple[Path, Path]) -> None:
    said = first(page_of(files, reference=None))
    assert "No run is set as the reference" in said and "What changed" not in said


def test_the_reference_itself_is_compared_with_nothing(files: tuple[Path, Path]) -> None:
    same = {"name": "same", "params": {}, "metrics": all_metrics(), "hashes": {}}
    said = first(page_of(files, reference=same))
    assert "This run is the reference itself, same" in said and "equal" not in said
    assert "What changed" not in said and "the reference 1.55" not in said


def test_other_windows_are_refused_on_the_page_and_one_model_is_named(
    files: tuple[Path, Path],
) -> None:
    other = reference()
    other["metrics"]["evaluate_base"]["stride"] = 192
    other["hashes"] = dict(facts_of(files).folders)
    said = first(page_of(files, reference=other))
    assert "measured with stride 192 and 128" in said and "1.612" not in said
    assert "hold the same base model (models/base" in said


def test_minimal_pairs_stand_beside_what_frequencies_get(files: tuple[Path, Path]) -> None:
    facts = facts_of(files)
    alone = words(model_page(facts))
    assert "The dashed line is guessing (50 %)" in alone
    words_only = dict.fromkeys(page_facts.PHENOMENA, 0.5) | {"word_order": 0.66}
    source = model_page(replace(facts, pair_baselines={"words": words_only}))
    figure = re.search(r'aria-label="word order: .*?</svg>', source)
    assert figure and 'mark at 66.0"' in figure[0] and '<circle class="f6"' in figure[0]
    assert "the more frequent words or tokens" in words(source) and "by words" in words(source)
    assert "standard error" not in words(source)  # one meaning of ± on a page


def test_places_are_named_by_their_beginning(files: tuple[Path, Path]) -> None:
    metrics = all_metrics()
    metrics["evaluate_base"]["val"]["positions"] = {"1": 9.0, "128-255": 6.6, "256-511": 6.7, "from 1024": 6.0}  # fmt: skip
    source = page_of(files, metrics=metrics)
    chart = source[source.index("Bits per token by place") :]
    assert ">256</span>" in chart and "256-511" not in chart and ">1024</span>" in chart
    assert "Other text stands at each place" in words(source)


def test_every_number_has_its_place(files: tuple[Path, Path]) -> None:
    said = words(page_of(files, "chat"))
    for part in (
        "2.006 to 2.076", "3.180", "1,856", "381,114", "ood (out of domain)",  # held-out text
        "<= 64 tokens 2.14 / 2.16 / 3.04", "33 6.200",
        "right 31.2 % of the time", "less sure than it is right",
        "vowel harmony 95.0 % ± 7.8", "suffix cloze 43.0 % ± 6.9", "41.0 %",
        "words that occur in the training text 85.9 %", "38",
        "rose by 0.490, more than the 0.300 that are allowed",
        "own question's answer likelier than another's (chance 50 %) 81.0 % 78.0 %",
        "definition 81.0 % / 78.0 %", "greeting 75.0 %", "words shared with the right answer (F1) 21.0 % 21.0 %",
        "different words, of all words 61.0 % 21.0 % 55.0 %", "By how sure it was", "Merhaba, İyi günler!", "The first 24 of 30",
        "kenet 80.0 %", "GPL-3.0", "Speeches of 1906-1938.", "train.optimizer.lr_matrices", "0.1.0", "numpy",
    ):  # fmt: skip
        assert part in said, part
    base = facts_of(files)
    for sha256 in base.folders.values():
        assert sha256[:12] in said
    assert list(base.folders) == [
        "data/raw", "data/corpus", "models/tokenizer", "data/tokens", "models/base",
    ]  # fmt: skip


def test_forgetting_above_the_limit_is_told_as_such(tmp_path: Path) -> None:
    reports, models = make_files(tmp_path)
    metrics = all_metrics()
    forgotten = metrics["evaluate_chat"]["forgetting"]
    forgotten["after"], forgotten["above_limit"] = 1.646, 0
    assert "rose by 0.100; up to 0.300 is allowed." in words(page_of((reports, models), "chat", metrics=metrics))  # fmt: skip
    (reports / "evaluate/chat/manifest.json").unlink()  # and with it the limit
    forgotten["above_limit"] = 1
    assert "rose by 0.100, more than is allowed" in words(page_of((reports, models), "chat", metrics=metrics))  # fmt: skip


def test_grey_marks_what_is_not_told_apart_from_chance(files: tuple[Path, Path]) -> None:
    source = page_of(files)
    for name, accuracy in page_facts.PHENOMENA.items():
        figure = re.search(rf'aria-label="{name.replace("_", " ")}: .*?</svg>', source)
        assert figure
        grey = '<circle class="f6"' in figure[0]
        assert grey == (abs(accuracy - 0.5) <= 1.96 * 0.04), name


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("evaluate_base.val.positions evaluate_base.test.positions evaluate_base.ood.positions", ""),
        ("evaluate_base.val.calibration", "calibration"),
        ("evaluate_base.minimal_pairs", "pairs"),
        ("evaluate_base.minimal_pairs.phenomena", ""),
        ("evaluate_base.tasks", "tasks"),
        ("evaluate_base.samples", "writing"),
        ("evaluate_base.ood", ""),
        ("evaluate_base.test", ""),
        ("evaluate_base.val", "calibration"),
        ("evaluate_base.val.low evaluate_base.val.unigram_bits_per_byte", ""),
        ("evaluate_base", "text context calibration pairs tasks writing"),
        ("train finetune clean", ""),
    ],
)  # fmt: skip
def test_what_is_not_measured_is_left_out(files: tuple[Path, Path], path: str, gone: str) -> None:
    metrics: dict[str, Any] = all_metrics()
    for one in path.split():
        *parents, last = one.split(".")
        place = metrics
        for name in parents:
            place = place[name]
        del place[last]
    source = page_of(files, metrics=metrics)
    check_page(source)
    assert anchors(source) == [name for name in SECTIONS if name not in gone.split()]


def test_a_page_of_nothing_is_a_page(tmp_path: Path) -> None:
    for name in ("base", "chat"):
        page = collect(name, {}, tmp_path / "reports", tmp_path / "models", None, None)
        source = model_page(page)
        check_page(source)
        assert anchors(source) == [] and "No held-out text was scored." in words(source)


def test_numbers_that_are_not_finite_do_not_break_a_page(files: tuple[Path, Path]) -> None:
    metrics = all_metrics()
    base: dict[str, Any] = metrics["evaluate_base"]
    base["val"]["bits_per_byte"], base["val"]["token_perplexity"] = "nan", "inf"
    base["val"]["sources"]["kenet"] = "inf"
    base["val"]["positions"] = {"1-8": "nan", "9-16": 7.0}
    base["ood"]["lengths"] = {"<= 64 tokens": "nan"}
    metrics["train"]["loss"] = "inf"
    source = page_of(files, metrics=metrics)
    check_page(source)
    assert "nan bits per byte" in words(source) and "inf" in words(source)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    reports, models = make_files(tmp_path)
    (reports / "train/curve.jsonl").write_text('{"step": 1', encoding="utf-8")
    with pytest.raises(DataError, match="curve.jsonl:1: is damaged"):
        facts_of((reports, models))
    (reports / "train/curve.jsonl").unlink()
    (models / "base/config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match="config.json: is damaged"):
        facts_of((reports, models))


NASTY = "</script><b>kalın</b><img src=x onerror=y> & \"x' </p>\x00\u202e İıĞğ 🙂"


def test_no_text_can_break_a_page(tmp_path: Path) -> None:
    card = copy.deepcopy(page_facts.CARD)
    card["sources"] = {NASTY: card["sources"]["kenet"] | {"note": NASTY, "license": NASTY}}
    card["licenses"] = {NASTY: {"sources": [NASTY], "train_share": 1.0}}
    samples = [
        {"prompt": NASTY, "text": NASTY, "temperature": 1.0, "stopped": True},
        {"question": NASTY, "expected": "-", "text": NASTY},
        {"question": NASTY, "expected": NASTY, "text": NASTY},
    ]
    files = make_files(tmp_path, {"card": card, "samples": samples})
    metrics = all_metrics()
    for part in ("sources", "lengths", "positions"):
        metrics["evaluate_chat"]["val"][part] = {NASTY: 1.0, NASTY + "2": 2.0}
    for part in ("minimal_pairs", "tasks", "questions"):
        old = metrics["evaluate_chat"][part]
        place = old["phenomena"] if part == "minimal_pairs" else old
        place[NASTY] = next(iter(place.values()))
    metrics["evaluate_chat"]["questions"]["known"]["types"][NASTY] = {"own_question_share": 0.5}
    told = reference() | {"name": NASTY, "hashes": {"data/tokens": NASTY}}
    told["params"]["train.seed"] = NASTY
    told["metrics"]["evaluate_chat"]["val"]["text"] = NASTY
    facts = collect(
        "chat", metrics, *files, reference_record(told, "run.json"), NOISE, {NASTY: NASTY}
    )
    runs = tuple(
        page_facts.RunRecord(NASTY, {}, {}, {}, {}, (NASTY,)) for _ in range(2)
    )  # fmt: skip
    row = page_facts.MetricRow(NASTY, NASTY, (1.0, 2.0), True, None, ("worse",))
    other = page_facts.Comparison(runs, {NASTY: (NASTY, 1)}, {NASTY: (NASTY, None)}, (row,), (NASTY,))  # fmt: skip
    links = {"a.html": NASTY}
    for source in (model_page(facts), compare_page(other), index_page(NASTY, links, {NASTY: {NASTY: NASTY}})):  # fmt: skip
        page = check_page(source)
        assert "img" not in page.tags
        assert "</script><b>kalın</b>" in "".join(page.text) and "İıĞğ 🙂" in "".join(page.text)
        assert not set("\x00\u202e") & set(source)


def test_samples_are_unedited_and_marked_as_turkish(files: tuple[Path, Path]) -> None:
    source = page_of(files)
    assert source.count('<p class="text" lang="tr">') == 18  # 2 prompts, 3 temperatures, 12 free
    assert '<p class="text" lang="tr"><b>Bir gün</b> ığdır ve kâr, 0.7.</p>' in source
    assert "temperature 0.7, ended by itself" in source
    assert '<p class="said" lang="tr">Merhaba, İyi günler!</p>' in page_of(files, "chat")


def test_the_same_run_gives_the_same_bytes(files: tuple[Path, Path], tmp_path: Path) -> None:
    elsewhere = make_files(tmp_path / "proje ığ")
    assert page_of(files, "chat") == page_of(elsewhere, "chat")
    assert str(tmp_path) not in page_of(elsewhere)


def test_curves_are_drawn_over_tokens(files: tuple[Path, Path]) -> None:
    source = page_of(files, "chat")
    titles = re.findall(r"<figcaption>([^<]*(?:pretraining|tuning))</figcaption>", source)
    assert titles == ["Loss, pretraining", "Held-out text, pretraining", "Loss, instruction tuning", "Held-out text, instruction tuning"]  # fmt: skip
    assert "A step is 64 tokens." in source and "nats per token: 8.938 at 64," in source


# The comparison


def test_refusals_stand_above_all_numbers() -> None:
    source = compare_page(comparison())
    page = check_page(source)
    assert anchors(source) == ["changes", "curves", "numbers", "samples"]
    refusal = source.index('<p class="refusal">default and 16384 pieces have')
    assert refusal < source.index('id="headline"') < source.index("<nav>")
    assert "16384 pieces" in "".join(page.text)


def test_every_number_of_a_comparison_has_difference_noise_and_verdict() -> None:
    said = words(compare_page(comparison()))
    for part in (
        "↓ bits per byte of val 1.546 1.521 (−0.025) better 1.549 (+0.003) within noise 0.004",
        "↓ token perplexity of val 68.2 65.9 (−2.3) noise unknown, looks better 131.0 not compared –",
        "↑ minimal pairs, right 75.3 % 75.3 % equal 70.2 % (−5.1 points) worse 1.1 points",
        "sifirdan noise measures", "1 better 1 noise unknown 1 equal", "1 worse 1 within noise 1 not compared",
        "2 parameters and 1 folder differ", "train.optimizer.lr_matrices 0.02 0.04 0.02", '["Bir gün"]',
        "the tokenizer (models/tokenizer) aaaaaaaaaaaa aaaaaaaaaaaa bbbbbbbbbbbb", "iki 2: İstanbul",
    ):  # fmt: skip
        assert part in said, part


@pytest.mark.parametrize("num_runs", [1, 2, 4])
def test_each_run_has_its_line_in_each_chart(num_runs: int) -> None:
    source = compare_page(comparison(num_runs))
    check_page(source)
    charts = re.findall(r'<svg class="lines".*?</svg>', source, flags=re.S)
    assert len(charts) == 3
    for chart in charts:
        lines = re.findall(r'<polyline class="series c(\d)"', chart)
        assert lines == [str(n) for n in range(num_runs)]


def test_runs_of_one_name_are_told_apart_and_a_run_without_curves_has_no_line() -> None:
    two = comparison(2)
    before = replace(two.runs[0], name="workspace", curves={}, samples=("bir",) * 9)
    runs = (before, replace(two.runs[1], name="workspace"))
    source = compare_page(replace(two, runs=runs, refusals=()))
    check_page(source)
    assert "B: workspace against A: workspace" in words(source)
    for chart in re.findall(r'<figure class="chart">.*?</figure>', source, flags=re.S):
        assert "A: workspace" not in chart and "B: workspace" in chart
    assert "3 more" in source[source.index('<section id="samples">') :]


def test_a_comparison_folds_what_neither_is_a_headline_nor_changed() -> None:
    names = [f"evaluate_base.val.sources.s{n}" for n in range(40)] + ["train.parameters"]
    rows = tuple(
        page_facts.MetricRow(
            name, f"number {n}", (1.0, 2.0), True, 0.1, ("worse" if n == 30 else "within noise",)
        )
        for n, name in enumerate(names)
    )
    two = comparison(2)
    source = compare_page(page_facts.Comparison(two.runs, {}, {}, rows, ()))
    check_page(source)
    folded = "".join(re.findall(r"<details>.*?</details>", source[source.index('id="numbers"') :]))
    assert "39 more" in folded and "number 29" in folded
    assert "number 30" not in folded and "↓ number 30" in source
    assert "number 40" not in folded and "↓ number 40" not in source  # no direction is better
    assert "The same parameters and the same data." in source


# The index


def test_the_index_leads_to_the_pages_and_shows_every_metric() -> None:
    links = {"base.html": "the base model", "../corpus/report.html": "the corpus"}
    source = index_page("kart: <b>ığdır</b>\n", links, all_metrics())
    check_page(source)
    assert re.findall(r'href="([^"]+)"', source) == list(links)
    said = words(source)
    for part in (
        "1.546 bits per byte",
        "75.3 %",
        "81.0 %",
        "7.41 M parameters",
        "kart: <b>ığdır</b>",
    ):
        assert part in said, part
    assert "samples.longest_copy_chars 38" in said
    check_page(index_page("", {}, {}))


# Figures


def test_numbers_have_the_digits_a_reader_can_use() -> None:
    written = {74153: "74,153", 68.2087: "68.2", 1.54604: "1.546", 0.00041: "0.00041", 0.0: "0.000", 1856.2: "1,856"}  # fmt: skip
    assert {value: digits(value) for value in written} == written
    assert [digits(None), digits(math.nan), digits(-math.inf)] == ["–", "nan", "-inf"]
    assert [percent(2, 3), percent(0.0004), percent(0)] == ["66.7 %", "under 0.1 %", "0.0 %"]
    assert [large(7407872), large(400000), large(12)] == ["7.41 M", "400 k", "12"]
    assert [setting(v) for v in ("a", True, None, ["ığ"], 0.02)] == ["a", "true", "null", '["ığ"]', "0.02"]  # fmt: skip
    assert metric_value("x.accuracy", 0.753) == "75.3 %" and metric_value("x.tokens", 5) == "5"
    assert metric_difference("x.bits_per_byte", 2.431, 2.4346) == "+0.004"
    assert metric_difference("x.bits_per_byte", 1.0, 1.0000004) == "+ under 0.000001"
    assert metric_difference("x.bits_per_byte", 1.0, 1.000085) == "+0.000085"
    assert metric_values("x.bits_per_byte", (1.54613, 1.54622, None)) == ["1.5461", "1.5462", "–"]
    assert metric_values("x.accuracy", (0.70001, 0.70004)) == ["70.001 %", "70.004 %"]
    assert metric_difference("x.token_perplexity", 1068.2, 65.9) == "−1,002.3"
    assert metric_difference("x.stopped_share", 0.5, None) == "–"


@pytest.mark.parametrize(
    ("low", "high"), [(0.3, 9.1), (1.52, 1.61), (0, 2.2e6), (-3, 4), (5, 5), (0, 0), (1e-5, 2e-5)]
)
def test_ticks_are_round_and_span_the_numbers(low: float, high: float) -> None:
    ticks = nice_ticks(low, high, 5)
    assert ticks[0] <= low + 1e-12 and high <= ticks[-1] + 1e-12
    assert ticks == sorted(set(ticks)) and 1 <= len(ticks) <= 8
    if len(ticks) > 1:
        step = ticks[1] - ticks[0]
        digit = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert any(abs(digit - nice) < 1e-6 for nice in (1, 2, 2.5, 5, 10)), step


def test_points_stand_where_their_numbers_are() -> None:
    line = Series("bir", [(0, 1.0), (50, 3.0), (100, 2.0)])
    chart = line_chart("başlık", [line], x_label="steps", y_label="nats")
    assert 'points="0.00,100.00 50.00,0.00 100.00,50.00"' in chart  # y runs down, from 1 to 3
    assert "bir: 1.000 at 0, 2.000 at 100." in chart
    assert '<span style="left:40.00%">40</span>' in chart
    assert '<span style="bottom:100.00%">3</span>' in chart
    assert line_chart("t", [Series("a", [(1, 2.0)])], x_label="", y_label="") == ""
    assert line_chart("t", [Series("a", [(1, math.nan), (2, 1.0)])], x_label="", y_label="") == ""


def test_an_interval_is_cut_at_the_scale_and_chance_is_marked() -> None:
    drawn = point_rows(
        [("ad", [Point(99, 97, 102)], "99 %")], low=0, high=100, unit="right", mark=50
    )
    assert 'x1="97.00%" x2="100.00%"' in drawn and 'class="mark" x1="50.00%"' in drawn
    assert "<title>99 (97 to 102)</title>" in drawn


def test_the_calibration_diagram_has_its_diagonal_and_bins() -> None:
    drawn = calibration_chart("sureness", [(0.25, 0.5), (0.75, 0.7)])
    assert 'points="25.00,50.00 75.00,30.00"' in drawn and 'd="M0 100L100 0"' in drawn
    assert "sure 25%, right 50%" in drawn


def test_cells_without_a_value_have_a_dash() -> None:
    drawn = table(["a", "b"], [[1, None], [2.5, True]])
    assert '<td class="n">1</td>' in drawn and ">–</td>" in drawn and ">True</td>" in drawn
