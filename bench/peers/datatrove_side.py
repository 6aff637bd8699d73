"""datatrove's half of bench/corpus.py. Runs in an environment of its own and imports nothing of ours.

    python bench/peers/datatrove_side.py SETTINGS.json

Reads `folder`/*.parquet, one file a worker, and prints one line of JSON: seconds of the whole, and
by step the seconds that datatrove's own clocks counted, and how many documents stayed. It is given
every help: words are split by `str.split` (its own splitter for Turkish is spaCy's), statistics and
logs are off, n-grams are compared without its Unicode folding, the fastText model gives one label
instead of 176, and signatures are made in the pass that filters, so that the text is read twice and
not three times. Exact duplicates are left to MinHash.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["LOGURU_LEVEL"] = "ERROR"

import fasttext
from datatrove.executor import LocalPipelineExecutor
from datatrove.executor import base as executor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
from datatrove.pipeline.filters import (
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    LanguageFilter,
)
from datatrove.pipeline.formatters import FTFYFormatter, PIIFormatter
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import ParquetWriter
from datatrove.utils.lid import FT176LID
from datatrove.utils.text import TextNormConfig
from datatrove.utils.word_tokenizers import WordTokenizer
from loguru import logger

STEPS = {  # by a part of the name that datatrove gives to a step
    "FTFY": "repairs", "PII": "personal data", "Language": "language", "Gopher": "quality",
    "FineWeb": "quality", "stage 1": "fingerprints", "stage 2": "duplicates",
    "stage 3": "duplicates", "stage 4": "duplicates", "Parquet": "reading and writing",
}  # fmt: skip


class Split(WordTokenizer):
    """Words by white space."""

    def word_tokenize(self, text: str) -> list[str]:
        return text.split()

    sent_tokenize = word_tokenize

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return [(0, len(text))]


WORDS = Split()


def nothing(*_: Any, **__: Any) -> None:
    """Stands in for what counts and logs."""


def filters(settings: dict[str, Any]) -> list[PipelineStep]:
    """The rules of clean.quality that datatrove has too, with our limits."""
    quality = settings["quality"]
    top, repeated = quality["max_top_n_gram_share"], quality["max_duplicate_n_gram_share"]
    language = LanguageFilter(["tr"], language_threshold=settings["language"]["min_probability"])
    language.model.k = 1
    return [
        language,
        GopherRepetitionFilter(
            dup_line_frac=quality["max_duplicate_line_share"],
            dup_para_frac=quality["max_duplicate_paragraph_share"],
            dup_line_char_frac=quality["max_duplicate_line_char_share"],
            dup_para_char_frac=None,
            top_n_grams=[(int(n), share) for n, share in top.items()],
            dup_n_grams=[(int(n), share) for n, share in repeated.items()],
            language=WORDS,
        ),
        GopherQualityFilter(
            min_doc_words=quality["min_words"],
            max_doc_words=quality["max_words"],
            min_avg_word_length=quality["min_mean_word_chars"],
            max_avg_word_length=quality["max_mean_word_chars"],
            max_symbol_word_ratio=quality["max_symbol_share"],
            max_bullet_lines_ratio=quality["max_bullet_line_share"],
            max_ellipsis_lines_ratio=quality["max_ellipsis_line_share"],
            max_non_alpha_words_ratio=quality["min_letter_word_share"],
            min_stop_words=quality["min_stop_words"],
            stop_words=quality["stop_words"],
            language=WORDS,
        ),
        FineWebQualityFilter(
            line_punct_thr=quality["min_final_mark_line_share"],
            stop_chars=tuple(settings["final_marks"]),
            short_line_thr=2.0,  # off, as ours is
            char_duplicates_ratio=quality["max_duplicate_line_char_share"],
            new_line_ratio=quality["max_line_breaks_per_word"],
            language=WORDS,
        ),
    ]


def stages(settings: dict[str, Any], work: Path) -> list[tuple[list[PipelineStep], int]]:
    """The pipelines in their order, each with its number of tasks."""
    duplicates, workers = settings["duplicates"], settings["workers"]
    config = MinhashConfig(
        n_grams=duplicates["shingle_words"],
        num_buckets=duplicates["bands"],
        hashes_per_bucket=duplicates["rows"],
        norm_config=TextNormConfig(norm_unicode_diacritics=False, norm_numbers=False),
    )
    filtered, signatures = str(work / "filtered"), str(work / "signatures")
    buckets, removed = str(work / "buckets"), str(work / "removed")
    judge = [
        ParquetReader(settings["folder"], read_metadata=False),
        FTFYFormatter(),
        PIIFormatter(),
        *filters(settings),
        writer(filtered),
        MinhashDedupSignature(signatures, config, language=WORDS),
    ]
    return [
        (judge, workers),
        ([MinhashDedupBuckets(signatures, buckets, config=config)], duplicates["bands"]),
        ([MinhashDedupCluster(buckets, removed, config=config)], 1),
        ([ParquetReader(filtered), MinhashDedupFilter(removed), writer(str(work / "out"))], workers),
    ]  # fmt: skip


def writer(folder: str) -> ParquetWriter:
    """Of plain Parquet; what helps only the Hub is off."""
    return ParquetWriter(folder, use_content_defined_chunking=False, write_page_index=False)


def without_overheads(model: Path) -> None:
    """Statistics and logs off, the model from a local file; workers are forked and inherit it."""
    PipelineStep.stat_update = nothing
    PipelineStep.update_doc_stats = nothing
    executor.add_task_logger = nothing
    executor.close_task_logger = nothing
    executor.log_pipeline = nothing
    logger.remove()
    logging.disable(logging.INFO)
    loaded = fasttext.load_model(str(model))
    FT176LID.model = property(lambda self: loaded)


def num_rows(folder: Path) -> int:
    """Documents in the Parquet files of a folder."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    work = Path(settings["work"])
    without_overheads(Path(settings["model"]))
    steps: dict[str, float] = {}
    start = time.perf_counter()
    for number, (pipeline, tasks) in enumerate(stages(settings, work)):
        stats = LocalPipelineExecutor(
            pipeline,
            tasks=tasks,
            workers=min(settings["workers"], tasks),
            logging_dir=str(work / f"logs{number}"),
            start_method="fork",
        ).run()
        for step in stats.stats:
            name = next(ours for part, ours in STEPS.items() if part in step.name)
            steps[name] = steps.get(name, 0.0) + step.time_stats.total
        if not number:  # the clock of the signatures runs over all that comes before them
            steps["fingerprints"] -= sum(steps.values()) - steps["fingerprints"]
    seconds = time.perf_counter() - start
    judged, kept = num_rows(work / "filtered"), num_rows(work / "out")
    print(json.dumps({"seconds": seconds, "steps": steps, "judged": judged, "kept": kept}))


if __name__ == "__main__":
    main()
