"""The subword tokenizer: SentencePiece BPE trained and used losslessly, and its Hugging Face twin.

What is not for here: Unicode repair (`clean` does it once) and prompts (`chat.py` builds them).
decode(encode(x)) == x for every text. Control pieces (role marks, `</s>`) never come from text.

The settings of `train` are what makes this so: identity normalisation, no dummy prefix, no
removal of spaces, byte fallback, full character coverage. SentencePiece's defaults lose newlines
and doubled spaces and rewrite characters, without a word.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from sifirdan.errors import DataError

_ModelProto: Any = model_pb2.ModelProto  # type: ignore[attr-defined]  # made at run time

MODEL_FILE = "tokenizer.model"
UNK, BOS, EOS, PAD = 0, 1, 2, 3
ROLES = ("system", "user", "assistant")
END_MARK = "<|end|>"
ROLE_MARKS = tuple(f"<|{role}|>" for role in ROLES)
NUM_SPECIAL_IDS = 4 + len(ROLES) + 1
NUM_BYTE_PIECES = 256

_SPACE_SYMBOL = "▁"  # U+2581, which SentencePiece writes for a space
_MAX_LINE_BYTES = 4096
# SentencePiece skips whole lines that hold these, or treats them as separators of its own.
_RESERVED = re.compile("[\0\t\u2581\u2585\n]+")

_REQUIRED_NORMALIZER = {
    "name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "escape_whitespaces": True,
}


def train(texts: Iterable[str], vocab_size: int) -> tuple[bytes, dict[str, int]]:
    """Train on `texts`; returns the model file's bytes, equal for equal texts, and counts.

    The texts are split into bounded lines first, since the trainer leaves out long lines with
    only a log line. Raises DataError when the text cannot fill `vocab_size`."""
    model = io.BytesIO()
    counts = {"lines": 0, "bytes": 0, "skipped_lines": 0}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_counted(training_lines(texts), counts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=1.0,
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
            max_sentence_length=2 * _MAX_LINE_BYTES,
            num_threads=1,  # BPE uses one anyway, and the number is stored in the model
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(error, vocab_size, counts) from None
    return model.getvalue(), counts


def training_lines(texts: Iterable[str]) -> Iterator[str]:
    """Bounded lines for the trainer: cut at newlines, at characters it cannot take, and long ones
    at white space; nothing else of the text is lost."""
    for text in texts:
        for line in _RESERVED.split(text):
            yield from _bounded(line)


def _bounded(line: str) -> Iterator[str]:
    while len(line.encode()) > _MAX_LINE_BYTES:
        head = line.encode()[:_MAX_LINE_BYTES].decode(errors="ignore")
        cut = head.rfind(" ")
        cut = cut if cut > 0 else len(head)
        yield line[:cut]
        line = line[cut:]  # keeps its leading space: "▁word" stays one piece
    if line:
        yield line


def _counted(lines: Iterator[str], counts: dict[str, int]) -> Iterator[str]:
    for line in lines:
        size = len(line.encode())
        counts["lines"] += 1
        counts["bytes"] += size
        counts["skipped_lines"] += size > 2 * _MAX_LINE_BYTES
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
            todo="lower train_tokenizer.vocab_size or add text",
        )
    if "required_chars" in message or "meta_pieces" in message or "meta pieces" in message:
        return DataError(
            f"train_tokenizer.vocab_size is {vocab_size}, too small for the characters of the text",
            expected=f"room for {NUM_SPECIAL_IDS + NUM_BYTE_PIECES} fixed pieces and every character",
            todo="raise train_tokenizer.vocab_size",
        )
    return DataError(f"SentencePiece could not train: {message}")


class Tokenizer:
    """A trained model file: text to ids and back. Load it with `Tokenizer.load(folder)`."""

    def __init__(self, model: bytes, place: str = "the tokenizer model") -> None:
        self.proto = _read_proto(model, place)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size = len(self.proto.pieces)
        self.eos_id, self.pad_id, self.bos_id, self.unk_id = EOS, PAD, BOS, UNK
        ids = {piece.piece: index for index, piece in enumerate(self.proto.pieces)}
        self.role_ids = {role: ids[f"<|{role}|>"] for role in ROLES}
        self.end_id = ids[END_MARK]
        self._space_symbol_ids = [ids[f"<0x{byte:02X}>"] for byte in _SPACE_SYMBOL.encode()]

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer in a tokenizer or model folder."""
        path = Path(folder) / MODEL_FILE
        try:
            return cls(path.read_bytes(), str(path))
        except FileNotFoundError:
            raise DataError(
                f"{path}: there is no such file", todo="dvc repro train_tokenizer"
            ) from None

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without any mark at its start or end."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text; in one call several times as fast as one by one."""
        try:
            for text in texts:
                text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text holds a lone surrogate, U+{ord(error.object[error.start]):04X}, "
                f"at character {error.start}",
                expected="whole Unicode characters",
            ) from None
        if not any(_SPACE_SYMBOL in text for text in texts):
            return self._processor.encode(texts)
        return [self._encode_around_space_symbols(text) for text in texts]

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`; control pieces give nothing, broken bytes give U+FFFD."""
        return self._processor.decode(ids)

    @property
    def control_ids(self) -> set[int]:
        """Ids that text never gives: unknown, `<s>`, `</s>`, padding, role marks and end mark."""
        return {UNK, BOS, EOS, PAD, self.end_id, *self.role_ids.values()}

    def _encode_around_space_symbols(self, text: str) -> list[int]:
        # SentencePiece would give a written U+2581 the ids of a space.
        ids: list[int] = []
        for index, part in enumerate(text.split(_SPACE_SYMBOL)):
            ids += (self._space_symbol_ids if index else []) + self._processor.encode(part)
        return ids


class StreamDecoder:
    """Ids to text piece by piece, holding back only the bytes of an unfinished character, so that
    the joined pieces equal the one-shot decode."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._byte_of = {
            index: int(piece.piece[3:5], 16)
            for index, piece in enumerate(tokenizer.proto.pieces)
            if piece.type == _ModelProto.SentencePiece.BYTE
        }
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """The text that `token` completes, maybe none."""
        self._held.append(token)
        keep = self._unfinished_tail()
        ready, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        return self._tokenizer.decode(ready) if ready else ""

    def flush(self) -> str:
        """What is still held back, at the end."""
        text = self._tokenizer.decode(self._held) if self._held else ""
        self._held = []
        return text

    def _unfinished_tail(self) -> int:
        """How many of the last ids are bytes that begin a character but do not end it, 0 to 3."""
        for length in (3, 2, 1):
            tail = [self._byte_of.get(token) for token in self._held[-length:]]
            if len(tail) == length and None not in tail:
                try:
                    bytes(byte for byte in tail if byte is not None).decode()
                except UnicodeDecodeError as error:
                    if error.reason == "unexpected end of data" and error.start == 0:
                        return length
        return 0


def save_hugging_face(
    folder: Path, tokenizer: Tokenizer, chat_template: str, context_length: int | None = None
) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` beside the model
    file: AutoTokenizer then gives the same ids and the same decoded text."""
    from tokenizers import AddedToken, decoders, models
    from tokenizers import Tokenizer as FastTokenizer

    vocab, merges = _vocab_and_merges(tokenizer.proto)
    fast = FastTokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    pieces = tokenizer.proto.pieces
    special = [pieces[index].piece for index in sorted(tokenizer.control_ids)]
    fast.add_special_tokens(
        [AddedToken(piece, special=True, normalized=False) for piece in special]
    )
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": pieces[EOS].piece,
        "eos_token": pieces[EOS].piece,
        "unk_token": pieces[UNK].piece,
        "pad_token": pieces[PAD].piece,
        "additional_special_tokens": [*ROLE_MARKS, END_MARK],
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": False,
    }
    if context_length is not None:
        config["model_max_length"] = context_length
    (folder / "tokenizer.json").write_text(
        fast.to_str(pretty=True) + "\n", encoding="utf-8", newline="\n"
    )
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8", newline="\n")
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8", newline="\n")


def save_readable(folder: Path, tokenizer: Tokenizer) -> None:
    """`tokenizer.vocab`: one line a piece (id, piece, score), for people."""
    lines = (
        f"{index}\t{piece.piece}\t{piece.score:g}\n"
        for index, piece in enumerate(tokenizer.proto.pieces)
    )
    (folder / "tokenizer.vocab").write_text("".join(lines), encoding="utf-8", newline="\n")


def _vocab_and_merges(proto: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """BPE vocabulary and merges, best first, with real spaces: U+2581 is then an ordinary character
    that falls back to bytes. A piece's merges are all ways to make it of two known pieces."""
    normal = _ModelProto.SentencePiece.NORMAL
    vocab = {
        piece.piece.replace(_SPACE_SYMBOL, " "): index for index, piece in enumerate(proto.pieces)
    }
    learned = [
        (index, piece.piece.replace(_SPACE_SYMBOL, " "))
        for index, piece in enumerate(proto.pieces)
        if piece.type == normal
    ]
    known = {text for _, text in learned}
    merges = []
    for _, text in sorted(learned, key=lambda entry: (-proto.pieces[entry[0]].score, entry[0])):
        halves = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        halves = [pair for pair in halves if pair[0] in known and pair[1] in known]
        merges += sorted(halves, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    return vocab, merges


def _read_proto(model: bytes, place: str) -> Any:
    """The parsed model, after its flags are checked: they decide whether text survives."""
    proto = _ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception as error:  # protobuf's DecodeError has moved between releases
        raise DataError(
            f"{place}: is not a SentencePiece model", todo="dvc repro train_tokenizer"
        ) from error
    found = {key: getattr(proto.normalizer_spec, key) for key in _REQUIRED_NORMALIZER}
    pieces = {piece.piece for piece in proto.pieces}
    if found != _REQUIRED_NORMALIZER or not {*ROLE_MARKS, END_MARK, "<0x0A>"} <= pieces:
        raise DataError(
            f"{place}: was trained with other flags ({found})",
            expected=f"{_REQUIRED_NORMALIZER}, byte pieces and the role marks: a lossless tokenizer",
            todo="train it with the stage train_tokenizer",
        )
    return proto
