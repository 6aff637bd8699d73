"""Clean text: repairs and rules, duplicates, decontamination and the split, each document once.

Reads: data/raw. Writes: data/corpus/{train,val,test,ood}/part-*.parquet, ledger.parquet (one row a
document: in, or out and why), a sample of rejects, a data card; and reports/corpus, a page for people.
Three passes: each document by itself (corpus/judge.py), all against all on arrays on disk
(corpus/compare.py), then what stays is written (corpus/settle.py); the first and the last on all
cores. Costs: minutes a gigabyte and core; disk of twice the text meanwhile; memory is bounded by
clean.duplicates.memory_mb and the largest document.
"""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sifirdan import runs, track
from sifirdan.cleaning.by_reader import RepairParams
from sifirdan.cleaning.flags import FlagParams
from sifirdan.cleaning.language import LanguageParams
from sifirdan.cleaning.personal import PersonalParams
from sifirdan.cleaning.quality import QualityParams
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus import card, corpus_report, ledger_file, records
from sifirdan.corpus.compare import CompareParams, compare
from sifirdan.corpus.contamination import ContaminationParams
from sifirdan.corpus.corpus_report import CorpusFindings
from sifirdan.corpus.dedup import RepeatedLineParams
from sifirdan.corpus.examples import Samples
from sifirdan.corpus.judge import Batch, Judged, JudgeParams, judge_batch
from sifirdan.corpus.ledger import LedgerWriter
from sifirdan.corpus.ledger_file import LEDGER_FILE, SPLITS
from sifirdan.corpus.near_duplicates import DuplicateParams
from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.reasons import NOT_FOR_PRETRAINING
from sifirdan.corpus.records import BUCKETS, VAL_BUCKETS
from sifirdan.corpus.settle import SettleParams, settle_all
from sifirdan.corpus.steps import steps_of
from sifirdan.errors import DataError, require, run_command
from sifirdan.runtime import Runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    min_chars: int
    max_replacement_share: float
    val_share: float
    reject_sample: int
    repairs: RepairParams
    language: LanguageParams
    quality: QualityParams
    personal: PersonalParams
    flags: FlagParams
    duplicates: DuplicateParams
    max_duplicate_share: float
    repeated_lines: RepeatedLineParams
    contamination: ContaminationParams
    min_clean_share: float

    def __post_init__(self) -> None:
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "1 or more")
        for key in ("max_replacement_share", "max_duplicate_share", "min_clean_share"):
            share = getattr(self, key)
            require(0 <= share <= 1, f"clean.{key}", share, "from 0 to 1")
        slice_share = VAL_BUCKETS / BUCKETS
        allowed = f"above 0, at most {slice_share}, the slice that is never trained on"
        require(0 < self.val_share <= slice_share, "clean.val_share", self.val_share, allowed)
        require(self.reject_sample >= 0, "clean.reject_sample", self.reject_sample, "0 or more")
        self.duplicates.check("clean.duplicates")
        self.repeated_lines.check("clean.repeated_lines")
        self.contamination.check("clean.contamination")

    @property
    def judging(self) -> JudgeParams:
        return JudgeParams(
            self.min_chars, self.max_replacement_share, self.repairs, self.language, self.quality,
            self.personal, self.flags, self.duplicates, self.repeated_lines, self.reject_sample,
        )  # fmt: skip

    @property
    def comparing(self) -> CompareParams:
        return CompareParams(
            self.min_chars, self.duplicates, self.repeated_lines, self.max_duplicate_share
        )

    @property
    def settling(self) -> SettleParams:
        return SettleParams(
            self.min_chars, self.val_share, self.contamination, self.min_clean_share,
            self.reject_sample,
        )  # fmt: skip


@dataclass
class Totals:
    """Sums of the first pass over all batches; the counters by source."""

    samples: Samples
    repairs: dict[str, Counter[str]] = field(default_factory=dict)
    languages: dict[str, Counter[str]] = field(default_factory=dict)
    personal: dict[str, Counter[str]] = field(default_factory=dict)

    def take(self, found: Judged) -> Judged:
        """Add a batch; what the later passes need of it is returned without its samples."""
        for name in ("repairs", "languages", "personal"):
            counts = getattr(self, name).setdefault(found.batch.source, Counter())
            counts.update(getattr(found, name))
        self.samples.merge(found.samples)
        return Judged(found.batch, found.documents, found.kept)


def clean(
    raw: Path, corpus: Path, report: Path, params: Params, num_workers: int | None
) -> dict[str, Any]:
    """Turn the folder `raw` into the folder `corpus` and a page in `report`; returns the metrics.
    The result does not depend on `num_workers`."""
    manifest = runs.open_folder(raw, "raw", made_by="ingest")
    made: dict[str, Any] = {
        "inputs": {"raw": manifest},
        "params": asdict(params),
        "packages": ("pyarrow", "numpy"),
    }
    with (
        runs.new_folder(corpus, kind="corpus", **made) as output,
        _scratch(corpus) as scratch,
        Workers(num_workers) as workers,
    ):
        batches = list(_batches(raw, manifest.counts, params.judging, scratch))
        totals = Totals(Samples(params.reject_sample))
        found = workers.map(judge_batch, batches)
        bar = partial(tqdm, total=len(batches), unit=" batches", disable=None)
        judged = [totals.take(one) for one in bar(found, desc="rules")]
        decisions = compare(judged, scratch, params.comparing)
        sources = {name: (c["documents"], c["license"]) for name, c in manifest.counts.items()}
        uses = {name: counts["uses"] for name, counts in manifest.counts.items()}
        with LedgerWriter(output.path, sources) as book:
            outcome = settle_all(
                judged, decisions, output.path, scratch, book, uses, params.settling, workers,
                partial(bar, desc="writing"),
            )  # fmt: skip
        summary = ledger_file.read_summary(output.path)
        _log(summary, manifest.counts)
        _require_text(outcome.splits, summary)
        totals.samples.merge(outcome.samples)
        _write_rejected(output.path / "rejected.jsonl", totals.samples, summary)
        steps = steps_of(asdict(params), totals.repairs, totals.personal, outcome.places)
        hashes = {LEDGER_FILE: runs.sha256_of(output.path / LEDGER_FILE)}
        languages = params.language.allowed or ()
        content = card.card_content(manifest, summary, outcome.splits, steps, hashes, languages)
        card.write_card(output.path, content)
        output.counts.update(outcome.splits)
        lengths = ledger_file.length_histograms(output.path / LEDGER_FILE)
    with runs.new_folder(report, kind="corpus_report", **made) as page:
        findings = CorpusFindings(
            summary, lengths, steps, totals.languages, totals.personal, totals.samples, {}
        )
        corpus_report.write_report(page.path, findings)
    masked = {name: dict(sorted(counts.items())) for name, counts in totals.personal.items()}
    sources_found = {name: {**summary[name], "personal": masked.get(name, {})} for name in summary}
    return {"splits": outcome.splits, "sources": sources_found}


@contextmanager
def _scratch(corpus: Path) -> Iterator[Path]:
    """An empty folder beside `corpus`, gone at the end; what a killed run left there goes first."""
    folder = corpus.with_name(f".{corpus.name}.scratch")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _batches(
    raw: Path, counts: Mapping[str, Any], params: JudgeParams, scratch: Path
) -> Iterator[Batch]:
    """Every row group of data/raw. Out-of-domain text comes last: what also occurs elsewhere is no
    test of another domain."""
    number = 0
    for rank, name in enumerate(sorted(counts, key=lambda name: "ood" in counts[name]["uses"])):
        source = counts[name]
        for part, group in records.row_groups(raw / name):
            yield Batch(
                number=number, part=part, row_group=group, source=name, rank=rank,
                reader=source["reader"], text_kind=source["text_kind"],
                for_chat_only=source["uses"] == ["chat"], scratch=scratch, params=params,
            )  # fmt: skip
            number += 1


def _write_rejected(path: Path, samples: Samples, summary: Mapping[str, Any]) -> None:
    """Examples of what is out, for people."""
    reasons = sorted({r for a in summary.values() for r in (*a["rejected"], *a["duplicates"])})
    lines = [
        json.dumps({"reason": reason} | asdict(example), ensure_ascii=False) + "\n"
        for reason in reasons
        for example in samples.of(reason, "rejected")
    ]
    runs.write_text(path, "".join(lines))


def _require_text(splits: Mapping[str, Mapping[str, int]], summary: Mapping[str, Any]) -> None:
    found = ", ".join(f"{name} {splits[name]['documents']}" for name in SPLITS)
    reasons: Counter[str] = Counter()
    for account in summary.values():
        reasons.update(account["rejected"])
        reasons.update(account["duplicates"])
    del reasons[NOT_FOR_PRETRAINING]
    more = (
        "put more files into data/own (the folder ingest.own_text names), or split long ones into"
        " documents of a few paragraphs, as lines of a .jsonl file"
    )
    if reasons.total() > sum(splits[name]["documents"] for name in SPLITS):
        told = ", ".join(f"{reason} {number:,}" for reason, number in reasons.most_common(3))
        more = f"most documents were turned away ({told}): loosen that rule under clean, or {more}"
    for name in ("train", "val", "test"):
        if not splits[name]["documents"]:
            raise DataError(
                f"no document is left for '{name}' (documents: {found})",
                expected="a few hundred documents, of which 3 % each are held out for val and test",
                todo=more,
            )


def _log(summary: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
    for name, account in summary.items():
        if raw[name]["left_out"]:
            log.info("source=%s left out by ingest: its licence is not allowed", name)
            continue
        out = [f"{r} {n}" for part in ("rejected", "duplicates") for r, n in account[part].items()]
        log.info(
            "source=%s in=%d out=%d not in: %s",
            name, account["in"], sum(account["out"].values()), ", ".join(out) or "none",
        )  # fmt: skip


def main() -> None:
    params = load_params(PARAMS_FILE, "clean", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    raw, corpus, report = Path("data/raw"), Path("data/corpus"), Path("reports/corpus")
    with track.stage(
        "clean", params=asdict(params), inputs={"raw": raw}, outputs={"corpus": corpus}
    ) as run:
        metrics = clean(raw, corpus, report, params, runtime.corpus_workers)
        run.finish(metrics, Path("metrics/clean.json"))


if __name__ == "__main__":
    run_command(main)
