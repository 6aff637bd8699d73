"""Messages to ids and loss mask: the only prompt builder, for tuning, evaluation, terminal and API.

A conversation is `</s>` once, then for each message its role mark, its content, `<|end|>`.
Marks are control ids put in by this module; content is encoded as plain text, so nothing a user
types can become one. `TEMPLATE` is the Jinja twin for `transformers`, tested to give the same ids.
"""

from dataclasses import dataclass
from typing import TypedDict

from sifirdan.errors import DataError
from sifirdan.tokenizer import END_MARK, ROLE_MARKS, ROLES, Tokenizer


class Message(TypedDict):
    """One turn."""

    role: str
    content: str


@dataclass(frozen=True)
class Encoded:
    """ids and, for each, 1 where it is a target of training (an assistant's content or end mark)."""

    ids: list[int]
    loss_mask: list[int]


def encode_conversation(tokenizer: Tokenizer, messages: list[Message]) -> Encoded:
    """A whole conversation; the mask is built in the same walk, never searched for."""
    check_messages(messages)
    ids, mask = [tokenizer.eos_id], [0]
    contents = tokenizer.encode_many([message["content"] for message in messages])
    for message, content in zip(messages, contents, strict=True):
        target = int(message["role"] == "assistant")
        ids += [tokenizer.role_ids[message["role"]], *content, tokenizer.end_id]
        mask += [0, *[target] * len(content), target]
    return Encoded(ids, mask)


def encode_prompt(tokenizer: Tokenizer, messages: list[Message]) -> list[int]:
    """The ids after which the model's answer begins."""
    return [*encode_conversation(tokenizer, messages).ids, tokenizer.role_ids["assistant"]]


def fit_prompt(tokenizer: Tokenizer, messages: list[Message], room: int) -> tuple[list[int], int]:
    """The prompt in at most `room` ids, and how many messages were dropped for it: the oldest
    whole turns go first, a system message stays. Raises DataError when even the last message
    alone is too long."""
    system = messages[:1] if messages and messages[0]["role"] == "system" else []
    turns = messages[len(system) :]
    dropped = 0
    while True:
        prompt = encode_prompt(tokenizer, [*system, *turns])
        if len(prompt) <= room:
            return prompt, dropped
        if len(turns) <= 1:
            raise DataError(
                f"the message is too long: {len(prompt)} tokens",
                expected=f"at most {room} tokens",
                todo="shorten it",
            )
        step = next((i for i in range(1, len(turns)) if turns[i]["role"] == "user"), 1)
        turns, dropped = turns[step:], dropped + step


def check_messages(messages: list[Message]) -> None:
    """Refuse what is not a list of {"role", "content"} with roles in a sensible order."""
    if not isinstance(messages, list) or not messages:
        raise DataError(
            "there are no messages", expected='a list like [{"role": "user", "content": "…"}]'
        )
    for index, message in enumerate(messages):
        place = f"message {index + 1}"
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise DataError(
                f"{place} is {message!r}"[:200], expected='the keys "role" and "content"'
            )
        if message["role"] not in ROLES:
            raise DataError(f"{place} has the role {message['role']!r}", expected=f"one of {ROLES}")
        if not isinstance(message["content"], str) or not message["content"].strip():
            raise DataError(f"{place} has no content", expected="some text")
        if message["role"] == "system" and index:
            raise DataError(
                f"{place} is a system message", expected="a system message only at the start"
            )


def _template() -> str:
    marks = [*ROLE_MARKS, END_MARK, "</s>", "<s>", "<pad>", "<unk>"]
    return (
        "{{- bos_token -}}\n"
        "{%- for message in messages -%}\n"
        f"{{%- if message['role'] not in {list(ROLES)} -%}}\n"
        "{{- raise_exception('unknown role: ' ~ message['role']) -}}\n"
        "{%- endif -%}\n"
        f"{{%- for mark in {marks} -%}}\n"
        "{%- if mark in message['content'] -%}\n"
        "{{- raise_exception('the content holds the control mark ' ~ mark) -}}\n"
        "{%- endif -%}\n"
        "{%- endfor -%}\n"
        "{{- '<|' ~ message['role'] ~ '|>' -}}\n"
        "{%- if message['role'] == 'assistant' -%}\n"
        "{%- generation -%}\n"
        f"{{{{- message['content'] ~ '{END_MARK}' -}}}}\n"
        "{%- endgeneration -%}\n"
        "{%- else -%}\n"
        f"{{{{- message['content'] ~ '{END_MARK}' -}}}}\n"
        "{%- endif -%}\n"
        "{%- endfor -%}\n"
        "{%- if add_generation_prompt -%}\n"
        "{{- '<|assistant|>' -}}\n"
        "{%- endif -%}\n"
    )


TEMPLATE = _template()
