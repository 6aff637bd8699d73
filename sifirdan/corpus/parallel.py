"""One function over many items on all cores, results in the items' order.

The only place that starts worker processes for text. What a function returns must not depend on
which process ran it, so any number of workers gives the same result; the same functions can run
over shards on a cluster. Not for training.
"""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from sifirdan.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items a worker that are handed out before the first result is taken: bounds memory


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, num_workers: int | None
) -> Iterator[Result]:
    """function(item) for each item. `num_workers` processes work, one a core where it is None; with
    one, or one item only, everything happens in this process. `function` is a module's own."""
    num_workers = num_workers or os.cpu_count() or 1
    remaining = iter(items)
    first = list(islice(remaining, 2))
    if num_workers == 1 or len(first) < 2:
        yield from map(function, chain(first, remaining))
        return
    # Forked children of a process with threads may hang; `spawn` works everywhere alike.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_workers, context, initializer=_end_with_parent) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in chain(first, remaining):
                waiting.append(pool.submit(function, item))
                if len(waiting) >= _AHEAD * num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise DataError(
                "a worker process was ended from outside, most often because memory ran out",
                expected=f"memory for {num_workers} workers and the largest document in each",
                todo="give runtime.corpus_workers a smaller number, then run the command again",
            ) from None
        finally:
            for future in waiting:
                future.cancel()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
