"""The data card: page and JSON say the same, and a model's card can tell where its text came from."""

import json
import re
from pathlib import Path

import pytest
import tiny_corpus
from tiny_corpus import STEPS, STORY

from sifirdan import runs
from sifirdan.corpus.card import (
    CARD_FILE,
    PAGE_FILE,
    card_content,
    card_page,
    carry_card,
    license_shares,
    read_card,
)
from sifirdan.corpus.ledger_file import SPLITS, read_summary
from sifirdan.corpus.model_card import data_section, model_card
from sifirdan.errors import DataError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("veri")
    tiny_corpus.make_corpus(root / "corpus", tiny_corpus.make_raw(root / "raw"))
    return root / "corpus"


def table_under(page: str, head: str) -> list[list[str]]:
    """The rows of the first table after a heading."""
    lines = page.split(f"{head}\n", 1)[1].splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows[2:]


def test_page_and_json_come_of_one_thing(corpus: Path) -> None:
    content = read_card(corpus)
    assert (corpus / PAGE_FILE).read_text(encoding="utf-8") == card_page(content)
    assert json.loads(json.dumps(content)) == content
    assert set(content["sources"]) == set(tiny_corpus.SOURCES)
    for name, account in read_summary(corpus).items():
        assert {key: content["sources"][name][key] for key in account} == account


def test_the_card_is_proved_by_hashes_and_has_no_times(corpus: Path, tmp_path: Path) -> None:
    content = read_card(corpus)
    raw = runs.read_manifest(corpus.parent / "raw")
    assert content["hashes"] == {
        "raw/manifest.json": raw.sha256,
        "ledger.parquet": runs.sha256_of(corpus / "ledger.parquet"),
    }
    again = tiny_corpus.make_corpus(tmp_path / "x", tiny_corpus.make_raw(tmp_path / "raw"))
    assert again.sha256 == runs.read_manifest(corpus).sha256


def test_the_page_tells_sources_steps_and_numbers(corpus: Path) -> None:
    page = (corpus / PAGE_FILE).read_text(encoding="utf-8")
    rows = {row[0]: row for row in table_under(page, "## Sources")}
    assert rows["haber"] == [
        "haber", "GPL-3.0", "pretraining, chat", "0", "5", "3", "reserved 1", "near_duplicate 1"
    ]  # fmt: skip
    assert "Language Institute" in page and "`clean.min_chars: 20`" in page
    assert "documents out: own 1" in page and "places mended: own 2" in page
    assert "asciified 1" in page
    order = [page.index(f"`{step.name}`: ") for step in STEPS]
    assert order == sorted(order)


def test_an_empty_split_is_not_offered_to_datasets(tmp_path: Path) -> None:
    story = [told for told in STORY if told.verdict != "ood"]
    tiny_corpus.make_corpus(tmp_path / "c", tiny_corpus.make_raw(tmp_path / "raw", story), story)
    page = (tmp_path / "c" / PAGE_FILE).read_text(encoding="utf-8")
    offered = re.findall(r"- split: (\w+)", page.split("---")[1])
    assert offered == ["train", "val", "test"]


def test_license_shares_add_up(corpus: Path) -> None:
    shares = license_shares(read_summary(corpus))
    assert sum(entry["train_share"] for entry in shares.values()) == pytest.approx(1, abs=1e-5)
    train = [told for told in STORY if told.verdict == "train"]
    assert sum(entry["train_documents"] for entry in shares.values()) == len(train)
    assert sum(e["train_chars"] for e in shares.values()) == sum(len(told.text) for told in train)
    assert "BSD-3-Clause" not in shares, "nothing under it is trained on"


def test_no_path_of_this_machine_is_published(corpus: Path) -> None:
    raw = runs.read_manifest(corpus.parent / "raw")
    raw.params["sources"]["haber"] = {
        "kind": "files", "globs": ["/home/ayşe/gizli/*.txt", "data/x/*.md"], "path": "/srv/veri",
        "license": "GPL-3.0", "revision": None,
    }  # fmt: skip
    content = card_content(raw, read_summary(corpus), read_card(corpus)["splits"], STEPS, {})
    for text in (json.dumps(content, ensure_ascii=False), card_page(content)):
        assert "gizli" not in text and "/srv" not in text
        assert "*.txt" in text and "data/x/*.md" in text and "veri" in text


def test_a_cell_cannot_break_the_table(corpus: Path) -> None:
    summary = read_summary(corpus)
    summary["own"]["license"] = "a|b\nc"
    raw = runs.read_manifest(corpus.parent / "raw")
    content = card_content(raw, summary, read_card(corpus)["splits"], STEPS, {})
    assert table_under(card_page(content), "## Sources")[0][:2] == ["own", "a\\|b c"]


def test_the_model_card_tells_of_its_training_data(corpus: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    carry_card(corpus, tokens)
    assert (tokens / CARD_FILE).read_bytes() == (corpus / CARD_FILE).read_bytes()
    section = data_section(tokens)
    assert section == data_section(corpus)
    rows = {row[0]: row for row in table_under(section, "## Training data")}
    assert set(rows) == {"own", "haber"}  # only what was trained on
    train = [told for told in STORY if told.verdict == "train"]
    chars = sum(len(told.text) for told in train if told.source == "own")
    share = f"{chars / sum(len(told.text) for told in train):.1%}"
    assert rows["own"] == ["own", "own", "13", str(chars), share]
    assert "Never trained on: `val` (1 documents), `test` (1 documents), `ood` (1" in section
    card = model_card(tokens, title="base", facts={"steps": 976})
    assert card.startswith("---\nlibrary_name: transformers\n") and card.endswith(section)
    assert "\n# base\n" in card and "| steps | 976 |" in card


@pytest.mark.parametrize("kind", ["missing", "cut", "list", "later"])
def test_a_missing_or_damaged_card_is_explained(corpus: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / CARD_FILE
    whole = (corpus / CARD_FILE).read_text(encoding="utf-8")
    if kind == "cut":
        path.write_text(whole[:-20], encoding="utf-8")
    elif kind == "list":
        path.write_text("[]", encoding="utf-8")
    elif kind == "later":
        path.write_text(whole.replace('"format_version": 1', '"format_version": 9'), "utf-8")
    with pytest.raises(DataError, match="format 1" if kind == "later" else "no data card"):
        data_section(tmp_path)


def test_datasets_loads_the_splits(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    loaded = datasets.load_dataset(str(corpus), cache_dir=str(tmp_path))
    found = {name: len(rows) for name, rows in loaded.items()}
    assert found == {s: sum(told.verdict == s for told in STORY) for s in SPLITS}
