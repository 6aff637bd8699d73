"""What a user chooses of a model: its parts and sizes, checked. Not for files or weights.

Letters for shapes are explained at the top of transformer.py.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from sifirdan.errors import ConfigError

PositionKind = Literal["rotary", "learned", "sinusoidal", "none"]
Norm = Literal["rmsnorm", "layernorm"]
MLP = Literal["swiglu", "gelu"]
Init = Literal["zero_residual", "gpt2"]


@dataclass(frozen=True)
class ModelShape:
    """The parts and sizes a user chooses; see params.yaml for each."""

    positions: PositionKind
    norm: Norm
    mlp: MLP
    qk_norm: bool
    bias: bool
    dropout: float
    init: Init
    hidden_size: int  # C
    intermediate_size: int
    num_layers: int  # L
    num_heads: int  # H
    num_kv_heads: int  # K
    head_size: int  # D
    rope_theta: float
    rms_norm_eps: float
    tie_embeddings: bool

    def __post_init__(self) -> None:
        for key, kind in (
            ("positions", PositionKind),
            ("norm", Norm),
            ("mlp", MLP),
            ("init", Init),
        ):
            if getattr(self, key) not in get_args(kind):
                raise ConfigError(
                    f"model.{key} is {getattr(self, key)!r}",
                    expected=f"one of {', '.join(get_args(kind))}",
                )
        for key in ("hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key} is {getattr(self, key)}", expected="1 or more")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model.num_heads is {self.num_heads} with num_kv_heads {self.num_kv_heads}",
                expected="num_heads a multiple of num_kv_heads",
                todo="change one of the two",
            )
        if self.head_size < 2 or self.head_size % 2:
            raise ConfigError(
                f"model.head_size is {self.head_size}",
                expected="an even number, 2 or more",
                todo="change model.head_size",
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}", expected="0 to below 1")
        if self.rope_theta <= 1 or self.rms_norm_eps <= 0:
            raise ConfigError(
                f"model.rope_theta is {self.rope_theta}, rms_norm_eps {self.rms_norm_eps}",
                expected="rope_theta above 1, rms_norm_eps above 0",
            )


@dataclass(frozen=True)
class ModelConfig:
    """A model's shape with the two sizes its tokenizer and training give it."""

    vocab_size: int  # V
    context_length: int
    shape: ModelShape
