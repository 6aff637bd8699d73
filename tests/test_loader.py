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


def before_each(windows: Stream, epoch: int) -> dict[int, int]:
    """The input at which each token is a target."""
    found = {}
    for index in range(windows.windows_per_epoch):
        window = windows.window(epoch * windows.windows_per_epoch + index)
        for before, target in zip(window["inputs"], window["targets"], strict=True):
            if target != IGNORE:
                found[int(target)] = int(before)
    return found


def circle_of(unique: Shards) -> list[int]:
    """The documents end to end in the drawn order, read off one window's length of a whole epoch."""
    before = before_each(stream(unique), 0)
    after = {earlier: later for later, earlier in before.items()}
    assert len(after) == unique.num_tokens, "each token is before one other"
    tokens = [int(unique.tokens(0)[0])]
    while len(tokens) < len(after):
        tokens.append(after[tokens[-1]])
    return tokens


def test_inputs_are_the_token_before_on_a_circle_of_documents(unique: Shards) -> None:
    before = before_each(stream(unique), 0)
    for document in range(len(unique)):
        tokens = unique.tokens(document).tolist()
        assert all(before[b] == a for a, b in zip(tokens[:-1], tokens[1:], strict=True))
    assert sorted(circle_of(unique)) == sorted(before)
    closing = {int(unique.tokens(d)[-1]) for d in range(len(unique))}
    assert {before[int(unique.tokens(d)[0])] for d in range(len(unique))} == closing
    assert before_each(stream(unique), 7) == before_each(stream(unique, 5), 3) == before
    assert before_each(stream(unique, seed=2), 0) != before


def test_windows_are_cut_at_other_places_each_epoch(unique: Shards) -> None:
    windows = stream(unique, 16)
    per_epoch = windows.windows_per_epoch
    cuts = [
        {int(windows.window(epoch * per_epoch + i)["targets"][0]) for i in range(per_epoch)}
        for epoch in range(12)
    ]
    assert len({frozenset(cut) for cut in cuts}) > 8
    assert len(set.union(*cuts)) > 5 * per_epoch


def test_windows_come_in_another_order_each_epoch_wherever_they_are_cut(unique: Shards) -> None:
    windows = stream(unique, 4)
    place = {token: n for n, token in enumerate(circle_of(unique))}
    way = []
    for epoch in range(3):
        first = epoch * windows.windows_per_epoch
        numbers = range(first, first + windows.windows_per_epoch)
        places = np.array([place[int(windows.window(n)["targets"][0])] for n in numbers])
        way.append((np.diff(places) % unique.num_tokens).tolist())
        assert way[-1].count(4) < 8, "a window is seldom followed by the next of the text"
    assert way[0] != way[1] != way[2] != way[0]


class Few:
    """Documents of given lengths, each token another number; what is read of them is counted."""

    def __init__(self, *lengths: int) -> None:
        self.lengths, self.reads = np.array(lengths), 0
        self.num_tokens = sum(lengths)
        self._starts = np.cumsum([1, *lengths])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def tokens(self, index: int) -> np.ndarray:
        self.reads += 1
        return np.arange(self._starts[index], self._starts[index + 1])

    def loss_mask(self, index: int) -> np.ndarray:
        return np.ones(len(self.tokens(index)))

    def document(self, index: int) -> str:
        return f"d{index}"


@pytest.mark.parametrize("lengths", [(1,), (2,), (7,), (1, 1), (3, 1, 4), (2, 2, 2, 5), (1,) * 9])
def test_S_09_few_tokens_and_every_context_they_allow(lengths: tuple[int, ...]) -> None:
    """From one window an epoch to one of each token, over the place where the circle closes."""
    data = Few(*lengths)
    owner = np.repeat(np.arange(len(data)), data.lengths).tolist()
    for length in range(1, data.num_tokens + 1):
        windows = stream(data, length, document_mask=True)  # type: ignore[arg-type]
        before = before_each(windows, 0)
        for epoch in range(4):
            assert sorted(targets_of_epoch(windows, epoch)) == list(range(1, data.num_tokens + 1))
            assert before_each(windows, epoch) == before
        for index in range(3 * windows.windows_per_epoch):
            window = windows.window(index)
            targets = window["targets"][window["targets"] != IGNORE].tolist()
            shown = [int(window["inputs"][0]), *targets]
            named = list(dict.fromkeys(f"d{owner[token - 1]}" for token in shown))
            assert windows.documents(index) == named
            segment, place, expected = 0, 0, []
            for n, token in enumerate(targets):
                new = n == 0 or token == 1 or owner[token - 1] != owner[token - 2]
                segment, place = (segment + 1, 0) if new else (segment, place + 1)
                expected.append((segment, place))
            expected += [(0, 0)] * (length - len(targets))
            found = zip(window["segments"].tolist(), window["positions"].tolist(), strict=True)
            assert list(found) == expected


def test_one_window_an_epoch_starts_elsewhere_each_time() -> None:
    windows = stream(Few(9, 2), 11)  # type: ignore[arg-type]
    assert windows.windows_per_epoch == 1
    assert len({int(windows.window(epoch)["targets"][0]) for epoch in range(60)}) == 11


def test_a_window_that_closes_the_circle_starts_a_document_behind_the_mark(unique: Shards) -> None:
    """The last document of the drawn order is before the first one, as any other two are."""
    windows = stream(unique, 20, document_mask=True)
    whole = circle_of(unique)
    order = [int(unique.tokens(int(d))[0]) for d in windows._order]
    first, place = order[0], whole.index(order[0])
    closed = 0
    for index in range(4 * windows.windows_per_epoch):
        window = windows.window(index)
        found = np.flatnonzero(window["targets"] == first)
        if len(found) and found[0] > 0:
            closed += 1
            t = int(found[0])
            assert window["targets"][t - 1] == window["inputs"][t] == whole[place - 1]
            assert window["positions"][t] == 0
            assert window["segments"][t] == window["segments"][t - 1] + 1
            assert len(windows.documents(index)) == window["segments"].max() + (
                window["inputs"][0] in {int(unique.tokens(d)[-1]) for d in range(len(unique))}
            )
    assert closed >= 2


def test_a_jump_asks_for_nothing_that_grows_with_the_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No length is read and no order drawn when another epoch is entered, only the window's tokens."""
    data = Few(*[3] * 1000)
    text = stream(data, 30, document_mask=True)  # type: ignore[arg-type]
    talks = Packed(data, context_length=30, seed=1, pad_id=0)  # type: ignore[arg-type]
    del data.lengths, data.num_tokens
    monkeypatch.delattr(np.random, "default_rng")
    monkeypatch.delattr(np, "cumsum")
    for windows, most in ((text, 12), (talks, 30)):
        seen = set()
        for epoch in (0, 10**9, 3, 10**30):
            data.reads = 0
            window = windows.window(epoch * windows.windows_per_epoch + 5)
            assert data.reads <= most
            seen.add(tuple(window["targets"]))
        assert len(seen) == 4


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
    first = [int(windows.window(index)["targets"][0]) for index in range(8)]
    assert first == [191, 187, 59, 52, 113, 219, 223, 81], (
        "which windows are drawn is a promise to older runs"
    )
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
                assert int(window["inputs"][t]) in closing
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


def packed(talks: Shards, seed: int = 1) -> Packed:
    return Packed(talks, context_length=20, seed=seed, pad_id=0)


def test_packed_windows_hold_every_conversation_whole_and_once(talks: Shards) -> None:
    windows = packed(talks)
    expected = sorted(int(t) for i in range(len(talks)) for t in talks.tokens(i)[-2:])
    for epoch in (0, 1, 10**9):
        numbers = range(windows.windows_before(epoch), windows.windows_before(epoch + 1))
        rows = [windows.window(index) for index in numbers]
        targets = [int(t) for row in rows for t in row["targets"] if t != IGNORE]
        assert sorted(targets) == expected
        named = [name for index in numbers for name in windows.documents(index)]
        assert sorted(named) == sorted(f"t{i}" for i in range(len(talks)))
    for window in rows:
        for segment in range(1, int(window["segments"].max()) + 1):
            inside = window["segments"] == segment
            assert window["positions"][inside].tolist() == list(range(int(inside.sum())))
        padding = window["segments"] == 0
        assert (window["inputs"][padding] == 0).all() and (
            window["targets"][padding] == IGNORE
        ).all()
    empty = sum(int((row["segments"] == 0).sum()) for row in rows)
    assert windows.padding_share == pytest.approx(empty / (20 * len(rows))) and empty > 0


def test_S_05_epochs_of_conversations_differ_and_a_restart_repeats_them(talks: Shards) -> None:
    def names(windows: Packed, epoch: int) -> list[list[str]]:
        first = windows.windows_before(epoch)
        return [windows.documents(first + i) for i in range(windows.windows_per_epoch)]

    windows = packed(talks)
    orders = [names(windows, epoch) for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert names(packed(talks), 2) == orders[2]
    assert sorted(names(packed(talks, seed=2), 0)) != sorted(orders[0])


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
