"""The ledger as `clean` writes it: one row for every document that came in.

`LedgerWriter` checks on leaving that no document is lost or doubled (conservation.py). What the file
holds and how it is read: ledger_file.py. Not for questions about finished folders: contents.py,
provenance.py, shard_rows.py and withdrawal.py, which no stage imports.
"""

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sifirdan.corpus.conservation import id_problems, law_problems
from sifirdan.corpus.ledger_file import (
    LEDGER_FILE,
    LEDGER_SCHEMA,
    Account,
    LedgerRow,
    count,
    write_summary,
)

ROW_GROUP_ROWS = 1 << 17  # about 20 MB in memory

_VALUES = attrgetter(*LEDGER_SCHEMA.names)


class LedgerWriter:
    """Writes ledger.parquet and ledger.json into a folder; the same rows give the same bytes,
    however they are batched. `sources` says of each source its documents in and its licence, by
    the raw folder: on leaving without an error the law is checked against them, and a broken law
    is an AssertionError, as it can only be a mistake in the code that cleans.

        with LedgerWriter(folder, {"own": (2, "own")}) as ledger:
            ledger.add(LedgerRow(…))
            ledger.add(LedgerRow(…))
        ledger.accounts["own"].documents_in  # 2
    """

    def __init__(self, folder: Path, sources: Mapping[str, tuple[int, str]]) -> None:
        self._folder, self._sources = Path(folder), dict(sources)
        self.accounts = {name: Account(license) for name, (_, license) in self._sources.items()}
        self._rows: list[tuple[Any, ...]] = []
        self._waiting: list[pa.Table] = []
        self._writer = pq.ParquetWriter(
            self._folder / LEDGER_FILE, LEDGER_SCHEMA, compression="zstd"
        )

    def add(self, row: LedgerRow) -> None:
        self._rows.append(_VALUES(row))
        if len(self._rows) >= 4096:
            self._take_rows()

    def add_table(self, table: pa.Table) -> None:
        """Many rows at once; columns as in LEDGER_SCHEMA."""
        self._take_rows()
        self._append(table.select(LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA))

    def __enter__(self) -> "LedgerWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None:
            self._take_rows()
            self._write_groups(smallest=1)
        self._writer.close()
        if error is None:
            problems = law_problems(
                self.accounts, {name: count for name, (count, _) in self._sources.items()}
            )
            problems += id_problems(self._folder / LEDGER_FILE)
            assert not problems, problems
            write_summary(self._folder, self.accounts)

    def _take_rows(self) -> None:
        if self._rows:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._rows, strict=True), LEDGER_SCHEMA, strict=True)
            ]
            self._rows = []
            self._append(pa.Table.from_arrays(columns, schema=LEDGER_SCHEMA))

    def _append(self, table: pa.Table) -> None:
        count(table, self.accounts)
        self._waiting.append(table)
        self._write_groups(smallest=ROW_GROUP_ROWS)

    def _write_groups(self, *, smallest: int) -> None:
        while sum(table.num_rows for table in self._waiting) >= smallest:
            # one chunk a column: where chunks begin, Parquet may begin a page
            table = pa.concat_tables(self._waiting).combine_chunks()
            self._writer.write_table(table.slice(0, ROW_GROUP_ROWS), row_group_size=ROW_GROUP_ROWS)
            rest = table.slice(ROW_GROUP_ROWS)
            self._waiting = [rest] if rest.num_rows else []
