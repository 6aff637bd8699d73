"""Does a chat model answer and stop? Questions with known answers, their loss, and generated text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sifirdan.chat import Message, encode_conversation, encode_prompt
from sifirdan.corpus.loader import IGNORE
from sifirdan.evals.likelihood import Piece, nats_of
from sifirdan.generate import Completion, Sampling, generate
from sifirdan.model.transformer import Transformer
from sifirdan.tokenizer import Tokenizer

_BATCH = 50
_SENTENCE_END = re.compile(r"[.!?…][\"”’)]*(?=\s|$)")


@dataclass(frozen=True)
class Answer:
    """What the model said to a question, whose right answer is `expected`."""

    question: str
    expected: str
    text: str
    stopped: bool

    @property
    def is_one_sentence(self) -> bool:
        return (
            len(_SENTENCE_END.findall(self.text.strip())) == 1
            and self.text.strip()[-1:] in '.!?…"”’)'
        )


def answer(
    model: Transformer,
    tokenizer: Tokenizer,
    conversations: Sequence[list[Message]],
    *,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> list[Answer]:
    """Let the model write the last message of each conversation."""
    answers = []
    for first in range(0, len(conversations), _BATCH):
        part = conversations[first : first + _BATCH]
        prompts = [encode_prompt(tokenizer, messages[:-1]) for messages in part]
        completions = complete(
            model,
            tokenizer,
            prompts,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            seed=seed + first,
        )
        for messages, completion in zip(part, completions, strict=True):
            text = tokenizer.decode(completion.ids)
            answers.append(
                Answer(messages[-2]["content"], messages[-1]["content"], text, completion.stopped)
            )
    return answers


def complete(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: list[list[int]],
    *,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
) -> list[Completion]:
    """Completions that end with the end mark and hold no control id."""
    return generate(
        model, prompts, max_new_tokens=max_new_tokens, sampling=sampling, seed=seed,
        **stop_rules(tokenizer),
    )  # fmt: skip


def stop_rules(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The ids that end an answer and the ids that may never stand in one."""
    stops = [tokenizer.end_id, tokenizer.eos_id]
    return {"stop_ids": stops, "forbidden_ids": sorted(tokenizer.control_ids - set(stops))}


def answer_nats(
    model: Transformer, tokenizer: Tokenizer, conversations: Sequence[list[Message]]
) -> list[tuple[float, int]]:
    """(nats, target tokens) of every assistant turn of each conversation, end marks included."""
    pieces, targets = [], []
    for owner, messages in enumerate(conversations):
        encoded = encode_conversation(tokenizer, messages)
        ids, mask = np.array(encoded.ids), np.array(encoded.loss_mask, dtype=bool)
        pieces.append(Piece(owner, ids[:-1], np.where(mask[1:], ids[1:], IGNORE)))
        targets.append(int(mask.sum()))
    return list(zip(nats_of(model, pieces, len(pieces)), targets, strict=True))


def own_question_share(
    model: Transformer,
    tokenizer: Tokenizer,
    conversations: Sequence[list[Message]],
    wordings: Sequence[int | None],
) -> float:
    """How often an answer is likelier under its own question than under the next one of the same
    wording, which differs in its word alone: 0.5 is chance. Conversations are one question and one
    answer each; one whose wording no other has is left out; NaN where that leaves none."""
    pairs = []
    for index, wording in enumerate(wordings):
        later = [*range(index + 1, len(wordings)), *range(index)]
        other = next((number for number in later if wordings[number] == wording), None)
        if other is not None:
            pairs.append((index, other))
    if not pairs:
        return float("nan")
    own = answer_nats(model, tokenizer, [conversations[index] for index, _ in pairs])
    swapped = [[conversations[other][0], conversations[index][-1]] for index, other in pairs]
    under_other = answer_nats(model, tokenizer, swapped)
    return sum(a[0] < b[0] for a, b in zip(own, under_other, strict=True)) / len(pairs)
