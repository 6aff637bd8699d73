"""Tokenising a corpus beside `datasets.map` and beside SentencePiece alone, in one run.

    python -m bench.tokenizer [--mb 40] [--workers 2] [--rounds 3]     the table
    python -m bench.tokenizer --scale [--sizes 20 400]                 seconds and memory by size

The text is bench/generated_corpus, as clean leaves it: Parquet in row groups. The tokenizer is ours,
with as many pieces as params.yaml says, trained on a tenth of it. In turns, `rounds` times, each in a
process of its own:

- ours: read Parquet, encode, write Arrow shards, with `workers` processes; and the whole stage
  `tokenize_corpus`, which also hashes its inputs and proves training text apart from held-out text;
- `datasets.map` over the same files with the exported tokenizer (AutoTokenizer), in batches of 1,000,
  with as many processes, which writes Arrow too;
- SentencePiece alone on as many threads: texts in memory, ids back as Python lists, no file.

Start-up and imports are not timed; opening the files and starting the workers are. Medians.
"""

import argparse
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import sentencepiece

from bench import generated_corpus
from bench.processes import run_measured, workplace
from sifirdan import chat, runs
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.card import CARD_FILE, FORMAT_VERSION
from sifirdan.corpus.encode import encode_folder
from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.records import Document, PartWriter, read_texts
from sifirdan.corpus.shards import SPLITS, write_folder
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.tokenizer_files import save_hugging_face
from sifirdan.tokenizer_training import train
from stages import clean, tokenize_corpus, train_tokenizer

SIDES = {
    "ours": "ours: read, encode, write",
    "stage": "ours: the whole stage",
    "datasets": "datasets.map, fast tokenizer",
    "raw": "SentencePiece alone, no files",
}
TRAINING_BYTES = 4_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mb", type=float, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", action="store_true", help="seconds and memory by size")
    parser.add_argument("--sizes", type=float, nargs="+", default=[20, 400], help="in MB")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(SIDE_FUNCTIONS[given.side](given.work, given.workers)))
    elif given.scale:
        show_scale(given.sizes, given.workers)
    else:
        show_comparison(given.mb, given.workers, given.rounds)


def make_corpus(work: Path, mb: float) -> float:
    """A finished corpus folder of generated text, all of it for training, and a tokenizer; returns
    the size of the text in MB of UTF-8."""
    params = load_params(PARAMS_FILE, "clean", clean.Params)
    contamination = {"contamination": vars(params.contamination)}
    size = 0
    with runs.new_folder(work / "corpus", kind="corpus", inputs={}, params=contamination) as output:
        runs.write_json(output.path / CARD_FILE, {"format_version": FORMAT_VERSION})
        for split in SPLITS:
            with PartWriter(output.path / split) as writer:
                some = generated_corpus.documents(int(mb * 1e6), 1) if split == "train" else ()
                for number, text in enumerate(some):
                    writer.add(Document(f"{number:032x}", text, "web", "own", str(number), {}))
                    size += len(text.encode())
    make_tokenizer(work)
    return size / 1e6


def make_tokenizer(work: Path) -> None:
    vocab_size = load_params(PARAMS_FILE, "train_tokenizer", train_tokenizer.Params).vocab_size
    texts, taken = [], 0
    for _, _, text in read_texts(work / "corpus/train"):
        if taken > TRAINING_BYTES:
            break
        texts.append(text)
        taken += len(text.encode())
    tokenizer = Tokenizer(train(texts, vocab_size)[0])
    with runs.new_folder(work / "tokenizer", kind="tokenizer", inputs={}, params={}) as output:
        (output.path / MODEL_FILE).write_bytes(tokenizer.proto.SerializeToString())
        save_hugging_face(output.path, tokenizer, chat.TEMPLATE)


# The sides: each returns its seconds and the tokens it made


def ours(work: Path, workers: int) -> dict[str, float]:
    out = work / "ours"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    vocab_size = Tokenizer.load(work / "tokenizer").vocab_size
    start = time.perf_counter()
    with Workers(workers) as processes:
        batches = encode_folder(work / "corpus/train", work / "tokenizer", processes)
        counts = write_folder(out, batches, vocab_size=vocab_size, max_shard_tokens=10**9)
    return {
        "seconds": time.perf_counter() - start,
        "tokens": counts["tokens"] - counts["documents"],  # less the closing marks
    }


def stage(work: Path, workers: int) -> dict[str, float]:
    params = tokenize_corpus.Params(max_shard_tokens=10**9)
    start = time.perf_counter()
    made = tokenize_corpus.tokenize_corpus(
        work / "corpus", work / "tokenizer", work / "tokens", params, workers
    )["splits"]["train"]
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": made["tokens"] - made["documents"]}


def datasets_map(work: Path, workers: int) -> dict[str, float]:
    os.environ["HF_DATASETS_CACHE"] = str(work / "datasets")
    shutil.rmtree(work / "datasets", ignore_errors=True)
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    encoder = AutoTokenizer.from_pretrained(work / "tokenizer")
    files = sorted(map(str, (work / "corpus/train").glob("*.parquet")))
    found = datasets.Dataset.from_parquet(files)  # its copy of the text as Arrow is not timed
    start = time.perf_counter()
    made = found.map(
        lambda rows: {"tokens": encoder(rows["text"], split_special_tokens=True)["input_ids"]},
        batched=True,
        num_proc=workers,
        remove_columns=found.column_names,
    )
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": sum(len(ids) for ids in made["tokens"])}


def raw(work: Path, workers: int) -> dict[str, float]:
    model = (work / "tokenizer" / MODEL_FILE).read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = [text for _, _, text in read_texts(work / "corpus/train")]
    start = time.perf_counter()
    ids = processor.encode(texts, num_threads=workers)
    return {"seconds": time.perf_counter() - start, "tokens": sum(map(len, ids))}


SIDE_FUNCTIONS = {"ours": ours, "stage": stage, "datasets": datasets_map, "raw": raw}


def side(name: str, work: Path, workers: int) -> dict[str, Any]:
    return run_measured(
        "bench.tokenizer", f"--side={name}", f"--work={work}", f"--workers={workers}"
    )


# The tables


def show_comparison(mb: float, workers: int, rounds: int) -> None:
    with workplace() as work:
        mb = make_corpus(work, mb)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
        for _ in range(rounds):
            for name in SIDES:
                found[name].append(side(name, work, workers))
    tokens = {run["tokens"] for runs_of_side in found.values() for run in runs_of_side}
    seconds = {name: [run["seconds"] for run in some] for name, some in found.items()}
    print(
        f"{mb:.1f} MB, {workers} workers, {rounds} rounds in turns; tokens of all sides: {tokens}\n"
    )
    print(f"{'':32}{'MB/s':>8}{'from':>8}{'to':>8}{'ours is':>9}{'peak MB':>9}")
    for name, label in SIDES.items():
        ratio = statistics.median(
            other / mine for other, mine in zip(seconds[name], seconds["ours"], strict=True)
        )
        print(
            f"{label:32}{mb / statistics.median(seconds[name]):8.2f}{mb / max(seconds[name]):8.2f}"
            f"{mb / min(seconds[name]):8.2f}{ratio:8.2f}x{max(r['peak_mb'] for r in found[name]):9.0f}"
        )


def show_scale(sizes: list[float], workers: int) -> None:
    print(f"{'MB':>8}{'seconds':>9}{'MB/s':>8}{'time':>8}{'peak MB':>9}   (the whole stage)")
    first: tuple[float, float] | None = None
    for size in sizes:
        with workplace() as work:
            mb = make_corpus(work, size)
            found = side("stage", work, workers)
        first = first or (mb, found["seconds"])
        print(
            f"{mb:8.1f}{found['seconds']:9.1f}{mb / found['seconds']:8.2f}"
            f"{found['seconds'] / first[1]:7.1f}x{found['peak_mb']:9.0f}   text {mb / first[0]:.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
