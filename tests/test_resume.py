"""Saved states: whole or not there after any fault of a save, and never of another run."""

import errno
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import tiny_model
from safetensors.torch import load_file, save_file
from test_training import OPTIM, data, run, same, settings

from sifirdan import runs
from sifirdan.corpus import shards
from sifirdan.corpus.loader import Batches, Stream
from sifirdan.corpus.shards import Row, Shards
from sifirdan.distributed import ALONE
from sifirdan.errors import CheckpointError
from sifirdan.model.checkpoint import load_model, save_model
from sifirdan.model.transformer import Transformer
from sifirdan.training import loop, parts, resume, session
from sifirdan.training.changes import MAX_NAMES, describe_changes
from sifirdan.training.loop import fit
from sifirdan.training.optim import build_optimizers
from sifirdan.training.resume import ResumeStore, SavedState

__all__ = ["data"]  # a fixture
FILES = ("weights.safetensors", "optimizer.safetensors", "state.json")


def small() -> Transformer:
    """Written and hashed in a millisecond."""
    return tiny_model(
        60, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8,
    )  # fmt: skip


# each moment is a second's work; plain pytest takes some of them
STRIDES = pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the states of steps 8 and 12."""
    folder = tmp_path_factory.mktemp("states")
    rng = np.random.default_rng(5)
    rows = [Row([*rng.integers(4, 40, 1 + i % 30).tolist(), 2], f"d{i}", "s") for i in range(60)]
    shards.write(folder / "part-00000.arrow", rows, vocab_size=300)
    run(Shards(folder), folder / "store", model=small())
    return folder / "store"


@pytest.fixture
def store(template: Path, tmp_path: Path) -> ResumeStore:
    shutil.copytree(template, tmp_path / "store")
    return ResumeStore(tmp_path / "store", {"a": 1})


def load(store: ResumeStore) -> int | None:
    """The step that a new process would go on at."""
    model = small()
    found = store.load_newest(model, build_optimizers(model, OPTIM, torch.float32))
    return found.step if found else None


def save(store: ResumeStore, step: int) -> None:
    """The state that the store has, as that of another step."""
    model = small()
    optimizers = build_optimizers(model, OPTIM, torch.float32)
    found = store.load_newest(model, optimizers)
    assert found
    store.save(model, optimizers, replace(found, step=step))


def names(store: ResumeStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def damage(file: Path, how: str, marker: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (marker,))

    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif how == "bit":
        content[-20] ^= 1
        file.write_bytes(content)
    elif how == "pickle":
        file.write_bytes(pickle.dumps(Attack()))
    else:
        file.write_text(how, encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["missing", "cut", "bit", "pickle", "[]", "{}"])
def test_R_03_R_04_R_13_of_a_damaged_newest_state_the_file_is_named(
    store: ResumeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, how: str
) -> None:
    damage(store.folder / "step-00000012" / name, how, tmp_path / "marker")
    assert load(store) == 8
    assert f"resume: skipping step-00000012: {name}" in caplog.text
    assert not (tmp_path / "marker").exists()
    damage(store.folder / "step-00000008" / name, how, tmp_path / "marker")
    assert (
        load(store) is None and "no saved state of this run is whole (2 looked at)" in caplog.text
    )
    assert not (tmp_path / "marker").exists()


def test_R_03_a_digit_changed_in_the_curve_is_noticed(store: ResumeStore) -> None:
    file = store.folder / "step-00000012/state.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"step": 12', '"step": 13'), encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8"))["step"] == 13
    assert load(store) == 8


def failing(call: Callable[..., Any], calls: list[int], strike: Callable[[], None]) -> Any:
    """`call`, counted in `calls`; before and after it `strike` may end it."""

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        strike()
        result = call(*arguments, **named)
        calls.append(1)
        strike()
        return result

    return counted


def strike_at(calls: list[int], number: int, error: Callable[[], BaseException] = Killed) -> None:
    if len(calls) == number:
        raise error()


def fail_at(
    patch: pytest.MonkeyPatch, number: int, error: Callable[[], BaseException]
) -> list[int]:
    """Let the `number`-th moment before or after a system call of a save end it."""
    calls: list[int] = []
    strike = partial(strike_at, calls, number, error)
    patch.setattr(parts, "save_file", failing(save_file, calls, strike))
    for name in ("fsync", "rename", "replace", "mkdir"):
        patch.setattr(os, name, failing(getattr(os, name), calls, strike))
    return calls


@STRIDES
def test_R_03_killed_before_or_after_any_call_of_a_save_a_whole_state_is_left(
    store: ResumeStore, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    for number in range(1, 100, stride):
        with monkeypatch.context() as patch:
            calls = fail_at(patch, number, Killed)
            rmtree = failing(shutil.rmtree, calls, partial(strike_at, calls, number))
            patch.setattr(shutil, "rmtree", rmtree)
            try:
                save(store, 12 + number)
                break
            except Killed:
                pass
        assert load(store) in (12 + number, max(12, 12 + number - stride))
        save(store, 12 + number)
        assert len(names(store)) == 2, "nothing half-written stays"
    assert number > 25


@STRIDES
def test_R_03_a_full_disk_at_any_call_is_said_and_the_newest_state_stays(
    store: ResumeStore, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    def full() -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    refused = 0
    for number in range(1, 100, stride):
        with monkeypatch.context() as patch:
            calls = fail_at(patch, number, full)
            try:
                save(store, 12 + number)
            except CheckpointError as error:
                refused += 1
                assert "could not be saved: [Errno 28] No space left on device" in str(error)
                assert str(store.folder) in str(error) and "MB free there; free are" in str(error)
                assert f"it continues at step {load(store)}" in str(error)
        if len(calls) < number:
            break
        assert load(store) in (12 + number, max(12, 12 + number - stride))
        assert all(name.startswith("step-") for name in names(store))
        save(store, 12 + number)
    assert refused >= (number - 3) // stride >= 5, "mkdir of a folder that is there may fail"


def test_R_03_short_of_room_an_older_state_goes_but_never_the_last_whole_one(
    store: ResumeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def free_bytes(count_states: int) -> Callable[[object], SimpleNamespace]:
        """Room for one more only while fewer states than this lie there."""
        return lambda _: SimpleNamespace(free=10**9 if len(store._saved()) < count_states else 1000)

    monkeypatch.setattr(shutil, "disk_usage", free_bytes(2))
    save(store, 13)
    assert names(store) == ["step-00000012", "step-00000013"]
    assert "the disk is nearly full; step-00000008 had to go" in caplog.text
    monkeypatch.setattr(shutil, "disk_usage", free_bytes(0))
    with pytest.raises(CheckpointError, match=r"needed|MB free there; free are 0\.0 MB"):
        save(store, 14)
    assert load(store) == 13
    monkeypatch.setattr(shutil, "disk_usage", free_bytes(2))
    (store.folder / "step-00000014").mkdir()  # the newest is damaged: the one before must stay
    model = small()
    optimizers = build_optimizers(model, OPTIM, torch.float32)
    found = store.load_newest(model, optimizers)
    with pytest.raises(CheckpointError, match="it continues at step 13"):
        store.save(model, optimizers, replace(found, step=15))


def test_R_03_damaged_states_ahead_do_not_push_out_the_good_ones(store: ResumeStore) -> None:
    (store.folder / "step-00000012/state.json").unlink()
    shutil.copytree(store.folder / "step-00000012", store.folder / "step-00000016")
    save(store, 9)
    assert names(store) == ["step-00000008", "step-00000009"]
    for state in store.folder.iterdir():
        (state / "state.json").unlink()
    model = small()
    optimizers = build_optimizers(model, OPTIM, torch.float32)
    assert store.load_newest(model, optimizers) is None
    store.save(model, optimizers, SavedState(4, [], {}))
    assert names(store) == ["step-00000004"]


@pytest.mark.parametrize("part", ["random.cpu", "0.0.", "1.0."])
def test_R_13_a_whole_state_without_a_part_is_refused_by_name(
    store: ResumeStore, part: str
) -> None:
    folder = store.folder / "step-00000012"
    tensors = load_file(folder / "optimizer.safetensors")
    kept = {name: t.clone() for name, t in tensors.items() if not name.startswith(part)}
    assert len(kept) < len(tensors)
    rewrite(store, folder, "optimizer.safetensors", kept)
    words = "random.cpu is missing" if part == "random.cpu" else r"state of \d+ parameters"
    with pytest.raises(CheckpointError, match=f"optimizer.safetensors: (has )?{words}"):
        load(store)


def test_R_10_names_of_a_wrapped_model_are_refused_in_a_state(store: ResumeStore) -> None:
    folder = store.folder / "step-00000012"
    weights = load_file(folder / "weights.safetensors")
    wrapped = {f"_orig_mod.{name}": tensor.clone() for name, tensor in weights.items()}
    rewrite(store, folder, "weights.safetensors", wrapped)
    with pytest.raises(
        CheckpointError, match=r"missing \['lm_head.weight.*unexpected \['_orig_mod"
    ):
        load(store)


def rewrite(store: ResumeStore, folder: Path, name: str, tensors: dict[str, Any]) -> None:
    """Another content of a file, with the hashes to it."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    save_file(tensors, folder / name)
    content = SavedState(state["step"], state["points"], state["extra"])
    store._write_content(folder, content, resume._hashes(folder.glob("*.safetensors")))


@pytest.mark.slow
def test_R_10_a_state_of_a_compiled_run_is_one_of_the_plain_model(
    data: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced, wrapped and guarded as ever; only the generated code is left out, for its minute."""
    monkeypatch.setattr(loop.torch, "compile", partial(torch.compile, backend="eager"))
    compiled = settings(compiled=True)
    with pytest.raises(RuntimeError, match="killed"):
        run(data, tmp_path / "cut", setup=compiled, stop_at=9)
    state = max((tmp_path / "cut").glob("*/step-*"))
    assert load_file(state / "weights.safetensors").keys() == dict(tiny_model().state_dict()).keys()
    log: list = []
    model, _ = run(data, tmp_path / "cut", log=log)  # goes on uncompiled
    assert log[0] == "resumed 8"
    for name in ("base", "chat"):  # what evaluation, tuning, chat and export start from
        (tmp_path / name).mkdir()
        save_model(tmp_path / name, model, eos_ids=[2], pad_id=3)
        model = load_model(tmp_path / name)


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.slow)], ids=lambda n: f"{n} workers"
)
@pytest.mark.parametrize("every", [13, 31], ids=["mid-epoch", "at an epoch's end"])
def test_R_01_with_dropout_each_step_of_a_resumed_run_is_the_same(
    data: Shards, tmp_path: Path, every: int, workers: int
) -> None:
    """Dropout draws from torch's own generator, which state and loader must leave where it was."""
    windows = Stream(data, context_length=16, seed=1, sampling="epoch", eos_id=2)
    assert -(-windows.windows_per_epoch // 4) == 31
    setup = settings(40, checkpoint_every_steps=every, loader_workers=workers)

    def model() -> Any:
        torch.manual_seed(3)
        made = small()
        for block in made.model.layers:
            block.register_forward_hook(lambda m, _, out: F.dropout(out, 0.2, m.training))
        return made

    whole, points = run(data, tmp_path / "whole", setup=setup, model=model())
    with pytest.raises(RuntimeError, match="killed"):
        run(data, tmp_path / "cut", setup=setup, model=model(), stop_at=every + 2)
    log: list = []
    torch.manual_seed(99)
    resumed, resumed_points = run(data, tmp_path / "cut", setup=setup, model=model(), log=log)
    assert log[0] == f"resumed {every}" and len(points) == 40
    assert [p["loss"] for p in points] == [p["loss"] for p in resumed_points]
    assert same(whole, resumed) and points == resumed_points


def test_S_04_S_05_restarted_at_every_epoch_each_token_is_a_target_once_in_another_order(
    tmp_path: Path,
) -> None:
    """Three epochs of 20 windows, killed in the step after each epoch's end; ids are never twice the same."""
    (tmp_path / "tokens").mkdir()
    ids = iter(range(4, 400))
    rows = [Row([next(ids) for _ in range(16)], f"d{i}", "s") for i in range(20)]
    shards.write(tmp_path / "tokens/part-00000.arrow", rows, vocab_size=400)
    windows = Stream(
        Shards(tmp_path / "tokens"), context_length=16, seed=1, sampling="epoch", eos_id=2
    )

    def train(store: str, stop_at: int) -> dict[int, list[int]]:
        """Targets by the number of their step, of the steps that counted."""
        seen: dict[int, list[int]] = {}

        class Recorded(Batches):
            def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
                batch = super().__getitem__(number)
                seen[number] = batch["targets"].flatten().tolist()
                return batch

        def on_point(point: dict) -> None:
            if point["step"] == stop_at:
                raise RuntimeError("killed")

        model = tiny_model(400, num_layers=1)
        try:
            fit(
                model, build_optimizers(model, OPTIM, torch.float32), Recorded(windows, 4),
                settings(15, checkpoint_every_steps=5), ResumeStore(tmp_path / store, {}),
                validate=dict, on_resume=lambda _: None, on_point=on_point, extra={},
            )  # fmt: skip
        except RuntimeError:
            for lost in (stop_at - 1, stop_at):  # its step was not saved; the next was only read
                seen.pop(lost, None)
        return seen

    whole = train("whole", 0)
    parts = [train("cut", stop_at) for stop_at in (6, 11, 0)]
    assert [sorted(part) for part in parts] == [list(range(n, n + 5)) for n in (0, 5, 10)]
    orders = [[target for number in sorted(part) for target in part[number]] for part in parts]
    assert all(sorted(order) == list(range(4, 324)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert orders == [[t for n in range(e, e + 5) for t in whole[n]] for e in (0, 5, 10)]


def test_what_is_loaded_does_not_hold_the_file(store: ResumeStore) -> None:
    """Mapped memory would keep the room of a deleted state until the process ends."""
    model = small()
    optimizers = build_optimizers(model, OPTIM, torch.float32)
    store.load_newest(model, optimizers)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc")
    assert str(store.folder) not in maps.read_text(encoding="utf-8")


# Another run


def manifest(sha256: str) -> runs.Manifest:
    return runs.Manifest("x", {}, {}, {}, {}, {}, sha256)


def fingerprint(**changes: Any) -> dict[str, Any]:
    """As `train` makes it, with changes."""
    given: dict[str, Any] = {
        "inputs": {"tokens": manifest("t"), "tokenizer": manifest("z")},
        "params": {"seed": 1, "model": {"num_layers": 2}},
        "plan": session.Plan(4, 1, torch.float32, False),
        "device": torch.device("cpu"),
        "world": ALONE,
    }
    return session._fingerprint(**(given | changes))


KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "data": (
        {"inputs": {"tokens": manifest("T"), "tokenizer": manifest("z")}},
        "inputs.tokens is another\n", "dvc checkout",
    ),
    "tokenizer": (
        {"inputs": {"tokens": manifest("T"), "tokenizer": manifest("Z")}},
        "inputs.tokenizer is another; inputs.tokens is another\n", "dvc checkout",
    ),
    "params": (
        {"params": {"seed": 1, "model": {"num_layers": 3}}},
        "params.model.num_layers is 3, was 2\n", "params.yaml",
    ),
    "a key more": ({"params": {"seed": 1, "model": {"num_layers": 2}, "x": 0}}, "params.x is 0, was not there\n", "params.yaml"),
    "runtime": (
        {"plan": session.Plan(2, 2, torch.float32, True)},
        "runtime.compiled is True, was False; runtime.micro_batch is 2, was 4\n", "runtime",
    ),
    "device": ({"device": torch.device("meta")}, "runtime.device is 'meta', was 'cpu'\n", "runtime"),
    "code": ({}, "code.sifirdan.training.muon is another\n", "git"),
    "versions": ({}, "versions.torch is '0.1', was ", "install"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_another_runs_state_is_not_mixed_in_but_named_kept_and_found_again(
    data: Shards, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, template: Path, kind: str,
) -> None:  # fmt: skip
    changes, said, way_back = KINDS[kind]
    before = fingerprint()
    states = tmp_path / "store"
    old = ResumeStore(states, before)
    shutil.copytree(next(template.iterdir()), old.folder)
    for state in old.folder.iterdir():
        hashes = resume._hashes(state.glob("*.safetensors"))
        old._write_content(state, SavedState(int(state.name[5:]), [], {}), hashes)
    if kind == "code":
        hashes = session.code_hashes() | {"sifirdan.training.muon": "other"}
        monkeypatch.setattr(session, "code_hashes", lambda: hashes)
    if kind == "versions":
        monkeypatch.setattr(runs, "versions", lambda *_: before["versions"] | {"torch": "0.1"})
    other = ResumeStore(states, fingerprint(**changes))
    assert other.folder != old.folder
    assert load(other) is None
    assert (
        f"{old.folder} holds another run, at step 12; nothing of it is used, for\n  {said}"
        in caplog.text
    )
    assert f"rm -r {old.folder}" in caplog.text and way_back in caplog.text.split("to continue")[1]
    model = small()
    other.save(model, build_optimizers(model, OPTIM, torch.float32), SavedState(2, [], {}))
    other.mark_finished()
    other.clear()
    assert not other.folder.exists()
    caplog.clear()
    assert load(old) == 12 and not caplog.text, "an unfinished run outlives a finished one"
    old.mark_finished()
    old.clear()
    assert not states.exists()


def test_a_state_in_another_runs_folder_is_refused(store: ResumeStore) -> None:
    other = ResumeStore(store.stage_folder, {"a": 2})
    shutil.copytree(store.folder, other.folder)
    with pytest.raises(CheckpointError, match=r"holds the state of another run \(a is 2, was 1\)"):
        load(other)


def test_of_many_other_runs_two_are_described_and_empty_ones_go(
    store: ResumeStore, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b", "c", "d"):
        shutil.copytree(store.folder, store.stage_folder / name)
    (store.stage_folder / "empty/.step-00000004.partial").mkdir(parents=True)
    damage(store.stage_folder / "b/step-00000012/state.json", "[]", Path())
    new = ResumeStore(store.stage_folder, {"a": 3})
    assert load(new) is None
    assert caplog.text.count("holds another run") == 2 and "2 older runs, too" in caplog.text
    assert not (store.stage_folder / "empty").exists()


def test_long_lists_of_changes_are_cut() -> None:
    here = {"params": {f"k{n}": 1 for n in range(20)}}
    (line,) = describe_changes(here, {"params": {}})
    assert line.count("was not there") == MAX_NAMES and line.endswith(f"and {20 - MAX_NAMES} more")
    assert describe_changes(here, here) == []
    gone = describe_changes({"code": {}}, {"code": {"a": 1}})
    assert gone == ["code.a is gone"]


def test_damage_at_any_byte_of_the_small_files_is_noticed(store: ResumeStore) -> None:
    file = store.folder / "step-00000012/state.json"
    good, rng = file.read_bytes(), random.Random(1)
    for place in rng.sample(range(len(good)), 40):
        content = bytearray(good)
        content[place] ^= 1 << rng.randrange(7)
        if json_or_none(bytes(content)) == json.loads(good):
            continue  # between values, where it changes nothing
        file.write_bytes(content)
        with pytest.raises(resume.DamagedState):
            resume._read(file.parent)
    file.write_bytes(good)
    assert load(store) == 12


def json_or_none(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
