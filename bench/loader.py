"""The loader beside the training it feeds: batches a second, and how long a jump to a far step takes.

    python -m bench.loader [--project .] [--rounds 5] [--seconds 2]

Batches are those of training (`Batches` over `Stream`), made in one process as on a CPU. Training is
`fit` as the stage calls it, in a process of its own; the two take turns. A jump is to step 10^9 and
beyond, in another epoch each time, in one epoch, and where windows are drawn with replacement; for
this corpus, and for `--documents` short documents, as text and as packed conversations. None of them
should take longer there: an epoch is entered by computing where one window goes. What is done once
when a run starts, which does grow with the documents, is shown beside it. Goals: 50 times the
training rate, and a jump in under 1 ms. Needs no finished run: without one the tokens are random.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.processes import say_whether_alone
from bench.train import default_setting, tokens_of
from bench.train_sides import Setting
from bench.turns import Side
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.loader import Batches, Packed, Stream
from sifirdan.corpus.shards import Shards
from stages.train import Params

FAR = 10**9  # steps
JUMPS = 20


class MadeUpShards:
    """As many documents as wanted without their bytes: each has 30 to 300 tokens, all the same."""

    def __init__(self, documents: int) -> None:
        self.lengths = np.random.default_rng(1).integers(30, 300, documents)
        self.num_tokens = int(self.lengths.sum())

    def __len__(self) -> int:
        return len(self.lengths)

    def tokens(self, index: int) -> np.ndarray:
        return np.full(self.lengths[index], 7, np.uint16)

    def loss_mask(self, index: int) -> np.ndarray:
        return np.ones(self.lengths[index], np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--project", type=Path, default=Path(), help="folder of a finished run")
    parser.add_argument("--params", type=Path, default=PARAMS_FILE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--documents", type=int, default=2_000_000, help="of a made-up corpus")
    parser.add_argument("--eager", action="store_true", help="do not compile: to try the bench out")
    given = parser.parse_args()
    params = load_params(given.params, "train", Params)
    with tokens_of(given.project, need_text=False) as data:
        setting = default_setting(given.params, data, compiled=not given.eager)
        setting = dataclasses.replace(setting, optimizer="best")
        shards = Shards(Path(setting.tokens) / "train")
        say_whether_alone("before")
        show_rate(setting, stream(shards, params, params.sampling), given.rounds, given.seconds)
        show_jumps(shards, params, setting.rows, given.documents)
        say_whether_alone("after")


def stream(shards: Shards | MadeUpShards, params: Params, sampling: str) -> Stream:
    return Stream(
        shards,  # type: ignore[arg-type]
        context_length=params.context_length, seed=params.seed, sampling=sampling, eos_id=2,
    )  # fmt: skip


def show_rate(setting: Setting, windows: Stream, rounds: int, seconds: float) -> None:
    """Batches a second of both."""
    batches, number = Batches(windows, setting.rows), 0
    trained: list[float] = []
    loaded: list[float] = []
    training = Side("bench.train", dataclasses.asdict(setting))
    for _ in range(2):
        training.turn(seconds / 2, counts=False)  # compiles, then warms up
    for _ in range(rounds):
        done = training.turn(seconds)
        trained.append(done["steps"] / done["seconds"])
        start, first = time.perf_counter(), number
        while time.perf_counter() - start < seconds / 4:
            batches[number]
            number += 1
        loaded.append((number - first) / (time.perf_counter() - start))
    training.end()
    ratio = statistics.median(a / b for a, b in zip(loaded, trained, strict=True))
    print(f"\n{setting.rows} x {windows.length} tokens a batch, {rounds} rounds in turns")
    for name, values in (("loader", loaded), ("training", trained)):
        print(
            f"{name:10}{statistics.median(values):10.1f} batches/s  "
            f"({min(values):.1f} to {max(values):.1f})"
        )
    print(f"the loader is {ratio:.0f} times as fast; goal 50")


def show_jumps(shards: Shards, params: Params, rows: int, documents: int) -> None:
    """Milliseconds of a jump to step 10^9, and of what is done once before."""
    made_up = MadeUpShards(documents)
    longest = int(made_up.lengths.max())
    ways: dict[str, tuple[Callable[[], Stream | Packed], bool]] = {
        f"another epoch, {len(shards):,} documents": (
            lambda: stream(shards, params, "epoch"),
            False,
        ),
        f"another epoch, {documents:,} documents": (
            lambda: stream(made_up, params, "epoch"),
            False,
        ),
        f"another epoch, {documents:,} conversations": (
            lambda: Packed(made_up, context_length=longest, seed=params.seed, pad_id=3),  # type: ignore[arg-type]
            False,
        ),
        "the same epoch": (lambda: stream(shards, params, "epoch"), True),
        "windows with replacement": (lambda: stream(shards, params, "random"), True),
    }
    print(f"\n{f'to step {FAR:,} in':48}{'ms':>9}{'from':>9}{'to':>9}   goal 1 ms{'start':>10}")
    for name, (made, inside) in ways.items():
        start = time.perf_counter()
        windows = made()
        started = (time.perf_counter() - start) * 1e3
        times = jumps(windows, rows, inside_an_epoch=inside)
        print(
            f"{name:48}{statistics.median(times):9.3f}{min(times):9.3f}{max(times):9.3f}"
            f"{started:19.1f} ms",
            flush=True,
        )


def jumps(windows: Stream | Packed, rows: int, *, inside_an_epoch: bool) -> list[float]:
    """Milliseconds that the first window after each jump took."""
    times = []
    first = FAR * rows
    first -= first % windows.windows_per_epoch
    windows.window(first if inside_an_epoch else 0)
    rng = np.random.default_rng(2)
    for jump in range(JUMPS):
        target = first + int(rng.integers(windows.windows_per_epoch))
        if not inside_an_epoch:
            target += (jump + 1) * windows.windows_per_epoch
        start = time.perf_counter()
        windows.window(target)
        times.append((time.perf_counter() - start) * 1e3)
    return times


if __name__ == "__main__":
    main()
