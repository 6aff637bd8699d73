"""Our training beside a plain loop over transformers' classes, in one run on the CPU.

    python -m bench.train [--project .]       both tables; an hour and a quarter
    python -m bench.train --speed             tokens a second and utilisation; minutes
    python -m bench.train --quality --minutes 8 --seeds 1 2 3     bits per byte, trained equally long
    python -m bench.train --profile           what our step spends its time on

Speed: the same architecture, tokens and AdamW on both sides. The plain loop (bench/peers) runs eager
in fp32, and with bf16 autocast and `torch.compile`, each with the best of three batch sizes; ours is
`fit` as the stage calls it. Every loop is a process of its own and they take turns; shown are medians
over the rounds, the range, and the median ratio of ours to the other within a round, by the clock and
by processor time (which hides waiting, and so most of what a busy neighbour does). Utilisation
divides the model's FLOPs (formula in sifirdan/training/flops.py) by the rate of bf16 products measured between
the turns: of large squares, and of the model's own shapes.

Quality: plain AdamW, plain Muon (`torch.optim.Muon`), both compiled in bf16, and ours as params.yaml
has it, from random weights for equally many minutes, compiling not counted; then bits per byte of all
of val by our evaluation. It needs the finished run in `--project`; speed alone makes up its tokens.
"""

import argparse
import dataclasses
import json
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import matmul
from bench.peers.plain_loop import FULL_RATES
from bench.processes import neighbours, say_whether_alone
from bench.train_sides import Setting, our_shape, profile, run_side
from bench.turns import Side
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus import shards
from sifirdan.corpus.shards import Row
from sifirdan.model.transformer import ModelConfig, Transformer
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.training.flops import flops_per_token
from stages.train import Params

ARCHITECTURES = ("llama", "gpt2")
SLICE_SECONDS = 10.0  # of a turn in the quality table
SQUARE = 2048
MADE_UP_VOCAB = 8192
PROFILE_LINES = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, default=Path(), help="folder of a finished run")
    parser.add_argument("--params", type=Path, default=PARAMS_FILE)
    parser.add_argument("--speed", action="store_true", help="only this table")
    parser.add_argument("--quality", action="store_true", help="only this table")
    parser.add_argument("--profile", action="store_true", help="only this")
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--rounds", type=int, default=5, help="of the speed table")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn in the speed table")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[4, 8, 16], help="the peer's batches"
    )
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="of each side in the quality table"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the quality table")
    parser.add_argument(
        "--eager", action="store_true", help="compile nothing: to try the bench out"
    )
    parser.add_argument("--side", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        run_side(Setting(**json.loads(given.side)))
        return
    every = not (given.speed or given.quality or given.profile)
    with tokens_of(given.project, need_text=every or given.quality) as data:
        common = default_setting(given.params, data, compiled=not given.eager)
        if every or given.speed:
            for architecture in given.architectures:
                show_speed(
                    dataclasses.replace(common, architecture=architecture),
                    given.rows, given.rounds, given.seconds,
                )  # fmt: skip
        if every or given.quality:
            plain = {name: getattr(given, f"{name}_lr") for name in FULL_RATES}
            show_quality(common, plain, given.architectures, given.minutes * 60, given.seeds)
        if given.profile:
            show_profile(common)


@contextmanager
def tokens_of(project: Path, *, need_text: bool) -> Iterator[dict[str, Any]]:
    """Where the tokens lie, and the tokenizer's numbers. Without a finished run, and where only speed
    is asked for, random ones."""
    folder, tokenizer = project / "data/tokens", project / "models/tokenizer"
    if (folder / "train").is_dir() and (tokenizer / MODEL_FILE).is_file():
        loaded = Tokenizer.load(tokenizer)
        yield {
            "tokens": str(folder), "vocab_size": loaded.vocab_size, "eos_id": loaded.eos_id
        }  # fmt: skip
        return
    if need_text:
        raise SystemExit(
            f"{project}: no data/tokens and models/tokenizer; give --project, or --speed"
        )
    print("no finished run here: random tokens")
    with tempfile.TemporaryDirectory() as made_up:
        (Path(made_up) / "train").mkdir()
        rng = np.random.default_rng(1)
        rows = (
            Row([*rng.integers(3, MADE_UP_VOCAB, 199).tolist(), 2], f"d{n}", "random")
            for n in range(2000)
        )
        shards.write(Path(made_up) / "train/part-00000.arrow", rows, vocab_size=MADE_UP_VOCAB)
        yield {"tokens": made_up, "vocab_size": MADE_UP_VOCAB, "eos_id": 2}


def default_setting(params: Path, data: dict[str, Any], *, compiled: bool) -> Setting:
    """Ours as Llama with AdamW, on what `tokens_of` gives."""
    train = load_params(params, "train", Params)
    return Setting(
        who="ours", architecture="llama", optimizer="adamw", lr=FULL_RATES["adamw"], fast=True, compiled=compiled,
        rows=train.batch_tokens // train.context_length, seed=1, budget=1e9, scored=False,
        params=str(params), **data,
    )  # fmt: skip


# Speed


def show_speed(ours: Setting, rows: list[int], rounds: int, seconds: float) -> None:
    """The table of one architecture."""
    context = load_params(Path(ours.params), "train", Params).context_length
    plain = [
        dataclasses.replace(ours, who="plain", fast=fast, rows=number)
        for fast in (False, True)
        for number in rows
    ]
    say_whether_alone("before")
    sides = [Side("bench.train", dataclasses.asdict(setting)) for setting in (ours, *plain)]
    for side in sides:  # compiles, then warms up
        side.turn(0, counts=False)
        side.turn(seconds / 2, counts=False)
    speeds: list[list[float]] = [[] for _ in sides]
    by_cpu: list[list[float]] = [[] for _ in sides]
    rates: list[tuple[float, float]] = []
    model, disturbed = _model(ours, context), 0
    for _ in range(rounds):
        disturbed += bool(neighbours(0.5))
        for place, side in enumerate(sides):
            done = side.turn(seconds)
            tokens = done["steps"] * side.setting["rows"] * context
            speeds[place].append(tokens / done["seconds"])
            by_cpu[place].append(tokens / done["cpu_seconds"])
        rates.append(_matmul_rates(model, ours.rows * context, seconds))
        print("  " + " ".join(f"{values[-1]:.0f}" for values in speeds) + " tokens/s", flush=True)
    for side in sides:
        side.end()
    say_whether_alone("after")
    print(f"before {disturbed} of {rounds} rounds something else was busy")
    _print_speed(ours, plain, speeds, by_cpu, context)
    _print_utilisation(model, statistics.median(speeds[0]), rates)


def _print_speed(
    ours: Setting,
    plain: list[Setting],
    speeds: list[list[float]],
    by_cpu: list[list[float]],
    context: int,
) -> None:
    print(
        f"\n{ours.architecture}, AdamW, {torch.get_num_threads()} threads, torch {torch.__version__}, "
        f"{len(speeds[0])} rounds in turns"
    )
    print(f"{'':64}{'tokens/s':>9}{'from':>7}{'to':>7}{'ours is':>9}{'by CPU':>9}")
    medians = [statistics.median(values) for values in speeds]
    for setting, values, cpu, median in zip((ours, *plain), speeds, by_cpu, medians, strict=True):
        alike = [m for s, m in zip(plain, medians[1:], strict=True) if s.fast == setting.fast]
        best = "  best" if setting.who == "plain" and median == max(alike) else ""
        ratio = statistics.median(a / b for a, b in zip(speeds[0], values, strict=True))
        cpu_ratio = statistics.median(a / b for a, b in zip(by_cpu[0], cpu, strict=True))
        name = f"{setting.name}, {setting.rows} x {context}"
        print(
            f"{name:64}{median:9.0f}{min(values):7.0f}{max(values):7.0f}{ratio:8.2f}x"
            f"{cpu_ratio:8.2f}x{best}"
        )
    print("goals: 2.0x the best eager fp32, 1.15x the best compiled")


def _model(setting: Setting, context: int) -> Transformer:
    shape = load_params(Path(setting.params), "train", Params).model
    return Transformer(
        ModelConfig(setting.vocab_size, context, our_shape(shape, setting.architecture))
    )


def _matmul_rates(model: Transformer, tokens: int, seconds: float) -> tuple[float, float]:
    """FLOP/s in bf16 of large squares, and of the model's own products, each for as long as a turn: some
    machines multiply several times faster for a second or two."""
    cpu = torch.device("cpu")
    return (
        matmul.rate([(SQUARE, SQUARE, SQUARE)], torch.bfloat16, cpu, seconds),
        matmul.rate(matmul.shapes_of(model, tokens), torch.bfloat16, cpu, seconds),
    )


def _print_utilisation(model: Transformer, speed: float, rates: list[tuple[float, float]]) -> None:
    flops = flops_per_token(model)
    print(f"ours: {flops / 1e6:.1f} MFLOP a token, {flops * speed / 1e9:.0f} GFLOP/s")
    names = (f"squares of {SQUARE}", "the model's own products")
    for name, values in zip(names, zip(*rates, strict=True), strict=True):
        median = statistics.median(values)
        print(
            f"  {flops * speed / median:4.0%} of the bf16 rate of {name}: {median / 1e9:.0f} GFLOP/s "
            f"({min(values) / 1e9:.0f} to {max(values) / 1e9:.0f}); goal 65 %"
        )


# Quality


def show_quality(
    common: Setting,
    plain_rates: dict[str, float],
    architectures: list[str],
    seconds: float,
    seeds: list[int],
) -> None:
    """Bits per byte of val after equally long training."""
    ours = dataclasses.replace(common, optimizer="best", budget=seconds, scored=True)
    settings = [
        *(
            dataclasses.replace(
                ours, who="plain", architecture=architecture, optimizer=optimizer, lr=lr
            )
            for architecture in architectures
            for optimizer, lr in plain_rates.items()
        ),
        ours,
    ]
    scores: list[list[float]] = [[] for _ in settings]
    seen: list[list[float]] = [[] for _ in settings]
    context = load_params(Path(ours.params), "train", Params).context_length
    for seed in seeds:
        say_whether_alone(f"before seed {seed}")
        chosen = [dataclasses.replace(setting, seed=seed) for setting in settings]
        for place, answer in enumerate(train_in_turns(chosen, seconds)):
            scores[place].append(answer["bits_per_byte"])
            seen[place].append(answer["steps"] * ours.rows * context / 1e6)
    say_whether_alone("after")
    print(f"\n{seconds / 60:g} minutes each, seeds {seeds}, {ours.rows} x {context} tokens a step")
    print(f"{'':64}{'bits/byte':>10}{'from':>8}{'to':>8}{'M tokens':>10}{'ours is lower by':>18}")
    for setting, values, tokens in zip(settings, scores, seen, strict=True):
        lower = statistics.mean(1 - a / b for a, b in zip(scores[-1], values, strict=True))
        print(
            f"{setting.name:64}{statistics.mean(values):10.4f}{min(values):8.4f}{max(values):8.4f}"
            f"{statistics.mean(tokens):10.2f}{lower:17.1%}"
        )
    print("goals: 10 % below the plain AdamW loop, 2 % below the plain Muon loop")
    if len(seeds) < 2:
        print("one seed: its noise is not known from this run")


def train_in_turns(settings: list[Setting], seconds: float) -> list[dict[str, Any]]:
    """Each side's last answer after `seconds` of training, in slices that take turns."""
    sides = [Side("bench.train", dataclasses.asdict(setting)) for setting in settings]
    for side in sides:
        side.turn(0, counts=False)  # compiles
    left = [seconds] * len(sides)
    while any(amount > 0 for amount in left):
        for place, side in enumerate(sides):
            if left[place] > 0:
                left[place] -= side.turn(min(SLICE_SECONDS, left[place]))["seconds"]
    return [side.end() for side in sides]


# Profile


def show_profile(ours: Setting, steps: int = 5) -> None:
    """Where a step of ours, as params.yaml has it, spends its time."""
    say_whether_alone("before")
    profiler, seconds = profile(dataclasses.replace(ours, optimizer="best"), steps)
    print(
        f"\n{seconds / steps * 1e3:.0f} ms a step under the profiler; self time, of {steps} steps"
    )
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    for event in events[:PROFILE_LINES]:
        share = event.self_cpu_time_total / 1e6 / seconds
        milliseconds = event.self_cpu_time_total / 1e3 / steps
        print(
            f"  {share:6.1%}{milliseconds:9.1f} ms{event.count / steps:8.0f} calls  {event.key[:70]}"
        )


if __name__ == "__main__":
    main()
