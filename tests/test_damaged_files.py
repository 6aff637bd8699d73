"""JSON that somebody cut, saved in another encoding or edited: named in words, whoever reads it."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_report import METRICS, make_reports

from sifirdan.commands import comparing
from sifirdan.compare import revision_files
from sifirdan.compare.comparison import sample_texts
from sifirdan.compare.metrics_files import read_metrics
from sifirdan.compare.noise import load_noise
from sifirdan.compare.reference import load_reference
from sifirdan.errors import ConfigError, DataError
from sifirdan.json_files import loads, parse_lines, read_object
from sifirdan.track_record import read_curve
from stages import evaluate, report

DEEP = "[" * 100_000
HUGE = '{"val": {"bits_per_byte": ' + "9" * 400 + "}}"
BROKEN = ("{", "[1]", '"a"', "null", "[]", DEEP, HUGE, '{"a":' * 99 + "1" + "}" * 99)


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("content", [*BROKEN, "{}".encode("utf-16"), b"\xff\xfe{"])
def test_what_is_no_object_is_named_with_its_fault(tmp_path: Path, content: str | bytes) -> None:
    path = put(tmp_path / "a.json", content)
    with pytest.raises(DataError, match=r"(?s)a\.json: is damaged: .+what to do: this") as caught:
        read_object(path, todo="this")
    assert "Error" not in str(caught.value) and "None" not in str(caught.value)
    with pytest.raises(DataError, match="is missing"):
        read_object(tmp_path / "b.json", todo="this")


def test_a_line_is_named_and_what_is_whole_is_read(tmp_path: Path) -> None:
    assert parse_lines(b'{"a": 1}\n\n{"b": 2}\n', "x", todo="") == [{"a": 1}, {"b": 2}]
    for text in ('{"prompt": "a", "te', "[1]\n", "{}\n".encode("utf-16")):
        with pytest.raises(DataError, match="samples.jsonl:1: is damaged"):
            sample_texts(text, "samples.jsonl")
    assert loads('{"a": NaN, "b": [[1]]}')["b"] == [[1]]
    curve = put(tmp_path / "curve.jsonl", f'{{"step": 1, "loss": 2}}\n{DEEP}\n{HUGE}\n')
    assert read_curve(curve) == [(1, {"loss": 2.0})]


WHOLE: dict[str, Any] = {"name": "a", "params": {}, "metrics": {}, "hashes": {}}


@pytest.mark.parametrize(
    "content",
    [
        *BROKEN,
        "{}",
        json.dumps(WHOLE).encode("utf-16"),
        *(json.dumps(WHOLE | change) for change in (
            {"name": 3}, {"params": None}, {"params": []}, {"metrics": []}, {"metrics": {"train": 3}},
            {"hashes": {"data/raw": 5}}, {"hashes": {"data/raw": {}}},
        )),
    ],
)  # fmt: skip
def test_a_reference_of_any_other_shape_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = put(tmp_path / "run.json", content)
    with pytest.raises(
        DataError, match=r"(?s)run\.json: is damaged.*sifirdan reference .*git checkout"
    ):
        load_reference(path)  # fmt: skip


def test_noise_of_any_other_shape_is_refused(tmp_path: Path) -> None:
    whole: dict[str, Any] = {"params": {}, "seeds": [1, 2], "sigma": {}, "mean": {}}
    path = tmp_path / "noise.json"
    changes = ({"params": {"train.tokens": "x"}}, {"params": 1}, {"seeds": "ab"}, {"seeds": [1, "b"]})  # fmt: skip
    damages = [*BROKEN, *(json.dumps(whole | change) for change in changes)]
    for content in (*damages, json.dumps(whole).encode("utf-16")):
        with pytest.raises(DataError, match=r"(?s)noise\.json: is damaged.*sifirdan noise"):
            load_noise(put(path, content))
    assert load_noise(put(path, json.dumps(whole))) == whole


def changed(stage: str, place: str, value: Any) -> str:
    content: Any = json.loads((METRICS / f"{stage}.json").read_text(encoding="utf-8"))
    *path, last = place.split("/")
    inner = content
    for name in path:
        inner = inner[name]
    inner[last] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("stage", "content"),
    [
        *(("train", content) for content in (*BROKEN, "{}")),
        ("evaluate_base", '{"val": "x"}'), ("clean", '{"splits": 3}'),
        ("evaluate_base", changed("evaluate_base", "val/bits_per_byte", None)),
        ("evaluate_base", changed("evaluate_base", "val/text", 5)),
        ("evaluate_base", changed("evaluate_base", "tasks", [1])),
        ("evaluate_chat", changed("evaluate_chat", "val/lengths", "x")),
        ("evaluate_chat", changed("evaluate_chat", "questions/known", 3)),
        ("train", changed("train", "loss", "x")), ("finetune", changed("finetune", "steps", {"a": 1})),
    ],
)  # fmt: skip
def test_metrics_of_any_other_shape_are_refused(tmp_path: Path, stage: str, content: str) -> None:
    with pytest.raises(DataError, match=rf"(?s){stage}\.json: is damaged.*dvc repro {stage}"):
        read_metrics(put(tmp_path / f"{stage}.json", content))


def test_what_is_missing_in_the_metrics_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is damaged: parameters is not there"):
        read_metrics(put(tmp_path / "train.json", "{}"))


def test_the_metrics_of_this_release_are_read_and_nan_reaches_the_pages(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    for stage in report.STAGES:
        assert read_metrics(METRICS / f"{stage}.json")
        put(metrics / f"{stage}.json", (METRICS / f"{stage}.json").read_bytes())
    put(metrics / "evaluate_base.json", changed("evaluate_base", "val/bits_per_byte", "nan"))
    root = make_reports(tmp_path / "a")
    report.report(metrics, root, root / "models", tmp_path, root / "index", report.Params(1))
    assert "nan bits per byte on held-out text" in (root / "index/card.txt").read_text()


def test_damaged_numbers_of_the_base_model_are_named_when_forgetting_is_measured(
    tmp_path: Path,
) -> None:
    path, limit = tmp_path / "evaluate_base.json", SimpleNamespace(max_forgetting=1.0)
    mine = {"val": {"text": "a", "bits_per_byte": 2.5}}

    def forgetting(content: str | bytes) -> dict[str, Any]:
        return evaluate._forgetting(mine, put(path, content), limit)

    for content in (*BROKEN, '{"val": 3}', '{"val": {"text": "a", "bits_per_byte": "x"}}'):
        with pytest.raises(DataError, match=r"(?s)evaluate_base\.json: is damaged.*dvc repro"):
            forgetting(content)
    assert forgetting("{}") == forgetting('{"val": {"text": "b", "bits_per_byte": 2}}') == {}
    assert forgetting('{"val": {"text": "a", "bits_per_byte": 2}}')["rise"] == 0.5


@pytest.mark.parametrize(
    "lock",
    [{"stages": [1, 2]}, {"stages": {"train": 3}}, {"stages": {"a": {"outs": {"x": 1}}}},
     {"stages": {"a": {"outs": [{"path": "b", "md5": 5}]}}}, {"stages": {"a": {"params": {"params.yaml": 3}}}}],
)  # fmt: skip
def test_a_lock_that_dvc_did_not_write_is_refused(lock: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="(?s)dvc.lock: is not what DVC writes.*git checkout"):
        revision_files.locked_stages(lock, "dvc.lock")


def test_yaml_nested_too_deep_is_refused(tmp_path: Path) -> None:
    path, limit = put(tmp_path / "params.yaml", "a: " + "[" * 500), sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # Python's own; a compiler in this process may have raised it
    try:
        with pytest.raises(DataError, match="nested too deep"):
            revision_files.read_mapping(path)
    finally:
        sys.setrecursionlimit(limit)


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "dizin"
    folder.mkdir()
    put(tmp_path / "file", "x")
    for path in (folder, tmp_path / "file/a.html"):
        with pytest.raises(ConfigError, match="(?s)--out .*cannot be written.*compare.html"):
            comparing._write_page(path, "page")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dizin", "file"]
