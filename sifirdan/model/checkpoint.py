"""A model as a Hugging Face folder: `config.json`, `model.safetensors`, `generation_config.json`.

The folder is a plain Llama checkpoint. Loading is strict: a missing, unexpected or misshapen
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

from sifirdan.errors import CheckpointError
from sifirdan.model.transformer import ModelConfig, ModelShape, Transformer

WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def save_model(folder: Path, model: Transformer, *, eos_ids: list[int], pad_id: int) -> None:
    """Write the model's files; `eos_ids` are the ids that end a text, the document mark first."""
    save_file(weights_of(model), folder / WEIGHTS, metadata={"format": "pt"})
    _write(folder / CONFIG, _llama_config(model.config, eos_ids[0], pad_id))
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
    set_weights(model, weights, place=str(folder / WEIGHTS))
    return model.to(device).eval()


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Every weight once by its Llama name, on the CPU; a tied head is left out."""
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
    """The sizes in a folder's config.json."""
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if content["model_type"] != "llama":
            raise CheckpointError(
                f"{folder / CONFIG}: model_type is {content['model_type']!r}", expected="'llama'"
            )
        shape = ModelShape(
            hidden_size=content["hidden_size"],
            intermediate_size=content["intermediate_size"],
            num_layers=content["num_hidden_layers"],
            num_heads=content["num_attention_heads"],
            num_kv_heads=content["num_key_value_heads"],
            head_size=content["head_dim"],
            rope_theta=content["rope_theta"],
            rms_norm_eps=content["rms_norm_eps"],
            tie_embeddings=content["tie_word_embeddings"],
        )
        return ModelConfig(content["vocab_size"], content["max_position_embeddings"], shape)
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder}: there is no {CONFIG}", expected="a model folder", todo="dvc repro"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: cannot be used ({error!r})") from None


def describe(config: ModelConfig) -> dict[str, Any]:
    """The configuration as flat, plain values, for manifests and metrics."""
    return {"vocab_size": config.vocab_size, "context_length": config.context_length} | (
        dataclasses.asdict(config.shape)
    )


def _llama_config(config: ModelConfig, eos_id: int, pad_id: int) -> dict[str, Any]:
    shape = config.shape
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "tie_word_embeddings": shape.tie_embeddings,
        "bos_token_id": eos_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
        "dtype": "float32",
        "torch_dtype": "float32",
        "use_cache": True,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8", newline="\n")
