"""Training that starts from given weights: exactly those, or a refusal that names what is wrong."""

import shutil
from pathlib import Path

import pytest
import torch
from conftest import tiny_model

from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.model.checkpoint import WEIGHTS, save_model
from sifirdan.model.transformer import Transformer
from sifirdan.runs import sha256_of
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.tokenizer_training import train as train_tokenizer
from sifirdan.training.warm_start import start_from


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("start") / "model"
    folder.mkdir()
    save_model(folder, tiny_model(tokenizer.vocab_size, 32), eos_ids=[2], pad_id=3)
    (folder / MODEL_FILE).write_bytes(tokenizer.proto.SerializeToString())
    return folder


def fresh(tokenizer: Tokenizer, context_length: int = 32, **shape: object) -> Transformer:
    model = tiny_model(tokenizer.vocab_size, context_length, **shape)
    model.initialise(torch.Generator().manual_seed(1))
    return model


def begin(model: Transformer, folder: Path, tokenizer: Tokenizer, sha256: str = "") -> None:
    sha256 = sha256 or sha256_of(folder / WEIGHTS)
    start_from(model, folder, sha256, tokenizer, replaced=folder.parent / "base")


@pytest.mark.parametrize("context_length", [32, 64])
def test_a_warm_start_has_the_weights_of_the_folder(
    start: Path, tokenizer: Tokenizer, context_length: int
) -> None:
    model = fresh(tokenizer, context_length)
    begin(model, start, tokenizer)
    expected = tiny_model(tokenizer.vocab_size, 32)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert model.config.context_length == context_length


def test_other_weights_than_the_hash_says_are_refused(start: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(CheckpointError) as refusal:
        begin(fresh(tokenizer), start, tokenizer, "0" * 64)
    assert f"has the sha256 {sha256_of(start / WEIGHTS)}" in str(refusal.value)
    assert f"expected: {'0' * 64}, as train.init_from_sha256 says" in str(refusal.value)


def test_another_shape_is_refused_by_name(start: Path, tokenizer: Tokenizer) -> None:
    model = fresh(tokenizer, num_layers=2, hidden_size=32)
    with pytest.raises(CheckpointError) as refusal:
        begin(model, start, tokenizer)
    assert "has hidden_size 64, num_layers 3" in str(refusal.value)
    assert "expected: hidden_size 32, num_layers 2" in str(refusal.value)
    other = tiny_model(tokenizer.vocab_size + 8, 32)
    with pytest.raises(CheckpointError, match=f"has vocab_size {tokenizer.vocab_size}"):
        begin(other, start, tokenizer)


def test_another_tokenizer_is_refused(
    start: Path, tokenizer: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    other = Tokenizer(train_tokenizer(texts[::2], tokenizer.vocab_size)[0])
    with pytest.raises(CheckpointError, match="was trained with another tokenizer"):
        begin(fresh(tokenizer), start, other)
    unknown = shutil.copytree(start, tmp_path / "unknown")
    (unknown / MODEL_FILE).unlink()
    with pytest.raises(CheckpointError, match="has no tokenizer.model"):
        begin(fresh(tokenizer), unknown, tokenizer)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_a_folder_without_a_part_is_refused(
    start: Path, tokenizer: Tokenizer, tmp_path: Path, name: str
) -> None:
    torn = shutil.copytree(start, tmp_path / "torn")
    (torn / name).unlink()
    with pytest.raises(CheckpointError, match=f"there is no {name}"):
        begin(fresh(tokenizer), torn, tokenizer, "0" * 64)


def test_the_output_of_the_stage_itself_is_refused(start: Path, tokenizer: Tokenizer) -> None:
    """DVC removes it before the stage runs."""
    sha256 = sha256_of(start / WEIGHTS)
    for folder, replaced in ((start, start), (start, start.parent)):
        with pytest.raises(ConfigError, match="which this stage makes anew"):
            start_from(fresh(tokenizer), folder, sha256, tokenizer, replaced=replaced)
