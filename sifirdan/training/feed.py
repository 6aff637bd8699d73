"""Batches on their way to the device, one ahead of the computation. (The feed-forward network is
model/mlp.py.)

Work for a GPU is queued, not done, when a call returns: `fetch` then reads the next batch, and its
copy out of pinned memory runs beside the computation. Ids travel as 64-bit numbers: at a million
tokens a second that is 16 MB/s of a bus that carries a thousand times as much.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from sifirdan.corpus.loader import IGNORE


class Feed:
    """The batches of `stream` on `device`, each with its number of targets, which is counted before
    the copy so that nobody waits for the device."""

    def __init__(self, stream: Iterator[dict[str, Tensor]], device: torch.device) -> None:
        self._stream, self._device = stream, device
        self._batch: dict[str, Tensor] | None = None
        self._targets = 0
        self.fetch()

    def take(self) -> tuple[dict[str, Tensor], int]:
        """The batch that was fetched, and its targets."""
        assert self._batch is not None, "fetch before take, and no further than the stream goes"
        batch, self._batch = self._batch, None
        return batch, self._targets

    def fetch(self) -> None:
        """Start the next batch on its way, if there is one."""
        batch = next(self._stream, None)
        if batch is not None:
            self._targets = int((batch["targets"] != IGNORE).sum())
            batch = {
                name: value.to(self._device, non_blocking=True) for name, value in batch.items()
            }
        self._batch = batch
