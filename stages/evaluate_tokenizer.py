"""The tokenizer's report card, beside baselines that learn from the same text.

Reads models/tokenizer and data/corpus. Writes reports/tokenizer: a page with a picture, and the same
as numbers. The baselines are trained here on `baseline_bytes` of text, and so is ours once more
where it learned from more. Costs about a minute on two cores, most of it for Unigram.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sifirdan import runs, track
from sifirdan.baselines.contestants import (
    Contestant,
    characters,
    from_scratch,
    hugging_face,
    ours,
    sentencepiece,
    words,
)
from sifirdan.baselines.published import NotReachable, published
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.records import read_texts
from sifirdan.corpus.sample import draw
from sifirdan.errors import DataError, require, run_command
from sifirdan.evals.suffix_gold import gold_set
from sifirdan.evals.tokenizer_card import Row, compare, numbers, page, plot
from sifirdan.tokenizer import METHOD_NAMES, Tokenizer

_log = logging.getLogger(__name__)

_SPEED_BYTES = 500_000
_HELD_OUT = ("val", "ood")
_PUBLISHED = re.compile(r"tiktoken:\w+|hub:[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    baseline_bytes: int
    chains_a_stem: int
    documents_a_domain: int
    published: list[str]

    def __post_init__(self) -> None:
        for key in ("baseline_bytes", "chains_a_stem", "documents_a_domain"):
            value = getattr(self, key)
            require(value >= 1, f"evaluate_tokenizer.{key}", value, "1 or more")
        require(self.seed >= 0, "evaluate_tokenizer.seed", self.seed, "0 or more")
        for name in self.published:
            known = _PUBLISHED.fullmatch(name) and self.published.count(name) == 1
            require(
                bool(known), "evaluate_tokenizer.published", name,
                "tiktoken:ENCODING or hub:OWNER/NAME, each once",
            )  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """The card's rows, the published tokenizers that could not be had, and for MLflow alone the
    speed of each in MB/s."""

    rows: list[Row]
    skipped: dict[str, str]
    speeds: dict[str, float]
    metrics: dict[str, Any]


def evaluate_tokenizer(tokenizer_folder: Path, corpus: Path, out: Path, params: Params) -> Findings:
    """Write the card; returns what is on it."""
    made = runs.open_folder(tokenizer_folder, "tokenizer", made_by="train_tokenizer")
    corpus_manifest = runs.open_folder(corpus, "corpus", made_by="clean")
    runs.require_same(
        made, "corpus", corpus_manifest, what="the tokenizer", made_by="train_tokenizer"
    )
    tokenizer = Tokenizer.load(tokenizer_folder)
    if "sample_bytes" not in made.counts:
        raise DataError(
            f"{tokenizer_folder}: its manifest does not say which text it learned from",
            expected="counts.sample_bytes, as train_tokenizer of this release writes it",
            todo="an older release made it: dvc repro -f -s train_tokenizer",
        )
    trained_bytes = sum(made.counts["sample_bytes"].values())
    budget = min(params.baseline_bytes, made.params["sample_bytes"])
    sample = draw(corpus / "train", budget, made.params["source_weights"], made.params["seed"])
    contestants, skipped = _contestants(
        tokenizer,
        list(sample.texts()),
        params,
        same_text=sum(sample.num_bytes.values()) == trained_bytes,
    )
    held_out = dict(_domains(corpus, params.documents_a_domain))
    bands = gold_set(
        (text for _, _, text in read_texts(corpus / "train")), params.chains_a_stem, params.seed
    )
    rows = compare(contestants, held_out, bands, seed=params.seed)
    unused = _unused_pieces(tokenizer, corpus)
    byte_share = tokenizer.byte_share(
        [ids for texts in held_out.values() for ids in tokenizer.encode_arrays(texts)]
    )
    facts = {
        "method": METHOD_NAMES[tokenizer.method],
        "pieces": f"{tokenizer.vocab_size:,}, of which {unused:,} learned ones occur nowhere in the training text",
        "ours learned from": f"{trained_bytes:,} bytes of text",
        "baselines learned from": f"{sum(sample.num_bytes.values()):,} bytes of the same text",
        "single bytes": f"{byte_share:.2%} of tokens, for line ends and characters outside the vocabulary",
    }
    metrics = {
        "unused_pieces": unused,
        "byte_piece_share": byte_share,
        "gold_words": sum(len(band.words) for band in bands),
        "gold_stems": sum(band.num_stems for band in bands),
        "tokenizers": {row.name: numbers(row) for row in rows},
    }
    with runs.new_folder(
        out,
        kind="tokenizer_card",
        inputs={"tokenizer": made, "corpus": corpus_manifest},
        params=asdict(params),
        packages=("sentencepiece", "tokenizers", "regex", "matplotlib"),
    ) as output:
        runs.write_text(output.path / "report.md", page(rows, bands, facts, skipped))
        runs.write_json(output.path / "card.json", metrics)
        plot(output.path / "card.png", rows)
    return Findings(rows, skipped, _speeds(contestants, held_out), metrics)


def _contestants(
    tokenizer: Tokenizer, texts: list[str], params: Params, *, same_text: bool
) -> tuple[list[Contestant], dict[str, str]]:
    """Ours first; and why published ones are missing."""
    size = tokenizer.vocab_size
    found = [ours(tokenizer, "sifirdan")]
    if not same_text:
        again = sentencepiece(texts, size, tokenizer.method)
        found.append(replace(again, name=f"{again.name}, text of the others"))
    found += [
        sentencepiece(texts, size, method) for method in METHOD_NAMES if method != tokenizer.method
    ]
    found += [make(texts, size) for make in (hugging_face, from_scratch, words, characters)]
    skipped = {}
    for name in params.published:
        try:
            found.append(published(name))
        except NotReachable as reason:
            skipped[name] = str(reason)
            _log.warning("evaluate_tokenizer: %s is left out: %s", name, reason)
    return found, skipped


def _domains(corpus: Path, num_documents: int) -> Iterator[tuple[str, list[str]]]:
    """Held-out texts by source, at most `num_documents` of each."""
    for split in _HELD_OUT:
        by_source: dict[str, list[str]] = {}
        for _, source, text in read_texts(corpus / split):
            some = by_source.setdefault(source, [])
            if len(some) < num_documents:
                some.append(text)
        for source, texts in sorted(by_source.items()):
            yield f"{split} {source}", texts


def _unused_pieces(tokenizer: Tokenizer, corpus: Path) -> int:
    """Learned pieces that no training text needs."""
    used = np.zeros(tokenizer.vocab_size, bool)
    texts = (text for _, _, text in read_texts(corpus / "train"))
    while some := list(islice(texts, 1000)):
        for ids in tokenizer.encode_arrays(some):
            used[ids] = True
    fixed = tokenizer.is_byte.copy()
    fixed[sorted(tokenizer.control_ids)] = True
    return int((~used & ~fixed).sum())


def _speeds(
    contestants: Sequence[Contestant], held_out: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """MB of text a second, on about _SPEED_BYTES; for MLflow, since no two runs are alike."""
    texts, size = [], 0
    for text in (text for some in held_out.values() for text in some):
        if size < _SPEED_BYTES:
            texts.append(text)
            size += len(text.encode())
    speeds = {}
    for contestant in contestants:
        start = time.perf_counter()
        contestant.encode_many(texts)
        speeds[contestant.name] = size / 1e6 / (time.perf_counter() - start)
    return speeds


def main() -> None:
    params = load_params(PARAMS_FILE, "evaluate_tokenizer", Params)
    tokenizer, corpus, out = (
        Path("models/tokenizer"),
        Path("data/corpus"),
        Path("reports/tokenizer"),
    )
    with track.stage(
        "evaluate_tokenizer",
        params=asdict(params),
        inputs={"tokenizer": tokenizer, "corpus": corpus},
        outputs={"card": out},
    ) as run:
        found = evaluate_tokenizer(tokenizer, corpus, out, params)
        for name in ("report.md", "card.png", "card.json"):
            run.log_artifact(out / name)
        run.log_metrics({f"mb_per_second/{name}": value for name, value in found.speeds.items()}, 0)
        run.finish(found.metrics, Path("metrics/evaluate_tokenizer.json"))


if __name__ == "__main__":
    run_command(main)
