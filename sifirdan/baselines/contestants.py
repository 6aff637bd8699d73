"""Every tokenizer that the report card compares, seen the same way: text to ids, and the bytes of the
text where each id ends. All measures follow from these two, so none favours a library.

Ours comes trained; the others are trained here, on the same text and to the same number of ids.
Published ones are in published.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sifirdan.baselines import byte_pairs, plain
from sifirdan.baselines.byte_pairs import BYTE_ORDER, GPT4_PATTERN
from sifirdan.tokenizer import METHOD_NAMES, Method, Tokenizer, piece_bytes
from sifirdan.tokenizer_training import train


@dataclass(frozen=True)
class Contestant:
    """`ends(text, ids)` are the bytes of the text where each of its ids ends, int64, shape (ids,);
    `unknown` is the id that stands for what was lost, if there is one."""

    name: str
    vocab_size: int
    encode_many: Callable[[list[str]], list[list[int]]]
    ends: Callable[[str, list[int]], np.ndarray]
    unknown: int | None = None


def ours(tokenizer: Tokenizer, name: str) -> Contestant:
    """A tokenizer of the pipeline, trained."""
    pieces = piece_bytes(tokenizer.proto)
    return Contestant(name, len(pieces), tokenizer.encode_many, ends_by_pieces(pieces))


def sentencepiece(texts: Iterable[str], vocab_size: int, method: Method) -> Contestant:
    """Trained here with the flags of ours; smaller where the text is too short for the size."""
    model, _ = train(texts, vocab_size, method, exact=False)
    return ours(Tokenizer(model), METHOD_NAMES[method])


def characters(texts: Iterable[str], vocab_size: int) -> Contestant:
    """A list of characters."""
    return _of_list("characters", plain.train_characters(texts, vocab_size))


def words(texts: Iterable[str], vocab_size: int) -> Contestant:
    """A list of words and marks."""
    return _of_list("words", plain.train_words(texts, vocab_size))


def from_scratch(texts: Iterable[str], vocab_size: int) -> Contestant:
    """Our own byte pairs."""
    trained = byte_pairs.train(texts, vocab_size)
    return Contestant(
        "byte pairs from scratch",
        len(trained.pieces),
        lambda some: list(map(trained.encode, some)),
        ends_by_pieces(trained.pieces),
    )


def hugging_face(texts: Iterable[str], vocab_size: int) -> Contestant:
    """Byte-level BPE of the library `tokenizers`, cut as GPT-4 cuts."""
    encoder = train_hugging_face(texts, vocab_size)
    byte_of = dict(zip(sorted(_alphabet()), BYTE_ORDER, strict=True))
    found = encoder.get_vocab()
    pieces = [
        bytes(byte_of[char] for char in piece) for piece in sorted(found, key=found.__getitem__)
    ]
    return Contestant(
        "byte-level BPE, GPT-4 split",
        len(pieces),
        lambda some: [one.ids for one in encoder.encode_batch_fast(some)],
        ends_by_pieces(pieces),
    )


def train_hugging_face(texts: Iterable[str], vocab_size: int):  # type: ignore[no-untyped-def]
    """A `tokenizers.Tokenizer`: the reference that our own byte pairs are held against."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    encoder = Tokenizer(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(GPT4_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    encoder.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=_alphabet(), min_frequency=2, show_progress=False
    )
    encoder.train_from_iterator(texts, trainer)
    return encoder


def ends_by_pieces(pieces: Sequence[bytes]) -> Callable[[str, list[int]], np.ndarray]:
    """For ids whose bytes, joined, are the text."""
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    return lambda _, ids: np.cumsum(sizes[ids]) if ids else np.zeros(0, np.int64)


def _alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel.alphabet()


def _of_list(name: str, trained: plain.ListTokenizer) -> Contestant:
    def ends(text: str, _: list[int]) -> np.ndarray:
        sizes = [len(part.encode()) for part in trained.split(text)]
        return np.cumsum(np.array(sizes, np.int64))

    encode_many = lambda some: list(map(trained.encode, some))  # noqa: E731
    return Contestant(name, len(trained.parts), encode_many, ends, plain.UNK)
