"""Two and three processes end where one ends: in the weights, in saved states, and when they fail."""

import json
import os
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import ranks
import tiny
import torch
from ranks import runtime, train, write_talks
from safetensors.torch import load_file
from torch import Tensor

from sifirdan import distributed, runs, torchrun
from sifirdan.distributed import ALONE, World
from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.model.checkpoint import weights_of
from sifirdan.training import parts, session

WAYS = ["ddp-muon", "fsdp-muon", "ddp-adamw", "fsdp-adamw"]


class Recorded:
    """Stands for one of two processes: what it says to the others is nothing."""

    def __init__(self, rank: int, size: int = 2) -> None:
        self.rank, self.size, self.is_first, self.is_sharded = rank, size, rank == 0, False


def test_alone_nothing_is_wrapped_shared_or_asked() -> None:
    model, loss = torch.nn.Linear(2, 2), lambda: torch.zeros(())
    assert ALONE.wrap(model, loss, 4) is loss and ALONE.whole(model) is model
    total = torch.ones(())
    assert ALONE.sums(total, 3) == (total, 3) and ALONE.sums(total, 3)[0] is total
    assert ALONE.facts == {} and ALONE.any(True) and not ALONE.any(False)
    assert distributed.current(runtime()) is ALONE
    weight = torch.ones(3)
    assert distributed.local(weight) is weight and distributed.full(weight) is weight


def test_a_step_that_cannot_be_shared_is_refused_in_words() -> None:
    assert World(1, 3).share(12) == 4
    with pytest.raises(ConfigError, match=r"(?s)16 sequences.*3 processes.*PET_NPROC_PER_NODE"):
        World(1, 3).share(16)


@pytest.mark.parametrize("size", [2, 3])
def test_parts_of_any_number_of_processes_make_the_whole(tmp_path: Path, size: int) -> None:
    tensors = {
        "a": torch.arange(14.0).view(7, 2), "short": torch.arange(2), "0.0.step": torch.tensor(5.0),
    }  # fmt: skip
    for rank in range(size):
        own = {"random.cpu": torch.tensor([rank])}
        parts.write(tmp_path / "w.safetensors", tensors | own, Recorded(rank, size))
    for reader in (ALONE, World(1, size), World(4, 5)):
        found = parts.read(tmp_path / "w.safetensors", size, lambda _: None, reader)
        own = found.pop("random.cpu", None)
        assert (own is not None and int(own)) == (reader.size == size)
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    listed = tmp_path / f"w-2-of-{size}.json"
    content = json.loads(listed.read_text(encoding="utf-8"))
    del content["rows"]["a"]
    listed.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match="a: rows 3 to 6|a: rows 4 to 7"):
        parts.read(tmp_path / "w.safetensors", size, lambda _: None, ALONE)


def test_only_the_number_of_processes_may_differ_between_a_state_and_its_run() -> None:
    alone = {"a": 1, "runtime": {"micro_batch": 8, "threads": 2, "device": "cpu"}}
    pair = {
        "a": 1,
        "runtime": {"micro_batch": 4, "threads": 1, "device": "cpu", "processes": 2, "parallel": "ddp"},
    }  # fmt: skip
    assert parts.differs_in_processes_only(alone, pair)
    assert not parts.differs_in_processes_only(alone, alone | {"a": 2})
    assert not parts.differs_in_processes_only(alone, pair | {"a": 2})
    other_threads = alone | {"runtime": alone["runtime"] | {"threads": 1}}
    assert not parts.differs_in_processes_only(alone, other_threads)


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        ({}, False), ({"PET_NPROC_PER_NODE": "1"}, False), ({"PET_NPROC_PER_NODE": "8"}, True),
        ({"PET_NPROC_PER_NODE": ""}, False),
        ({"PET_NNODES": "2"}, True), ({"PET_NPROC_PER_NODE": "2", "TORCHELASTIC_RUN_ID": "x"}, False),
    ],
)  # fmt: skip
def test_the_environment_asks_for_processes(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str], asked: bool
) -> None:
    for name in ("PET_NPROC_PER_NODE", "PET_NNODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert torchrun.is_asked_for() is asked


@pytest.mark.parametrize(
    ("name", "value"),
    [("PET_NPROC_PER_NODE", "iki"), ("PET_NNODES", "iki"), ("PET_NNODES", "0")],
)
def test_variables_that_torchrun_cannot_use_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"(?s)torchrun has failed.*{name}={value}"):
        torchrun.launch("stages.train")


def test_processes_that_would_train_something_else_are_refused_by_name() -> None:
    ours = {"code": {"x": "1"}, "runtime": {"threads": 4, "dtype": "bfloat16"}}

    def agreed(**theirs: object) -> dict[str, Any]:
        other = ours | {"runtime": ours["runtime"] | theirs}
        world = Namespace(size=2, gather_texts=lambda text: [text, json.dumps(other)])
        return session._same_for_all(ours, world)

    assert agreed() == agreed(threads=2) == ours
    with pytest.raises(
        ConfigError, match="(?s)process 1.*runtime.dtype is 'float32', was 'bfloat16'"
    ):
        agreed(dtype="float32")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells a process")
def test_processes_whose_torchrun_is_killed_are_asked_to_stop() -> None:
    process = (
        "import time; from sifirdan import torchrun; torchrun._end_with_torchrun(); "
        "print('ready', flush=True); time.sleep(20); print('still here')"
    )
    starter = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-c", starter, process], cwd=ranks.ROOT, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        started.kill()
        assert started.stdout.read() == ""  # to the end of both


def test_a_launched_stage_ends_with_the_code_of_its_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.distributed import run as starter
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    seen = []

    def end(error: Exception | None) -> int:
        def run(arguments: Namespace) -> None:
            seen.append(arguments)
            if error:
                raise error

        monkeypatch.setattr(starter, "run", run)
        return torchrun.launch("stages.train")

    failure = ProcessFailure(local_rank=1, pid=1, exitcode=-9, error_file="none")
    assert end(None) == 0 and end(ChildFailedError("train", {1: failure})) == 137
    assert end(SignalException("asked", signal.SIGTERM)) == 130
    assert (seen[0].nproc_per_node, seen[0].training_script) == ("2", "stages.train")
    assert seen[0].module and seen[0].standalone
    monkeypatch.setenv("PET_NNODES", "2")
    assert end(None) == 0 and not seen[-1].standalone and seen[-1].nnodes == "2"


def test_torchrun_leaves_a_hangup_ignored_where_nohup_did(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed import run as starter

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    seen: list[str] = []
    monkeypatch.setattr(starter, "run", lambda given: seen.append(given.signals_to_handle))
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(signal.SIGHUP, handler)
            assert torchrun.launch("stages.train") == 0
        monkeypatch.setenv("PET_SIGNALS_TO_HANDLE", "SIGTERM")
        assert torchrun.launch("stages.train") == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == ["SIGTERM,SIGINT,SIGHUP,SIGQUIT", "SIGTERM,SIGINT,SIGQUIT", "SIGTERM"]


def start(size: int, job: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A job of ranks.py in `size` processes; what they say is kept as well."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*command, str(size), str(Path(ranks.__file__)), job, str(folder)],
        cwd=ranks.ROOT, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ranks.ROOT)},
        capture_output=True, encoding="utf-8", timeout=300,
    )  # fmt: skip
    (folder / f"{job}.log").write_text(done.stderr, encoding="utf-8")
    return done


def ways_of(name: str) -> dict[str, object]:
    optim = name.split("-")[-1]
    return {"optim": optim, "tied": optim == "adamw"}


def weights(file: Path) -> dict[str, Tensor]:
    return load_file(file)


def close(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Equal to 1e-10, in float64."""
    assert left.keys() == right.keys() and all(x.dtype == torch.float64 for x in left.values())
    return all(torch.allclose(left[name], right[name], rtol=0, atol=1e-10) for name in left)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one, two and three processes have trained. Of each run alone the first state is kept for two
    processes to continue, and of each run of two for three and for one."""
    folder = tmp_path_factory.mktemp("ranks")
    write_talks(folder / "talks")
    for name in ("muon", "adamw"):
        model, points, _ = train(folder / "talks", folder / name, **ways_of(name))
        ranks.save(folder, f"{name}-alone", model)
        (folder / f"{name}-alone.json").write_text(json.dumps(points), encoding="utf-8")
        forget_last(folder / name)
    shutil.copytree(folder / "muon", folder / "kept")
    for name in ranks.FROM_ONE:
        shutil.copytree(folder / name.split("-")[1], folder / "alone" / name)
    done = start(2, "many_ways", folder)
    assert done.returncode and (folder / "said.json").exists(), done.stderr
    for name in WAYS:
        forget_last(folder / "stores" / name)
        shutil.copytree(folder / "stores" / name, folder / "of-two" / name)
    shutil.copytree(folder / "stores/fsdp-muon", folder / "untouched")
    done = start(3, "three", folder)
    assert done.returncode and (folder / "resumed.safetensors").exists(), done.stderr
    return folder


def forget_last(store: Path) -> None:
    first, last = sorted(store.glob("*/step-*"))
    assert (first.name, last.name) == ("step-00000005", "step-00000010")
    shutil.rmtree(last)


def said_by_two(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "said.json").read_text(encoding="utf-8")))


def alone(folder: Path, name: str) -> dict[str, Tensor]:
    return weights(folder / f"{name.split('-')[1]}-alone.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_two_processes_end_with_the_weights_of_one(folder: Path, name: str) -> None:
    assert close(weights(folder / f"{name}.safetensors"), alone(folder, name))
    points = (folder / f"{name.split('-')[1]}-alone.json").read_text(encoding="utf-8")
    for ours, theirs in zip(said_by_two(folder)[name], json.loads(points), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)  # loss, norm and validation of all ranks


@pytest.mark.slow
@pytest.mark.parametrize("name", ranks.FROM_ONE)
def test_two_processes_continue_a_state_of_one(folder: Path, name: str) -> None:
    said = said_by_two(folder)[f"{name}-from-1"]
    assert said == [["resumed 5"], {"earlier_processes": ["1 process"]}]
    assert close(weights(folder / f"{name}-from-1.safetensors"), alone(folder, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_one_and_three_processes_continue_a_state_of_two(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    log: list[str] = []
    model, _, resume = train(
        folder / "talks", folder / "stores" / name, log=log, **ways_of(name)
    )  # fmt: skip
    two = f"2 processes ({name.split('-')[0]})"
    assert log == ["resumed 5"] and resume.facts == {"earlier_processes": [two]}
    assert (
        caplog.text.count(f"was saved by {two} and goes on with 1 process") == 1
        and "holds another run" not in caplog.text
    )
    assert close(weights_of(model), alone(folder, name))
    if name == "fsdp-muon":
        assert close(weights(folder / f"{name}-from-2.safetensors"), alone(folder, name))


@pytest.mark.slow
def test_R_13_a_state_of_two_is_whole_only_with_all_parts(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = next((folder / "untouched").glob("*/step-00000005"))
    names = {path.name for path in state.iterdir()}
    assert {"weights-1-of-2.safetensors", "weights-2-of-2.json", "state.json"} < names
    for name in ("weights-2-of-2.safetensors", "optimizer-1-of-2.json"):
        store = shutil.copytree(folder / "untouched", tmp_path / name)
        next(store.glob("*/step-00000005")).joinpath(name).unlink()
        log: list[str] = []
        with pytest.raises(ZeroDivisionError):
            train(folder / "talks", store, log=log, stop_at=1)
        assert not log and f"skipping step-00000005: {name} is missing" in caplog.text


@pytest.mark.slow
def test_R_01_three_processes_resume_bit_for_bit(folder: Path) -> None:
    """In fp32 and of three: there another order of summation would show."""
    left_alone = weights(folder / "left-alone.safetensors")
    resumed = weights(folder / "resumed.safetensors")
    assert all(torch.equal(left_alone[name], resumed[name]) for name in left_alone)


@pytest.mark.slow
def test_one_process_that_is_asked_to_stop_stops_all_in_one_step(folder: Path) -> None:
    state = "stopped with ['step-00000005', 'step-00000007']"
    assert said_by_two(folder)["asked"] == [state, state]
    assert close(weights(folder / "fsdp-muon-asked.safetensors"), alone(folder, "fsdp-muon"))


@pytest.mark.slow
def test_R_07_processes_agree_and_stop_together(folder: Path) -> None:
    said = said_by_two(folder)
    assert said["texts"] == ["", "İstanbul’da"] and said["any"] == [True, False]
    assert said["agree"] == {"a": 0.0, "b": 0.1} and said["paths"] == ["of-0", "of-0"]
    first, second = said["not finite"]
    assert first == second and "step 1: the gradient of batch 0 to 1 is not finite" in first
    assert "process 0: each of its 6 windows, from 0 to 8, by itself is finite" in first
    assert "process 1: windows 3, 4, 5, 9, 10, 11, of the documents" in first
    assert said["damaged"] == ["part 2 is damaged"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_best_weights_outlive_a_kill_and_are_those_that_process_0_measured(
    folder: Path, parallel: str
) -> None:
    assert said_by_two(folder)["best"] == [["5", "5"]] * 2
    state = next((folder / "kept").glob("*/step-00000005"))
    best = weights(folder / f"{parallel}-best.safetensors")
    assert close(best, weights(state / "weights.safetensors"))


@pytest.mark.slow
def test_minutes_that_are_over_for_one_process_are_over_for_all(folder: Path) -> None:
    assert said_by_two(folder)["out of time"] == ["max_minutes after 3"] * 2


@pytest.mark.slow
def test_R_11_one_that_fails_or_is_killed_ends_all_in_seconds(folder: Path) -> None:
    """Not after torchrun's own 30 seconds of patience, by which it would kill without a word."""
    for job in ("many_ways", "three"):
        said = (folder / f"{job}.log").read_text(encoding="utf-8")
        assert "another process of this run has ended" in said
        if job == "many_ways":
            assert "process 1: DataError: a shard is damaged" in said
        assert "forcefully exiting" not in said
    log: list[str] = []
    model, _, resume = train(folder / "talks", folder / "killed", log=log)
    assert log == ["resumed 5"] and resume.facts == {"earlier_processes": ["3 processes (ddp)"]}
    assert close(weights_of(model), alone(folder, "ddp-muon"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny project whose base model two processes have trained again."""
    folder = tmp_path_factory.mktemp("shared")
    project = tiny.copy(tiny.finished(tmp_path_factory), folder)
    tiny.edit_params(project, lambda params: params["runtime"].update(parallel="fsdp"))
    done = tiny.repro(project, "-f", "-s", "train", PET_NPROC_PER_NODE="2")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("processes: 2 share each step") == 1  # process 0 alone speaks
    return project


@pytest.mark.slow
def test_dvc_sees_the_same_command_and_a_plain_model(
    shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = shared
    alone_path = tiny.finished(tmp_path_factory).path
    cmd = "  train:\n    cmd: python -m stages.train\n"
    assert cmd in (project / "dvc.lock").read_text(encoding="utf-8")
    manifest = runs.open_folder(project / "models/base", "model", made_by="train")
    facts = manifest.params["runtime"]
    assert facts["processes"] == 2 and facts["parallel"] == "fsdp"
    assert not tiny.leftovers(project) and not list((project / "models/.resume").glob("train/*"))
    ours, theirs = (
        load_file(place / "models/base/model.safetensors") for place in (project, alone_path)
    )
    assert {n: w.shape for n, w in ours.items()} == {n: w.shape for n, w in theirs.items()}
    figures = [
        json.loads((place / "metrics/train.json").read_text(encoding="utf-8"))["val_bits_per_byte"]
        for place in (project, alone_path)
    ]
    assert figures[0] == pytest.approx(figures[1], rel=0.02)
