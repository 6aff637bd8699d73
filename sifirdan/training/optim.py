"""Optimisers and the learning-rate schedule, as a pure function of the step.

The matrices inside the blocks take Muon or AdamW; embedding, head and norms always take AdamW.
Weight decay is on the matrices inside the blocks only. Every parameter is in exactly one group, a tied
weight once.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from sifirdan.errors import require
from sifirdan.model.transformer import Transformer
from sifirdan.training.muon import Muon


@dataclass(frozen=True)
class OptimParams:
    """The section `optimizer`; see params.yaml for units and sources."""

    matrices: Literal["muon", "adamw"]
    lr_matrices: float
    lr_embedding: float
    lr_head: float
    lr_norms: float
    beta1: float
    beta2: float
    eps: float
    muon_momentum: float
    muon_steps: int
    weight_decay: float
    max_grad_norm: float

    def __post_init__(self) -> None:
        for key in ("lr_matrices", "lr_embedding", "lr_head", "lr_norms", "eps", "max_grad_norm"):
            require(getattr(self, key) > 0, f"optimizer.{key}", getattr(self, key), "above 0")
        for key in ("beta1", "beta2", "muon_momentum"):
            require(
                0 <= getattr(self, key) < 1, f"optimizer.{key}", getattr(self, key), "0 to below 1"
            )
        require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "0 or more")
        require(1 <= self.muon_steps < 100, "optimizer.muon_steps", self.muon_steps, "1 to 99")


@dataclass(frozen=True)
class Schedule:
    """Warm-up to the full rate, then down to `final_lr_share` of it in a line or half a cosine; shares
    of all steps. Where warm-up and decay leave steps between them, the rate is full there
    (warm-up-stable-decay, arXiv:2404.06395)."""

    warmup_share: float
    decay_share: float
    final_lr_share: float
    decay: Literal["linear", "cosine"] = "linear"

    def __post_init__(self) -> None:
        for key in ("warmup_share", "decay_share", "final_lr_share"):
            require(0 <= getattr(self, key) <= 1, f"schedule.{key}", getattr(self, key), "0 to 1")
        require(
            self.warmup_share + self.decay_share <= 1, "schedule.warmup_share + decay_share",
            self.warmup_share + self.decay_share, "at most 1 together",
        )  # fmt: skip

    def lr_factor(self, step: int, num_steps: int) -> float:
        """The factor on every rate at optimiser step `step` (1 … num_steps; clamped beyond): above 0
        at step 1, 1 where the warm-up ends, and at the last step exactly `final_lr_share`, where
        there is a decay and more than one step. A warm-up that would fill all of these gives way to
        the decay."""
        step = min(max(step, 1), num_steps)
        warmup = max(1, round(self.warmup_share * num_steps))
        decay = max(1, round(self.decay_share * num_steps))
        if step <= warmup and (warmup < num_steps or self.decay_share == 0):
            return step / warmup
        if num_steps == 1 or self.decay_share == 0:
            return 1.0
        left = min(1.0, (num_steps - step) / decay)  # of the decay
        if self.decay == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return self.final_lr_share + (1 - self.final_lr_share) * left


def build_optimizers(
    model: Transformer, params: OptimParams, dtype: torch.dtype
) -> list[Optimizer]:
    """The optimisers for every parameter of `model`; each group keeps its full rate in `base_lr`.
    Muon orthogonalises in `dtype`; weights and states are fp32."""
    matrices, embedding, head, norms = split_parameters(model)
    fused = next(model.parameters()).device.type in ("cpu", "cuda", "mps", "xpu")
    betas = (params.beta1, params.beta2)
    adamw_groups = [
        {"params": group, "lr": lr, "weight_decay": 0.0}
        for group, lr in (
            (embedding, params.lr_embedding),
            (head, params.lr_head),
            (norms, params.lr_norms),
        )
        if group
    ]
    decayed = {"params": matrices, "lr": params.lr_matrices, "weight_decay": params.weight_decay}
    optimizers: list[Optimizer] = []
    if params.matrices == "muon":
        muon = Muon(
            matrices,
            lr=params.lr_matrices,
            momentum=params.muon_momentum,
            weight_decay=params.weight_decay,
            num_steps=params.muon_steps,
            dtype=dtype,
        )
        optimizers.append(muon)
    else:
        adamw_groups.append(decayed)
    optimizers.append(torch.optim.AdamW(adamw_groups, betas=betas, eps=params.eps, fused=fused))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return optimizers


def split_parameters(model: Transformer) -> tuple[list[Tensor], ...]:
    """(matrices of the blocks, embedding and learned positions, untied head, gains of norms and
    biases): each parameter exactly once."""
    tied = model.config.shape.tie_embeddings
    in_blocks: list[Tensor] = list(model.model.layers.parameters())
    matrices = [parameter for parameter in in_blocks if parameter.ndim == 2]
    norms: list[Tensor] = [parameter for parameter in in_blocks if parameter.ndim < 2]
    norms += model.model.norm.parameters()
    embedding: list[Tensor] = [model.model.embed_tokens.weight, *model.model.positions.parameters()]
    head: list[Tensor] = [] if tied else [model.lm_head.weight]
    return matrices, embedding, head, norms


def set_learning_rates(optimizers: list[Optimizer], factor: float) -> None:
    """Every group's rate is its full rate times `factor`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
