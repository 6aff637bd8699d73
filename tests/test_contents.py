"""What is in a corpus: the numbers are those of counting by hand."""

from collections import Counter
from pathlib import Path

import pytest
import tiny_corpus
from tiny_corpus import SOURCES, STORY

from sifirdan.corpus.contents import contents, contents_lines
from sifirdan.corpus.ledger_file import SPLITS


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_corpus.make_data(tmp_path_factory.mktemp("proje"))


def test_contents_count_documents_characters_and_tokens(project: Path) -> None:
    found = contents(project / "data/corpus", project / "data/tokens")
    tokens: Counter[tuple[str, str]] = Counter()
    for told in STORY:
        tokens[told.source, told.verdict] += 1 + len(told.text.split())
    for name, account in found["sources"].items():
        assert account["in"] == sum(told.source == name for told in STORY)
        assert account["license"] == SOURCES[name][1]
        assert account["tokens"] == {split: tokens[name, split] for split in SPLITS}
        train = sum(n for (_, verdict), n in tokens.items() if verdict == "train")
        assert account["train_share"] == pytest.approx(tokens[name, "train"] / train)
    assert sum(account["train_share"] for account in found["sources"].values()) == pytest.approx(1)
    assert sum(entry["train_share"] for entry in found["licenses"].values()) == pytest.approx(1)
    shown = "\n".join(contents_lines(found))
    assert "out of haber: reserved 1, near_duplicate 1" in shown and "training tokens" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("own ")]
    assert line.split()[2:9] == ["15", "13", "0", "0", "0", "1", "1"]


def test_tokens_of_another_corpus_are_left_out_and_said(project: Path, tmp_path: Path) -> None:
    found = contents(project / "data/corpus", tmp_path / "none")
    assert found["share_of"] == "training chars" and "is not there" in found["tokens_note"]
    other = tiny_corpus.make_corpus(
        tmp_path / "corpus", tiny_corpus.make_raw(tmp_path / "raw", STORY[:20]), STORY[:20]
    )
    tiny_corpus.make_tokens(tmp_path / "tokens", tmp_path / "corpus", {"corpus": other})
    found = contents(project / "data/corpus", tmp_path / "tokens")
    assert "another corpus" in found["tokens_note"]
    assert all(account["tokens"] is None for account in found["sources"].values())
    assert "another corpus" in "\n".join(contents_lines(found))
