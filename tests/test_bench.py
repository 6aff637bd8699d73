"""The benchmarks of training, in their smallest: they run to the end, and their yardsticks are right."""

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import tiny_model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # bench is not installed

from bench import matmul, turns
from bench.loader import FAR, JUMPS, MadeUpShards, jumps, show_rate
from bench.peers import plain_loop
from bench.processes import neighbours
from bench.train import default_setting, show_quality
from bench.train_sides import Setting, run_side
from sifirdan.corpus import shards
from sifirdan.corpus.loader import Stream
from sifirdan.corpus.shards import Row, Shards
from sifirdan.tokenizer import MODEL_FILE
from sifirdan.training.flops import flops_per_token

ROOT = Path(__file__).resolve().parent.parent


def run_bench(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{module}", *arguments],
        cwd=ROOT, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, model_bytes: bytes, texts: list[str], tokenizer) -> Path:
    """As much of a finished run as the benchmarks read."""
    (tmp_path / "models/tokenizer").mkdir(parents=True)
    (tmp_path / "models/tokenizer" / MODEL_FILE).write_bytes(model_bytes)
    for split, some in (("train", texts), ("val", texts[:20])):
        folder = tmp_path / "data/tokens" / split
        folder.mkdir(parents=True)
        rows = [
            Row(
                [*tokenizer.encode(text), tokenizer.eos_id],
                f"{split}{n}",
                "own",
                len(text.encode()),
            )
            for n, text in enumerate(some)
        ]
        shards.write(folder / "part-00000.arrow", rows, vocab_size=tokenizer.vocab_size)
    return tmp_path


def test_flops_are_six_a_weight_and_attention() -> None:
    model = tiny_model()
    block = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96  # q and o, k and v of half the heads, the MLP
    attention = 12 * 3 * 4 * 16 * 64
    assert flops_per_token(model) == 6 * (3 * block + 300 * 64) + attention
    products = sum(2 * m * k * n for m, k, n in matmul.shapes_of(model, 10))
    assert products == 10 * (flops_per_token(model) - attention)


def test_the_plain_model_has_as_many_weights_as_ours() -> None:
    model = tiny_model()
    shape = vars(model.config.shape) | {"vocab_size": 300, "context_length": 64}
    plain = plain_loop.build("llama", shape, seed=1)
    assert sum(p.numel() for p in plain.parameters()) == model.num_parameters()
    groups = [
        group for o in plain_loop.build_optimizers(plain, "muon", 3e-3) for group in o.param_groups
    ]
    owned = [id(p) for group in groups for p in group["params"]]
    assert len(owned) == len(set(owned)) == len(list(plain.parameters()))
    assert all(p.ndim == 2 for p in groups[0]["params"]) and len(groups[0]["params"]) == 3 * 7


def test_a_turn_ends_after_its_seconds_and_counts_its_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 10.0, 12.0, 14.0, 16.0, 16.0, 17.0])
    monkeypatch.setattr(turns.time, "perf_counter", lambda: next(clock))
    orders = [{"seconds": 5, "counts": True}, {"seconds": 0, "counts": False}]
    lines = "".join(json.dumps(order) + "\n" for order in orders)
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    gate = turns.Turns(budget=12)
    gate.step()  # the first order comes at 10.0
    (
        gate.step(),
        gate.step(),
        gate.step(),
    )  # the third step ends at 16.0, after more than five seconds
    assert gate.steps == 3 and gate.seconds == 6 and gate.progress() == 0.5
    with pytest.raises(turns.TimeUp):  # the second order is one step, which does not count
        gate.step()
    assert gate.steps == 3 and gate.seconds == 6
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(answer.pop("cpu_seconds") >= 0 for answer in answers)
    assert answers == [{"steps": 3, "seconds": 6.0}, {"steps": 1, "seconds": 1.0}]


def test_a_busy_neighbour_is_named(tmp_path: Path) -> None:
    shell = tmp_path / "oburcuk"
    shell.symlink_to("/bin/sh")
    busy = subprocess.Popen([shell, "-c", "while :; do :; done"])
    try:
        assert any(name.startswith("oburcuk ") for name in neighbours(0.7, root=10**9))
        assert not any(name.startswith("oburcuk") for name in neighbours(0.7))  # it is ours
    finally:
        busy.kill()
        busy.wait()


def test_a_jump_is_measured_where_it_says() -> None:
    windows = Stream(MadeUpShards(500), context_length=32, seed=1, sampling="epoch", eos_id=2)  # type: ignore[arg-type]
    asked: list[int] = []
    window = windows.window
    windows.window = lambda index: (asked.append(index), window(index))[1]  # type: ignore[method-assign]
    jumps(windows, 8, inside_an_epoch=True)
    assert len({index // windows.windows_per_epoch for index in asked}) == 1
    assert len(set(asked)) > 10 and min(asked) > 7 * FAR
    asked.clear()
    jumps(windows, 8, inside_an_epoch=False)
    assert len({index // windows.windows_per_epoch for index in asked}) == JUMPS + 1


class FakeSide:
    """A process that trains two steps a turn."""

    def __init__(self, _module: str, setting: dict) -> None:
        self.setting, self.turns = setting, 0

    def turn(self, seconds: float, *, counts: bool = True) -> dict:
        self.turns += counts
        return {"steps": 2, "seconds": max(seconds, 0.01), "cpu_seconds": 1.0}

    def end(self) -> dict:
        scores = {"adamw": 2.0, "muon": 1.6, "best": 1.2}
        return {"steps": 2 * self.turns, "bits_per_byte": scores[self.setting["optimizer"]]}


def setting(tokens: Path, **changes: object) -> Setting:
    data = {"tokens": str(tokens), "vocab_size": 800, "eos_id": 2}
    found = default_setting(ROOT / "presets/tiny.yaml", data, compiled=False)
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def test_the_table_of_quality(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.train.Side", FakeSide)
    monkeypatch.setattr("bench.train.say_whether_alone", lambda _: [])
    show_quality(setting(Path()), dict(plain_loop.FULL_RATES), ["llama"], 25.0, [1])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    lower = [row[-1] for row in rows if row[:1] == ["transformers"]]
    assert lower == ["40.0%", "25.0%"] and any(row[:2] == ["ours,", "best"] for row in rows)


def test_the_table_of_the_loader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    monkeypatch.setattr("bench.loader.Side", FakeSide)
    windows = Stream(
        Shards(project / "data/tokens/train"), context_length=32, seed=1, sampling="epoch", eos_id=2
    )
    show_rate(setting(project / "data/tokens"), windows, rounds=1, seconds=0.05)
    assert "times as fast; goal 50" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "best"},
        {"who": "plain", "architecture": "gpt2", "optimizer": "muon", "fast": False},
        {"who": "plain", "architecture": "llama", "optimizer": "adamw"},
    ],
    ids=["ours", "gpt2", "llama"],
)
def test_a_side_trains_in_its_turns_and_is_scored(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    project: Path,
    changes: dict,
) -> None:
    orders = [{"seconds": 0, "counts": False}, {"seconds": 0.3, "counts": True}, {"end": True}]
    lines = "".join(json.dumps(order) + "\n" for order in orders)
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    run_side(setting(project / "data/tokens", budget=0.3, scored=True, **changes))
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["steps"] >= 1 and answer["seconds"] >= 0.3 and 0 < answer["bits_per_byte"] < 8


@pytest.mark.slow
def test_the_table_of_speed() -> None:
    shown = run_bench(
        "train", "--params", str(ROOT / "presets/tiny.yaml"), "--eager", "--rounds", "1",
        "--seconds", "0.1", "--rows", "2", "--speed", "--architectures", "gpt2",
    )  # fmt: skip
    assert "ours, adamw" in shown and "eager fp32, 2 x 64" in shown and "goal 65 %" in shown
    assert "alone" in shown.lower()


@pytest.mark.slow
def test_the_gpu_bench_runs_dry(tmp_path: Path) -> None:
    """As without a finished run: with one, real trainings would take minutes."""
    done = subprocess.run(
        [ROOT / "bench/gpu.sh", "--dry-run", "--project", tmp_path], env=os.environ | {"PYTHON": sys.executable},
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tokens/s" in done.stdout and "the same bits" in done.stdout
    assert "it writes" in done.stdout and "FAILED" not in done.stdout
