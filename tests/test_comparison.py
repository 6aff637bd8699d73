"""Runs side by side: what changed, what is better, and what may not be compared at all."""

import json
import math
from typing import Any

import pytest

from sifirdan.compare.comparison import (
    NOISE_UNKNOWN,
    Comparison,
    RunRecord,
    compare,
    is_runtime,
    noise_command,
)
from sifirdan.compare.comparison_text import comparison_json, comparison_lines
from sifirdan.compare.measures import MEASURES, apart, find, flat, numbers, plain

NOISE = {
    "params": {},
    "seeds": [1, 2, 3],
    "mean": {},
    "sigma": {"evaluate_base.val.bits_per_byte": 0.01},
}


def record(name: str = "A", **changes: Any) -> RunRecord:
    """A run that was measured by this release; `changes` go by dotted name into its metrics, by
    `folder` or `param` with a value into its hashes and parameters."""
    split = {
        "text": "aaaaaaaaaaaa", "bits_per_byte": 1.5, "low": 1.4, "high": 1.6, "token_perplexity": 60.0,
        "word_perplexity": 900.0, "character_perplexity": 3.0, "documents": 10, "sources": {"kenet": 1.54},
        "lengths": {"<= 64 tokens": 1.6}, "positions": {"1-8": 1.9},
        "calibration": {"error": 0.02, "accuracy": 0.31, "confidence": 0.3},
    }  # fmt: skip
    evaluation: dict[str, Any] = {
        "window": 256,
        "stride": 128,
        "tokenizer": "cccccccccccc",
        "val": split,
        "test": {**split, "text": "bbbbbbbbbbbb"},
        "minimal_pairs": {
            "accuracy": 0.7,
            "phenomena": {"vowel_harmony": {"accuracy": 0.8, "standard_error": 0.04, "pairs": 120}},
        },
        "tasks": {
            "yerel": {"items": 40, "accuracy": 0.3, "accuracy_by_bytes": 0.35, "chance": 0.25}
        },
        "samples": {
            "distinct_1": 0.5,
            "repetition": 0.1,
            "known_word_share": 0.9,
            "copied_share": 0.0,
        },
    }
    questions = {
        "questions": 200,
        "exact_match_share": 0.1,
        "nats_per_target": 3.9,
        "text": "dddddddddddd",
    }
    metrics: dict[str, Any] = {
        "evaluate_base": evaluation,
        "evaluate_chat": {**evaluation, "questions": {"known": questions}},
        "train": {
            "loss": 4.2,
            "val_bits_per_byte": 1.55,
            "parameters": 7_000_000,
            "tokens": 2_000_000,
        },
    }
    metrics = json.loads(json.dumps(metrics))
    folders = (
        "data/raw",
        "data/corpus",
        "models/tokenizer",
        "data/tokens",
        "data/chat",
        "models/base",
    )
    hashes = {folder: folder[-1] * 64 for folder in folders}
    params: dict[str, Any] = {
        "train.tokens": 2_000_000,
        "train.val_tokens": 20_000,
        "runtime.threads": 2,
    }
    params |= {
        f"evaluate.{key}": 1
        for key in ("seed", "num_samples", "sample_temperature", "sample_tokens")
    }
    for place, value in changes.items():
        target = hashes if "/" in place else params if place in params else metrics
        *path, last = place.split(".") if target is metrics else [place]
        for part in path:
            target = target[part]
        if value is None:
            del target[last]
        else:
            target[last] = value
    return RunRecord(name, params, metrics, {}, hashes, ())


def verdict(comparison: Comparison, name: str) -> str:
    (row,) = [row for row in comparison.metrics if row.name == name]
    (one,) = row.verdicts
    return one


def pair(noise: Any = None, **changes: Any) -> Comparison:
    return compare([record(), record("B", **changes)], noise)


def test_equal_runs_differ_in_nothing() -> None:
    both = pair()
    assert not both.params and not both.data and not both.refusals
    assert {one for row in both.metrics for one in row.verdicts} == {"equal"}
    assert [row.name for row in both.metrics][0] == "evaluate_base.val.bits_per_byte"


@pytest.mark.parametrize(
    "name, other, expected",
    [
        ("evaluate_base.val.bits_per_byte", 1.4, "better"),
        ("evaluate_base.val.bits_per_byte", 1.6, "worse"),
        ("evaluate_base.minimal_pairs.accuracy", 0.8, "better"),
        ("evaluate_base.minimal_pairs.accuracy", 0.6, "worse"),
        ("evaluate_base.samples.distinct_1", 0.6, "changed"),
        ("train.parameters", 8_000_000, "changed"),
        ("evaluate_base.val.bits_per_byte", "inf", "worse"),
        ("evaluate_base.val.bits_per_byte", "nan", "not compared"),
    ],
)
def test_a_difference_has_the_direction_of_its_metric(name: str, other: Any, expected: str) -> None:
    noise = {**NOISE, "sigma": {name: 1e-6}}
    assert verdict(pair(noise, **{name: other}), name) == expected


@pytest.mark.parametrize(
    "other, expected",
    [(1.5608, "within noise"), (1.4392, "within noise"), (1.5610, "worse"), (1.4390, "better")],
)
def test_noise_of_three_seeds_reaches_six_sigma(other: float, expected: str) -> None:
    # 4.303 (t, 2 degrees of freedom) * sqrt(2) * 0.01 = 0.06085
    name = "evaluate_base.val.bits_per_byte"
    both = pair(NOISE, **{name: other})
    assert verdict(both, name) == expected
    assert {row.name: row.sigma for row in both.metrics}[name] == 0.01


def test_without_a_sigma_a_difference_is_no_verdict_and_the_table_says_what_to_do() -> None:
    name = "evaluate_chat.val.bits_per_byte"
    both = pair(NOISE, **{name: 1.501})
    assert verdict(both, name) == NOISE_UNKNOWN
    (row,) = [row for row in both.metrics if row.name == name]
    assert row.sigma is None and row.told(0) == "noise unknown, looks worse"
    text = "\n".join(comparison_lines(both))
    assert "noise unknown, looks worse" in text and "sifirdan noise --chat measures" in text
    base = "evaluate_base.val.bits_per_byte"
    nothing = "\n".join(comparison_lines(pair(**{base: 1.401})))
    assert "noise unknown, looks better" in nothing and "sifirdan noise measures" in nothing
    assert "better\n" not in nothing.replace("looks better", "")
    zero = {**NOISE, "sigma": {name: 0.0}}  # some shares are equal in all seeds by chance
    assert verdict(pair(zero, **{name: 1.501}), name) == NOISE_UNKNOWN
    assert not noise_command(pair().metrics)


def test_a_number_that_no_seed_moves_needs_no_noise() -> None:
    tokens = {"tokenizers": {"sifirdan": {"bytes_per_token": 4.0}}}
    more = {"tokenizers": {"sifirdan": {"bytes_per_token": 4.1}}}
    runs = [record(evaluate_tokenizer=tokens), record("B", evaluate_tokenizer=more)]
    name = "evaluate_tokenizer.tokenizers.sifirdan.bytes_per_token"
    assert verdict(compare(runs), name) == "better"


def test_numbers_that_differ_look_different_and_have_no_exponent() -> None:
    name = "evaluate_base.val.bits_per_byte"
    text = "\n".join(comparison_lines(pair(**{name: 1.500085})))
    (line,) = [line for line in text.splitlines() if "base model: bits per byte of val" in line]
    assert " 1.5001 " in line and " 1.5000 " in line
    assert [plain(0.000085, 2), plain(0), plain(-1e-12), plain(math.inf)] == [
        "0.000085", "0", "over −0.000000001", "inf",
    ]  # fmt: skip
    assert apart([0.5, 0.5, None]) == ["0.5", "0.5", "-"]


def test_names_in_the_table_are_words() -> None:
    told = "\n".join(comparison_lines(pair(), whole=True))
    assert "answers equal to the right one" in told and "exact_match_share" not in told
    label = find("evaluate_base.tasks.dunya.accuracy")
    assert label and label.label == "base model: task “Dünya bilgisi”, right"
    source = find("evaluate_base.val.sources.treebank_wiki")
    assert source and source.label.endswith("treebank_wiki")  # the user's own name


@pytest.mark.parametrize("key", ["stride", "window"])
def test_numbers_of_other_windows_are_not_compared(key: str) -> None:
    changed = {f"evaluate_{model}.{key}": 64 for model in ("base", "chat")}
    both = pair(**changed, **{"evaluate_base.val.bits_per_byte": 1.4})
    for name in ("val.bits_per_byte", "test.word_perplexity", "val.positions.1-8", "val.sources.kenet"):  # fmt: skip
        assert verdict(both, f"evaluate_base.{name}") == "not compared", name
    assert verdict(both, "evaluate_base.minimal_pairs.accuracy") == "equal"
    (sentence,) = both.refusals
    was = {"stride": 128, "window": 256}[key]
    assert f"were measured with {key} {was} and 64:" in sentence
    unknown = pair(**{f"evaluate_base.{key}": None})
    assert f"{key} {was} and unknown" in unknown.refusals[0]
    forgot = [{"after": value} for value in (2.0, 2.1)]
    runs = [
        record(**{"evaluate_chat.forgetting": forgot[0]}),
        record("B", **changed, **{"evaluate_chat.forgetting": forgot[1]}),
    ]
    assert verdict(compare(runs), "evaluate_chat.forgetting.after") == "not compared"


def test_one_model_in_two_runs_is_said_at_the_top() -> None:
    both = pair(**{"evaluate_base.val.bits_per_byte": 1.4})
    (sentence,) = both.same
    assert sentence.startswith("A and B hold the same base model (models/base eeeeeee…)")
    assert [*comparison_lines(both)][2] == sentence
    assert comparison_json(both)["same"] == [sentence]
    assert not pair(**{"models/base": "9" * 64}).same


def test_E_01_token_perplexity_is_compared_within_one_tokenizer_only() -> None:
    both = pair(
        **{"evaluate_base.tokenizer": "eeeeeeeeeeee", "evaluate_chat.tokenizer": "eeeeeeeeeeee"}
    )
    for name in (
        "val.token_perplexity",
        "val.positions.1-8",
        "val.lengths.<= 64 tokens",
        "val.calibration.error",
    ):
        assert verdict(both, f"evaluate_base.{name}") == "not compared", name
    for name in (
        "val.bits_per_byte",
        "test.word_perplexity",
        "val.character_perplexity",
        "val.sources.kenet",
    ):
        assert verdict(both, f"evaluate_base.{name}") == "equal", name
    assert verdict(both, "evaluate_chat.questions.known.nats_per_target") == "not compared"
    assert verdict(both, "evaluate_chat.questions.known.exact_match_share") == "equal"
    assert verdict(both, "train.loss") == "not compared"
    (sentence,) = both.refusals
    assert "A and B have different tokenizers (ccccccc… and eeeeeee…)" in sentence
    assert sentence.endswith("Compare bits per byte or word perplexity, which can.")


def test_E_01_nothing_measured_on_another_text_is_compared() -> None:
    changed = {f"evaluate_{model}.val.text": "999999999999" for model in ("base", "chat")}
    both = pair(**changed)
    rows = [
        row for row in both.metrics if ".val." in row.name or row.name == "train.val_bits_per_byte"
    ]
    assert len(rows) == 19 and {row.verdicts[0] for row in rows} == {"not compared"}
    assert verdict(both, "evaluate_base.test.bits_per_byte") == "equal"
    (sentence,) = both.refusals
    assert "(val: aaaaaaa… and 9999999…)" in sentence and "sifirdan score A B" in sentence
    both = pair(**changed, **{"evaluate_base.test.text": "888888888888"})
    assert len(both.refusals) == 1 and "; test: bbbbbbb… and 8888888…" in both.refusals[0]


def test_metrics_without_hashes_fall_back_to_those_of_the_folders() -> None:
    old = {"evaluate_base.val.text": None, "evaluate_chat.val.text": None}
    name = "evaluate_base.val.bits_per_byte"
    assert verdict(pair(**old), name) == "equal"
    assert (
        verdict(pair(**old, **{"data/corpus": "9" * 64}), name) == "equal"
    )  # data/tokens is equal
    other = pair(**old, **{"data/corpus": "9" * 64, "data/tokens": "9" * 64})
    assert verdict(other, name) == "not compared"
    unknown = pair(**old, **{"data/corpus": None, "data/tokens": None})
    assert verdict(unknown, name) == "not compared"
    assert any("the hash of the text is missing in one of them" in one for one in unknown.refusals)


def test_an_unknown_tokenizer_is_refused_too() -> None:
    old = {f"evaluate_{model}.tokenizer": None for model in ("base", "chat")}
    name = "evaluate_base.val.token_perplexity"
    assert verdict(pair(**old), name) == "equal"
    assert verdict(pair(**old, **{"models/tokenizer": "9" * 64}), name) == "not compared"
    unknown = pair(**old, **{"models/tokenizer": None})
    assert verdict(unknown, name) == "not compared"
    assert "do not show that they have the same tokenizer" in unknown.refusals[0]


def test_hashes_of_two_kinds_are_never_compared_with_each_other() -> None:
    """A Git revision whose outputs are not in DVC's cache has DVC's hashes alone."""
    first, other = record(), record("B")
    one = RunRecord(
        "A", {}, first.metrics, {}, {"data/raw": "1" * 64, "data/raw.dvc": "2" * 32}, ()
    )
    two = RunRecord("B", {}, other.metrics, {}, {"data/raw.dvc": "2" * 32}, ())
    assert not compare([one, two]).data
    three = RunRecord("C", {}, other.metrics, {}, {"data/raw.dvc": "3" * 32}, ())
    assert compare([one, three]).data == {
        "the sources as they came in (data/raw)": ("2" * 12, "3" * 12)
    }


@pytest.mark.parametrize(
    "changes, refused, sentence",
    [
        ({"evaluate_base.minimal_pairs.phenomena.vowel_harmony.pairs": 100}, "evaluate_base.minimal_pairs.accuracy", "vowel_harmony.pairs (120 and 100)"),
        ({"evaluate_base.tasks.yerel.items": 50}, "evaluate_base.tasks.yerel.accuracy_by_bytes", "tasks.yerel.items (40 and 50)"),
        ({"evaluate.sample_temperature": 2}, "evaluate_base.samples.repetition", "evaluate.sample_temperature (1 and 2)"),
        ({"data/corpus": "9" * 64}, "evaluate_base.samples.known_word_share", "differ in data/corpus"),
        ({"data/tokens": "9" * 64}, "train.loss", "differ in data/tokens"),
        ({"train.val_tokens": 9}, "train.val_bits_per_byte", "train.val_tokens (20000 and 9)"),
        ({"evaluate_chat.questions.known.text": "9" * 12}, "evaluate_chat.questions.known.exact_match_share", "asked different questions"),
        ({"evaluate_chat.questions.known.text": None, "data/chat": "9" * 64}, "evaluate_chat.questions.known.exact_match_share", "were asked the same questions"),
    ],
)  # fmt: skip
def test_a_number_is_compared_only_where_what_it_rests_on_is_equal(
    changes: dict[str, Any], refused: str, sentence: str
) -> None:
    both = pair(**changes)
    assert verdict(both, refused) == "not compared"
    (said,) = both.refusals
    assert sentence in said
    assert verdict(both, "evaluate_base.val.bits_per_byte") == "equal"


def test_parameters_that_differ_are_named_the_machines_last() -> None:
    both = pair(**{"train.tokens": 3, "runtime.threads": 8})
    assert both.params == {"train.tokens": (2_000_000, 3), "runtime.threads": (2, 8)}
    assert [*both.params] == ["train.tokens", "runtime.threads"] and is_runtime("runtime.threads")
    text = "\n".join(comparison_lines(both))
    assert text.index("parameters that differ") < text.index("runtime, which")
    assert "2000000  ->  3" in text


@pytest.mark.parametrize(
    "one, two, same",
    [
        (1, "1", True), (0.02, "0.02", True), (True, "true", True), (None, "null", True), ([1, 2], "[1, 2]", True),
        (1e-06, "1e-06", True), (1, 1.0, True), ("a", "b", False), (1, "2", False), ("x" * 7000, None, True),
    ],
)  # fmt: skip
def test_values_out_of_mlflow_equal_those_they_were_logged_from(
    one: Any, two: Any, same: bool
) -> None:
    from sifirdan.track_record import digest_of

    two = two or f"7000 characters, in params/{digest_of(one)}.txt" if one is not None else two
    runs = [
        RunRecord(name, {"a.b": value}, {}, {}, {}, ()) for name, value in (("A", one), ("B", two))
    ]
    assert (compare(runs).params == {}) == same


def test_a_number_that_one_run_lacks_stays_in_the_table() -> None:
    both = pair(**{"evaluate_base.tasks": None})
    (row,) = [row for row in both.metrics if row.name == "evaluate_base.tasks.yerel.accuracy"]
    assert row.values == (0.3, None) and row.verdicts == ("not compared",)
    assert not both.refusals and "  -  not compared" in "\n".join(comparison_lines(both))


def test_a_number_that_is_none_is_refused_in_words() -> None:
    both = pair(**{"evaluate_base.val.bits_per_byte": "nan"})
    (sentence,) = both.refusals
    assert "base model: bits per byte of val" in sentence and "NaN" in sentence


def test_every_run_is_compared_with_the_first() -> None:
    name = "evaluate_base.val.bits_per_byte"
    three = compare([record(), record("B", **{name: 1.4}), record("C", **{name: 1.7})])
    (row,) = [row for row in three.metrics if row.name == name]
    assert row.values == (1.5, 1.4, 1.7) and row.verdicts == (NOISE_UNKNOWN,) * 2
    assert [row.told(0), row.told(1)] == [
        f"{NOISE_UNKNOWN}, looks {word}" for word in ("better", "worse")
    ]
    lines = [*comparison_lines(three)]
    assert lines[:3] == ["A  A", "B  B", "C  C"]


def test_the_json_holds_everything_and_no_number_that_json_has_not() -> None:
    both = pair(NOISE, **{"evaluate_base.val.bits_per_byte": "nan", "train.tokens": 5})
    content = json.loads(json.dumps(comparison_json(both), allow_nan=False))
    rows = {row["name"]: row for row in content["metrics"]}
    assert rows["evaluate_base.val.bits_per_byte"]["values"] == [1.5, "nan"]
    assert content["params"] == {"train.tokens": [2_000_000, 5]}
    assert [run["name"] for run in content["runs"]] == ["A", "B"]


def test_every_measure_is_found_by_a_name_and_its_label_is_filled() -> None:
    names = {name for name, _ in flat(record().metrics)}
    names |= {
        "evaluate_base.samples.stopped_share", "evaluate_base.samples.longest_copy_chars",
        "evaluate_base.samples.temperatures.0.7.distinct_1",
        "evaluate_chat.known_word_share.samples", "evaluate_chat.questions.unseen.types.plate.partial_match",
        "evaluate_chat.questions.known.stopped_share", "evaluate_chat.questions.handwritten.control_text_share",
        "evaluate_chat.questions.known.types.plate.nats_per_target", "evaluate_chat.forgetting.after",
        "evaluate_chat.forgetting.rise", "finetune.loss", "finetune.known_nats_per_target", "train.epochs",
        "train_tokenizer.vocab_size", "clean.splits.train.bytes",
        "evaluate_tokenizer.tokenizers.sifirdan.bytes_per_token", "evaluate_tokenizer.tokenizers.sifirdan.tokens_per_word",
        "evaluate_tokenizer.tokenizers.sifirdan.domains_bytes_per_token.val kenet",
        "evaluate_tokenizer.tokenizers.sifirdan.suffix_f1",
    }  # fmt: skip
    found = {measure.pattern: measure for name in names if (measure := find(name))}
    assert set(found) == {measure.pattern for measure in MEASURES}
    assert not [
        one for one in found.values() if "{" in one.label or any("{" in need for need in one.needs)
    ]
    for name in (
        "evaluate_base.val.low",
        "evaluate_base.val.documents",
        "evaluate_base.val.unigram_bits_per_byte",
        "evaluate_base.window",
        "evaluate_chat.questions.known.questions",
        "evaluate_chat.questions.known.blind_exact_match_share",
        "train.steps",
    ):
        assert find(name) is None


def test_numbers_are_numbers_and_nothing_else() -> None:
    values = numbers({"a": {"b": 1, "c": "nan", "d": True, "e": "x", "f": None, "g": {"h": 2.5}}})
    assert math.isnan(values.pop("a.c")) and values == {"a.b": 1.0, "a.g.h": 2.5}
