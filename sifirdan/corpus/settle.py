"""The third pass of cleaning: each document that stays gets its split, loses the lines and sentences
that it shares with others, and is written; every document, in or out, gets its row in the ledger.

Functions over batches, for worker processes; what must happen in order happens in `settle_all`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from sifirdan.corpus import judge, records
from sifirdan.corpus.compare import (
    CONTAINED,
    COPY_REASONS,
    NEAR_DUPLICATE,
    REPEATED_LINES,
    Decisions,
    read_lines,
    starts_of,
    texts_left,
)
from sifirdan.corpus.contamination import ContaminationParams, EvaluationText, decontaminated
from sifirdan.corpus.dedup import drop_lines
from sifirdan.corpus.examples import Samples
from sifirdan.corpus.judge import Judged
from sifirdan.corpus.ledger import LedgerWriter
from sifirdan.corpus.ledger_file import SPLITS, LedgerRow
from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.records import Document, PartWriter

RESERVED, CONTAMINATED = "reserved", "contaminated"
HELD_OUT = ("val", "test", "ood", RESERVED)


@dataclass(frozen=True)
class SettleParams:
    """The settings of this pass; see params.yaml for each."""

    min_chars: int
    val_share: float
    contamination: ContaminationParams
    min_clean_share: float
    samples: int


@dataclass(frozen=True)
class Settling:
    """A batch on its way: the verdict of each kept document so far, a split or why it is out."""

    judged: Judged
    verdicts: list[str]
    held_out: Path
    params: SettleParams


@dataclass
class Settled:
    """A batch that is done. The texts that stay lie in a file of the batch for each split."""

    verdicts: list[str]  # final, of each kept document
    chars: list[int]  # of each, 0 for what is out
    num_bytes: Counter[str]  # by split, of its texts as UTF-8
    places: Counter[str]  # that lost lines or sentences
    samples: Samples
    sample_places: dict[str, int] = field(default_factory=dict)  # of copies that were offered


@dataclass
class Outcome:
    """Sums over all batches."""

    splits: dict[str, dict[str, int]]
    samples: Samples
    places: dict[str, Counter[str]] = field(default_factory=dict)  # by source


def settle_all(
    judged: Sequence[Judged],
    decisions: Decisions,
    folder: Path,
    scratch: Path,
    book: LedgerWriter,
    uses: Mapping[str, Sequence[str]],
    params: SettleParams,
    workers: Workers,
    progress: Callable[[Iterator[Settled]], Iterator[Settled]],
) -> Outcome:
    """Write the splits into `folder` and a row into `book` for every document. `uses` says of each
    source what it is for."""
    splits = {name: {"documents": 0, "chars": 0, "bytes": 0} for name in SPLITS}
    outcome = Outcome(splits, Samples(params.samples))
    ids = _kept_ids(judged, scratch / "ids")
    jobs = partial(_jobs, judged, decisions, scratch / "held_out", uses, params)
    _gather_held_out(jobs(), scratch / "held_out", params.contamination, workers)
    settled = workers.map(settle_batch, jobs())
    copies: dict[str, int] = {}  # of documents shown as copies: the number of the one that stays
    with ExitStack() as stack:
        writers = {name: stack.enter_context(PartWriter(folder / name)) for name in SPLITS}
        for start, batch, done in zip(starts_of(judged), judged, progress(settled), strict=True):
            _append(batch, done, writers, splits)
            _record(batch, done, decisions, start, ids, book)
            outcome.places.setdefault(batch.batch.source, Counter()).update(done.places)
            outcome.samples.merge(done.samples)
            for id, place in done.sample_places.items():
                copies[id] = int(decisions.kept[start + place])
    _show_copies(judged, copies, outcome.samples)
    return outcome


def _jobs(
    judged: Sequence[Judged],
    decisions: Decisions,
    held_out: Path,
    uses: Mapping[str, Sequence[str]],
    params: SettleParams,
) -> Iterator[Settling]:
    for start, batch in zip(starts_of(judged), judged, strict=True):
        ood = "ood" in uses[batch.batch.source]
        end = start + batch.kept
        buckets = decisions.bucket[start:end].tolist()
        verdicts = [
            reason or ("ood" if ood else records.split_of_bucket(bucket, params.val_share))
            for reason, bucket in zip(decisions.reasons(start, end), buckets, strict=True)
        ]
        yield Settling(batch, verdicts, held_out, params)


def _kept_ids(judged: Sequence[Judged], path: Path) -> np.ndarray:
    """The ids of all kept documents in their order, shape (kept,), 32 bytes each; on disk."""
    with open(path, "wb") as file:
        for batch in judged:
            ids = judge.read_kept_rows(batch.batch).column("id")
            file.write("".join(ids.to_pylist()).encode())
    total = sum(batch.kept for batch in judged)
    return np.memmap(path, "S32", "r", shape=(total,)) if total else np.zeros(0, "S32")


def _gather_held_out(
    jobs: Iterator[Settling], folder: Path, params: ContaminationParams, workers: Workers
) -> None:
    """The n-grams of every text that is held out: val, test, what is reserved, out of domain."""
    held_out = EvaluationText(folder, params)
    for texts in workers.map(held_out_texts, jobs):
        held_out.add(texts)
    held_out.finish()


def held_out_texts(job: Settling) -> list[str]:
    """The texts of a batch that are never trained on."""
    wanted = [place for place, verdict in enumerate(job.verdicts) if verdict in HELD_OUT]
    return texts_left(job.judged, wanted, read_lines(job.judged)) if wanted else []


def settle_batch(job: Settling) -> Settled:
    """Settle a batch; writes its files of documents that stay, one a split."""
    documents, cut = _without_lines(job)
    verdicts = list(job.verdicts)
    samples = Samples(job.params.samples)
    done = Settled(verdicts, [], Counter(), Counter({REPEATED_LINES: cut}), samples)
    _decontaminate(documents, verdicts, job, done)
    for place, (document, verdict) in enumerate(zip(documents, verdicts, strict=True)):
        if verdict not in SPLITS and done.samples.wants(
            verdict, "rejected", document.source, document.id
        ):
            done.samples.offer(verdict, "rejected", judge.example_of(document))
            if verdict in COPY_REASONS:
                done.sample_places[document.id] = place
        done.chars.append(len(document.text) if verdict in SPLITS else 0)
    for split in SPLITS:
        stays = [d for d, verdict in zip(documents, verdicts, strict=True) if verdict == split]
        if stays:
            done.num_bytes[split] = sum(len(document.text.encode()) for document in stays)
            records.write_parquet(job.judged.batch.file(split), stays)
    return done


def _decontaminate(
    documents: list[Document], verdicts: list[str], job: Settling, done: Settled
) -> None:
    """Take out of training text what it shares with held-out text, in place; a document that would
    lose too much goes as a whole."""
    train = [place for place, verdict in enumerate(verdicts) if verdict == "train"]
    held_out = EvaluationText(job.held_out, job.params.contamination)
    shared = held_out.overlaps([documents[place].text for place in train])
    for place in np.array(train, np.int64)[shared > 0].tolist():
        text = decontaminated(documents[place].text, held_out, 1 - job.params.min_clean_share)
        if len(text) < job.params.min_chars:
            verdicts[place] = CONTAMINATED
        else:
            done.places[CONTAMINATED] += 1
            documents[place] = replace(documents[place], text=text)


def _without_lines(job: Settling) -> tuple[list[Document], int]:
    """The kept documents of a batch without the lines that stand in too many, and how many went."""
    documents = list(records.read_parquet(job.judged.batch.file("kept")))
    lines = read_lines(job.judged)
    for place, numbers in lines.items():
        text = drop_lines(documents[place].text, numbers)
        documents[place] = replace(documents[place], text=text)
    return documents, sum(map(len, lines.values()))


def _append(
    batch: Judged,
    done: Settled,
    writers: Mapping[str, PartWriter],
    splits: dict[str, dict[str, int]],
) -> None:
    """Write what stays of one batch, and count it."""
    chars: Counter[str] = Counter()
    documents = Counter(done.verdicts)
    for verdict, length in zip(done.verdicts, done.chars, strict=True):
        chars[verdict] += length
    for split in SPLITS:
        if documents[split]:
            writers[split].add_rows(records.read_rows(batch.batch.file(split)), chars[split])
            splits[split]["documents"] += documents[split]
            splits[split]["chars"] += chars[split]
            splits[split]["bytes"] += done.num_bytes[split]


def _record(
    batch: Judged,
    done: Settled,
    decisions: Decisions,
    start: int,
    ids: np.ndarray,
    book: LedgerWriter,
) -> None:
    """The ledger's rows of one batch, in the order the documents came in."""
    place = 0
    for row in judge.read_rows(batch.batch).to_pylist():
        verdict, chars_out, kept_id, similarity = row["reason"], 0, None, None
        if verdict is None:
            verdict, chars_out, number = done.verdicts[place], done.chars[place], start + place
            if verdict in COPY_REASONS:
                kept_id = ids[decisions.kept[number]].decode()
            if verdict in (NEAR_DUPLICATE, CONTAINED):
                similarity = round(float(decisions.similarity[number]), 4)
            place += 1
        book.add(
            LedgerRow(
                row["id"], batch.batch.source, row["license"], row["origin"], verdict,
                row["chars_in"], chars_out, kept_id, similarity, tuple(row["flags"]),
            )
        )  # fmt: skip
    assert place == len(done.verdicts), (place, len(done.verdicts))


def _show_copies(judged: Sequence[Judged], copies: Mapping[str, int], samples: Samples) -> None:
    """Put beside each copy that is shown the text that stayed."""
    shown = [(reason, x) for reason in COPY_REASONS for x in samples.of(reason, "rejected")]
    wanted = {copies[example.id] for _, example in shown}
    texts: dict[int, str] = {}
    for start, batch in zip(starts_of(judged), judged, strict=True):
        here = sorted(number for number in wanted if start <= number < start + batch.kept)
        if here:
            kept = records.read_rows(batch.batch.file("kept"), ["text"])
            for number in here:
                texts[number] = kept.column("text")[number - start].as_py()
    for reason, example in shown:
        stayed = judge.masked(texts[copies[example.id]])
        samples.complete(reason, replace(example, kept=stayed))
