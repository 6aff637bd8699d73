"""How much memory is free, by the machine, its container and the process's own limit."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sifirdan import memory


def test_the_machine_has_some_and_not_more_than_it_says() -> None:
    assert 0 < memory.free_memory() <= psutil.virtual_memory().total


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_the_limit_of_the_process_counts() -> None:
    script = (
        "import resource, psutil; from sifirdan.memory import free_memory;"
        "limit = psutil.Process().memory_info().vms + 50_000_000;"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit)); print(free_memory())"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root
    )
    assert 0 <= int(done.stdout) <= 50_000_000


def test_a_container_leaves_what_its_limit_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    machine = memory.free_memory()
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 2000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory() > machine // 2
    (tmp_path / "memory.max").write_text("8000\n")
    assert memory.free_memory() == 8000 - 5000 + 2000
