"""The two tokenizer stages on our own text, as functions on folders."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from sifirdan import runs
from sifirdan.corpus.records import read_folder
from sifirdan.corpus.shards import SPLITS, Shards
from sifirdan.errors import ConfigError, DataError
from sifirdan.tokenizer import Tokenizer
from stages import clean as clean_stage
from stages import ingest as ingest_stage
from stages import tokenize_corpus as tokens_stage
from stages import train_tokenizer as tokenizer_stage


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    (folder / "own").mkdir()
    (folder / "own" / "paragraphs.jsonl").write_text(lines, encoding="utf-8")
    ingest_params = ingest_stage.Params(
        own_text=str(folder / "own"), own_license="own", own_encoding="utf-8", bad_records="error",
        allowed_licenses=["own"], sources={},
    )  # fmt: skip
    ingest_stage.ingest(folder / "raw", ingest_params, cache=folder / "cache")
    clean_params = clean_stage.Params(
        min_chars=20, max_replacement_share=0.0, val_share=0.03, reject_sample=5
    )
    clean_stage.clean(folder / "raw", folder / "corpus", clean_params)
    return folder / "corpus"


def make_tokenizer(corpus: Path, out: Path, vocab_size: int, sample_bytes: int = 10**9) -> Path:
    params = tokenizer_stage.Params(vocab_size=vocab_size, sample_bytes=sample_bytes, seed=1)
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
        tokenizer_stage.Params(vocab_size=100, sample_bytes=1, seed=1)
    with pytest.raises(ConfigError, match="sample_bytes"):
        tokenizer_stage.Params(vocab_size=1000, sample_bytes=0, seed=1)
    with pytest.raises(ConfigError, match="max_shard_tokens"):
        tokens_stage.Params(max_shard_tokens=0)
    with pytest.raises(DataError, match="no manifest"):
        tokenize(corpus, tmp_path / "none", tmp_path / "tokens")
    with pytest.raises(DataError, match="at most"):
        make_tokenizer(corpus, tmp_path / "huge", 100_000)
    assert not (tmp_path / "huge").exists()


def test_documents_keep_their_order_and_identity(corpus: Path) -> None:
    ids = [document.id for split in SPLITS for document in read_folder(corpus / split)]
    assert len(ids) == len(set(ids)) and all(a != b for a, b in pairwise(ids))
