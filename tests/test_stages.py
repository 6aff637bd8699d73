"""The check of params.yaml that `make` runs before anything else, and what a long stage says of its parts."""

import logging
import re
from pathlib import Path

import pytest

from sifirdan.errors import ConfigError
from stages import evaluate
from stages.__main__ import check

PARAMS = Path(__file__).parent.parent / "params.yaml"


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("\nfinetune:\n  seed: 1", "\nfinetune:\n  sed: 1", "finetune.sed"),
        ("\nreport:\n", "\nraport:\n", "'raport'"),
        ("device: auto", "device: gpu", "runtime.device"),
        ("weight_decay: 0.1", "weight_decay: -1.0", "optimizer.weight_decay"),
    ],
)
def test_a_slip_in_any_section_is_found_before_the_run(
    tmp_path: Path, old: str, new: str, place: str
) -> None:
    text = PARAMS.read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "params.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=place):
        check(tmp_path / "params.yaml")


def test_the_shipped_files_pass() -> None:
    for path in (PARAMS, *sorted((PARAMS.parent / "presets").glob("*.yaml"))):
        check(path)


def test_the_evaluation_says_each_part_and_what_comes_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = (*evaluate.SPLITS, "samples", "minimal pairs", "tasks", "questions")
    with caplog.at_level(logging.INFO):
        for part in parts:
            evaluate._begin(part, parts)
    assert caplog.messages[0] == "evaluate: val (1 of 7), then test"
    assert caplog.messages[-1] == "evaluate: questions (7 of 7), then the report"
    source = Path(evaluate.__file__).read_text(encoding="utf-8")
    called = set(re.findall(r'    _begin\("?([a-z ]+)"?, parts\)', source))
    assert called == {"split", *parts} - set(evaluate.SPLITS)  # none is silent
