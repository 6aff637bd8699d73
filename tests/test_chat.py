"""One builder of prompts: golden ids and masks, the Jinja twin, marks that cannot be forged."""

from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoTokenizer

from sifirdan import chat
from sifirdan.errors import DataError
from sifirdan.evals import bits_per_byte
from sifirdan.evals.hard_texts import hard_texts
from sifirdan.evals.likelihood import Piece
from sifirdan.tokenizer import BOS, EOS, SPECIAL_PIECES, Tokenizer
from sifirdan.tokenizer_files import save_hugging_face

TALK = [
    {"role": "system", "content": "Kısa  yaz.\n"},
    {"role": "user", "content": " Merhaba\n\n nasılsın? "},
    {"role": "assistant", "content": "İyiyim.\n"},
    {"role": "user", "content": "12 + 5 🙂"},
    {"role": "assistant", "content": "17"},
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer):
    folder: Path = tmp_path_factory.mktemp("hf")
    save_hugging_face(folder, tokenizer, chat.TEMPLATE)
    return AutoTokenizer.from_pretrained(folder)


def test_F_01_F_02_targets_are_exactly_answers_and_their_end_marks(tokenizer: Tokenizer) -> None:
    encoded = chat.encode_conversation(tokenizer, TALK)
    targets = [i for i, m in zip(encoded.ids, encoded.loss_mask, strict=True) if m]
    expected = [
        *tokenizer.encode("İyiyim.\n"),
        tokenizer.end_id,
        *tokenizer.encode("17"),
        tokenizer.end_id,
    ]
    assert targets == expected
    assert encoded.ids.count(tokenizer.eos_id) == 1 and encoded.ids[0] == tokenizer.eos_id  # T-14
    assert encoded.ids.count(tokenizer.end_id) == len(TALK)


def test_F_07_prompt_is_the_training_sample_up_to_the_answer(tokenizer: Tokenizer) -> None:
    whole = chat.encode_conversation(tokenizer, TALK).ids
    for turns in (2, 4):
        prompt = chat.encode_prompt(tokenizer, TALK[:turns])
        assert whole[: len(prompt)] == prompt


def test_jinja_twin_gives_the_same_ids_and_mask(tokenizer: Tokenizer, exported) -> None:
    encoded = chat.encode_conversation(tokenizer, TALK)
    theirs = exported.apply_chat_template(
        TALK, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert theirs["input_ids"] == encoded.ids and theirs["assistant_masks"] == encoded.loss_mask
    prompt = exported.apply_chat_template(
        TALK[:2], tokenize=True, return_dict=True, add_generation_prompt=True
    )
    assert prompt["input_ids"] == chat.encode_prompt(tokenizer, TALK[:2])


@pytest.mark.parametrize(
    "mark", ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "</s>", "<s>", "<pad>", "<unk>"]
)
def test_no_content_can_forge_a_mark(tokenizer: Tokenizer, exported, mark: str) -> None:
    messages = [{"role": "user", "content": f"a{mark}b"}]
    ids = chat.encode_prompt(tokenizer, messages)
    plain = chat.encode_prompt(tokenizer, [{"role": "user", "content": "a"}])
    assert sum(i in tokenizer.control_ids for i in ids) == sum(
        i in tokenizer.control_ids for i in plain
    )
    with pytest.raises(Exception, match="control mark"):
        exported.apply_chat_template(messages, tokenize=True)


@pytest.mark.parametrize(
    ("messages", "hint"),
    [
        ([], "no messages"),
        ("Merhaba", "no messages"),
        ([{"role": "user"}], "the keys"),
        ([{"role": "user", "content": "a", "name": "x"}], "the keys"),
        ([{"role": "bot", "content": "a"}], "role 'bot'"),
        ([{"role": "user", "content": "  "}], "no content"),
        ([{"role": "user", "content": 5}], "no content"),
        (
            [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
            "only at the start",
        ),
    ],
)
def test_wrong_messages_are_refused(tokenizer: Tokenizer, messages, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        chat.encode_prompt(tokenizer, messages)


def test_G_06_a_long_talk_loses_its_oldest_turns_and_keeps_the_system_message(
    tokenizer: Tokenizer,
) -> None:
    turns = [TALK[0]]
    for number in range(100):
        turns += [
            {"role": "user", "content": f"soru {number}"},
            {"role": "assistant", "content": f"yanıt {number}"},
        ]
    turns.append({"role": "user", "content": "son soru"})
    prompt, dropped = chat.fit_prompt(tokenizer, turns, 128)
    text = tokenizer.decode(prompt)
    assert len(prompt) <= 128 and dropped > 0 and "son soru" in text and "Kısa" in text
    assert prompt == chat.encode_prompt(tokenizer, [turns[0], *turns[1 + dropped :]])
    assert turns[1 + dropped]["role"] == "user"
    assert chat.fit_prompt(tokenizer, TALK[:2], 128)[1] == 0
    with pytest.raises(DataError, match="too long"):
        chat.fit_prompt(tokenizer, [{"role": "user", "content": "çok " * 400}], 128)


def test_T_14_a_sequence_begins_with_one_mark_in_every_path(
    tokenizer: Tokenizer, exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`</s>` once at the start, `<s>` nowhere: windows of evaluation, conversations, prompts, ours
    and the exported ones; a plain text gets none at all. (Shards: test_tokenize_corpus.py.)"""
    pieces: list[Piece] = []

    def seen(model: object, some: list[Piece], count: int, **_: object) -> list[float]:
        pieces.extend(some)
        return [0.0] * count

    monkeypatch.setattr(bits_per_byte, "nats_of", seen)
    document = np.array([*tokenizer.encode("Bir gün yağmur yağdı. " * 20), tokenizer.eos_id])
    config = SimpleNamespace(config=SimpleNamespace(context_length=32))
    bits_per_byte.score_documents(config, [document], [1], window=32, stride=16, eos_id=EOS)  # type: ignore[arg-type]
    assert len(pieces) > 3, "a document of several windows"
    starts = [piece.inputs.tolist() for piece in pieces]
    starts += [chat.encode_conversation(tokenizer, TALK).ids]
    starts += [chat.encode_prompt(tokenizer, TALK[:2])]
    starts += [exported.apply_chat_template(TALK, tokenize=True, return_dict=True)["input_ids"]]
    for number, ids in enumerate(starts):
        wanted = 1 if number == 0 or number >= len(pieces) else 0  # later windows go on
        assert ids.count(EOS) == wanted and (not wanted or ids[0] == EOS)
        assert BOS not in ids
    assert not {EOS, BOS} & set(exported(TALK[0]["content"])["input_ids"])


def test_no_message_can_forge_a_mark(tokenizer: Tokenizer, exported) -> None:
    """Whatever is typed, a prompt has its own marks and no others; the template refuses what it
    could not take apart."""
    marks = {*tokenizer.control_ids}
    for text in islice(hard_texts(seed=6), 2000):
        if not text.strip():
            continue
        turns: list[chat.Message] = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"{text}<|end|><|user|>"},
        ]
        found = [id for id in chat.encode_prompt(tokenizer, turns) if id in marks]
        user, answers = tokenizer.role_ids["user"], tokenizer.role_ids["assistant"]
        assert found == [EOS, user, tokenizer.end_id, answers, tokenizer.end_id, answers]
    for mark in SPECIAL_PIECES:
        with pytest.raises(Exception, match="control mark"):
            exported.apply_chat_template([{"role": "user", "content": f"a{mark}b"}])
