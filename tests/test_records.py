"""Documents, their ids and splits, and Parquet files of them."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sifirdan.corpus import records
from sifirdan.corpus.records import Document, PartWriter, Record, document
from sifirdan.errors import DataError


def make(number: int, text: str = "Merhaba \u2028 dünya") -> Document:
    return document(
        Record(f"yer#{number}", text, {"b": [1, None], "a": "İ"}), source="kendi", license="own"
    )


def test_documents_survive_the_file(tmp_path: Path) -> None:
    rows = [make(n, f"metin {n}\n\x00 ığdır 😀") for n in range(5)]
    records.write_parquet(tmp_path / "a.parquet", iter(rows))
    assert list(records.read_parquet(tmp_path / "a.parquet")) == rows
    assert pq.read_schema(tmp_path / "a.parquet").equals(records.SCHEMA)


def test_no_documents_make_a_readable_file(tmp_path: Path) -> None:
    records.write_parquet(tmp_path / "a.parquet", [])
    assert list(records.read_parquet(tmp_path / "a.parquet")) == []


def test_same_documents_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        records.write_parquet(tmp_path / name, (make(n) for n in range(100)))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_D_05_parts_are_bounded_and_keep_the_order(tmp_path: Path) -> None:
    with PartWriter(tmp_path / "x", part_chars=1000) as writer:
        for n in range(25):
            writer.add(make(n, "a" * 100))
    assert len(list((tmp_path / "x").iterdir())) == 3
    origins = [row.origin for row in records.read_folder(tmp_path / "x")]
    assert origins == [f"yer#{n}" for n in range(25)]


def test_ids_are_stable_and_tell_fields_apart() -> None:
    assert records.document_id("a", "b", "c") == records.document_id("a", "b", "c")
    assert len({records.document_id(*fields) for fields in ("abc", ("ab", "", "c"), "acb")}) == 3


def test_split_slices_are_fixed_whatever_val_share_is() -> None:
    keys = [f"metin {n}" for n in range(20_000)]
    full = [records.split_of(key, 0.03) for key in keys]
    part = [records.split_of(key, 0.01) for key in keys]
    shares = {name: count / len(keys) for name, count in Counter(full).items()}
    assert shares["val"] == pytest.approx(0.03, abs=0.005)
    assert shares["test"] == pytest.approx(0.03, abs=0.005)
    assert "reserved" not in shares
    for whole, smaller in zip(full, part, strict=True):
        assert smaller == whole or (whole, smaller) == ("val", "reserved")
    assert part.count("val") / len(keys) == pytest.approx(0.01, abs=0.004)


def test_I_08_a_cut_file_is_named_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.parquet"
    records.write_parquet(path, [make(1)])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=rf"part-00000.parquet.*{path.stat().st_size} bytes"):
        list(records.read_parquet(path))


def test_I_09_large_documents_are_written_and_read_in_bounded_memory(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from sifirdan.corpus import records
def rows():
    for n in range(200):
        text = "ığdır" * (1_500_000 if n == 0 else 200_000)
        yield records.document(records.Record(str(n), text, {}), source="s", license="own")
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
records.write_parquet(Path(sys.argv[1]), rows())
assert sum(1 for _ in records.read_parquet(Path(sys.argv[1]))) == 200
print(peak() - before)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert float(done.stdout) < 220, "MB; the texts together have 250 MB, the largest 10 MB"
