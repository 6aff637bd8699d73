"""The check of params.yaml that `make` runs before anything else."""

from pathlib import Path

import pytest

from sifirdan.errors import ConfigError
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
