"""The text a tokenizer learns from: drawn by bytes, by source, by seed."""

from pathlib import Path

import pytest

from sifirdan.corpus.records import Document, PartWriter
from sifirdan.corpus.sample import draw
from sifirdan.errors import ConfigError


def corpus(folder: Path, sizes: dict[str, list[int]]) -> Path:
    """A folder of documents; `sizes` are words of five characters for each document of a source."""
    with PartWriter(folder) as writer:
        for source, lengths in sizes.items():
            for number, length in enumerate(lengths):
                words = " ".join(
                    f"{source[0]}{(number * 7919 + i) % 999:03d}" for i in range(length)
                )
                writer.add(Document(f"{source}{number}", words, source, "CC0", str(number), {}))
    return folder


def total(folder: Path, sizes: dict[str, list[int]]) -> int:
    return sum(5 * length - 1 for lengths in sizes.values() for length in lengths)


SIZES = {"dergi": [200] * 300, "kitap": [40_000, 60_000], "söz": [10] * 500}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("corpus") / "train", SIZES)


def test_a_large_budget_takes_everything_whatever_the_weights(folder: Path) -> None:
    for weights in ({}, {"kitap": 0.01, "söz": 5.0}):
        sample = draw(folder, 10**9, weights, seed=1)
        assert sum(sample.num_bytes.values()) == total(folder, SIZES)
        assert sum(len(text.encode()) for text in sample.texts()) == total(folder, SIZES)


@pytest.mark.parametrize("budget", [100_000, 300_000, 600_000])
def test_the_budget_is_kept_by_bytes_and_every_source_gives_its_share(
    folder: Path, budget: int
) -> None:
    sample = draw(folder, budget, {}, seed=1)
    drawn = sum(sample.num_bytes.values())
    assert drawn == sum(len(text.encode()) for text in sample.texts())
    assert 0.6 * budget < drawn <= budget  # books come in pieces of 32,768
    share = sample.num_bytes["dergi"] / (300 * 999)
    assert share == pytest.approx(sample.num_bytes["söz"] / (500 * 49), rel=0.2)


def test_weights_multiply_what_a_source_gives_as_far_as_it_lasts(folder: Path) -> None:
    plain = draw(folder, 200_000, {}, seed=1).num_bytes
    heavy = draw(folder, 200_000, {"dergi": 2.0}, seed=1).num_bytes
    ratio = (heavy["dergi"] / heavy["söz"]) / (plain["dergi"] / plain["söz"])
    assert ratio == pytest.approx(2.0, rel=0.1)
    all_of_it = draw(folder, 200_000, {"söz": 1000.0}, seed=1).num_bytes
    assert all_of_it["söz"] == 500 * 49
    assert draw(folder, 200_000, {"kitap": 0}, seed=1).num_bytes["kitap"] == 0


def test_the_order_of_files_does_not_count_and_a_larger_sample_holds_the_smaller(
    folder: Path, tmp_path: Path
) -> None:
    turned = corpus(tmp_path / "train", dict(reversed(SIZES.items())))
    small = list(draw(folder, 150_000, {}, seed=3).texts())
    assert sorted(small) == sorted(draw(turned, 150_000, {}, seed=3).texts())
    assert set(small) <= set(draw(folder, 400_000, {}, seed=3).texts())
    assert small != list(draw(folder, 150_000, {}, seed=4).texts())


def test_one_book_larger_than_the_budget_is_drawn_in_part(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "train", {"kitap": [400_000]})
    sample = draw(folder, 200_000, {}, seed=1)
    assert 100_000 < sum(sample.num_bytes.values()) <= 200_000
    assert list(draw(folder, 1, {}, seed=1).texts()), "never nothing at all"


def test_many_sources_keep_a_small_budget_together(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "train", {f"{n:02d}": [40] * 20 for n in range(60)})
    for budget in (1000, 10_000, 100_000):
        drawn = draw(folder, budget, {}, seed=1).num_bytes
        assert 0.8 * budget < sum(drawn.values()) <= budget
    few = draw(folder, 100_000, {"00": 0.001}, seed=1).num_bytes
    assert few["00"] < 200 < few["01"]


def test_weights_that_leave_nothing_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="leaves out all text"):
        draw(folder, 10**6, dict.fromkeys(SIZES, 0.0), seed=1)


def test_an_unknown_source_is_named_with_those_there_are(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"source_weights names 'vikipedi'(.|\n)*dergi, kitap, söz"
    ):
        draw(folder, 10, {"vikipedi": 2.0}, seed=1)
    empty = corpus(tmp_path / "train", {})
    assert list(draw(empty, 10, {"vikipedi": 2.0}, seed=1).texts()) == []
