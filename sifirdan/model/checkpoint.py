"""A model as a Hugging Face folder: `config.json`, `model.safetensors`, `generation_config.json`.

The folder is a plain Llama, Qwen3 or GPT-2 checkpoint, or our own, as layouts.py decides. Loading is strict: a missing, unexpected or misshapen
tensor is an error, never a random weight. No pickle is read or written.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.model.layouts import LAYOUTS, config_content, config_from, layout_of
from sifirdan.model.shape import ModelConfig
from sifirdan.model.transformer import Transformer

WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def save_model(folder: Path, model: Transformer, *, eos_ids: list[int], pad_id: int) -> None:
    """Write the model's files; `eos_ids` are the ids that end a text, the document mark first."""
    layout = LAYOUTS[layout_of(model.config.shape)]
    save_file(layout.rename(weights_of(model)), folder / WEIGHTS, metadata={"format": "pt"})
    _write(folder / CONFIG, config_content(model.config, eos_ids[0], pad_id))
    _write(
        folder / "generation_config.json",
        {"bos_token_id": eos_ids[0], "eos_token_id": eos_ids, "pad_token_id": pad_id},
    )


def load_model(folder: Path, device: torch.device | str = "cpu") -> Transformer:
    """The model in `folder`, in evaluation mode, fp32."""
    model = Transformer(read_config(folder))
    try:
        weights = load_file(folder / WEIGHTS)
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder}: there is no {WEIGHTS}", expected="a whole model folder", todo="dvc repro"
        ) from None
    except SafetensorError as error:
        raise CheckpointError(
            f"{folder / WEIGHTS}: is damaged ({error})", todo="make it anew: dvc repro -f"
        ) from None
    layout = LAYOUTS[layout_of(model.config.shape)]
    set_weights(model, layout.rename_back(weights), place=str(folder / WEIGHTS))
    return model.to(device).eval()


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Every weight once by our own name, on the CPU; a tied head is left out."""
    weights = {
        name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()
    }
    if model.config.shape.tie_embeddings:
        del weights["lm_head.weight"]
    return weights


@torch.no_grad()
def set_weights(model: Transformer, weights: dict[str, Tensor], *, place: str) -> None:
    """Fill `model`; names, shapes and finiteness must match, `place` is named when not."""
    own = dict(model.state_dict())
    if model.config.shape.tie_embeddings:
        del own["lm_head.weight"]
    missing, unexpected = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or unexpected:
        raise CheckpointError(
            f"{place}: missing {missing[:3]}, unexpected {unexpected[:3]}",
            expected="exactly the tensors that config.json describes",
        )
    for name, target in own.items():
        value = weights[name]
        if value.shape != target.shape:
            raise CheckpointError(
                f"{place}: {name} is {list(value.shape)}", expected=f"{list(target.shape)}"
            )
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{place}: {name} holds NaN or infinite numbers")
        target.copy_(value)


def read_config(folder: Path) -> ModelConfig:
    """The sizes and parts in a folder's config.json."""
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if content["model_type"] not in LAYOUTS:
            raise CheckpointError(
                f"{folder / CONFIG}: model_type is {content['model_type']!r}",
                expected=f"one of {', '.join(map(repr, LAYOUTS))}",
            )
        return config_from(content)
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder}: there is no {CONFIG}", expected="a model folder", todo="dvc repro"
        ) from None
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(f"{folder / CONFIG}: cannot be used ({error!r})") from None


def describe(config: ModelConfig) -> dict[str, Any]:
    """The configuration as flat, plain values, for manifests and metrics."""
    return {"vocab_size": config.vocab_size, "context_length": config.context_length} | (
        dataclasses.asdict(config.shape)
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8", newline="\n")
