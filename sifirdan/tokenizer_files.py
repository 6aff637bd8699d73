"""A tokenizer's files for others: what Hugging Face loads, and a list for people.

`AutoTokenizer.from_pretrained(folder)` gives the ids of ours and takes them back to the same text, by the
same pieces put into the terms of the library `tokenizers`; `require_twin` compares the two.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sifirdan.errors import DataError
from sifirdan.tokenizer import (
    END_MARK,
    EOS,
    PAD,
    ROLE_MARKS,
    SPECIAL_PIECES,
    UNK,
    ModelProto,
    Tokenizer,
    plain,
)

_REPORT = (
    "this is a fault of sifirdan: please report it with this text; another train_tokenizer.method or"
    " vocab_size may go around it"
)


def save_hugging_face(
    folder: Path, tokenizer: Tokenizer, chat_template: str, context_length: int | None = None
) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` beside the model
    file: AutoTokenizer then gives the same ids, and decodes what came from text to the same text (bytes
    that no text gives, which only a model can put together, become U+FFFD in other numbers)."""
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as FastTokenizer

    if tokenizer.method == "bpe":
        vocab, merges = _vocab_and_merges(tokenizer.proto)
        fast = FastTokenizer(
            models.BPE(
                vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
            )
        )
    else:
        scores = [(plain(piece.piece), piece.score) for piece in tokenizer.proto.pieces]
        fast = FastTokenizer(models.Unigram(scores, unk_id=UNK, byte_fallback=True))
        fast.pre_tokenizer = pre_tokenizers.Split(Regex(tokenizer.pattern), "isolated")
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    fast.add_special_tokens(
        [AddedToken(piece, special=True, normalized=False) for piece in SPECIAL_PIECES]
    )
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_PIECES[EOS],
        "eos_token": SPECIAL_PIECES[EOS],
        "unk_token": SPECIAL_PIECES[UNK],
        "pad_token": SPECIAL_PIECES[PAD],
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


def require_twin(folder: Path, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Raise DataError at the first text that does not come back, or that AutoTokenizer encodes or
    decodes in another way, and for marks that have other ids there."""
    from transformers import AutoTokenizer

    twin = AutoTokenizer.from_pretrained(folder)
    marks = twin.convert_tokens_to_ids(list(SPECIAL_PIECES))
    if marks != list(range(len(SPECIAL_PIECES))) or len(twin) != tokenizer.vocab_size:
        raise DataError(
            f"{folder}: AutoTokenizer has {len(twin)} ids, of the marks {marks}",
            expected=f"{tokenizer.vocab_size} ids, and 0 to {len(SPECIAL_PIECES) - 1} for the marks",
        )
    ours = tokenizer.encode_many(texts)
    theirs = twin(list(texts), split_special_tokens=True)["input_ids"]
    for text, ids, other_ids in zip(texts, ours, theirs, strict=True):
        if tokenizer.decode(ids) != text:
            raise DataError(
                f"the tokenizer does not give back {text[:80]!r}",
                expected="the same text",
                todo=_REPORT,
            )
        if ids != other_ids or twin.decode(other_ids) != text:
            raise DataError(
                f"AutoTokenizer encodes or decodes {text[:80]!r} in another way",
                expected="the same ids and text",
                todo=_REPORT,
            )


def _vocab_and_merges(proto: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """BPE vocabulary and merges, best first, with real spaces: U+2581 is then an ordinary character
    that falls back to bytes. A piece's merges are all ways to make it of two known pieces."""
    normal = ModelProto.SentencePiece.NORMAL
    vocab = {plain(piece.piece): index for index, piece in enumerate(proto.pieces)}
    learned = [
        (index, plain(piece.piece))
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
