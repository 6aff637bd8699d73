"""The folders of the user's own files: what is found there, and what an experiment's copy lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sifirdan.corpus import own_text
from sifirdan.errors import ConfigError


def test_files_are_found_in_name_order(tmp_path: Path) -> None:
    kept = ("b.txt", "a/z.md", "c.JSONL", "d.pdf", ".gizli.txt")
    for name in (*kept, ".gitkeep", "a/.gitignore", "a/e.txt.dvc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    found = [own_text.name_inside(path, tmp_path) for path in own_text.list_files(tmp_path)]
    assert found == sorted(kept)


def test_links_and_pipes_are_found_and_links_to_folders_not_entered(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own / "a", other):
        folder.mkdir(parents=True)
    (other / "b.txt").write_text("b")
    (own / "a/kırık.txt").symlink_to(tmp_path / "yok.txt")
    (own / "a/dosya.txt").symlink_to(other / "b.txt")
    (own / "klasör").symlink_to(other)
    (own / "a/daire").symlink_to(own)
    (own / "kendi").symlink_to(own / "kendi")
    os.mkfifo(own / "boru.txt")
    found = [own_text.name_inside(path, own) for path in own_text.list_files(own)]
    assert found == ["a/daire", "a/dosya.txt", "a/kırık.txt", "boru.txt", "kendi", "klasör"]
    copy = tmp_path / "copy"
    with pytest.raises(ConfigError, match=r"a/dosya.txt: not in this .*copy"):
        own_text.refuse_missing_in_copy("own", copy=copy, root=tmp_path)


def test_a_folder_that_cannot_be_listed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a/kapalı").mkdir(parents=True)
    (tmp_path / "b.txt").write_text("b")
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("kapalı"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = [own_text.name_inside(path, tmp_path) for path in own_text.list_files(tmp_path)]
    assert found == ["a/kapalı", "b.txt"]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"yok: there is no such folder"):
        own_text.list_files(tmp_path / "yok")


def test_I_06_names_are_the_same_under_every_locale(tmp_path: Path) -> None:
    (tmp_path / "ığdır.txt").write_bytes(b"x")
    with open(os.fsencode(tmp_path) + b"/eski \xf0.txt", "wb") as file:  # no UTF-8 at all
        file.write(b"x")
    script = (
        "import sys; from pathlib import Path; from sifirdan.corpus import own_text;"
        "folder = Path(sys.argv[1]);"
        "print(ascii([own_text.name_inside(p, folder) for p in own_text.list_files(folder)]))"
    )
    for settings in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env=os.environ | settings, capture_output=True, encoding="utf-8", check=True,
        )  # fmt: skip
        assert done.stdout == ascii(["eski \ufffd.txt", "ığdır.txt"]) + "\n"


def test_own_text_that_an_experiment_lacks_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / ".dvc/tmp/exps/tmp1"
    for root in (tmp_path, copy):
        (root / "data/own").mkdir(parents=True)
        (root / "data/own/ortak.txt").write_text("var")
    own_text.refuse_missing_in_copy("data/own", copy=copy, root=tmp_path)
    own_text.refuse_missing_in_copy("data/baska", copy=copy, root=tmp_path)
    (tmp_path / "data/own/a.txt").write_text("yok")
    (tmp_path / "data/own/b.md").write_text("yok")
    own_text.refuse_missing_in_copy("data/own", copy=tmp_path, root=tmp_path)
    own_text.refuse_missing_in_copy(str(tmp_path / "data/own"), copy=copy, root=tmp_path)
    with pytest.raises(
        ConfigError, match=r"data/own/a.txt and 1 more: not in this .*copy"
    ) as error:
        own_text.refuse_missing_in_copy("data/own", copy=copy, root=tmp_path)
    assert "dvc add data/own/a.txt" in str(error.value)
