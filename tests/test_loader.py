"""Batches are a pure function of their number; unique integers as tokens show any loss or double."""

from pathlib import Path

import numpy as np
import pytest

from sifirdan.corpus import shards
from sifirdan.corpus.loader import IGNORE, Batches, Packed, Stream, load_batches
from sifirdan.corpus.shards import Row, Shards
from sifirdan.errors import DataError

EOS = 0


@pytest.fixture
def unique(tmp_path: Path) -> Shards:
    """40 documents of 1 to 12 tokens, every token another number."""
    numbers = iter(range(1, 10_000))
    rows = [Row([next(numbers) for _ in range(1 + i * 7 % 12)], f"d{i}", "s") for i in range(40)]
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=10_000)
    return Shards(tmp_path)


def stream(
    unique: Shards, length: int = 8, sampling: str = "epoch", seed: int = 1, **more: bool
) -> Stream:
    return Stream(unique, context_length=length, seed=seed, sampling=sampling, eos_id=EOS, **more)


def targets_of_epoch(windows: Stream, epoch: int) -> list[int]:
    first = epoch * windows.windows_per_epoch
    parts = [windows.window(first + i)["targets"] for i in range(windows.windows_per_epoch)]
    return [int(t) for t in np.concatenate(parts) if t != IGNORE]


@pytest.mark.parametrize("length", [2, 5, 8, 64])
def test_every_token_is_a_target_once_an_epoch(unique: Shards, length: int) -> None:
    windows = stream(unique, length)
    for epoch in range(3):
        assert sorted(targets_of_epoch(windows, epoch)) == list(range(1, unique.num_tokens + 1))


def test_S_05_epochs_differ_and_a_restart_repeats_them(unique: Shards) -> None:
    windows = stream(unique)
    orders = [targets_of_epoch(windows, epoch) for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]
    assert targets_of_epoch(stream(unique), 2) == orders[2]
    assert targets_of_epoch(stream(unique, seed=2), 0) != orders[0]


def test_inputs_are_the_token_before_and_the_first_is_the_document_mark(unique: Shards) -> None:
    windows = stream(unique)
    follows = {}
    for index in range(windows.windows_per_epoch):
        window = windows.window(index)
        for before, target in zip(window["inputs"], window["targets"], strict=True):
            if target != IGNORE:
                follows[int(target)] = int(before)
    starts = [before for before in follows.values() if before == EOS]
    assert len(starts) == 1
    for document in range(len(unique)):
        tokens = unique.tokens(document).tolist()
        for before, target in zip(tokens[:-1], tokens[1:], strict=True):
            assert follows[target] == before


@pytest.mark.parametrize("workers", [0, 2])
def test_I_13_S_04_seeking_equals_reading_on(unique: Shards, workers: int) -> None:
    batches = Batches(stream(unique), 3)
    whole = [
        b["targets"].tolist()
        for b in load_batches(batches, 0, 40, num_workers=workers, pin_memory=False)
    ]
    late = [
        b["targets"].tolist()
        for b in load_batches(batches, 27, 40, num_workers=0, pin_memory=False)
    ]
    assert whole[27:] == late and len(whole) == 40


def test_R_11_ranks_share_an_epoch_without_overlap(unique: Shards) -> None:
    alone = Batches(stream(unique), 6)
    pair = [Batches(stream(unique), 3, rank, 2) for rank in (0, 1)]
    for number in range(10):
        both = [row for half in pair for row in half[number]["targets"].tolist()]
        assert both == alone[number]["targets"].tolist()


def test_random_sampling_reads_real_windows(unique: Shards) -> None:
    windows = stream(unique, 8, "random")
    assert [windows.window(3)["targets"].tolist()] == [
        stream(unique, 8, "random").window(3)["targets"].tolist()
    ]
    drawn = {tuple(windows.window(i)["targets"]) for i in range(50)}
    assert len(drawn) > 25 and all(IGNORE not in window for window in drawn)


@pytest.mark.parametrize("sampling", ["epoch", "random"])
def test_a_document_mask_adds_where_each_document_stands(unique: Shards, sampling: str) -> None:
    plain, masked = stream(unique, 20, sampling), stream(unique, 20, sampling, document_mask=True)
    owner = {int(t): d for d in range(len(unique)) for t in unique.tokens(d)}
    place = {int(t): i for d in range(len(unique)) for i, t in enumerate(unique.tokens(d))}
    for index in range(2 * plain.windows_per_epoch):
        window = masked.window(index)
        without = plain.window(index)
        for name, values in without.items():
            assert (window[name] == values).all() and window[name].dtype == values.dtype
        assert set(window) - set(without) == {"segments", "positions"}
        real = window["targets"] != IGNORE
        assert (window["segments"][~real] == 0).all() and (window["positions"][~real] == 0).all()
        targets, segments = window["targets"][real].tolist(), window["segments"][real].tolist()
        owners = [owner[target] for target in targets]
        numbers = {d: n for n, d in enumerate(dict.fromkeys(owners), start=1)}
        assert segments == [numbers[d] for d in owners]
        first = place[targets[0]]  # a document that began in another window starts at 0 here
        cut = [place[t] - (first if n == 1 else 0) for t, n in zip(targets, segments, strict=True)]
        assert window["positions"][real].tolist() == cut


def test_S_08_the_first_token_of_a_document_is_predicted_from_the_mark_alone(
    unique: Shards,
) -> None:
    """The documented choice: no target is left out at a boundary, and none sees the text before."""
    windows = stream(unique, 20, document_mask=True)
    firsts = {int(unique.tokens(d)[0]) for d in range(len(unique))}
    closing = {int(unique.tokens(d)[-1]) for d in range(len(unique))}
    boundaries = 0
    for index in range(windows.windows_per_epoch):
        window = windows.window(index)
        for t in range(20):
            if int(window["targets"][t]) in firsts:
                boundaries += 1
                assert window["positions"][t] == 0
                seen = (window["segments"] == window["segments"][t])[:t]
                assert not seen.any(), "nothing but its own input, the mark that closes the last"
                assert int(window["inputs"][t]) in closing | {EOS}
    assert boundaries == len(unique)


def test_S_09_a_text_shorter_than_the_context_is_refused(unique: Shards) -> None:
    with pytest.raises(DataError, match=r"context_length is 5000.*\d+ tokens"):
        stream(unique, 5000)


@pytest.fixture
def talks(tmp_path: Path) -> Shards:
    numbers = iter(range(1, 10_000))
    rows = []
    for i in range(30):
        length = 3 + i * 5 % 9
        rows.append(
            Row(
                [next(numbers) for _ in range(length)], f"t{i}", "s", 0, [0] * (length - 2) + [1, 1]
            )
        )
    shards.write(tmp_path / "part-00000.arrow", rows, vocab_size=10_000, loss_mask=True)
    return Shards(tmp_path)


def test_packed_windows_hold_every_conversation_whole_and_once(talks: Shards) -> None:
    windows = Packed(talks, context_length=20, seed=1, pad_id=0)
    count = windows.windows_before(1)
    targets = [int(t) for i in range(count) for t in windows.window(i)["targets"] if t != IGNORE]
    expected = [int(t) for i in range(len(talks)) for t in talks.tokens(i)[-2:]]
    assert sorted(targets) == sorted(expected)
    for index in range(windows.windows_before(2)):
        window = windows.window(index)
        for segment in range(1, int(window["segments"].max()) + 1):
            inside = window["segments"] == segment
            assert window["positions"][inside].tolist() == list(range(int(inside.sum())))
        padding = window["segments"] == 0
        assert (window["inputs"][padding] == 0).all() and (
            window["targets"][padding] == IGNORE
        ).all()
    assert 0 < windows.padding_share < 0.5
    assert windows.windows_before(2) > count
    fresh = Packed(talks, context_length=20, seed=1, pad_id=0)
    late = count + 1
    assert fresh.window(late)["inputs"].tolist() == windows.window(late)["inputs"].tolist()


def test_F_06_a_conversation_longer_than_the_context_is_refused(
    talks: Shards, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="at most 7"):
        Packed(talks, context_length=6, seed=1, pad_id=0)
    empty = tmp_path / "empty"
    empty.mkdir()
    shards.write(empty / "part-00000.arrow", [], vocab_size=10, loss_mask=True)
    with pytest.raises(DataError, match="no conversations"):
        Packed(Shards(empty), context_length=6, seed=1, pad_id=0)
