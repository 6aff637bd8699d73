"""The command line as a person uses it, on a tiny model folder."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import tiny_corpus
from conftest import tiny_model

from sifirdan import cli, runs
from sifirdan.corpus.records import read_texts
from sifirdan.errors import ConfigError, DataError
from sifirdan.evals.multiple_choice import TASKS
from sifirdan.tokenizer import Tokenizer
from sifirdan.training.session import save_trained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    root = tmp_path_factory.mktemp("cli")
    for name in ("base", "chat"):
        with runs.new_folder(root / "models" / name, kind="model", inputs={}, params={}) as output:
            save_trained(output.path, tiny_model(tokenizer.vocab_size, 64), tokenizer)
    return root


def sifirdan(folder: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "sifirdan.cli", *arguments], cwd=folder, input=said, capture_output=True,
        text=True, encoding="utf-8", env={"PYTHONPATH": str(Path(__file__).parent.parent), "PATH": "/usr/bin:/bin", "PYTHONUTF8": "1"},
    )  # fmt: skip


def test_chat_talks_forgets_and_ends(folder: Path) -> None:
    said = "Merhaba\n" * 6 + "/sil\nNasılsın?\n" + "çok " * 200 + "\n\n"
    done, again = (sifirdan(folder, "chat", "--max-new-tokens", "8", said=said) for _ in range(2))
    assert done.returncode == 0, done.stderr
    for shown in ("(konuşma silindi)", "çok uzun", "too long", "unutuldu"):
        assert shown in done.stdout
    assert again.stdout == done.stdout


def test_generate_continues_the_prompt(folder: Path) -> None:
    done = sifirdan(folder, "generate", "Bir gün", "--max-new-tokens", "10", "--seed", "3")
    assert done.returncode == 0 and done.stdout.startswith("Bir gün") and len(done.stdout) > 9
    assert (
        done.stdout
        == sifirdan(folder, "generate", "Bir gün", "--max-new-tokens", "10", "--seed", "3").stdout
    )


def test_tokens_shows_the_pieces_of_a_text(folder: Path, tokenizer: Tokenizer) -> None:
    text = "Bir gün\n🙂"
    done = sifirdan(folder, "tokens", text, "--model", "base")
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.strip().split("\n")
    ids = tokenizer.encode(text)
    assert [int(line.split()[0]) for line in lines] == ids
    shown = "".join(line.split()[1] for line in lines)
    assert shown == "Bir␣gün⏎<0xF0><0x9F><0x99><0x82>"
    assert last.startswith(f"{len(ids)} tokens, {len(text.encode())} bytes")
    assert sifirdan(folder, "tokens", "--model", "chat", said=text).stdout == done.stdout
    words = sifirdan(folder, "tokens", "bir", "gün", "--model", "base")
    assert words.stdout == sifirdan(folder, "tokens", "bir gün", "--model", "base").stdout
    old = subprocess.run(
        [sys.executable, "-m", "sifirdan.cli", "tokens", "--model", "base"], cwd=folder, capture_output=True,
        input="ığdır".encode("cp1254"), env={"PYTHONPATH": str(Path(__file__).parent.parent)},
    )  # fmt: skip
    assert old.returncode == 1 and b"iconv -f windows-1254" in old.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tokens", "ev"], "models/tokenizer/tokenizer.model: there is no such file"),
        (["generate", "a " * 300], "tokens"),
        (["generate", "--temperature", "99"], "0 (greedy) to 10"),
        (["generate", "--model", "yok"], "there is no model"),
        (["generate", "--device", "cuda", "x"], "--device is cuda"),
        (["verify", "yok"], "no manifest.json"),
    ],
)
def test_mistakes_end_in_one_message_and_no_traceback(
    folder: Path, arguments: list[str], hint: str
) -> None:
    done = sifirdan(folder, *arguments)
    assert done.returncode == 1 and hint in done.stderr and "Traceback" not in done.stderr


def test_verify_names_the_damaged_file(folder: Path, tmp_path: Path) -> None:
    import shutil

    assert sifirdan(folder, "verify", "models/base", "models/chat").returncode == 0
    shutil.copytree(folder / "models" / "base", tmp_path / "base")
    file = tmp_path / "base" / "config.json"
    file.write_text(file.read_text(encoding="utf-8").replace("silu", "gelu"), encoding="utf-8")
    done = sifirdan(folder, "verify", str(tmp_path / "base"), "models/chat")
    assert (
        done.returncode == 1
        and "config.json is damaged" in done.stdout
        and "models/chat: whole" in done.stdout
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus.make_data(tmp_path_factory.mktemp("proje ığ"))


def score(root: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.chdir(root)
    parsed = cli._parser().parse_args(["score", *arguments])
    parsed.run(parsed)


def test_score_shows_models_side_by_side(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "metin.txt").write_text("Bir varmış, bir yokmuş.\n", encoding="utf-8")
    score(folder, monkeypatch, "base", "chat", "--text", "metin.txt", "--device", "cpu")
    shown = capsys.readouterr().out.split("\n")
    assert shown[0].split()[:2] == ["model", "bits/byte"]
    assert [line.split()[0] for line in shown[1:3]] == ["models/base", "models/chat"]
    assert "64/32" in shown[1] and "1 documents, 4 words" in shown[3]


def test_one_model_or_task_that_fails_takes_nothing_from_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for name, second in (("a", "ev."), ("b", "uyandı " * 40 + ".")):
        row = {"context": "Bir", "choices": ["gün.", second], "answer": 0}
        (folder / f"{name}.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (folder / "a.txt").write_text("Bir gün", encoding="utf-8")
    wanted = ("--tasks", "b.jsonl", "a.jsonl", "--device", "cpu")
    with pytest.raises(DataError) as error:
        score(folder, monkeypatch, "./yok", "base", "--window", "16", *wanted)
    shown = capsys.readouterr().out
    assert "bits/byte" not in shown and "a.jsonl" in shown and "± " not in shown
    said = str(error.value)
    assert "./yok: there is no such folder" in said and "models/base: b.jsonl: item 1, Bir" in said
    with pytest.raises(DataError, match="b.jsonl: item 1"):
        score(folder, monkeypatch, "base", "--window", "16", "--json", *wanted)
    found = json.loads(capsys.readouterr().out)
    assert found["texts"] == [] and len(found["refused"]) == 1
    assert [(entry["task"], entry["standard_error"]) for entry in found["tasks"]] == [
        ("a.jsonl", None)
    ]
    with pytest.raises(ConfigError, match="^--stride is 0\n"):  # once, not for each model
        score(folder, monkeypatch, "base", "chat", "--text", "a.txt", "--stride", "0")


def test_pairs_are_written_into_a_folder_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "dosya").write_text("a", encoding="utf-8")
    for place in (folder / "dosya", folder / "dosya" / "x"):
        parsed = cli._parser().parse_args(["pairs", str(place)])
        with pytest.raises(ConfigError, match="cannot be written there"):
            parsed.run(parsed)


def test_score_tells_machines_the_tasks_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "metin.jsonl").write_text('{"text": "Bir gün"}\n', encoding="utf-8")
    options = ("--window", "32", "--stride", "8", "--tasks", "--json", "--device", "cpu")
    score(folder, monkeypatch, "base", "--text", "metin.jsonl", *options)
    found = json.loads(capsys.readouterr().out)
    (row,) = found["texts"]
    assert (row["window"], row["stride"], row["bytes"], row["warnings"]) == (32, 8, 8, [])
    assert [entry["task"] for entry in found["tasks"]] == list(TASKS)
    assert all(entry["chance"] == 0.25 and entry["items"] >= 60 for entry in found["tasks"])


def test_score_reads_the_splits_of_the_corpus(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(folder / "models/base")
    score(data, monkeypatch, base, "--split", "ood", "--json", "--device", "cpu")
    (row,) = json.loads(capsys.readouterr().out)["texts"]
    texts = [text for _, _, text in read_texts(data / "data/corpus/ood")]
    assert row["bytes"] == sum(len(text.encode()) for text in texts) and texts


def test_score_refuses_test_and_models_that_are_not_there(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="scored once, by the stage evaluate"):
        score(data, monkeypatch, str(folder / "models/base"), "--split", "test")
    with pytest.raises(DataError, match="there is no model"):
        score(data, monkeypatch, "base", "--split", "ood")
    with pytest.raises(DataError, match="dvc repro clean"):
        score(folder, monkeypatch, "base")


@pytest.mark.slow
def test_score_without_a_network_says_what_to_do(data: Path) -> None:
    command = [sys.executable, "-m", "sifirdan.cli", "score", "kimse/yok", "--split", "ood"]
    env = {
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(command, cwd=data, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "hf download kimse/yok" in done.stderr
    assert "Traceback" not in done.stderr


def test_verify_proves_the_law_of_a_corpus(data: Path, tmp_path: Path) -> None:
    done = sifirdan(data, "verify", "data/corpus", "data/raw")
    assert done.returncode == 0
    assert "haber: 5 in = 3 out + 1 rejected + 1 duplicates" in done.stdout
    raw = tiny_corpus.make_raw(tmp_path / "raw")
    broken = [*tiny_corpus.STORY[1:], tiny_corpus.STORY[0]]  # another order, so other ids
    tiny_corpus.make_corpus(tmp_path / "corpus", raw, broken)
    done = sifirdan(tmp_path, "verify", "corpus")
    assert done.returncode == 1 and "with other ids" in done.stdout


def test_verify_goes_on_behind_a_folder_without_a_manifest(data: Path, tmp_path: Path) -> None:
    done = sifirdan(data, "verify", "yok", "data/raw")
    assert done.returncode == 1
    assert "yok: there is no manifest.json" in done.stderr and "data/raw: whole" in done.stdout


def test_verify_says_when_the_corpus_is_older_than_its_raw_text(tmp_path: Path) -> None:
    tiny_corpus.make_data(tmp_path)
    shutil.rmtree(tmp_path / "data/raw")
    tiny_corpus.make_raw(tmp_path / "data/raw", tiny_corpus.STORY[1:])
    done = sifirdan(tmp_path, "verify", "data/corpus")
    assert done.returncode == 0 and "out of date: raw beside it" in done.stdout


def test_a_reader_that_stops_reading_ends_the_command_quietly(data: Path) -> None:
    command = f"{sys.executable} -m sifirdan.cli ledger | true"
    env = {"PYTHONPATH": str(Path(__file__).parent.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=data, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == "" and done.returncode in (0, 141)


@pytest.mark.slow
def test_the_ledger_answers_for_people_and_for_machines(data: Path) -> None:
    row = tiny_corpus.ledger_rows()[13]
    shard = "data/tokens/train/part-00000.arrow:1"
    for question, shown in (
        ([], "out of own: "),
        (["--why", row.id], "is out: duplicate"),
        (["--why", "own.txt#13"], "is out: duplicate"),
        (["--why", row.id[:8], "own.txt#12"], "it has too few characters"),
        (["--row", shard], "own.txt#1"),
        (["--withdraw", "haber"], "3 hold its text"),
    ):
        done = sifirdan(data, "ledger", *question)
        assert done.returncode == 0 and shown in done.stdout, done.stderr
    for question, key in (
        ([], "sources"),
        (["--row", shard], "license"),
        (["--withdraw", "haber"], "touched"),
    ):
        machine = sifirdan(data, "ledger", *question, "--json")
        assert json.loads(machine.stdout)[key], machine.stderr
    machine = sifirdan(data, "ledger", "--why", row.id, "own.txt#0", "--json")
    out, stayed = json.loads(machine.stdout)
    assert out["kept"]["id"] == stayed["id"] == tiny_corpus.ledger_rows()[0].id


@pytest.mark.parametrize(
    ("question", "hint"),
    [
        (["--why", "f" * 32], "no document of this corpus"),
        (["--why", "own.txt"], "give the whole id"),
        (["--row", "data/tokens/train/part-00000.arrow:1000000"], "a row from 0 to"),
        (["--row", "data/tokens/train/part-9.arrow:0"], "did you mean"),
        (["--withdraw", "haberr"], "did you mean haber"),
    ],
)
def test_a_question_that_has_no_answer_is_explained(
    data: Path, question: list[str], hint: str
) -> None:
    done = sifirdan(data, "ledger", *question)
    assert done.returncode == 1 and hint in done.stderr and "Traceback" not in done.stderr


def test_the_ledger_without_a_corpus_says_what_to_run(folder: Path) -> None:
    done = sifirdan(folder, "ledger")
    assert done.returncode == 1 and "dvc repro clean" in done.stderr


def test_help_lists_every_command(folder: Path) -> None:
    shown = sifirdan(folder, "--help").stdout
    for command in ("chat", "generate", "score", "verify", "ledger", "doctor", "ui", "replay"):
        assert command in shown


def test_a_taken_port_is_named_with_the_next_one(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = sifirdan(folder, "ui", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1 and "is taken" in done.stderr and "make ui PORT=" in done.stderr


def test_a_port_that_cannot_be_is_refused(folder: Path) -> None:
    done = sifirdan(folder, "ui", "--port", "99999")
    assert done.returncode == 1 and "1 to 65535" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_broken_store_is_named_before_the_page_is(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    done = sifirdan(tmp_path, "ui", "--port", "5999")
    assert done.returncode == 1 and "cannot be read" in done.stderr
    assert "Open http" not in done.stdout and "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_page_opens_and_ends_with_its_workers(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "sifirdan.cli", "ui", "--port", str(port)], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
                    assert page.status == 200
                break
            except OSError:
                time.sleep(0.5)
        else:
            process.kill()
            pytest.fail(f"the page did not open: {process.communicate()[0]}")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and "The page is closed." in output
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))  # no worker holds it any more
