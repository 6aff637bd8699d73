"""One file format after the other: what comes out, and what is said about what cannot."""

import gzip
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import office
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sifirdan.corpus import formats, markup
from sifirdan.corpus.files import File, Limits, NotRead
from sifirdan.corpus.formats import Reading
from sifirdan.corpus.records import BadRecord, Record

LIMITS = Limits(max_document_bytes=10**8, max_unpacked_bytes=10**9, max_members=1000)
Found = Record | BadRecord | NotRead


def read(name: str, content: bytes, limits: Limits = LIMITS, **changes: Any) -> list[Found]:
    how = {"format": "auto", "encoding": "utf-8", "text_column": "text", "xml_element": None}
    file = File(name, name, io.BufferedReader(io.BytesIO(content)))  # type: ignore[arg-type]
    return list(formats.read(file, Reading(**(how | changes)), limits))  # type: ignore[arg-type]


def texts(found: list[Found]) -> list[str]:
    assert all(isinstance(item, Record) for item in found), found
    return [item.text for item in found if isinstance(item, Record)]


def reasons(found: list[Found]) -> list[str]:
    assert not any(isinstance(item, Record) for item in found), found
    return [item.reason for item in found if not isinstance(item, Record)]


# Text and its encoding.


def test_a_text_file_is_one_document_as_it_stands() -> None:
    text = "# İlk\r\n\n\u2028ığdır\x85\n a\x00b "
    for name in ("şiir.txt", "ALT.MD"):
        assert read(name, text.encode()) == [Record(name, text, {})]
    assert read("liste", text.encode(), format="txt") == [Record("liste", text, {})]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json", "a.html"])
def test_I_05_a_byte_order_mark_is_stripped(name: str) -> None:
    content = {
        "a.jsonl": '{"text": "şu"}\n', "a.json": '{"text": "şu"}', "a.csv": "text\nşu\n",
        "a.html": "<p>şu</p>",
    }.get(name, "şu")  # fmt: skip
    assert texts(read(name, b"\xef\xbb\xbf" + content.encode())) == ["şu"]


def test_I_05_other_encodings_are_refused_with_file_and_byte() -> None:
    hint = "; an older Turkish file? save it as UTF-8, or set the encoding to windows-1254"
    old = b"\xef\xbb\xbfabc" + "ğ".encode("windows-1254")
    assert read("eski.txt", old) == [BadRecord("eski.txt", f"byte 6 (0xf0) is not utf-8{hint}")]
    assert reasons(read("a.txt", b"abc\x81")) == ["byte 3 (0x81) is not utf-8"]
    assert reasons(read("a.txt", "Işık".encode("utf-16"))) == [
        "byte 0: this is UTF-16; save it as UTF-8, or set the encoding to utf-16"
    ]
    lines = '{"text": "bir"}\n{"text": "ş"}\n'.encode("windows-1254")
    first, second = read("a.jsonl", lines)
    assert second == BadRecord("a.jsonl:2", f"byte 26 (0xfe) is not utf-8{hint}")
    assert lines[26] == 0xFE


TURKISH = "Işığı söndür, ğüşiöç ĞÜŞİÖÇ, âîû’nun"


@pytest.mark.parametrize("encoding", ["windows-1254", "iso-8859-9", "utf-16"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json", "a.tsv", "a.html"])
def test_I_05_encodings_are_settings(encoding: str, name: str) -> None:
    text = TURKISH.replace("’", "'") if encoding == "iso-8859-9" else TURKISH
    text = text.replace(",", " ") if name == "a.csv" else text
    content = {
        "a.jsonl": json.dumps({"text": text}, ensure_ascii=False) + "\n",
        "a.json": json.dumps([{"text": text}], ensure_ascii=False),
        "a.csv": f"no,text\r\n1,{text}\r\n",
        "a.tsv": f"no\ttext\n1\t{text}\n",
        "a.html": f"<html><body>{text}</body></html>",
    }.get(name, text)
    assert texts(read(name, content.encode(encoding), encoding=encoding)) == [text]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "windows-1254"])
def test_utf_32_is_called_so(encoding: str) -> None:
    for content in ("\ufeffışık".encode("utf-32-le"), "\ufeffışık".encode("utf-32-be")):
        for name in ("a.txt", "a.jsonl", "a.html"):
            assert reasons(read(name, content, encoding=encoding)) == [
                "byte 0: this is UTF-32; save it as UTF-8"
            ]


def test_utf_16_lines_are_found_in_time_that_grows_with_them_only() -> None:
    line = json.dumps({"text": "satır"}, ensure_ascii=False) + "\n"
    content = (line * 100_000).encode("utf-16")  # cut again for each line, it takes minutes
    assert texts(read("a.jsonl", content, encoding="utf-16")) == ["satır"] * 100_000


def test_a_bad_utf_16_line_is_named_with_its_byte_in_every_block() -> None:
    lines = ["a" * 3_000_000, "b" * 5_000_000, "iki"]  # the second spans two blocks
    content = b"\xff\xfe" + "".join(f'{{"text": "{line}"}}\n' for line in lines).encode("utf-16-le")
    at = len(content)
    *good, bad = read("a.jsonl", content + b"\x00\xdc\n\x00", encoding="utf-16")
    assert texts(good) == lines
    assert bad == BadRecord("a.jsonl:4", f"byte {at} (0x00) is not utf-16-le")


def test_I_05_a_wrong_setting_is_said() -> None:
    assert reasons(read("a.txt", b"a\x81", encoding="windows-1254")) == [
        "byte 1 (0x81) is not windows-1254"
    ]
    (reason,) = reasons(read("a.txt", "Ali’nin".encode("windows-1254"), encoding="iso-8859-9"))
    assert reason.startswith("byte 3 (0x92) is no character of iso-8859-9") and "1254" in reason
    for name in ("a.txt", "a.csv"):
        content = ("text\n" if name == "a.csv" else "") + "ağaç"
        found = read(name, content.encode(), encoding="windows-1254")
        assert "this is UTF-8, not windows-1254" in reasons(found)[0]
    (reason,) = reasons(read("a.txt", "ağaç".encode(), encoding="utf-16"))
    assert reason == "byte 0: there is no byte order mark, so this is not UTF-16"


def test_I_05_utf_16_lines_end_at_lf_and_not_at_half_of_it() -> None:
    lines = ["Ċ ਊ Ā\u0a00", "\u0a0a", "a\u2028b", "ğ" * 5000]  # full of the bytes 0a and 00
    content = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in lines)
    for encoding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        raw = mark + content.encode(encoding)
        assert texts(read("a.jsonl", raw, encoding="utf-16")) == lines
        assert texts(read("a.jsonl", raw[:-2], encoding="utf-16")) == lines


# What a file really is.


@pytest.mark.parametrize(
    "name", ["a.txt", "a.jsonl", "a.csv", "a.html", "a.xml", "a.pdf", "a.parquet"]
)
def test_a_renamed_picture_is_named(name: str) -> None:
    assert reasons(read(name, office.PNG)) == [f"is a PNG image, not {name[2:]}"]


def test_other_content_than_the_ending_says_is_named() -> None:
    assert reasons(read("a.docx", b"merhaba")) == ["is something else, not docx"]
    assert reasons(read("a.txt", b"{\\rtf1 merhaba}")) == ["is an RTF document, not txt"]
    assert reasons(read("a.csv", office.zip_bytes({"x": b"y"})))[0].startswith("is a zip archive")
    assert (
        "old Office" in reasons(read("a.txt", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99)))[0]
    )
    assert texts(read("a.txt", b"RIFF nedir? PAR1 ne demek?")) == ["RIFF nedir? PAR1 ne demek?"]


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1254", "iso-8859-9"])
def test_binary_junk_is_never_text(encoding: str) -> None:
    noise = random.Random(1)
    for size in (100, 1000, 5000):
        for name in ("a.txt", "a.csv", "a.jsonl"):
            found = read(name, noise.randbytes(size), encoding=encoding)
            assert all(isinstance(item, BadRecord) for item in found), (size, name)
    assert reasons(read("a.txt", bytes(3000), encoding=encoding)) == ["is binary data, not text"]


@pytest.mark.parametrize("name", sorted(f"a{ending}" for ending in formats.ENDINGS))
def test_an_empty_file_is_named(name: str) -> None:
    assert read(name, b"") == [BadRecord(name, "the file is empty")]


def test_an_unknown_ending_is_named_and_not_read() -> None:
    (found,) = read("sunum.pptx", b"x")
    assert isinstance(found, NotRead) and found.reason.startswith("its ending is none of .txt .md")


def test_a_cut_packed_file_is_named_after_what_it_gave() -> None:
    lines = b'{"text": "' + os.urandom(50).hex().encode() + b'"}\n'
    whole = gzip.compress(b"".join(lines for _ in range(5000)))
    stream = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(whole[:-30])))  # type: ignore[arg-type]
    how = Reading("auto", "utf-8", "text", None)
    *good, bad = formats.read(File("a", "a.jsonl", stream), how, LIMITS)
    assert bad == BadRecord("a", "ends in the middle: the file is cut off")


# Markup.


def test_a_page_gives_its_main_text_and_title() -> None:
    (found,) = read("a.html", office.PAGE.encode())
    assert isinstance(found, Record) and found.meta == {"title": "Bayram duyurusu"}
    assert "Değerli çalışanlarımız" in found.text and "görüşmek üzere." in found.text
    assert not any(word in found.text for word in ("Ana sayfa", "hakları", "color", "<p>"))


def test_a_page_that_says_another_encoding_is_refused_with_it() -> None:
    page = '<meta charset="windows-1254"><p>Işık</p>'.encode("windows-1254")
    (reason,) = reasons(read("a.htm", page))
    assert reason.startswith("byte ") and reason.endswith("; the page itself says windows-1254")
    assert texts(read("a.htm", page, encoding="windows-1254")) == ["Işık"]
    assert reasons(read("a.html", b"<html><script>x()</script></html>")) == [
        "the page holds no text"
    ]


def test_all_text_of_a_page_in_lines() -> None:
    html = (
        "<html><head><title> Ev &amp; iş </title><style>p{}</style><body><h1>Baş<br>lık</h1>"
        "<p>Bir <b>iki</b>\n üç&nbsp;dört</p><ul><li>a<li>b</ul><script>if (a<b) {}</script>son"
    )
    assert markup.page(html) == ("Ev & iş", "Baş\nlık\nBir iki üç dört\na\nb\nson")


@pytest.mark.parametrize("tag", ["template", "svg", "noscript"])
def test_a_hidden_element_without_an_end_hides_nothing(tag: str) -> None:
    assert markup.page(f"<p>bir<{tag}><p>iki<p>üç<script>x()</script>") == ("", "bir\niki\nüç")
    closed = f"<p>bir<{tag}>a<p>b</{tag}>iki <{tag}>c</{tag}>üç"
    assert markup.page(closed) == ("", "bir\niki üç")
    assert markup.page(f"<{tag}>a<svg>b</{tag}>iki</svg>") == ("", "iki")
    assert texts(read("a.html", f"<p>bir<{tag}><p>iki metin<p>üç metin".encode()))[0].endswith(
        "iki metin\nüç metin"
    )


@pytest.mark.parametrize("tag", ["script", "style"])
def test_code_without_an_end_is_no_text(tag: str) -> None:
    assert markup.page(f"<p>bir<{tag}>if (a) <p>b</p>") == ("", "bir")


XML = (
    '<?xml version="1.0" encoding="{}"?><kök xmlns="urn:x">\n<madde no="1">Bir <b>kalın</b> söz'
    "</madde>\n<ara><madde>İkinci\n  <madde>iç</madde></madde></ara></kök>"
)


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1254", "utf-16", "iso-8859-9"])
def test_xml_as_a_whole_and_by_element(encoding: str) -> None:
    content = XML.format(encoding).encode(encoding)
    assert texts(read("a.xml", content)) == ["Bir kalın söz\nİkinci\niç"]
    found = read("a.xml", content, xml_element="madde")
    assert found == [
        Record("a.xml#0", "Bir kalın söz", {}), Record("a.xml#1", "İkinci\niç", {}),
    ]  # fmt: skip


def test_a_setting_wins_over_what_xml_does_not_declare() -> None:
    content = "<a>ığdır</a>".encode("windows-1254")
    assert texts(read("a.xml", content, encoding="windows-1254")) == ["ığdır"]
    assert reasons(read("a.xml", content))[0].startswith("is not well-formed XML")


def test_bad_xml_is_named() -> None:
    assert reasons(read("a.xml", b"<a><b></a>"))[0].startswith("is not well-formed XML")
    assert reasons(read("a.xml", b"<a>x</a>", xml_element="b")) == ["has no element 'b'"]
    assert reasons(read("a.xml", b"<a><b/></a>")) == ["holds no text"]
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE a [<!ENTITY e0 "ha">{entities}]><a>&e9;</a>'
    assert "XML" in reasons(read("a.xml", bomb.encode()))[0]


# Bounded memory.

SCRIPT = """
import io, resource, sys
from sifirdan.corpus import formats
from sifirdan.corpus.files import File, Limits
kind, path = sys.argv[1:]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
how = formats.Reading("auto", "utf-8", "text", "p")
count = 0
with open(path, "rb") as stream:
    for record in formats.read(File("a", f"a.{kind}", stream), how, Limits(10**9, 10**12, 10)):
        assert len(record.text) >= 100_000, record
        count += 1
print(count, peak() - before)
"""


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow", "xml"])
def test_I_09_memory_grows_with_the_document_and_not_with_the_file(
    tmp_path: Path, kind: str
) -> None:
    text, path = "Iğdır'da çay. " * 8000, tmp_path / f"a.{kind}"
    if kind in ("parquet", "arrow"):
        batch = pa.RecordBatch.from_pylist([{"text": f"{n} {text}"} for n in range(50)])
        with open(path, "wb") as sink:
            new = pa.ipc.new_file if kind == "arrow" else pq.ParquetWriter
            with new(sink, batch.schema) as writer:
                for _ in range(20):
                    writer.write_batch(batch)
    else:
        line = {"jsonl": f'{{"text": "{text}"}}\n', "csv": f"{text}\n", "xml": f"<p>{text}</p>"}[
            kind
        ]
        head, foot = {"csv": ("text\n", ""), "xml": ("<a>", "</a>")}.get(kind, ("", ""))
        with open(path, "w", encoding="utf-8") as file:
            file.write(head + line * 1000 + foot)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind, str(path)], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    count, peak = done.stdout.split()
    assert int(count) == 1000
    assert float(peak) < 60, "MB; the texts together have 130 MB, each 0.13"
