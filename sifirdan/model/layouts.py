"""How a model lies in a Hugging Face folder: the content of config.json and the names of the tensors.

Four layouts. A Llama, a Qwen3 and a GPT-2 are loaded by everything that loads those; every other
combination of parts is our own `sifirdan`, which only this project reads. Not for files: checkpoint.py.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sifirdan.model.shape import ModelConfig, ModelShape

Weights = dict[str, Tensor]
_ROTARY = {"positions": "rotary", "norm": "rmsnorm", "mlp": "swiglu"}
_ADDED = {"positions": "learned", "norm": "layernorm", "mlp": "gelu"}
OURS = "sifirdan"
# The key of config.json that holds what other programs have no key for.
_EXTRA = "sifirdan"


@dataclass(frozen=True)
class Layout:
    """`parts` are the values of a shape that it stands for, if the shape also `fits`. `write` gives the
    keys of config.json that are its own, `read` the shape's from them; `rename` and `rename_back` map
    tensors by name."""

    architecture: str
    parts: dict[str, Any]
    write: Callable[[ModelConfig], dict[str, Any]]
    read: Callable[[dict[str, Any]], dict[str, Any]]
    fits: Callable[[ModelShape], bool] = lambda _: True
    rename: Callable[[Weights], Weights] = dict
    rename_back: Callable[[Weights], Weights] = dict


def layout_of(shape: ModelShape) -> str:
    """The model_type that this combination of parts is saved as."""
    parts = asdict(shape)
    for name, layout in LAYOUTS.items():
        if layout.parts.items() <= parts.items() and layout.fits(shape):
            return name
    raise AssertionError("the last layout takes every shape")


def only_ours(shape: ModelShape) -> str | None:
    """One line that warns of a model that no other program loads; None where others do."""
    if layout_of(shape) != OURS:
        return None
    parts: list[str] = [shape.positions, shape.norm, shape.mlp]
    parts += [name for name in ("qk_norm", "bias") if getattr(shape, name)]
    return (
        f"this combination ({', '.join(parts)}) is no Llama, Qwen3 or GPT-2: only sifirdan loads it "
        f"(model_type {OURS}), not transformers, vLLM or llama.cpp"
    )


def config_content(config: ModelConfig, eos_id: int, pad_id: int) -> dict[str, Any]:
    """The content of config.json."""
    shape, name = config.shape, layout_of(config.shape)
    layout = LAYOUTS[name]
    content = {
        "architectures": [layout.architecture],
        "model_type": name,
        "vocab_size": config.vocab_size,
        **layout.write(config),
        "initializer_range": 0.02,
        "tie_word_embeddings": shape.tie_embeddings,
        "bos_token_id": eos_id,  # no start mark: documents begin after </s>
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
        "dtype": "float32",
        "torch_dtype": "float32",
        "use_cache": True,
    }
    in_layout = layout.parts | layout.read(content) | {"tie_embeddings": shape.tie_embeddings}
    extra = {key: value for key, value in asdict(shape).items() if key not in in_layout}
    return content | {_EXTRA: extra}


def config_from(content: dict[str, Any]) -> ModelConfig:
    """The sizes and parts in the content of a config.json. Raises KeyError, TypeError or ValueError
    where it is not one of ours."""
    layout = LAYOUTS[content["model_type"]]
    tied = content["tie_word_embeddings"]
    in_layout = layout.parts | layout.read(content) | {"tie_embeddings": tied}
    # for folders of earlier releases, as it was before there was a choice
    extra = {"rope_theta": 10000.0, "dropout": 0.0, "init": "zero_residual"}
    shape = ModelShape(**(extra | content.get(_EXTRA, {}) | in_layout))
    context = content["n_positions" if "n_positions" in content else "max_position_embeddings"]
    config = ModelConfig(content["vocab_size"], context, shape)
    for key, value in layout.write(config).items():
        if key != "note" and key in content and content[key] != value:  # a variant of the layout
            raise ValueError(f"{key} is {content[key]!r}, expected {value!r}")
    return config


# Llama and Qwen3: our own names of tensors


def _write_llama(config: ModelConfig) -> dict[str, Any]:
    return _sizes(config) | {
        "hidden_act": "silu",
        "rms_norm_eps": config.shape.rms_norm_eps,
        "rope_theta": config.shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.shape.rope_theta},
        "attention_bias": config.shape.bias,
        "attention_dropout": 0.0,
        "mlp_bias": config.shape.bias,
    }


def _read_llama(content: dict[str, Any]) -> dict[str, Any]:
    rotary = {"rope_theta": content["rope_theta"], "bias": content["attention_bias"]}
    return _read_sizes(content) | rotary | {"rms_norm_eps": content["rms_norm_eps"]}


def _write_qwen3(config: ModelConfig) -> dict[str, Any]:
    content = _write_llama(config) | {"use_sliding_window": False}
    del content["mlp_bias"]
    return content


def _sizes(config: ModelConfig) -> dict[str, Any]:
    return {
        "max_position_embeddings": config.context_length,
        "hidden_size": config.shape.hidden_size,
        "intermediate_size": config.shape.intermediate_size,
        "num_hidden_layers": config.shape.num_layers,
        "num_attention_heads": config.shape.num_heads,
        "num_key_value_heads": config.shape.num_kv_heads,
        "head_dim": config.shape.head_size,
    }


def _read_sizes(content: dict[str, Any]) -> dict[str, Any]:
    return {
        "hidden_size": content["hidden_size"],
        "intermediate_size": content["intermediate_size"],
        "num_layers": content["num_hidden_layers"],
        "num_heads": content["num_attention_heads"],
        "num_kv_heads": content["num_key_value_heads"],
        "head_size": content["head_dim"],
    }


# GPT-2: other names, q, k and v in one matrix, and every matrix of a block transposed (Conv1D)


def _fits_gpt2(shape: ModelShape) -> bool:
    """It has no grouped heads, and its heads fill the width."""
    full = shape.num_heads * shape.head_size == shape.hidden_size
    return full and shape.num_kv_heads == shape.num_heads


def _write_gpt2(config: ModelConfig) -> dict[str, Any]:
    shape = config.shape
    return {
        "n_positions": config.context_length,
        "n_embd": shape.hidden_size,
        "n_inner": shape.intermediate_size,
        "n_layer": shape.num_layers,
        "n_head": shape.num_heads,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": shape.rms_norm_eps,
        "resid_pdrop": shape.dropout,
        "embd_pdrop": shape.dropout,
        "attn_pdrop": 0.0,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
    }


def _read_gpt2(content: dict[str, Any]) -> dict[str, Any]:
    width, heads = content["n_embd"], content["n_head"]
    return {
        "hidden_size": width,
        "intermediate_size": content["n_inner"],
        "num_layers": content["n_layer"],
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_size": width // heads,
        "rms_norm_eps": content["layer_norm_epsilon"],
        "dropout": content["resid_pdrop"],
    }


_GPT2_NAMES = {  # ours: GPT-2's
    "model.embed_tokens.": "transformer.wte.",
    "model.positions.": "transformer.wpe.",
    "model.norm.": "transformer.ln_f.",
    ".input_layernorm.": ".ln_1.",
    ".self_attn.o_proj.": ".attn.c_proj.",
    ".post_attention_layernorm.": ".ln_2.",
    ".mlp.up_proj.": ".mlp.c_fc.",
    ".mlp.down_proj.": ".mlp.c_proj.",
    "model.layers.": "transformer.h.",
}
_QKV = [f".self_attn.{letter}_proj." for letter in "qkv"]
_FUSED = ".attn.c_attn."
_TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")


def _to_gpt2(weights: Weights) -> Weights:
    """Our tensors as GPT-2's; q, k and v (C, C) become c_attn (C, 3C)."""
    found: Weights = {}
    for name, value in weights.items():
        if _QKV[0] in name:
            value = torch.cat([weights[name.replace(_QKV[0], part)] for part in _QKV])
            name = name.replace(_QKV[0], _FUSED)
        elif _QKV[1] in name or _QKV[2] in name:
            continue
        for ours, theirs in _GPT2_NAMES.items():
            name = name.replace(ours, theirs)
        found[name] = value.T.contiguous() if _TRANSPOSED.search(name) else value
    return found


def _from_gpt2(weights: Weights) -> Weights:
    """The other way; what has a name or shape that GPT-2 does not have is left for the check."""
    found: Weights = {}
    for name, value in weights.items():
        if _TRANSPOSED.search(name) and value.ndim == 2:
            value = value.T.contiguous()
        for ours, theirs in _GPT2_NAMES.items():
            name = name.replace(theirs, ours)
        if _FUSED in name and len(value) % 3 == 0:
            for part, third in zip(_QKV, value.chunk(3), strict=True):
                found[name.replace(_FUSED, part)] = third.contiguous()
        else:
            found[name] = value
    return found


# Our own: the sizes as in a Llama, and each part by its name


def _write_ours(config: ModelConfig) -> dict[str, Any]:
    shape, parts = config.shape, ("positions", "norm", "mlp", "qk_norm", "bias", "rms_norm_eps")
    return _sizes(config) | {key: getattr(shape, key) for key in parts} | {"note": only_ours(shape)}


def _read_ours(content: dict[str, Any]) -> dict[str, Any]:
    parts = ("positions", "norm", "mlp", "qk_norm", "bias", "rms_norm_eps")
    return _read_sizes(content) | {key: content[key] for key in parts}


# The first that takes a shape is the one it is saved in.
LAYOUTS = {
    "llama": Layout("LlamaForCausalLM", _ROTARY | {"qk_norm": False}, _write_llama, _read_llama),
    "qwen3": Layout(
        "Qwen3ForCausalLM", _ROTARY | {"qk_norm": True, "bias": False}, _write_qwen3, _read_llama
    ),
    "gpt2": Layout(
        "GPT2LMHeadModel", _ADDED | {"qk_norm": False, "bias": True},
        _write_gpt2, _read_gpt2, _fits_gpt2, _to_gpt2, _from_gpt2,
    ),
    OURS: Layout("SifirdanForCausalLM", {}, _write_ours, _read_ours),
}  # fmt: skip
