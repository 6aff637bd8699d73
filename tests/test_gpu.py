"""What must hold on CUDA: `pytest -m gpu` on a machine that has it; skipped elsewhere. With
SIFIRDAN_GPU_TESTS=cpu the same tests run on the CPU, which only shows that they are whole."""

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import tiny_model

from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.loader import Batches
from sifirdan.device import should_compile
from sifirdan.generate import Sampling, generate
from sifirdan.model.checkpoint import weights_of
from sifirdan.model.transformer import Transformer, segment_mask
from sifirdan.training.loop import FitSettings, fit
from sifirdan.training.losses import cross_entropy_sum
from sifirdan.training.optim import OptimParams, Schedule, build_optimizers
from sifirdan.training.resume import ResumeStore
from stages.train import Params

ROOT = Path(__file__).resolve().parent.parent
STEPS = 12


@pytest.fixture
def device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if os.environ.get("SIFIRDAN_GPU_TESTS") == "cpu":
        return torch.device("cpu")
    pytest.skip("needs CUDA")


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Windows:
    """Window n is the same in every run."""

    def window(self, index: int) -> dict[str, np.ndarray]:
        ids = np.random.default_rng([3, index]).integers(0, 300, 33)
        return {"inputs": ids[:-1], "targets": ids[1:]}


class Stopping(Batches):
    """Batches of a process that dies before batch `stop_at`."""

    stop_at = STEPS

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        if number == self.stop_at:
            raise RuntimeError("killed")
        return super().__getitem__(number)


def optim(matrices: str) -> OptimParams:
    params = load_params(ROOT / PARAMS_FILE, "train", Params).optimizer
    rate = 0.02 if matrices == "muon" else 1e-3
    return dataclasses.replace(params, matrices=matrices, lr_matrices=rate)


def run(
    device: torch.device, store: Path, *, matrices: str = "muon", dtype: torch.dtype = torch.float32,
    stop_at: int = STEPS,
) -> tuple[Transformer, list[dict]]:  # fmt: skip
    model = tiny_model().to(device)
    batches = Stopping(Windows(), 4)
    batches.stop_at = stop_at
    settings = FitSettings(
        num_steps=STEPS, micro_batches_per_step=1, schedule=Schedule(0.1, 0.5, 0.1), max_grad_norm=1.0,
        dtype=dtype, compiled=False, eval_steps=frozenset(), checkpoint_every_steps=4,
        loader_workers=0,
    )  # fmt: skip
    points = fit(
        model, build_optimizers(model, optim(matrices), dtype), batches, settings,
        ResumeStore(store, {}), validate=dict, on_resume=lambda _: None, on_point=lambda _: None,
        extra={},
    )  # fmt: skip
    return model, points


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [False, True])
def test_logits_are_those_of_the_cpu(device: torch.device, masked: bool) -> None:
    model, ids = tiny_model(), torch.arange(120).reshape(2, 60) % 300
    mask = segment_mask(torch.arange(60)[None] // 20 + 1) if masked else None
    with torch.no_grad():
        expected = model(ids, mask=mask)
        model.to(device)
        there = None if mask is None else mask.to(device)
        found = model(ids.to(device), mask=there).cpu()
        rough = model(ids.to(device), mask=there, dtype=torch.bfloat16).float().cpu()
    assert float((found - expected).abs().max()) < 1e-3 * float(expected.std())
    assert float((rough - expected).abs().mean()) < 0.1 * float(expected.std())


@pytest.mark.gpu
def test_gradients_are_those_of_the_cpu(device: torch.device) -> None:
    ids = torch.arange(128).reshape(2, 64) * 7 % 300
    gradients = []
    for place in (torch.device("cpu"), device):
        model, there = tiny_model().to(place), ids.to(place)
        positions = torch.arange(64, device=place)[None]
        cross_entropy_sum(model, model.embed(there), there.roll(1, 1), positions, None).backward()
        gradients.append([parameter.grad.cpu() for parameter in model.parameters()])
    for expected, found in zip(*gradients, strict=True):
        assert float((found - expected).norm()) < 1e-4 * float(expected.norm())


@pytest.mark.gpu
@pytest.mark.parametrize("matrices", ["muon", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_R_01_interrupted_is_uninterrupted_in_deterministic_mode(
    device: torch.device, tmp_path: Path, deterministic: None, matrices: str, dtype: torch.dtype
) -> None:
    whole, points = run(device, tmp_path / "whole", matrices=matrices, dtype=dtype)
    for stop_at in (6, 9):
        with pytest.raises(RuntimeError, match="killed"):
            run(device, tmp_path / "cut", matrices=matrices, dtype=dtype, stop_at=stop_at)
    resumed, resumed_points = run(device, tmp_path / "cut", matrices=matrices, dtype=dtype)
    expected, found = weights_of(whole), weights_of(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert points == resumed_points


@pytest.mark.gpu
def test_one_compiled_step_gives_one_hash(device: torch.device, deterministic: None) -> None:
    if device.type == "cpu":  # tests/test_training.py has it
        loss_of = cross_entropy_sum
    else:
        if not should_compile("on", device):
            pytest.skip("torch.compile does not work here")
        loss_of = torch.compile(cross_entropy_sum, dynamic=False, fullgraph=True)
    model = tiny_model().to(device)
    ids = torch.arange(256, device=device).reshape(4, 64) % 300
    positions = torch.arange(64, device=device)[None]
    hashes = set()
    for _ in range(20):
        model.zero_grad()
        loss_of(model, model.embed(ids, torch.bfloat16), ids, positions, None).backward()
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.grad.cpu().numpy().tobytes())
        hashes.add(digest.hexdigest())
    assert len(hashes) == 1


@pytest.mark.gpu
def test_greedy_text_is_that_of_the_cpu(device: torch.device) -> None:
    model = tiny_model()
    prompts = [[5, 9, 200], [7], [3, 4, 5, 6, 8, 250]]
    settings = {"max_new_tokens": 20, "sampling": Sampling(0, 0, 1.0), "stop_ids": [2],
                "forbidden_ids": [0], "seed": 1}  # fmt: skip
    expected = generate(model, prompts, **settings)
    assert generate(model.to(device), prompts, **settings) == expected


@pytest.mark.slow
def test_the_gpu_tests_are_whole() -> None:
    """They run on the CPU where they are asked to."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        __file__,
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"SIFIRDAN_GPU_TESTS": "cpu"}, capture_output=True,
        encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.match(r"\.{5,}\s", done.stdout), done.stdout  # each ran, none was skipped
