"""Objects and rows of a file: what comes out, and what is said about what cannot."""

import csv
import datetime
import io
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import office
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_formats import LIMITS, Found, read, reasons, texts

from sifirdan.corpus import files, formats, tables
from sifirdan.corpus.files import File, Limits
from sifirdan.corpus.formats import Reading
from sifirdan.corpus.records import BadRecord, Record

# JSONL.


def test_a_jsonl_record_ends_at_lf_only() -> None:
    lines = ["a\u2028b", "a\u2029b", "a\x85b", "a\x0bb\x0cc\x1cd", "a\rb", "son"]
    rows = [json.dumps({"text": t, "no": n}, ensure_ascii=False) for n, t in enumerate(lines)]
    assert read("a.jsonl", "\r\n".join(rows).encode()) == [
        Record(f"a.jsonl:{n + 1}", t, {"no": n}) for n, t in enumerate(lines)
    ]


def test_I_07_each_bad_line_is_named_and_none_is_lost() -> None:
    lines = [json.dumps({"text": f"belge {n}"}).encode() for n in range(1, 1001)]
    bad = {
        500: (b'{"text": "yar', "not valid JSON"),
        600: (b'{"text": "\xff"}', "(0xff) is not utf-8"),
        700: (b'{"text": 7}', '"text" is 7, not a string'),
        800: (b'{"text": null}', '"text" is null, not a string'),
        850: (b"[" * 100_000, "more than 200 deep"),
        860: (b'["metin"]', 'not an object with a key "text"'),
        870: (b'{"metin": "x"}', 'not an object with a key "text"'),
        880: (b'{"text": "x", "n": NaN}', "NaN is not JSON"),
        900: (b"", "the line is empty"),
    }
    for number, (line, _) in bad.items():
        lines[number - 1] = line
    found = read("a.jsonl", b"\n".join(lines) + b"\n")
    assert len(found) == 1000
    refused = {item.origin: item.reason for item in found if isinstance(item, BadRecord)}
    assert refused.keys() == {f"a.jsonl:{number}" for number in bad}
    for number, (_, reason) in bad.items():
        assert reason in refused[f"a.jsonl:{number}"]


def test_I_14_lone_surrogates_become_replacement_characters() -> None:
    line = rb'{"text": "a\ud83d b\u0000 \ud83d\ude00", "k\udc00": ["\ud83d"]}'
    expected = ("a\ufffd b\x00 😀", {"k\ufffd": ["\ufffd"]})
    assert read("a.jsonl", line) == [Record("a.jsonl:1", *expected)]
    assert read("a.json", line) == [Record("a.json", *expected)]


def test_another_text_column_may_hold_the_text() -> None:
    found = read("a.jsonl", b'{"govde": "x", "text": 3}', text_column="govde")
    assert found == [Record("a.jsonl:1", "x", {"text": 3})]


def test_lines_are_bounded_and_the_next_one_is_found() -> None:
    lines = [b'{"text": "' + b"x" * size + b'"}' for size in (3, 5000, 10_000_000, 4)]
    found = read("a.jsonl", b"\n".join(lines), Limits(1000, 10**9, 10))
    assert [type(item) for item in found] == [Record, BadRecord, BadRecord, Record]
    assert found[1] == BadRecord(
        "a.jsonl:2", "the line has more than 1000 bytes (ingest.max_document_bytes)"
    )
    (reason,) = reasons(read("a.txt", b"x" * 1001, Limits(1000, 10**9, 10)))
    assert reason == "the document has more than 1000 bytes (ingest.max_document_bytes)"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_what_cannot_be_stored_as_it_stands_is_named(name: str) -> None:
    limit = tables.MAX_DEPTH
    too_deep = f"has lists or objects more than {limit} deep"

    def nested(depth: int) -> str:
        return '{"text": "a", "m": ' + "[" * depth + "]" * depth + "}"

    for depth in (limit, 900, *range(950, 1000), 100_000):
        assert reasons(read(name, nested(depth).encode())) == [too_deep]
    assert texts(read(name, nested(limit - 1).encode())) == ["a"]
    assert reasons(read(name, b'{"text": ' + b"[" * 970 + b"]" * 970 + b"}")) == [too_deep]
    for number, digits in (("9" * 5000, 5000), ("-" + "9" * 4300, 4301)):
        (reason,) = reasons(read(name, f'{{"text": "a", "n": {number}}}'.encode()))
        assert reason == f"holds a number of {digits} digits, more than 4300"
    big = int("9" * 4300)
    (found,) = read(name, f'{{"text": "a", "n": {"9" * 4300}}}'.encode())
    assert isinstance(found, Record) and found.meta == {"n": big}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_key_that_comes_twice_is_named(name: str) -> None:
    for content, key in (
        ('{"text": "ilk", "text": "ikinci"}', "text"),
        ('{"text": "a", "m": [{"b": 1, "c": 2, "b": 1}]}', "b"),
    ):
        (reason,) = reasons(read(name, content.encode()))
        assert reason == f'has the key "{key}" twice in one object'


# JSON.


def test_json_in_its_shapes() -> None:
    rows = [{"text": "bir", "no": 1}, {"text": "iki", "no": 2}]
    expected = [Record("a.json#0", "bir", {"no": 1}), Record("a.json#1", "iki", {"no": 2})]
    wrapped = {"sürüm": 1, "etiketler": ["x"], "veri": rows}
    for content in (rows, wrapped):
        assert read("a.json", json.dumps(content).encode()) == expected
    assert read("a.json", b'{"text": "tek"}') == [Record("a.json", "tek", {})]
    assert reasons(read("a.json", b"[]")) == ["its list is empty"]
    assert reasons(read("a.json", b'{"a": 1}')) == ['not an object with a key "text"']
    assert reasons(read("a.json", json.dumps({"a": rows, "b": rows}).encode())) == [
        'not an object with a key "text"'
    ]
    assert reasons(read("a.json", b'[{"text": "bir"}'))[0].startswith("not valid JSON")


# Tables.


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_csv_file_is_found(delimiter: str) -> None:
    rows = [
        ["ad", "text", "not, ek"],
        ["a", 'Bir; iki, "üç" | dört\tbeş', ""],
        ["b", "satır\nsonu\r\n", "x"],
    ]
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows(rows)
    found = read("a.csv", file.getvalue().encode())
    assert texts(found) == [rows[1][1], rows[2][1]]
    assert [item.origin for item in found] == ["a.csv:2", "a.csv:3"]
    assert isinstance(found[0], Record) and found[0].meta == {"ad": "a", "not, ek": ""}


def test_a_csv_file_from_excel() -> None:
    found = read("m.csv", b"\xef\xbb\xbfsep=;\r\n" + office.EXCEL.encode())
    assert texts(found) == ["Birinci satır\nikinci satır", "Teklifi beğenmedi."]
    assert isinstance(found[0], Record)
    assert found[0].meta == {"ad": "Şükrü Öğüt", "açıklama": "önemli; acele"}
    assert texts(read("m.csv", office.EXCEL.encode("windows-1254"), encoding="windows-1254")) == (
        texts(found)
    )


def test_I_07_each_bad_row_is_named_and_none_is_lost() -> None:
    content = (
        b'no,text\n1,bir\n2,iki,fazla\n3\n\n4,"d\xf6rt"\n5,"be\xff\niki satir"\n6,"alti"x\n7,yedi\n'
    )
    found = read("a.csv", content)
    assert [(item.origin, isinstance(item, Record)) for item in found] == [
        ("a.csv:2", True), ("a.csv:3", False), ("a.csv:4", False), ("a.csv:6", False),
        ("a.csv:7", False), ("a.csv:9", False), ("a.csv:10", True),
    ]  # fmt: skip
    refused = [item.reason for item in found if isinstance(item, BadRecord)]
    assert refused[0] == "has 3 values where the first row has 2"
    assert f"byte {content.index(0xF6)} (0xf6) is not utf-8" in refused[2]
    assert f"byte {content.index(0xFF)} (0xff) is not utf-8" in refused[3]
    assert refused[4].startswith("not valid CSV")


def test_an_open_quotation_mark_is_named() -> None:
    *good, bad = read("a.csv", b'no,text\n1,bir\n2,"iki\n3,uc\n')
    assert texts(good) == ["bir"] and isinstance(bad, BadRecord)
    assert bad.origin == "a.csv:3" and "unexpected end of data" in bad.reason


def test_a_csv_file_without_rows_or_with_a_bad_header_is_named() -> None:
    for content in (b"text,x\n", b"text\n\n\n"):
        assert read("a.csv", content) == [BadRecord("a.csv", "has no rows")]
    for content, line in ((b"sep=\xff\ntext\nx\n", 1), (b"sep=;\nte\xffxt\nx\n", 2)):
        (bad,) = read("a.csv", content)
        assert bad.origin == f"a.csv:{line}" and "(0xff) is not utf-8" in reasons([bad])[0]
    assert "has no column 'text'" in reasons(read("a.csv", b'sep="\ntext\nx\n'))[0]


def test_a_broken_row_ends_where_its_quotation_marks_do() -> None:
    content = 'text,x\n"satır bir "alıntı" devam\nikinci satır",1\n"iyi",2\n'
    bad, good = read("a.csv", content.encode())
    assert isinstance(bad, BadRecord) and bad.origin == "a.csv:2"
    assert bad.reason.startswith("not valid CSV: ") and bad.reason.endswith(
        "; passed over up to line 3"
    )
    assert good == Record("a.csv:4", "iyi", {"x": "2"})
    content = 'text\n"a "b" c\nd\ne\nf" g "h\ni"\niyi\n"x" y\nson\n'
    found = read("a.csv", content.encode())
    assert [(item.origin, isinstance(item, Record)) for item in found] == [
        ("a.csv:2", False), ("a.csv:7", True), ("a.csv:8", False), ("a.csv:9", True),
    ]  # fmt: skip
    (bad,) = read("a.csv", b'text\n"a "b" c\nd\n')  # no such mark
    assert isinstance(bad, BadRecord) and bad.reason.endswith("; passed over up to line 3")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_columns_of_one_name_are_refused(name: str) -> None:
    def with_header(*columns: str) -> bytes:
        rows = [columns, [str(n) for n in range(len(columns))]]
        return "\n".join(("," if name == "a.csv" else "\t").join(row) for row in rows).encode()

    for columns, repeated in ((("text", "text"), "text"), (("text", "a", "b", "a"), "a")):
        assert reasons(read(name, with_header(*columns))) == [f"has several columns '{repeated}'"]
    assert read(name, with_header("", "text")) == [Record(f"{name}:2", "1", {"": "0"})]
    assert read(name, with_header("text", "", "")) == [
        Record(f"{name}:2", "0", {"column 2": "1", "column 3": "2"})
    ]


def test_a_missing_column_is_named() -> None:
    assert reasons(read("a.csv", b"ad;soyad\na;b\n")) == ["has no column 'text'; it has ad, soyad"]
    assert texts(read("a.csv", b"ad;soyad\na;b\n", text_column="soyad")) == ["b"]


def parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file, **options)
    return file.getvalue()


ROWS: list[dict[str, Any]] = [
    {"text": "bir", "no": 1, "gün": datetime.date(2024, 1, 2), "sayılar": [0.5], "ham": b"x"},
    {"text": None, "no": 2, "gün": None, "sayılar": [], "ham": b""},
    {"text": "üç\u2028\n", "no": 3, "gün": None, "sayılar": None, "ham": None},
]


def expected_rows(name: str) -> list[Found]:
    return [
        Record(f"{name}#0", "bir", {"no": 1, "gün": "2024-01-02"}),
        BadRecord(f"{name}#1", '"text" is null, not a string'),
        Record(f"{name}#2", "üç\u2028\n", {"no": 3, "gün": None}),
    ]


@pytest.mark.parametrize("row_group_size", [1, 2, 100])
def test_parquet_rows(row_group_size: int) -> None:
    content = parquet(ROWS, row_group_size=row_group_size)
    assert read("a.parquet", content) == expected_rows("a.parquet")


def test_arrow_rows_of_files_and_streams() -> None:
    table = pa.Table.from_pylist(ROWS)
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        sink = pa.BufferOutputStream()
        with new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        content = sink.getvalue().to_pybytes()
        assert read("a.arrow", content) == expected_rows("a.arrow")
        assert "is not a whole Arrow file" in read("a.arrow", content[:-300])[-1].reason  # type: ignore[union-attr]


def arrow(table: pa.Table, *, stream: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def as_parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def strings(content: bytes, *offsets: int) -> pa.Array:
    """An array of strings as it lies in memory, however wrong."""
    places = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, places, pa.py_buffer(content)]
    )


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 2**62], pa.timestamp("us")),
        pa.array([0, 10**9 // 300], pa.date32()),
        pa.array([0, 2**62], pa.duration("s")),
        pa.array([None, 1], pa.timestamp("us", "Yok/Bolge")),
        strings(b"ab\xff\xfe", 0, 2, 4),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("write", [as_parquet, arrow])
def test_a_value_that_python_cannot_hold_costs_its_row_only(
    values: pa.Array, write: Callable[[pa.Table], bytes]
) -> None:
    ending = "arrow" if write is arrow else "parquet"
    good, bad = read(f"a.{ending}", write(pa.table({"text": ["bir", "iki"], "değer": values})))
    assert isinstance(good, Record) and good.text == "bir"
    assert isinstance(bad, BadRecord) and bad.origin == f"a.{ending}#1"
    assert bad.reason.startswith(f"column 'değer' ({values.type}) holds what cannot be read: ")


@pytest.mark.parametrize("write", [as_parquet, arrow])
def test_a_text_that_is_not_utf_8_costs_its_row_only(write: Callable[[pa.Table], bytes]) -> None:
    ending = "arrow" if write is arrow else "parquet"
    bad, good = read(f"a.{ending}", write(pa.table({"text": strings(b"\xff\xfeab", 0, 2, 4)})))
    assert isinstance(bad, BadRecord) and "column 'text' (string) holds what" in bad.reason
    assert good == Record(f"a.{ending}#1", "ab", {})


@pytest.mark.parametrize("name", ["text", "değer"])
@pytest.mark.parametrize("write", [as_parquet, arrow])
def test_two_columns_of_one_name_are_refused(name: str, write: Callable[[pa.Table], bytes]) -> None:
    table = pa.table([["bir"], ["iki"], ["üç"]], names=["text", name, "değer"])
    found = read(f"a.{'arrow' if write is arrow else 'parquet'}", write(table))
    assert reasons(found) == [f"has several columns '{name}'"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_damaged_arrow_batch_is_named_and_not_touched(stream: bool) -> None:
    for offsets in ((0, 2**30, 2, 4), (0, 3, 1, 4)):  # read, they end the process
        table = pa.table({"text": strings(b"abcd", *offsets)})
        (bad,) = read("a.arrow", arrow(table, stream=stream))
        assert isinstance(bad, BadRecord) and bad.origin == "a.arrow#0"
        last = len(offsets) - 2
        assert bad.reason.startswith(f"is damaged, up to a.arrow#{last}: column 'text': ")


@pytest.mark.parametrize("write", [as_parquet, arrow])
def test_no_damage_of_a_table_ends_the_process_or_is_silent(
    write: Callable[[pa.Table], bytes],
) -> None:
    numbers = list(range(20))
    kinds = pa.array(["a", "b"] * 10).dictionary_encode()
    whole = write(pa.table({"text": [f"metin {n}" for n in numbers], "no": numbers, "k": kinds}))
    noise = random.Random(1)
    for _ in range(1500):
        content = bytearray(whole)
        for _ in range(noise.choice((1, 2, 5))):
            content[noise.randrange(len(content))] = noise.choice((0, 255, noise.randrange(256)))
        found = read(f"a.{'arrow' if write is arrow else 'parquet'}", bytes(content))
        assert len(found) >= 20 or any(isinstance(item, BadRecord) for item in found)


def test_I_08_a_cut_parquet_file_is_named_with_its_size() -> None:
    content = parquet(ROWS)[:-100]
    (reason,) = reasons(read("a.parquet", content))
    assert reason.startswith(f"is not a whole Parquet file ({len(content)} bytes): ")
    assert reasons(read("a.parquet", parquet([{"metin": "x"}]))) == [
        "has no column 'text'; it has metin"
    ]


def test_tables_inside_packed_files_are_copied_first(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(office.zip_bytes({"veri/a.parquet": parquet(ROWS)}))
    how = Reading("auto", "utf-8", "text", None)
    found: list[Found] = []
    for file in files.walk(files.Place("a.zip", "a.zip", str(path)), LIMITS):
        assert isinstance(file, File)
        found += formats.read(file, how, LIMITS)
    assert found == expected_rows("a.zip!veri/a.parquet")
