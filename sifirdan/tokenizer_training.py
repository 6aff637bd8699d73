"""Train a tokenizer: SentencePiece BPE or Unigram with the settings that lose nothing.

Identity normalisation, no dummy prefix, no removal of spaces, byte fallback, every character:
SentencePiece's defaults lose newlines and doubled spaces and rewrite characters, without a word.
The same texts give the same bytes on any machine. BPE training uses one core, whatever it is told.
Not for drawing the texts: corpus/sample.py does.
"""

import io
import re
from collections.abc import Iterable, Iterator

import sentencepiece

from sifirdan.errors import DataError
from sifirdan.text import bounded
from sifirdan.tokenizer import (
    BOS,
    END_MARK,
    EOS,
    NUM_BYTE_PIECES,
    NUM_SPECIAL_IDS,
    PAD,
    ROLE_MARKS,
    SCORE_STEP,
    SPACE_SYMBOL,
    UNK,
    Method,
    ModelProto,
)

_MAX_LINE_CHARS = 1024
_MAX_LINE_BYTES = 4 * _MAX_LINE_CHARS  # longer lines would be left out of training
# SentencePiece skips whole lines that hold these, or treats them as separators of its own.
_RESERVED = re.compile("[\0\t\u2581\u2585\n]+")
_BEHIND_BRACKET = re.compile("[^<]*<|[^<]+")

# Memory of the trainer, in bytes for each byte of text and of its distinct words; measured on text
# of 5 to 60 MB from all words alike to all words new (docs/LOG.md), rounded up.
_MEMORY_OF_TEXT, _MEMORY_OF_WORDS, _MEMORY_AT_LEAST = 6, 80, 50_000_000


def train(
    texts: Iterable[str], vocab_size: int, method: Method = "bpe", *, exact: bool = True
) -> tuple[bytes, dict[str, int]]:
    """Train on `texts`; returns the model file's bytes, equal for equal texts, and counts.

    The texts are split into bounded lines first, since the trainer leaves out long lines with
    only a log line. Raises DataError when the text cannot fill `vocab_size`; where it need not be
    `exact`, the vocabulary is smaller then."""
    model = io.BytesIO()
    counts = {"lines": 0, "bytes": 0, "skipped_lines": 0}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_counted(training_lines(texts, method), counts),
            model_writer=model,
            model_type=method,
            vocab_size=vocab_size,
            hard_vocab_limit=exact,
            character_coverage=1.0,
            required_chars=SPACE_SYMBOL,  # else text without spaces would leave them without a piece
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=PAD,
            pad_piece="<pad>",
            control_symbols=",".join((*ROLE_MARKS, END_MARK)),
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=1,  # the number is stored in the model
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(error, vocab_size, counts) from None
    trained = model.getvalue()
    return (trained if method == "bpe" else _with_short_scores(trained)), counts


def training_lines(texts: Iterable[str], method: Method = "bpe") -> Iterator[str]:
    """Bounded lines for the trainer: cut at newlines, at characters it cannot take, and long ones
    at white space; nothing else of the text is lost. Unigram's are cut behind "<" as well: the
    tokenizer never encodes across it."""
    for text in texts:
        for line in _RESERVED.split(text):
            for part in bounded(line, _MAX_LINE_CHARS):
                yield from [part] if method == "bpe" else _BEHIND_BRACKET.findall(part)


def _with_short_scores(model: bytes) -> bytes:
    """Scores rounded to few bits, so that every library finds equal sums where we find them."""
    proto = ModelProto()
    proto.ParseFromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score / SCORE_STEP) * SCORE_STEP
    return bytes(proto.SerializeToString())


def memory_needed(num_bytes: int, num_word_bytes: int) -> int:
    """Bytes of memory that training takes at most, for text of `num_bytes` whose distinct words
    together have `num_word_bytes`."""
    return (
        _MEMORY_AT_LEAST
        + _MEMORY_OF_TEXT * num_bytes
        + _MEMORY_OF_WORDS * min(num_bytes, num_word_bytes)
    )


def _counted(lines: Iterator[str], counts: dict[str, int]) -> Iterator[str]:
    for line in lines:
        size = len(line.encode())
        counts["lines"] += 1
        counts["bytes"] += size
        counts["skipped_lines"] += size > _MAX_LINE_BYTES
        yield line


def _explain(error: RuntimeError, vocab_size: int, counts: dict[str, int]) -> DataError:
    """The trainer's error in plain words, with the largest (or smallest) size that works."""
    message = str(error)
    if not counts["lines"]:
        return DataError(
            "there is no text to train a tokenizer on", todo="add text: see data/README.md"
        )
    if match := re.search(r"value <= (\d+)", message):
        return DataError(
            f"train_tokenizer.vocab_size is {vocab_size}, too large for {counts['bytes']} bytes of text",
            expected=f"at most {match[1]}",
            todo="lower train_tokenizer.vocab_size, raise train_tokenizer.sample_bytes or add text",
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return DataError(
            f"train_tokenizer.vocab_size is {vocab_size}, too small for the characters of the text",
            expected=f"at least {match[1]}: {NUM_SPECIAL_IDS + NUM_BYTE_PIECES} fixed pieces and every character",
            todo="raise train_tokenizer.vocab_size",
        )
    return DataError(f"SentencePiece could not train: {message}")
