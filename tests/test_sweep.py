"""Sweeps: what words mean, which settings are called better, and the real runs once."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny

from sifirdan.compare import sweep_runs
from sifirdan.compare.sweep import BASELINE, Row, Variant, cells, lines, record, standing, variants
from sifirdan.compare.sweep_runs import KEPT, Budget, Sweep, _Place, _Prepared
from sifirdan.config import read_yaml
from sifirdan.errors import ConfigError
from sifirdan.json_files import read_object
from sifirdan.pages.sweep_page import sweep_page
from stages.__main__ import check

PARAMS = {
    "train_tokenizer": {"vocab_size": 8192, "method": "bpe", "source_weights": {}, "seed": 1},
    "tokenize_corpus": {"max_shard_tokens": 5},
    "train": {
        "seed": 1, "tokens": 10, "context_length": 256, "document_mask": False, "patience": None,
        "model": {"num_layers": 4, "hidden_size": 256}, "optimizer": {"lr_head": 0.004},
    },
}  # fmt: skip


def names(*words: str) -> list[str]:
    return [variant.name for variant in variants(words, PARAMS)]


def test_a_word_is_a_variant_for_each_value_and_a_quoted_one_every_combination() -> None:
    assert names("train_tokenizer.vocab_size=4096,16384") == [
        BASELINE, "train_tokenizer.vocab_size=4096", "train_tokenizer.vocab_size=16384",
    ]  # fmt: skip
    found = variants(["train.model.num_layers=3,4 train.model.hidden_size=320"], PARAMS)
    assert [variant.changes for variant in found] == [
        {}, {"train.model.num_layers": 3, "train.model.hidden_size": 320},
        {"train.model.hidden_size": 320},  # 4 layers is what there is
    ]  # fmt: skip
    applied = found[1].applied(PARAMS)
    assert applied["train"]["model"] == {"num_layers": 3, "hidden_size": 320}
    assert PARAMS["train"]["model"] == {"num_layers": 4, "hidden_size": 256}
    typed = variants(["train.document_mask=true", "train.optimizer.lr_head=1e-3,0.01"], PARAMS)
    assert [[*variant.changes.values()] for variant in typed] == [[], [True], [0.001], [0.01]]


def test_what_is_there_already_and_what_comes_twice_is_tried_once() -> None:
    assert len(names("train.model.num_layers=4,3,3", "train.model.num_layers=3")) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to vary"),
        (["train.model.num_layer=3"], "did you mean train.model.num_layers"),
        (["evaluate.stride=64"], "a key of train_tokenizer, tokenize_corpus, train"),
        (["train.model=3"], "is no setting that can be varied"),
        (["train.model.num_layers"], "names no value"),
        (["train.model.num_layers="], "names no value"),
        (["train.model.num_layers=[1"], "is not YAML"),
        (["train.model.num_layers=[1],2"], "no list of values"),
        (["train.seed=1,2"], "set by the sweep itself"),
        (["train.tokens=100"], "--minutes"),
        (["train.model.num_layers=4"], "has already"),
        (["train.model.num_layers=3 train.model.num_layers=5"], "named twice"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        variants(words, PARAMS)


def row(name: str, *values: float, failure: str = "") -> Row:
    changes: Mapping[str, Any] = {"train.x": name} if name else {}
    curve = ((0.5, 2.0), (1.0, values[0] if values else 2.0))
    return Row(Variant(changes), values, curve, 1000, 0.1, 1.0, 7_000, failure)


def test_a_difference_counts_from_students_t_on() -> None:
    baseline = row("", 1.50, 1.51, 1.52)  # standard deviation 0.01
    limit = 2.776 * 0.01 * math.sqrt(2 / 3)  # 4 degrees of freedom
    for shift, word in ((-0.9, "within noise"), (-1.1, "better"), (0.9, "within noise"), (1.1, "worse")):  # fmt: skip
        other = row("a", *(value + shift * limit for value in baseline.values))
        found = standing(other, baseline)
        assert found.verdict == word and found.limit == pytest.approx(limit)
        assert found.difference == pytest.approx(shift * limit)


def test_table_record_and_page_tell_the_same() -> None:
    rows = [row("", 1.50, 1.51, 1.52), row("w", 1.7, 1.71, 1.72), row("b<c", 1.3, 1.31, 1.32), row("f", failure="it broke")]  # fmt: skip
    table = cells(rows)
    assert [line[4] for line in table] == ["", "better", "worse", "failed: it broke"]
    assert "1.5100 ± 0.01" in "\n".join(lines(rows))
    content = record(rows, [1, 2, 3])
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert [one.get("verdict") for one in content["rows"]] == ["", "worse", "better", None]
    page = sweep_page(rows, each="2 minutes", seeds=3)
    assert "Better: <code>train.x=b&lt;c</code>" in page and "0.2000 bits per byte below" in page
    assert "it broke" in page and "<script" not in page
    assert "Nothing tried is better" in sweep_page(rows[:2], each="1 epochs", seeds=3)


def test_a_plan_needs_seeds_and_a_length(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--seeds is 1"):
        sweep_runs.plan(tmp_path, num_seeds=1, budget=Budget(2.0))
    with pytest.raises(ConfigError, match="--minutes is 0"):
        sweep_runs.plan(tmp_path, num_seeds=2, budget=Budget(0.0))


def test_a_part_of_params_is_checked_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "part.yaml"
    path.write_text("train_tokenizer: {vocab_size: 3}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="train_tokenizer"):
        check(path, whole=False)
    path.write_text("tokenize_corpus: {max_shard_tokens: 1000}\n", encoding="utf-8")
    check(path, whole=False)
    with pytest.raises(ConfigError, match="is missing"):
        check(path)


def sweep(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sifirdan.cli", "sweep", *words],
        cwd=project, env=tiny.environment(project), capture_output=True, encoding="utf-8",
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.copy(tiny.finished(tmp_path_factory), tmp_path_factory.mktemp("sweep"))


@pytest.mark.slow
def test_a_vocabulary_sweep_from_one_command(project: Path) -> None:
    """Settings that need their own tokenizer, one that training refuses, and one that cannot be; then
    again with another seed: nothing is trained twice."""
    before = tiny.hashes(project)
    refused = sweep(project, "train_tokenizer.vocab_size=3,400")
    assert refused.returncode == 1 and "vocab_size" in refused.stderr
    assert "step " not in refused.stderr
    words = (
        "train_tokenizer.vocab_size=400", "train.context_length=51200 train.batch_tokens=51200",
        "--minutes", "0.005", "--seeds", "2",
    )  # fmt: skip
    done = sweep(project, *words)
    assert done.returncode == 0, done.stderr
    content = json.loads((project / "reports/sweep.json").read_text(encoding="utf-8"))
    baseline, vocabulary, broken = content["rows"]
    assert baseline["changes"] == {} and vocabulary["changes"]["train_tokenizer.vocab_size"] == 400
    assert "ended with exit code 1" in broken["failure"]
    assert "train.context_length is 51200" in done.stderr
    assert read_yaml(project / "params.yaml")["train_tokenizer"]["vocab_size"] == 700
    assert vocabulary["parameters"] < baseline["parameters"]
    for one in (baseline, vocabulary):
        assert len(one["val_bits_per_byte"]) == 2 and one["tokens"] > 0
        assert one["curve"][-1][1] == pytest.approx(sum(one["val_bits_per_byte"]) / 2)
    speeds = [read_object(file, todo="") for file in (project / KEPT).glob("*/speed.json")]
    assert sorted(one["measured"] for one in speeds) == ["alone", "beside the baseline"]
    assert tiny.hashes(project) == before and not tiny.leftovers(project)
    assert not list((project / KEPT).glob(".work-*"))
    again = sweep(project, words[0], *words[2:])
    assert again.returncode == 0 and again.stderr.count("kept from before") == 4
    assert "step " not in again.stderr and "making" not in again.stderr


def test_the_same_text_or_the_same_minutes_are_the_budget(tmp_path: Path) -> None:
    """Where only a rate changes, the baseline's number of tokens stands: nothing is measured again."""
    params = {"train": {"tokens": 5}}
    for budget, expected in (
        (Budget(epochs=0.3), {"epochs": 0.3}),
        (Budget(2.0), {"tokens": 7000}),
    ):
        place = _Place(Sweep(tmp_path, params, {}, (1, 2), budget), tmp_path)
        place.baseline_tokens = 7000
        rate = Variant({"train.optimizer.lr_head": 0.1})
        assert place._budget(rate, _Prepared(place, Variant({}), tmp_path)) == expected
