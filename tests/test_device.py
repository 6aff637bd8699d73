"""Device, precision and compiling follow what the machine really does."""

import json
from pathlib import Path

import pytest
import torch

from sifirdan import device as device_module
from sifirdan.device import pick_device, pick_dtype, prepare, should_compile
from sifirdan.doctor import examine
from sifirdan.errors import ConfigError
from sifirdan.runtime import Runtime
from sifirdan.training import plan as plan_module
from sifirdan.training.plan import make_plan
from sifirdan.training.session import save_curve

GOOD = {
    "device": "cpu", "threads": 1, "loader_workers": 0, "micro_batch": None, "compile": "off",
    "checkpoint_every_steps": 1, "parallel": "ddp", "corpus_workers": 1, "register_models": False,
    "gradient_checkpointing": False, "deterministic": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 0},
        {"loader_workers": -1},
        {"micro_batch": 0},
        {"checkpoint_every_steps": 0},
        {"corpus_workers": 0},
    ],
)
def test_impossible_runtime_is_refused(change: dict) -> None:
    with pytest.raises(ConfigError, match=f"runtime.{next(iter(change))}"):
        Runtime(**(GOOD | change))


def test_a_device_that_is_not_here_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(ConfigError, match="auto, cpu"):
        pick_device("cuda")
    with pytest.raises(ConfigError, match=r"--device is mars(?s:.*)auto, cpu(?s:.*)set --device"):
        pick_device("mars", "--device")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto").type == "cuda"


def test_R_12_bf16_only_where_it_is_real(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(device_module, "_has_real_bf16", lambda _: False)
    assert pick_dtype("auto", cpu) == torch.float32
    assert pick_dtype("bf16", cpu) == torch.float32 and "no fast bf16" in caplog.text
    monkeypatch.setattr(device_module, "_has_real_bf16", lambda _: True)
    assert pick_dtype("auto", cpu) == torch.bfloat16 and pick_dtype("fp32", cpu) == torch.float32
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))  # a T4 emulates bf16
    assert pick_dtype("auto", cuda) == torch.float32


def test_no_compiler_means_eager_and_one_line(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    caplog.set_level("INFO")
    assert not should_compile("off", torch.device("cpu"))
    monkeypatch.setattr(device_module.shutil, "which", lambda _: None)
    assert not should_compile("auto", torch.device("cpu"))
    assert caplog.text.count("no C++ compiler") == 1

    def broken(_: object) -> None:
        raise RuntimeError("kırık\nuzun")

    monkeypatch.setattr(device_module.shutil, "which", lambda _: "/x/c++")
    monkeypatch.setattr(torch, "compile", broken)
    assert not should_compile("on", torch.device("cpu"))
    assert "does not work here (kırık)" in caplog.text


def test_prepare_sets_threads() -> None:
    before = torch.get_num_threads()
    assert (
        prepare(Runtime(**(GOOD | {"threads": 1}))).type == "cpu" and torch.get_num_threads() == 1
    )
    torch.set_num_threads(before)


def test_micro_batches_divide_the_step() -> None:
    runtime = Runtime(**(GOOD | {"micro_batch": 3}))
    with pytest.raises(ConfigError, match="divisor of the 8"):
        make_plan(8, 10, "fp32", runtime, torch.device("cpu"))
    plan = make_plan(8, 10, "fp32", Runtime(**(GOOD | {"micro_batch": 2})), torch.device("cpu"))
    assert (plan.micro_batch, plan.accumulation) == (2, 4)
    assert plan.facts == {
        "micro_batch": 2,
        "dtype": "float32",
        "compiled": False,
        "logits_chunk": None,
        "gradient_checkpointing": False,
        "deterministic": False,
        "threads": torch.get_num_threads(),
    }


def test_a_short_run_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "should_compile", lambda *_: True)
    device = torch.device("cpu")
    for wanted, num_steps, compiled in (("auto", 499, False), ("auto", 500, True), ("on", 1, True)):
        plan = make_plan(8, num_steps, "fp32", Runtime(**(GOOD | {"compile": wanted})), device)
        assert plan.compiled is compiled


def test_curve_files_are_deterministic(tmp_path: Path) -> None:
    points = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "val": 0.5}]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        save_curve(tmp_path / name, points, {"loss": "loss", "val": "val"})
    for file in ("curve.jsonl", "curve.png"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    lines = (tmp_path / "a" / "curve.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == points


def test_doctor_names_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    missing = [finding for finding in findings if finding.needed and not finding.ok]
    assert ["no params.yaml" in finding.text for finding in missing] == [True]
    assert all(finding.todo for finding in missing)
    here = examine(Path(__file__).parent.parent)
    assert all(finding.ok for finding in here if finding.needed)
    assert any(finding.text.startswith("torch ") for finding in here)
