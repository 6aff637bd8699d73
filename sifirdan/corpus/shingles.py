"""Words, word n-grams and MinHash signatures of many texts at once, as arrays of 64-bit hashes.

Two texts are compared by the words of their `text.dedup_key`: case, spacing and punctuation do not
count, letters and numbers do. Everything here works on a batch of texts in numpy and gives each
text the same numbers in any batch, process and order. Not for deciding what is a duplicate.

Costs, on one core: about 20 ns a character for the words, 10 more with keys; n-grams, sets and
signatures together about 15.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sifirdan import text as text_module

MASK = (1 << 64) - 1
BASE = 0x9E3779B97F4A7C15 | 5  # of the polynomial over a word's characters; odd, 5 modulo 8
STEP = 0xD1342543DE82EF95  # of the polynomial over an n-gram's words; odd, 5 modulo 8
PIECE_CHARS = 1 << 16  # characters that are turned into arrays at once: they fit the cache
ALL_CODES = 0x110000  # code points
SMALL_TABLE = 0x20000  # of which nearly all text has only these; a table of all takes half a second

_KIND_SHIFT = 24  # a code point has 21 bits
SPACE, KEPT, DROPPED, DIGIT, MARK = 0, 1, 2, 4, 8  # bits of a character's kind
_NUMBER_MARK = ord("|")  # what dedup_key puts for the mark inside 1,5
_NUL = 0x110000  # stands for U+0000, as 0 stands for a space


@dataclass(frozen=True)
class Ragged:
    """Values of many texts in one array: text i has `values[offsets[i] : offsets[i + 1]]`."""

    values: np.ndarray  # uint64, shape (offsets[-1],)
    offsets: np.ndarray  # int64, shape (number of texts + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def sizes(self) -> np.ndarray:
        """Values a text, int64, shape (number of texts,)."""
        return np.diff(self.offsets)


def words_of(text: str) -> list[str]:
    """The words two texts are compared by; 'Dağ, 1,5 KİLO!' -> ['dağ', '1|5', 'kilo']."""
    return text_module.dedup_key(text).split()


def word_hashes(texts: Sequence[str]) -> Ragged:
    """A hash of each word of `words_of`, in the order of the text."""
    return _read(texts, with_keys=False)[1]


def keys_and_words(texts: Sequence[str]) -> tuple[list[str], Ragged]:
    """`text.dedup_key` of each text and the hashes of its words, at several times the speed."""
    return _read(texts, with_keys=True)


def shingle_hashes(text: str, num_words: int) -> np.ndarray:
    """The set of a text's word n-grams: hashes, sorted, each once, uint64."""
    return as_sets(ngrams(word_hashes([text]), num_words)).values


def ngrams(words: Ragged, num_words: int) -> Ragged:
    """The hash of every `num_words` consecutive words, in order. A shorter text has one n-gram, of
    all its words; a text without words has none."""
    counts = words.sizes()
    starts, ends = words.offsets[:-1], words.offsets[1:]
    num_full = max(len(words.values) - num_words + 1, 0)
    rolled = np.full(num_full, num_words, np.uint64)
    whole = np.ones(num_full, bool)  # False where the n-gram would reach into the next text
    for k in range(num_words):
        rolled *= np.uint64(STEP)
        rolled += words.values[k : k + num_full]
        if k:
            across = ends[counts >= k] - k
            whole[across[across < num_full]] = False
    short = np.flatnonzero((counts > 0) & (counts < num_words))
    sums = counts[short].astype(np.uint64)  # starts from the length, as `rolled` does
    for k in range(num_words - 1):
        longer = counts[short] > k
        sums[longer] = sums[longer] * np.uint64(STEP) + words.values[starts[short[longer]] + k]
    offsets = _offsets(np.where(counts >= num_words, counts - num_words + 1, counts > 0))
    values = np.empty(offsets[-1], np.uint64)
    of_short = np.zeros(len(values), bool)
    of_short[offsets[short]] = True
    values[of_short] = sums
    values[~of_short] = rolled[whole]
    return Ragged(mixed(values), offsets)


def whole_hashes(words: Ragged) -> np.ndarray:
    """One hash of each text's words in their order, uint64, shape (texts,); 0 without words."""
    full = np.flatnonzero(words.sizes() > 0)
    hashes = np.zeros(len(words), np.uint64)
    if len(full):
        starts = words.offsets[full]
        powers, inverses = powers_of(len(words.values))
        sums = np.add.reduceat(words.values * powers[: len(words.values)], starts)
        hashes[full] = mixed(sums * inverses[starts]) | np.uint64(1)
    return hashes


def as_sets(grams: Ragged) -> Ragged:
    """Each text's values sorted, each once."""
    values = grams.values.copy()
    for start, end in zip(grams.offsets[:-1].tolist(), grams.offsets[1:].tolist(), strict=True):
        if end - start > 1:
            values[start:end].sort()
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    first[grams.offsets[:-1][grams.sizes() > 0]] = True
    before = np.concatenate([[0], np.cumsum(first, dtype=np.int64)])
    return Ragged(values[first], before[grams.offsets])


# Signatures: Dahlgaard, Knudsen and Thorup, "Fast similarity sketching" (FOCS 2017). Each round
# throws every value into one of the slots by a hash of that round; a slot keeps the smallest of
# the first round that reached it. Each slot agrees between two sets with the probability of their
# Jaccard similarity, at a few hashes a value where classic MinHash takes one for every slot.

ROUNDS = 64  # a set of 10 values has filled 96 slots after about 45
_EMPTY = np.uint64(MASK)


def signature(hashes: np.ndarray, num_slots: int) -> np.ndarray:
    """MinHash signature of one set of hashes, uint64, shape (num_slots,)."""
    return signatures(Ragged(hashes, np.array([0, len(hashes)])), num_slots)[0]


def signatures(sets: Ragged, num_slots: int) -> np.ndarray:
    """MinHash signatures, uint64, shape (number of texts, num_slots). The share of equal slots of
    two of them estimates their Jaccard similarity. An empty set has the largest number in all."""
    num_texts = len(sets)
    slots = np.full(num_texts * num_slots, _EMPTY)
    table = slots.reshape(num_texts, num_slots)
    values, owners = sets.values, np.repeat(np.arange(num_texts), sets.sizes())
    for number in range(ROUNDS):
        mixed = _thrown(values, number)
        places = ((mixed >> np.uint64(32)) * np.uint64(num_slots)) >> np.uint64(32)
        mixed &= np.uint64(0xFFFFFFFF)
        mixed |= np.uint64(number << 32)  # a later round never wins over an earlier one
        np.minimum.at(slots, owners * num_slots + places.astype(np.int64), mixed)
        if number < 4 or number % 4 == 3:
            # Further rounds change nothing in a full signature, so that these texts can go.
            wanting = (table == _EMPTY).any(axis=1)
            left = wanting[owners]
            if not left.any():
                break
            values, owners = values[left], owners[left]
    else:
        # Sets of a few values only: what is still empty takes the set's smallest hash.
        smallest = np.full(num_texts, _EMPTY)
        np.minimum.at(smallest, owners, _thrown(values, ROUNDS) >> np.uint64(1))
        table[:] = np.where(table == _EMPTY, smallest[:, None], table)
    return table


def band_hashes(table: np.ndarray, num_bands: int) -> np.ndarray:
    """One hash for each band of equally many slots of signatures, uint64, shape (texts, bands).
    Texts that share one of them are candidates; equal bands have different hashes by their place."""
    num_texts, num_slots = table.shape
    rows = num_slots // num_bands
    assert rows * num_bands == num_slots, (num_slots, num_bands)
    bands = table.reshape(num_texts, num_bands, rows)
    hashes = np.tile(np.arange(1, num_bands + 1, dtype=np.uint64), (num_texts, 1))
    for row in range(rows):
        hashes *= np.uint64(STEP)
        hashes += mixed(bands[:, :, row])
    return mixed(hashes)


def _thrown(values: np.ndarray, number: int) -> np.ndarray:
    """The values' hashes of one round: multiply, fold, multiply."""
    mixed = values * _multiplier(number)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(BASE)
    mixed ^= mixed >> np.uint64(29)
    return mixed


@functools.cache
def _multiplier(number: int) -> np.uint64:
    return np.uint64(_hash_of_word(f"round {number}") | 1)


# Words. A word's hash is the sum of code * BASE**place over its characters, mixed: powers run on
# through a piece of text, and multiplying by the inverse of the first power brings each word back
# to place 0, so that no word needs a loop of its own.


def _read(texts: Sequence[str], *, with_keys: bool) -> tuple[list[str], Ragged]:
    counts = np.zeros(len(texts), np.int64)
    hashes: list[np.ndarray] = []
    parts: list[tuple[int, str]] = []  # number of a text and a part of its key
    for numbers, pieces in _batches(texts):
        codes, starts = _folded(pieces)
        first = np.flatnonzero(np.diff((codes != 0).view(np.int8), prepend=np.int8(0)) == 1)
        np.add.at(counts, numbers, np.diff(np.searchsorted(first, starts)))
        if len(first):
            powers, inverses = powers_of(len(codes))
            sums = codes.astype(np.uint64)
            sums *= powers[: len(codes)]
            totals = np.add.reduceat(sums, first)
            totals *= inverses[first]
            hashes.append(mixed(totals))
        if with_keys:
            parts += zip(numbers, _spelled(codes, starts), strict=True)
    keys = _joined(parts, len(texts)) if with_keys else [""] * len(texts)
    words = Ragged(np.concatenate([np.zeros(0, np.uint64), *hashes]), _offsets(counts))
    bare = [n for n in np.flatnonzero(counts == 0).tolist() if not texts[n].isspace() and texts[n]]
    return _with_marks_alone(texts, bare, keys, words) if bare else (keys, words)


def _batches(texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
    """Texts in composed form, long ones cut at white space, gathered until PIECE_CHARS; each with
    its number."""
    numbers: list[int] = []
    pieces: list[str] = []
    size = 0
    for number, text in enumerate(texts):
        if not unicodedata.is_normalized("NFC", text):
            text = unicodedata.normalize("NFC", text)
        if "\u0307" in text or "\u03a3" in text:  # lower case depends on the neighbours
            text = text_module.lower_tr(text)
        for piece in _cut(text):
            if size + len(piece) > PIECE_CHARS and pieces:
                yield numbers, pieces
                numbers, pieces, size = [], [], 0
            numbers.append(number)
            pieces.append(piece)
            size += len(piece)
    if pieces:
        yield numbers, pieces


_WHITE = re.compile(r"\s")


def _cut(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = text.rfind(" ", start + 1, start + PIECE_CHARS)
        if end < 0:
            found = _WHITE.search(text, start + PIECE_CHARS)
            end = found.start() if found else len(text)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _folded(pieces: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The characters that count, lower case, 0 for white space, and where each piece starts among
    them; a piece never touches the next. int64 starts, shape (pieces + 1,)."""
    joined = "\n".join([*pieces, ""])
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    table = _table(SMALL_TABLE if int(codes.max(initial=0)) < SMALL_TABLE else ALL_CODES)
    found = table.take(codes, mode="clip")  # all are below its length
    kinds = (found >> np.uint32(_KIND_SHIFT)).astype(np.uint8)
    codes = found & np.uint32((1 << _KIND_SHIFT) - 1)
    between = (kinds[1:-1] & MARK) & ((kinds[:-2] & kinds[2:] & DIGIT) << 1)
    inner = np.flatnonzero(between) + 1  # marks inside numbers
    kinds[inner] = KEPT
    codes[inner] = _NUMBER_MARK
    dropped = (kinds & DROPPED) != 0
    starts = _offsets(np.fromiter((len(piece) + 1 for piece in pieces), np.int64, len(pieces)))
    starts -= np.searchsorted(np.flatnonzero(dropped), starts)
    return codes[~dropped], starts


@functools.cache
def _table(size: int) -> np.ndarray:
    """For each code point below `size` its lower case, and above it the kind of that, uint32."""
    plain = "".join(map(chr, range(size))).replace("İ", "i").replace("I", "ı")
    lower = plain.lower()
    assert len(lower) == size, "only İ has a lower case of two characters"
    folded = np.frombuffer(lower.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32)
    kinds = np.full(size, KEPT, np.uint8)
    marks = [match.start() for match in re.finditer(r"[^\w\s]", lower)]
    kinds[marks] |= MARK
    kinds[[match.start() for match in re.finditer(r"\d", lower)]] |= DIGIT
    punctuation = [n for n, c in enumerate(lower) if unicodedata.category(c)[0] == "P"]
    kinds[punctuation] = (kinds[punctuation] & (MARK | DIGIT)) | DROPPED
    spaces = [match.start() for match in re.finditer(r"\s", lower)]
    kinds[spaces] = SPACE
    folded[0] = _NUL
    folded[spaces] = 0
    return folded | kinds.astype(np.uint32) << np.uint32(_KIND_SHIFT)


def powers_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """BASE**i and its inverse modulo 2**64 for i below `count` (and somewhat above)."""
    return _powers_up_to(max(count - 1, 2 * PIECE_CHARS).bit_length())


@functools.lru_cache(2)
def _powers_up_to(num_bits: int) -> tuple[np.ndarray, np.ndarray]:
    tables = []
    for base in (BASE, pow(BASE, -1, 1 << 64)):
        table = np.full(1 << num_bits, base, np.uint64)
        table[0] = 1
        tables.append(np.cumprod(table, out=table))
    return tables[0], tables[1]


def mixed(values: np.ndarray) -> np.ndarray:
    """A bijection in which every bit depends on every other (the finaliser of MurmurHash3)."""
    found = values ^ (values >> np.uint64(33))
    found *= np.uint64(0xFF51AFD7ED558CCD)
    found ^= found >> np.uint64(33)
    found *= np.uint64(0xC4CEB9FE1A85EC53)
    found ^= found >> np.uint64(33)
    return found


@functools.lru_cache(1 << 12)  # a text of marks alone has few different ones
def _hash_of_word(word: str) -> int:
    """The hash of one word, character by character: the same as the arrays give."""
    total, power = 0, 1
    for char in word:
        total += (ord(char) or _NUL) * power
        power = power * BASE & MASK
    return int(mixed(np.array([total & MASK], np.uint64))[0])


def _spelled(codes: np.ndarray, starts: np.ndarray) -> list[str]:
    """The pieces as text again, with single spaces."""
    between = codes == 0
    doubled = between.copy()
    doubled[1:] &= between[:-1]
    codes = np.where(between, np.uint32(32), codes)[~doubled]
    codes[codes == _NUL] = 0
    spelled = codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    places = (starts - np.searchsorted(np.flatnonzero(doubled), starts)).tolist()
    return [
        spelled[start:end].strip(" ") for start, end in zip(places[:-1], places[1:], strict=True)
    ]


def _joined(parts: list[tuple[int, str]], num_texts: int) -> list[str]:
    of_text: list[list[str]] = [[] for _ in range(num_texts)]
    for number, part in parts:
        if part:
            of_text[number].append(part)
    return [" ".join(found) for found in of_text]


def _with_marks_alone(
    texts: Sequence[str], bare: list[int], keys: list[str], words: Ragged
) -> tuple[list[str], Ragged]:
    """Texts of nothing but punctuation keep it, as in dedup_key: '?' is not '!'."""
    rows = [words[n] for n in range(len(words))]
    for number in bare:
        found = words_of(texts[number])
        rows[number] = np.array([_hash_of_word(word) for word in found], np.uint64)
        keys[number] = " ".join(found)
    sizes = np.array([len(row) for row in rows], np.int64)
    return keys, Ragged(np.concatenate(rows), _offsets(sizes))


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
