"""Tune the pretrained model on conversations, so that it answers and stops.

Reads models/base and data/chat. Writes models/chat, again a plain Llama folder, and
reports/finetune, the curve. Whole conversations are packed into windows in which none sees another;
the loss counts the assistant's content and end marks only. Resumes like `train`. Costs a minute or
two on two cores; memory as for training.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sifirdan import runs, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.loader import IGNORE, Batches, Packed
from sifirdan.corpus.shards import Shards
from sifirdan.device import Precision, Runtime, prepare
from sifirdan.errors import DataError, require, run_command
from sifirdan.evals.likelihood import Piece, nats_of
from sifirdan.model.checkpoint import load_model
from sifirdan.model.transformer import Transformer
from sifirdan.tokenizer import Tokenizer
from sifirdan.training.loop import FitSettings, eval_steps, fit
from sifirdan.training.optim import OptimParams, Schedule, build_optimizers
from sifirdan.training.resume import ResumeStore
from sifirdan.training.session import (
    PACKAGES,
    fingerprint,
    log_estimate,
    make_plan,
    save_curve,
    save_trained,
)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    epochs: int
    batch_tokens: int
    precision: Precision
    val_conversations: int
    optimizer: OptimParams
    schedule: Schedule

    def __post_init__(self) -> None:
        for key in ("epochs", "batch_tokens", "val_conversations"):
            require(getattr(self, key) >= 1, f"finetune.{key}", getattr(self, key), "1 or more")


def finetune(
    base: Path,
    chat: Path,
    out: Path,
    report: Path,
    store_folder: Path,
    params: Params,
    runtime: Runtime,
    run: track.Run,
) -> dict[str, Any]:
    """Tune `base` on `chat`/train, or continue from the newest saved state; returns the metrics."""
    device = prepare(runtime)
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
    optimizers = build_optimizers(model, params.optimizer)
    windows = Packed(
        Shards(chat / "train"),
        context_length=context_length,
        seed=params.seed,
        pad_id=tokenizer.pad_id,
    )
    batch_sequences = params.batch_tokens // context_length
    num_steps = max(1, windows.windows_before(params.epochs) // batch_sequences)
    plan = make_plan(batch_sequences, params.precision, runtime, device)
    log_estimate(
        model, num_steps=num_steps, step_tokens=params.batch_tokens,
        context_length=context_length, plan=plan, device=device,
    )  # fmt: skip
    settings = FitSettings(
        num_steps=num_steps,
        micro_batches_per_step=plan.accumulation,
        schedule=params.schedule,
        max_grad_norm=params.optimizer.max_grad_norm,
        dtype=plan.dtype,
        compiled=plan.compiled,
        eval_steps=eval_steps(num_steps, max(1, num_steps // params.epochs)),
        log_every_steps=runtime.log_every_steps,
        checkpoint_every_steps=runtime.checkpoint_every_steps,
        loader_workers=runtime.loader_workers,
    )
    store = ResumeStore(
        store_folder, fingerprint(inputs=inputs, params=asdict(params), plan=plan, device=device)
    )
    with runs.lock(store_folder.parent / f".{store_folder.name}.lock", doing="training"):
        points = fit(
            model,
            optimizers,
            Batches(windows, plan.micro_batch),
            settings,
            store,
            validate=_validator(model, Shards(chat / "known"), params.val_conversations),
            on_resume=lambda saved: run.reopen(saved.extra["run_id"]),
            on_point=lambda point: run.log_metrics(
                {name: value for name, value in point.items() if name != "step"}, step=point["step"]
            ),
            extra={"run_id": run.run_id},
        )
        made: dict[str, Any] = {
            "inputs": inputs,
            "params": asdict(params) | {"runtime": plan.facts},
            "packages": PACKAGES,
        }
        with runs.new_folder(report, kind="curve", **made) as output:
            labels = {
                "loss": "loss on answers (nats)",
                "known_nats_per_target": "known answers (nats)",
            }
            save_curve(output.path, points, labels)
        with runs.new_folder(out, kind="model", **made) as output:
            save_trained(output.path, model, tokenizer)
            output.counts |= {"steps": num_steps, "parameters": model.num_parameters()}
    return {
        "steps": num_steps,
        "conversations": len(windows.shards),
        "padding_share": windows.padding_share,
        **{
            name: value
            for name, value in points[-1].items()
            if name in ("loss", "known_nats_per_target")
        },
    }


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


def main() -> None:
    params = load_params(PARAMS_FILE, "finetune", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    base, chat, out = Path("models/base"), Path("data/chat"), Path("models/chat")
    store = Path("models/.resume/finetune")
    with track.stage(
        "finetune",
        params=asdict(params),
        inputs={"base": base, "chat": chat},
        outputs={"chat_model": out},
    ) as run:
        metrics = finetune(base, chat, out, Path("reports/finetune"), store, params, runtime, run)
        run.log_artifact(Path("reports/finetune/curve.png"))
        run.finish(metrics, Path("metrics/finetune.json"))
    ResumeStore(store, {}).clear()


if __name__ == "__main__":
    run_command(main)
