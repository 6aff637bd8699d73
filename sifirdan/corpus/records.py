"""Documents: what one is, how it gets its id and split, and Parquet files of them.

Every document carries its source, licence and origin, so any text can be traced. Files are written
and read in row groups bounded by bytes, so memory does not grow with the corpus. Not for cleaning.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from sifirdan.errors import DataError

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.large_string()),  # 64-bit offsets: one text may be larger than 2 GB together
        ("source", pa.string()),
        ("license", pa.string()),
        ("origin", pa.string()),
        ("meta", pa.string()),
    ]
)

QUARANTINE_FILE = "quarantine.jsonl"  # in data/raw: the places that gave no document, and why
ROW_GROUP_CHARS = 4 << 20  # what is held in memory at once, while writing and reading
PART_CHARS = 256 << 20  # a part file; few large ones, as DVC pays for each file

# Of 10,000 equal buckets of the key's hash, the first 300 are for validation only and the next
# 300 for test only, whatever the settings: a text held out once is held out for ever.
BUCKETS = 10_000
VAL_BUCKETS = 300
TEST_BUCKETS = 300

Split = Literal["train", "val", "test", "reserved"]


@dataclass(frozen=True)
class Record:
    """One text as a reader finds it; `origin` is its place inside the source."""

    origin: str
    text: str
    meta: dict[str, Any]


@dataclass(frozen=True)
class BadRecord:
    """A place in a source where a text should be but cannot be read."""

    origin: str
    reason: str


@dataclass(frozen=True)
class Document:
    """One text of the corpus with where it comes from and under which licence."""

    id: str
    text: str
    source: str
    license: str
    origin: str
    meta: dict[str, Any]


def document(record: Record, *, source: str, license: str) -> Document:
    """A reader's record with its id, source and licence."""
    found = document_id(source, record.origin, record.text)
    return Document(found, record.text, source, license, record.origin, record.meta)


def document_id(source: str, origin: str, text: str) -> str:
    """32 hexadecimal digits that stay the same as long as the source does."""
    return hashlib.sha256("\0".join((source, origin, text)).encode()).hexdigest()[:32]


def split_of(key: str, val_share: float) -> Split:
    """The split of a text by its dedup key: a pure function, so that equal texts never part.
    `val_share` of all text is val; what is left of its slice is reserved and never trained on."""
    bucket = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % BUCKETS
    return split_of_bucket(bucket, val_share)


def split_of_bucket(bucket: int, val_share: float) -> Split:
    """The split of a bucket, 0 to BUCKETS - 1."""
    if bucket < round(val_share * BUCKETS):
        return "val"
    if bucket < VAL_BUCKETS:
        return "reserved"
    return "test" if bucket < VAL_BUCKETS + TEST_BUCKETS else "train"


class DocumentFile:
    """A Parquet file being written; the same documents give the same bytes."""

    def __init__(self, path: Path) -> None:
        self.num_chars = 0
        self._buffer: list[tuple[str, ...]] = []  # waiting for a row group to fill: these,
        self._tables: list[pa.Table] = []  # or these; nobody writes both into one file
        self._buffered_chars = 0
        # Nobody looks for a text by its order, and finding the first and last copies long ones.
        others = [name for name in SCHEMA.names if name != "text"]
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd", write_statistics=others)

    def add(self, document: Document) -> None:
        row = _row(document)
        self._buffer.append(row)
        self.num_chars += len(document.text)
        self._buffered_chars += sum(map(len, row))
        if self._buffered_chars >= ROW_GROUP_CHARS:
            self._flush()

    def add_rows(self, rows: pa.Table, num_chars: int) -> None:
        """Many documents at once, a table of SCHEMA; small tables are written together."""
        if self._buffered_chars + num_chars > ROW_GROUP_CHARS:
            self._flush()
        self._tables.append(rows)
        self.num_chars += num_chars
        self._buffered_chars += num_chars

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._tables:
            rows = pa.concat_tables(self._tables).combine_chunks()
            self._writer.write_table(rows, row_group_size=max(1, len(rows)))
        if self._buffer:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._buffer, strict=True), SCHEMA, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
        self._buffer, self._tables, self._buffered_chars = [], [], 0


class PartWriter:
    """A folder of part-00000.parquet, part-00001.parquet …; always at least one, maybe empty."""

    def __init__(self, folder: Path, *, part_chars: int = PART_CHARS) -> None:
        self._folder, self._part_chars, self._num_parts = folder, part_chars, 0
        folder.mkdir(parents=True)
        self._file = self._next()

    def add(self, document: Document) -> None:
        self._current().add(document)

    def add_rows(self, rows: pa.Table, num_chars: int) -> None:
        """Many documents at once, a table of SCHEMA."""
        self._current().add_rows(rows, num_chars)

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def _current(self) -> DocumentFile:
        if self._file.num_chars >= self._part_chars:
            self._file.close()
            self._file = self._next()
        return self._file

    def _next(self) -> DocumentFile:
        self._num_parts += 1
        return DocumentFile(self._folder / f"part-{self._num_parts - 1:05d}.parquet")


def write_parquet(path: Path, rows: Iterable[Document]) -> None:
    """Write documents to one Parquet file, with memory bounded by ROW_GROUP_CHARS."""
    file = DocumentFile(path)
    for row in rows:
        file.add(row)
    file.close()


def read_parquet(path: Path) -> Iterator[Document]:
    """The documents of a Parquet file in their order, one row group in memory at a time."""
    for number in range(num_row_groups(path)):
        yield from read_row_group(path, number)


def num_row_groups(path: Path) -> int:
    """How many groups of rows a Parquet file has; each fits in memory."""
    with _readable(path) as file:
        return int(file.num_row_groups)


def read_row_group(path: Path, number: int) -> list[Document]:
    """The documents of one row group, in their order."""
    with _readable(path) as file:
        rows = file.read_row_group(number).to_pylist()
    return [Document(**{**row, "meta": json.loads(row["meta"])}) for row in rows]


def read_text_columns(path: Path, number: int) -> tuple[list[str], list[str], list[str]]:
    """Of one row group the ids, the sources and the texts: what most passes over a corpus need."""
    with _readable(path) as file:
        rows = file.read_row_group(number, columns=["id", "source", "text"])
    return tuple(rows.column(name).to_pylist() for name in ("id", "source", "text"))


def read_texts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Id, source and text of the documents of all parts of a folder, in their order."""
    for path, number in row_groups(folder):
        yield from zip(*read_text_columns(path, number), strict=True)


def row_groups(folder: Path) -> Iterator[tuple[Path, int]]:
    """The row groups of all parts of a folder, in the order of their documents."""
    for path in part_files(folder):
        yield from ((path, number) for number in range(num_row_groups(path)))


def part_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their documents."""
    return sorted(folder.glob("part-*.parquet"))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        size = path.stat().st_size if path.exists() else 0
        raise DataError(
            f"{path}: cannot be read as Parquet ({size} bytes): {error}",
            expected="a whole Parquet file",
            todo="make or fetch the file anew",
        ) from None


def read_rows(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A whole small file as a table, or some columns of it."""
    with _readable(path) as file:
        return file.read(columns)


def read_folder(folder: Path) -> Iterator[Document]:
    """The documents of all parts of a folder, in their order."""
    for path in part_files(folder):
        yield from read_parquet(path)


def _row(document: Document) -> tuple[str, ...]:
    meta = json.dumps(document.meta, ensure_ascii=False, sort_keys=True)
    return (
        document.id,
        document.text,
        document.source,
        document.license,
        document.origin,
        meta,
    )
