"""Train the tokenizer: SentencePiece BPE, lossless, the same bytes each time.

Reads data/corpus/train (a seeded sample) and, for checking, data/corpus/val. Writes
models/tokenizer: `tokenizer.model`, a readable `tokenizer.vocab`, the Hugging Face files. Costs
seconds for megabytes of text; the sample is held in memory (about ten times its bytes).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sifirdan import chat, runs, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.records import read_folder
from sifirdan.errors import DataError, require, run_command
from sifirdan.tokenizer import (
    MODEL_FILE,
    NUM_BYTE_PIECES,
    NUM_SPECIAL_IDS,
    Tokenizer,
    save_hugging_face,
    save_readable,
    train,
)

_CHECKED_DOCUMENTS = 500
_PROBES = (
    "",
    " ",
    "a\n\n  b\tc ",
    "10 m² ½ … № ﬁ",
    "x ▁ y",
    "<|user|></s>",
    "ÇĞİIıöşü’ne",
    "🙂🙂",
    "\r\n\0",
)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    vocab_size: int
    sample_bytes: int
    seed: int

    def __post_init__(self) -> None:
        least = NUM_SPECIAL_IDS + NUM_BYTE_PIECES + 1
        require(
            self.vocab_size >= least,
            "train_tokenizer.vocab_size",
            self.vocab_size,
            f"{least} or more",
        )
        require(
            self.sample_bytes >= 1, "train_tokenizer.sample_bytes", self.sample_bytes, "1 or more"
        )


def train_tokenizer(corpus: Path, out: Path, params: Params) -> dict[str, Any]:
    """Train on `corpus`/train and check on `corpus`/val; returns the metrics."""
    corpus_manifest = runs.open_folder(corpus, "corpus", made_by="clean")
    model, counts = train(_sample(corpus, params), params.vocab_size)
    if counts["skipped_lines"]:
        raise DataError(f"the trainer would skip {counts['skipped_lines']} lines", expected="none")
    tokenizer = Tokenizer(model)
    with runs.new_folder(
        out,
        kind="tokenizer",
        inputs={"corpus": corpus_manifest},
        params=asdict(params),
        packages=("sentencepiece", "tokenizers"),
    ) as output:
        (output.path / MODEL_FILE).write_bytes(model)
        save_readable(output.path, tokenizer)
        save_hugging_face(output.path, tokenizer, chat.TEMPLATE)
        checked = _check(output.path, tokenizer, corpus)
        output.counts |= {"vocab_size": tokenizer.vocab_size} | counts
    return {"vocab_size": tokenizer.vocab_size, "training": counts, "check": checked}


def _sample(corpus: Path, params: Params) -> Iterator[str]:
    """Documents drawn by a hash of (seed, id), about `sample_bytes` of them in all."""
    total = sum(len(document.text.encode()) for document in read_folder(corpus / "train"))
    share = params.sample_bytes / max(1, total)
    for document in read_folder(corpus / "train"):
        draw = hashlib.sha256(f"{params.seed}\0{document.id}".encode()).digest()
        if share >= 1 or int.from_bytes(draw[:8], "big") < share * 2**64:
            yield document.text


def _check(folder: Path, tokenizer: Tokenizer, corpus: Path) -> dict[str, float]:
    """Round trips, and equality of ids and text with the exported Hugging Face tokenizer; the stage
    fails on the first difference."""
    from transformers import AutoTokenizer

    exported = AutoTokenizer.from_pretrained(folder)
    texts = [document.text for document in islice(read_folder(corpus / "val"), _CHECKED_DOCUMENTS)]
    tokens = fallback = 0
    for text in [*_PROBES, *texts]:
        ids = tokenizer.encode(text)
        theirs = exported(text, split_special_tokens=True)["input_ids"]
        if tokenizer.decode(ids) != text or ids != theirs or exported.decode(theirs) != text:
            raise DataError(
                f"the tokenizer does not give back {text[:80]!r}", expected="the same text"
            )
    for ids in tokenizer.encode_many(texts):
        tokens += len(ids)
        fallback += sum(tokenizer.proto.pieces[index].type == 6 for index in ids)  # 6: a byte piece
    num_bytes = sum(len(text.encode()) for text in texts)
    return {
        "documents": len(texts),
        "bytes_per_token": num_bytes / max(1, tokens),
        "byte_piece_share": fallback / max(1, tokens),
    }


def main() -> None:
    params = load_params(PARAMS_FILE, "train_tokenizer", Params)
    corpus, out = Path("data/corpus"), Path("models/tokenizer")
    with track.stage(
        "train_tokenizer",
        params=asdict(params),
        inputs={"corpus": corpus},
        outputs={"tokenizer": out},
    ) as run:
        run.finish(train_tokenizer(corpus, out, params), Path("metrics/train_tokenizer.json"))


if __name__ == "__main__":
    run_command(main)
