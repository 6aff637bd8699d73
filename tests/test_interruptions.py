"""Training through its real stages, killed, stopped, out of disk and damaged, ends as if left alone.

The short form of `python -m bench.interruptions`, which runs in a process of its own, because it forks.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL, fork and RLIMIT_FSIZE"),
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "bench.interruptions", "--short", "--tracked", "3", "--json"]
    environment = tiny.environment(tmp_path_factory.mktemp("interruptions") / "x")
    done = subprocess.run(
        command, cwd=tiny.ROOT, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def bad(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not row["good"]]


def kills(rows: list[dict[str, Any]], stage: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["stage"] == stage and row["fault"].startswith("kill ")]


def test_R_01_R_03_killed_at_25_places_training_goes_on_and_ends_the_same(
    rows: list[dict[str, Any]],
) -> None:
    once = [row for row in kills(rows, "train") if "again and again" not in row["fault"]]
    assert len(once) == 25 == len({row["fault"] for row in once}) and not bad(once)
    assert sum(row["resumed"] > 0 for row in once) >= 20
    said = " ".join(row["fault"] for row in once)
    for place in ("write", "fsync", "rename", "remove", "update", "finished folder"):
        assert place in said
    assert "after the state is read" in said and "halfway write" in said


def test_R_01_killed_again_and_again_both_stages_end_the_same(rows: list[dict[str, Any]]) -> None:
    chains = [row for row in rows if "again and again" in row["fault"]]
    assert [row["stage"] for row in chains] == ["train", "finetune"] and not bad(chains)
    assert all(row["starts"] >= 4 for row in chains)
    assert kills(rows, "finetune") and not bad(kills(rows, "finetune"))


def test_M_06_mlflow_holds_each_step_of_a_killed_run_once(rows: list[dict[str, Any]]) -> None:
    told = [row["tracked"] for row in rows if row["tracked"] != "-"]
    assert len(told) >= 3 and set(told) == {"one line"}


def test_R_03_a_full_disk_a_damaged_state_and_a_polite_stop_end_the_same(
    rows: list[dict[str, Any]],
) -> None:
    others = [row for row in rows if not row["fault"].startswith("kill ")]
    assert {row["fault"].split()[0] for row in others} >= {"stop", "full", "newest"}
    assert not bad(others)


def test_the_bench_keeps_no_folder(rows: list[dict[str, Any]]) -> None:
    assert rows and not list((Path(tiny.ROOT) / ".cache").glob("bench-*/ığdır projesi/said.log"))
