"""The part `ranks` of bench/gpu.py: the stage `train` over several GPUs against the same on one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import yaml

from bench.gpu_scale import DRY, Scale, say
from sifirdan.config import PARAMS_FILE, read_yaml

STEPS = 60
TOLERANCE = 0.02  # bits per byte: the two runs see the same batches and differ by rounding only
INPUTS = ("data/tokens", "models/tokenizer")


def ranks(scale: Scale, project: Path) -> None:
    """A short run of the stage in one process and in one a GPU, started as a user does: by the variable
    that torchrun reads. A dry run has two processes on the CPU."""
    count = 2 if scale is DRY else torch.cuda.device_count()
    if count < 2:
        say(f"not run: {count} GPU here")
        return
    if not all((project / name).is_dir() for name in INPUTS):
        say(f"not run: no finished run in {project} (--project)")
        return
    scores = {}
    for processes in (1, count):
        with tempfile.TemporaryDirectory() as place:
            start = time.perf_counter()
            found = train_stage(scale, project, Path(place), processes)
            scores[processes] = found["val_bits_per_byte"]
            say(
                f"{processes} processes: {scores[processes]:.4f} bits a byte of val after {STEPS} steps, "
                f"{time.perf_counter() - start:.0f} s"
            )
    if not abs(scores[1] - scores[count]) <= TOLERANCE:
        sys.exit("they differ by more than rounding")


def train_stage(scale: Scale, project: Path, place: Path, processes: int) -> dict[str, float]:
    """What metrics/train.json says after a short run in `place`."""
    for name in INPUTS:
        shutil.copytree(project / name, place / name)
    params = read_yaml(PARAMS_FILE)
    batch = params["train"]["context_length"] * max(8, processes)
    params["train"] |= {
        "batch_tokens": batch,
        "tokens": batch * STEPS,
        "val_every_tokens": batch * STEPS,
    }
    params["runtime"] |= {"device": scale.device, "compile": "off", "register_models": False}
    (place / PARAMS_FILE).write_text(
        yaml.safe_dump(params, allow_unicode=True, sort_keys=False), encoding="utf-8"
    )
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)
    environment = {"PYTHONPATH": str(Path.cwd()), "PET_NPROC_PER_NODE": str(processes)}
    done = subprocess.run(
        [sys.executable, "-m", "stages.train"], cwd=place, env=os.environ | environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(done.stdout[-3000:])
    return json.loads((place / "metrics/train.json").read_text(encoding="utf-8"))
