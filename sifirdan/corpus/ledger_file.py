"""The file ledger.parquet: one row for every document that came in, and ledger.json, the account of
each source that follows from the rows.

Read by row groups, so memory does not grow with the corpus. Not for writing (ledger.py) and not for
what must hold of the rows (conservation.py).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sifirdan import runs
from sifirdan.errors import DataError

LEDGER_FILE = "ledger.parquet"
SUMMARY_FILE = "ledger.json"
SPLITS = ("train", "val", "test", "ood")  # verdicts of a document that is in; others are reasons
FORMAT = {b"ledger_format": b"1"}

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("license", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),  # a split, or the reason it is out
        pa.field("kept_id", pa.string()),  # of a duplicate: the copy that stayed
        pa.field("chars_in", pa.int64(), nullable=False),
        pa.field("chars_out", pa.int64(), nullable=False),  # 0 for what is out
        pa.field("similarity", pa.float64()),  # of a near duplicate with that copy
        pa.field("flags", pa.list_(pa.field("element", pa.string())), nullable=False),
    ],
    metadata=FORMAT,
)


LENGTH_BUCKETS = 40  # 0: empty; k: from 2^(k-1) up to but not including 2^k characters


@dataclass(frozen=True)
class LedgerRow:
    """What became of one document. A row with a `kept_id` counts as a duplicate."""

    id: str
    source: str
    license: str
    origin: str
    verdict: str
    chars_in: int
    chars_out: int
    kept_id: str | None = None
    similarity: float | None = None
    flags: tuple[str, ...] = ()


@dataclass
class Account:
    """What became of one source's documents; lengths are in characters."""

    license: str
    documents_in: int = 0
    out: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    chars_in: int = 0
    chars_out: Counter[str] = field(default_factory=Counter)
    chars_lost: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """As ledger.json says it; `chars_lost` are the characters that each reason took away."""
        return {
            "license": self.license,
            "in": self.documents_in,
            "out": {split: self.out[split] for split in SPLITS},
            "rejected": dict(sorted(self.rejected.items())),
            "duplicates": dict(sorted(self.duplicates.items())),
            "flags": dict(sorted(self.flags.items())),
            "chars_in": self.chars_in,
            "chars_out": {split: self.chars_out[split] for split in SPLITS},
            "chars_lost": dict(sorted(self.chars_lost.items())),
        }


def read_ledger(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of a ledger file in their order, one row group in memory at a time."""
    try:
        with pq.ParquetFile(path) as file:
            version = (file.schema_arrow.metadata or {}).get(b"ledger_format")
            if version != FORMAT[b"ledger_format"]:
                raise DataError(
                    f"{path}: has ledger format {(version or b'none').decode()}",
                    expected=f"format {FORMAT[b'ledger_format'].decode()}",
                    todo="make it anew with this release: dvc repro -f -s clean",
                )
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=list(columns) if columns else None)
    except FileNotFoundError:
        raise DataError(
            f"{path}: there is no ledger", expected="a cleaned corpus", todo="dvc repro clean"
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: cannot be read: {error}",
            expected="a whole ledger",
            todo="make it anew: dvc repro -f -s clean",
        ) from None


def read_accounts(path: Path) -> dict[str, Account]:
    """The accounts of all sources, counted from a ledger file."""
    accounts: dict[str, Account] = {}
    for table in read_ledger(path):
        count(table, accounts)
    return accounts


def count(table: pa.Table, accounts: dict[str, Account]) -> None:
    """Add the rows of a table to the accounts of their sources."""
    keys = ["source", "license", "verdict", "copy"]
    plain = table.select(["id", "source", "license", "verdict", "chars_in", "chars_out"])
    plain = plain.append_column("copy", pc.is_valid(table["kept_id"]))
    sums = [("id", "count"), ("chars_in", "sum"), ("chars_out", "sum")]
    for group in plain.group_by(keys).aggregate(sums).to_pylist():
        name, verdict, number = group["source"], group["verdict"], group["id_count"]
        account = accounts.setdefault(name, Account(group["license"]))
        assert account.license == group["license"], (name, account.license, group["license"])
        account.documents_in += number
        account.chars_in += group["chars_in_sum"]
        if verdict in SPLITS:
            account.out[verdict] += number
            account.chars_out[verdict] += group["chars_out_sum"]
        else:
            kept = account.duplicates if group["copy"] else account.rejected
            kept[verdict] += number
            account.chars_lost[verdict] += group["chars_in_sum"]
    flags = table["flags"].combine_chunks()
    of_source = table["source"].take(pc.list_parent_indices(flags))
    flagged = pa.table({"source": of_source, "flag": pc.list_flatten(flags)})
    for group in flagged.group_by(["source", "flag"]).aggregate([("flag", "count")]).to_pylist():
        accounts[group["source"]].flags[group["flag"]] += group["flag_count"]


def write_summary(folder: Path, accounts: Mapping[str, Account]) -> None:
    """Write ledger.json: the account of each source."""
    runs.write_json(
        folder / SUMMARY_FILE, {name: account.summary() for name, account in accounts.items()}
    )


def read_summary(folder: Path) -> dict[str, dict[str, Any]]:
    """What ledger.json in a corpus folder says, by source."""
    path = Path(folder) / SUMMARY_FILE
    try:
        summary: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read: {error}", expected="a cleaned corpus", todo="dvc repro clean"
        ) from None
    return summary


def length_histograms(path: Path) -> dict[str, dict[str, list[int]]]:
    """For each source how many documents came "in" and went "out" per bucket of length (see
    LENGTH_BUCKETS)."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for table in read_ledger(path, ["source", "verdict", "chars_in", "chars_out"]):
        is_out = pc.is_in(table["verdict"], pa.array(SPLITS)).to_numpy()
        lengths = {name: table[f"chars_{name}"].to_numpy() for name in ("in", "out")}
        for name, rows in rows_of(table["source"]).items():
            zeros = {side: np.zeros(LENGTH_BUCKETS, np.int64) for side in ("in", "out")}
            histogram = found.setdefault(name, zeros)
            for side, chosen in (("in", rows), ("out", rows & is_out)):
                # frexp gives the k with 2^(k-1) <= n < 2^k, exactly
                buckets = np.frexp(lengths[side][chosen].astype(np.float64))[1]
                histogram[side] += np.bincount(buckets, minlength=LENGTH_BUCKETS)
    return {name: {side: h.tolist() for side, h in sides.items()} for name, sides in found.items()}


def rows_of(column: pa.ChunkedArray) -> dict[str, np.ndarray]:
    """For each value of a column a mask of its rows, shape (rows,)."""
    encoded = column.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return {value: codes == code for code, value in enumerate(encoded.dictionary.to_pylist())}


_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


def id_words(column: pa.ChunkedArray) -> np.ndarray:
    """Ids, 32 hexadecimal digits each, as two numbers each; shape (ids, 2), uint64."""
    digits = "".join(column.to_pylist()).encode()
    nibbles = _NIBBLES[np.frombuffer(digits, np.uint8)]
    if len(digits) != 32 * len(column) or nibbles.max(initial=0) == 255:
        raise DataError("there are ids that a document cannot have", expected="32 hex digits each")
    halves = nibbles.reshape(-1, 2)
    packed = (halves[:, 0] << 4) | halves[:, 1]
    return packed.reshape(-1, 16).view(">u8").astype(np.uint64)
