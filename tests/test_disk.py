"""What `sifirdan disk` counts, on a small project with a real Git history; DVC's own sums are compared
with ours in test_experiments.py."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from test_dvc_cache import put, put_folder, write_lock

from sifirdan import disk
from sifirdan.cli import main
from sifirdan.errors import ConfigError

EXPERIMENT = "refs/exps/aa/" + "b" * 38 + "/deneme"


def git(project: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Deneme", "-c", "user.email=deneme@example.org"]
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five versions of one output: of a commit, of an experiment, of the run cache, of nobody, and
    the present one, which is a hard link to its object."""
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / ".dvc/cache"
    objects = {
        owner: put_folder(cache, {"model": os.urandom(20_000 * (place + 1))})
        for place, owner in enumerate(("commit", "experiment", "run cache", "nothing", "present"))
    }
    (tmp_path / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")

    def commit(name: str) -> None:
        write_lock(tmp_path, {"train": {"models/base": objects[name]}})
        git(tmp_path, "add", "dvc.lock", "dvc.yaml")
        git(tmp_path, "commit", "--quiet", "--message", name)

    commit("commit")
    commit("experiment")
    git(tmp_path, "update-ref", EXPERIMENT, "HEAD")
    git(tmp_path, "reset", "--quiet", "--hard", "HEAD~1")
    note = tmp_path / ".dvc/cache/runs/aa/bb/cc"
    note.parent.mkdir(parents=True)
    note.write_text(f"outs:\n- path: models/base\n  md5: {objects['run cache']}\n", "utf-8")
    write_lock(tmp_path, {"train": {"models/base": objects["present"]}})
    (present,) = disk.dvc_cache.members(cache, objects["present"]).values()
    (tmp_path / "models/base").mkdir(parents=True)
    os.link(disk.dvc_cache.object_path(cache, present), tmp_path / "models/base/model")
    for name in (
        "models/.resume/train/step-1/w",
        "data/.cache/p.whl",
        "mlflow.db",
        ".track/a.jsonl",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 5000)
    return tmp_path


def part(found: dict, place: str) -> dict:
    (one,) = [part for part in found["parts"] if part["place"] == place]
    return one


def test_each_object_has_the_owner_that_keeps_it_alive(project: Path) -> None:
    shares = part(disk.disk(project), ".dvc/cache/files")["shares"]
    names = ["the present state", "commits", "experiments", "the run cache", "nothing"]
    assert [share["owner"] for share in shares] == names
    assert [share["num_objects"] for share in shares] == [2] * 5  # a folder's list and its file
    sizes = [share["num_bytes"] for share in shares]
    assert [round(size / 20_000) for size in sizes] == [5, 1, 2, 3, 4]


def test_a_hard_link_counts_once_and_other_parts_are_found(project: Path) -> None:
    found = disk.disk(project)
    assert part(found, "data models reports")["num_bytes"] == 0
    for place in ("models/.resume", "data/.cache", "mlflow.db*", ".track"):
        assert part(found, place)["num_bytes"] == 8192 or os.name == "nt", place
    cache = part(found, ".dvc/cache/files")["num_bytes"]
    assert found["num_bytes"] == sum(p["num_bytes"] for p in found["parts"]) > cache > 300_000
    (project / "models/base/model").unlink()
    (project / "models/base/model").write_bytes(b"x" * 100_000)  # a copy
    assert part(disk.disk(project), "data models reports")["num_bytes"] >= 100_000


def test_the_command_names_ways_to_free_and_deletes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["sifirdan", "disk", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    before = sorted(path for path in project.rglob("*") if ".git" not in path.parts)
    text = said()
    for words in ("kept by experiments", "to free: rm -r models/.resume", "dvc gc --workspace"):
        assert words in text
    assert json.loads(said("--json"))["num_bytes"] == disk.disk(project)["num_bytes"]
    assert sorted(path for path in project.rglob("*") if ".git" not in path.parts) == before


def test_without_git_and_without_a_run_there_is_still_an_answer(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    assert disk.disk(tmp_path)["parts"] == []
    put(tmp_path / ".dvc/cache", b"x")
    (share,) = part(disk.disk(tmp_path), ".dvc/cache/files")["shares"]
    assert share["owner"] == "nothing"
    text = "\n".join(disk.disk_lines(disk.disk(tmp_path)))
    assert "1 objects" in text and "Nothing was deleted" in text
    with pytest.raises(ConfigError, match="no dvc.yaml"):
        disk.disk(tmp_path / ".dvc")


def test_a_cache_outside_the_project_is_called_so(project: Path) -> None:
    (project / ".dvc/config").write_text("[cache]\n    dir = ../../ortak\n", encoding="utf-8")
    found = disk.disk(project)
    assert found["outside"] and "deletes theirs" in "\n".join(disk.disk_lines(found))


def test_a_commit_whose_data_never_were_here_does_not_stop_gc(project: Path) -> None:
    def commands() -> list[str]:
        return [command for command, _ in part(disk.disk(project), ".dvc/cache/files")["free"]]

    assert not any("--skip-failed" in command for command in commands())
    write_lock(project, {"train": {"models/base": "0" * 32 + ".dir"}})
    git(project, "commit", "--quiet", "--all", "--message", "from a colleague")
    assert [("--skip-failed" in command) for command in commands()] == [True, True, False]
