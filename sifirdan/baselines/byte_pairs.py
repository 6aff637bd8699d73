"""Byte-pair encoding from scratch: how a vocabulary of word parts is learned from text.

A text is cut into words, a word is a row of bytes, and the pair of neighbours that occurs most often
becomes one new piece; then again, until the vocabulary is full. Encoding joins the same pairs in the
same order. Ids and merges are those of the Hugging Face trainer on the same words (a test compares
them). After Sennrich et al. 2016 (arXiv 1508.07909), on bytes as in GPT-2. To learn from and to
compare with, not for the pipeline: sifirdan/tokenizer.py is what the model uses.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import regex

# How GPT-4 cuts text into words (openai/tiktoken, cl100k_base): contractions of English, letters
# with what stands before them, numbers by three digits, marks, line ends, spaces.
GPT4_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_WORD = regex.compile(GPT4_PATTERN)

# The order in which bytes get their ids is GPT-2's: those that print in Latin-1 come first.
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTE_ORDER = bytes([*_PRINTED, *(byte for byte in range(256) if byte not in _PRINTED)])

Pair = tuple[int, int]


class BytePairs:
    """A trained encoder: `pieces[id]` are the bytes of an id, `merges[pair]` the id of a pair."""

    def __init__(self, merges: Sequence[Pair]) -> None:
        self.pieces = [bytes([byte]) for byte in BYTE_ORDER]
        self.merges: dict[Pair, int] = {}
        for left, right in merges:
            self.merges[left, right] = len(self.pieces)
            self.pieces.append(self.pieces[left] + self.pieces[right])
        self._known: dict[str, list[int]] = {}  # most words of a text come again

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return [id for word in words_of(text) for id in self._encode_word(word)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; broken characters become U+FFFD."""
        return b"".join(self.pieces[id] for id in ids).decode(errors="replace")

    def _encode_word(self, word: str) -> list[int]:
        if word not in self._known:
            ids = bytes_of(word)
            while (pair := self._earliest(ids)) is not None:
                ids = joined(ids, pair, self.merges[pair])
            self._known[word] = ids
        return self._known[word]

    def _earliest(self, ids: list[int]) -> Pair | None:
        """The pair among neighbours that was learned first."""
        pairs = [pair for pair in zip(ids, ids[1:], strict=False) if pair in self.merges]
        return min(pairs, key=self.merges.__getitem__, default=None)


def words_of(text: str) -> Iterator[str]:
    """The parts of a text that no piece crosses; together they are the text."""
    return (match[0] for match in _WORD.finditer(text))


_ID_OF_BYTE = {byte: id for id, byte in enumerate(BYTE_ORDER)}


def bytes_of(word: str) -> list[int]:
    """The ids of a word's UTF-8 bytes."""
    return [_ID_OF_BYTE[byte] for byte in word.encode()]


def joined(ids: list[int], pair: Pair, new: int) -> list[int]:
    """`ids` with every `pair` of neighbours, from the left, replaced by the id `new`."""
    found: list[int] = []
    at = 0
    while at < len(ids):
        if ids[at] == pair[0] and at + 1 < len(ids) and ids[at + 1] == pair[1]:
            found.append(new)
            at += 2
        else:
            found.append(ids[at])
            at += 1
    return found


def train(texts: Iterable[str], vocab_size: int) -> BytePairs:
    """Learn up to `vocab_size` - 256 merges; fewer where no pair occurs twice. Of pairs that occur
    equally often the one with the smaller ids is joined first."""
    counts = Counter(word for text in texts for word in words_of(text))
    words = [bytes_of(word) for word in counts]
    return BytePairs(_learn(words, list(counts.values()), vocab_size - 256))


def _learn(words: list[list[int]], counts: list[int], num_merges: int) -> list[Pair]:
    """The merges of `words`, which occur `counts` times each and are rewritten on the way. Only
    words with the joined pair are looked at again, so a merge costs little more than it changes."""
    totals: Counter[Pair] = Counter()  # how often each pair of neighbours occurs
    places: defaultdict[Pair, set[int]] = defaultdict(set)  # the words it may occur in
    for number, ids in enumerate(words):
        for pair in zip(ids, ids[1:], strict=False):
            totals[pair] += counts[number]
            places[pair].add(number)
    queue = [(-total, pair) for pair, total in totals.items()]
    heapq.heapify(queue)
    merges: list[Pair] = []
    while queue and len(merges) < num_merges:
        total, pair = heapq.heappop(queue)
        if -total != totals[pair]:  # it has become rarer since it was put there
            if totals[pair]:
                heapq.heappush(queue, (-totals[pair], pair))
            continue
        if totals[pair] < 2:
            break
        new = 256 + len(merges)
        merges.append(pair)
        grown: set[Pair] = set()
        for number in places.pop(pair):
            before, after = words[number], joined(words[number], pair, new)
            for old in zip(before, before[1:], strict=False):
                totals[old] -= counts[number]
            for other in zip(after, after[1:], strict=False):
                totals[other] += counts[number]
                if new in other:
                    places[other].add(number)
                    grown.add(other)
            words[number] = after
        for other in grown:
            heapq.heappush(queue, (-totals[other], other))
    return merges
