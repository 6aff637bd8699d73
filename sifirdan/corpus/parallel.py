"""One function over many items on all cores, results in the items' order.

The only place that starts worker processes for text. What a function returns must not depend on
which process ran it, so any number of workers gives the same result; the same functions can run
over shards on a cluster. Not for training.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from typing import TypeVar

from sifirdan.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items a worker that are handed out before the first result is taken: bounds memory


class Workers:
    """Processes that work on items, one a core where `num_workers` is None. They are started when
    they are first needed, and end with the `with` block. One worker is this process itself."""

    def __init__(self, num_workers: int | None) -> None:
        self._num_workers = num_workers or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """function(item) for each item, in their order; `function` is a module's own."""
        remaining = iter(items)
        first = list(islice(remaining, 2))
        if self._num_workers == 1 or len(first) < 2:
            yield from map(function, chain(first, remaining))
            return
        if self._pool is None:
            # Forked children of a process with threads may hang; `spawn` works everywhere alike.
            self._pool = ProcessPoolExecutor(
                self._num_workers, get_context("spawn"), initializer=_end_with_parent
            )
        waiting: deque[Future[Result]] = deque()
        try:
            for item in chain(first, remaining):
                waiting.append(self._pool.submit(function, item))
                if len(waiting) >= _AHEAD * self._num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise DataError(
                "a worker process was ended from outside, most often because memory ran out",
                expected=f"memory for {self._num_workers} workers and the largest document in each",
                todo="give runtime.corpus_workers a smaller number, then run the command again",
            ) from None
        finally:
            for future in waiting:
                future.cancel()


IN_PROCESS = Workers(1)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
