"""Tokens a second of one training step, four ways, side by side in one run.

    python -m bench.train_step [--rounds 5] [--steps 6]

Eager fp32, eager bf16, compiled fp32, compiled bf16 take turns on the default model of params.yaml
with random tokens; printed is the median of each and its ratio to eager fp32. Nothing else may run
on the machine meanwhile: a busy neighbour costs far more than its share.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.device import pick_dtype, prepare
from sifirdan.model.transformer import ModelConfig, Transformer
from sifirdan.runtime import Runtime
from sifirdan.training.losses import cross_entropy_sum
from sifirdan.training.optim import build_optimizers
from stages.train import Params

VOCAB_SIZE = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    params = load_params(PARAMS_FILE, "train", Params)
    device = prepare(load_params(PARAMS_FILE, "runtime", Runtime))
    fast = pick_dtype("auto", device)
    compiled = torch.compile(cross_entropy_sum, dynamic=False, fullgraph=True)
    ways: dict[str, tuple[Callable[..., Tensor], torch.dtype]] = {
        "eager fp32": (cross_entropy_sum, torch.float32),
        f"eager {fast}": (cross_entropy_sum, fast),
        "compiled fp32": (compiled, torch.float32),
        f"compiled {fast}": (compiled, fast),
    }
    step = make_step(params, device, fast)
    for way in ways.values():
        step(*way)  # compiles and warms up
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            for _ in range(arguments.steps):
                step(*way)
            seconds = time.perf_counter() - start
            speeds[name].append(arguments.steps * params.batch_tokens / seconds)
    base = statistics.median(speeds["eager fp32"])
    print(f"device {device.type}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for name, values in speeds.items():
        median = statistics.median(values)
        print(
            f"{name:24} {median:8.0f} tokens/s  {median / base:5.2f}x  ({min(values):.0f} to {max(values):.0f})"
        )


def make_step(
    params: Params, device: torch.device, fast: torch.dtype
) -> Callable[[Callable[..., Tensor], torch.dtype], None]:
    """One whole optimiser step on a fixed batch, by the loss function and type given; Muon computes
    in `fast` each time."""
    model = Transformer(ModelConfig(VOCAB_SIZE, params.context_length, params.model))
    model.initialise(torch.Generator().manual_seed(params.seed))
    model.to(device)
    optimizers = build_optimizers(model, params.optimizer, fast)
    rows = params.batch_tokens // params.context_length
    ids = torch.randint(0, VOCAB_SIZE, (rows, params.context_length + 1), device=device)
    positions = torch.arange(params.context_length, device=device)[None]

    def step(loss_of: Callable[..., Tensor], dtype: torch.dtype) -> None:
        loss = loss_of(
            model, model.embed(ids[:, :-1], dtype), ids[:, 1:].contiguous(), positions, None
        )
        (loss / params.batch_tokens).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        float(loss)  # waits for the device

    return step


if __name__ == "__main__":
    main()
