"""The stage prepare_chat on a tiny real corpus: sets, masks, limits, missing sources."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sifirdan import runs
from sifirdan.chat import encode_conversation, encode_prompt
from sifirdan.config import load_params
from sifirdan.corpus.records import PartWriter, Record, document
from sifirdan.corpus.shards import Shards
from sifirdan.errors import ConfigError, DataError
from sifirdan.text import lower_tr
from sifirdan.tokenizer import Tokenizer
from stages import clean, prepare_chat, train_tokenizer

DATA = Path(__file__).parent / "data"
PARAMS = prepare_chat.Params(
    seed=1,
    caps=dict.fromkeys(prepare_chat._CAPPED, 60),
    heldout_templates=2,
    known_words=40,
    unseen_words=40,
    min_uses=2,
    counted_chars=1_000_000,
    max_answer_chars=160,
    max_tokens=256,
    handwritten_copies=2,
    own_messages="no such folder",
)
PROVINCE = {
    "province": "Muş",
    "plate": 49,
    "region": "Doğu Anadolu",
    "districts": ["Bulanık", "Hasköy"],
}


def paragraphs() -> list[str]:
    texts = (path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*.txt")))
    return [part for text in texts for part in text.split("\n\n")]


def entries() -> list[Record]:
    """A dictionary made of our own text: words, each explained by a sentence that uses it."""
    found: dict[str, str] = {}
    for sentence in re.findall(r"[A-ZÇĞİÖŞÜ][^.!?“”—()]{30,90}\.", " ".join(paragraphs())):
        word = max(re.findall(r"\w+", lower_tr(sentence)), key=len)
        found.setdefault(word, sentence)
    return [
        Record(
            f"entry-{word}",
            f"{word} (isim): {sentence}",
            {
                "headwords": [word],
                "pos": "n",
                "definition": sentence,
                "examples": [sentence],
                "antonyms": [],
                "english": [f"word {number}"],
            },
        )
        for number, (word, sentence) in enumerate(found.items())
    ]


def make_raw(raw: Path, *, with_chat: bool) -> None:
    sources = {"own": ([Record(str(i), t, {}) for i, t in enumerate(paragraphs())], "own")}
    uses = {"own": ["pretraining"]}
    if with_chat:
        turns = {"turns": ["Orada mısın?", "Buradayım"], "alternatives": False}
        answer = {"question": "Su kaç derecede donar?", "answer": "Sıfır derecede donar"}
        sources["words"] = (entries(), "GPL-3.0")
        sources["places"] = ([Record("muş", "Muş bir ildir.", PROVINCE)], "MIT")
        sources["talk"] = (
            [Record("t", "x", turns), Record("q", "x", answer), Record("n", "x", {})],
            "BSD-3-Clause",
        )
        uses |= {"words": ["pretraining", "chat"], "places": ["chat"], "talk": ["chat"]}
    with runs.new_folder(raw, kind="raw", inputs={}, params={}) as output:
        for name, (records, license) in sources.items():
            with PartWriter(output.path / name) as writer:
                for record in records:
                    writer.add(document(record, source=name, license=license))
            output.counts[name] = {
                "documents": len(records),
                "chars": sum(len(record.text) for record in records),
                "license": license,
                "uses": uses[name],
                "reader": name,
                "text_kind": "curated",
                "bad_records": 0,
                "not_read": 0,
                "left_out": False,
            }


def make_inputs(folder: Path, *, with_chat: bool) -> tuple[Path, Path, Path]:
    raw, corpus, tokenizer = folder / "raw", folder / "corpus", folder / "tokenizer"
    make_raw(raw, with_chat=with_chat)
    settings = load_params(Path("params.yaml"), "clean", clean.Params)
    clean.clean(raw, corpus, folder / "report", settings, 1)
    params = load_params(Path("params.yaml"), "train_tokenizer", train_tokenizer.Params)
    train_tokenizer.train_tokenizer(corpus, tokenizer, replace(params, vocab_size=1000))
    return raw, corpus, tokenizer


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return make_inputs(tmp_path_factory.mktemp("inputs"), with_chat=True)


@pytest.fixture(scope="module")
def chat(inputs: tuple[Path, Path, Path]) -> Path:
    out = inputs[0].parent / "chat"
    prepare_chat.prepare_chat(*inputs, out, PARAMS)
    return out


def read(chat: Path, name: str) -> list[dict]:
    lines = (chat / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def test_four_sets_lie_there_as_messages_and_as_shards_of_the_same_rows(chat: Path):
    manifest = runs.open_folder(chat, "chat", made_by="prepare_chat")
    for name in prepare_chat.SETS:
        rows, shards = read(chat, name), Shards(chat / name)
        counts = manifest.counts[name]
        assert len(rows) == len(shards) == counts["documents"] > 0, name
        assert shards.num_tokens == counts["tokens"]
        assert shards.column("document") == [row["id"] for row in rows]
        assert shards.column("source") == [row["source"] for row in rows]
        assert sum(counts["types"].values()) == len(rows)
    assert set(rows[0]) == {
        "id", "type", "source", "license", "template", "template_heldout", "messages",
    }  # fmt: skip
    types = manifest.counts["train"]["types"]
    assert {"definition", "sentence", "english", "plate", "qa", "talk", "identity"} <= set(types)


def test_F_02_targets_are_exactly_the_assistants_content_and_end_mark(
    chat: Path, inputs: tuple[Path, Path, Path]
):
    tokenizer = Tokenizer.load(inputs[2])
    for name in prepare_chat.SETS:
        shards = Shards(chat / name)
        for index, row in enumerate(read(chat, name)):
            ids, mask = shards.tokens(index).tolist(), shards.loss_mask(index).tolist()
            answers, open_answer = [], []
            for token, target in zip(ids, mask, strict=True):
                if target and token == tokenizer.end_id:
                    answers.append(tokenizer.decode(open_answer))
                    open_answer = []
                elif target:
                    open_answer.append(token)
            spoken = [m["content"] for m in row["messages"] if m["role"] == "assistant"]
            assert answers == spoken and not open_answer
            assert ids[-1] == tokenizer.end_id and mask[-1] == 1


def test_F_02_golden_mask_of_one_conversation(inputs: tuple[Path, Path, Path]):
    tokenizer = Tokenizer.load(inputs[2])
    turns = ["7 kaç?", "Yedi.", "🙂", "1."]
    roles = ["user", "assistant", "user", "assistant"]
    encoded = encode_conversation(
        tokenizer, [{"role": r, "content": c} for r, c in zip(roles, turns, strict=True)]
    )
    ids, mask = [tokenizer.eos_id], [0]
    for role, text in zip(roles, turns, strict=True):
        content = tokenizer.encode(text)
        ids += [tokenizer.role_ids[role], *content, tokenizer.end_id]
        mask += [0, *[int(role == "assistant")] * (len(content) + 1)]
    assert encoded.ids == ids and encoded.loss_mask == mask


def test_F_07_a_training_row_up_to_its_answer_is_the_prompt_of_inference(
    chat: Path, inputs: tuple[Path, Path, Path]
):
    tokenizer = Tokenizer.load(inputs[2])
    shards = Shards(chat / "train")
    for index, row in enumerate(read(chat, "train")):
        prompt = encode_prompt(tokenizer, row["messages"][:-1])
        assert shards.tokens(index)[: len(prompt)].tolist() == prompt


def test_no_word_is_in_two_sets_and_evaluation_uses_held_out_wordings(chat: Path):
    answers = {
        name: {r["messages"][-1]["content"] for r in read(chat, name)} for name in SETS_OF_WORDS
    }
    assert not answers["train"] & answers["known"]
    assert not answers["train"] & answers["unseen"]
    assert not answers["known"] & answers["unseen"]
    assert not any(row["template_heldout"] for row in read(chat, "train"))
    assert {row["template_heldout"] for row in read(chat, "known")} == {True, False}


SETS_OF_WORDS = ("train", "known", "unseen")


def test_sources_and_licences_stay_with_each_row(chat: Path):
    found = {row["type"]: (row["source"], row["license"]) for row in read(chat, "train")}
    assert found["definition"] == ("words", "GPL-3.0")
    assert found["plate"] == ("places", "MIT")
    assert found["greeting"] == ("handwritten", "Apache-2.0")


def test_drops_are_counted_by_type_and_reason(inputs: tuple[Path, Path, Path], tmp_path: Path):
    metrics = prepare_chat.prepare_chat(*inputs, tmp_path / "chat", PARAMS)
    dropped = metrics["dropped"]
    assert dropped["talk/nothing_to_ask"] == 1
    assert dropped["definition/not_pretrained_on"] > 0
    asked = sum(metrics["sets"][name]["types"]["definition"] for name in SETS_OF_WORDS)
    gone = sum(count for reason, count in dropped.items() if reason.startswith("definition/"))
    assert asked + gone == len(entries())


def test_the_same_inputs_give_the_same_bytes_whatever_the_hash_seed(
    chat: Path, inputs: tuple[Path, Path, Path], tmp_path: Path
):
    code = (
        "from pathlib import Path; from stages import prepare_chat; from tests import "
        "test_prepare_chat as t; import sys; prepare_chat.prepare_chat(*map(Path, sys.argv[1:]), t.PARAMS)"
    )
    out = tmp_path / "chat"
    subprocess.run(
        [sys.executable, "-c", code, *map(str, inputs), str(out)],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert (out / "manifest.json").read_bytes() == (chat / "manifest.json").read_bytes()


def test_own_messages_all_go_to_train(inputs: tuple[Path, Path, Path], tmp_path: Path):
    own = tmp_path / "own_chat"
    own.mkdir()
    messages = [
        {"role": "system", "content": "Kısa yanıt ver."},
        {"role": "user", "content": "Kapı açık mı?"},
        {"role": "assistant", "content": "Açık."},
    ]
    (own / "a.jsonl").write_text(json.dumps({"messages": messages}), encoding="utf-8")
    params = replace(PARAMS, own_messages=str(own))
    prepare_chat.prepare_chat(*inputs, tmp_path / "chat", params)
    rows = [row for row in read(tmp_path / "chat", "train") if row["source"] == "own"]
    assert [row["messages"] for row in rows] == [messages]


def test_F_06_too_long_examples_are_dropped_and_counted(
    inputs: tuple[Path, Path, Path], tmp_path: Path
):
    params = replace(PARAMS, max_tokens=40)
    metrics = prepare_chat.prepare_chat(*inputs, tmp_path / "chat", params)
    assert metrics["dropped"]["definition/over_max_tokens"] > 0
    assert Shards(tmp_path / "chat" / "train").lengths.max() <= 40


def test_F_06_a_set_that_is_too_long_as_a_whole_is_an_error(
    inputs: tuple[Path, Path, Path], tmp_path: Path
):
    with pytest.raises(DataError, match="examples of 'train' are longer than 5 tokens"):
        prepare_chat.prepare_chat(*inputs, tmp_path / "chat", replace(PARAMS, max_tokens=5))
    assert not (tmp_path / "chat").exists()


def test_own_text_alone_gives_hand_written_turns_and_empty_word_sets(tmp_path: Path):
    inputs = make_inputs(tmp_path, with_chat=False)
    metrics = prepare_chat.prepare_chat(*inputs, tmp_path / "chat", PARAMS)
    sets = metrics["sets"]
    assert sets["train"]["documents"] > 0 and sets["handwritten"]["documents"] > 0
    assert sets["known"]["documents"] == sets["unseen"]["documents"] == 0
    assert len(Shards(tmp_path / "chat" / "known")) == 0
    assert read(tmp_path / "chat", "unseen") == []
    assert {row["source"] for row in read(tmp_path / "chat", "train")} == {"handwritten"}


def test_a_corpus_made_from_another_raw_folder_is_refused(
    inputs: tuple[Path, Path, Path], tmp_path: Path
):
    make_raw(tmp_path / "raw", with_chat=False)
    with pytest.raises(DataError, match="was made with another raw"):
        prepare_chat.prepare_chat(tmp_path / "raw", *inputs[1:], tmp_path / "chat", PARAMS)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"caps": {"definition": 1}}, "prepare_chat.caps is"),
        ({"caps": PARAMS.caps | {"idiom": -1}}, "prepare_chat.caps.idiom"),
        ({"heldout_templates": 0}, "prepare_chat.heldout_templates"),
        ({"heldout_templates": 9}, "prepare_chat.heldout_templates"),
        ({"known_words": -1}, "prepare_chat.known_words"),
        ({"unseen_words": -1}, "prepare_chat.unseen_words"),
        ({"min_uses": -1}, "prepare_chat.min_uses"),
        ({"counted_chars": -1}, "prepare_chat.counted_chars"),
        ({"max_answer_chars": 0}, "prepare_chat.max_answer_chars"),
        ({"max_tokens": 0}, "prepare_chat.max_tokens"),
        ({"handwritten_copies": 0}, "prepare_chat.handwritten_copies"),
    ],
)
def test_bad_settings_are_refused_by_name(change: dict, key: str):
    with pytest.raises(ConfigError, match=re.escape(key)):
        replace(PARAMS, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"caps": dict.fromkeys(prepare_chat._CAPPED, 5)},
        {"heldout_templates": 1},
        {"known_words": 5},
        {"unseen_words": 2},
        {"max_answer_chars": 60},
        {"handwritten_copies": 1},
    ],
)
def test_every_setting_changes_the_data(
    chat: Path, inputs: tuple[Path, Path, Path], tmp_path: Path, change: dict
):
    prepare_chat.prepare_chat(*inputs, tmp_path / "chat", replace(PARAMS, **change))
    one, other = (runs.read_manifest(folder).files for folder in (chat, tmp_path / "chat"))
    assert one != other


@pytest.mark.parametrize("change", [{"min_uses": 0}, {"counted_chars": 0}])
def test_where_caps_bind_words_in_use_are_taught_first(
    inputs: tuple[Path, Path, Path], tmp_path: Path, change: dict
):
    tight = replace(PARAMS, caps=dict.fromkeys(prepare_chat._CAPPED, 3), min_uses=5)
    prepare_chat.prepare_chat(*inputs, tmp_path / "one", tight)
    prepare_chat.prepare_chat(*inputs, tmp_path / "other", replace(tight, **change))
    one, other = ((tmp_path / name / "train.jsonl").read_text() for name in ("one", "other"))
    assert one != other
