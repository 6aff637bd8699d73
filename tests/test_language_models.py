"""Ours and others' models give the same numbers whoever loads them; what they leave out is said."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from sifirdan import runs
from sifirdan.baselines.contestants import train_hugging_face
from sifirdan.baselines.language_models import (
    LanguageModel,
    _check_model,
    load_language_model,
    through_transformers,
)
from sifirdan.errors import CheckpointError, ConfigError, DataError
from sifirdan.evals.bits_per_byte import score_documents
from sifirdan.evals.multiple_choice import Item
from sifirdan.evals.side_by_side import score_task, score_texts, warnings
from sifirdan.tokenizer import Tokenizer
from sifirdan.training.session import save_trained

LONG = "İstanbul'da ığdır ağaçları 🙂 çok güzel açar. " * 12
TEXTS = ["Kısa bir metin.", "a", LONG, "<|user|> </s> yazısı da metindir.\n\n  İki boşluk  "]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("ours") / "base"
    with runs.new_folder(folder, kind="model", inputs={}, params={}) as output:
        save_trained(output.path, tiny_model(tokenizer.vocab_size, 64), tokenizer)
    return folder


def save_gpt2(
    folder: Path, tokenizer: FastTokenizer, *, vocab_size: int = 400, **marks: str
) -> str:
    """A random GPT-2 with a context of 32 tokens and any tokenizer."""
    config = GPT2Config(vocab_size=vocab_size, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    torch.manual_seed(5)
    model = GPT2LMHeadModel(config)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def byte_pairs(texts: list[str]) -> str:
    """A byte-level tokenizer of 320 pieces, as JSON."""
    encoder = train_hugging_face(texts[:40], 320)
    encoder.add_special_tokens(["<bas>", "<son>"])
    return encoder.to_str()


def brute_force(
    model: LanguageModel, ids: Sequence[int], window: int, stride: int, *, every_window: bool
) -> float:
    """Each token alone, with the mark where it belongs."""
    nats = 0.0
    stream = [model.mark_id, *ids]
    for place in range(1, len(stream)):
        first = 0
        while first + window < place:
            first += stride
        first = min(first, max(0, len(ids) - window))
        seen = stream[first:place]
        if every_window:
            seen[0] = model.mark_id
        logits = model.model(torch.tensor([seen]))[0, -1].double()
        nats -= float(logits.log_softmax(-1)[stream[place]])
    return nats


def test_E_01_ours_gives_the_same_figures_through_transformers(ours: Path) -> None:
    native, theirs = load_language_model(str(ours)), through_transformers(str(ours))
    items = [Item("Her sabah", ("okula gider.", "okuldan gelir."), 0)]
    for window, stride in ((64, 64), (64, 20), (16, 16)):
        a, b = (score_texts(m, TEXTS, window=window, stride=stride) for m in (native, theirs))
        assert a.bits_per_byte == pytest.approx(b.bits_per_byte, abs=1e-4)
        assert (a.ids, a.tokens, a.mark) == (b.ids, b.tokens, b.mark)
        assert a.bytes == sum(len(text.encode()) for text in TEXTS) and not warnings(a)
    a, b = (score_task(m, "iş", items, window=64) for m in (native, theirs))
    assert a == b
    assert (native.context_length, theirs.context_length) == (64, 64)


def test_E_01_nats_are_those_of_transformers_own_loss(ours: Path, tokenizer: Tokenizer) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(ours)
    native = load_language_model(str(ours))
    for text in TEXTS:
        ids = tokenizer.encode(text)[:64]
        (score,) = score_documents(
            native.model, [np.array(ids)], [1], window=64, stride=64, eos_id=native.mark_id
        )
        stream = torch.tensor([[native.mark_id, *ids]])
        with torch.no_grad():
            loss = float(theirs(stream, labels=stream).loss)
        assert score.nats == pytest.approx(loss * len(ids), rel=1e-4)


def test_a_gpt2_folder_is_scored_from_its_end_mark(tmp_path: Path, byte_pairs: str) -> None:
    folder = save_gpt2(tmp_path, FastTokenizer.from_str(byte_pairs), eos_token="<son>")
    model = load_language_model(folder)
    assert (model.mark, model.mark_every_window, model.context_length) == ("<son>", False, 32)
    row = score_texts(model, [LONG], window=32, stride=10)
    (ids,) = model.encode_many([LONG])
    with torch.no_grad():
        expected = brute_force(model, ids, 32, 10, every_window=False)
    assert row.bits_per_byte * row.bytes * math.log(2) == pytest.approx(expected, rel=1e-5)
    assert row.tokens == len(ids) and row.token_perplexity == pytest.approx(
        math.exp(expected / len(ids)), rel=1e-5
    )


def test_E_03_a_mark_that_the_tokenizer_adds_stands_in_every_window(
    tmp_path: Path, byte_pairs: str
) -> None:
    encoder = FastTokenizer.from_str(byte_pairs)
    start = encoder.token_to_id("<bas>")
    encoder.post_processor = processors.TemplateProcessing(
        single="<bas> $A", special_tokens=[("<bas>", start)]
    )
    folder = save_gpt2(tmp_path, encoder, bos_token="<bas>", eos_token="<son>")
    model = load_language_model(folder)
    assert (model.mark_id, model.mark_every_window) == (start, True)
    for window, stride in ((32, 32), (32, 16), (8, 3)):
        row = score_texts(model, [LONG[:140]], window=window, stride=stride)
        (ids,) = model.encode_many([LONG[:140]])
        assert start not in ids
        with torch.no_grad():
            expected = brute_force(model, ids, window, stride, every_window=True)
            other = brute_force(model, ids, window, stride, every_window=False)
        nats = row.bits_per_byte * row.bytes * math.log(2)
        assert nats == pytest.approx(expected, rel=1e-5) and abs(nats - other) > 1e-4 * nats


def test_a_tokenizer_that_loses_something_is_named(tmp_path: Path, byte_pairs: str) -> None:
    encoder = FastTokenizer.from_str(byte_pairs)
    encoder.normalizer = normalizers.Lowercase()
    model = load_language_model(save_gpt2(tmp_path, encoder, eos_token="<son>"))
    row = score_texts(model, ["büyük harf yok", "Büyük Harf"], window=32)
    assert (row.changed_texts, row.first_changed, row.unknown_tokens) == (1, "Büyük Harf", 0)
    assert "does not give back 1 of the texts" in warnings(row)[0]


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "<son>": 1, "ev": 2, "güzel": 3}
    encoder = FastTokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    encoder.add_special_tokens(["<unk>", "<son>"])
    model = load_language_model(save_gpt2(tmp_path, encoder, eos_token="<son>", unk_token="<unk>"))
    row = score_texts(model, ["ev", "kapı ev pencere", ""], window=32)
    assert (row.unknown_tokens, row.documents, row.unscorable) == (2, 2, 1)
    assert any("2 of 4 tokens" in line for line in warnings(row))


def test_a_tokenizer_without_marks_or_of_another_model_is_refused(
    tmp_path: Path, byte_pairs: str
) -> None:
    encoder = FastTokenizer.from_str(byte_pairs)
    with pytest.raises(DataError, match=r"no mark(?s:.*)what to do"):
        load_language_model(save_gpt2(tmp_path / "a", encoder))
    with pytest.raises(CheckpointError, match=r"the model only 100(?s:.*)what to do"):
        load_language_model(save_gpt2(tmp_path / "b", encoder, vocab_size=100, eos_token="<son>"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("pickle", "its weights are a pickle (?s:.*)save_pretrained"),
        ("own code", "cannot use its config.json (?s:.*)code of its own"),
        ("cut", "its weights cannot be loaded (?s:.*)cut or damaged"),
        ("no config", "there is no config.json"),
        ("other kind", "of the kind t5, which does not predict the next token"),
        ("no weights", "there is no model.safetensors"),
        ("no tokenizer", "its tokenizer cannot be loaded (?s:.*)beside the weights"),
    ],
)
def test_R_04_a_folder_that_is_not_plain_is_refused(
    tmp_path: Path, byte_pairs: str, damage: str, said: str
) -> None:
    folder = save_gpt2(tmp_path, FastTokenizer.from_str(byte_pairs), eos_token="<son>")
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    if damage == "pickle":
        torch.save(load_file(weights), tmp_path / "pytorch_model.bin")
        weights.unlink()
    elif damage == "own code":
        content: dict[str, Any] = json.loads(config.read_text()) | {"model_type": "baska"}
        content["auto_map"] = {"AutoConfig": "kod.C", "AutoModelForCausalLM": "kod.M"}
        config.write_text(json.dumps(content))
        (tmp_path / "kod.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-10])
    elif damage == "other kind":
        config.write_text('{"model_type": "t5"}')
    elif damage == "no weights":
        weights.unlink()
    elif damage == "no tokenizer":
        (tmp_path / "tokenizer.json").unlink()
    else:
        config.unlink()
    with pytest.raises(CheckpointError, match=said):
        load_language_model(folder)
    assert not (tmp_path / "ran").exists()


def test_a_damaged_folder_of_ours_is_refused(ours: Path, tmp_path: Path) -> None:
    copy = tmp_path / "base"
    copy.mkdir()
    for file in ours.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"config\.json"):
        load_language_model(str(copy))


def test_a_name_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError) as error:
        load_language_model("kimse/olmayan-model")
    assert "HF_HUB_OFFLINE" in str(error.value) and "hf download kimse/olmayan-model" in str(
        error.value
    )


@pytest.mark.parametrize("name", ["", "/yok/olan", "../x/y/z", "a/b/c", "./yok"])
def test_a_path_to_nothing_is_said_without_asking_the_hub(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", None)
    with pytest.raises(ConfigError, match="there is no such folder\n"):
        load_language_model(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.txt: is a file"):
        load_language_model(str(tmp_path / "a.txt"))


def change_weights(folder: str, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    file = Path(folder) / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, {"format": "pt"})


def test_weights_that_the_file_lacks_are_never_made_up(tmp_path: Path, byte_pairs: str) -> None:
    folder = save_gpt2(tmp_path, FastTokenizer.from_str(byte_pairs), eos_token="<son>")
    whole = score_texts(load_language_model(folder), TEXTS, window=32)

    def rename_tied(weights: dict[str, torch.Tensor]) -> None:  # the same weight by its other name
        weights["lm_head.weight"] = weights.pop("transformer.wte.weight")
        weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32)  # a buffer of old files

    def drop_a_layer(weights: dict[str, torch.Tensor]) -> None:
        for key in [key for key in weights if ".h.1." in key]:
            del weights[key]

    change_weights(folder, rename_tied)
    assert score_texts(load_language_model(folder), TEXTS, window=32) == whole
    change_weights(folder, drop_a_layer)
    with pytest.raises(CheckpointError, match=r"12 of its 28 weights .* \(first transformer\.h\.1"):
        load_language_model(folder)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, byte_pairs: str) -> None:
    folder = save_gpt2(tmp_path, FastTokenizer.from_str(byte_pairs), eos_token="<son>")
    change_weights(folder, lambda weights: weights["transformer.ln_f.bias"].fill_(math.nan))
    with pytest.raises(CheckpointError, match=r"transformer\.ln_f\.bias holds NaN"):
        load_language_model(folder)


def test_a_model_that_sees_later_tokens_is_refused(tmp_path: Path, byte_pairs: str) -> None:
    encoder = PreTrainedTokenizerFast(
        tokenizer_object=FastTokenizer.from_str(byte_pairs), eos_token="<son>"
    )
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for is_decoder in (False, True):
        config = BertConfig(
            vocab_size=400, intermediate_size=16, max_position_embeddings=32,
            is_decoder=is_decoder, **sizes,
        )  # fmt: skip
        BertLMHeadModel(config).save_pretrained(tmp_path)
        encoder.save_pretrained(tmp_path)
        if is_decoder:  # the same layers, made to look backwards
            assert load_language_model(str(tmp_path)).context_length == 32
        else:
            with pytest.raises(CheckpointError, match="does not look backwards only"):
                load_language_model(str(tmp_path))


def test_a_context_of_one_token_sees_nothing_ahead(ours: Path) -> None:
    model = load_language_model(str(ours)).model
    _check_model("tek", model, 100, 99, 1)
    with pytest.raises(CheckpointError, match="the model only"):
        _check_model("az", model, 100, 99_999, 16)


def test_a_tokenizer_with_gaps_or_without_an_unknown_token(tmp_path: Path) -> None:
    far = {"<unk>": 0, "<son>": 1, "ev": 900}
    lacking = {"<son>": 0, "ev": 1}
    encoders = [FastTokenizer(models.WordLevel(v, unk_token="<unk>")) for v in (far, lacking)]
    for encoder in encoders:
        encoder.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(CheckpointError, match="ids up to 900, the model only 400"):
        load_language_model(save_gpt2(tmp_path / "a", encoders[0], eos_token="<son>"))
    marks = {"bos_token": "<son>", "eos_token": "<son>"}
    model = load_language_model(save_gpt2(tmp_path / "b", encoders[1], **marks))
    assert score_texts(model, ["ev ev"], window=8).tokens == 2
    with pytest.raises(CheckpointError, match=r"cannot encode these texts(?s:.*)what to do"):
        score_texts(model, ["ev kapı"], window=8)
