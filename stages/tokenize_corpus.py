"""Turn the corpus into token shards, one row a document.

Reads data/corpus and models/tokenizer. Writes data/tokens/{train,val,test,ood} as Arrow streams
that are memory-mapped later, a card by which `datasets` opens the four splits, and the data card of
the corpus, carried on unchanged. Before that it proves once more that no training text shares a run
of words with held-out text, by the measure `clean` used. Costs seconds for 10 MB, on all cores; memory
for a row group of the corpus on each, and `clean.contamination.memory_mb`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sifirdan import runs, track
from sifirdan.config import PARAMS_FILE, build, load_params
from sifirdan.corpus.card import carry_card
from sifirdan.corpus.contamination import ContaminationParams, require_no_overlap
from sifirdan.corpus.encode import encode_folder
from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.shards import SPLITS, datasets_card, write_folder
from sifirdan.errors import ConfigError, DataError, require, run_command
from sifirdan.runtime import Runtime
from sifirdan.tokenizer import Tokenizer


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    max_shard_tokens: int

    def __post_init__(self) -> None:
        require(
            self.max_shard_tokens >= 1,
            "tokenize_corpus.max_shard_tokens",
            self.max_shard_tokens,
            "1 or more",
        )


def tokenize_corpus(
    corpus: Path,
    tokenizer_folder: Path,
    out: Path,
    params: Params,
    num_workers: int | None = None,
) -> dict[str, Any]:
    """Encode every split; returns the counts of documents, tokens and bytes for each."""
    corpus_manifest = runs.open_folder(corpus, "corpus", made_by="clean")
    tokenizer_manifest = runs.open_folder(tokenizer_folder, "tokenizer", made_by="train_tokenizer")
    vocab_size = Tokenizer.load(tokenizer_folder).vocab_size
    with (
        Workers(num_workers) as workers,
        runs.new_folder(
            out,
            kind="tokens",
            inputs={"corpus": corpus_manifest, "tokenizer": tokenizer_manifest},
            params=asdict(params),
            packages=("sentencepiece", "pyarrow"),
        ) as output,
    ):
        _require_separate(corpus, corpus_manifest, workers)
        for split in SPLITS:
            (output.path / split).mkdir()
            output.counts[split] = write_folder(
                output.path / split,
                encode_folder(corpus / split, tokenizer_folder, workers),
                vocab_size=vocab_size,
                max_shard_tokens=params.max_shard_tokens,
            )
        runs.write_text(output.path / "README.md", datasets_card(SPLITS))
        carry_card(corpus, output.path)
    return {"splits": output.counts}


def _require_separate(corpus: Path, manifest: runs.Manifest, workers: Workers) -> None:
    """Refuse a corpus whose training text shares a run of words with one of its other splits."""
    try:
        section = manifest.params.get("contamination")
        measure = build(ContaminationParams, section, "clean.contamination")
        measure.check("clean.contamination")
    except ConfigError:
        raise DataError(
            f"{corpus}: its manifest does not say how its training text was parted from held-out text",
            expected="params.contamination, as the stage clean of this release writes it",
            todo="an older release made it: dvc repro -f -s clean",
        ) from None
    held_out = {split: corpus / split for split in SPLITS if split != "train"}
    require_no_overlap(corpus / "train", held_out, measure, workers)


def main() -> None:
    params = load_params(PARAMS_FILE, "tokenize_corpus", Params)
    num_workers = load_params(PARAMS_FILE, "runtime", Runtime).corpus_workers
    corpus, tokenizer, out = Path("data/corpus"), Path("models/tokenizer"), Path("data/tokens")
    with track.stage(
        "tokenize_corpus",
        params=asdict(params),
        inputs={"corpus": corpus, "tokenizer": tokenizer},
        outputs={"tokens": out},
    ) as run:
        metrics = tokenize_corpus(corpus, tokenizer, out, params, num_workers)
        run.finish(metrics, Path("metrics/tokenize_corpus.json"))


if __name__ == "__main__":
    run_command(main)
