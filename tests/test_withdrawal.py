"""A source to be withdrawn: every folder that it touched is found, and no other is blamed."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import tiny
import tiny_corpus
from tiny_corpus import STORY

from sifirdan import runs
from sifirdan.corpus import shards
from sifirdan.corpus.withdrawal import withdraw, withdraw_lines
from sifirdan.errors import DataError


def make_folder(folder: Path, kind: str, **inputs: runs.Manifest) -> runs.Manifest:
    with runs.new_folder(folder, kind=kind, inputs=inputs, params={}) as output:
        runs.write_text(output.path / "icerik.txt", folder.name)
    return runs.read_manifest(folder)


def make_chat(folder: Path, sources: list[str], **inputs: runs.Manifest) -> runs.Manifest:
    with runs.new_folder(folder, kind="chat", inputs=inputs, params={}) as output:
        (output.path / "train").mkdir()
        rows = [shards.Row([1, 2], f"qa-{n}", s, 9, [0, 1]) for n, s in enumerate(sources)]
        shards.write(output.path / "train/part-00000.arrow", rows, vocab_size=9, loss_mask=True)
    return runs.read_manifest(folder)


def make_project(root: Path) -> Path:
    """The folders of a whole run, chained by their hashes as the stages chain them."""
    tiny_corpus.make_data(root)
    raw = runs.read_manifest(root / "data/raw")
    corpus = runs.read_manifest(root / "data/corpus")
    tokenizer = make_folder(root / "models/tokenizer", "tokenizer", corpus=corpus)
    tokens = tiny_corpus.make_tokens(
        root / "data/tokens", root / "data/corpus", {"corpus": corpus, "tokenizer": tokenizer}
    )
    base = make_folder(root / "models/base", "model", tokens=tokens, tokenizer=tokenizer)
    make_folder(root / "reports/train", "curve", tokens=tokens, tokenizer=tokenizer)
    scored = make_folder(
        root / "reports/evaluate/base", "evaluation", model=base, corpus=corpus, tokens=tokens
    )
    inputs = {"raw": raw, "corpus": corpus, "tokenizer": tokenizer}
    chat = make_chat(root / "data/chat", ["sohbet", "haber", "sohbet"], **inputs)
    tuned = make_folder(root / "models/chat", "model", base=base, chat=chat)
    asked = make_folder(root / "reports/evaluate/chat", "evaluation", model=tuned, chat=chat)
    make_folder(root / "reports/index", "index", evaluate_base=scored, evaluate_chat=asked)
    (root / "params.yaml").write_text(
        "ingest:\n  sources: {haber: {}, sinav: {}, sohbet: {}}\n", encoding="utf-8"
    )
    return root


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("proje"))


def hows(found: dict) -> dict[str, str]:
    return {entry["place"]: entry["how"] for entry in found["touched"]}


def test_a_source_that_was_trained_on_touches_everything(project: Path) -> None:
    found = withdraw(project, "haber")
    learned = ("models/tokenizer", "models/base", "models/chat")
    holding = ("data/raw", "data/corpus", "data/tokens", "data/chat")
    reports = ("reports/train", "reports/evaluate/base", "reports/evaluate/chat", "reports/index")
    assert hows(found) == (
        dict.fromkeys(holding, "holds") | dict.fromkeys(learned, "learned")
        | dict.fromkeys(reports, "reports")
    )  # fmt: skip
    documents = {entry["place"]: entry["documents"] for entry in found["touched"]}
    assert documents["data/raw"] == {"all": 5} and documents["data/chat"] == {"train": 1}
    assert documents["data/corpus"] == documents["data/tokens"] == {"train": 1, "val": 1, "test": 1}


def test_a_source_for_chat_touches_only_what_comes_of_chat(project: Path) -> None:
    found = hows(withdraw(project, "sohbet"))
    assert {place for place, how in found.items() if how == "holds"} == {"data/raw", "data/chat"}
    assert {place for place, how in found.items() if how == "learned"} == {"models/chat"}
    assert found["models/base"] == found["data/tokens"] == found["reports/train"] == "beside"
    assert found["reports/evaluate/chat"] == found["reports/index"] == "reports"
    assert found["reports/evaluate/base"] == "beside"


def test_a_source_for_tests_taught_nothing(project: Path) -> None:
    found = hows(withdraw(project, "sinav"))
    assert found["data/tokens"] == "holds" and found["reports/evaluate/base"] == "reports"
    assert found["models/base"] == found["models/chat"] == found["models/tokenizer"] == "beside"


def test_what_a_withdrawn_source_leaves_is_what_it_never_touched(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    (tmp_path / "eski").mkdir()
    shutil.copytree(root / "models/base", root / "eski/model")  # a copy is found too
    assert hows(withdraw(root, "haber"))["eski/model"] == "learned"
    story = [told for told in STORY if told.source != "haber"]
    tiny_corpus.make_data(root, story)
    found = withdraw(root, "haber")
    assert {"data/raw", "data/corpus", "data/tokens"} <= set(found["untouched"])
    assert hows(found)["models/base"] == "unknown"  # its tokens are gone: nobody can tell
    assert "cannot be told" in "\n".join(withdraw_lines(found))


def cache_of_dvc(root: Path, folder: Path) -> None:
    """Put a folder into DVC's cache as DVC does: each file by its MD5, the list as a .dir file."""
    cache = root / ".dvc/cache/files/md5"

    def put(content: bytes, ending: str = "") -> str:
        md5 = hashlib.md5(content).hexdigest()
        (cache / md5[:2]).mkdir(parents=True, exist_ok=True)
        (cache / md5[:2] / (md5[2:] + ending)).write_bytes(content)
        return md5

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = [
        {"md5": put(path.read_bytes()), "relpath": path.relative_to(folder).as_posix()}
        for path in files
    ]
    put(json.dumps(entries).encode(), ".dir")


def test_earlier_versions_in_the_cache_are_found(tmp_path: Path) -> None:
    root = make_project(tmp_path)
    for name in ("data/raw", "data/corpus", "data/tokens", "models/tokenizer", "models/base"):
        cache_of_dvc(root, root / name)
    before = withdraw(root, "haber")
    assert not any(entry["place"].startswith("DVC") for entry in before["touched"])  # the same ones
    make_project_without(root, "haber")
    found = withdraw(root, "haber")
    cached = {e["kind"]: e["how"] for e in found["touched"] if e["place"].startswith("DVC cache")}
    assert cached == {
        "raw": "holds", "corpus": "holds", "tokens": "holds", "tokenizer": "learned",
        "model": "learned",
    }  # fmt: skip
    assert all(entry["place"].startswith("DVC cache") for entry in found["touched"])
    assert any("dvc gc" in line for line in found["todo"])
    listing = next((root / ".dvc/cache/files/md5").glob("*/*.dir"))
    listing.write_text('[{"md5": 3}]', encoding="utf-8")
    with pytest.raises(DataError, match=r"(?s)\.dir: is damaged.*rm -f"):
        withdraw(root, "haber")
    listing.unlink()
    (root / "data/corpus/ledger.json").write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match=r"(?s)ledger\.json: is damaged.*dvc repro clean"):
        withdraw(root, "haber")


def make_project_without(root: Path, source: str) -> None:
    for name in ("data", "models", "reports"):
        shutil.rmtree(root / name)
    story = [told for told in STORY if told.source != source]
    tiny_corpus.make_data(root, story)


def test_what_to_do_names_the_key_and_the_commands(project: Path) -> None:
    found = withdraw(project, "haber")
    shown = "\n".join(withdraw_lines(found))
    assert "ingest.sources.haber" in shown and "dvc repro" in shown
    for place in hows(found):
        assert place in shown
    assert "ingest.own_text" in "\n".join(withdraw(project, "own")["todo"])
    json.dumps(found)


def test_an_unknown_source_names_the_nearest(project: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"one of haber, own(.|\n)*did you mean haber"):
        withdraw(project, "haberr")
    with pytest.raises(DataError, match="no source is called"):
        withdraw(tmp_path, "haber")


@pytest.mark.slow
@pytest.mark.xdist_group("pipeline")
def test_withdraw_follows_a_real_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    project = tiny.finished(tmp_path_factory).path
    found = withdraw(project, "kenet")
    assert set(hows(found)) >= set(tiny.OUTPUTS)
    assert hows(found)["models/base"] == hows(found)["models/chat"] == "learned"
    chat_only = hows(withdraw(project, "chatterbot"))
    assert chat_only["models/chat"] == "learned" and chat_only["models/base"] == "beside"
    assert hows(withdraw(project, "treebank_web"))["models/base"] == "beside"
    raw = runs.read_manifest(project / "data/raw").counts["kenet"]["documents"]
    (held,) = [entry for entry in found["touched"] if entry["place"] == "data/raw"]
    assert held["documents"] == {"all": raw}
