"""Token shards: Arrow IPC streams, memory-mapped, one row a document.

The values buffer of `tokens` is the token stream (text, `</s>`, text, `</s>` …) and its offsets
are the document boundaries; reading makes numpy views of both, no copies. The context length is
no matter of a shard: it is chosen when windows are cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

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


def write(
    path: Path, rows: Iterable[Row], *, vocab_size: int, loss_mask: bool = False
) -> dict[str, int]:
    """Write a shard; returns its counts of documents, tokens, bytes (and targets)."""
    fields = [
        ("tokens", pa.list_(id_type(vocab_size))),
        ("document", pa.string()),
        ("source", pa.string()),
        ("num_bytes", pa.int64()),
    ]
    if loss_mask:
        fields.append(("loss_mask", pa.list_(pa.uint8())))
    schema = pa.schema(fields)
    counts = {"documents": 0, "tokens": 0, "bytes": 0} | ({"targets": 0} if loss_mask else {})
    pending: list[Row] = []
    pending_tokens = 0

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:

        def flush() -> None:
            columns = [[getattr(row, name) for row in pending] for name in schema.names]
            arrays = [
                pa.array(column, type=field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            pending.clear()

        for row in rows:
            assert max(row.tokens, default=0) < vocab_size, (row.document, max(row.tokens))
            counts["documents"] += 1
            counts["tokens"] += len(row.tokens)
            counts["bytes"] += row.num_bytes
            if loss_mask:
                assert row.loss_mask is not None and len(row.loss_mask) == len(row.tokens), (
                    row.document
                )
                counts["targets"] += sum(row.loss_mask)
            pending.append(row)
            pending_tokens += len(row.tokens)
            if pending_tokens >= MAX_BATCH_TOKENS:
                flush()
                pending_tokens = 0
        if pending:
            flush()
    return counts


def write_folder(
    folder: Path, rows: Iterable[Row], *, vocab_size: int, max_shard_tokens: int
) -> dict[str, int]:
    """Write rows as few shards, each closed when it reaches `max_shard_tokens`; returns the counts of
    all. A folder without rows has one empty shard."""
    total = {"documents": 0, "tokens": 0, "bytes": 0}
    waiting = iter(rows)
    number = 0
    while True:
        part = _Take(waiting, max_shard_tokens)
        counts = write(folder / f"part-{number:05d}.arrow", part, vocab_size=vocab_size)
        total = {name: total[name] + counts[name] for name in total}
        if part.exhausted:
            return total
        number += 1


def datasets_card(splits: Sequence[str]) -> str:
    """A README.md whose header tells `datasets.load_dataset(folder)` which split is where."""
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in splits:
        lines += [f"  - split: {split}", f"    path: {split}/*.arrow"]
    return "\n".join([*lines, "---", "", "Token shards; see manifest.json for counts.", ""])


class _Take:
    """Rows of an iterator until their tokens reach a limit; knows whether any are left."""

    def __init__(self, rows: Iterator[Row], max_tokens: int) -> None:
        self._rows, self._max_tokens, self.exhausted = rows, max_tokens, False

    def __iter__(self) -> Iterator[Row]:
        tokens = 0
        while tokens < self._max_tokens:
            row = next(self._rows, None)
            if row is None:
                self.exhausted = True
                return
            tokens += len(row.tokens)
            yield row


class Shards:
    """All rows of a folder's shards, memory-mapped. `len()` is the number of documents,
    `lengths[i]` a document's tokens, `tokens(i)` a zero-copy view of them."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(Path(folder).glob("*.arrow"))
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
        raise DataError(
            f"{path}: is damaged ({error})",
            expected="an Arrow IPC stream",
            todo="make it anew: dvc repro -f -s tokenize_corpus",
        ) from None


def _values(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).values.to_numpy(zero_copy_only=True)


def _offsets(batch: pa.RecordBatch, name: str) -> np.ndarray:
    return batch.column(name).offsets.to_numpy(zero_copy_only=True)
