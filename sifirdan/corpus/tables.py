"""Objects and rows of a file as records: JSONL, JSON, CSV, Parquet and Arrow. The text is one value
of a row, the others are kept as `meta`.

A JSONL record ends at LF only, so U+2028 or NEL inside a text splits nothing. Rows come one by one
and batches are bounded by bytes, so memory grows with the largest document, not with the file. A
lone surrogate (an escape such as "\\ud83d") cannot be stored: it becomes U+FFFD, which `clean`
counts and rejects.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from sifirdan.corpus.encodings import lines, read_text
from sifirdan.corpus.files import File, Limits, seekable
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.text import replace_surrogates

BATCH_BYTES = 8 << 20  # of rows that are held at once, if they are not larger themselves
MAX_BATCH_ROWS = 1000

Found = Record | BadRecord


def read_jsonl(file: File, column: str, encoding: str, limits: Limits) -> Iterator[Found]:
    number = 0
    for line, reason in lines(file.stream, encoding, limits):
        number += 1  # noqa: SIM113 (enumerate would hold on to a line that is done with)
        origin = f"{file.origin}:{number}"
        if reason:
            yield BadRecord(origin, reason)
        elif not line or line.isspace():
            yield BadRecord(origin, "the line is empty")
        else:
            content, reason = _parse(line)
            line = ""  # only the text itself is still needed
            yield BadRecord(origin, reason) if reason else _row(origin, content, column)


def read_json(file: File, column: str, encoding: str, limits: Limits) -> Iterator[Found]:
    """A list of objects, an object with one such list, or one object with a text."""
    text, reason = read_text(file, encoding, limits)
    content, reason = (None, reason) if reason else _parse(text)
    if reason:
        yield BadRecord(file.origin, reason)
        return
    if isinstance(content, dict) and column not in content:
        lists = [value for value in content.values() if _has_text(value, column)]
        content = lists[0] if len(lists) == 1 else content
    if isinstance(content, list):
        for number, row in enumerate(content):
            yield _row(f"{file.origin}#{number}", row, column)
        if not content:
            yield BadRecord(file.origin, "its list is empty")
    else:
        yield _row(file.origin, content, column)


def _has_text(value: Any, key: str) -> bool:
    return isinstance(value, list) and any(isinstance(row, dict) and key in row for row in value)


def _parse(text: str) -> tuple[Any, str | None]:
    try:
        return json.loads(text, parse_constant=_refuse_constant), None
    except (ValueError, RecursionError) as error:
        return None, f"not valid JSON: {error}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _row(origin: str, row: Any, key: str) -> Found:
    if not isinstance(row, dict) or key not in row:
        return BadRecord(origin, f'not an object with a key "{key}"')
    meta = {name: value for name, value in row.items() if name != key}
    if not isinstance(row[key], str):
        shown = json.dumps(row[key], ensure_ascii=False, default=str)[:40]
        return BadRecord(origin, f'"{key}" is {shown}, not a string')
    return Record(origin, replace_surrogates(row[key]), storable(meta))


def storable(meta: dict[str, Any]) -> dict[str, Any]:
    """Values of any table as JSON; what JSON does not know (dates, bytes) as text."""
    plain: dict[str, Any] = json.loads(
        replace_surrogates(json.dumps(meta, ensure_ascii=False, default=str)),
        parse_constant=lambda _: None,
    )
    return plain


_DELIMITERS = ",;\t|"


def read_csv(
    file: File, column: str, encoding: str, limits: Limits, delimiter: str | None = None
) -> Iterator[Found]:
    """A row is a document; one that spans an unreadable line is a bad one. The first row names the
    columns and, where `delimiter` is None, shows the delimiter (Excel writes ';' under Turkish
    settings, and may begin with a line sep=;)."""
    unusable: dict[int, str] = {}  # by line number
    taken = 0

    def usable_lines() -> Iterator[str]:
        nonlocal taken
        for line, reason in lines(file.stream, encoding, limits):
            taken += 1
            if reason:
                unusable[taken] = reason
            yield line or "\n"

    source = usable_lines()
    first = next(source)
    if stated := re.fullmatch(r"sep=(.)\r?\n", first):
        first = next(source, "")
    if unusable:
        yield BadRecord(f"{file.origin}:{taken}", unusable[taken])
        return
    found = stated[1] if stated else _delimiter(first)
    csv.field_size_limit(limits.max_document_bytes)
    rows = csv.reader(itertools.chain([first], source), strict=True, delimiter=delimiter or found)
    columns, problem = _next_row(rows)
    if problem or columns is None or column not in columns:
        yield (
            BadRecord(file.origin, problem) if problem else _no_column(file, column, columns or [])
        )
        return
    while True:
        origin = f"{file.origin}:{taken + 1}"
        row, problem = _next_row(rows)
        if row is None:
            return
        broken = [unusable.pop(line) for line in list(unusable)]
        if not problem and row and len(row) != len(columns):
            problem = f"has {len(row)} values where the first row has {len(columns)}"
        if broken or problem:
            yield BadRecord(origin, broken[0] if broken else problem)
        elif row:  # an empty line is none
            yield _row(origin, dict(zip(columns, row, strict=True)), column)


def _next_row(rows: Iterator[list[str]]) -> tuple[list[str] | None, str]:
    """The next row, None at the end; or an empty one and why it cannot be used."""
    try:
        return next(rows, None), ""
    except csv.Error as error:
        return [], f"not valid CSV: {error}"


def _delimiter(header: str) -> str:
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(_DELIMITERS, key=unquoted.count)  # the first of them where none occurs


def read_parquet(file: File, column: str) -> Iterator[Found]:
    with seekable(file.stream) as stream:
        try:
            table = pq.ParquetFile(stream, buffer_size=1 << 20)  # or it holds whole column chunks
            yield from _read_batches(file, _batches(table), column)
        except (OSError, pa.ArrowException) as error:
            size = stream.seek(0, io.SEEK_END)
            yield BadRecord(file.origin, f"is not a whole Parquet file ({size} bytes): {error}")


def _batches(table: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    groups = [table.metadata.row_group(n) for n in range(table.num_row_groups)]
    num_bytes = sum(group.total_byte_size for group in groups)
    average = num_bytes // max(1, table.metadata.num_rows) + 1
    rows = min(MAX_BATCH_ROWS, max(1, BATCH_BYTES // average))
    yield from table.iter_batches(rows, columns=_plain_columns(table.schema_arrow))


def _plain_columns(schema: pa.Schema) -> list[str]:
    """The columns that can be a text or be kept beside it: no lists, no bytes."""
    heavy = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary)
    return [field.name for field in schema if not any(is_so(field.type) for is_so in heavy)]


def _no_column(file: File, column: str, there: list[str]) -> BadRecord:
    return BadRecord(file.origin, f"has no column '{column}'; it has {', '.join(there)}")


def read_arrow(file: File, column: str) -> Iterator[Found]:
    try:
        if file.stream.peek(6).startswith(b"ARROW1"):
            with seekable(file.stream) as whole:
                table = pa.ipc.open_file(pa.PythonFile(whole, mode="r"))
                batches = (table.get_batch(n) for n in range(table.num_record_batches))
                yield from _read_batches(file, batches, column)
        else:
            stream = pa.ipc.open_stream(pa.PythonFile(file.stream, mode="r"))
            yield from _read_batches(file, iter(stream), column)
    except (OSError, pa.ArrowException) as error:
        yield BadRecord(file.origin, f"is not a whole Arrow file: {error}")


def _read_batches(file: File, batches: Iterator[pa.RecordBatch], column: str) -> Iterator[Found]:
    number = 0
    for batch in batches:
        if column not in batch.schema.names:
            yield _no_column(file, column, batch.schema.names)
            return
        batch = batch.select(_plain_columns(batch.schema))
        for start in range(0, batch.num_rows, MAX_BATCH_ROWS):  # Python objects cost more
            for row in batch.slice(start, MAX_BATCH_ROWS).to_pylist():
                yield _row(f"{file.origin}#{number}", row, column)
                number += 1
    if not number:
        yield BadRecord(file.origin, "has no rows")
