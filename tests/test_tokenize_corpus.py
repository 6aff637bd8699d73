"""The two tokenizer stages on our own text, as functions on folders."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpora
import pytest

from sifirdan import runs
from sifirdan.corpus import records
from sifirdan.corpus.card import CARD_FILE
from sifirdan.corpus.records import Document, PartWriter, read_folder
from sifirdan.corpus.shards import SPLITS, Shards
from sifirdan.errors import ConfigError, DataError
from sifirdan.tokenizer import EOS, Tokenizer
from stages import tokenize_corpus as tokens_stage
from stages import train_tokenizer as tokenizer_stage

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    corpora.write_jsonl(folder / "own/paragraphs.jsonl", texts)
    corpora.clean(corpora.ingest(folder), folder / "corpus")
    return folder / "corpus"


PARAMS = tokenizer_stage.Params(
    method="bpe", vocab_size=700, sample_bytes=10**9, source_weights={}, seed=1
)


def make_tokenizer(corpus: Path, out: Path, vocab_size: int, sample_bytes: int = 10**9) -> Path:
    params = replace(PARAMS, vocab_size=vocab_size, sample_bytes=sample_bytes)
    metrics = tokenizer_stage.train_tokenizer(corpus, out, params)
    assert metrics["vocab_size"] == vocab_size and metrics["training"]["skipped_lines"] == 0
    return out


def tokenize(corpus: Path, tokenizer: Path, out: Path, max_shard_tokens: int = 10**9) -> Path:
    tokens_stage.tokenize_corpus(corpus, tokenizer, out, tokens_stage.Params(max_shard_tokens))
    return out


def test_S_02_the_stream_is_text_mark_text_mark(corpus: Path, tmp_path: Path) -> None:
    tokenizer_folder = make_tokenizer(corpus, tmp_path / "tokenizer", 700)
    tokens, tokenizer = (
        tokenize(corpus, tokenizer_folder, tmp_path / "tokens"),
        Tokenizer.load(tokenizer_folder),
    )
    for split in SPLITS:
        documents, shards = list(read_folder(corpus / split)), Shards(tokens / split)
        assert shards.column("document") == [document.id for document in documents]
        assert shards.column("num_bytes") == [len(document.text.encode()) for document in documents]
        for index, document in enumerate(documents):
            ids = shards.tokens(index).tolist()
            assert ids == [*tokenizer.encode(document.text), tokenizer.eos_id]  # T-14: no BOS
            assert tokenizer.decode(ids) == document.text


def test_S_07_another_tokenizer_in_the_same_place_gives_other_ids(
    corpus: Path, tmp_path: Path
) -> None:
    place, counts = tmp_path / "tokenizer", []
    for vocab_size in (600, 700):
        make_tokenizer(corpus, place, vocab_size)
        tokens = tokenize(corpus, place, tmp_path / "tokens")
        counts.append(Shards(tokens / "train").num_tokens)
        manifest = runs.read_manifest(tokens)
        runs.require_same(manifest, "tokenizer", runs.read_manifest(place), what="t", made_by="t")
    assert counts[0] > counts[1]


def test_a_smaller_sample_is_drawn_by_seed(corpus: Path, tmp_path: Path) -> None:
    files = [
        (make_tokenizer(corpus, tmp_path / str(i), 500, 20_000) / "tokenizer.model").read_bytes()
        for i in range(2)
    ]
    whole = (make_tokenizer(corpus, tmp_path / "whole", 500) / "tokenizer.model").read_bytes()
    assert files[0] == files[1] != whole
    trained = runs.read_manifest(tmp_path / "0").counts["bytes"]
    assert 10_000 < trained < 30_000


def test_shard_size_changes_no_row(corpus: Path, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    one = Shards(tokenize(corpus, tokenizer, tmp_path / "one") / "train")
    many_folder = tokenize(corpus, tokenizer, tmp_path / "many", 500) / "train"
    many = Shards(many_folder)
    assert len(list(many_folder.glob("*.arrow"))) > 3
    assert [one.tokens(i).tolist() for i in range(len(one))] == [
        many.tokens(i).tolist() for i in range(len(many))
    ]


def test_impossible_params_and_a_missing_input_are_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocab_size"):
        replace(PARAMS, vocab_size=100)
    with pytest.raises(ConfigError, match="sample_bytes"):
        replace(PARAMS, sample_bytes=0)
    with pytest.raises(ConfigError, match="max_shard_tokens"):
        tokens_stage.Params(max_shard_tokens=0)
    with pytest.raises(DataError, match="no manifest"):
        tokenize(corpus, tmp_path / "none", tmp_path / "tokens")
    with pytest.raises(DataError, match="at most"):
        make_tokenizer(corpus, tmp_path / "huge", 100_000)
    assert not (tmp_path / "huge").exists()


def rebuilt(
    corpus: Path,
    out: Path,
    change: Callable[[list[Document]], list[Document]] = list,
    params: dict[str, Any] | None = None,
) -> Path:
    """A copy of a corpus with other training documents or params; every hash in it is right."""
    made = runs.read_manifest(corpus)
    with runs.new_folder(out, kind="corpus", inputs={}, params=params or made.params) as output:
        for name in made.files:
            if not name.startswith("train/"):
                (output.path / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(corpus / name, output.path / name)
        with PartWriter(output.path / "train") as writer:
            for document in change(list(read_folder(corpus / "train"))):
                writer.add(document)
    return out


@pytest.mark.parametrize("split", ["val", "test"])
def test_training_text_that_shares_words_with_held_out_text_is_refused(
    corpus: Path, tmp_path: Path, split: str
) -> None:
    tokenizer = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    words = max((d.text.split() for d in read_folder(corpus / split)), key=len)[:13]
    assert len(words) == 13

    def smuggle(documents: list[Document]) -> list[Document]:
        return [replace(documents[0], text=f"Önce başka. {' '.join(words)} Sonra."), *documents[1:]]

    spoilt, first = rebuilt(corpus, tmp_path / "c", smuggle), next(read_folder(corpus / "train"))
    with pytest.raises(DataError, match=f"1 of .* '{split}'.* {first.id}"):
        tokenize(spoilt, tokenizer, tmp_path / "tokens")
    assert not (tmp_path / "tokens").exists()
    tokenize(rebuilt(corpus, tmp_path / "c"), tokenizer, tmp_path / "tokens")


@pytest.mark.parametrize(
    "section",
    [None, {"words": 13}, {"words": "13"}, 13, {"words": 1, "short_words": 50, "memory_mb": -5}],
)
def test_a_corpus_that_states_no_measure_of_overlap_is_refused(
    corpus: Path, tmp_path: Path, section: Any
) -> None:
    params = runs.read_manifest(corpus).params | {"contamination": section}
    if section is None:
        del params["contamination"]
    old = rebuilt(corpus, tmp_path / "old", params=params)
    tokenizer = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    with pytest.raises(DataError, match=r"does not say how(.|\n)*dvc repro -f -s clean"):
        tokenize(old, tokenizer, tmp_path / "tokens")


def test_the_data_card_is_carried_on_unchanged(corpus: Path, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    tokens = tokenize(corpus, tokenizer, tmp_path / "tokens")
    assert (tokens / CARD_FILE).read_bytes() == (corpus / CARD_FILE).read_bytes()
    assert CARD_FILE in runs.read_manifest(tokens).files


def test_documents_keep_their_order_and_identity(corpus: Path) -> None:
    ids = [document.id for split in SPLITS for document in read_folder(corpus / split)]
    assert len(ids) == len(set(ids)) and all(a != b for a, b in pairwise(ids))


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bytes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    monkeypatch.setattr(records, "ROW_GROUP_CHARS", 3000)  # many tasks from little text
    many = rebuilt(corpus, tmp_path / "many groups")
    params = tokens_stage.Params(10**9)
    folders = []
    for num_workers in (1, 2, 3):
        folders.append(tmp_path / str(num_workers))
        tokens_stage.tokenize_corpus(many, tokenizer, folders[-1], params, num_workers)
    files = [{p.name: p.read_bytes() for p in f.rglob("*.arrow")} for f in folders]
    assert files[0] == files[1] == files[2]
    whole = Shards(tokenize(corpus, tokenizer, tmp_path / "whole") / "train")
    parts = Shards(folders[0] / "train")
    assert [parts.tokens(i).tolist() for i in range(len(parts))] == [
        whole.tokens(i).tolist() for i in range(len(whole))
    ]


@pytest.mark.slow
def test_two_folders_and_any_number_of_threads_give_one_sha256(
    corpus: Path, tmp_path: Path
) -> None:
    """Each stage in a process of its own, in another folder, with 1 and with 8 threads."""
    script = (
        "import sys; from pathlib import Path; from sifirdan.runs import read_manifest;"
        "from stages import train_tokenizer as a, tokenize_corpus as b;"
        "corpus, here = Path(sys.argv[1]), Path.cwd();"
        "a.train_tokenizer(corpus, here / 'tokenizer', a.Params('bpe', 700, 10**9, {}, 1));"
        "b.tokenize_corpus(corpus, here / 'tokenizer', here / 'tokens', b.Params(10**9), int(sys.argv[2]));"
        "print(read_manifest(here / 'tokenizer').sha256, read_manifest(here / 'tokens').sha256)"
    )
    said = []
    for name, threads in (("bir", "1"), ("iki klasör", "8")):
        (tmp_path / name).mkdir()
        threaded = {
            "OMP_NUM_THREADS": threads,
            "RAYON_NUM_THREADS": threads,
            "PYTHONHASHSEED": threads,
        }
        done = subprocess.run(
            [sys.executable, "-c", script, str(corpus), threads], cwd=tmp_path / name, check=True,
            capture_output=True, text=True, env=os.environ | threaded | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        said.append(done.stdout)
    assert said[0] == said[1]


def test_shards_of_another_tokenizer_are_refused_by_hash(corpus: Path, tmp_path: Path) -> None:
    """Even one of the same size, whose ids would all fit."""
    first = make_tokenizer(corpus, tmp_path / "first", 600)
    second = tmp_path / "second"
    params = replace(PARAMS, vocab_size=600, sample_bytes=20_000)
    tokenizer_stage.train_tokenizer(corpus, second, params)
    tokens = runs.read_manifest(tokenize(corpus, first, tmp_path / "tokens"))
    runs.require_same(tokens, "tokenizer", runs.read_manifest(first), what="t", made_by="m")
    with pytest.raises(DataError, match="made with another tokenizer"):
        runs.require_same(tokens, "tokenizer", runs.read_manifest(second), what="t", made_by="m")


def test_T_07_too_little_memory_is_said_before_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_stage, "free_memory", lambda: 51_000_000)
    with pytest.raises(
        ConfigError, match=r"more than the 0\.05 GB(.|\n)*sample_bytes to \d+, or free"
    ):
        make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    monkeypatch.setattr(tokenizer_stage, "free_memory", lambda: 10_000_000)
    with pytest.raises(ConfigError, match="what to do: free memory"):
        make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    assert not (tmp_path / "tokenizer").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_T_07_a_process_with_a_small_limit_stops_with_a_message(
    corpus: Path, tmp_path: Path
) -> None:
    script = (
        "import resource, sys, psutil; from pathlib import Path; from stages import train_tokenizer as a;"
        "from sifirdan.errors import run_command; limit = psutil.Process().memory_info().vms + 40_000_000;"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit));"
        "run_command(lambda: a.train_tokenizer(Path(sys.argv[1]), Path('tokenizer'),"
        " a.Params('bpe', 700, 10**9, {}, 1)) and 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(corpus)], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1 and "ConfigError: training a tokenizer on" in done.stderr, (
        done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_unigram_by_setting_goes_the_same_way(corpus: Path, tmp_path: Path) -> None:
    params = replace(PARAMS, method="unigram", vocab_size=600)
    metrics = tokenizer_stage.train_tokenizer(corpus, tmp_path / "tokenizer", params)
    assert metrics["vocab_size"] == 600
    tokens = tokenize(corpus, tmp_path / "tokenizer", tmp_path / "tokens")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    assert tokenizer.method == "unigram"
    first = next(read_folder(corpus / "train"))
    assert Shards(tokens / "train").tokens(0).tolist() == [*tokenizer.encode(first.text), EOS]
    with pytest.raises(ConfigError, match="source_weights.own"):
        replace(PARAMS, source_weights={"own": -1.0})


def test_the_card_says_what_the_tokenizer_learned_from(corpus: Path, tmp_path: Path) -> None:
    folder = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "\nlanguage: [tr]\nlicense: other\n" in card and "split_special_tokens=True" in card
    assert "SentencePiece BPE" in card and "## Training data" in card and "| own" in card
    total = sum(len(d.text.encode()) for d in read_folder(corpus / "train"))
    assert f"{total:,} bytes of the {total:,} of training text" in card
    part = make_tokenizer(corpus, tmp_path / "part", 500, 20_000) / "README.md"
    drawn = runs.read_manifest(tmp_path / "part").counts["sample_bytes"]["own"]
    assert f"| own | {drawn:,} | {total:,} |" in part.read_text(encoding="utf-8")


def test_a_weight_that_changes_nothing_is_said(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = replace(PARAMS, source_weights={"own": 2.0})
    with caplog.at_level(logging.INFO):
        tokenizer_stage.train_tokenizer(corpus, tmp_path / "a", params)
    assert "all text of own is drawn, whatever its weight" in caplog.text
    caplog.clear()
    tokenizer_stage.train_tokenizer(
        corpus, tmp_path / "b", replace(params, sample_bytes=30_000, vocab_size=500)
    )
    assert "whatever its weight" not in caplog.text


@pytest.mark.parametrize("vocab_size", [65_535, 65_536, 65_537, 65_541])
def test_ids_never_wrap_around_65536(
    corpus: Path, model_bytes: bytes, tmp_path: Path, vocab_size: int
) -> None:
    """A real tokenizer of that size: pieces are added until it is full, and the last is used."""
    proto = Tokenizer(model_bytes).proto
    known = {piece.piece for piece in proto.pieces}
    added = (chr(code) for code in range(0x20000, 0x40000) if chr(code) not in known)
    while len(proto.pieces) < vocab_size:
        proto.pieces.add(piece=next(added), score=-float(len(proto.pieces)), type=1)
    last = proto.pieces[-1].piece
    with runs.new_folder(tmp_path / "tokenizer", kind="tokenizer", inputs={}, params={}) as output:
        (output.path / "tokenizer.model").write_bytes(proto.SerializeToString())
    changed = rebuilt(
        corpus,
        tmp_path / "c",
        lambda found: [replace(found[0], text=f"son {last}{last}"), *found[1:]],
    )
    tokens = Shards(tokenize(changed, tmp_path / "tokenizer", tmp_path / "tokens") / "train")
    assert tokens.tokens(0).tolist()[-3:] == [vocab_size - 1, vocab_size - 1, EOS]
    assert tokens.tokens(0).dtype == ("uint16" if vocab_size <= 65_536 else "uint32")


def test_a_corpus_without_a_split_is_refused(corpus: Path, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(corpus, tmp_path / "tokenizer", 600)
    made = runs.read_manifest(corpus)
    with runs.new_folder(tmp_path / "c", kind="corpus", inputs={}, params=made.params) as output:
        shutil.copytree(corpus / "val", output.path / "val")
    with pytest.raises(DataError, match=r"c/train: there is no part-\*\.parquet"):
        tokenize(tmp_path / "c", tokenizer, tmp_path / "tokens")
    assert not (tmp_path / "tokens").exists()
