"""What the benchmarks share: a place to work in, and a process with the memory it takes.

Memory is the resident memory of the process and all its children, sampled five times a second and
added up, pages that they share and files that they map included, so it is an upper bound. Linux.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder on the disk of the project: memory must not count what lies in a RAM disk."""
    Path(".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".cache") as folder:
        yield Path(folder).resolve()


def run_measured(module: str, *arguments: str) -> dict[str, Any]:
    """What `python -m module arguments` prints last, as JSON, with its `peak_mb`."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0.0

        def sample() -> None:
            nonlocal peak
            while process.poll() is None:
                peak = max(peak, tree_mb(process.pid))
                time.sleep(0.2)

        watch = threading.Thread(target=sample)
        watch.start()
        output = process.communicate()[0]
        watch.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with {process.returncode}")
    return json.loads(output.splitlines()[-1]) | {"peak_mb": peak}


def tree_mb(root: int) -> float:
    """Resident memory of a process and everything below it, added up."""
    parents, sizes = {}, {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            fields = Path(path, "stat").read_text().rpartition(")")[2].split()
            sizes[int(path[6:])] = int(Path(path, "statm").read_text().split()[1])
            parents[int(path[6:])] = int(fields[1])
        except (OSError, IndexError):
            continue  # it ended meanwhile
    inside = {root}
    while more := {pid for pid, parent in parents.items() if parent in inside} - inside:
        inside |= more
    return sum(sizes.get(pid, 0) for pid in inside) * os.sysconf("SC_PAGE_SIZE") / 1e6
