"""The user's own files: strict, exact about places, and whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sifirdan.corpus import own_text
from sifirdan.corpus.records import BadRecord, Record
from sifirdan.errors import ConfigError


def read(path: Path, encoding: str = "utf-8") -> list[Record | BadRecord]:
    return list(own_text.read_file(path, path.name, encoding))


def test_files_are_found_in_name_order_and_others_are_named(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "c.JSONL", ".gitkeep", "d.pdf", ".gizli.txt", "a/e.txt.dvc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    text, others = own_text.list_files(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in text] == ["a/z.md", "b.txt", "c.JSONL"]
    assert [p.name for p in others] == [".gizli.txt", "d.pdf"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"yok: there is no such folder"):
        own_text.list_files(tmp_path / "yok")


def test_a_text_file_is_one_document(tmp_path: Path) -> None:
    for name in ("şiir.txt", "alt.md"):
        (tmp_path / name).write_bytes("# İlk\r\n\n\u2028ığdır\x85\n".encode())
    documents = list(own_text.read_folder(tmp_path, "utf-8"))
    expected = "# İlk\r\n\n\u2028ığdır\x85\n"
    assert documents == [Record("alt.md", expected, {}), Record("şiir.txt", expected, {})]


@pytest.mark.parametrize("ending", ["txt", "jsonl"])
def test_I_05_a_byte_order_mark_is_stripped(tmp_path: Path, ending: str) -> None:
    content = "şu" if ending == "txt" else '{"text": "şu"}\n'
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"\xef\xbb\xbf" + content.encode())
    (record,) = read(path)
    assert isinstance(record, Record) and record.text == "şu"


def test_I_05_other_encodings_are_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "eski.txt"
    path.write_bytes(b"\xef\xbb\xbfabc" + "ğ".encode("windows-1254"))
    hint = "; an older Turkish file? save it as UTF-8, or set ingest.own_encoding to windows-1254"
    assert read(path) == [BadRecord("eski.txt", f"byte 6 (0xf0) is not utf-8{hint}")]
    path.write_bytes(b"abc\x81")
    assert read(path) == [BadRecord("eski.txt", "byte 3 (0x81) is not utf-8")]
    path.write_bytes("Işık".encode("utf-16"))
    assert read(path) == [BadRecord("eski.txt", "byte 0: this is UTF-16; save it as UTF-8")]


def test_I_05_windows_1254_is_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "eski.txt"
    path.write_bytes("Işığı söndür, ğüşiöç".encode("windows-1254"))
    assert read(path, "windows-1254") == [Record("eski.txt", "Işığı söndür, ğüşiöç", {})]
    path.write_bytes(b"a\x81")
    assert read(path, "windows-1254") == [
        BadRecord("eski.txt", "byte 1 (0x81) is not windows-1254")
    ]


def test_a_jsonl_record_ends_at_lf_only(tmp_path: Path) -> None:
    texts = ["a\u2028b", "a\u2029b", "a\x85b", "a\x0bb\x0cc\x1cd", "a\rb", "son"]
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": t, "no": n}, ensure_ascii=False) for n, t in enumerate(texts)]
    path.write_bytes("\r\n".join(lines).encode())
    records = read(path)
    assert records == [Record(f"a.jsonl:{n + 1}", t, {"no": n}) for n, t in enumerate(texts)]


def test_I_07_each_bad_line_is_named_and_none_is_lost(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"belge {n}"}).encode() for n in range(1, 1001)]
    bad = {
        500: (b'{"text": "yar', "not valid JSON"),
        600: (b'{"text": "\xff"}', r"byte 10 (0xff) is not utf-8"),
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
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    records = read(path)
    assert len(records) == 1000
    refused = {r.origin: r.reason for r in records if isinstance(r, BadRecord)}
    assert refused.keys() == {f"a.jsonl:{number}" for number in bad}
    for number, (_, reason) in bad.items():
        assert reason in refused[f"a.jsonl:{number}"]


def test_I_14_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(r'{"text": "a\ud83d b\u0000 \ud83d\ude00", "k\udc00": ["\ud83d"]}' + "\n")
    (record,) = read(path)
    assert record == Record("a.jsonl:1", "a\ufffd b\x00 😀", {"k\ufffd": ["\ufffd"]})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch(mode=0)
    assert read(path) == [BadRecord("a.txt", "cannot be opened: Permission denied")]


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    assert read(tmp_path / "a.txt") == [
        BadRecord("a.txt", "cannot be opened: No such file or directory")
    ]


def test_I_06_the_locale_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "ığdır.txt").write_bytes("İğde ağacı".encode())
    script = (
        "import sys; from pathlib import Path; from sifirdan.corpus import own_text;"
        "print(ascii(list(own_text.read_folder(Path(sys.argv[1]), 'utf-8'))))"
    )
    outputs = set()
    for settings in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=os.environ | settings, capture_output=True, encoding="utf-8", check=True,
        )  # fmt: skip
        outputs.add(done.stdout)
    assert outputs == {ascii([Record("ığdır.txt", "İğde ağacı", {})]) + "\n"}


def test_own_text_that_an_experiment_lacks_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / ".dvc/tmp/exps/tmp1"
    for root in (tmp_path, copy):
        (root / "data/own").mkdir(parents=True)
        (root / "data/own/ortak.txt").write_text("var")
    own_text.refuse_missing_in_copy("data/own", copy=copy, root=tmp_path)
    own_text.refuse_missing_in_copy("data/baska", copy=copy, root=tmp_path)
    (tmp_path / "data/own/a.txt").write_text("yok")
    (tmp_path / "data/own/b.md").write_text("yok")
    own_text.refuse_missing_in_copy("data/own", copy=tmp_path, root=tmp_path)
    own_text.refuse_missing_in_copy(str(tmp_path / "data/own"), copy=copy, root=tmp_path)
    with pytest.raises(
        ConfigError, match=r"data/own/a.txt and 1 more: not in this .*copy"
    ) as error:
        own_text.refuse_missing_in_copy("data/own", copy=copy, root=tmp_path)
    assert "dvc add data/own/a.txt" in str(error.value)
