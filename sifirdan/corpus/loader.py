"""Batches for training as a pure function of (data, seed, batch number, rank, world size).

Nothing is replayed to continue at batch n, no state can be lost, every epoch has another order and
every token is a target exactly once an epoch. What costs time once per document is done when a run
starts; then any window of any epoch is found at once (`permutation.py`). Waste: the last window of an
epoch is padded, and a batch may span two epochs; packed conversations leave the rest of a window
empty (counted in `Packed.padding_share`).
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sifirdan.corpus.permutation import mixed, permuted
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
    """Windows over the token stream. `sampling` is "epoch" (each token a target once) or "random"
    (start points drawn with replacement, as nanoGPT does).

    The documents are put in a drawn order once, and the last is followed by the first: a circle. An
    epoch goes round it once, from a start of its own, so that windows are cut at other places each
    time, and takes its windows in an order of its own. Both follow from the seed and the epoch's
    number alone. A document keeps its neighbours, which is the price of a jump that costs nothing.

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
        self._order = np.random.default_rng([seed, 1]).permutation(len(shards))
        self._starts = np.concatenate([[0], np.cumsum(shards.lengths[self._order])])
        self._num_tokens = int(self._starts[-1])
        self.windows_per_epoch = -(-self._num_tokens // context_length)

    def window(self, index: int) -> Window:
        start, count = self._place(index)
        parts = [self.shards.tokens(document)[some] for document, some in self._read(start, count)]
        tokens = np.concatenate(parts)
        window = {
            "inputs": np.full(self.length, self.eos_id, np.int64),
            "targets": np.full(self.length, IGNORE, np.int64),
        }
        window["inputs"][:count], window["targets"][:count] = tokens[:-1], tokens[1:]
        sizes = [len(parts[0]) - 1, *map(len, parts[1:])]
        return window | _documents(sizes, self.length - count) if self.document_mask else window

    def documents(self, index: int) -> list[str]:
        found = dict.fromkeys(document for document, _ in self._read(*self._place(index)))
        return [self.shards.document(document) for document in found]

    def _place(self, index: int) -> tuple[int, int]:
        """Where on the circle window `index` has its first target, and how many it has."""
        if self.sampling == "random":
            rng = np.random.default_rng([self.seed, 2, index])
            return int(rng.integers(self._num_tokens - self.length + 1)), self.length
        epoch, number = divmod(index, self.windows_per_epoch)
        start = mixed(self.seed, epoch, 1) % self._num_tokens
        passed = self.length * permuted(number, self.windows_per_epoch, mixed(self.seed, epoch, 2))
        return start + passed, min(self.length, self._num_tokens - passed)

    def _read(self, start: int, count: int) -> list[tuple[int, slice]]:
        """The token before position `start` and the `count` from there: documents, and what of them."""
        start, count = (start - 1) % self._num_tokens, count + 1
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts, offset = [], start - int(self._starts[place])
        while count > 0:
            document = int(self._order[place])
            end = min(offset + count, int(self._starts[place + 1] - self._starts[place]))
            parts.append((document, slice(offset, end)))
            count -= end - offset
            place, offset = (place + 1) % len(self._order), 0
        return parts


def _documents(sizes: list[int], padding: int) -> Window:
    """The number of the document that each place belongs to, from 1 (0 is padding), and the place in it."""
    sizes = [size for size in sizes if size]
    numbers = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    places = np.concatenate([np.arange(size) for size in sizes])
    return {"segments": np.pad(numbers, (0, padding)), "positions": np.pad(places, (0, padding))}


class Packed:
    """Windows of whole conversations side by side. `segments` numbers them from 1 (0 is padding)
    and `positions` start again in each, so that no conversation sees another; targets are the ids
    marked in the loss mask, seen from the id before.

    They are packed once, in a drawn order, and each epoch takes the windows in an order of its own.
    To pack every epoch anew would give no conversation another context, and epochs of unequal
    length: to find where one starts, all before it would have to be packed."""

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
        self._windows = self._pack()
        self.windows_per_epoch = len(self._windows)

    def windows_before(self, epoch: int) -> int:
        """How many windows the epochs before `epoch` have: where that epoch starts."""
        return epoch * self.windows_per_epoch

    @property
    def padding_share(self) -> float:
        """The empty part of an epoch's windows, 0 to 1."""
        used = int((self.shards.lengths - 1).sum())
        return 1 - used / (self.windows_per_epoch * self.length)

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
        epoch, number = divmod(index, self.windows_per_epoch)
        return self._windows[permuted(number, self.windows_per_epoch, mixed(self.seed, epoch, 3))]

    def _pack(self) -> list[list[int]]:
        """Fill windows in a drawn order, each conversation into the open window or a new one."""
        order = np.random.default_rng([self.seed, 3]).permutation(len(self.shards))
        needs = self.shards.lengths[order] - 1
        windows: list[list[int]] = []
        room = 0
        for member, need in zip(order.tolist(), needs.tolist(), strict=True):
            if need > room:
                windows.append([])
                room = self.length
            windows[-1].append(member)
            room -= need
        return windows


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
