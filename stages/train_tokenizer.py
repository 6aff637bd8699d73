"""Train the tokenizer: SentencePiece BPE or Unigram, lossless, the same bytes each time.

Reads data/corpus/train (a seeded sample) and, for checking, data/corpus/val. Writes
models/tokenizer: `tokenizer.model`, a readable `tokenizer.vocab`, the Hugging Face files, a card.
Fails where the Hugging Face files do not give the same ids and text. Costs seconds for megabytes of
text (Unigram ten times as much); the memory it will need is estimated first.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sifirdan import chat, runs, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.model_card import write_tokenizer_card
from sifirdan.corpus.records import read_texts
from sifirdan.corpus.sample import Sample, draw
from sifirdan.errors import ConfigError, DataError, require, run_command
from sifirdan.evals.hard_texts import PROBES, hard_texts
from sifirdan.memory import free_memory
from sifirdan.tokenizer import (
    METHOD_NAMES,
    MODEL_FILE,
    NUM_BYTE_PIECES,
    NUM_SPECIAL_IDS,
    Method,
    Tokenizer,
)
from sifirdan.tokenizer_files import require_twin, save_hugging_face, save_readable
from sifirdan.tokenizer_training import memory_needed, train

_log = logging.getLogger(__name__)

_CHECKED_DOCUMENTS = 500
_CHECKED_HARD_TEXTS = 1000
_LARGEST_VOCABULARY = 1 << 22
_LARGEST_SAMPLE = 1 << 40  # bytes
_LARGEST_WEIGHT = 1e6


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    method: Method
    vocab_size: int
    sample_bytes: int
    source_weights: dict[str, float]
    seed: int

    def __post_init__(self) -> None:
        least = NUM_SPECIAL_IDS + NUM_BYTE_PIECES + 1
        require(
            least <= self.vocab_size <= _LARGEST_VOCABULARY,
            "train_tokenizer.vocab_size",
            self.vocab_size,
            f"from {least} to {_LARGEST_VOCABULARY}",
        )
        require(
            1 <= self.sample_bytes <= _LARGEST_SAMPLE,
            "train_tokenizer.sample_bytes",
            self.sample_bytes,
            f"from 1 to {_LARGEST_SAMPLE}",
        )
        for source, weight in self.source_weights.items():
            require(
                0 <= weight <= _LARGEST_WEIGHT,
                f"train_tokenizer.source_weights.{source}",
                weight,
                f"from 0 to {_LARGEST_WEIGHT:g}",
            )


def train_tokenizer(corpus: Path, out: Path, params: Params) -> dict[str, Any]:
    """Train on `corpus`/train and check on `corpus`/val; returns the metrics."""
    corpus_manifest = runs.open_folder(corpus, "corpus", made_by="clean")
    sample = draw(corpus / "train", params.sample_bytes, params.source_weights, params.seed)
    for source in params.source_weights:
        if 0 < sample.num_bytes[source] == sample.totals[source]:
            _log.info("train_tokenizer: all text of %s is drawn, whatever its weight", source)
    _require_memory(sample, free_memory())
    model, counts = train(sample.texts(), params.vocab_size, params.method)
    if counts["skipped_lines"]:
        raise DataError(f"the trainer would skip {counts['skipped_lines']} lines", expected="none")
    tokenizer = Tokenizer(model)
    facts = {"vocab_size": tokenizer.vocab_size, "sample_bytes": sample.num_bytes}
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
        write_tokenizer_card(
            output.path, corpus, _card_facts(tokenizer, checked), sample.num_bytes, sample.totals
        )
        output.counts |= facts | counts
    return facts | {"training": counts, "check": checked}


def _require_memory(sample: Sample, free: int) -> None:
    """Refuse a sample that would not fit in `free` bytes, before the system ends the process."""
    num_bytes = sum(sample.num_bytes.values())
    if memory_needed(num_bytes, num_bytes) <= free:
        return  # even if no word came twice
    words: set[str] = set()
    word_bytes = 0
    for text in sample.texts():
        new = set(text.split()) - words
        word_bytes += sum(len(word.encode()) for word in new)
        words |= new
        if memory_needed(num_bytes, word_bytes) > free:
            break  # the words themselves take an eighth of what they stand for here
    else:
        return
    share = (free - memory_needed(0, 0)) / (
        memory_needed(num_bytes, num_bytes) - memory_needed(0, 0)
    )
    less = f"set train_tokenizer.sample_bytes to {int(num_bytes * share)}, or " if share > 0 else ""
    raise ConfigError(
        f"training a tokenizer on {num_bytes:,} bytes of text takes more than the {free / 1e9:.2f} GB of"
        " memory that are free",
        expected=f"up to {memory_needed(num_bytes, num_bytes) / 1e9:.1f} GB, if few words come twice",
        todo=f"{less}free memory",
    )


def _check(folder: Path, tokenizer: Tokenizer, corpus: Path) -> dict[str, float]:
    """Round trips, and equality of ids and text with the exported Hugging Face tokenizer; fails on
    the first difference."""
    texts = [text for _, _, text in islice(read_texts(corpus / "val"), _CHECKED_DOCUMENTS)]
    require_twin(folder, tokenizer, [*PROBES, *islice(hard_texts(0), _CHECKED_HARD_TEXTS), *texts])
    encoded = tokenizer.encode_arrays(texts)
    tokens = sum(map(len, encoded))
    num_bytes = sum(len(text.encode()) for text in texts)
    return {
        "documents": len(texts),
        "bytes_per_token": num_bytes / max(1, tokens),
        "byte_piece_share": tokenizer.byte_share(encoded),
    }


def _card_facts(tokenizer: Tokenizer, checked: Mapping[str, float]) -> dict[str, object]:
    return {
        "method": METHOD_NAMES[tokenizer.method],
        "pieces": f"{tokenizer.vocab_size:,}, with {NUM_BYTE_PIECES} bytes and {NUM_SPECIAL_IDS} marks",
        "bytes a token": f"{checked['bytes_per_token']:.2f}, on the first {checked['documents']} documents of val",
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
