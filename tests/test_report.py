"""The stage `report` on finished metrics: its page leads to the reports that are there, and only those."""

import re
from pathlib import Path

import pytest

from sifirdan import runs
from sifirdan.errors import DataError
from stages import report

METRICS = Path(__file__).parents[1] / "metrics"


def make_reports(root: Path, *others: str) -> Path:
    """The two evaluations, and other files that a page may link to."""
    for name in ("base", "chat"):
        folder = root / "evaluate" / name
        with runs.new_folder(folder, kind="evaluation", inputs={}, params={}) as output:
            sample = '{"prompt": "", "text": "Bir gün ığdır\'da <b>kar</b> yağdı."}\n'
            runs.write_text(output.path / "samples.jsonl", sample)
            runs.write_text(output.path / "report.md", "")
    for name in others:
        runs.write_text(root / name, "")
    return root


def links(root: Path) -> list[str]:
    metrics = report.report(METRICS, root, root / "index", report.Params(samples_on_card=1))
    assert metrics["val_bits_per_byte"] > 0
    page = (root / "index/index.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;kar" in page and "<b>kar" not in page
    found = re.findall(r'href="([^"]+)"', page)
    assert all((root / "index" / target).is_file() for target in found)
    return found


def test_the_page_links_to_what_is_there(tmp_path: Path) -> None:
    plain = links(make_reports(tmp_path / "a"))
    assert plain == ["../evaluate/base/report.md", "../evaluate/chat/report.md"]
    more = make_reports(tmp_path / "b", "corpus/report.html", "train/curve.png")
    assert links(more) == ["../corpus/report.html", *plain, "../train/curve.png"]


def test_missing_metrics_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ingest.json: is missing"):
        report.report(tmp_path, tmp_path, tmp_path / "index", report.Params(samples_on_card=1))
