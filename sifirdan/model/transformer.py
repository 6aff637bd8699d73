"""The decoder-only transformer. Parameter names are those of a Hugging Face Llama checkpoint, so
a saved model is one; nothing here knows of files, training or sampling.

Shapes: B batch, T tokens, C width (hidden_size), H query heads, K key-value heads, D head size,
V vocabulary, L layers.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sifirdan.errors import ConfigError
from sifirdan.model.layers import Block, LayerCache, Linear, RMSNorm, RotaryPositions, additive

MAX_MASKED_LENGTH = 512  # tokens; longer windows train without a causal mask of T x T numbers


@dataclass(frozen=True)
class ModelShape:
    """The sizes a user chooses."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    rope_theta: float
    rms_norm_eps: float
    tie_embeddings: bool

    def __post_init__(self) -> None:
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
                expected="an even number: rotary positions turn pairs",
                todo="change model.head_size",
            )
        if self.rope_theta <= 1 or self.rms_norm_eps <= 0:
            raise ConfigError(
                f"model.rope_theta is {self.rope_theta}, rms_norm_eps {self.rms_norm_eps}",
                expected="rope_theta above 1, rms_norm_eps above 0",
            )


@dataclass(frozen=True)
class ModelConfig:
    """A model's shape with the two sizes its tokenizer and training give it."""

    vocab_size: int
    context_length: int
    shape: ModelShape


class Decoder(nn.Module):
    """Embedding, L blocks and the final norm: what Llama keeps under the name `model`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = config.shape
        self.embed_tokens = nn.Embedding(config.vocab_size, shape.hidden_size)
        self.rotary = RotaryPositions(shape.head_size, config.context_length, shape.rope_theta)
        length = min(config.context_length, MAX_MASKED_LENGTH)
        causal = additive(torch.ones(length, length, dtype=torch.bool).tril())
        self.register_buffer("causal", causal, persistent=False)
        self.layers = nn.ModuleList(
            Block(
                hidden_size=shape.hidden_size,
                intermediate_size=shape.intermediate_size,
                num_heads=shape.num_heads,
                num_kv_heads=shape.num_kv_heads,
                head_size=shape.head_size,
                norm_eps=shape.rms_norm_eps,
            )
            for _ in range(shape.num_layers)
        )
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(
        self,
        embedded: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """embedded (B, T, C), positions (B or 1, T) -> final hidden states (B, T, C). The lookup
        stays outside: its compiled backward would add atomically and give other bits each run."""
        cos, sin = self.rotary(positions, embedded.dtype)
        length, causal = embedded.shape[1], self.get_buffer("causal")
        trains_on_cpu = embedded.requires_grad and embedded.device.type == "cpu"
        if mask is None and trains_on_cpu and length <= len(causal):
            mask = causal[:length, :length]  # ready-made: a comparison would not compile to vectors
        hidden = embedded
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, cos, sin, mask, cache[index] if cache else None)
        return self.norm(hidden)


class Transformer(nn.Module):
    """Token ids to logits. `lm_head.weight` is `embed_tokens.weight` where they are tied."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = Linear(config.shape.hidden_size, config.vocab_size)
        if config.shape.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def embed(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """ids (B, T) -> (B, T, C) in `dtype`, which the whole forward pass then runs in."""
        return self.model.embed_tokens(ids).to(dtype)

    def forward(
        self,
        ids: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: list[LayerCache] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """ids (B, T) -> logits (B, T, V) in `dtype`. `positions` (B or 1, T) default to 0 … T-1;
        `mask` (B or 1, 1, T, S), added to the scores (see `additive`), defaults to causal."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        return self.lm_head(self.model(self.embed(ids, dtype), positions, mask, cache))

    def new_cache(
        self, batch: int, room: int, dtype: torch.dtype = torch.float32
    ) -> list[LayerCache]:
        """An empty cache for `room` tokens a sequence."""
        shape = self.config.shape
        like = self.lm_head.weight.detach().to(dtype)[:1]
        return [
            LayerCache(batch, shape.num_kv_heads, room, shape.head_size, like)
            for _ in range(shape.num_layers)
        ]

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Starting weights: embedding N(0, 0.8) and a nearly silent head N(0, 0.001) (modded-nanogpt,
        nanochat; one shared N(0, 0.02) table when tied), matrices N(0, 0.5/√fan_in), and zero for
        the two that write into the residual stream, so that every block starts as the identity."""
        tied = self.config.shape.tie_embeddings
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
            elif name == "model.embed_tokens.weight":
                parameter.normal_(0.0, 0.02 if tied else 0.8, generator=generator)
            elif name == "lm_head.weight":
                parameter.normal_(0.0, 0.001, generator=generator)
            else:
                parameter.normal_(0.0, 0.5 / math.sqrt(parameter.shape[1]), generator=generator)

    def num_parameters(self) -> int:
        """Every weight once, a tied one too."""
        return sum(parameter.numel() for parameter in self.parameters())


def segment_mask(segments: Tensor) -> Tensor:
    """segments (B, T), the number of the text each token belongs to -> mask (B, 1, T, T) under
    which a token sees itself and earlier tokens of its own text only."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    return additive(causal & (segments[:, :, None] == segments[:, None, :]))[:, None]
