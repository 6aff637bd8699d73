"""Pretrain the model on the token shards.

Reads data/tokens and models/tokenizer. Writes models/base, by default a plain Llama folder, with a
card of what it learned from, and reports/train, the curve; `train.init_from` is read besides,
where it is set. Keeps its state in models/.resume/train:
killed at any moment, the next run continues and ends with the same bits on a CPU. Costs minutes on
two cores for the default budget of tokens; memory for four copies of the weights in fp32 and one micro-batch.
"""

import logging
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
from sifirdan.model.layouts import only_ours
from sifirdan.model.transformer import ModelConfig, ModelShape, Transformer
from sifirdan.runtime import Precision, Runtime
from sifirdan.tokenizer import Tokenizer
from sifirdan.torchrun import is_asked_for, launch, processes, silent_stage
from sifirdan.training.optim import OptimParams, Schedule
from sifirdan.training.plan import warn_of_few_tokens
from sifirdan.training.resume import code_hash
from sifirdan.training.session import (
    Places,
    Recipe,
    Tracker,
    Trained,
    clear_state,
    train_to_folder,
)
from sifirdan.training.stopping import Keep, Limits
from sifirdan.training.warm_start import start_from

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    tokens: int | None
    steps: int | None
    epochs: float | None
    max_minutes: float | None
    init_from: str | None
    init_from_sha256: str | None
    patience: int | None
    keep: Keep
    context_length: int
    batch_tokens: int
    precision: Precision
    sampling: Literal["epoch", "random"]
    document_mask: bool
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
        for key in ("val_every_tokens", "val_tokens"):
            require(getattr(self, key) >= 1, f"train.{key}", getattr(self, key), "1 or more")
        require(
            len(self.budgets) == 1, "the budget of train", self.budgets,
            "exactly one of tokens, steps and epochs", "set one of them, and the others to null",
        )  # fmt: skip
        for key, value in self.budgets.items():
            require(value > 0, f"train.{key}", value, "above 0")
        require(
            self.tokens is None or self.tokens >= self.batch_tokens,
            "train.tokens", self.tokens, "at least batch_tokens",
        )  # fmt: skip
        require(
            (self.init_from is None) == (self.init_from_sha256 is None),
            "train.init_from_sha256", self.init_from_sha256, "the sha256 of the weights in init_from",
            "set both keys or neither; sha256sum FOLDER/model.safetensors prints it",
        )  # fmt: skip
        _ = self.limits  # which refuses what it cannot use

    @property
    def budgets(self) -> dict[str, float]:
        """The budgets that are set, by key."""
        budgets = {"tokens": self.tokens, "steps": self.steps, "epochs": self.epochs}
        return {key: value for key, value in budgets.items() if value is not None}

    @property
    def limits(self) -> Limits:
        return Limits("val_bits_per_byte", self.patience, self.keep, self.max_minutes)

    def num_steps(self, tokens_per_epoch: int) -> int:
        """Steps of the budget: never more of it than asked for, and at least one."""
        if self.steps is not None:
            return self.steps
        tokens = self.tokens if self.epochs is None else int(self.epochs * tokens_per_epoch)
        assert tokens is not None, self.budgets
        return max(1, tokens // self.batch_tokens)


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
    params.limits.require_validation(len(val) > 0, "train", "clean")
    windows = Stream(
        shards, context_length=params.context_length, seed=params.seed,
        sampling=params.sampling, eos_id=tokenizer.eos_id, document_mask=params.document_mask,
    )  # fmt: skip

    config = ModelConfig(tokenizer.vocab_size, params.context_length, params.model)
    if note := only_ours(params.model):
        _log.warning("model: %s", note)
    model = Transformer(config)
    model.initialise(torch.Generator().manual_seed(params.seed))
    if params.init_from is not None and params.init_from_sha256 is not None:
        start_from(
            model, Path(params.init_from), params.init_from_sha256, tokenizer, replaced=places.out
        )
    model.to(device)
    torch.manual_seed(params.seed)
    num_steps = params.num_steps(shards.num_tokens)
    recipe = Recipe(
        windows=windows,
        context_length=params.context_length,
        batch_sequences=params.batch_tokens // params.context_length,
        num_steps=num_steps,
        eval_every_steps=max(1, params.val_every_tokens // params.batch_tokens),
        precision=params.precision,
        optimizer=params.optimizer,
        schedule=params.schedule,
        validate=validator(model, val, params.val_tokens, tokenizer.eos_id),
        curves={"loss": "training loss (nats)", "val_bits_per_byte": "val bits per byte"},
        limits=params.limits,
    )
    made: dict[str, Any] = {
        "budget": params.budgets,
        **_seen(num_steps, params.batch_tokens, shards),
        "parameters": model.num_parameters(),
        "model": describe(config),
        "code": code,
    }
    tracker.log_axes(made)
    warn_of_few_tokens(made["tokens"], model.num_parameters())

    def metrics_of(trained: Trained) -> dict[str, Any]:
        seen = _seen(trained.ending.steps, params.batch_tokens, shards)
        names = ("loss", "val_bits_per_byte")
        kept = {name: trained.kept[name] for name in names if name in trained.kept}
        return made | seen | trained.ending.facts | kept

    def describe_model(folder: Path, trained: Trained) -> None:
        facts = card_facts(metrics_of(trained)) | trained.ending.card_facts
        sections = [start_section(params.init_from_sha256)] if params.init_from_sha256 else []
        write_model_card(folder, tokens, title="Base model", facts=facts, sections=sections)

    settings = asdict(params)
    del settings["init_from"]  # the hash says which weights; a path says where they lie here
    trained = train_to_folder(
        model, tokenizer, recipe, places,
        inputs=inputs, params=settings, runtime=runtime, device=device, tracker=tracker,
        describe=describe_model,
    )  # fmt: skip
    return metrics_of(trained)


def _seen(steps: int, batch_tokens: int, shards: Shards) -> dict[str, Any]:
    tokens = steps * batch_tokens
    return {"steps": steps, "tokens": tokens, "epochs": tokens / shards.num_tokens}


def start_section(sha256: str) -> str:
    """What the card says of a warm start."""
    return (
        "## Started from other weights\n\n"
        f"Training began from the weights with the sha256 `{sha256}`, not from random ones. What those had "
        "learned from stands on their own card; the data, licences and sources below are only of what was "
        "learned since.\n"
    )


def card_facts(metrics: Mapping[str, Any]) -> dict[str, object]:
    """What the model's card says in numbers."""
    ((budget, size),) = metrics["budget"].items()
    facts: dict[str, object] = {
        "parameters": metrics["parameters"],
        "vocabulary": metrics["model"]["vocab_size"],
        "context, in tokens": metrics["model"]["context_length"],
        "budget": f"{size:,} {budget}",
        "trained on, in tokens": metrics["tokens"],
        "epochs": f"{metrics['epochs']:.2f}",
    }
    if "val_bits_per_byte" in metrics:  # there may be no text for it
        facts["bits per byte of validation text"] = f"{metrics['val_bits_per_byte']:.3f}"
    return facts


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


def main() -> int:
    params = load_params(PARAMS_FILE, "train", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    if is_asked_for():  # after the settings, which are refused once and not by each process
        return launch("stages.train")
    tokens, tokenizer = Path("data/tokens"), Path("models/tokenizer")
    places = Places(Path("models/base"), Path("reports/train"), Path("models/.resume/train"))
    with processes(runtime) as world:
        stage = track.stage if world.is_first else silent_stage
        with stage(
            "train",
            params=asdict(params),
            inputs={"tokens": tokens, "tokenizer": tokenizer},
            outputs={"base": places.out},
        ) as run:
            metrics = train(tokens, tokenizer, places, params, runtime, run)
            run.log_artifact(places.report / "curve.png")
            run.finish(metrics, Path("metrics/train.json"))
        if world.is_first:
            clear_state(places.store)
    return 0


if __name__ == "__main__":
    run_command(main)
