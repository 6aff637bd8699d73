"""The loop that bench/train.py is measured against: what one writes with transformers' classes and a
tutorial beside it. Imports nothing of ours.

It is given every help that costs a plain loop one line: batches ready as tensors, fused AdamW, fused
attention, dropout off, the key-value cache off and, in its fast form, bf16 autocast and
`torch.compile` of the whole model with its loss.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

# Full rates of the two loops; `bench.train --quality --adamw-lr … --muon-lr …` tries others.
FULL_RATES = {
    "adamw": 2e-3,  # of everything
    "muon": 3e-3,  # in the unit that Muon shares with AdamW (arXiv:2502.16982), so of everything, too
}
WEIGHT_DECAY = 0.1
MAX_GRAD_NORM = 1.0


def build(architecture: str, sizes: dict[str, Any], seed: int) -> nn.Module:
    """A model of transformers with its own starting weights. `sizes` are vocab_size,
    context_length, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads and
    tie_embeddings."""
    torch.manual_seed(seed)
    if architecture == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=sizes["vocab_size"],
                max_position_embeddings=sizes["context_length"],
                hidden_size=sizes["hidden_size"],
                intermediate_size=sizes["intermediate_size"],
                num_hidden_layers=sizes["num_layers"],
                num_attention_heads=sizes["num_heads"],
                num_key_value_heads=sizes["num_kv_heads"],
                tie_word_embeddings=sizes["tie_embeddings"],
                rms_norm_eps=1e-6,
                attn_implementation="sdpa",
            )
        )
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=sizes["vocab_size"],
            n_positions=sizes["context_length"],
            n_embd=sizes["hidden_size"],
            n_inner=sizes["intermediate_size"],
            n_layer=sizes["num_layers"],
            n_head=sizes["num_heads"],
            tie_word_embeddings=sizes["tie_embeddings"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="sdpa",
        )
    )


def build_optimizers(model: nn.Module, name: str, lr: float) -> list[Optimizer]:
    """AdamW for everything, or torch's Muon for the matrices inside the blocks and AdamW for the
    rest. Norms and biases do not decay."""
    named = list(model.named_parameters())
    blocks = [p for key, p in named if p.ndim == 2 and (".layers." in key or ".h." in key)]
    inside = set(map(id, blocks))
    tables = [p for _, p in named if p.ndim == 2 and id(p) not in inside]
    vectors = [p for _, p in named if p.ndim != 2]
    groups = [{"params": tables}, {"params": vectors, "weight_decay": 0.0}]
    settings: dict[str, Any] = {
        "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": WEIGHT_DECAY, "fused": True
    }  # fmt: skip
    if name == "adamw":
        return [torch.optim.AdamW([{"params": blocks}, *groups], lr=lr, **settings)]
    muon = torch.optim.Muon(
        blocks, lr=lr, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"
    )
    return [muon, torch.optim.AdamW(groups, lr=lr, **settings)]


def train(
    model: nn.Module,
    optimizers: list[Optimizer],
    batches: Iterable[tuple[Tensor, Tensor]],
    lr_factor: Callable[[], float],
    *,
    precision: str,
    compiled: bool,
) -> None:
    """Step through (inputs, targets), each (B, T), as long as there are any; in fp32, or under bf16
    autocast."""
    forward = torch.compile(model, dynamic=False) if compiled else model
    full = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    model.train()
    for inputs, targets in batches:
        factor = lr_factor()
        for optimizer, rates in zip(optimizers, full, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(
                input_ids=inputs, labels=targets, shift_labels=targets, use_cache=False
            ).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
