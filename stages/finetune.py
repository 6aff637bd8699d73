"""Tune the pretrained model on conversations, so that it answers and stops.

Reads models/base and data/chat. Writes models/chat, a folder as models/base is, with a card of what it
learned from, and reports/finetune, the curve. Whole conversations are packed into windows in which none sees another;
the loss counts the assistant's content and end marks only. Resumes like `train`. Costs a minute or
two on two cores; memory as for training.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sifirdan import runs, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.card import read_card
from sifirdan.corpus.loader import IGNORE, Packed
from sifirdan.corpus.model_card import chat_section, write_model_card
from sifirdan.corpus.shards import Shards
from sifirdan.device import prepare
from sifirdan.errors import DataError, require, run_command
from sifirdan.evals.likelihood import Piece, nats_of
from sifirdan.model.checkpoint import describe, load_model
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Precision, Runtime
from sifirdan.tokenizer import Tokenizer
from sifirdan.torchrun import is_asked_for, launch, processes, silent_stage
from sifirdan.training.optim import OptimParams, Schedule
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


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    epochs: int
    patience: int | None
    keep: Keep
    batch_tokens: int
    precision: Precision
    val_conversations: int
    optimizer: OptimParams
    schedule: Schedule

    def __post_init__(self) -> None:
        for key in ("epochs", "batch_tokens", "val_conversations"):
            require(getattr(self, key) >= 1, f"finetune.{key}", getattr(self, key), "1 or more")
        _ = self.limits  # which refuses what it cannot use

    @property
    def limits(self) -> Limits:
        return Limits("known_nats_per_target", self.patience, self.keep)


def finetune(
    base: Path, chat: Path, places: Places, params: Params, runtime: Runtime, tracker: Tracker
) -> dict[str, Any]:
    """Tune `base` on `chat`/train, or continue from the newest saved state; returns the metrics."""
    device, code = prepare(runtime), code_hash()
    read_card(base)  # before hours of tuning: the model's card is made from it
    inputs = {
        "base": runs.open_folder(base, "model", made_by="train"),
        "chat": runs.open_folder(chat, "chat", made_by="prepare_chat"),
    }
    if inputs["base"].inputs.get("tokenizer") != inputs["chat"].inputs.get("tokenizer"):
        raise DataError(
            f"{base} and {chat} were made with different tokenizers",
            expected="one tokenizer for both",
            todo="dvc repro prepare_chat train",
        )
    tokenizer = Tokenizer.load(base)
    model = load_model(base, device)
    context_length = model.config.context_length
    require(
        params.batch_tokens % context_length == 0, "finetune.batch_tokens", params.batch_tokens,
        f"a multiple of the model's context, {context_length}",
    )  # fmt: skip
    torch.manual_seed(params.seed)
    windows = Packed(
        Shards(chat / "train"),
        context_length=context_length,
        seed=params.seed,
        pad_id=tokenizer.pad_id,
    )
    batch_sequences = params.batch_tokens // context_length
    num_steps = max(1, windows.windows_before(params.epochs) // batch_sequences)
    known = Shards(chat / "known")
    params.limits.require_validation(len(known) > 0, "finetune", "prepare_chat")
    recipe = Recipe(
        windows=windows,
        context_length=context_length,
        batch_sequences=batch_sequences,
        num_steps=num_steps,
        eval_every_steps=-(-num_steps // params.epochs),
        precision=params.precision,
        optimizer=params.optimizer,
        schedule=params.schedule,
        validate=_validator(model, known, params.val_conversations),
        curves={"loss": "loss on answers (nats)", "known_nats_per_target": "known answers (nats)"},
        limits=params.limits,
    )

    def seen(steps: int) -> dict[str, Any]:
        tokens = round(steps * params.batch_tokens * (1 - windows.padding_share))
        return {"steps": steps, "tokens": tokens}

    made: dict[str, Any] = {
        **seen(num_steps),
        "conversations": len(windows.shards),
        "padding_share": windows.padding_share,
        "model": describe(model.config),
        "code": code,
    }
    tracker.log_axes(made)

    def metrics_of(trained: Trained) -> dict[str, Any]:
        names = ("loss", "known_nats_per_target")
        kept = {name: trained.kept[name] for name in names if name in trained.kept}
        return made | seen(trained.ending.steps) | trained.ending.facts | kept

    def describe_model(folder: Path, trained: Trained) -> None:
        facts = card_facts(metrics_of(trained), model) | trained.ending.card_facts
        sections = [chat_section(chat, base)]
        write_model_card(folder, base, title="Chat model", facts=facts, sections=sections)

    trained = train_to_folder(
        model, tokenizer, recipe, places,
        inputs=inputs, params=asdict(params), runtime=runtime, device=device, tracker=tracker,
        describe=describe_model,
    )  # fmt: skip
    return metrics_of(trained)


def card_facts(metrics: Mapping[str, Any], model: Transformer) -> dict[str, object]:
    """What the model's card says in numbers."""
    facts: dict[str, object] = {
        "parameters": model.num_parameters(),
        "context, in tokens": model.config.context_length,
        "steps of tuning": metrics["steps"],
    }
    if "known_nats_per_target" in metrics:
        nats = f"{metrics['known_nats_per_target']:.3f}"
        facts["nats a token of answers kept out of tuning"] = nats
    return facts


def _validator(
    model: Transformer, known: Shards, num_conversations: int
) -> Callable[[], dict[str, float]]:
    """A function that scores answers to questions kept out of tuning."""
    pieces, targets = [], 0
    for index in range(min(len(known), num_conversations)):
        ids = known.tokens(index).astype(np.int64)
        mask = known.loss_mask(index).astype(bool)
        pieces.append(Piece(index, ids[:-1], np.where(mask[1:], ids[1:], IGNORE)))
        targets += int(mask.sum())

    def validate() -> dict[str, float]:
        if not pieces:
            return {}
        return {"known_nats_per_target": sum(nats_of(model, pieces, len(pieces))) / targets}

    return validate


def main() -> int:
    params = load_params(PARAMS_FILE, "finetune", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    if is_asked_for():  # after the settings, which are refused once and not by each process
        return launch("stages.finetune")
    base, chat = Path("models/base"), Path("data/chat")
    places = Places(Path("models/chat"), Path("reports/finetune"), Path("models/.resume/finetune"))
    with processes(runtime) as world:
        stage = track.stage if world.is_first else silent_stage
        with stage(
            "finetune",
            params=asdict(params),
            inputs={"base": base, "chat": chat},
            outputs={"chat_model": places.out},
        ) as run:
            metrics = finetune(base, chat, places, params, runtime, run)
            run.log_artifact(places.report / "curve.png")
            run.finish(metrics, Path("metrics/finetune.json"))
        if world.is_first:
            clear_state(places.store)
    return 0


if __name__ == "__main__":
    run_command(main)
