"""Bring text in: sources and your own files become documents with licence and origin.

Reads: the sources that params.yaml names (fetched once, then cached) and the folder of own text.
Writes: data/raw/<source>/part-*.parquet, and quarantine.jsonl if anything found was not used.
Costs: 20 MB of downloads and under a minute for the default sources; memory grows with the largest
document, not with the text. Changes nothing in a text: mending, rejecting and splitting is `clean`.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from sifirdan import runs, text, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus import files, own_text, source_kinds, sources
from sifirdan.corpus.files import Limits, NotRead
from sifirdan.corpus.formats import ENDINGS, Encoding
from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.records import QUARANTINE_FILE, BadRecord, PartWriter, document
from sifirdan.corpus.source_kinds import (
    FilesSource,
    HuggingFaceSource,
    MediaWikiSource,
    OnError,
    PackageSource,
    TextKind,
    UrlSource,
)
from sifirdan.errors import DataError, require, run_command
from sifirdan.runtime import Runtime

log = logging.getLogger(__name__)

OWN = "own"
NUMBERS = ("documents", "chars", "bad_records", "not_read", "with_replacement", "looks_misread")
SHOWN = 10  # names in a warning


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    own_text: str
    own_license: str
    own_encoding: Encoding
    own_on_error: OnError
    max_document_bytes: int
    max_unpacked_bytes: int
    max_members: int
    allowed_licenses: list[str]
    sources: dict[
        str, PackageSource | HuggingFaceSource | FilesSource | UrlSource | MediaWikiSource
    ]

    def __post_init__(self) -> None:
        require(bool(self.own_text), "ingest.own_text", self.own_text, "a folder, such as data/own")
        for key, number in asdict(self.limits).items():
            require(number > 0, f"ingest.{key}", number, "a number above 0")
        for name, source in self.sources.items():
            key = f"ingest.sources.{name}"
            plain = isinstance(name, str) and name.isidentifier() and name.isascii() and name != OWN
            require(plain, key, name, f"a name of letters, digits and _, not '{OWN}'")
            source.check(key)

    @property
    def limits(self) -> Limits:
        return Limits(self.max_document_bytes, self.max_unpacked_bytes, self.max_members)


@dataclass(frozen=True)
class Entry:
    """One source as it will be read; `counts` is what the manifest says about it."""

    name: str
    license: str
    on_error: OnError
    found: Iterator[sources.Found]
    counts: dict[str, Any]


def ingest(
    raw: Path, params: Params, *, cache: Path, root: Path, num_workers: int | None = 1
) -> dict[str, Any]:
    """Write every permitted source to the folder `raw`; returns the metrics. Relative paths of
    sources start at `root`. The result does not depend on `num_workers`."""
    kinds = {source.kind for source in params.sources.values()}
    packages = ("pyarrow", "datasets") if "huggingface" in kinds else ("pyarrow",)
    stated = asdict(params)
    del stated["own_text"]  # a path of this machine changes nothing in the text
    with runs.new_folder(raw, kind="raw", inputs={}, params=stated, packages=packages) as output:
        with (
            open(output.path / QUARANTINE_FILE, "w", encoding="utf-8", newline="\n") as quarantine,
            Workers(num_workers) as workers,
        ):
            for entry in _entries(params, cache, root, workers):
                output.counts[entry.name] = entry.counts
                if entry.license not in params.allowed_licenses:
                    entry.counts["left_out"] = True
                    log.warning(
                        "source=%s left out: its licence %s is not in ingest.allowed_licenses",
                        entry.name, entry.license,
                    )  # fmt: skip
                    continue
                _write(entry, output.path, quarantine)
        if not any(counts["documents"] for counts in output.counts.values()):
            raise DataError(
                f"no text at all: no source is left and {params.own_text} holds no document",
                expected=f"a source, or files ending in {', '.join(ENDINGS)}",
                todo=f"put files into {params.own_text}, add a source, or allow its licence",
            )
        if not (output.path / QUARANTINE_FILE).stat().st_size:
            (output.path / QUARANTINE_FILE).unlink()
        return _metrics(output.counts)


def _entries(params: Params, cache: Path, root: Path, workers: Workers) -> Iterator[Entry]:
    """The sources in their order, your own text first: of equal texts `clean` keeps the first."""

    def counts(license: str, uses: list[Any], reader: str, text_kind: TextKind) -> dict[str, Any]:
        stated = {"license": license, "uses": uses, "reader": reader, "text_kind": text_kind}
        return dict.fromkeys(NUMBERS, 0) | stated | {"left_out": False}

    folder = Path(params.own_text)
    if own_text.list_files(folder):
        encoding, limits = params.own_encoding, params.limits
        found = sources.read_own_text(folder, encoding, limits, workers)
        stated = counts(params.own_license, ["pretraining"], "own_text", "curated")
        yield Entry(OWN, params.own_license, params.own_on_error, found, stated)
    for name, source in params.sources.items():
        reader = source_kinds.reader_name(source)
        found = sources.read(source, cache=cache, root=root, limits=params.limits, workers=workers)
        stated = counts(source.license, source.uses, reader, source.text_kind)
        yield Entry(name, source.license, source.on_error, found, stated)


def _write(entry: Entry, raw: Path, quarantine: IO[str]) -> None:
    counts = entry.counts
    unread: list[str] = []
    with PartWriter(raw / entry.name) as writer:
        for found in tqdm(_named(entry), desc=entry.name, unit=" documents", disable=None):
            if isinstance(found, NotRead):
                counts["not_read"] += 1
                unread += [found.origin] if len(unread) < SHOWN else []
                _set_aside(entry, found, "not_read", quarantine)
                continue
            if isinstance(found, BadRecord):
                if entry.on_error == "stop":
                    raise _refusal(entry.name, found)
                counts["bad_records"] += 1
                unread += [found.origin] if len(unread) < SHOWN else []
                _set_aside(entry, found, "bad_records", quarantine)
                continue
            writer.add(document(found, source=entry.name, license=entry.license))
            counts["documents"] += 1
            counts["chars"] += len(found.text)
            for alarm, raised in (
                ("with_replacement", text.REPLACEMENT in found.text),
                ("looks_misread", text.looks_misread(found.text)),
            ):
                if raised and not counts[alarm]:
                    log.warning("source=%s %s: first in %s", entry.name, alarm, found.origin)
                counts[alarm] += raised
    if unread:
        more = counts["bad_records"] + counts["not_read"] - len(unread)
        shown = ", ".join(unread) + (f" and {more} more" if more else "")
        log.warning("source=%s not read (raw/%s says why): %s", entry.name, QUARANTINE_FILE, shown)
    log.info(
        "source=%s documents=%d chars=%d bad_records=%d",
        entry.name, counts["documents"], counts["chars"], counts["bad_records"],
    )  # fmt: skip


def _named(entry: Entry) -> Iterator[sources.Found]:
    """What a source holds; an error says of which."""
    try:
        yield from entry.found
    except DataError as error:
        raise DataError(f"source {entry.name}: {error}") from None


def _set_aside(
    entry: Entry, found: BadRecord | NotRead, counted_as: str, quarantine: IO[str]
) -> None:
    line = {"source": entry.name, "counted_as": counted_as, **asdict(found)}
    quarantine.write(json.dumps(line, ensure_ascii=False) + "\n")


def _refusal(name: str, bad: BadRecord) -> DataError:
    key = "ingest.own_on_error" if name == OWN else f"ingest.sources.{name}.on_error"
    return DataError(
        f"{name}: {bad.origin}: {bad.reason}",
        expected="text that can be read without loss",
        todo=f"mend it, or set {key} to quarantine to go on without such places",
    )


def _metrics(counts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "documents": sum(c["documents"] for c in counts.values()),
        "chars": sum(c["chars"] for c in counts.values()),
        "left_out_sources": sum(c["left_out"] for c in counts.values()),
        "sources": {name: {n: c[n] for n in NUMBERS} for name, c in counts.items()},
    }


def _refuse_missing_in_copy(params: Params, *, copy: Path, root: Path) -> None:
    """A `dvc exp` run works on a copy, which may lack files that this project's folder has."""
    own_text.refuse_missing_in_copy(params.own_text, copy=copy, root=root)
    for source in params.sources.values():
        if copy != root and isinstance(source, FilesSource | MediaWikiSource):
            there = [Path(place.path) for place in files.find(source.inside(), root)]
            own_text.refuse_missing(there, copy=copy, root=root)


def main() -> None:
    params = load_params(PARAMS_FILE, "ingest", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    here, root = Path.cwd(), runs.project_root(Path.cwd())
    _refuse_missing_in_copy(params, copy=here, root=root)
    raw = Path("data/raw")
    with track.stage("ingest", params=asdict(params), inputs={}, outputs={"raw": raw}) as run:
        cache, num_workers = root / "data/.cache", runtime.corpus_workers
        metrics = ingest(raw, params, cache=cache, root=here, num_workers=num_workers)
        run.finish(metrics, Path("metrics/ingest.json"))


if __name__ == "__main__":
    run_command(main)
