"""Sampling: pure functions on logits, and generation with a key-value cache, in batches or as a
stream. Order: forbidden ids, temperature, top-k, top-p, renormalise, draw. Temperature 0 is greedy.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.model.attention import additive
from sifirdan.model.transformer import Transformer


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. temperature 0 to 10 (0: greedy), top_k 0 (all) or more, top_p above 0
    to 1."""

    temperature: float
    top_k: int
    top_p: float

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise ConfigError(f"temperature is {self.temperature}", expected="0 (greedy) to 10")
        if self.top_k < 0:
            raise ConfigError(f"top_k is {self.top_k}", expected="0 (all) or more")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}", expected="above 0, at most 1")


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """logits (B, V) with all but each row's k largest at -inf; k 0 keeps all."""
    if k == 0 or k >= logits.shape[-1]:
        return logits
    smallest_kept = logits.topk(k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < smallest_kept, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """logits (B, V) with all but the fewest most likely ids that reach probability p at -inf
    (nucleus sampling, arXiv:1904.09751); the likeliest id always stays."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    beyond = probabilities.cumsum(-1) - probabilities >= p
    return logits.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)


def sample(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Draw one id a row: logits (B, V) -> (B,)."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    scaled = logits / sampling.temperature
    scaled = scaled - scaled.max(-1, keepdim=True).values  # stays finite at tiny temperatures
    kept = keep_top_p(keep_top_k(scaled, sampling.top_k), sampling.top_p)
    return torch.multinomial(kept.softmax(-1), 1, generator=generator)[:, 0]


@dataclass(frozen=True)
class Completion:
    """What was generated for one prompt, without the stop id; `stopped` tells whether one came."""

    ids: list[int]
    stopped: bool


def generate(
    model: Transformer,
    prompts: list[list[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling,
    stop_ids: list[int],
    forbidden_ids: list[int],
    seed: int,
) -> list[Completion]:
    """Continue each prompt (not empty) by up to `max_new_tokens`; prompts of any lengths share the
    steps without seeing each other's padding. Raises ConfigError when a prompt and its answer do
    not fit the model's context."""
    rows: list[list[int]] = [[] for _ in prompts]
    stopped = [False] * len(prompts)
    for fresh in steps(
        model, prompts, max_new_tokens=max_new_tokens, sampling=sampling,
        stop_ids=stop_ids, forbidden_ids=forbidden_ids, seed=seed,
    ):  # fmt: skip
        for row, token in enumerate(fresh):
            stopped[row] = token is None
            if token is not None:
                rows[row].append(token)
    return [Completion(row, end) for row, end in zip(rows, stopped, strict=True)]


@torch.inference_mode()
def steps(
    model: Transformer,
    prompts: list[list[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling,
    stop_ids: list[int],
    forbidden_ids: list[int],
    seed: int,
) -> Iterator[list[int | None]]:
    """The same, one step at a time: each yields every row's new id, None once the row has stopped.
    Ends when all rows have; closing the iterator ends the work."""
    longest = max(len(prompt) for prompt in prompts)
    room = longest + max_new_tokens
    if min(len(prompt) for prompt in prompts) < 1 or room > model.config.context_length:
        raise ConfigError(
            f"a prompt of {longest} tokens and {max_new_tokens} new ones do not fit",
            expected=f"1 to {model.config.context_length} tokens together, the model's context",
            todo="shorten the prompt or ask for fewer new tokens",
        )
    device = model.lm_head.weight.device
    generator = torch.Generator(device=device).manual_seed(seed)
    padding = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
    padded = [prompt[:1] * (longest - len(prompt)) + prompt for prompt in prompts]
    allowed = torch.arange(room, device=device)[None] >= padding[:, None]  # (B, room)
    ragged = bool(padding.any())
    cache = model.new_cache(len(prompts), room)
    positions = (torch.arange(longest, device=device) - padding[:, None]).clamp(min=0)
    mask = _prefill_mask(allowed, longest) if ragged else None
    logits = model(torch.tensor(padded, device=device), positions=positions, mask=mask, cache=cache)
    _require_finite(logits)

    stops = torch.tensor(stop_ids, device=device)
    finished = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    rows = list(range(len(prompts)))  # which prompts the rows of the batch are
    for seen in range(longest, room):
        last = logits[:, -1].float()
        last[:, forbidden_ids] = -torch.inf
        chosen = sample(last, sampling, generator)
        finished |= torch.isin(chosen, stops)
        fresh: list[int | None] = [None] * len(prompts)
        for row, token, end in zip(rows, chosen.tolist(), finished.tolist(), strict=True):
            fresh[row] = None if end else token
        yield fresh
        if finished.all() or seen == room - 1:
            return
        if 2 * int(finished.sum()) >= len(rows):  # the others go on without them
            left = (~finished).nonzero()[:, 0]
            rows = [rows[place] for place in left.tolist()]
            chosen, finished, padding, allowed = (
                x[left] for x in (chosen, finished, padding, allowed)
            )
            for layer in cache:
                layer.keys, layer.values = layer.keys[left], layer.values[left]
        mask = additive(allowed[:, None, None, : seen + 1]) if ragged else None
        logits = model(chosen[:, None], positions=(seen - padding)[:, None], mask=mask, cache=cache)


def _prefill_mask(allowed: Tensor, length: int) -> Tensor:
    """Causal, without padding; a padding place sees itself so that its row is not empty."""
    causal = torch.ones(length, length, dtype=torch.bool, device=allowed.device).tril()
    itself = torch.eye(length, dtype=torch.bool, device=allowed.device)
    return additive((causal & allowed[:, None, :length]) | itself)[:, None]  # (B, 1, T, T)


def _require_finite(logits: Tensor) -> None:
    if not bool(torch.isfinite(logits).all()):
        raise CheckpointError(
            "the model's logits are not finite",
            expected="whole weights",
            todo="sifirdan verify models/base",
        )
