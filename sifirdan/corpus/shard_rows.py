"""Rows of token shards, one at a time: where each comes from, and how many tokens a source has.

For people and for machines that ask about finished folders; training reads shards.py. A row of
data/chat leads to its messages, any other to its document, with source, licence and origin.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sifirdan import json_files, runs
from sifirdan.corpus.ledger_file import LEDGER_FILE, SPLITS
from sifirdan.corpus.provenance import (
    NEAR_MATCHES,
    find_by_id,
    printable,
    row_lines,
    text_lines,
    text_of,
)
from sifirdan.errors import DataError


def shard_row(place: str) -> dict[str, Any]:
    """Where a row of a token shard comes from; `place` is FILE:ROW, rows counted from 0, such as
    data/tokens/train/part-00000.arrow:123. A row of data/chat leads to its messages, any other to
    its document, with source, licence and origin."""
    path, number = _place(place)
    folder = path.parent.parent
    manifest = runs.read_manifest(folder)
    row = _read_row(path, number)
    if manifest.kind == "chat":
        return row | _chat_row(folder, path, number)
    corpus = folder.parent / "corpus"
    if runs.read_manifest(corpus, made_by="clean").sha256 != manifest.inputs.get("corpus"):
        raise DataError(
            f"{folder} was made from another corpus than {corpus}",
            expected="both of one run",
            todo="dvc repro tokenize_corpus",
        )
    document = find_by_id(corpus / LEDGER_FILE, row["document"])
    if document is None:
        raise DataError(
            f"{place}: its document {row['document']} is not in the ledger",
            expected="a document of the corpus",
            todo=f"sifirdan verify {corpus} {folder}",
        )
    text = text_of(corpus, folder.parent / "raw", runs.read_manifest(corpus), document)
    return row | {key: document[key] for key in ("license", "origin", "verdict", "flags")} | text


def shard_row_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """`shard_row` for a terminal."""
    yield f"{found['shard']}, row {found['row']}: {found['num_tokens']} tokens"
    yield f"  document  {found['document']}"
    yield from row_lines(found)
    for message in found.get("messages", ()):
        yield f"  {message['role']:<9} {printable(message['content'])}"
    if "text" in found:
        yield from text_lines(found)


def _place(place: str) -> tuple[Path, int]:
    """'FILE:ROW' as the file, which is there, and the row."""
    name, _, digits = place.rpartition(":")
    if not name or not digits.isdecimal():
        raise DataError(
            f"{place!r} names no row of a shard",
            expected="FILE:ROW, as in data/tokens/train/part-00000.arrow:123 (rows count from 0)",
        )
    path = Path(name)
    if not path.is_file():
        there = sorted(p.as_posix() for p in path.parent.parent.glob("*/*.arrow"))
        near = difflib.get_close_matches(path.as_posix(), there, NEAR_MATCHES, 0.0)
        raise DataError(
            f"{path}: there is no such shard",
            expected="a file of data/tokens or data/chat",
            todo=f"did you mean {', '.join(near)}?" if near else "dvc repro tokenize_corpus",
        )
    return path, int(digits)


def _read_row(path: Path, wanted: int) -> dict[str, Any]:
    before = 0
    for batch in batches(path):
        if wanted < before + batch.num_rows:
            row = batch.slice(wanted - before, 1)
            return {
                "shard": path.as_posix(),
                "row": wanted,
                "document": row.column("document")[0].as_py(),
                "source": row.column("source")[0].as_py(),
                "num_tokens": len(row.column("tokens")[0]),
                "num_bytes": row.column("num_bytes")[0].as_py(),
            }
        before += batch.num_rows
    raise DataError(
        f"{path}: has no row {wanted}",
        expected=f"a row from 0 to {before - 1}" if before else "a shard with rows",
    )


def _chat_row(folder: Path, path: Path, number: int) -> dict[str, Any]:
    """The line of the readable twin: NAME.jsonl has the rows of NAME/part-00000.arrow in order."""
    twin, todo = folder / f"{path.parent.name}.jsonl", "dvc repro prepare_chat"
    with open(twin, "rb") as lines:  # binary lines end at LF only
        for index, line in enumerate(lines):
            if index == number:
                row = json_files.parse_object(line, f"{twin}:{number + 1}", todo=todo)
                return {
                    "license": row["license"],
                    "origin": row["type"],
                    "messages": row["messages"],
                }
    raise DataError(f"{folder}: {path.parent.name}.jsonl has no line {number + 1}")


def token_counts(tokens: Path) -> dict[str, Counter[str]]:
    """Tokens of each split by source, from the shards; no token is copied."""
    counted: dict[str, Counter[str]] = {}
    for split in SPLITS:
        counted[split] = Counter()
        for path in sorted((tokens / split).glob("*.arrow")):
            for batch in batches(path):
                lengths = pc.list_value_length(batch.column("tokens"))
                table = pa.table({"source": batch.column("source"), "tokens": lengths})
                sums = table.group_by("source").aggregate([("tokens", "sum")])
                for row in sums.to_pylist():
                    counted[split][row["source"]] += row["tokens_sum"]
    return counted


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The record batches of a token shard, memory-mapped."""
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            yield from stream
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"{path}: is no token shard, or damaged: {error}", expected="an Arrow IPC stream"
        ) from None
