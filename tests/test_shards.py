"""Token shards keep every id, their boundaries and their document, and open in `datasets`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset

from sifirdan.corpus import shards
from sifirdan.corpus.shards import Row, Shards
from sifirdan.errors import DataError


def rows(count: int = 20) -> list[Row]:
    return [
        Row(
            [i * 10 + j for j in range(1 + i % 5)],
            f"doc{i}",
            "kaynak",
            i,
            [j % 2 for j in range(1 + i % 5)],
        )
        for i in range(count)
    ]


def batches(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of seven, of which no limit of a shard is a multiple."""
    for start in range(0, len(rows), 7):
        yield shards.batch_of_rows(rows[start : start + 7], shards.shard_schema(300))


def test_ids_boundaries_and_columns_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MAX_BATCH_TOKENS", 7)  # several record batches
    counts = shards.write(tmp_path / "part-00000.arrow", rows(), vocab_size=300, loss_mask=True)
    back = Shards(tmp_path)
    assert len(back) == counts["documents"] == 20 and back.num_tokens == counts["tokens"]
    for index, row in enumerate(rows()):
        assert back.tokens(index).tolist() == row.tokens
        assert back.loss_mask(index).tolist() == row.loss_mask
        assert back.lengths[index] == len(row.tokens)
    assert back.column("document") == [row.document for row in rows()]
    assert counts["bytes"] == sum(back.column("num_bytes"))
    assert counts["targets"] == sum(sum(row.loss_mask or []) for row in rows())


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(256, np.uint16), (65536, np.uint16), (65537, np.uint32)]
)
def test_ids_are_stored_without_loss(tmp_path: Path, vocab_size: int, dtype: type) -> None:
    shards.write(
        tmp_path / "part-00000.arrow", [Row([0, vocab_size - 1], "a", "b")], vocab_size=vocab_size
    )
    tokens = Shards(tmp_path).tokens(0)
    assert tokens.dtype == dtype and tokens.tolist() == [0, vocab_size - 1]
    with pytest.raises(AssertionError):
        shards.write(tmp_path / "x.arrow", [Row([vocab_size], "a", "b")], vocab_size=vocab_size)


def test_a_mask_is_written_where_it_is_asked_for_and_never_missing(tmp_path: Path) -> None:
    plain = shards.write(tmp_path / "a.arrow", rows(), vocab_size=300)
    assert "targets" not in plain, "the rows have masks, which nobody asked for"
    with pytest.raises(AssertionError):
        shards.write(tmp_path / "b.arrow", [Row([1], "a", "b")], vocab_size=300, loss_mask=True)


def test_views_are_zero_copy(tmp_path: Path) -> None:
    shards.write(tmp_path / "part-00000.arrow", rows(), vocab_size=300)
    before = pa.total_allocated_bytes()
    back = Shards(tmp_path)
    assert back.tokens(3).base is not None and not back.tokens(3).flags.owndata
    assert pa.total_allocated_bytes() - before < 1024


def test_folders_roll_over_and_open_in_datasets(tmp_path: Path) -> None:
    total = shards.write_folder(tmp_path, batches(rows()), vocab_size=300, max_shard_tokens=20)
    parts = sorted(tmp_path.glob("*.arrow"))
    assert len(parts) > 1 and total["documents"] == 20
    assert sum(Dataset.from_file(str(part)).num_rows for part in parts) == 20
    assert Shards(tmp_path).tokens(19).tolist() == rows()[19].tokens
    again = tmp_path / "again"
    again.mkdir()
    shards.write_folder(again, batches(rows()), vocab_size=300, max_shard_tokens=20)
    assert [p.read_bytes() for p in sorted(again.glob("*.arrow"))] == [
        p.read_bytes() for p in parts
    ]


def test_an_empty_split_has_an_empty_shard(tmp_path: Path) -> None:
    assert (
        shards.write_folder(tmp_path, iter([]), vocab_size=300, max_shard_tokens=20)["documents"]
        == 0
    )
    assert len(Shards(tmp_path)) == 0


def test_damaged_shards_are_refused_never_crash(tmp_path: Path) -> None:
    path = tmp_path / "part-00000.arrow"
    shards.write(path, rows(), vocab_size=300)
    whole = path.read_bytes()
    with pytest.raises(DataError, match="no token shards"):
        Shards(tmp_path / "none")
    for size in (0, 7, len(whole) // 3, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"part-00000\.arrow"):
            Shards(tmp_path)
