"""One function on all cores: the items' order, bounded waiting, and workers that end with the stage."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sifirdan.corpus.parallel import Workers
from sifirdan.errors import DataError

ROOT = Path(__file__).parents[1]


def square(number: int) -> int:
    return number * number


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(number: int) -> int:
    if number == 2:
        raise DataError("number 2")
    return number


@pytest.mark.parametrize("num_workers", [1, 2, 7, None])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_results_come_in_the_order_of_the_items(num_workers: int | None, count: int) -> None:
    with Workers(num_workers) as workers:
        for _ in range(2):  # the same processes serve again
            assert list(workers.map(square, range(count))) == [n * n for n in range(count)]


def test_items_are_taken_only_a_little_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    with Workers(2) as workers:
        results = workers.map(square, items())
        assert [next(results) for _ in range(10)] == [n * n for n in range(10)]
        assert len(taken) <= 10 + 2 * 2


def test_an_error_of_a_worker_arrives_as_it_was() -> None:
    with Workers(2) as workers, pytest.raises(DataError, match="number 2"):
        list(workers.map(refuse, range(5)))


def test_a_worker_that_is_killed_is_explained() -> None:
    with (
        Workers(2) as workers,
        pytest.raises(DataError, match=r"(?s)memory ran out.*corpus_workers"),
    ):
        list(workers.map(die, range(8)))


SCRIPT = """
import time
from sifirdan.corpus.parallel import Workers

if __name__ == "__main__":
    with Workers(2) as workers:
        list(workers.map(time.sleep, [0.01, 0.01, 60, 60, 60]))
"""


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    deadline = time.monotonic() + 60
    workers: list[psutil.Process] = []
    while len(workers) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
        found = psutil.Process(parent.pid).children(recursive=True)
        workers = [one for one in found if "spawn_main" in " ".join(one.cmdline())]
    time.sleep(1)  # they have started to work
    parent.kill()
    parent.wait()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
