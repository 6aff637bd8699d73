"""Pretrain the model on the token shards.

Reads data/tokens and models/tokenizer. Writes models/base, a plain Llama folder with a card of what
it learned from, and reports/train, the curve. Keeps its state in models/.resume/train: killed at any moment, the next run continues
and ends with the same bits on a CPU. Costs minutes on two cores for the default budget of tokens;
memory for four copies of the weights in fp32 and one micro-batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from sifirdan import runs, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.card import read_card
from sifirdan.corpus.loader import Stream
from sifirdan.corpus.model_card import write_model_card
from sifirdan.corpus.shards import Shards
from sifirdan.device import prepare
from sifirdan.errors import DataError, require, run_command
from sifirdan.evals.bits_per_byte import score_documents, total
from sifirdan.model.checkpoint import describe
from sifirdan.model.transformer import ModelConfig, ModelShape, Transformer
from sifirdan.runtime import Precision, Runtime
from sifirdan.tokenizer import Tokenizer
from sifirdan.training.loop import Point
from sifirdan.training.optim import OptimParams, Schedule
from sifirdan.training.resume import code_hash
from sifirdan.training.session import Places, Recipe, Tracker, clear_state, train_to_folder


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    tokens: int
    context_length: int
    batch_tokens: int
    precision: Precision
    sampling: Literal["epoch", "random"]
    val_every_tokens: int
    val_tokens: int
    model: ModelShape
    optimizer: OptimParams
    schedule: Schedule

    def __post_init__(self) -> None:
        require(self.context_length >= 2, "train.context_length", self.context_length, "2 or more")
        require(
            self.batch_tokens >= self.context_length and self.batch_tokens % self.context_length == 0,
            "train.batch_tokens", self.batch_tokens, f"a multiple of context_length ({self.context_length})",
        )  # fmt: skip
        require(
            self.tokens >= self.batch_tokens, "train.tokens", self.tokens, "at least batch_tokens"
        )
        for key in ("val_every_tokens", "val_tokens"):
            require(getattr(self, key) >= 1, f"train.{key}", getattr(self, key), "1 or more")

    @property
    def num_steps(self) -> int:
        return self.tokens // self.batch_tokens


def train(
    tokens: Path,
    tokenizer_folder: Path,
    places: Places,
    params: Params,
    runtime: Runtime,
    tracker: Tracker,
) -> dict[str, Any]:
    """Train from random weights, or from the newest saved state; returns the metrics."""
    device, code = prepare(runtime), code_hash()
    read_card(tokens)  # before hours of training: the model's card is made from it
    inputs = {
        "tokens": runs.open_folder(tokens, "tokens", made_by="tokenize_corpus"),
        "tokenizer": runs.open_folder(tokenizer_folder, "tokenizer", made_by="train_tokenizer"),
    }
    runs.require_same(
        inputs["tokens"],
        "tokenizer",
        inputs["tokenizer"],
        what=str(tokens),
        made_by="tokenize_corpus",
    )
    tokenizer = Tokenizer.load(tokenizer_folder)
    shards, val = Shards(tokens / "train"), Shards(tokens / "val")
    require_disjoint(shards, val)
    windows = Stream(
        shards, context_length=params.context_length, seed=params.seed,
        sampling=params.sampling, eos_id=tokenizer.eos_id,
    )  # fmt: skip

    config = ModelConfig(tokenizer.vocab_size, params.context_length, params.model)
    model = Transformer(config)
    model.initialise(torch.Generator().manual_seed(params.seed))
    model.to(device)
    torch.manual_seed(params.seed)
    recipe = Recipe(
        windows=windows,
        context_length=params.context_length,
        batch_sequences=params.batch_tokens // params.context_length,
        num_steps=params.num_steps,
        eval_every_steps=max(1, params.val_every_tokens // params.batch_tokens),
        precision=params.precision,
        optimizer=params.optimizer,
        schedule=params.schedule,
        validate=validator(model, val, params.val_tokens, tokenizer.eos_id),
        curves={"loss": "training loss (nats)", "val_bits_per_byte": "val bits per byte"},
    )
    seen = params.num_steps * params.batch_tokens
    made: dict[str, Any] = {
        "steps": params.num_steps,
        "tokens": seen,
        "epochs": seen / shards.num_tokens,
        "parameters": model.num_parameters(),
        "model": describe(config),
        "code": code,
    }
    tracker.log_axes(made)

    def describe_model(folder: Path, points: list[Point]) -> None:
        facts = card_facts(made | _last(points))
        write_model_card(folder, tokens, title="Base model", facts=facts)

    points = train_to_folder(
        model, tokenizer, recipe, places,
        inputs=inputs, params=asdict(params), runtime=runtime, device=device, tracker=tracker,
        describe=describe_model,
    )  # fmt: skip
    return made | _last(points)


def _last(points: list[Point]) -> dict[str, Any]:
    return {name: points[-1][name] for name in ("loss", "val_bits_per_byte")}


def card_facts(metrics: Mapping[str, Any]) -> dict[str, object]:
    """What the model's card says in numbers."""
    return {
        "parameters": metrics["parameters"],
        "vocabulary": metrics["model"]["vocab_size"],
        "context, in tokens": metrics["model"]["context_length"],
        "trained on, in tokens": metrics["tokens"],
        "epochs": f"{metrics['epochs']:.2f}",
        "bits per byte of validation text": f"{metrics['val_bits_per_byte']:.3f}",
    }


def require_disjoint(train_shards: Shards, val_shards: Shards) -> None:
    """No document may be on both sides; proved from the ids, which hash the texts."""
    shared = set(train_shards.column("document")) & set(val_shards.column("document"))
    if shared:
        raise DataError(
            f"{len(shared)} documents are in train and in val ({min(shared)} …)",
            expected="none",
            todo="dvc repro -f -s clean",
        )


def validator(
    model: Transformer, val: Shards, val_tokens: int, eos_id: int
) -> Callable[[], dict[str, float]]:
    """A function that scores evenly spaced validation documents of about `val_tokens` tokens."""
    stride = max(1, val.num_tokens // val_tokens)
    chosen = range(0, len(val), stride)
    documents = [val.tokens(index) for index in chosen]
    sizes = val.column("num_bytes")
    num_bytes = [sizes[index] for index in chosen]
    window = model.config.context_length

    def validate() -> dict[str, float]:
        if not documents:
            return {}
        score = total(
            score_documents(
                model, documents, num_bytes, window=window, stride=window, eos_id=eos_id
            )
        )
        return {"val_bits_per_byte": score.bits_per_byte}

    return validate


def main() -> None:
    params = load_params(PARAMS_FILE, "train", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    tokens, tokenizer = Path("data/tokens"), Path("models/tokenizer")
    places = Places(Path("models/base"), Path("reports/train"), Path("models/.resume/train"))
    with track.stage(
        "train",
        params=asdict(params),
        inputs={"tokens": tokens, "tokenizer": tokenizer},
        outputs={"base": places.out},
    ) as run:
        metrics = train(tokens, tokenizer, places, params, runtime, run)
        run.log_artifact(places.report / "curve.png")
        run.finish(metrics, Path("metrics/train.json"))
    clear_state(places.store)


if __name__ == "__main__":
    run_command(main)
