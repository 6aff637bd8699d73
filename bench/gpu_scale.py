"""The sizes of bench/gpu.py's parts, in real and for a dry run, and how each of them trains."""

import dataclasses
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.loader import Batches
from sifirdan.model.transformer import ModelConfig, Transformer
from sifirdan.training.loop import FitSettings, fit
from sifirdan.training.optim import Schedule, build_optimizers
from sifirdan.training.resume import ResumeStore
from stages.train import Params

NEVER = 10**9  # steps


@dataclass(frozen=True)
class Scale:
    """The sizes of all parts."""

    device: str
    dtype: torch.dtype
    compiled: bool
    square: int  # of the products whose rate is measured
    vocab_size: int
    context_length: int
    sizes: dict[str, Any]  # of the model of the part `speed`
    step_tokens: int
    speed_seconds: float  # of steps, for each optimiser
    character_sizes: dict[str, Any]
    character_context: int
    character_rows: int
    character_steps: int


REAL = Scale(
    device="cuda", dtype=torch.bfloat16, compiled=True, square=8192, vocab_size=50_304,
    context_length=1024,
    sizes={
        "hidden_size": 768, "intermediate_size": 2048, "num_layers": 12, "num_heads": 6,
        "num_kv_heads": 6, "head_size": 128, "tie_embeddings": True,
    },
    step_tokens=1 << 18, speed_seconds=20.0,
    character_sizes={
        "hidden_size": 384, "intermediate_size": 1024, "num_layers": 6, "num_heads": 6,
        "num_kv_heads": 6, "head_size": 64, "tie_embeddings": False,
    },
    character_context=256, character_rows=64, character_steps=2000,
)  # fmt: skip
_TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_layers": 2, "num_heads": 2,
    "num_kv_heads": 2, "head_size": 16, "tie_embeddings": True,
}  # fmt: skip
DRY = Scale(
    device="cpu", dtype=torch.float32, compiled=False, square=128, vocab_size=300,
    context_length=32, sizes=_TINY, step_tokens=256, speed_seconds=0.5, character_sizes=_TINY,
    character_context=32, character_rows=8, character_steps=30,
)  # fmt: skip


def command(scale: Scale, *arguments: str) -> list[str]:
    dry = ["--dry-run"] if scale is DRY else []
    return [sys.executable, "-m", "bench.gpu", *dry, *arguments]


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def make_model(scale: Scale, vocab_size: int, context: int, sizes: dict[str, Any]) -> Transformer:
    """The parts of params.yaml in these sizes."""
    shape = dataclasses.replace(load_params(PARAMS_FILE, "train", Params).model, **sizes)
    model = Transformer(ModelConfig(vocab_size, context, shape))
    model.initialise(torch.Generator().manual_seed(1))
    return model.to(scale.device)


def fit_settings(scale: Scale, num_steps: int, **changes: Any) -> FitSettings:
    accumulation = changes.pop("accumulation", 1)
    values: dict[str, Any] = {
        "num_steps": num_steps,
        "micro_batches_per_step": accumulation,
        "schedule": Schedule(0.01, 0.95, 0.0),
        "max_grad_norm": 1.0,
        "dtype": scale.dtype,
        "compiled": scale.compiled,
        "eval_steps": frozenset(),
        "checkpoint_every_steps": NEVER,
        "loader_workers": 0,
    }
    return FitSettings(**(values | changes))


def train(
    model: Transformer, batches: Batches, settings: FitSettings, *, optimizer: str = "muon",
    store: Path | None = None,
) -> None:  # fmt: skip
    """`fit`, with the optimisers of params.yaml; its states lie in `store`."""
    params = load_params(PARAMS_FILE, "train", Params).optimizer
    if optimizer == "adamw":
        params = dataclasses.replace(params, matrices="adamw", lr_matrices=1e-3)
    with tempfile.TemporaryDirectory() as nowhere:
        fit(
            model, build_optimizers(model, params, settings.dtype), batches, settings,
            ResumeStore(store or Path(nowhere), {}), validate=dict, on_resume=lambda _: None,
            on_point=lambda _: None, extra={},
        )  # fmt: skip
