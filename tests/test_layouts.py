"""Saved models are plain Llama, Qwen3 and GPT-2 folders, or say that they are our own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from sifirdan.errors import CheckpointError
from sifirdan.model.checkpoint import load_model, save_model
from sifirdan.model.layouts import layout_of, only_ours

GPT2 = {"positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True, "num_kv_heads": 4}
QWEN3 = {"qk_norm": True}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"num_kv_heads": 4}),
    ("llama", {"tie_embeddings": True, "rope_theta": 500000.0}),
    ("llama", {"num_kv_heads": 1, "head_size": 8, "bias": True, "dropout": 0.1}),
    ("qwen3", QWEN3 | {"num_kv_heads": 4, "dropout": 0.1}),
    ("qwen3", QWEN3 | {"tie_embeddings": True, "rope_theta": 500000.0}),
    ("qwen3", QWEN3 | {"num_kv_heads": 1, "head_size": 8}),
    ("gpt2", GPT2 | {"tie_embeddings": True, "rms_norm_eps": 1e-5, "init": "gpt2"}),
    ("gpt2", GPT2 | {"num_heads": 8, "num_kv_heads": 8, "head_size": 8, "dropout": 0.1}),
]
ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "gpt2": "GPT2LMHeadModel",
}  # fmt: skip
OURS: list[dict[str, Any]] = [
    {"positions": "none"},
    {"positions": "sinusoidal", "rope_theta": 7.0},
    {"norm": "layernorm", "tie_embeddings": True},
    {"mlp": "gelu", "dropout": 0.3},
    QWEN3 | {"bias": True},
    GPT2 | {"bias": False, "init": "gpt2"},
    GPT2 | {"num_kv_heads": 2},
    GPT2 | {"head_size": 8},
    GPT2 | QWEN3,
]


def ids() -> torch.Tensor:
    return torch.randint(0, 300, (2, 64), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("layout", "shape"), SHAPES)
def test_X_01_a_model_comes_back_and_transformers_gives_its_logits_at_every_position(
    tmp_path: Path, layout: str, shape: dict[str, Any]
) -> None:
    model = tiny_model(**shape)
    assert layout_of(model.config.shape) == layout and only_ours(model.config.shape) is None
    save_model(tmp_path, model, eos_ids=[2, 8], pad_id=3)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == layout and config["architectures"] == [ARCHITECTURES[layout]]
    back = load_model(tmp_path)
    assert back.config == model.config
    transformers_logging.disable_progress_bar()
    theirs, said = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(theirs).__name__ == ARCHITECTURES[layout]
    assert not any(said[kind] for kind in said), said
    with torch.no_grad():
        ours = model(ids())
        assert torch.equal(back(ids()), ours)
        assert float((theirs(ids()).logits - ours).abs().max()) < 1e-4
    assert float(ours.std()) > 0.1  # and not for want of numbers


@pytest.mark.parametrize("shape", OURS)
def test_another_combination_is_our_own_type_says_so_and_comes_back(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    model = tiny_model(**shape)
    save_model(tmp_path, model, eos_ids=[2], pad_id=3)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "sifirdan" and "only sifirdan loads it" in config["note"]
    assert only_ours(model.config.shape) == config["note"] and "\n" not in config["note"]
    back = load_model(tmp_path)
    assert back.config == model.config and torch.equal(back(ids()), model(ids()))
    with pytest.raises(ValueError, match="sifirdan"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_model_that_transformers_saved_as_gpt2_is_read(tmp_path: Path) -> None:
    """Its config has no key of ours."""
    model = tiny_model(**GPT2, tie_embeddings=True)
    save_model(tmp_path, model, eos_ids=[2], pad_id=3)
    again = tmp_path / "again"
    AutoModelForCausalLM.from_pretrained(tmp_path).save_pretrained(again)
    config = json.loads((again / "config.json").read_text())
    config.pop("sifirdan", None)
    (again / "config.json").write_text(json.dumps(config))
    assert torch.equal(load_model(again)(ids()), model(ids()))


def test_a_folder_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    model = tiny_model()
    save_model(tmp_path, model, eos_ids=[2], pad_id=3)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["sifirdan"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).config == model.config


@pytest.mark.parametrize(
    ("shape", "change"),
    [
        ({}, {"hidden_act": "gelu"}),
        ({}, {"mlp_bias": True}),
        ({}, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}),
        (QWEN3, {"use_sliding_window": True}),
        (GPT2, {"activation_function": "relu"}),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}),
        ({"positions": "none"}, {"positions": "alibi"}),
        (GPT2 | QWEN3, {"norm": "batchnorm"}),
    ],
)
def test_a_variant_that_we_do_not_compute_is_refused(
    tmp_path: Path, shape: dict[str, Any], change: dict[str, Any]
) -> None:
    save_model(tmp_path, tiny_model(**shape), eos_ids=[2], pad_id=3)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=list(change)[0]):
        load_model(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "unexpected", "shape"])
def test_R_10_a_gpt2_folder_is_read_strictly(tmp_path: Path, damage: str) -> None:
    save_model(tmp_path, tiny_model(**GPT2), eos_ids=[2], pad_id=3)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    fused = "transformer.h.1.attn.c_attn.weight"
    if damage == "missing":
        del weights[fused]
    elif damage == "unexpected":
        weights["transformer.h.9.ln_1.weight"] = torch.ones(64)
    else:
        weights[fused] = weights[fused][:, :-1].contiguous()
    save_file(weights, file)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_model(tmp_path)


def test_gpt2_stores_q_k_and_v_in_one_transposed_matrix(tmp_path: Path) -> None:
    model = tiny_model(**GPT2, tie_embeddings=True, intermediate_size=96)
    save_model(tmp_path, model, eos_ids=[2], pad_id=3)
    weights = load_file(tmp_path / "model.safetensors")
    attention = model.model.layers[2].self_attn
    fused = weights["transformer.h.2.attn.c_attn.weight"]
    assert fused.shape == (64, 192) and torch.equal(fused[:, 64:128], attention.k_proj.weight.T)
    assert weights["transformer.h.2.mlp.c_fc.weight"].shape == (64, 96)
    assert "lm_head.weight" not in weights and len(weights) == 2 + 3 * 12 + 2


def test_the_choice_of_layout_ignores_sizes_and_training() -> None:
    shape = tiny_model().config.shape
    changed = replace(shape, rope_theta=3.0, tie_embeddings=True, dropout=0.5, init="gpt2")
    assert layout_of(changed) == layout_of(shape) == "llama"
