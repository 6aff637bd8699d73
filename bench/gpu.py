"""Training on one data-centre GPU: what it reaches, and whether it is right. At most 8 minutes.

    bench/gpu.sh [--dry-run] [--project .] [--only speed resume logits characters ranks]

Each part is a process of its own with its own limit, so that one that fails leaves the others:

- speed: 124 M parameters, context 1,024, bf16, compiled, `fit` as the stage calls it, with Muon and
  with AdamW: tokens a second, utilisation against the rate of bf16 products measured in the same
  process (goal 50 %; formula in sifirdan/training/flops.py), peak memory;
- resume: in torch's deterministic mode a run killed by SIGKILL and continued ends with the same
  sha256 of its weights as one that never stopped;
- logits: of the same weights on the CPU and on the GPU;
- characters: a model of the sizes of nanoGPT's Shakespeare, on the public-domain documents of
  data/corpus, or, without a finished run, on the project's own small text in tests/data;
- ranks: where there are several GPUs and a finished run, the stage `train` over all of them, started
  as a user does, against the same on one.

`--dry-run` does the same on the CPU with tiny models, eager in fp32: its figures mean nothing.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench import matmul
from bench.gpu_checks import characters, logits, resume, resume_child
from bench.gpu_ranks import ranks
from bench.gpu_scale import DRY, NEVER, REAL, Scale, command, fit_settings, make_model, say, train
from bench.random_windows import RandomWindows
from bench.turns import TimeUp
from sifirdan.corpus.loader import Batches, Windows
from sifirdan.training.flops import flops_per_token

SECONDS = {"speed": 150, "resume": 90, "logits": 30, "characters": 90, "ranks": 110}  # limits
WARM_UP = 3  # steps before a speed counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--project", type=Path, default=Path(), help="folder of a finished run")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--part", choices=[*PARTS, "resume-child"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kill-at", type=int, default=NEVER, help=argparse.SUPPRESS)
    given = parser.parse_args()
    scale = DRY if given.dry_run else REAL
    if scale.device == "cuda" and not torch.cuda.is_available():
        print("not run: torch sees no CUDA device here (--dry-run tries it on the CPU)")
    elif given.part == "resume-child":
        resume_child(scale, given.folder, given.kill_at)
    elif given.part:
        PARTS[given.part](scale, given.project)
    else:
        run_parts(scale, given.only, given.project)


def run_parts(scale: Scale, names: list[str], project: Path) -> None:
    """Each part in a process of its own; ends with an error if one failed."""
    start, failed = time.perf_counter(), []
    name = torch.cuda.get_device_name() if scale.device == "cuda" else "the CPU (dry run)"
    print(f"{date.today()}, {name}, torch {torch.__version__}", flush=True)
    for part in names:
        print(f"\n{part}", flush=True)
        if scale is DRY:  # nothing to shield, and nine processes would cost a minute
            PARTS[part](scale, project)
            continue
        child = command(scale, "--part", part, "--project", str(project))
        try:
            code = subprocess.run(child, timeout=SECONDS[part]).returncode
        except subprocess.TimeoutExpired:
            code = f"no end within {SECONDS[part]} s"
        if code != 0:
            print(f"  FAILED: {code}", flush=True)
            failed.append(part)
    print(f"\n{time.perf_counter() - start:.0f} s")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


# Speed


class TimedBatches(Batches):
    """Batches that note when each step begins, and end training after some seconds of steps."""

    def __init__(self, windows: Windows, rows: int, accumulation: int, seconds: float) -> None:
        super().__init__(windows, rows)
        self.accumulation, self.seconds, self.starts = accumulation, seconds, []  # type: ignore[var-annotated]

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        if number % self.accumulation == 0:
            self.starts.append(time.perf_counter())
            if len(self.starts) > WARM_UP + 2 and self.spent() > self.seconds:
                raise TimeUp
        return super().__getitem__(number)

    def spent(self) -> float:
        return self.starts[-1] - self.starts[WARM_UP]

    def step_seconds(self) -> list[float]:
        return list(np.diff(self.starts[WARM_UP:]))


def speed(scale: Scale, _project: Path) -> None:
    device = torch.device(scale.device)
    product = matmul.rate([(scale.square,) * 3] * 10, scale.dtype, device, scale.speed_seconds / 10)
    say(f"{product / 1e12:.3f} TFLOP/s in products of {scale.square} squared, {scale.dtype}")
    for optimizer in ("muon", "adamw"):
        model = make_model(scale, scale.vocab_size, scale.context_length, scale.sizes)
        if optimizer == "muon":
            say(
                f"{model.num_parameters() / 1e6:.1f} M parameters, context {scale.context_length}, "
                f"{flops_per_token(model) / 1e6:.0f} MFLOP a token"
            )
        rows = _rows_that_fit(scale)
        accumulation = max(1, scale.step_tokens // (rows * scale.context_length))
        batches = TimedBatches(
            RandomWindows(scale.vocab_size, scale.context_length), rows, accumulation,
            scale.speed_seconds,
        )  # fmt: skip
        settings = fit_settings(scale, NEVER, accumulation=accumulation)
        with contextlib.suppress(TimeUp):
            train(model, batches, settings, optimizer=optimizer)
        seconds = batches.step_seconds()
        tokens = rows * accumulation * scale.context_length
        rate = tokens / statistics.median(seconds)
        memory = torch.cuda.max_memory_allocated() / 1e9 if scale.device == "cuda" else float("nan")
        say(
            f"{optimizer}: {rate:.0f} tokens/s ({tokens / max(seconds):.0f} to {tokens / min(seconds):.0f}, "
            f"{len(seconds)} steps of {tokens}), utilisation "
            f"{rate * flops_per_token(model) / product:.1%} (goal 50 %), {rows} windows a "
            f"micro-batch, peak memory {memory:.1f} GB"
        )
        del model
        if scale.device == "cuda":
            torch.cuda.reset_peak_memory_stats()


def _rows_that_fit(scale: Scale) -> int:
    """Windows a micro-batch: 32 where there are 60 GB, fewer below."""
    if scale.device == "cpu":
        return 4
    memory = torch.cuda.get_device_properties(0).total_memory / 1e9
    return 32 if memory > 60 else 16 if memory > 30 else 8


PARTS = {
    "speed": speed,
    "resume": resume,
    "logits": logits,
    "characters": characters,
    "ranks": ranks,
}

if __name__ == "__main__":
    main()
