"""Any causal language model, ours or another's, seen the same way: ids to logits, text to ids.

So that one command scores them side by side. Ours is loaded by our own code, every other folder by
transformers, and a name that is no folder is fetched from the Hugging Face Hub: the only use of the
network in a score. No code of a model is run and no pickle is read. What is summed up is in evals/.
"""

import logging
import os
from collections.abc import Callable, Sequence
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
    if _is_ours(folder):
        return _ours(name, folder, device)
    return through_transformers(name, device)


def through_transformers(name: str, device: torch.device | str = "cpu") -> LanguageModel:
    """A folder or a name, as AutoModelForCausalLM and AutoTokenizer load it, in fp32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    if Path(name).is_dir():
        transformers_logging.disable_progress_bar()  # for a download there is one
    os.environ.setdefault(
        "DISABLE_SAFETENSORS_CONVERSION", "1"
    )  # it would ask others' repositories
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for every try otherwise
    try:
        encoder: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model: Any = AutoModelForCausalLM.from_pretrained(
            name, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        )
    except (
        Exception
    ) as error:  # a missing file, a closed door, no network, a damaged file, own code
        raise _cannot_be_had(name, error) from None
    vocab_size = int(model.get_input_embeddings().weight.shape[0])
    if len(encoder) > vocab_size:
        raise CheckpointError(
            f"{name}: its tokenizer has {len(encoder)} ids, the model only {vocab_size}",
            expected="model and tokenizer of one training",
        )
    mark_id, adds_mark = _mark_of(name, encoder)
    return LanguageModel(
        name=name,
        model=Logits(model).to(device).eval(),
        vocab_size=vocab_size,
        context_length=_context_length(model.config),
        encode_many=lambda texts: _encode_many(encoder, texts),
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


def _encode_many(encoder: Any, texts: Sequence[str]) -> list[list[int]]:
    if not texts:
        return []
    options = {"add_special_tokens": False, "split_special_tokens": True}  # a mark in text is text
    return encoder(list(texts), verbose=False, **options)["input_ids"]


def _mark_of(name: str, encoder: Any) -> tuple[int, bool]:
    """The id before a document, and whether the tokenizer itself puts it before every text: then the
    model was trained so."""
    bos, eos = encoder.bos_token_id, encoder.eos_token_id
    adds = bos is not None and encoder("a")["input_ids"][:1] == [bos]
    found = bos if bos is not None else eos
    if found is None:
        raise DataError(
            f"{name}: its tokenizer has no mark for the beginning or the end of a text",
            expected="bos_token or eos_token: the first token needs something before it",
        )
    return int(found), adds


def _context_length(config: Any) -> int | None:
    text_config = config.get_text_config()
    found = [getattr(text_config, key, None) for key in _LENGTHS]
    return next((length for length in found if isinstance(length, int)), None)


def _cannot_be_had(name: str, error: Exception) -> ConfigError | CheckpointError:
    why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300]
    if Path(name).exists():
        return CheckpointError(
            f"{name}: transformers cannot load this ({why})",
            expected="a folder with config.json, tokenizer files and model.safetensors",
            todo="a model that brings code of its own, or weights as a pickle, is refused: convert it",
        )
    return ConfigError(
        f"{name}: there is no such folder here, and the Hugging Face Hub gives none ({why})",
        expected="base, chat, a model folder, or a name on the Hub such as owner/name",
        todo=f"with internet and HF_HUB_OFFLINE unset it is fetched; or fetch it elsewhere with "
        f"`hf download {name} --local-dir FOLDER` and give FOLDER. A private model needs `hf auth login`",
    )
