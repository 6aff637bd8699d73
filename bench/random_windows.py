"""Windows of random ids, where only the time of a step matters or whether it can be repeated."""

import numpy as np


class RandomWindows:
    """An endless sequence of windows; window n is always the same."""

    def __init__(self, vocab_size: int, length: int) -> None:
        self.vocab_size, self.length = vocab_size, length

    def window(self, index: int) -> dict[str, np.ndarray]:
        ids = np.random.default_rng([1, index]).integers(0, self.vocab_size, self.length + 1)
        return {"inputs": ids[:-1], "targets": ids[1:]}
