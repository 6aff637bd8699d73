"""The loops of bench/train.py, each in a process of its own: ours (`sifirdan.training.loop.fit`) and
the plain one of bench/peers. Both get the same windows of tokens and a clock for a schedule.
"""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.peers import plain_loop
from bench.turns import TimeUp, Turns, say
from sifirdan.baselines.language_models import Logits
from sifirdan.config import load_params
from sifirdan.corpus.loader import Batches, Stream
from sifirdan.corpus.shards import Shards
from sifirdan.device import pick_dtype, prepare, should_compile
from sifirdan.evals.bits_per_byte import score_documents, total
from sifirdan.model.transformer import ModelConfig, ModelShape, Transformer
from sifirdan.runtime import Runtime
from sifirdan.training.loop import FitSettings, fit
from sifirdan.training.optim import Schedule, build_optimizers
from sifirdan.training.resume import ResumeStore
from stages.train import Params

# What makes our model the one that transformers calls GPT-2.
GPT2_PARTS = {
    "positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True, "init": "gpt2"
}  # fmt: skip
ADAMW_LR = 1e-3  # of the matrices, where AdamW takes them
NEVER = 10**9  # steps
WARM_UP = 3  # steps before a profile


@dataclass(frozen=True)
class Setting:
    """One side of the table."""

    who: str  # ours, or plain
    architecture: str  # llama or gpt2
    optimizer: str  # adamw or muon; ours: best, which is as in params.yaml
    lr: float  # plain: the full rate
    fast: bool  # plain: bf16 autocast and torch.compile
    compiled: bool  # false: eager everywhere, to try the bench out
    rows: int  # windows a step
    seed: int
    budget: float  # seconds that the schedule is made for
    tokens: str  # folder with the shards of train and, where it is scored, val
    vocab_size: int
    eos_id: int
    scored: bool  # on val, at the end
    params: str  # a file as params.yaml

    @property
    def name(self) -> str:
        if self.who == "ours":
            return f"ours, {self.optimizer}"
        way = "bf16 autocast, compiled" if self.fast else "eager fp32"
        return f"transformers {self.architecture}, {self.optimizer}, {way}"


def our_shape(shape: ModelShape, architecture: str) -> ModelShape:
    """Ours as Llama is, as params.yaml has it; or as GPT-2 is, with an MLP of as many weights."""
    if architecture == "llama":
        return shape
    width = shape.intermediate_size * 3 // 2  # two matrices instead of SwiGLU's three
    return dataclasses.replace(shape, intermediate_size=width, **GPT2_PARTS)  # type: ignore[arg-type]


def peer_sizes(setting: Setting, shape: ModelShape) -> dict[str, Any]:
    """The same sizes for transformers' classes."""
    known = asdict(shape) | {
        "vocab_size": setting.vocab_size,
        "context_length": load_params(Path(setting.params), "train", Params).context_length,
    }
    if setting.architecture == "gpt2":
        known["intermediate_size"] = shape.intermediate_size * 3 // 2
    return known


class _InTurns(Batches):
    """Batches that are given out in the process's turns only."""

    def __init__(self, windows: Stream, rows: int, turns: Turns) -> None:
        super().__init__(windows, rows)
        self.turns = turns

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        self.turns.step()
        return super().__getitem__(number)


class _ByTheClock:
    """A schedule over the seconds of the turns instead of steps, of which nobody knows the number."""

    def __init__(self, schedule: Schedule, turns: Turns) -> None:
        self.schedule, self.turns = schedule, turns

    def lr_factor(self, step: int = 0, num_steps: int = 0) -> float:
        return self.schedule.lr_factor(round(self.turns.progress() * 10_000), 10_000)


class _Profiled(Turns):
    """No turns: some steps to warm up, and some that are profiled."""

    def __init__(self, profiler: torch.profiler.profile, steps: int) -> None:
        super().__init__(budget=1e9)
        self.profiler, self.last, self.calls, self.spent = profiler, WARM_UP + steps, 0, 0.0

    def step(self) -> None:
        if self.calls == WARM_UP:
            self.profiler.start()
            self.spent = -time.perf_counter()
        if self.calls == self.last:
            self.spent += time.perf_counter()
            self.profiler.stop()
            raise TimeUp
        self.calls += 1


def profile(setting: Setting, steps: int) -> tuple[torch.profiler.profile, float]:
    """`steps` steps of one side in this process: the profiler, and the seconds."""
    params = load_params(Path(setting.params), "train", Params)
    turns = _Profiled(torch.profiler.profile(), steps)
    _train(setting, params, turns)
    return turns.profiler, turns.spent


def run_side(setting: Setting) -> None:
    """Train in turns until the bench ends it; then answer with the score and what was seen."""
    params = load_params(Path(setting.params), "train", Params)
    turns = Turns(setting.budget)
    model = _train(setting, params, turns)
    answer: dict[str, Any] = {"steps": turns.steps, "seconds": turns.seconds}
    if setting.scored:
        answer |= score(model, setting, params.context_length)
    say(answer)


def _train(setting: Setting, params: Params, turns: Turns) -> nn.Module:
    windows = Stream(
        Shards(Path(setting.tokens) / "train"), context_length=params.context_length,
        seed=setting.seed, sampling=params.sampling, eos_id=setting.eos_id,
    )  # fmt: skip
    batches = _InTurns(windows, setting.rows, turns)
    return (_ours if setting.who == "ours" else _plain)(setting, params, batches)


def _ours(setting: Setting, params: Params, batches: _InTurns) -> nn.Module:
    runtime = load_params(Path(setting.params), "runtime", Runtime)
    device = prepare(dataclasses.replace(runtime, device="cpu", threads=None))
    shape = our_shape(params.model, setting.architecture)
    model = Transformer(ModelConfig(setting.vocab_size, params.context_length, shape))
    model.initialise(torch.Generator().manual_seed(setting.seed))
    dtype = pick_dtype(params.precision, device)
    optimizer = params.optimizer
    if setting.optimizer == "adamw":
        optimizer = dataclasses.replace(optimizer, matrices="adamw", lr_matrices=ADAMW_LR)
    settings = FitSettings(
        num_steps=NEVER,
        micro_batches_per_step=1,
        schedule=_ByTheClock(params.schedule, batches.turns),  # type: ignore[arg-type]
        max_grad_norm=optimizer.max_grad_norm,
        dtype=dtype,
        compiled=setting.compiled and should_compile("on", device),
        eval_steps=frozenset(),
        checkpoint_every_steps=NEVER,
        loader_workers=0,
    )
    with tempfile.TemporaryDirectory() as store, contextlib.suppress(TimeUp):
        fit(
            model, build_optimizers(model, optimizer, dtype), batches, settings,
            ResumeStore(Path(store), {}), validate=dict, on_resume=lambda _: None,
            on_point=lambda _: None, extra={},
        )  # fmt: skip
    return model


def _plain(setting: Setting, params: Params, batches: _InTurns) -> nn.Module:
    model = plain_loop.build(setting.architecture, peer_sizes(setting, params.model), setting.seed)
    schedule = _ByTheClock(Schedule(0.01, 0.95, 0.0), batches.turns)

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(NEVER):
            try:
                batch = batches[number]
            except TimeUp:
                return
            yield batch["inputs"], batch["targets"]

    plain_loop.train(
        model, plain_loop.build_optimizers(model, setting.optimizer, setting.lr), pairs(),
        schedule.lr_factor, precision="bf16" if setting.fast else "fp32",
        compiled=setting.fast and setting.compiled,
    )  # fmt: skip
    return Logits(model)


def score(model: nn.Module, setting: Setting, window: int) -> dict[str, float]:
    """Bits per byte of all of val, by our evaluation."""
    val = Shards(Path(setting.tokens) / "val")
    documents = [val.tokens(index) for index in range(len(val))]
    scores = score_documents(
        model.eval(), documents, val.column("num_bytes"),
        window=window, stride=window, eos_id=setting.eos_id,
    )  # fmt: skip
    return {"bits_per_byte": total(scores).bits_per_byte}
