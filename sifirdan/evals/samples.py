"""Samples to look at, and how many of their words the training text knows."""

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

from sifirdan.generate import Sampling, generate
from sifirdan.model.transformer import Transformer
from sifirdan.text import lower_tr
from sifirdan.tokenizer import Tokenizer

_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Sample:
    """A prompt (maybe empty) and what the model wrote after it."""

    prompt: str
    text: str
    temperature: float
    stopped: bool


def draw_samples(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: list[str],
    *,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> list[Sample]:
    """One continuation a prompt, unedited. The prompts start from `</s>`, as documents do."""
    ids = [[tokenizer.eos_id, *part] for part in tokenizer.encode_many(prompts)]
    completions = generate(
        model, ids, max_new_tokens=max_new_tokens, sampling=sampling, stop_ids=[tokenizer.eos_id],
        forbidden_ids=sorted(tokenizer.control_ids - {tokenizer.eos_id}), seed=seed,
    )  # fmt: skip
    return [
        Sample(prompt, tokenizer.decode(completion.ids), sampling.temperature, completion.stopped)
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def words_of(text: str) -> list[str]:
    """The words of a text in Turkish lower case, without digits and punctuation."""
    return _WORD.findall(lower_tr(text))


def known_word_share(texts: Iterable[str], vocabulary: Set[str]) -> float:
    """The share of the texts' words (each occurrence counts) that stand in `vocabulary`."""
    words = [word for text in texts for word in words_of(text)]
    return sum(word in vocabulary for word in words) / max(1, len(words))
