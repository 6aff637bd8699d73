"""Any causal language model, ours or another's, seen the same way: ids to logits, text to ids.

So that one command scores them side by side. Ours is loaded by our own code, every other folder by
transformers, and a name that is no folder is fetched from the Hugging Face Hub: the only use of the
network in a score. No code of a model is run and no pickle is read. What is summed up is in evals/.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sifirdan import runs
from sifirdan.errors import CheckpointError, ConfigError, DataError
from sifirdan.model.checkpoint import load_model
from sifirdan.tokenizer import Tokenizer

# What families call the longest input that their positions allow.
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length")
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # one that can be asked for at all
_TRIAL = 32  # tokens of a trial input
_MOVED = 1e-4  # of the largest logit: far above rounding, far below what even random encoders show

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LanguageModel:
    """`model` maps ids (B, T), int64, to logits (B, T, V). `mark_id` is the id that stands before the
    first token: before every window if `mark_every_window`, since the model never saw a text without
    it, and else before a document only. `context_length` is None where the model names none."""

    name: str
    model: nn.Module
    vocab_size: int
    context_length: int | None
    encode_many: Callable[[Sequence[str]], list[list[int]]]
    decode: Callable[[Sequence[int]], str]
    mark_id: int
    mark: str
    mark_every_window: bool
    unknown_id: int | None


def load_language_model(name: str, device: torch.device | str = "cpu") -> LanguageModel:
    """A folder of ours, another Hugging Face folder, or a name on the Hub."""
    folder = Path(name)
    if name.strip() and _is_ours(folder):
        return _ours(name, folder, device)
    return through_transformers(name, device)


def through_transformers(name: str, device: torch.device | str = "cpu") -> LanguageModel:
    """A folder or a name, as AutoModelForCausalLM and AutoTokenizer load it, in fp32. CheckpointError
    where the figures of a score would mean nothing; see `_check_model`."""
    encoder, model = _load(name)
    context_length = _context_length(model.config)
    rows = int(model.get_input_embeddings().weight.shape[0])
    largest = max(encoder.get_vocab().values(), default=0)
    if largest >= rows:
        raise CheckpointError(
            f"{name}: its tokenizer gives ids up to {largest}, the model only {rows} from 0",
            expected="model and tokenizer of one training",
            todo="put the tokenizer files that belong to the weights into the folder",
        )
    mark_id, adds_mark = _mark_of(name, encoder)
    logits = Logits(model).to(device).eval()
    _check_model(name, logits, rows, largest, context_length)
    return LanguageModel(
        name=name,
        model=logits,
        vocab_size=rows,
        context_length=context_length,
        encode_many=lambda texts: _encode_many(name, encoder, texts),
        decode=lambda ids: encoder.decode(ids, clean_up_tokenization_spaces=False),
        mark_id=mark_id,
        mark=str(encoder.convert_ids_to_tokens(mark_id)),
        mark_every_window=adds_mark,
        unknown_id=encoder.unk_token_id,
    )


class Logits(nn.Module):
    """A model of transformers as ids (B, T) -> logits (B, T, V)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def _is_ours(folder: Path) -> bool:
    return (folder / runs.MANIFEST).is_file() and runs.read_manifest(folder).kind == "model"


def _ours(name: str, folder: Path, device: torch.device | str) -> LanguageModel:
    runs.open_folder(folder, "model", made_by="train")
    model, tokenizer = load_model(folder, device), Tokenizer.load(folder)
    return LanguageModel(
        name=name,
        model=model,
        vocab_size=model.config.vocab_size,
        context_length=model.config.context_length,
        encode_many=tokenizer.encode_many,
        decode=tokenizer.decode,
        mark_id=tokenizer.eos_id,
        mark=tokenizer.proto.pieces[tokenizer.eos_id].piece,
        mark_every_window=False,
        unknown_id=tokenizer.unk_id,
    )


def _load(name: str) -> tuple[Any, Any]:
    """Tokenizer and model. What is missing in a folder is said before transformers is asked, and what
    transformers then raises (it raises everything) belongs to one of three steps."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
    )
    from transformers.utils import logging as transformers_logging

    is_folder = _look_at(name)
    if is_folder:
        transformers_logging.disable_progress_bar()  # for a download there is one
    transformers_logging.set_verbosity_error()  # its reports of loading: what counts is said here
    os.environ.setdefault(
        "DISABLE_SAFETENSORS_CONVERSION", "1"
    )  # it would ask others' repositories
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for every try otherwise
    try:
        config: Any = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        raise (_no_config(name, error) if is_folder else _not_on_hub(name, error)) from None
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise CheckpointError(
            f"{name}: is a model of the kind {config.model_type}, which does not predict the next token",
            expected="a causal language model (GPT, Llama, Mamba and the like)",
            todo="leave it out: such a model has no likelihood of a text",
        )
    with _refusing(
        f"{name}: its tokenizer cannot be loaded",
        expected="tokenizer.json, or the files that this kind of tokenizer is made of",
        todo="put them beside the weights; a tokenizer that brings code of its own is refused",
    ):
        encoder: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    with _refusing(
        f"{name}: its weights cannot be loaded",
        expected="whole safetensors files; never a pickle",
        todo="if they are cut or damaged, copy or fetch them again",
    ):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, config=config, trust_remote_code=False, use_safetensors=True,
            dtype=torch.float32, output_loading_info=True,
        )  # fmt: skip
    model, found = loaded
    _check_loaded(name, model, found)
    return encoder, model


def _look_at(name: str) -> bool:
    """Whether `name` is a folder, which holds what it needs to; if not, it may be a name on the Hub."""
    folder = Path(name)
    expected = "base, chat, a model folder, or a name on the Hugging Face Hub such as owner/name"
    if not folder.is_dir() or not name.strip():
        if folder.is_file():
            raise ConfigError(f"{name}: is a file", expected=expected, todo="name its folder")
        if not _HUB_NAME.fullmatch(name):
            raise ConfigError(
                f"{name or 'an empty name'}: there is no such folder",
                expected=expected,
                todo="correct the name; paths count from the folder you stand in",
            )
        return False
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{name}: there is no config.json in this folder",
            expected="a Hugging Face folder: config.json, tokenizer files, model.safetensors",
            todo="name the model's own folder, such as models/base",
        )
    if not any(folder.glob("*.safetensors")):
        pickled = [
            file.name for ending in ("bin", "pt", "pth") for file in folder.glob(f"*.{ending}")
        ]
        raise CheckpointError(
            f"{name}: its weights are a pickle ({pickled[0]}), which could run code"
            if pickled
            else f"{name}: there is no model.safetensors in this folder",
            expected="weights as safetensors",
            todo="where you trust it, load it once with transformers: save_pretrained(FOLDER) writes"
            " safetensors"
            if pickled
            else "put the weights beside config.json",
        )
    return True


def _no_config(name: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{name}: transformers cannot use its config.json ({_why(error)})",
        expected='the config.json of a language model, with a "model_type" that transformers knows',
        todo="a model that brings code of its own is refused: convert it to a kind that is known",
    )


def _not_on_hub(name: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{name}: there is no such folder here, and the Hugging Face Hub gives none ({_why(error)})",
        expected="base, chat, a model folder, or a name on the Hub such as owner/name",
        todo=f"with internet and HF_HUB_OFFLINE unset it is fetched; or fetch it elsewhere with "
        f"`hf download {name} --local-dir FOLDER` and give FOLDER. A private model needs `hf auth login`",
    )


@contextlib.contextmanager
def _refusing(found: str, *, expected: str, todo: str) -> Iterator[None]:
    """Whatever others' code raises is the model's fault: transformers and tokenizers raise everything."""
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{found} ({_why(error)})", expected=expected, todo=todo) from None


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300]


def _check_loaded(name: str, model: Any, found: Any) -> None:
    """Every weight comes from the file and is a number. A tied weight is there under one of its names;
    buffers are computed, whatever the file says of them."""
    absent = set(found["missing_keys"]) | {str(key[0]) for key in found["mismatched_keys"]}
    names: dict[int, set[str]] = {}
    for key, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), set()).add(key)
    lacking = sorted(min(keys) for keys in names.values() if keys <= absent)
    if lacking:
        raise CheckpointError(
            f"{name}: {len(lacking)} of its {len(names)} weights are not in its files, or of another"
            f" shape (first {lacking[0]}): they would be random",
            expected="every weight that config.json describes",
            todo="copy or fetch the folder again; weights of an encoder have no head for the next token",
        )
    if unused := sorted(found["unexpected_keys"]):
        _log.warning(
            "%s: the model does not use %d weights of its files (first %s)",
            name, len(unused), unused[0],
        )  # fmt: skip
    for key, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise CheckpointError(
                f"{name}: {key} holds NaN or infinite numbers",
                expected="numbers",
                todo="take a checkpoint from before the training failed",
            )


@torch.no_grad()
def _check_model(
    name: str, model: nn.Module, vocab_size: int, largest: int, context_length: int | None
) -> None:
    """By a trial: a logit for every id, numbers, and none that moves when only later tokens change. A
    model that sees the token which it should predict would look better than any other."""
    length = min(context_length or _TRIAL, _TRIAL)
    half = max(1, length // 2)
    ids = torch.arange(length) * max(1, vocab_size // length) % vocab_size
    other = ids.clone()
    other[half:] = (other[half:] + 1) % vocab_size
    device = next(model.parameters()).device
    with _refusing(
        f"{name}: it cannot be run",
        expected="a model that takes ids and gives logits",
        todo="take a plain language model",
    ):
        logits = model(torch.stack([ids, other]).to(device)).float().cpu()  # (2, T, V)
    if bool(logits.isnan().any()):
        raise CheckpointError(
            f"{name}: its logits are NaN",
            expected="numbers",
            todo="take another checkpoint of this model",
        )
    if largest >= logits.shape[-1]:
        raise CheckpointError(
            f"{name}: its tokenizer gives ids up to {largest}, the model only {logits.shape[-1]} logits",
            expected="a logit for every id",
            todo="put the tokenizer files that belong to the weights into the folder",
        )
    one, two = logits[:, :half]
    scale = one[one.isfinite()].abs().max().item() if bool(one.isfinite().any()) else 0.0
    if not torch.allclose(one, two, rtol=0.0, atol=_MOVED * scale):
        raise CheckpointError(
            f"{name}: it does not look backwards only: what it says of a token changes with later tokens",
            expected="a model that predicts the next token (GPT, Llama, Mamba and the like)",
            todo="an encoder such as BERT has no likelihood of a text, and cannot be compared here",
        )


def _encode_many(name: str, encoder: Any, texts: Sequence[str]) -> list[list[int]]:
    if not texts:
        return []
    options = {"add_special_tokens": False, "split_special_tokens": True}  # a mark in text is text
    with _refusing(
        f"{name}: its tokenizer cannot encode these texts",
        expected="a tokenizer with a token for what it does not know, or with bytes",
        todo="leave this model out, or score a text that it knows whole",
    ):
        return encoder(list(texts), verbose=False, **options)["input_ids"]


def _mark_of(name: str, encoder: Any) -> tuple[int, bool]:
    """The id before a document, and whether the tokenizer itself puts it before every text: then the
    model was trained so."""
    bos, eos = encoder.bos_token_id, encoder.eos_token_id
    adds = bos is not None and encoder("")["input_ids"][:1] == [bos]
    found = bos if bos is not None else eos
    if found is None:
        raise DataError(
            f"{name}: its tokenizer has no mark for the beginning or the end of a text",
            expected="bos_token or eos_token: the first token needs something before it",
            todo="name the one that the model was trained with in its tokenizer_config.json",
        )
    return int(found), adds


def _context_length(config: Any) -> int | None:
    text_config = config.get_text_config()
    found = [getattr(text_config, key, None) for key in _LENGTHS]
    return next((length for length in found if isinstance(length, int) and length > 0), None)
