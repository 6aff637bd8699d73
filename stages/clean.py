"""Clean text: repairs, rules, exact deduplication and the split, each document once.

Reads: data/raw. Writes: data/corpus/{train,val,test,ood}/part-*.parquet, ledger.json (documents in
= documents out + rejects, by source and reason), a sample of rejects, a data card.
Costs: seconds for 10 million characters on one core; about 100 bytes of memory a document.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sifirdan import runs, text, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus import records
from sifirdan.corpus.card import data_card
from sifirdan.corpus.dedup import SeenKeys
from sifirdan.corpus.records import Document, PartWriter
from sifirdan.errors import DataError, require, run_command

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test", "ood")
SAMPLE_CHARS = 500  # of a rejected text that the sample shows


@dataclass(frozen=True)
class Params:
    min_chars: int
    max_replacement_share: float
    val_share: float
    reject_sample: int

    def __post_init__(self) -> None:
        require(self.min_chars >= 1, "clean.min_chars", self.min_chars, "1 or more")
        share = self.max_replacement_share
        require(0 <= share <= 1, "clean.max_replacement_share", share, "from 0 to 1")
        slice_share = records.VAL_BUCKETS / records.BUCKETS
        allowed = f"above 0, at most {slice_share}, the slice that is never trained on"
        require(0 < self.val_share <= slice_share, "clean.val_share", self.val_share, allowed)
        require(self.reject_sample >= 0, "clean.reject_sample", self.reject_sample, "0 or more")


@dataclass
class Account:
    """What became of one source's documents."""

    documents_in: int = 0
    documents_out: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)

    def balanced(self) -> bool:
        return self.documents_in == self.documents_out.total() + self.rejected.total()


def clean(raw: Path, corpus: Path, params: Params) -> dict[str, Any]:
    """Turn the folder `raw` into the folder `corpus`; returns the metrics."""
    manifest = runs.open_folder(raw, "raw", made_by="ingest")
    accounts: dict[str, Account] = {}
    splits = {name: {"documents": 0, "chars": 0, "bytes": 0} for name in SPLITS}
    with runs.new_folder(
        corpus,
        kind="corpus",
        inputs={"raw": manifest},
        params=asdict(params),
        packages=("pyarrow",),
    ) as output:
        with ExitStack() as stack:
            writers = {name: stack.enter_context(PartWriter(output.path / name)) for name in SPLITS}
            sample = stack.enter_context(
                open(output.path / "rejected.jsonl", "w", encoding="utf-8", newline="\n")
            )
            for document, account, verdict in _judged(raw, manifest.counts, params, accounts):
                account.documents_in += 1
                if verdict in SPLITS:
                    writers[verdict].add(document)
                    account.documents_out[verdict] += 1
                    splits[verdict]["documents"] += 1
                    splits[verdict]["chars"] += len(document.text)
                    splits[verdict]["bytes"] += len(document.text.encode())
                else:
                    account.rejected[verdict] += 1
                    if account.rejected[verdict] <= params.reject_sample:
                        sample.write(_sample_line(document, verdict))
        for name, account in accounts.items():
            assert account.balanced(), (name, account)
            assert account.documents_in == manifest.counts[name]["documents"], (name, account)
        _require_text(splits)
        ledger = {name: _sorted(account) for name, account in accounts.items()}
        runs.write_json(output.path / "ledger.json", ledger)
        card = data_card(manifest.counts, ledger, splits)
        runs.write_text(output.path / "README.md", card)
        output.counts.update(splits)
    _log_ledger(ledger)
    return {"splits": splits, "sources": ledger}


def _judged(
    raw: Path, sources: dict[str, Any], params: Params, accounts: dict[str, Account]
) -> Iterator[tuple[Document, Account, str]]:
    """Every document as repaired, its source's account, and its split or reason to be rejected."""
    seen = SeenKeys()
    # Out-of-domain text comes last: what also occurs elsewhere is no test of another domain.
    order = sorted(sources, key=lambda name: "ood" in sources[name]["uses"])
    for name in order:
        account = accounts.setdefault(name, Account())
        uses, reader = sources[name]["uses"], sources[name]["reader"]
        documents = records.read_folder(raw / name)
        for document in tqdm(documents, desc=name, unit=" documents", disable=None):
            if uses == ["chat"]:
                yield document, account, "not_for_pretraining"
                continue
            repaired, counts = text.repair(document.text, reader)
            account.repairs.update(counts)
            document = replace(document, text=repaired)
            reason = text.reject_reason(
                repaired,
                reader,
                min_chars=params.min_chars,
                max_replacement_share=params.max_replacement_share,
            )
            if reason:
                yield document, account, reason
                continue
            key = text.dedup_key(repaired)
            if not seen.add(key):
                yield document, account, "duplicate"
            elif "ood" in uses:
                yield document, account, "ood"
            else:
                yield document, account, records.split_of(key, params.val_share)


def _sample_line(document: Document, reason: str) -> str:
    shown = {
        "source": document.source,
        "reason": reason,
        "origin": document.origin,
        "id": document.id,
        "text": document.text[:SAMPLE_CHARS],
    }
    return json.dumps(shown, ensure_ascii=False) + "\n"


def _require_text(splits: dict[str, dict[str, int]]) -> None:
    found = ", ".join(f"{name} {splits[name]['documents']}" for name in SPLITS)
    for name in ("train", "val", "test"):
        if not splits[name]["documents"]:
            raise DataError(
                f"no document is left for '{name}' (documents: {found})",
                expected="a few hundred documents, of which 3 % each are held out for val and test",
                todo="put more files into data/own (the folder ingest.own_text names), or split"
                " long ones into documents of a few paragraphs, as lines of a .jsonl file",
            )


def _sorted(account: Account) -> dict[str, Any]:
    return {
        "in": account.documents_in,
        "out": {name: account.documents_out[name] for name in SPLITS},
        "rejected": dict(sorted(account.rejected.items())),
        "repairs": dict(sorted(account.repairs.items())),
    }


def _log_ledger(ledger: dict[str, Any]) -> None:
    for name, account in ledger.items():
        rejected = ", ".join(f"{reason} {n}" for reason, n in account["rejected"].items())
        log.info(
            "source=%s in=%d out=%d rejected: %s",
            name, account["in"], sum(account["out"].values()), rejected or "none",
        )  # fmt: skip


def main() -> None:
    params = load_params(PARAMS_FILE, "clean", Params)
    raw, corpus = Path("data/raw"), Path("data/corpus")
    with track.stage(
        "clean", params=asdict(params), inputs={"raw": raw}, outputs={"corpus": corpus}
    ) as run:
        run.finish(clean(raw, corpus, params), Path("metrics/clean.json"))


if __name__ == "__main__":
    run_command(main)
