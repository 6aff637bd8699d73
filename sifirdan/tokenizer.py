"""The subword tokenizer: text to ids and back, losslessly.

What is not for here: training (tokenizer_training.py), the files of other libraries
(tokenizer_files.py), Unicode repair (`clean` does it once) and prompts (`chat.py` builds them).
decode(encode(x)) == x for every text. Control pieces (role marks, `</s>`) never come from text.

SentencePiece encodes; this file remembers what it gave. No piece reaches over the space before a
word or over a line end, so a text can be cut there and each part be encoded by itself, once.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from sifirdan.errors import DataError

ModelProto: Any = model_pb2.ModelProto  # type: ignore[attr-defined]  # made at run time
Method = Literal["bpe", "unigram"]

MODEL_FILE = "tokenizer.model"
UNK, BOS, EOS, PAD = 0, 1, 2, 3
ROLES = ("system", "user", "assistant")
END_MARK = "<|end|>"
ROLE_MARKS = tuple(f"<|{role}|>" for role in ROLES)
SPECIAL_PIECES = ("<unk>", "<s>", "</s>", "<pad>", *ROLE_MARKS, END_MARK)  # their ids are 0 to 7
NUM_SPECIAL_IDS = len(SPECIAL_PIECES)
NUM_BYTE_PIECES = 256
SPACE_SYMBOL = "▁"  # U+2581, which SentencePiece writes for a space

# What decides whether text survives; read from the model file whenever one is loaded.
REQUIRED_NORMALIZER = {
    "name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "escape_whitespaces": True,
}
REQUIRED_TRAINER = {
    "byte_fallback": True,
    "split_by_whitespace": True,
    "treat_whitespace_as_suffix": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
}

# Patterns that cut a text into parts which no piece crosses; the first that fits the pieces is used.
# A written U+2581 stands alone: SentencePiece would take it for a space.
_WORDS = r" *[^\W\d_]+| *[^\w \n▁]+| *[\d_]+| +|\n|▁"
_SPACES = r" *[^ \n▁]+| +|\n|▁"
# Unigram: Hugging Face's would find a control piece in text; cut behind "<" it meets none. Its best
# path is a sum of scores: over short parts, and with scores of few bits, no sum is ever rounded.
_SHORT = r" {0,16}[^ \n▁<]{0,48}<| {0,16}[^ \n▁<]{1,48}| {1,16}|\n|▁"
_UNIGRAM, _BPE = model_pb2.TrainerSpec.UNIGRAM, model_pb2.TrainerSpec.BPE  # type: ignore[attr-defined]
_PATTERNS: dict[Method, tuple[str, ...]] = {
    "bpe": (_WORDS, _SPACES),
    "unigram": (_SHORT,),
}
_GROUP_CHARS = 1 << 20  # of text that is cut up at once
_CUT = re.compile(r"\n|(?<! ) ")  # where a part of every pattern begins
SCORE_STEP = 2.0**-10  # Unigram's scores are multiples of it: sums below 2**13 are exact in 32 bits
_KNOWN_CHARS = 4 << 20  # of parts whose ids are kept: about 100 MB


METHOD_NAMES: dict[Method, str] = {"bpe": "SentencePiece BPE", "unigram": "SentencePiece Unigram"}


class Tokenizer:
    """A trained model file: text to ids and back. Load it with `Tokenizer.load(folder)`."""

    def __init__(self, model: bytes, place: str = "the tokenizer model") -> None:
        self.proto = _read_proto(model, place)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.vocab_size = len(self.proto.pieces)
        self.method: Method = "bpe" if self.proto.trainer_spec.model_type == _BPE else "unigram"
        self.pattern = _pattern(self.proto, self.method, place)
        self._split = re.compile(self.pattern).findall
        self.eos_id, self.pad_id, self.bos_id, self.unk_id = EOS, PAD, BOS, UNK
        ids = {piece.piece: index for index, piece in enumerate(self.proto.pieces)}
        self.role_ids = {role: ids[f"<|{role}|>"] for role in ROLES}
        self.end_id = ids[END_MARK]
        space_symbol = [ids[f"<0x{byte:02X}>"] for byte in SPACE_SYMBOL.encode()]
        self._always_known = {SPACE_SYMBOL: _packed(space_symbol)}
        self._known = dict(self._always_known)  # a part of a text: its ids
        self._known_chars = 0

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer in a tokenizer or model folder."""
        path = Path(folder) / MODEL_FILE
        try:
            return cls(path.read_bytes(), str(path))
        except OSError as error:
            why = (
                "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
            )
            raise DataError(f"{path}: {why}", todo="dvc repro train_tokenizer") from None

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without any mark at its start or end."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [ids.tolist() for ids in self.encode_arrays(texts)]

    def encode_arrays(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, uint32, shape (its length,), read-only. Faster the more text comes
        at once; a long text costs no more memory than its ids."""
        for text in texts:
            _require_whole_characters(text)
        packed: list[list[bytes]] = [[] for _ in texts]
        for group in _groups(texts):
            encoded = self._encode_group([part for _, part in group])
            for (number, _), ids in zip(group, encoded, strict=True):
                packed[number].append(ids)
        return [np.frombuffer(b"".join(parts), np.uint32) for parts in packed]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; control pieces give nothing, broken bytes give U+FFFD."""
        return self._processor.decode(ids)

    @cached_property
    def is_byte(self) -> np.ndarray:
        """Whether an id is a single byte of a character outside the vocabulary; bool, shape (V,)."""
        byte = ModelProto.SentencePiece.BYTE
        return np.array([piece.type == byte for piece in self.proto.pieces])

    def byte_share(self, encoded: Sequence[np.ndarray]) -> float:
        """The share of single bytes among the ids of some texts."""
        num_bytes = sum(int(self.is_byte[ids].sum()) for ids in encoded)
        return num_bytes / max(1, sum(map(len, encoded)))

    @property
    def control_ids(self) -> set[int]:
        """Ids that text never gives: unknown, `<s>`, `</s>`, padding, role marks and end mark."""
        return {UNK, BOS, EOS, PAD, self.end_id, *self.role_ids.values()}

    def _encode_group(self, texts: list[str]) -> list[bytes]:
        """The packed ids of some short texts. SentencePiece sees only the parts that are new."""
        known = self._known  # another thread may put an empty one in its place
        cut = [self._split(text) for text in texts]
        new = list(set(chain.from_iterable(cut)).difference(known))
        for part, ids in zip(new, self._processor.encode(new), strict=True):
            known[part] = _packed(ids)
        encoded = [b"".join(map(known.__getitem__, parts)) for parts in cut]
        self._known_chars += sum(map(len, new))
        if self._known_chars > _KNOWN_CHARS:
            self._known, self._known_chars = dict(self._always_known), 0
        return encoded


def _packed(ids: list[int]) -> bytes:
    return array("I", ids).tobytes()


def _groups(texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """All texts with their numbers, some at a time, long ones in several parts."""
    group: list[tuple[int, str]] = []
    size = 0
    for number, text in enumerate(texts):
        for part in _cut(text):
            group.append((number, part))
            size += len(part)
            if size >= _GROUP_CHARS:
                yield group
                group, size = [], 0
    if group:
        yield group


def _cut(text: str) -> Iterator[str]:
    """A text in parts of about _GROUP_CHARS characters, cut where no piece lies."""
    start = 0
    while len(text) - start > _GROUP_CHARS:
        found = _CUT.search(text, start + _GROUP_CHARS)
        if not found:
            break
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def _require_whole_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"text holds a lone surrogate, U+{ord(error.object[error.start]):04X}, "
            f"at character {error.start}",
            expected="whole Unicode characters",
        ) from None


class StreamDecoder:
    """Ids to text piece by piece, holding back only the bytes of an unfinished character, so that
    the joined pieces equal the one-shot decode."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        pieces = piece_bytes(tokenizer.proto)
        self._byte_of = {id: pieces[id][0] for id in np.flatnonzero(tokenizer.is_byte).tolist()}
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


def piece_bytes(proto: Any) -> list[bytes]:
    """The bytes that each id stands for; none for control pieces and `<unk>`."""
    kinds = ModelProto.SentencePiece
    found = []
    for piece in proto.pieces:
        if piece.type == kinds.BYTE:
            found.append(bytes([int(piece.piece[3:5], 16)]))
        elif piece.type == kinds.NORMAL:
            found.append(plain(piece.piece).encode())
        else:
            found.append(b"")
    return found


def plain(piece: str) -> str:
    """A learned piece as it stands in text."""
    return piece.replace(SPACE_SYMBOL, " ")


def _pattern(proto: Any, method: Method, place: str) -> str:
    """The first pattern that cuts through no learned piece."""
    normal = ModelProto.SentencePiece.NORMAL
    learned = [plain(piece.piece) for piece in proto.pieces if piece.type == normal]
    for pattern in _PATTERNS[method]:
        split = re.compile(pattern).findall
        if all(split(piece) == [piece] for piece in learned):
            return pattern
    crossing = next(piece for piece in learned if split(piece) != [piece])
    raise DataError(
        f"{place}: its piece {crossing!r} reaches over the place before a word",
        expected="pieces inside a word and the spaces before it",
        todo="train it with the stage train_tokenizer",
    )


def _read_proto(model: bytes, place: str) -> Any:
    """The parsed model, after its flags and fixed pieces are checked: they decide whether text
    survives, and which ids are marks."""
    proto = ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception as error:  # protobuf's DecodeError has moved between releases
        raise DataError(
            f"{place}: is not a SentencePiece model", todo="dvc repro train_tokenizer"
        ) from error
    if not proto.pieces:
        raise DataError(f"{place}: holds no pieces", todo="dvc repro train_tokenizer")
    kinds = ModelProto.SentencePiece
    wanted: dict[str, object] = {**REQUIRED_NORMALIZER, **REQUIRED_TRAINER}
    found = {key: getattr(proto.normalizer_spec, key) for key in REQUIRED_NORMALIZER}
    found |= {key: getattr(proto.trainer_spec, key) for key in REQUIRED_TRAINER}
    wrong = {key: value for key, value in found.items() if value != wanted[key]}
    if wrong or proto.trainer_spec.model_type not in (_BPE, _UNIGRAM):
        raise DataError(
            f"{place}: was trained with other flags ({wrong or proto.trainer_spec.model_type})",
            expected=f"BPE or Unigram with {wanted}: a lossless tokenizer",
            todo="train it with the stage train_tokenizer",
        )
    first = [piece.piece for piece in proto.pieces[:NUM_SPECIAL_IDS]]
    marks = {piece.piece for piece in proto.pieces if piece.type in (kinds.UNKNOWN, kinds.CONTROL)}
    num_bytes = sum(piece.type == kinds.BYTE for piece in proto.pieces)
    others = sum(piece.type in (kinds.USER_DEFINED, kinds.UNUSED) for piece in proto.pieces)
    if (tuple(first), marks, num_bytes, others) != (
        SPECIAL_PIECES,
        set(SPECIAL_PIECES),
        NUM_BYTE_PIECES,
        0,
    ):
        raise DataError(
            f"{place}: its first pieces are {', '.join(first)}; it has {num_bytes} byte pieces and"
            f" {others} defined by a user",
            expected=f"{', '.join(SPECIAL_PIECES)} as the only marks, and {NUM_BYTE_PIECES} bytes",
            todo="train it with the stage train_tokenizer",
        )
    return proto
