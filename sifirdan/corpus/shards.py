"""Token shards: Arrow IPC streams, memory-mapped, one row a document.

The values buffer of `tokens` is the token stream (text, `</s>`, text, `</s>` …) and its offsets
are the document boundaries; reading makes numpy views of both, no copies. The context length is
no matter of a shard: it is chosen when windows are cut.
"""

import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sifirdan.errors import DataError

MAX_BATCH_TOKENS = 1 << 26  # bounds memory while writing, and keeps 32-bit list offsets far off
SPLITS = ("train", "val", "test", "ood")


@dataclass(frozen=True)
class Row:
    """One document: its ids with the closing mark, its record id and source, the UTF-8 bytes of its
    text, and for chat which ids are targets."""

    tokens: list[int]
    document: str
    source: str
    num_bytes: int = 0
    loss_mask: list[int] | None = None


def id_type(vocab_size: int) -> pa.DataType:
    """The smallest unsigned type that holds every id of the vocabulary."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def shard_schema(vocab_size: int, *, loss_mask: bool = False) -> pa.Schema:
    """The columns of a shard."""
    fields = [
        ("tokens", pa.list_(id_type(vocab_size))),
        ("document", pa.string()),
        ("source", pa.string()),
        ("num_bytes", pa.int64()),
    ]
    return pa.schema(fields + ([("loss_mask", pa.list_(pa.uint8()))] if loss_mask else []))


def batch_of_rows(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch to write."""
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in schema]
    return pa.record_batch(columns, schema)


def batch_of_ids(
    ids: Sequence[np.ndarray],
    documents: list[str],
    sources: list[str],
    sizes: list[int],
    *,
    vocab_size: int,
) -> pa.RecordBatch:
    """Documents as a batch to write, from the arrays of their ids."""
    schema = shard_schema(vocab_size)
    values = np.concatenate([*ids, np.zeros(0, np.uint32)])
    # a cast to 16 bits would wrap in silence
    assert not len(values) or int(values.max()) < vocab_size, (int(values.max()), vocab_size)
    ends = np.cumsum([0, *map(len, ids)])
    assert ends[-1] < 1 << 31, "the offsets of a batch have 32 bits"
    narrow = pa.array(values.astype(schema.field("tokens").type.value_type.to_pandas_dtype()))
    tokens = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), narrow)
    return pa.record_batch([tokens, documents, sources, sizes], schema)


def write(
    path: Path, rows: Iterable[Row], *, vocab_size: int, loss_mask: bool = False
) -> dict[str, int]:
    """Write rows as one shard; returns its counts of documents, tokens, bytes (and targets)."""
    schema = shard_schema(vocab_size, loss_mask=loss_mask)
    counts: Counter[str] = Counter(documents=0, tokens=0, bytes=0)
    if loss_mask:
        counts["targets"] = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for some in _batches(rows):
            for row in some:
                assert max(row.tokens, default=0) < vocab_size, (row.document, max(row.tokens))
                counts.update(documents=1, tokens=len(row.tokens), bytes=row.num_bytes)
                if loss_mask:
                    mask = row.loss_mask
                    assert mask is not None and len(mask) == len(row.tokens), row.document
                    counts["targets"] += sum(mask)
            writer.write_batch(batch_of_rows(some, schema))
    return dict(counts)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.tokens)
        if size >= MAX_BATCH_TOKENS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def write_folder(
    folder: Path, batches: Iterable[pa.RecordBatch], *, vocab_size: int, max_shard_tokens: int
) -> dict[str, int]:
    """Write batches as few shards, each closed at the row that reaches `max_shard_tokens`; returns
    the counts of all. A folder without rows has one empty shard."""
    folder_writer = _FolderWriter(folder, shard_schema(vocab_size), max_shard_tokens)
    counts: Counter[str] = Counter(documents=0, tokens=0, bytes=0)
    with folder_writer:
        for batch in batches:
            folder_writer.write(batch)
            counts["documents"] += batch.num_rows
            counts["tokens"] += len(batch.column("tokens").values)
            counts["bytes"] += pc.sum(batch.column("num_bytes")).as_py() or 0
    return dict(counts)


class _FolderWriter:
    """The open shard of a folder, and the tokens it still takes."""

    def __init__(self, folder: Path, schema: pa.Schema, max_tokens: int) -> None:
        self._folder, self._schema, self._max_tokens = folder, schema, max_tokens
        self._number = -1
        self._next()

    def __enter__(self) -> "_FolderWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            if self._left <= 0:
                self._close()
                self._next()
            ends = _offsets(batch, "tokens")[1:] - _offsets(batch, "tokens")[0]
            rows = min(int(np.searchsorted(ends, self._left)) + 1, batch.num_rows)
            self._writer.write_batch(batch.slice(0, rows))
            self._left -= int(ends[rows - 1])
            batch = batch.slice(rows)

    def _next(self) -> None:
        self._number += 1
        self._left = self._max_tokens
        self._file = pa.OSFile(str(self._folder / f"part-{self._number:05d}.arrow"), "wb")
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    def _close(self) -> None:
        self._writer.close()
        self._file.close()


def datasets_card(splits: Sequence[str]) -> str:
    """A README.md whose header tells `datasets.load_dataset(folder)` which split is where."""
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in splits:
        lines += [f"  - split: {split}", f"    path: {split}/*.arrow"]
    return "\n".join([*lines, "---", "", "Token shards; see manifest.json for counts.", ""])


class Shards:
    """All rows of a folder's shards, memory-mapped. `len()` is the number of documents,
    `lengths[i]` a document's tokens, `tokens(i)` a zero-copy view of them."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(Path(folder).glob("*.arrow"), key=lambda path: (len(path.name), path.name))
        if not paths:
            raise DataError(
                f"{folder}: there are no token shards", todo="dvc repro tokenize_corpus"
            )
        self._batches = [batch for path in paths for batch in _open(path)]
        counts = [batch.num_rows for batch in self._batches]
        self._first_row = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._values = [_values(batch, "tokens") for batch in self._batches]
        self._offsets = [_offsets(batch, "tokens") for batch in self._batches]
        self._masks = [
            _values(batch, "loss_mask") if "loss_mask" in batch.schema.names else None
            for batch in self._batches
        ]
        lengths = [np.diff(offsets) for offsets in self._offsets]
        self.lengths = (
            np.concatenate(lengths).astype(np.int64) if lengths else np.zeros(0, np.int64)
        )

    def __len__(self) -> int:
        return int(self._first_row[-1])

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.lengths.sum())

    def tokens(self, index: int) -> np.ndarray:
        """Document `index`'s ids, shape (its length,), uint16 or uint32, read-only."""
        batch, start, end = self._place(index)
        return self._values[batch][start:end]

    def loss_mask(self, index: int) -> np.ndarray:
        """Document `index`'s targets, shape (its length,), 0 or 1."""
        batch, start, end = self._place(index)
        mask = self._masks[batch]
        assert mask is not None, "these shards have no loss mask"
        return mask[start:end]

    def document(self, index: int) -> str:
        """The record id of document `index`."""
        batch = int(np.searchsorted(self._first_row, index, side="right")) - 1
        return self._batches[batch].column("document")[index - int(self._first_row[batch])].as_py()

    def column(self, name: str) -> list:
        """A whole column as Python values: `document`, `source` or `num_bytes`."""
        return [value for batch in self._batches for value in batch.column(name).to_pylist()]

    def _place(self, index: int) -> tuple[int, int, int]:
        batch = int(np.searchsorted(self._first_row, index, side="right")) - 1
        row = index - int(self._first_row[batch])
        offsets = self._offsets[batch]
        return batch, int(offsets[row]), int(offsets[row + 1])


def _open(path: Path) -> list[pa.RecordBatch]:
    try:
        with pa.memory_map(str(path)) as source:
            return list(pa.ipc.open_stream(source))
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise DataError(
                f"{path}: cannot be mapped into memory beside the other shards ({error})",
                expected="fewer files than the system maps at once, some ten thousand",
                todo="give tokenize_corpus.max_shard_tokens a larger value",
            ) from None
        raise DataError(
            f"{path}: is damaged ({error})",
            expected="an Arrow IPC stream",
            todo="make it anew: dvc repro -f -s tokenize_corpus",
        ) from None


def _values(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).values.to_numpy(zero_copy_only=True)


def _offsets(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).offsets.to_numpy(zero_copy_only=True)
