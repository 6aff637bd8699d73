"""What the benchmarks share: a place to work in, a process with the memory it takes, and whether
anything else is busy on the machine.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUSY_SHARE = 0.1  # of a core: a process that takes more is a neighbour
UNSEEN_SHARE = 0.25  # of a core: the kernel's own work stays below it


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
    processes = _processes()
    inside = _tree(root, processes)
    pages = sum(processes[pid].pages for pid in inside if pid in processes)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def neighbours(seconds: float = 1.0, root: int | None = None) -> list[str]:
    """What else is busy: the other processes that took more than a tenth of a core in `seconds`, the
    busiest first, as "name 95 %". Left out are `root` (this process) and everything below it. What a
    container or a hypervisor hides stands at the end as "unseen". Linux; elsewhere always empty."""
    ticks = os.sysconf("SC_CLK_TCK") * seconds
    before, machine_before = _processes(), _busy_ticks()
    time.sleep(seconds)
    after, machine = _processes(), _busy_ticks()
    shares = {
        pid: (found.ticks - before[pid].ticks) / ticks
        for pid, found in after.items()
        if pid in before
    }
    unseen = (machine - machine_before) / ticks - sum(shares.values())
    ours = _tree(root or os.getpid(), after)
    busy = sorted(((share, pid) for pid, share in shares.items() if pid not in ours), reverse=True)
    found = [f"{after[pid].name} {share:.0%}" for share, pid in busy if share > BUSY_SHARE]
    return found + ([f"unseen {unseen:.0%}"] if unseen > UNSEEN_SHARE else [])


def say_whether_alone(when: str) -> list[str]:
    """One line: whether anything else is busy, and the machine's load. Returns what is."""
    found = neighbours()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    alone = "alone on the machine" if not found else f"NOT ALONE: {', '.join(found)}"
    print(f"{when}: {alone}; {os.cpu_count()} cores, load {load}", flush=True)
    if found:
        print(
            "  the figures say little: a busy neighbour costs far more than its share", flush=True
        )
    return found


@dataclass(frozen=True)
class _Process:
    name: str
    parent: int
    ticks: int  # of processor time so far
    pages: int  # resident


def _processes() -> dict[int, _Process]:
    """Every process by its number."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            name, _, rest = Path(path, "stat").read_text().rpartition(")")
            fields = rest.split()
            pages = int(Path(path, "statm").read_text().split()[1])
            ticks = int(fields[11]) + int(fields[12])
            found[int(path[6:])] = _Process(name.partition("(")[2], int(fields[1]), ticks, pages)
        except (OSError, IndexError):
            continue  # it ended meanwhile
    return found


def _tree(root: int, processes: dict[int, _Process]) -> set[int]:
    """The numbers of a process and everything below it."""
    inside = {root}
    while more := {pid for pid, one in processes.items() if one.parent in inside} - inside:
        inside |= more
    return inside


def _busy_ticks() -> int:
    """Processor time of the whole machine that was not idle, time stolen by a hypervisor included."""
    try:
        user, nice, system, _, _, irq, softirq, steal = (
            Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        )
    except (OSError, ValueError):
        return 0
    return sum(map(int, (user, nice, system, irq, softirq, steal)))
