"""Objects and rows of a file: what comes out, and what is said about what cannot."""

import csv
import datetime
import io
import json
from pathlib import Path
from typing import Any

import office
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_formats import LIMITS, Found, read, reasons, texts

from sifirdan.corpus import files, formats
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
        850: (b"[" * 100_000, "not valid JSON"),
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
