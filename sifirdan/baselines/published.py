"""Published tokenizers beside ours, where they can be had: tiktoken's and those of the Hub.

The only part of the report card that needs the network, and only for names that params.yaml lists.
What cannot be had is left out with a reason, never an error: the card is whole without it.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sifirdan.baselines.contestants import Contestant, ends_by_pieces


class NotReachable(Exception):
    """A published tokenizer cannot be had; the message says why."""


def published(name: str) -> Contestant:
    """`tiktoken:o200k_base` or `hub:owner/name`; NotReachable where it cannot be had."""
    library, _, rest = name.partition(":")
    return _from_tiktoken(name, rest) if library == "tiktoken" else _from_hub(name, rest)


def _from_tiktoken(name: str, encoding: str) -> Contestant:
    try:
        import tiktoken
    except ImportError:
        raise NotReachable("the package tiktoken is not installed (pip install tiktoken)") from None
    try:
        encoder = tiktoken.get_encoding(encoding)
    except Exception as error:  # requests' many, and ValueError for names it does not know
        raise NotReachable(_first_line(error)) from None
    pieces = [_bytes_of(encoder, token) for token in range(encoder.n_vocab)]
    return Contestant(name, encoder.n_vocab, encoder.encode_ordinary_batch, ends_by_pieces(pieces))


def _bytes_of(encoder: object, token: int) -> bytes:
    try:
        return encoder.decode_single_token_bytes(token)  # type: ignore[attr-defined]
    except KeyError:  # numbers of no piece
        return b""


def _from_hub(name: str, repository: str) -> Contestant:
    from transformers import AutoTokenizer

    if Path(repository).exists():
        raise NotReachable("a folder of that name lies here and would be taken in its place")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for every try otherwise
    try:
        encoder = AutoTokenizer.from_pretrained(repository)
    except Exception as error:  # a missing file, a closed door, no network: all the same here
        raise NotReachable(_first_line(error)) from None
    if not encoder.is_fast:
        raise NotReachable("it has no tokenizer.json, by which the places of ids are known")

    def encode_many(texts: list[str]) -> list[list[int]]:
        return encoder(texts, add_special_tokens=False)["input_ids"] if texts else []

    def ends(text: str, _: list[int]) -> np.ndarray:
        found = encoder(text, add_special_tokens=False, return_offsets_mapping=True)
        return ends_by_spans(text, found["offset_mapping"])

    return Contestant(name, len(encoder), encode_many, ends, encoder.unk_token_id)


def ends_by_spans(text: str, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Ends in bytes from spans of characters. Ids that share a character, since each holds some of
    its bytes, have the same span: they divide its bytes among them."""
    starts = np.cumsum([0, *(len(char.encode()) for char in text)])
    ends = [int(starts[end]) for _, end in spans]
    number = 0
    while number < len(spans):
        shared = number
        while shared < len(spans) and spans[shared] == spans[number]:
            shared += 1
        count = shared - number
        begin = int(starts[spans[number][0]])
        for place in range(count):
            ends[number + place] = begin + (ends[shared - 1] - begin) * (place + 1) // count
        number = shared
    return np.array(ends, np.int64)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]
