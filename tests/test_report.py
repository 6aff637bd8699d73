"""The stage `report` on finished metrics: its pages, and the ways from the index to what is there, and only that."""

import json
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
            sample = {
                "prompt": "",
                "text": "Bir gün ığdır'da <b>kar</b> yağdı.",
                "temperature": 0.8,
                "stopped": True,
            }
            runs.write_text(output.path / "samples.jsonl", json.dumps(sample) + "\n")
    for name in others:
        runs.write_text(root / name, "")
    return root


def make_pages(root: Path, reference: Path) -> dict[str, str]:
    """The text of every page, by name."""
    metrics = report.report(
        METRICS, root, root / "models", reference, root / "index", report.Params(samples_on_card=1)
    )
    assert metrics["val_bits_per_byte"] > 0
    names = ("index", "base", "chat")
    return {name: (root / f"index/{name}.html").read_text(encoding="utf-8") for name in names}


def links(root: Path) -> list[str]:
    page = make_pages(root, root / "reference")["index"]
    assert "&lt;b&gt;kar" in page and "<b>kar" not in page
    found = [target for target in re.findall(r'href="([^"]+)"', page) if not target.startswith("#")]
    assert all((root / "index" / target).is_file() for target in found)
    return found


def test_the_index_links_to_what_is_there(tmp_path: Path) -> None:
    assert links(make_reports(tmp_path / "a")) == ["base.html", "chat.html"]
    more = make_reports(tmp_path / "b", "corpus/report.html", "train/curve.png")
    assert set(links(more)) == {
        "base.html", "chat.html", "../corpus/report.html", "../train/curve.png"
    }  # fmt: skip


def test_a_page_says_against_what(tmp_path: Path) -> None:
    root = make_reports(tmp_path / "a")
    alone = make_pages(root, tmp_path / "nothing")["base"]
    metrics = {name: json.loads((METRICS / f"{name}.json").read_text()) for name in report.STAGES}
    metrics["evaluate_base"]["val"]["bits_per_byte"] += 0.5
    reference = {"name": "dünkü koşu", "params": {}, "metrics": metrics, "hashes": {}}
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference/run.json").write_text(json.dumps(reference), encoding="utf-8")
    beside = make_pages(root, tmp_path / "reference")["base"]
    assert "dünkü koşu" in beside and "dünkü koşu" not in alone
    assert "better" in beside


def test_missing_metrics_are_named(tmp_path: Path) -> None:
    params = report.Params(samples_on_card=1)
    with pytest.raises(DataError, match="ingest.json: is missing"):
        report.report(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path / "index", params)
