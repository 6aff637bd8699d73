"""Rows of 64-bit numbers on disk: appended, read in blocks, and parted into buckets that fit memory.

What is sorted or grouped here may be larger than memory: rows are parted by their first number, and
each bucket is loaded alone. Scratch files of one run, in the byte order of the machine; nothing here
outlives the stage that made it.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

BLOCK_ROWS = 1 << 18  # rows that are read at once
MAX_BUCKETS = 4096
WORKING_COPIES = 6  # of a bucket while it is sorted and grouped


class DiskRows:
    """A file of rows, each of `width` numbers of 64 bits, in the order they were appended."""

    def __init__(self, path: Path, width: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.width, self._num_rows = path, width, 0
        self._file = open(path, "wb")  # noqa: SIM115 (closed by `close`)

    def __len__(self) -> int:
        return self._num_rows

    def append(self, rows: np.ndarray) -> None:
        """Rows of uint64, shape (any, width), or (any,) where the width is 1."""
        self._num_rows += rows.size // self.width
        self._file.write(np.ascontiguousarray(rows, np.uint64).data)

    def read(self, start: int, end: int) -> np.ndarray:
        """Rows `start` to `end`, uint64, shape (end - start, width)."""
        self._file.flush()
        count = (end - start) * self.width
        offset = start * self.width * 8
        return np.fromfile(self.path, np.uint64, count, offset=offset).reshape(-1, self.width)

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in order, a block at a time, each with the number of its first row."""
        size = max(1, BLOCK_ROWS // self.width)
        for start in range(0, len(self), size):
            yield start, self.read(start, min(start + size, len(self)))

    def gather(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The numbers of many ranges of rows, one range after the other, shape (any,). Read and not
        mapped: mapped pages of a large file would fill the memory."""
        self._file.flush()
        row_bytes = self.width * 8
        values = np.empty(int((ends - starts).sum()) * self.width, np.uint64)
        if not len(values):
            return values
        view, at = values.data.cast("B"), 0
        with open(self.path, "rb", buffering=0) as file:
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                size = (end - start) * row_bytes
                file.seek(start * row_bytes)
                while size:  # one read gives at most 2 GB
                    size -= (got := file.readinto(view[at : at + size]))
                    assert got, (self.path, start, end)
                    at += got
        return values

    def mapped(self) -> np.ndarray:
        """All numbers as a read-only array that the system pages in, shape (rows * width,)."""
        self._file.flush()
        if not self._num_rows:
            return np.zeros(0, np.uint64)
        return np.memmap(self.path, np.uint64, "r")

    def close(self) -> None:
        self._file.close()


class Buckets:
    """Rows parted into `count` files; `take` loads one and deletes its file."""

    def __init__(self, folder: Path, width: int, count: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._width, self.count = folder, width, count

    def append(self, rows: np.ndarray, numbers: np.ndarray) -> None:
        """Put each row, uint64, shape (any, width), into the bucket of its number."""
        order = np.argsort(numbers, kind="stable")
        numbers, rows = numbers[order], np.ascontiguousarray(rows, np.uint64)[order]
        found, starts = np.unique(numbers, return_index=True)
        for number, part in zip(found.tolist(), np.split(rows, starts[1:]), strict=False):
            with open(self._path(number), "ab") as file:
                file.write(np.ascontiguousarray(part).data)

    def append_by_hash(self, rows: np.ndarray) -> None:
        """Put each row into the bucket of the highest bits of its first number: bucket after
        bucket, these numbers ascend."""
        assert self.count & (self.count - 1) == 0, self.count
        shift = np.uint64(65 - self.count.bit_length())
        numbers = rows[:, 0] >> shift if self.count > 1 else np.zeros(len(rows), np.uint64)
        self.append(rows, numbers)

    def take(self, number: int) -> np.ndarray:
        """The rows of one bucket in the order they came, uint64, shape (any, width)."""
        path = self._path(number)
        if not path.exists():
            return np.zeros((0, self._width), np.uint64)
        rows = np.fromfile(path, np.uint64).reshape(-1, self._width)
        path.unlink()
        return rows

    def _path(self, number: int) -> Path:
        return self._folder / f"bucket-{number:05d}"


def buckets_for(num_rows: int, width: int, memory_mb: int) -> int:
    """How many buckets, a power of two, so that each can be sorted within the memory given."""
    wanted = num_rows * width * 8 * WORKING_COPIES / (memory_mb << 20)
    return min(MAX_BUCKETS, 1 << max(0, int(np.ceil(wanted)) - 1).bit_length())


def new_array(path: Path, length: int, dtype: type, fill: int) -> np.ndarray:
    """An array of `length` numbers in a file, for writing anywhere in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not length:
        return np.zeros(0, dtype)
    array = np.memmap(path, dtype, "w+", shape=(length,))
    for start in range(0, length, BLOCK_ROWS):
        array[start : start + BLOCK_ROWS] = fill
    return array
