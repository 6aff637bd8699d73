"""The two tokenizers every course begins with: one id a character, one id a word.

Both learn a list of what is most frequent and know nothing else: what is not on it becomes `<unk>`
and is lost. A character tokenizer needs few ids and many of them for a text; a word tokenizer the
other way round, and Turkish, which builds words from suffixes, always has words it never saw.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

UNK = 0
UNK_TEXT = "\ufffd"  # what an unknown part decodes to


class ListTokenizer:
    """Ids are places in a list of parts, `<unk>` first; `split` cuts a text into its parts, which
    joined are the text."""

    def __init__(self, parts: Sequence[str], split: Callable[[str], list[str]]) -> None:
        self.parts = [UNK_TEXT, *parts]
        self._split = split
        self._ids = {part: id for id, part in enumerate(self.parts) if id != UNK}

    def encode(self, text: str) -> list[int]:
        """The ids of a text, UNK for what is not on the list."""
        return [self._ids.get(part, UNK) for part in self._split(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; what was unknown is U+FFFD."""
        return "".join(self.parts[id] for id in ids)

    def split(self, text: str) -> list[str]:
        """The parts that `encode` looks up."""
        return self._split(text)


def train_characters(texts: Iterable[str], vocab_size: int) -> ListTokenizer:
    """The most frequent characters, at most `vocab_size` with `<unk>`."""
    return _train(texts, vocab_size, list)


def train_words(texts: Iterable[str], vocab_size: int) -> ListTokenizer:
    """The most frequent words, marks and spaces, at most `vocab_size` with `<unk>`."""
    return _train(texts, vocab_size, words_and_marks)


# A word with its apostrophe suffix (Ankara'dan), a mark, or white space other than the single
# space that stands before most words and goes with them.
_PART = re.compile(r" ?\w+(?:['’]\w+)*| ?[^\w\s]|\s")


def words_and_marks(text: str) -> list[str]:
    """' Ankara’dan geldi.' -> [' Ankara’dan', ' geldi', '.']"""
    return _PART.findall(text)


def _train(
    texts: Iterable[str], vocab_size: int, split: Callable[[str], list[str]]
) -> ListTokenizer:
    counts = Counter(part for text in texts for part in split(text))
    # of parts that are equally frequent the smaller one, whatever the order of the texts
    frequent = sorted(counts, key=lambda part: (-counts[part], part))
    return ListTokenizer(frequent[: vocab_size - 1], split)
