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
MAX_DEPTH = 200  # of lists and objects in each other; later stages read and write them again
MAX_DIGITS = 4300  # of an integer; Python refuses to read and write more
_DEEP = f"has lists or objects more than {MAX_DEPTH} deep"

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
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            object_pairs_hook=_refuse_repeated,
        ), None
    except json.JSONDecodeError as error:
        return None, f"not valid JSON: {error}"
    except RecursionError:
        return None, _DEEP
    except ValueError as error:  # of the three functions above
        return None, str(error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"holds a number of {len(digits)} digits, more than {MAX_DIGITS}")
    return int(digits)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = _repeated([key for key, _ in pairs])
        raise ValueError(f'has the key "{repeated}" twice in one object')
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _row(origin: str, row: Any, key: str) -> Found:
    if not isinstance(row, dict) or key not in row:
        return BadRecord(origin, f'not an object with a key "{key}"')
    if _is_deep(row):
        return BadRecord(origin, _DEEP)
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
    source = _CsvLines(lines(file.stream, encoding, limits))
    first = next(source)
    if stated := re.fullmatch(r'sep=([^"\r])\r?\n', first):
        first = next(source, "")
    if source.unusable:
        number, reason = next(iter(source.unusable.items()))
        yield BadRecord(f"{file.origin}:{number}", reason)
        return
    found = stated[1] if stated else _delimiter(first)
    csv.field_size_limit(limits.max_document_bytes)
    rows = csv.reader(itertools.chain([first], source), strict=True, delimiter=delimiter or found)
    columns, problem = _next_row(rows)
    columns = _name_columns(columns or [])
    if problem or column not in columns:
        yield BadRecord(file.origin, problem) if problem else _no_column(file, column, columns)
    elif repeated := _repeated(columns):
        yield BadRecord(file.origin, f"has several columns '{repeated}'")
    else:
        yield from _csv_rows(file, source, rows, columns, column)


class _CsvLines:
    """The lines of a CSV file, and what a reader of rows must know of those it has taken."""

    def __init__(self, source: Iterator[tuple[str, str | None]]) -> None:
        self._source = source
        self.taken = 0
        self.unusable: dict[int, str] = {}  # by line number
        self.quotes = 0  # since the row began

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line, reason = next(self._source)
        self.taken += 1
        self.quotes += line.count('"')
        if reason:
            self.unusable[self.taken] = reason
        return line or "\n"

    def pass_over_value(self) -> str:
        """After a row that broke inside a value: what follows is no row of its own until the
        quotation marks are even. Says how far that is."""
        if self.quotes % 2 == 0:
            return ""
        while self.quotes % 2 and next(self, None):
            pass
        return f"; passed over up to line {self.taken}"


def _csv_rows(
    file: File, source: _CsvLines, rows: Iterator[list[str]], columns: list[str], column: str
) -> Iterator[Found]:
    count = 0
    while True:
        origin, source.quotes = f"{file.origin}:{source.taken + 1}", 0
        row, problem = _next_row(rows)
        if row is None:
            break
        if problem:
            problem += source.pass_over_value()
        elif row and len(row) != len(columns):
            problem = f"has {len(row)} values where the first row has {len(columns)}"
        broken = [source.unusable.pop(line) for line in list(source.unusable)]
        if broken or problem:
            yield BadRecord(origin, broken[0] if broken else problem)
        elif row:
            yield _row(origin, dict(zip(columns, row, strict=True)), column)
        else:  # an empty line is no row
            continue
        count += 1
    if not count:
        yield BadRecord(file.origin, "has no rows")


def _next_row(rows: Iterator[list[str]]) -> tuple[list[str] | None, str]:
    """The next row, None at the end; or an empty one and why it cannot be used."""
    try:
        return next(rows, None), ""
    except csv.Error as error:
        return [], f"not valid CSV: {error}"


def _name_columns(columns: list[str]) -> list[str]:
    """Several columns without a name, as Excel writes for empty ones, are called by their place."""
    if columns.count("") < 2:
        return columns
    return [name or f"column {number}" for number, name in enumerate(columns, 1)]


def _delimiter(header: str) -> str:
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(_DELIMITERS, key=unquoted.count)  # the first of them where none occurs


_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)  # the last of a column's name


def read_parquet(file: File, column: str) -> Iterator[Found]:
    with seekable(file.stream) as stream:
        try:
            table = pq.ParquetFile(stream, buffer_size=1 << 20)  # or it holds whole column chunks
            yield from _read_batches(file, _batches(table), column)
        except _UNREADABLE as error:
            size = stream.seek(0, io.SEEK_END)
            yield BadRecord(file.origin, f"is not a whole Parquet file ({size} bytes): {error}")


def _batches(table: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    groups = [table.metadata.row_group(n) for n in range(table.num_row_groups)]
    num_bytes = sum(group.total_byte_size for group in groups)
    average = num_bytes // max(1, table.metadata.num_rows) + 1
    rows = min(MAX_BATCH_ROWS, max(1, BATCH_BYTES // average))
    schema = table.schema_arrow
    yield from table.iter_batches(rows, columns=[schema.names[n] for n in _plain_columns(schema)])


def _plain_columns(schema: pa.Schema) -> list[int]:
    """The columns that can be a text or be kept beside it: no lists, no bytes. By their numbers,
    as several may have one name."""
    heavy = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary)
    return [n for n, field in enumerate(schema) if not any(is_so(field.type) for is_so in heavy)]


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
    except _UNREADABLE as error:
        yield BadRecord(file.origin, f"is not a whole Arrow file: {error}")


def _read_batches(file: File, batches: Iterator[pa.RecordBatch], column: str) -> Iterator[Found]:
    number = 0
    for batch in batches:
        batch = batch.select(_plain_columns(batch.schema))
        if column not in batch.schema.names:
            yield _no_column(file, column, batch.schema.names)
            return
        if repeated := _repeated(batch.schema.names):
            yield BadRecord(file.origin, f"has several columns '{repeated}'")
            return
        if damage := _damage(batch):
            last = f"{file.origin}#{number + batch.num_rows - 1}"
            yield BadRecord(f"{file.origin}#{number}", f"is damaged, up to {last}: {damage}")
            number += batch.num_rows
            continue
        for start in range(0, batch.num_rows, MAX_BATCH_ROWS):  # Python objects cost more
            yield from _read_rows(file, batch.slice(start, MAX_BATCH_ROWS), number, column)
            number += min(MAX_BATCH_ROWS, batch.num_rows - start)
    if not number:
        yield BadRecord(file.origin, "has no rows")


def _damage(batch: pa.RecordBatch) -> str | None:
    """Why none of its rows may be touched: a damaged offset leads anywhere, also out of memory."""
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            if "Invalid UTF8" not in str(error):  # that is a matter of single rows
                return f"column '{name}': {error}"
    return None


def _read_rows(file: File, batch: pa.RecordBatch, first: int, column: str) -> Iterator[Found]:
    try:
        rows = batch.to_pylist()
    except _NO_PYTHON_VALUE:
        for number in range(batch.num_rows):
            yield _read_row(f"{file.origin}#{first + number}", batch.slice(number, 1), column)
        return
    for number, row in enumerate(rows, first):
        yield _row(f"{file.origin}#{number}", row, column)


# What to_pylist raises where Python has no such value: a date after the year 9999, a time zone
# that nobody knows, bytes that are not UTF-8.
_NO_PYTHON_VALUE = (ArithmeticError, LookupError, ValueError, pa.ArrowException)


def _read_row(origin: str, batch: pa.RecordBatch, column: str) -> Found:
    row = {}
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = values[0].as_py()
        except _NO_PYTHON_VALUE as error:
            kind = f"column '{name}' ({values.type})"
            return BadRecord(origin, f"{kind} holds what cannot be read: {error}")
    return _row(origin, row, column)


def _repeated(names: list[str]) -> str | None:
    """The first name that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
