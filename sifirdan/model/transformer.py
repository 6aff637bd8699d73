"""The decoder-only transformer: embedding, blocks, norm and head, out of the parts in this folder.

Each part is chosen once, in a constructor: positions.py, norms.py, attention.py, mlp.py, layers.py
(matrices, dropout), initialisation.py (starting weights), by shape.py. Parameters are named as in a
Hugging Face Llama checkpoint; nothing here knows of files, training or sampling.

Shapes: B batch, T tokens, C width (hidden_size), H query heads, K key-value heads, D head size,
V vocabulary, L layers, S tokens that are looked at (T, or with a cache all so far).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sifirdan.errors import ConfigError
from sifirdan.model.attention import Attention, LayerCache, additive
from sifirdan.model.initialisation import SCHEMES
from sifirdan.model.layers import Linear, dropout
from sifirdan.model.mlp import MLPS
from sifirdan.model.norms import norm
from sifirdan.model.positions import POSITIONS, Angles, Positions
from sifirdan.model.shape import ModelConfig, ModelShape

__all__ = ["Block", "Decoder", "ModelConfig", "ModelShape", "Transformer", "segment_mask"]

# Tokens; up to here training on a CPU uses a ready causal mask (T, T). Longer windows are causal too,
# inside torch's kernel (attention.attend).
MAX_MASKED_LENGTH = 512


class Block(nn.Module):
    """Pre-norm decoder block: attention and MLP, each added to the residual stream."""

    def __init__(self, shape: ModelShape, turn: Callable[[Tensor, Angles], Tensor]) -> None:
        super().__init__()
        width, bias = shape.hidden_size, shape.bias
        eps = shape.rms_norm_eps  # LayerNorm's too
        # before attention (GPT-2's ln_1)
        self.input_layernorm = norm(shape.norm, width, eps, bias=bias)
        self.self_attn = Attention(shape, turn)
        # before the MLP, in spite of its name (GPT-2's ln_2)
        self.post_attention_layernorm = norm(shape.norm, width, eps, bias=bias)
        self.mlp = MLPS[shape.mlp](width, shape.intermediate_size, bias=bias)
        self.dropout = dropout(shape.dropout)

    def forward(
        self, x: Tensor, angles: Angles, mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), angles, mask, cache))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))  # (B, T, C)


class Decoder(nn.Module):
    """Embedding, L blocks and the final norm: what Llama keeps under the name `model`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = config.shape
        self.embed_tokens = nn.Embedding(config.vocab_size, shape.hidden_size)
        self.positions: Positions = POSITIONS[shape.positions](shape, config.context_length)
        self.dropout = dropout(shape.dropout)
        length = min(config.context_length, MAX_MASKED_LENGTH)
        causal = additive(torch.ones(length, length, dtype=torch.bool).tril())
        self.register_buffer("causal", causal, persistent=False)
        self.layers = nn.ModuleList(
            Block(shape, self.positions.turn) for _ in range(shape.num_layers)
        )
        self.norm = norm(shape.norm, shape.hidden_size, shape.rms_norm_eps, bias=shape.bias)

    def forward(
        self,
        embedded: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """embedded (B, T, C), positions (B or 1, T) -> final hidden states (B, T, C). The lookups
        stay outside, in `Transformer.embed`: their compiled backward would add atomically and give
        other bits each run."""
        angles = self.positions.angles(positions, embedded.dtype)
        length, causal = embedded.shape[1], self.get_buffer("causal")
        trains_on_cpu = embedded.requires_grad and embedded.device.type == "cpu"
        if mask is None and trains_on_cpu and length <= len(causal):
            # (T, T), for all of B and H; ready-made: a comparison would not compile to vectors
            mask = causal[:length, :length]
        hidden = embedded
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, angles, mask, cache[index] if cache else None)
        final: Tensor = self.norm(hidden)
        return final


class Transformer(nn.Module):
    """Token ids to logits. `lm_head.weight` is `embed_tokens.weight` where they are tied."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = Linear(config.shape.hidden_size, config.vocab_size)
        if config.shape.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def embed(
        self,
        ids: Tensor,
        dtype: torch.dtype = torch.float32,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Token ids (B, T) -> embeddings (B, T, C): the token's row, plus the position's where
        positions are added, then dropout. `positions` (B or 1, T) default to 0 … T-1. The result is
        in `dtype`, which the whole forward pass then runs in."""
        self._require_room(ids.shape[1])
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        embedded = self.model.positions(self.model.embed_tokens(ids), positions)
        dropped: Tensor = self.model.dropout(embedded.to(dtype))
        return dropped

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
        return self.lm_head(self.model(self.embed(ids, dtype, positions), positions, mask, cache))

    def new_cache(
        self, batch: int, room: int, dtype: torch.dtype = torch.float32
    ) -> list[LayerCache]:
        """An empty cache for `room` tokens a sequence."""
        self._require_room(room)
        shape = self.config.shape
        like = self.lm_head.weight.detach().to(dtype)[:1]
        return [
            LayerCache(batch, shape.num_kv_heads, room, shape.head_size, like)
            for _ in range(shape.num_layers)
        ]

    def initialise(self, generator: torch.Generator) -> None:
        """Starting weights, by the scheme `init` of the shape."""
        SCHEMES[self.config.shape.init](self, self.config.shape, generator)

    def num_parameters(self) -> int:
        """Every weight once, a tied one too."""
        return sum(parameter.numel() for parameter in self.parameters())

    def _require_room(self, length: int) -> None:
        if length > self.config.context_length:
            raise ConfigError(
                f"{length} tokens do not fit the model's context",
                expected=f"at most {self.config.context_length}: it knows no positions beyond",
                todo="shorten the text, or train with a larger train.context_length",
            )


def segment_mask(segments: Tensor) -> Tensor:
    """segments (B, T), the number of the text each token belongs to -> mask (B, 1, T, T) under
    which a token sees itself and earlier tokens of its own text only."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    return additive(causal & (segments[:, :, None] == segments[:, None, :]))[:, None]
