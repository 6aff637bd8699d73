"""Outputs are whole or absent, inputs are proved undamaged, whatever fails at whatever moment."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sifirdan import runs
from sifirdan.errors import ConfigError, DataError


def build(folder: Path, text: str = "içerik", **inputs: runs.Manifest) -> runs.Manifest:
    with runs.new_folder(folder, kind="corpus", inputs=inputs, params={"a": 1}) as output:
        (output.path / "sub").mkdir()
        runs.write_text(output.path / "sub" / "a.txt", text)
        output.counts["documents"] = 3
    return runs.read_manifest(folder)


def test_a_folder_has_counts_hashes_and_inputs_and_no_times(tmp_path: Path) -> None:
    first = build(tmp_path / "one")
    second = build(tmp_path / "deeper" / "two", one=first)
    assert second.inputs == {"one": first.sha256}
    assert first.counts == {"documents": 3}
    assert list(first.files) == ["sub/a.txt"]
    assert build(tmp_path / "again").sha256 == first.sha256


@pytest.mark.parametrize(
    "kind", ["shape", "entry", "flip", "cut", "remove", "add", "manifest", "version", "kind"]
)
def test_damage_of_every_kind_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "one"
    build(folder)
    file, manifest = folder / "sub" / "a.txt", folder / runs.MANIFEST
    if kind == "flip":
        file.write_bytes(b"I" + file.read_bytes()[1:])
    elif kind == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif kind == "remove":
        file.unlink()
    elif kind == "add":
        (folder / "extra").write_text("x")
    elif kind == "manifest":
        manifest.write_bytes(manifest.read_bytes()[:-20])
    elif kind == "shape":
        manifest.write_text(
            re.sub(r'"files": \{.*\}', '"files": []', manifest.read_text(), flags=re.DOTALL)
        )
    elif kind == "entry":
        manifest.write_text(re.sub(r'"bytes": \d+', '"bytes": "many"', manifest.read_text()))
    elif kind == "version":
        manifest.write_text(
            manifest.read_text().replace('"format_version": 1', '"format_version": 9')
        )
    wanted = "tokens" if kind == "kind" else "corpus"
    with pytest.raises(DataError) as error:
        runs.open_folder(folder, wanted, made_by="clean")
    assert str(folder) in str(error.value)


def test_an_input_of_another_run_is_refused(tmp_path: Path) -> None:
    tokenizer, other = build(tmp_path / "t"), build(tmp_path / "o", "başka")
    tokens = build(tmp_path / "tokens", tokenizer=tokenizer)
    runs.require_same(tokens, "tokenizer", tokenizer, what="tokens", made_by="tokenize_corpus")
    with pytest.raises(DataError, match="another tokenizer"):
        runs.require_same(tokens, "tokenizer", other, what="tokens", made_by="tokenize_corpus")


def test_a_failure_leaves_the_old_folder_and_nothing_half_written(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    before = build(folder).sha256
    with (
        pytest.raises(ZeroDivisionError),
        runs.new_folder(folder, kind="corpus", inputs={}, params={}) as output,
    ):
        (output.path / "half.txt").write_text("yarım")
        raise ZeroDivisionError
    assert runs.read_manifest(folder).sha256 == before
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["one"]


ANOMALY = """
import os, sys
from pathlib import Path
from sifirdan import runs
target, fail_at = Path(sys.argv[1]), int(sys.argv[2])
calls = 0
def failing(original):
    def call(*arguments, **keywords):
        global calls
        calls += 1
        if calls == fail_at:
            if sys.argv[3] == "kill":
                os._exit(137)
            raise OSError(28, "No space left on device")
        return original(*arguments, **keywords)
    return call
for name in ("fsync", "rename", "replace", "open", "mkdir"):
    setattr(os, name, failing(getattr(os, name)))
try:
    with runs.new_folder(target, kind="corpus", inputs={}, params={}) as output:
        for name in ("a", "b"):
            runs.write_text(output.path / name, name * 1000)
except Exception as error:
    print(type(error).__name__)
    sys.exit(3)
sys.exit(0 if calls < fail_at else 4)  # 4: the failure was weathered
"""


@pytest.mark.parametrize("how", ["kill", "full disk"])
def test_R_03_every_failing_system_call_leaves_a_whole_folder_or_none(
    tmp_path: Path, how: str
) -> None:
    script = tmp_path / "anomaly.py"
    script.write_text(ANOMALY, encoding="utf-8")
    target = tmp_path / "out" / "corpus"
    for fail_at in range(1, 60):
        done = subprocess.run(
            [sys.executable, str(script), str(target), str(fail_at), how],
            capture_output=True, text=True, cwd=runs.project_root(Path(__file__).parent.parent),
        )  # fmt: skip
        if (target / runs.MANIFEST).exists():
            runs.open_folder(target, "corpus", made_by="clean")
        else:
            assert not target.exists(), "a folder without its manifest"
        if done.returncode == 0:
            break
        if how == "full disk" and done.returncode != 4:
            assert done.returncode == 3 and done.stdout.split()[-1] in ("DataError", "OSError")
    else:
        pytest.fail("the stage never succeeded")
    assert fail_at > 5
    runs.open_folder(target, "corpus", made_by="clean")


def test_two_writers_never_share_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LOCK_WAIT_SECONDS", 0.2)
    path = tmp_path / ".x.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import filelock, time; lock = filelock.FileLock({str(path)!r}); lock.acquire(); print(1, flush=True); time.sleep(30)"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout and holder.stdout.readline()
        with (
            pytest.raises(ConfigError, match="another process"),
            runs.lock(path, doing="writing x"),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
    with runs.lock(path, doing="writing x"):  # the lock fell with the killed process
        pass


def test_json_is_whole_utf8_and_refuses_nan(tmp_path: Path) -> None:
    path = tmp_path / "m" / "a.json"
    runs.write_json(path, {"ad": "ığdır"})
    assert (
        json.loads(path.read_text(encoding="utf-8")) == {"ad": "ığdır"}
        and b"\r" not in path.read_bytes()
    )
    with pytest.raises(ValueError):
        runs.write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ad": "ığdır"}


def test_project_root_from_an_experiments_copy(tmp_path: Path) -> None:
    copy = tmp_path / ".dvc" / "tmp" / "exps" / "tmpabc"
    copy.mkdir(parents=True)
    assert runs.project_root(copy) == tmp_path.resolve()
    assert runs.project_root(tmp_path) == tmp_path.resolve()
    assert os.path.isabs(runs.project_root())
