"""Objects of DVC's cache hashed again: a small cache made by hand, as DVC writes it."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from sifirdan import dvc_cache
from sifirdan.cli import main
from sifirdan.errors import DataError


def put(cache: Path, content: bytes, ending: str = "") -> str:
    """Store an object; returns its name."""
    name = hashlib.md5(content).hexdigest() + ending
    path = dvc_cache.object_path(cache, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o444)
    return name


def put_folder(cache: Path, files: dict[str, bytes]) -> str:
    rows = [{"md5": put(cache, content), "relpath": name} for name, content in files.items()]
    return put(cache, json.dumps(rows).encode(), ".dir")


def write_lock(project: Path, stages: dict[str, dict[str, str]]) -> None:
    """A dvc.lock from stage to output to object."""
    entries = {
        stage: {"cmd": "x", "outs": [{"path": p, "hash": "md5", "md5": o} for p, o in outs.items()]}
        for stage, outs in stages.items()
    }
    content = yaml.safe_dump({"schema": "2.0", "stages": entries}, sort_keys=False)
    (project / "dvc.lock").write_text(content, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two stages, whose folders share a file, a metrics file that Git keeps, and an own text."""
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / ".dvc/cache"
    base = put_folder(cache, {"ağırlık.bin": b"0" * 1000, "sözlük": b"ortak"})
    chat = put_folder(cache, {"sözlük": b"ortak"})
    gone = hashlib.md5(b"{}").hexdigest()
    write_lock(
        tmp_path,
        {"train": {"models/base": base, "metrics/train.json": gone}, "finetune": {"models/chat": chat}},
    )  # fmt: skip
    metrics = {"train": {"metrics": [{"metrics/train.json": {"cache": False}}]}}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": metrics}), encoding="utf-8")
    own = {"outs": [{"md5": put(cache, b"kitap"), "hash": "md5", "path": "kitap.txt"}]}
    (tmp_path / "data/own").mkdir(parents=True)
    (tmp_path / "data/own/kitap.txt.dvc").write_text(yaml.safe_dump(own), encoding="utf-8")
    return tmp_path


def object_of(project: Path, content: bytes) -> Path:
    return dvc_cache.object_path(project / ".dvc/cache", hashlib.md5(content).hexdigest())


def spoil(path: Path) -> None:
    """Flip a bit; in a folder's list, of the first object's name, so that it can still be read."""
    content = bytearray(path.read_bytes())
    content[10 if path.suffix == ".dir" else len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)


def test_a_whole_cache_is_called_whole(project: Path) -> None:
    found = dvc_cache.check_cache(project)
    assert found.problems == [] and found.num_objects == 5  # two folders, three files


def test_D_02_a_flipped_byte_in_a_read_only_object_is_named_with_its_users(project: Path) -> None:
    spoil(object_of(project, b"ortak"))
    (problem,) = dvc_cache.check_cache(project).problems
    said, todo = problem.split("\n")
    assert said.startswith(".dvc/cache/files/md5/") and "is damaged" in said
    assert said.endswith("used by models/base/sözlük, models/chat/sözlük")
    assert "dvc pull models/base" in todo and "dvc commit -f train" in todo


def test_D_02_a_missing_object_and_a_damaged_list_are_named(project: Path) -> None:
    object_of(project, b"kitap").unlink()
    lock = dvc_cache.workspace_outs(project)
    spoil(dvc_cache.object_path(project / ".dvc/cache", lock[0].object))
    problems = dvc_cache.check_cache(project).problems
    assert len(problems) == 2
    (own,) = [line for line in problems if "kitap" in line]
    assert "is missing; used by data/own/kitap.txt" in own and "dvc add data/own/kitap.txt" in own
    (folder,) = [line for line in problems if line is not own]
    assert "is damaged" in folder and "used by models/base\n" in folder


def test_the_command_fails_on_damage_and_says_what_it_lacks(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["sifirdan", "verify", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err  # type: ignore[return-value]

    assert verify("--cache") == (0, "DVC's cache: whole (5 objects of the present state, 0.0 MB)\n")
    spoil(object_of(project, b"kitap"))
    code, said = verify("--cache")
    assert code == 1 and "data/own/kitap.txt" in said
    code, said = verify()
    assert code == 1 and "nothing to verify" in said


def test_the_cache_of_the_settings_is_used(project: Path, tmp_path: Path) -> None:
    (tmp_path / ".dvc/cache").rename(tmp_path / "önbellek")
    settings = "[core]\n    remote = s\n['remote \"s\"']\n    url = s3://x/%y\n[cache]\n    dir = ../önbellek\n"
    (tmp_path / ".dvc/config").write_text(settings, encoding="utf-8")
    assert dvc_cache.cache_folder(project) == (tmp_path / "önbellek").resolve()
    assert dvc_cache.check_cache(project).problems == []


def test_a_project_that_never_ran_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names no output"):
        dvc_cache.check_cache(tmp_path)
    (tmp_path / "dvc.lock").write_text("stages: [", encoding="utf-8")
    with pytest.raises(DataError, match="names no output"):
        dvc_cache.check_cache(tmp_path)
