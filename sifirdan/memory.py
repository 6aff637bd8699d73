"""How much memory a process may still take: asked before work that needs a lot, since the system
ends a process that takes too much without a word."""

import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that this process may still take: of the machine, its container and its own limit the
    smallest."""
    import psutil

    limits = [psutil.virtual_memory().available]
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            limits.append(limit - psutil.Process().memory_info().vms)
    limits += _container(_CGROUP)
    return max(0, min(limits))


def _container(folder: Path) -> list[int]:
    """What a container's limit (cgroup v2) leaves, or nothing where there is none."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        cached = (folder / "memory.stat").read_text()
    except (OSError, ValueError):
        return []
    if limit == "max":
        return []
    given_back = next(
        (int(line.split()[1]) for line in cached.splitlines() if line.startswith("inactive_file ")),
        0,
    )
    return [int(limit) - used + given_back]
