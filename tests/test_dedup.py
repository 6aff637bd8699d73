"""Exact duplicates, repeated lines and which copy stays: equal to plain Python, on disk."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from sifirdan import text
from sifirdan.corpus import dedup, disk_rows
from sifirdan.corpus.dedup import (
    ExactDuplicates,
    RepeatedLineParams,
    RepeatedLines,
    check_removal_rate,
    definitions_of,
    drop_lines,
    key_hashes,
    line_hashes,
    priority,
    sentences_of,
)
from sifirdan.corpus.disk_rows import Buckets, DiskRows, buckets_for
from sifirdan.errors import ConfigError, DataError


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if memory were so small that everything lies in 8 buckets and is read in tiny blocks."""
    monkeypatch.setattr(disk_rows, "BLOCK_ROWS", 10)
    monkeypatch.setattr(dedup, "buckets_for", lambda *_: 8)


def find(folder: Path, keys: list[str], priorities: list[int], batch: int) -> list[int]:
    exact = ExactDuplicates(folder, 64)
    for start in range(0, len(keys), batch):
        part = slice(start, start + batch)
        exact.add(key_hashes(keys[part]), np.array(priorities[part], np.uint64))
    return exact.find().tolist()


def brute_force(keys: list[str], priorities: list[int]) -> list[int]:
    best: dict[str, tuple[int, int]] = {}
    for number, key in enumerate(keys):
        best[key] = min(best.get(key, (1 << 64, 0)), (priorities[number], number))
    return [-1 if best[key][1] == n else best[key][1] for n, key in enumerate(keys)]


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_I_10_exact_duplicates_are_those_of_brute_force(tmp_path: Path, batch: int) -> None:
    rng = np.random.default_rng(1)
    keys = [f"metin {n}" for n in rng.integers(0, 150, 400)]
    priorities = rng.integers(0, 5, 400).tolist()
    found = find(tmp_path, keys, priorities, batch)
    assert found == brute_force(keys, priorities)
    stay = sum(kept < 0 for kept in found)
    assert stay == len(set(keys)), "in = out + duplicates, one of each key"
    assert all(found[kept] < 0 for kept in found if kept >= 0), "what is kept for another stays"


def test_no_documents_have_no_duplicates(tmp_path: Path) -> None:
    assert find(tmp_path, [], [], 1) == []


def test_I_12_twins_are_duplicates_and_look_alikes_are_not(tmp_path: Path) -> None:
    texts = ["İ bir", "I\u0307 bir", "ş", "s\u0327", "kar", "kâr", "ilik", "ılık"]
    found = find(tmp_path, [text.dedup_key(t) for t in texts], [0] * 8, 3)
    assert found == [-1, 0, -1, 2, -1, -1, -1, -1]


def test_which_copy_stays() -> None:
    ranked = [
        priority(0, 10, "ff" * 16), priority(1, 500, "00" * 16), priority(1, 500, "01" * 16),
        priority(1, 499, "00" * 16), priority(2, 1 << 40, "00" * 16), priority(2, 7, "00" * 16),
    ]  # fmt: skip
    assert ranked == sorted(ranked) and len(set(ranked)) == len(ranked)
    assert max(ranked) < 1 << 63


@pytest.mark.parametrize("count", [1, 2, 64])
def test_buckets_hold_every_row_once_and_ascend(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 1 << 63, (500, 2), dtype=np.uint64) * np.uint64(2)
    buckets = Buckets(tmp_path, 2, count)
    for part in np.array_split(rows, 9):
        buckets.append_by_hash(part)
    taken = [buckets.take(number) for number in range(count)]
    assert sorted(map(tuple, np.concatenate(taken).tolist())) == sorted(map(tuple, rows.tolist()))
    limits = [(part[:, 0].min(), part[:, 0].max()) for part in taken if len(part)]
    assert all(a[1] < b[0] for a, b in zip(limits, limits[1:], strict=False))
    assert not list(tmp_path.iterdir()), "a bucket is taken once"


def test_rows_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_rows, "BLOCK_ROWS", 8)
    rows = DiskRows(tmp_path / "rows", 3)
    whole = np.arange(60, dtype=np.uint64).reshape(20, 3)
    for part in np.array_split(whole, 6):
        rows.append(part)
    assert len(rows) == 20
    assert np.concatenate([block for _, block in rows.blocks()]).tolist() == whole.tolist()
    assert rows.read(5, 7).tolist() == whole[5:7].tolist()
    gathered = rows.gather(np.array([18, 3, 3]), np.array([20, 3, 5]))
    assert gathered.tolist() == np.concatenate([whole[18:], whole[3:5]]).ravel().tolist()
    assert rows.gather(np.array([4]), np.array([4])).tolist() == []
    assert rows.mapped().tolist() == whole.ravel().tolist()


def test_more_rows_take_more_buckets_up_to_a_limit() -> None:
    counts = [buckets_for(rows, 4, 64) for rows in (0, 1000, 10**6, 10**8, 10**12)]
    assert counts[0] == 1 and counts == sorted(counts) and counts[-1] == disk_rows.MAX_BUCKETS
    assert all(count & (count - 1) == 0 for count in counts)


def test_memory_does_not_grow_with_the_number_of_keys(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from sifirdan.corpus.dedup import ExactDuplicates
exact = ExactDuplicates(Path(sys.argv[1]), 16)
rng = np.random.default_rng(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(int(sys.argv[2])):
    exact.add(rng.integers(0, 1 << 63, (50_000, 2), dtype=np.uint64), np.zeros(50_000, np.uint64))
assert (exact.find()[:1000] == -1).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    grown = {}
    for batches in (10, 60):
        command = [sys.executable, "-c", script, str(tmp_path / str(batches)), str(batches)]
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            check=True,
            cwd=Path(__file__).parents[1],
        )
        grown[batches] = float(done.stdout)
    # Half a million and three million keys; the latter are 96 MB on disk, and 8 bytes of the
    # answer each are mapped from a file.
    assert grown[60] < grown[10] + 35, grown


# Lines


def brute_force_lines(texts: list[str], min_chars: int, limit: int) -> dict[int, list[int]]:
    having: dict[str, list[int]] = defaultdict(list)
    for number, document in enumerate(texts):
        for key in {
            text.dedup_key(line) for line in document.split("\n") if len(line) >= min_chars
        }:
            having[key].append(number)
    gone = {}
    for number, document in enumerate(texts):
        places = [
            place
            for place, line in enumerate(document.split("\n"))
            if len(line) >= min_chars
            and words_in(line)
            and having[text.dedup_key(line)].index(number) >= limit
        ]
        if places:
            gone[number] = places
    return gone


def words_in(line: str) -> bool:
    return bool(text.dedup_key(line))


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("batch", [1, 13, 500])
@pytest.mark.parametrize("limit", [1, 3])
def test_repeated_lines_are_those_of_brute_force(tmp_path: Path, batch: int, limit: int) -> None:
    rng = np.random.default_rng(3)
    lines = [f"Bu {n} numaralı satırdır." for n in range(60)] + [
        "",
        "kısa",
        "BU 3 NUMARALI satırdır",
    ]
    texts = ["\n".join(rng.choice(lines, rng.integers(1, 7)).tolist()) for _ in range(200)]
    repeated = RepeatedLines(tmp_path, 64, limit)
    for start in range(0, len(texts), batch):
        repeated.add(0, line_hashes(texts[start : start + batch], 10))
    assert dict(repeated.find()) == brute_force_lines(texts, 10, limit)


def test_lines_of_two_sources_are_not_the_same(tmp_path: Path) -> None:
    repeated = RepeatedLines(tmp_path, 64, 1)
    repeated.add(0, line_hashes(["Aynı satır burada."], 5))
    repeated.add(1, line_hashes(["Aynı satır burada.", "Başka.\nAynı satır burada!"], 5))
    assert list(repeated.find()) == [(2, [1])]


def test_a_definition_counts_without_its_headword(tmp_path: Path) -> None:
    line = "{} (isim): İstanbul iline bağlı ilçelerden biri."
    texts = [line.format(name) + "\nBoğazdadır." for name in ("Şile", "Tuzla")]
    assert definitions_of(texts[0]) == ["İstanbul iline bağlı ilçelerden biri.", ""]
    assert sentences_of(texts[0]) == ["", "Boğazdadır."]
    for name, split, gone in (("b", definitions_of, [0]), ("c", sentences_of, [1])):
        repeated = RepeatedLines(tmp_path / name, 64, 1)
        repeated.add(0, line_hashes(texts, 5, split))
        assert list(repeated.find()) == [(1, gone)]


@pytest.mark.parametrize("key", ["min_chars", "max_sentence_documents"])
def test_limits_of_lines_are_at_least_one(key: str) -> None:
    RepeatedLineParams(1, None, 1).check("clean.repeated_lines")
    values = {"min_chars": 30, "max_sentence_documents": 1, "max_definition_documents": None}
    with pytest.raises(ConfigError, match=rf"clean\.repeated_lines\.{key} is 0"):
        RepeatedLineParams(**(values | {key: 0})).check("clean.repeated_lines")


def test_lines_are_dropped_by_number() -> None:
    assert drop_lines("bir\niki\nüç", [1]) == "bir\nüç"
    assert drop_lines("bir\niki", [0, 1]) == ""


def test_I_11_a_high_rate_of_removal_stops() -> None:
    check_removal_rate({"a": 200, "az": 3}, {"a": 100, "az": 3}, 0.5, "clean.max_removed_share")
    with pytest.raises(DataError, match=r"a: 101 of 200 .*50\.5%.*\n.*clean\.max_removed_share"):
        check_removal_rate({"a": 200}, {"a": 101}, 0.5, "clean.max_removed_share")
    with pytest.raises(DataError, match=r"copies of others, such as\n    1 of 2\n    3 of 2\n"):
        check_removal_rate({"a": 200}, {"a": 101}, 0.5, "x", lambda _: ["1 of 2", "3 of 2"])
