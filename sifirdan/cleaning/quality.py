"""Is a web text worth learning from? Rules about its length, repetition, symbols, words and lines.

The text is cut into words and lines once; every rule then compares one measure with one limit. Words
are what stands between white space, so a comma counts to its word. For web text only: poems, tables
and dictionaries are good text that these rules turn away.

Sources: "Gopher" is Rae et al. 2021 (arXiv 2112.11446), Table A1; "FineWeb-2" is the configuration
for tur_Latn in github.com/huggingface/fineweb-2 with the settings of its pipeline.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from sifirdan.corpus.shingles import ALL_CODES, PIECE_CHARS, SMALL_TABLE, mixed, powers_of
from sifirdan.errors import require
from sifirdan.text import upper_tr

FINAL_MARKS = (".", "!", "?", "…", ":", ";", '."', '!"', '?"', ".”", "!”", "?”", ".’", ".)", "»")
# Not the long dash, with which Turkish begins what somebody says.
_BULLETS = ("•", "●", "○", "■", "□", "▪", "▫", "◦", "‣", "⁃", "-", "*", "·")
_ELLIPSES = ("...", "…")


@dataclass(frozen=True)
class QualityParams:
    """Limits, each within what is kept; null turns a rule off. Shares are from 0 to 1."""

    min_words: int | None
    max_words: int | None
    min_mean_word_chars: float | None
    max_mean_word_chars: float | None
    max_symbol_share: float | None  # "#" and ellipses a word
    min_letter_word_share: float | None  # words with a letter in them
    max_digit_share: float | None  # of the characters that are not white space
    min_stop_words: int | None  # different ones of `stop_words`
    stop_words: list[str]
    min_final_mark_line_share: float | None  # lines that end with a mark of a sentence
    max_bullet_line_share: float | None
    max_ellipsis_line_share: float | None
    max_short_line_share: float | None  # lines of at most `short_line_chars`
    short_line_chars: int
    max_line_breaks_per_word: float | None
    max_duplicate_line_share: float | None
    max_duplicate_line_char_share: float | None
    max_duplicate_paragraph_share: float | None
    max_top_n_gram_share: (
        dict[int, float] | None
    )  # by n: characters in the most frequent n-gram of words
    max_duplicate_n_gram_share: (
        dict[int, float] | None
    )  # by n: characters in n-grams that came before

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("_share"):
                for share in value.values() if isinstance(value, dict) else [value]:
                    require(share is None or 0 <= share <= 1, name, value, "from 0 to 1")
            elif isinstance(value, int | float):
                require(value >= 0, name, value, "0 or more")
        for name in ("max_top_n_gram_share", "max_duplicate_n_gram_share"):
            sizes = list(getattr(self, name) or {})
            plain = all(isinstance(n, int) and 2 <= n <= 20 for n in sizes)
            require(plain and sizes == sorted(sizes), name, sizes, "sizes from 2 to 20, rising")
        wanted = self.min_stop_words or 0
        enough = f"at most {len(set(self.stop_words))}, the number of quality.stop_words"
        require(wanted <= len(set(self.stop_words)), "min_stop_words", wanted, enough)


@dataclass(frozen=True)
class Check:
    """One rule on one text: its reason code, what was measured, and the limits it must lie in."""

    reason: str
    value: float
    low: float | None
    high: float | None

    @property
    def passed(self) -> bool:
        above = self.low is None or self.value >= self.low
        return above and (self.high is None or self.value <= self.high)


def quality_reason(text: str, params: QualityParams) -> str | None:
    """The first rule that a text breaks, or None."""
    for reason, value, low, high in _checks(Tokens(text), params, exact=False):
        if (low is not None and value < low) or (high is not None and value > high):
            return reason
    return None


def quality_checks(text: str, params: QualityParams) -> list[Check]:
    """Every rule that is on, with its measure: for people who set limits."""
    checks = _checks(Tokens(text), params, exact=True)
    return [Check(*check) for check in checks if check[2:] != (None, None)]


_Measured = tuple[str, float, float | None, float | None]  # as the fields of Check


def _checks(tokens: "Tokens", params: QualityParams, *, exact: bool) -> Iterator[_Measured]:
    """The rules, cheap ones first. Unless `exact`, the measure of an n-gram rule that holds may be
    an upper bound, and rules that can no longer fail are left out."""
    num_words = tokens.num_words
    yield "too_few_words", num_words, params.min_words, None
    yield "too_many_words", num_words, None, params.max_words
    if not num_words:
        return
    mean = tokens.num_visible / num_words
    yield "short_words", mean, params.min_mean_word_chars, None
    yield "long_words", mean, None, params.max_mean_word_chars
    symbols = sum(map(tokens.text.count, ("#", *_ELLIPSES))) / num_words
    yield "symbols", symbols, None, params.max_symbol_share
    letters = tokens.num_letter_words / num_words
    yield "few_words_with_letters", letters, params.min_letter_word_share, None
    digits = tokens.num_digits / tokens.num_visible
    yield "digits", digits, None, params.max_digit_share
    enough = None if exact else params.min_stop_words or 0
    stop_words = count_stop_words(tokens, params.stop_words, enough=enough)
    yield "few_stop_words", stop_words, params.min_stop_words, None
    yield from _line_checks(tokens, params)
    yield from _repetition_checks(tokens, params, exact=exact)


def _line_checks(tokens: "Tokens", params: QualityParams) -> Iterator[_Measured]:
    lines = tokens.lines
    num_lines = len(lines)
    breaks = tokens.text.count("\n") / tokens.num_words
    yield "line_breaks", breaks, None, params.max_line_breaks_per_word
    final = sum(line.endswith(FINAL_MARKS) for line in lines) / num_lines
    yield "few_final_marks", final, params.min_final_mark_line_share, None
    bullets = sum(line.startswith(_BULLETS) for line in lines) / num_lines
    yield "bullet_lines", bullets, None, params.max_bullet_line_share
    ellipses = sum(line.endswith(_ELLIPSES) for line in lines) / num_lines
    yield "ellipsis_lines", ellipses, None, params.max_ellipsis_line_share
    short = sum(len(line) <= params.short_line_chars for line in lines) / num_lines
    yield "short_lines", short, None, params.max_short_line_share


def _repetition_checks(
    tokens: "Tokens", params: QualityParams, *, exact: bool
) -> Iterator[_Measured]:
    lines = duplicate_share(tokens.lines)
    yield "duplicate_lines", lines, None, params.max_duplicate_line_share
    chars = duplicate_char_share(tokens.lines)
    yield "duplicate_line_chars", chars, None, params.max_duplicate_line_char_share
    paragraphs = duplicate_share(tokens.paragraphs)
    yield "duplicate_paragraphs", paragraphs, None, params.max_duplicate_paragraph_share
    for n, limit in (params.max_top_n_gram_share or {}).items():
        share = top_n_gram_share(tokens, n, enough=0.0 if exact else limit)
        yield f"top_{n}_gram", share, None, limit
    limits = params.max_duplicate_n_gram_share or {}
    lowest = 0.0 if exact else min(limits.values(), default=0.0)
    for n, limit in limits.items():
        share = duplicate_n_gram_share(tokens, n, enough=lowest)
        yield f"duplicate_{n}_grams", share, None, limit
        if share <= lowest and not exact:
            return  # a longer n-gram never covers more


# Measures.


class Tokens:
    """A text cut into words and lines, each part only when a rule asks for it. Words are where
    `str.split` finds them, but stay numbers in arrays: the rules only count and compare them."""

    def __init__(self, text: str) -> None:
        self.text = text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        is_plain = int(codes.max(initial=0)) < SMALL_TABLE
        # uint32, a number a character: 0 for white space, else its code and what kind it is
        self.chars = _table(SMALL_TABLE if is_plain else ALL_CODES).take(codes, mode="clip")
        visible = np.zeros(len(codes) + 2, bool)
        np.not_equal(self.chars, 0, out=visible[1:-1])
        edges = np.flatnonzero(visible[1:] != visible[:-1])
        self.starts, self.ends = edges[0::2], edges[1::2]  # of each word, int64
        self.num_words = len(self.starts)
        # An n, and how often its most frequent n-gram comes: a longer one comes no more often.
        self.most_n_grams = 1, self.num_words

    @cached_property
    def lines(self) -> list[str]:
        return [line for line in map(str.strip, self.text.split("\n")) if line]

    @cached_property
    def paragraphs(self) -> list[str]:
        return [part for part in map(str.strip, self.text.split("\n\n")) if part]

    @cached_property
    def word_chars(self) -> np.ndarray:
        """int64, (num_words,): the length of each word."""
        return self.ends - self.starts

    @cached_property
    def longest_word(self) -> int:
        return int(self.word_chars.max(initial=0))

    @cached_property
    def word_hashes(self) -> np.ndarray:
        """uint64, (num_words,): the polynomial of each word's characters, mixed. A long text is
        read a piece at a time, since tables of powers take sixteen bytes a character."""
        hashes = np.empty(self.num_words, np.uint64)
        first = 0
        while first < self.num_words:
            start = self.starts[first]
            fitting = int(np.searchsorted(self.ends, start + PIECE_CHARS, side="right"))
            last = max(first + 1, fitting)
            piece = self.chars[start : self.ends[last - 1]].astype(np.uint64)
            powers, inverses = powers_of(len(piece))
            piece *= powers[: len(piece)]
            places = self.starts[first:last] - start
            hashes[first:last] = np.add.reduceat(piece, places) * inverses[places]
            first = last
        return mixed(hashes)

    @cached_property
    def num_visible(self) -> int:
        """Characters that are not white space."""
        return int(self.word_chars.sum())

    @cached_property
    def num_digits(self) -> int:
        """ASCII digits: others are so rare that looking for them would cost more than it tells."""
        return int(np.count_nonzero(self.chars & _DIGIT))

    @cached_property
    def num_letter_words(self) -> int:
        """Words with a letter in them."""
        if not self.num_words:
            return 0
        return int(np.count_nonzero(np.bitwise_or.reduceat(self.chars, self.starts) & _LETTER))


_LETTER, _DIGIT = np.uint32(1 << 30), np.uint32(1 << 29)  # a code point has 21 bits


@cache
def _table(size: int) -> np.ndarray:
    """What `Tokens.chars` holds for each code point below `size`. A letter is what `[^\\W\\d_]` is
    in a regular expression."""
    codes = np.arange(1, size + 1, dtype=np.uint32)
    chars = list(map(chr, range(size)))
    is_letter = [char.isalnum() and not char.isdecimal() for char in chars]
    codes[np.array(is_letter)] |= _LETTER
    codes[ord("0") : ord("9") + 1] |= _DIGIT
    codes[np.array(list(map(str.isspace, chars)))] = 0
    return codes


_FIRST_CHARS = 1000  # in which most texts have enough stop words


def count_stop_words(tokens: Tokens, stop_words: list[str], *, enough: int | None = None) -> int:
    """How many different stop words stand in the text, also with a capital at their start. From
    `enough` on, the number may be too small."""
    forms = _forms_of(tuple(stop_words))
    if enough is not None and len(tokens.text) > _FIRST_CHARS:
        words = set(tokens.text[:_FIRST_CHARS].split()[:-1])  # the last may be cut
        found = sum(not words.isdisjoint(form) for form in forms)
        if found >= enough:
            return found
    words = set(tokens.text.split())
    return sum(not words.isdisjoint(form) for form in forms)


@cache
def _forms_of(stop_words: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(word, upper_tr(word[0]) + word[1:]) for word in sorted(set(stop_words))]


def duplicate_share(parts: list[str]) -> float:
    """The share of parts that are the same as an earlier one."""
    return 1 - len(set(parts)) / len(parts) if parts else 0.0


def duplicate_char_share(parts: list[str]) -> float:
    """The share of characters that stand in such parts."""
    total = sum(map(len, parts))
    return 1 - sum(map(len, set(parts))) / total if total else 0.0


def top_n_gram_share(tokens: Tokens, n: int, *, enough: float = 0.0) -> float:
    """The share of characters in the most frequent n-gram of words, of several the longest; 0 if
    none comes twice. A share up to `enough` may be given too high, but not higher than `enough`."""
    if tokens.num_words < n:
        return 0.0
    longest = n * tokens.longest_word + n - 1
    shorter, most = tokens.most_n_grams
    if shorter <= n and most == 1:
        return 0.0
    if shorter <= n and (bound := most * longest / len(tokens.text)) <= enough:
        return bound
    codes = _n_gram_codes(tokens, n)
    ordered = np.sort(codes)
    ends = np.flatnonzero(ordered[1:] != ordered[:-1])
    if len(ends) == len(ordered) - 1:
        tokens.most_n_grams = n, 1
        return 0.0
    starts = np.concatenate(([0], ends + 1))
    counts = np.concatenate((starts[1:], [len(ordered)])) - starts
    most = int(counts.max())
    tokens.most_n_grams = n, most
    if (bound := most * longest / len(tokens.text)) <= enough:
        return bound
    reach = np.append(0, np.cumsum(tokens.word_chars))
    chars = reach[n:] - reach[:-n] + n - 1  # with the spaces between the words
    is_top = np.isin(codes, ordered[starts[counts == most]])
    return most * int(chars[is_top].max()) / len(tokens.text)


def duplicate_n_gram_share(tokens: Tokens, n: int, *, enough: float = 0.0) -> float:
    """The share of characters in words that an n-gram covers which has come before. A share up to
    `enough` may be given too high, but not higher than `enough`."""
    shorter, most = tokens.most_n_grams
    if tokens.num_words <= n or (shorter <= n and most == 1):
        return 0.0
    codes = _n_gram_codes(tokens, n)
    ordered = np.sort(codes)
    num_repeated = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    bound = num_repeated * n * tokens.longest_word / len(tokens.text)
    if bound <= enough or not num_repeated:
        return bound
    _, first = np.unique(codes, return_index=True)
    repeated = np.ones(len(codes), bool)
    repeated[first] = False
    starts = np.flatnonzero(repeated)
    steps = np.zeros(tokens.num_words + 1, np.int64)
    steps[starts] += 1
    steps[starts + n] -= 1
    covered = np.cumsum(steps[:-1]) > 0
    return int(tokens.word_chars[covered].sum()) / len(tokens.text)


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no bit of a word's hash is lost


def _n_gram_codes(tokens: Tokens, n: int) -> np.ndarray:
    """uint64, (num_words - n + 1,): equal for equal n-grams; a polynomial of the words' hashes."""
    hashes = tokens.word_hashes
    length = len(hashes) - n + 1
    if length < 1:
        return hashes[:0]
    codes = hashes[:length].copy()
    for shift in range(1, n):
        codes *= _MULTIPLIER
        codes += hashes[shift : shift + length]
    return codes
