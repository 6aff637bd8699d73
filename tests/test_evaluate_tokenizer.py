"""The report card as a stage: everything in one table, the same bytes each time."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import corpora
import hub_fixture
import pytest
from hub_repositories import repository_of

from sifirdan import runs
from sifirdan.errors import ConfigError, DataError
from stages import evaluate_tokenizer as card_stage
from stages import train_tokenizer as tokenizer_stage

PARAMS = card_stage.Params(
    seed=1, baseline_bytes=10**9, chains_a_stem=5, documents_a_domain=50, published=[]
)
TOKENIZER = tokenizer_stage.Params("bpe", 700, 10**9, {}, seed=1)
BASELINES = {
    "SentencePiece Unigram", "byte-level BPE, GPT-4 split", "byte pairs from scratch", "words", "characters",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A corpus and a tokenizer that learned from all of it."""
    folder = tmp_path_factory.mktemp("card")
    corpora.write_jsonl(folder / "own/paragraphs.jsonl", texts)
    corpora.clean(corpora.ingest(folder), folder / "corpus")
    tokenizer_stage.train_tokenizer(folder / "corpus", folder / "tokenizer", TOKENIZER)
    return folder


def card(place: Path, out: Path, params: card_stage.Params = PARAMS) -> card_stage.Findings:
    return card_stage.evaluate_tokenizer(place / "tokenizer", place / "corpus", out, params)


def test_ours_and_all_baselines_stand_in_one_table(place: Path, tmp_path: Path) -> None:
    found = card(place, tmp_path / "card")
    assert found.rows[0].name == "sifirdan"
    assert {row.name for row in found.rows[1:]} == BASELINES
    by_name = found.metrics["tokenizers"]
    reference = dict(by_name["byte-level BPE, GPT-4 split"])
    assert by_name["byte pairs from scratch"] == reference, "the same merges, the same measures"
    assert by_name["words"]["unknown_share"] > 0.05 > by_name["characters"]["unknown_share"]
    assert by_name["characters"]["suffix_recall"] == 1 and by_name["words"]["suffix_recall"] == 0
    ours = by_name["sifirdan"]
    assert ours["unknown_share"] == ours["suffix_f1_difference"] == 0
    for values in by_name.values():
        low, high = values["suffix_f1_difference_low"], values["suffix_f1_difference_high"]
        assert low <= values["suffix_f1_difference"] <= high
    assert found.metrics["gold_words"] >= 2000 and found.metrics["gold_stems"] >= 300
    assert set(found.speeds) == {row.name for row in found.rows}
    page = (tmp_path / "card/report.md").read_text(encoding="utf-8")
    for heading in (
        "What it means",
        "Held-out text",
        "Cuts and suffixes",
        "Kinds of text",
        "Domains",
    ):
        assert f"## {heading}" in page
    assert all(page.count(f"| {name} |") == 4 for name in BASELINES)
    assert "MB/s" not in page and "Left out" not in page
    assert json.loads((tmp_path / "card/card.json").read_text("utf-8")) == found.metrics
    assert (tmp_path / "card/card.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_same_card_each_time_without_speeds(place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        card(place, tmp_path / name)
    assert runs.read_manifest(tmp_path / "a").files == runs.read_manifest(tmp_path / "b").files


def test_ours_learns_once_more_where_the_baselines_have_less_text(
    place: Path, tmp_path: Path
) -> None:
    found = card(place, tmp_path / "card", replace(PARAMS, baseline_bytes=30_000))
    assert {row.name for row in found.rows[1:]} == BASELINES | {
        "SentencePiece BPE, text of the others"
    }


def test_a_tokenizer_of_another_corpus_is_refused(
    place: Path, tmp_path: Path, texts: list[str]
) -> None:
    other = tmp_path / "corpus"
    corpora.write_jsonl(tmp_path / "in/own/p.jsonl", texts[:-1])
    corpora.clean(corpora.ingest(tmp_path / "in"), other)
    with pytest.raises(DataError, match="the tokenizer was made with another corpus"):
        card_stage.evaluate_tokenizer(place / "tokenizer", other, tmp_path / "card", PARAMS)


def test_a_tokenizer_of_an_older_release_says_what_to_do(place: Path, tmp_path: Path) -> None:
    made = runs.read_manifest(place / "tokenizer")
    old = tmp_path / "tokenizer"
    corpus = {"corpus": runs.read_manifest(place / "corpus")}
    with runs.new_folder(old, kind="tokenizer", inputs=corpus, params={"seed": 1}) as output:
        for name in made.files:
            (output.path / name).write_bytes((place / "tokenizer" / name).read_bytes())
    with pytest.raises(DataError, match=r"older release made it: dvc repro -f -s train_tokenizer"):
        card_stage.evaluate_tokenizer(old, place / "corpus", tmp_path / "card", PARAMS)


@pytest.mark.parametrize(
    "name", ["o200k_base", "tiktoken:", "hub:", "hub:model", "hub:../../x", "hub:/tmp/a"]
)
def test_published_names_say_where_they_are_from(name: str) -> None:
    with pytest.raises(ConfigError, match=r"evaluate_tokenizer\.published"):
        replace(PARAMS, published=[name])
    with pytest.raises(ConfigError, match=r"each once"):
        replace(PARAMS, published=["hub:a/b", "hub:a/b"])
    with pytest.raises(ConfigError, match=r"evaluate_tokenizer\.seed"):
        replace(PARAMS, seed=-1)
    with pytest.raises(ConfigError, match=r"evaluate_tokenizer\.chains_a_stem"):
        replace(PARAMS, chains_a_stem=0)


@pytest.mark.slow
def test_published_tokenizers_of_a_hub_come_into_the_table_and_missing_ones_are_said(
    place: Path, tmp_path: Path
) -> None:
    """Ours, put on a loopback Hub under another name, has the measures of ours."""
    files = {
        path.name: path.read_bytes() for path in (place / "tokenizer").iterdir() if path.is_file()
    }
    script = (
        "import json, sys; from pathlib import Path; from dataclasses import replace;"
        "sys.path[:0] = json.loads(sys.argv[2]); import test_evaluate_tokenizer as t;"
        "names = ['hub:kenar/mahalle', 'hub:kimse/yok', 'tiktoken:no_such_encoding'];"
        "t.card(Path(sys.argv[1]), Path('card'), replace(t.PARAMS, published=names))"
    )
    paths = json.dumps([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    with hub_fixture.serve() as hub:
        hub.models["kenar/mahalle"] = repository_of(files, "c" * 40)
        done = subprocess.run(
            [sys.executable, "-c", script, str(place), paths], cwd=tmp_path, capture_output=True, text=True,
            env=hub_fixture.environment(hub, tmp_path / "home"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "card/card.json").read_text("utf-8"))["tokenizers"]
    mine, theirs = found["sifirdan"], found["hub:kenar/mahalle"]
    assert theirs == mine
    page = (tmp_path / "card/report.md").read_text(encoding="utf-8")
    assert "## Left out" in page
    assert "- `hub:kimse/yok`: " in page and "- `tiktoken:no_such_encoding`: " in page
