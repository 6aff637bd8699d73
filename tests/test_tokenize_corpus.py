"""The two tokenizer stages on our own text, as functions on folders."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import corpora
import pytest

from sifirdan import runs
from sifirdan.corpus.card import CARD_FILE
from sifirdan.corpus.records import Document, PartWriter, read_folder
from sifirdan.corpus.shards import SPLITS, Shards
from sifirdan.errors import ConfigError, DataError
from sifirdan.tokenizer import Tokenizer
from stages import tokenize_corpus as tokens_stage
from stages import train_tokenizer as tokenizer_stage


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    corpora.write_jsonl(folder / "own/paragraphs.jsonl", texts)
    corpora.clean(corpora.ingest(folder), folder / "corpus")
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


@pytest.mark.parametrize("section", [None, {"words": 13}, {"words": "13"}, 13])
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
