"""Lossless, equal to its Hugging Face twin, and no text can make a control id."""

import hashlib
import io
import json
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from transformers import AutoTokenizer

from sifirdan import chat
from sifirdan import tokenizer as tokenizer_module
from sifirdan.config import read_yaml
from sifirdan.errors import DataError
from sifirdan.evals.hard_texts import PROBES, hard_texts
from sifirdan.tokenizer import (
    MODEL_FILE,
    NUM_SPECIAL_IDS,
    SCORE_STEP,
    Method,
    StreamDecoder,
    Tokenizer,
    plain,
)
from sifirdan.tokenizer_files import require_twin, save_hugging_face, save_readable
from sifirdan.tokenizer_training import train, training_lines

HARD = [
    *PROBES, "  iki  boşluk  ", "satır\r\nsonu\0son", "漢字 العربية", "\ufffd", "1923'te 12.345,67",
    "ÇOCUK ŞANLIURFA'DAN GELENLERİ ÖĞÜN OLARAK YİYOR", "\u2585\t\u2047",
]  # fmt: skip


@pytest.fixture(scope="module")
def unigram(texts: list[str]) -> Tokenizer:
    return Tokenizer(train(texts, 800, "unigram")[0])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer):
    folder = tmp_path_factory.mktemp("hf")
    save_hugging_face(folder, tokenizer, chat.TEMPLATE, 128)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def exported_unigram(tmp_path_factory: pytest.TempPathFactory, unigram: Tokenizer):
    folder = tmp_path_factory.mktemp("hf")
    save_hugging_face(folder, unigram, chat.TEMPLATE, 128)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", HARD)
def test_T_03_T_04_round_trip_is_exact(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("method", ["bpe", "unigram"])
def test_T_03_T_10_T_11_every_text_comes_back_and_the_export_agrees(
    method: str, request: pytest.FixtureRequest, texts: list[str]
) -> None:
    """5,000 random texts of all Unicode; `python -m bench.lossless` does a million."""
    ours = request.getfixturevalue("tokenizer" if method == "bpe" else "unigram")
    twin = request.getfixturevalue("exported" if method == "bpe" else "exported_unigram")
    some = [*HARD, *texts, *islice(hard_texts(seed=3), 5000)]
    theirs = twin(some, split_special_tokens=True)["input_ids"]
    for text, ids, other in zip(some, ours.encode_many(some), theirs, strict=True):
        assert ids == other, repr(text)
        assert twin.decode(other) == ours.decode(ids) == text
        assert not set(ids) & ours.control_ids, repr(text)


def test_unigram_agrees_with_its_export_on_endless_words(
    unigram: Tokenizer, exported_unigram
) -> None:
    """Sums of scores over thousands of pieces would be rounded to another choice now and then."""
    rng = random.Random(2)
    pieces = [piece.piece.strip("▁") for piece in unigram.proto.pieces if piece.type == 1]
    for length in [2000] * 60 + [100] * 200:
        text = "".join(rng.choice(pieces) for _ in range(length)) + " " * rng.randrange(60) + "son"
        ids = unigram.encode(text)
        assert ids == exported_unigram(text, split_special_tokens=True)["input_ids"]
        assert unigram.decode(ids) == text


def test_unigram_agrees_with_its_export_where_two_cuts_score_alike(
    unigram: Tokenizer, exported_unigram
) -> None:
    """iii is ii and i or i and ii: equal sums, if none is rounded, and then the same choice."""
    pieces = [plain(piece.piece) for piece in unigram.proto.pieces if piece.type == 1]
    some = [piece * count for piece in pieces for count in (2, 3, 5, 17)]
    some += [f"ha{letter * count}" for letter in "aeiın-.*# " for count in range(2, 90)]
    theirs = exported_unigram(some, split_special_tokens=True)["input_ids"]
    assert unigram.encode_many(some) == theirs
    scores = [piece.score for piece in unigram.proto.pieces]
    assert all(score == round(score / SCORE_STEP) * SCORE_STEP for score in scores)


@pytest.mark.parametrize("method", ["bpe", "unigram"])
def test_text_without_a_space_still_teaches_one(method: Method, tmp_path: Path) -> None:
    trained = Tokenizer(
        train(["漢字かな" * 30, "ไทย" * 20, "a\tb\tc"] * 5, 300, method, exact=False)[0]
    )
    save_hugging_face(tmp_path, trained, chat.TEMPLATE)
    require_twin(tmp_path, trained, [*PROBES, *islice(hard_texts(seed=7), 300)])


def test_words_encoded_one_by_one_are_what_sentencepiece_gives_for_the_whole(
    tokenizer: Tokenizer, model_bytes: bytes, texts: list[str]
) -> None:
    whole = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    some = [text for text in [*texts, *islice(hard_texts(seed=4), 3000)] if "▁" not in text]
    assert tokenizer.encode_many(some) == whole.encode(some)
    assert [tokenizer.encode(text) for text in some[:500]] == whole.encode(some[:500])


def test_ids_do_not_depend_on_what_was_encoded_before(
    model_bytes: bytes, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    wanted = Tokenizer(model_bytes).encode_many(texts)
    monkeypatch.setattr(tokenizer_module, "_KNOWN_CHARS", 50)  # forgets after nearly every call
    monkeypatch.setattr(tokenizer_module, "_GROUP_CHARS", 300)  # and cuts up long texts
    forgetful = Tokenizer(model_bytes)
    for _ in range(2):
        assert forgetful.encode_many(texts) == wanted
    assert forgetful.encode_many(["\n\n".join(texts), "ş" * 2000, " " * 2000]) == Tokenizer(
        model_bytes
    ).encode_many(["\n\n".join(texts), "ş" * 2000, " " * 2000])


def test_a_piece_that_mixes_letters_and_marks_is_never_cut(texts: list[str]) -> None:
    """İ as I and a combining dot: no pattern of letters holds both, so the coarser one is used."""
    tokenizer = Tokenizer(train([*texts, "I\u0307stanbul I\u0307zmir " * 200], 900)[0])
    mixed = [p.piece for p in tokenizer.proto.pieces if "\u0307" in p.piece and len(p.piece) > 2]
    assert mixed, "the corpus teaches such pieces"
    whole = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto.SerializeToString())
    some = [text for text in islice(hard_texts(seed=5), 1000) if "▁" not in text]
    assert tokenizer.encode_many(some) == whole.encode(some)


def test_text_right_after_a_mark_is_the_same_in_both(tokenizer: Tokenizer, exported) -> None:
    for text in ("Merhaba", " boşlukla", "\nsatır", "1", "🙂"):
        theirs = exported(f"<|user|>{text}<|end|>")["input_ids"]
        assert theirs == [tokenizer.role_ids["user"], *tokenizer.encode(text), tokenizer.end_id]


def test_T_14_special_ids_agree_and_no_mark_is_added(tokenizer: Tokenizer, exported) -> None:
    assert exported.eos_token_id == exported.bos_token_id == tokenizer.eos_id
    assert exported.pad_token_id == tokenizer.pad_id != tokenizer.eos_id
    assert len(exported) == tokenizer.vocab_size
    assert exported("Merhaba")["input_ids"] == tokenizer.encode("Merhaba"), (
        "no BOS, no EOS added (T-14)"
    )


def test_the_same_text_gives_the_same_bytes_in_another_process(
    model_bytes: bytes, texts: list[str], tmp_path: Path
) -> None:
    script = (
        "import sys, json, hashlib; from sifirdan.tokenizer_training import train;"
        "print(hashlib.sha256(train(json.load(sys.stdin), 800)[0]).hexdigest())"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(texts), capture_output=True, text=True, check=True,
        cwd=tmp_path, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "5"},
    )  # fmt: skip
    assert done.stdout.strip() == hashlib.sha256(model_bytes).hexdigest()


def test_T_01_T_02_long_lines_are_cut_and_none_is_skipped(texts: list[str]) -> None:
    rare = "".join(chr(0x10A0 + i) for i in range(30))  # letters that stand in one long line only
    long_line = "uzun " * 4000 + rare + "ş" * 70_000
    model, counts = train([*texts, long_line], 900)
    assert counts["skipped_lines"] == 0
    assert "".join(training_lines([long_line])) == long_line
    pieces = {piece.piece for piece in Tokenizer(model).proto.pieces}
    assert set(rare) <= pieces


def test_reserved_characters_cost_no_text(texts: list[str]) -> None:
    lines = list(training_lines(["önce▅sonra\tara\0son▁uç\nyeni"]))
    assert lines == ["önce", "sonra", "ara", "son", "uç", "yeni"]


def test_T_06_a_vocabulary_too_large_or_too_small_is_explained(texts: list[str]) -> None:
    with pytest.raises(DataError, match=r"at most \d+"):
        train(["kısa bir metin"] * 10, 32_000)
    with pytest.raises(DataError, match=r"too small(.|\n)*at least 66\d"):
        train(["".join(map(chr, range(0x4E00, 0x4E00 + 400)))] * 3, 300)
    with pytest.raises(DataError, match="no text"):
        train([], 1000)
    with pytest.raises(DataError, match=r"at most \d+"):
        train(["kısa bir metin"] * 10, 32_000, "unigram")


def test_T_08_no_setting_promises_threads_that_bpe_would_not_use(model_bytes: bytes) -> None:
    assert Tokenizer(model_bytes).proto.trainer_spec.num_threads == 1
    section = read_yaml(Path(__file__).parent.parent / "params.yaml")["train_tokenizer"]
    assert not [key for key in section if "thread" in key or "worker" in key]


def flags(**others: object) -> dict[str, object]:
    """Settings of the trainer that pass, but for `others`."""
    return {
        "model_type": "bpe", "vocab_size": 500, "byte_fallback": True, "add_dummy_prefix": False,
        "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "split_digits": True,
        "allow_whitespace_only_pieces": True, "unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": 3,
        "pad_piece": "<pad>", "control_symbols": "<|system|>,<|user|>,<|assistant|>,<|end|>",
        "hard_vocab_limit": False, "minloglevel": 2,
    } | others  # fmt: skip


def trained_with(texts: list[str], **others: object) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=training_lines(texts), model_writer=model, **flags(**others)
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"normalization_rule_name": "nmt_nfkc"}, "other flags .*nmt_nfkc"),
        ({"add_dummy_prefix": True}, "other flags .*add_dummy_prefix"),
        ({"remove_extra_whitespaces": True}, "other flags .*remove_extra_whitespaces"),
        ({"byte_fallback": False}, "other flags .*byte_fallback"),
        ({"split_by_whitespace": False}, "other flags .*split_by_whitespace"),
        ({"model_type": "char"}, "other flags"),
        ({"eos_piece": "<eos>"}, "first pieces are .*<eos>"),  # T-15: the end of text is not ours
        ({"control_symbols": "<|user|>,<|system|>,<|assistant|>,<|end|>"}, "first pieces"),
        ({"user_defined_symbols": "<br>"}, "1 defined by a user"),
    ],
)
def test_T_03_T_15_models_with_other_flags_or_marks_are_refused(
    texts: list[str], others: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Tokenizer(trained_with(texts, **others))


def test_a_model_with_the_right_flags_is_taken_wherever_it_was_trained(texts: list[str]) -> None:
    assert (
        Tokenizer(trained_with(texts)).decode(Tokenizer(trained_with(texts)).encode("x ▁")) == "x ▁"
    )


def test_a_piece_that_reaches_over_the_start_of_a_word_is_refused(unigram: Tokenizer) -> None:
    for piece in ("a▁b", "a\nb", "a<b"):
        changed = type(unigram.proto).FromString(unigram.proto.SerializeToString())
        changed.pieces[-1].piece = piece
        with pytest.raises(DataError, match="reaches over the place before a word"):
            Tokenizer(changed.SerializeToString())


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a SentencePiece model"):
        Tokenizer(b"\xff\xff\xff")
    with pytest.raises(DataError, match="holds no pieces"):
        Tokenizer(b"")
    with pytest.raises(DataError, match="no such file"):
        Tokenizer.load(tmp_path)
    (tmp_path / MODEL_FILE).mkdir()
    with pytest.raises(DataError, match="tokenizer.model: Is a directory"):
        Tokenizer.load(tmp_path)


def test_T_10_a_twin_that_differs_is_refused(
    texts: list[str], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    other = Tokenizer(train(texts[: len(texts) // 2], 800)[0])
    save_hugging_face(tmp_path, other, chat.TEMPLATE)
    with pytest.raises(DataError, match="in another way"):
        require_twin(tmp_path, tokenizer, texts)
    save_hugging_face(tmp_path, Tokenizer(train(texts, 700)[0]), chat.TEMPLATE)
    with pytest.raises(DataError, match="AutoTokenizer has 700 ids"):
        require_twin(tmp_path, tokenizer, texts)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_T_07_the_estimate_of_memory_covers_what_training_takes(texts: list[str]) -> None:
    """Words that are all new, the costliest text there is; measured in a process of its own."""
    script = (
        "import json, random, sys; from sifirdan.tokenizer_training import *;"
        "rng = random.Random(1);"
        "used = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024;"
        "words = [''.join(rng.choice('abcçdeıioöklmnrstuüyz') for _ in range(8)) for _ in range(200_000)];"
        "text = [' '.join(words[i:i+100]) for i in range(0, len(words), 100)]; before = used();"
        "train(text, 2000, sys.argv[1]); size = sum(len(t.encode()) for t in text);"
        "print(json.dumps([used() - before, memory_needed(size, size)]))"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script, "bpe"], capture_output=True, text=True, check=True, cwd=root
    )
    taken, estimate = json.loads(done.stdout)
    assert taken < estimate < 5 * taken


def test_a_lone_surrogate_is_refused_by_place(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="U\\+D83D, at character 3"):
        tokenizer.encode("abc\ud83d")


def test_T_12_G_05_streamed_pieces_join_to_the_whole(tokenizer: Tokenizer) -> None:
    rng = random.Random(11)
    byte_ids = [
        index for index, piece in enumerate(tokenizer.proto.pieces)
        if piece.type == model_pb2.ModelProto.SentencePiece.BYTE
    ]  # fmt: skip
    sequences = [[rng.randrange(tokenizer.vocab_size) for _ in range(30)] for _ in range(300)]
    sequences += [[rng.choice(byte_ids) for _ in range(12)] for _ in range(300)]
    sequences += [tokenizer.encode(text) for text in HARD] + [tokenizer.encode("🙂🙂")[:-1]]
    for ids in sequences:
        decoder = StreamDecoder(tokenizer)
        pieces = [decoder.push(token) for token in ids] + [decoder.flush()]
        assert "".join(pieces) == tokenizer.decode(ids), ids
    decoder = StreamDecoder(tokenizer)
    shown = [decoder.push(token) for token in tokenizer.encode("🙂")]
    assert shown[-1] == "🙂" and not any(shown[:-1])


def test_readable_vocabulary_has_a_line_a_piece(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_readable(tmp_path, tokenizer)
    lines = (tmp_path / "tokenizer.vocab").read_text(encoding="utf-8").split("\n")
    assert len(lines) == tokenizer.vocab_size + 1
    assert (tmp_path / MODEL_FILE).exists() is False
    assert len(tokenizer.control_ids) == NUM_SPECIAL_IDS
