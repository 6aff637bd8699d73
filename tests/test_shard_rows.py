"""Every row of a token shard leads to where it comes from."""

import json
from pathlib import Path

import pytest
import tiny_corpus
from tiny_corpus import STORY

from sifirdan import runs
from sifirdan.corpus import shards
from sifirdan.corpus.ledger_file import SPLITS
from sifirdan.corpus.shard_rows import shard_row, shard_row_lines, token_counts
from sifirdan.errors import DataError

ROWS = tiny_corpus.ledger_rows()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus.make_data(tmp_path_factory.mktemp("proje"))


def test_token_counts_are_those_of_the_shards(project: Path) -> None:
    counted = token_counts(project / "data/tokens")
    for split in SPLITS:
        held = shards.Shards(project / "data/tokens" / split)
        assert counted[split].total() == held.num_tokens
    assert len(list((project / "data/tokens/train").glob("*.arrow"))) > 2


def test_every_shard_row_leads_to_its_document(project: Path) -> None:
    seen = []
    for path in sorted((project / "data/tokens/train").glob("*.arrow")):
        for number in range(len(shards.Shards(path.parent))):
            try:
                found = shard_row(f"{path}:{number}")
            except DataError as error:
                assert "has no row" in str(error)
                break
            seen.append(found["document"])
            row = next(row for row in ROWS if row.id == found["document"])
            assert (found["source"], found["license"], found["origin"]) == (
                row.source, row.license, row.origin
            )  # fmt: skip
            assert found["verdict"] == "train" and found["num_tokens"] > 1
            assert row.origin in "\n".join(shard_row_lines(found))
    assert seen == [row.id for row in ROWS if row.verdict == "train"]


def test_a_row_of_chat_leads_to_its_messages(project: Path, tmp_path: Path) -> None:
    with runs.new_folder(tmp_path / "chat", kind="chat", inputs={}, params={}) as output:
        (output.path / "known").mkdir()
        rows = [shards.Row([1, 2], f"qa-{n}", "haber", 9, [0, 1]) for n in range(3)]
        shards.write(output.path / "known/part-00000.arrow", rows, vocab_size=9, loss_mask=True)
        lines = [
            {"id": f"qa-{n}", "type": "qa", "license": "GPL-3.0",
             "messages": [{"role": "user", "content": f"{n}. soru?"}]}
            for n in range(3)
        ]  # fmt: skip
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        runs.write_text(output.path / "known.jsonl", text)
    found = shard_row(f"{tmp_path}/chat/known/part-00000.arrow:1")
    assert found["document"] == "qa-1" and found["license"] == "GPL-3.0"
    assert "user      1. soru?" in "\n".join(shard_row_lines(found))
    twin = tmp_path / "chat/known.jsonl"
    twin.write_bytes(twin.read_bytes().replace(b'{"id": "qa-1"', b'{"id" "qa-1"'))
    with pytest.raises(DataError, match=r"known\.jsonl:2: is damaged: line 1, column"):
        shard_row(f"{tmp_path}/chat/known/part-00000.arrow:1")


def test_a_row_that_is_not_there_is_explained(project: Path, tmp_path: Path) -> None:
    train = project / "data/tokens/train"
    for place, message in (
        (f"{train}/part-00000.arrow:999", r"a row from 0 to \d+"),
        (f"{train}/part-0.arrow:1", r"did you mean .*part-00000\.arrow"),
        (f"{train}/part-00000.arrow", "FILE:ROW"),
        (f"{train}/part-00000.arrow:-1", "FILE:ROW"),
        (":5", "FILE:ROW"),
    ):
        with pytest.raises(DataError, match=message):
            shard_row(place)
    tiny_corpus.make_data(tmp_path, STORY)
    raw = tiny_corpus.make_raw(tmp_path / "data/raw", STORY[:20])
    tiny_corpus.make_corpus(tmp_path / "data/corpus", raw, STORY[:20])
    with pytest.raises(DataError, match="another corpus"):
        shard_row(f"{tmp_path}/data/tokens/train/part-00000.arrow:0")
