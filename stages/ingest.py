"""Bring text in: sources and your own files become documents with licence and origin.

Reads: the sources that params.yaml names (fetched once, then cached) and the folder of own text.
Writes: data/raw/<source>/part-*.parquet, quarantine.jsonl if asked for.
Costs: 20 MB of downloads and under a minute for the default sources; memory does not grow with
the text. Changes nothing in a text: mending, rejecting and splitting is `clean`.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from sifirdan import runs, text, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus import own_text, sources
from sifirdan.corpus.records import BadRecord, PartWriter, Record, document
from sifirdan.errors import DataError, require, run_command

log = logging.getLogger(__name__)

OWN = "own"
QUARANTINE = "quarantine.jsonl"


@dataclass(frozen=True)
class Params:
    own_text: str
    own_license: str
    own_encoding: Literal["utf-8", "windows-1254"]
    bad_records: Literal["error", "quarantine"]
    allowed_licenses: list[str]
    sources: dict[str, sources.PackageSource | sources.HuggingFaceSource]

    def __post_init__(self) -> None:
        for name, source in self.sources.items():
            key = f"ingest.sources.{name}"
            plain = isinstance(name, str) and name.isidentifier() and name.isascii() and name != OWN
            require(plain, key, name, f"a name of letters, digits and _, not '{OWN}'")
            source.check(key)


@dataclass(frozen=True)
class Entry:
    """One source as it will be read; `counts` is what the manifest says about it."""

    name: str
    license: str
    records: Iterator[Record | BadRecord]
    counts: dict[str, Any]


def ingest(raw: Path, params: Params, *, cache: Path) -> dict[str, Any]:
    """Write every permitted source to the folder `raw`; returns the metrics."""
    kinds = {source.kind for source in params.sources.values()}
    packages = ("pyarrow", "datasets") if "huggingface" in kinds else ("pyarrow",)
    stated = asdict(params)
    del stated["own_text"]  # a path of this machine changes nothing in the text
    with runs.new_folder(raw, kind="raw", inputs={}, params=stated, packages=packages) as output:
        with _bad_record_policy(output.path, params.bad_records) as handle_bad:
            for entry in _entries(params, cache):
                output.counts[entry.name] = entry.counts
                if entry.license not in params.allowed_licenses:
                    entry.counts["left_out"] = True
                    log.warning(
                        "source=%s left out: its licence %s is not in ingest.allowed_licenses",
                        entry.name, entry.license,
                    )  # fmt: skip
                    continue
                _write(entry, output.path, handle_bad)
        if not any(counts["documents"] for counts in output.counts.values()):
            raise DataError(
                f"no text at all: no source is left and {params.own_text} holds no document",
                expected=f"a source, or files ending in {', '.join(own_text.ENDINGS)}",
                todo=f"put files into {params.own_text}, add a source, or allow its licence",
            )
        return _metrics(output.counts)


def _entries(params: Params, cache: Path) -> Iterator[Entry]:
    """The sources in their order, your own text first: of equal texts `clean` keeps the first."""

    def counts(license: str, uses: list[Any], reader: str) -> dict[str, Any]:
        zero = dict.fromkeys(
            ("documents", "chars", "bad_records", "with_replacement", "looks_misread"), 0
        )
        return zero | {"license": license, "uses": uses, "reader": reader, "left_out": False}

    folder = Path(params.own_text)
    files, others = own_text.list_files(folder)
    if ignored := [path.name for path in others]:
        shown = ", ".join(ignored[:10]) + (f" and {len(ignored) - 10} more" if ignored[10:] else "")
        log.warning("%s: not read, as only %s are: %s", folder, " ".join(own_text.ENDINGS), shown)
    if files:
        records = own_text.read_folder(folder, params.own_encoding)
        license = params.own_license
        yield Entry(OWN, license, records, counts(license, ["pretraining"], "own_text"))
    for name, source in params.sources.items():
        reader = sources.reader_name(source)
        records = sources.read(source, cache)
        yield Entry(name, source.license, records, counts(source.license, source.uses, reader))


def _write(entry: Entry, raw: Path, handle_bad: Callable[[str, BadRecord], None]) -> None:
    counts = entry.counts
    with PartWriter(raw / entry.name) as writer:
        for record in tqdm(entry.records, desc=entry.name, unit=" documents", disable=None):
            if isinstance(record, BadRecord):
                handle_bad(entry.name, record)
                counts["bad_records"] += 1
                continue
            writer.add(document(record, source=entry.name, license=entry.license))
            counts["documents"] += 1
            counts["chars"] += len(record.text)
            for alarm, found in (
                ("with_replacement", text.REPLACEMENT in record.text),
                ("looks_misread", text.looks_misread(record.text)),
            ):
                if found and not counts[alarm]:
                    log.warning("source=%s %s: first in %s", entry.name, alarm, record.origin)
                counts[alarm] += found
    log.info(
        "source=%s documents=%d chars=%d bad_records=%d",
        entry.name, counts["documents"], counts["chars"], counts["bad_records"],
    )  # fmt: skip


@contextlib.contextmanager
def _bad_record_policy(raw: Path, policy: str) -> Iterator[Callable[[str, BadRecord], None]]:
    """What to do with a place that cannot be read: stop there, or set it aside in a file."""
    if policy == "error":
        yield _refuse
        return
    with open(raw / QUARANTINE, "w", encoding="utf-8", newline="\n") as file:

        def set_aside(name: str, bad: BadRecord) -> None:
            file.write(json.dumps({"source": name, **asdict(bad)}, ensure_ascii=False) + "\n")

        yield set_aside


def _refuse(name: str, bad: BadRecord) -> None:
    raise DataError(
        f"{name}: {bad.origin}: {bad.reason}",
        expected="text that can be read without loss",
        todo="mend it, or set ingest.bad_records to quarantine to go on without such places",
    )


def _metrics(counts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    numbers = ("documents", "chars", "bad_records", "with_replacement", "looks_misread")
    return {
        "documents": sum(c["documents"] for c in counts.values()),
        "chars": sum(c["chars"] for c in counts.values()),
        "left_out_sources": sum(c["left_out"] for c in counts.values()),
        "sources": {name: {n: c[n] for n in numbers} for name, c in counts.items()},
    }


def main() -> None:
    params = load_params(PARAMS_FILE, "ingest", Params)
    root = runs.project_root(Path.cwd())
    own_text.refuse_missing_in_copy(params.own_text, copy=Path.cwd(), root=root)
    raw = Path("data/raw")
    with track.stage("ingest", params=asdict(params), inputs={}, outputs={"raw": raw}) as run:
        metrics = ingest(raw, params, cache=root / "data/.cache/packages")
        run.finish(metrics, Path("metrics/ingest.json"))


if __name__ == "__main__":
    run_command(main)
