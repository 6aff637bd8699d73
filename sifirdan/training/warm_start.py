"""Start weights from a given model folder instead of random ones.

The folder is named by its path and by the sha256 of its weights. The hash is what counts: it is a
parameter, so DVC runs the stage again when it changes, and a folder whose content has changed since
is refused rather than trained on. Not for resuming, which continues a run with its optimiser state:
a warm start takes the weights alone.
"""

from dataclasses import asdict
from pathlib import Path

from sifirdan import runs
from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.model.checkpoint import WEIGHTS, load_model, read_config, set_weights, weights_of
from sifirdan.model.transformer import ModelConfig, Transformer
from sifirdan.tokenizer import MODEL_FILE, Tokenizer


def start_from(
    model: Transformer, folder: Path, sha256: str, tokenizer: Tokenizer, *, replaced: Path
) -> None:
    """Fill `model` with the weights in `folder`. Refused are weights with another hash, a model of
    another shape or with another tokenizer, and a folder in `replaced`, the output of this very stage,
    which DVC removes before it runs the stage. The context length alone may differ, where no weight
    depends on it."""
    if folder.resolve().is_relative_to(replaced.resolve()):
        raise ConfigError(
            f"train.init_from is {str(folder)!r}, which this stage makes anew",
            expected="a folder that no stage writes",
            todo=f"copy it first (cp -r {folder} models/start), and name the copy",
        )
    found = read_config(folder)
    _require_whole(folder, sha256)
    _require_shape(folder, found, model.config)
    _require_tokenizer(folder, tokenizer)
    set_weights(model, weights_of(load_model(folder)), place=str(folder / WEIGHTS))


def _require_whole(folder: Path, sha256: str) -> None:
    if not (folder / WEIGHTS).is_file():
        raise CheckpointError(f"{folder}: there is no {WEIGHTS}", expected="a whole model folder")
    actual = runs.sha256_of(folder / WEIGHTS)
    if actual != sha256:
        raise CheckpointError(
            f"{folder / WEIGHTS} has the sha256 {actual}",
            expected=f"{sha256}, as train.init_from_sha256 says",
            todo="bring back the weights you meant, or set train.init_from_sha256 to what is there",
        )


def _require_shape(folder: Path, found: ModelConfig, wanted: ModelConfig) -> None:
    theirs = {"vocab_size": found.vocab_size} | asdict(found.shape)
    ours = {"vocab_size": wanted.vocab_size} | asdict(wanted.shape)
    different = [key for key in ours if theirs[key] != ours[key]]
    if different:
        raise CheckpointError(
            f"train.init_from: {folder} has " + ", ".join(f"{k} {theirs[k]}" for k in different),
            expected=", ".join(f"{key} {ours[key]}" for key in different),
            todo="set train.model to the shape of that model, or start from another",
        )


def _require_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    try:
        theirs = (folder / MODEL_FILE).read_bytes()
    except FileNotFoundError:
        raise CheckpointError(
            f"train.init_from: {folder} has no {MODEL_FILE}, so its tokenizer is not known",
            expected="a model folder of this project, with its tokenizer",
        ) from None
    if theirs != tokenizer.proto.SerializeToString():
        raise CheckpointError(
            f"train.init_from: {folder} was trained with another tokenizer",
            expected="the one in models/tokenizer: an id would mean another piece",
            todo="bring back that model's tokenizer with dvc (the same train_tokenizer settings and corpus), "
            "or train from random weights",
        )
