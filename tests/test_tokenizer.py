"""Lossless, equal to its Hugging Face twin, and no text can make a control id."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from transformers import AutoTokenizer

from sifirdan import chat
from sifirdan import tokenizer as tokenizer_module
from sifirdan.errors import DataError
from sifirdan.tokenizer import (
    MODEL_FILE,
    StreamDecoder,
    Tokenizer,
    save_hugging_face,
    save_readable,
    train,
    training_lines,
)

HARD = [
    "", " ", "  iki  boşluk  ", "a\n\n  b\tc ", "10 m² ½ … № ﬁ", "satır\r\nsonu\0son", "x▁y ▁▁ ▁",
    "ÇOCUK ŞANLIURFA'DAN GELENLERİ ÖĞÜN OLARAK YİYOR", "I\u0307stanbul s\u0327", "🙂🙂 👩‍👩‍👧", "<|user|></s><unk><0x0A>",
    "x != y , evet ! Ankara 'da", "漢字 العربية", "\ufffd", "1923'te 12.345,67", "\u2585\t\u2047",
]  # fmt: skip


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer):
    folder = tmp_path_factory.mktemp("hf")
    save_hugging_face(folder, tokenizer, chat.TEMPLATE, 128)
    return AutoTokenizer.from_pretrained(folder)


def random_text(rng: random.Random) -> str:
    letters = "abcçdefgğhıiIİjklmnoöprsştuüvyz ''’\n\t.,!?019▁🙂éâ<|>/" + chr(
        rng.randrange(1, 0xD7FF)
    )
    return "".join(rng.choice(letters) for _ in range(rng.randint(0, 40)))


@pytest.mark.parametrize("text", HARD)
def test_T_03_T_04_round_trip_is_exact(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_T_10_T_11_ids_and_text_equal_the_exported_tokenizer(
    tokenizer: Tokenizer, exported, texts
) -> None:
    rng = random.Random(3)
    for text in [*HARD, *texts, *(random_text(rng) for _ in range(3000))]:
        ids = tokenizer.encode(text)
        theirs = exported(text, split_special_tokens=True)["input_ids"]
        assert ids == theirs, repr(text)
        assert exported.decode(theirs) == tokenizer.decode(ids) == text
        assert not set(ids) & tokenizer.control_ids


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
        "import sys, json, hashlib; from sifirdan.tokenizer import train;"
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
    with pytest.raises(DataError, match="too small"):
        train(["".join(map(chr, range(0x4E00, 0x4E00 + 400)))] * 3, 300)
    with pytest.raises(DataError, match="no text"):
        train([], 1000)


def test_other_models_are_refused(texts: list[str], tmp_path: Path) -> None:
    import io

    lossy = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=lossy, model_type="bpe", vocab_size=500,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(DataError, match="other flags"):
        Tokenizer(lossy.getvalue())
    with pytest.raises(DataError, match="not a SentencePiece model"):
        Tokenizer(b"\xff\xff\xff")
    with pytest.raises(DataError, match="no such file"):
        Tokenizer.load(tmp_path)


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
    assert len(tokenizer.control_ids) == tokenizer_module.NUM_SPECIAL_IDS
