"""Batches for training as a pure function of (data, seed, batch number, rank, world size).

Nothing is replayed to continue at batch n, no state can be lost, every epoch has another order and
every token is a target exactly once an epoch. Waste: the last window of an epoch is padded, and a
batch may span two epochs; packed conversations leave the rest of a window empty (counted in
`Packed.padding_share`).
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sifirdan.corpus.shards import Shards
from sifirdan.errors import DataError

IGNORE = -100  # the target that torch's cross-entropy leaves out

Window = dict[str, np.ndarray]


class Windows(Protocol):
    """An endless numbered sequence of windows of one length."""

    def window(self, index: int) -> Window:
        """Window `index`, counted over all epochs: arrays of shape (T,)."""

    def documents(self, index: int) -> list[str]:
        """The record ids of the documents in it."""


class Stream:
    """Windows over the token stream. `sampling` is "epoch" (documents in another order each epoch,
    each token a target once) or "random" (start points drawn with replacement, as nanoGPT does).

    With `document_mask` a window says which document each place belongs to, as `Packed` does, so that
    none sees another (arXiv:2407.21783, section 3.2). The mark `</s>` between two documents is the
    first input of the one behind it, and positions start again there: a document is trained on just
    as it is scored, alone behind a mark. So no target has to be left out at a boundary: the first
    token of a document is predicted from the mark alone, the closing mark from its own document."""

    def __init__(
        self, shards: Shards, *, context_length: int, seed: int, sampling: str, eos_id: int,
        document_mask: bool = False,
    ) -> None:  # fmt: skip
        if shards.num_tokens < context_length:
            raise DataError(
                f"train.context_length is {context_length}, but the training text has only "
                f"{shards.num_tokens} tokens",
                expected="a context no longer than the text",
                todo="lower train.context_length or add text",
            )
        self.shards, self.length, self.seed = shards, context_length, seed
        self.sampling, self.eos_id, self.document_mask = sampling, eos_id, document_mask
        self.windows_per_epoch = -(-shards.num_tokens // context_length)
        self._epoch = -1

    def window(self, index: int) -> Window:
        start = self._start(index)
        parts = self._read(start, self.length)
        targets = np.concatenate(parts).astype(np.int64)
        before = self._read(start - 1, 1)[0] if start else np.array([self.eos_id])
        inputs = np.concatenate([before, targets])[: self.length]
        padding = self.length - len(targets)
        window = {
            "inputs": np.pad(inputs, (0, self.length - len(inputs)), constant_values=self.eos_id),
            "targets": np.pad(targets, (0, padding), constant_values=IGNORE),
        }
        return window | _documents(parts, padding) if self.document_mask else window

    def documents(self, index: int) -> list[str]:
        start = self._start(index)
        last = min(start + self.length, self.shards.num_tokens) - 1
        places = np.searchsorted(self._starts, [max(0, start - 1), last], side="right") - 1
        return [self.shards.document(int(i)) for i in self._order[places[0] : places[1] + 1]]

    def _start(self, index: int) -> int:
        """Where window `index` starts in its epoch's stream, which is entered."""
        if self.sampling == "random":
            self._enter_epoch(0)
            rng = np.random.default_rng([self.seed, 2, index])
            return int(rng.integers(self.shards.num_tokens - self.length + 1))
        self._enter_epoch(index // self.windows_per_epoch)
        return int(self._window_order[index % self.windows_per_epoch]) * self.length

    def _enter_epoch(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        rng = np.random.default_rng([self.seed, 1, epoch])
        self._order = rng.permutation(len(self.shards))
        self._starts = np.concatenate([[0], np.cumsum(self.shards.lengths[self._order])])
        self._window_order = rng.permutation(self.windows_per_epoch)
        self._epoch = epoch

    def _read(self, start: int, count: int) -> list[np.ndarray]:
        """Up to `count` tokens of this epoch's stream from position `start`, in parts of a document."""
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts, offset = [], start - int(self._starts[place])
        while count > 0 and place < len(self.shards):
            part = self.shards.tokens(int(self._order[place]))[offset : offset + count]
            parts.append(part)
            count -= len(part)
            place, offset = place + 1, 0
        return parts


def _documents(parts: list[np.ndarray], padding: int) -> Window:
    """The number of the document that each place belongs to, from 1 (0 is padding), and the place in it."""
    sizes = [len(part) for part in parts]
    numbers = np.repeat(np.arange(1, len(parts) + 1), sizes)
    places = np.concatenate([np.arange(size) for size in sizes])
    return {"segments": np.pad(numbers, (0, padding)), "positions": np.pad(places, (0, padding))}


class Packed:
    """Windows of whole conversations side by side. `segments` numbers them from 1 (0 is padding)
    and `positions` start again in each, so that no conversation sees another; targets are the ids
    marked in the loss mask, seen from the id before."""

    def __init__(self, shards: Shards, *, context_length: int, seed: int, pad_id: int) -> None:
        if len(shards) == 0:
            raise DataError(
                "there are no conversations to train on", todo="see prepare_chat in params.yaml"
            )
        longest = int(shards.lengths.max())
        if longest - 1 > context_length:
            raise DataError(
                f"a conversation has {longest} tokens",
                expected=f"at most {context_length + 1}, the model's context and one",
                todo="lower prepare_chat.max_tokens",
            )
        self.shards, self.length, self.seed, self.pad_id = shards, context_length, seed, pad_id
        self._epochs: list[list[list[int]]] = []
        self._first_window = [0]

    def windows_before(self, epoch: int) -> int:
        """How many windows the epochs before `epoch` have: where that epoch starts."""
        while len(self._epochs) < epoch:
            self._pack_epoch()
        return self._first_window[epoch]

    @property
    def padding_share(self) -> float:
        """The empty part of the first epoch's windows, 0 to 1."""
        used = int((self.shards.lengths - 1).sum())
        return 1 - used / (self.windows_before(1) * self.length)

    def documents(self, index: int) -> list[str]:
        return [self.shards.document(member) for member in self._members(index)]

    def window(self, index: int) -> Window:
        members = self._members(index)
        window = {
            "inputs": np.full(self.length, self.pad_id, np.int64),
            "targets": np.full(self.length, IGNORE, np.int64),
            "segments": np.zeros(self.length, np.int64),
            "positions": np.zeros(self.length, np.int64),
        }
        start = 0
        for segment, member in enumerate(members, start=1):
            ids = self.shards.tokens(member).astype(np.int64)
            mask = self.shards.loss_mask(member)[1:].astype(bool)
            end = start + len(ids) - 1
            window["inputs"][start:end] = ids[:-1]
            window["targets"][start:end] = np.where(mask, ids[1:], IGNORE)
            window["segments"][start:end] = segment
            window["positions"][start:end] = np.arange(len(ids) - 1)
            start = end
        return window

    def _members(self, index: int) -> list[int]:
        while self._first_window[-1] <= index:
            self._pack_epoch()
        epoch = int(np.searchsorted(self._first_window, index, side="right")) - 1
        return self._epochs[epoch][index - self._first_window[epoch]]

    def _pack_epoch(self) -> None:
        """Fill windows in this epoch's order, each conversation into the open window or a new one."""
        order = np.random.default_rng([self.seed, 3, len(self._epochs)]).permutation(
            len(self.shards)
        )
        windows: list[list[int]] = []
        room = 0
        for member in order.tolist():
            need = int(self.shards.lengths[member]) - 1
            if need > room:
                windows.append([])
                room = self.length
            windows[-1].append(member)
            room -= need
        self._epochs.append(windows)
        self._first_window.append(self._first_window[-1] + len(windows))


class Batches(Dataset):
    """Batch n: `batch_size` windows for this rank out of the n-th `batch_size · world_size`."""

    def __init__(
        self, windows: Windows, batch_size: int, rank: int = 0, world_size: int = 1
    ) -> None:
        self.windows, self.batch_size, self.rank, self.world_size = (
            windows,
            batch_size,
            rank,
            world_size,
        )

    def window_numbers(self, number: int) -> range:
        """The windows of batch `number`."""
        first = (number * self.world_size + self.rank) * self.batch_size
        return range(first, first + self.batch_size)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        rows = [self.windows.window(index) for index in self.window_numbers(number)]
        return {key: torch.from_numpy(np.stack([row[key] for row in rows])) for key in rows[0]}


def load_batches(
    batches: Batches, first: int, last: int, *, num_workers: int, pin_memory: bool
) -> Iterator[dict[str, Tensor]]:
    """Batches `first` … `last - 1` through a torch DataLoader; each value has shape (B, T)."""
    loader = DataLoader(
        batches,
        sampler=range(first, last),
        batch_size=None,
        num_workers=num_workers,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # else it would draw from the generator that dropout draws from
    )
    return iter(loader)
