"""Texts that have broken tokenizers: what a lossless one must give back as it was.

A fixed list, and random ones without end: code points from all of Unicode, Turkish with combining
marks, runs of white space and of anything else, emoji families, SentencePiece's own symbols, written role marks.
"""

import random
from collections.abc import Iterator

PROBES = (
    "",
    " ",
    "\n",
    "a\n\n  b\tc ",
    "10 m² ½ … № ﬁ",
    "x ▁ y ▁▁",
    "<|user|></s><unk><0x0A>",
    "ÇĞİIıöşü’ne Ankara'dan 1923'te",
    "I\u0307stanbul s\u0327ehri",
    "🙂🙂 👩‍👩‍👧",
    "\r\n\0",
    "x != y , evet ! Ankara 'da",
)

_WORDS = (
    "ev", "evlerimizden", "İstanbul", "IĞDIR", "ığdır", "çağdaş", "şöyle", "Ankara'dan", "1923’te", "kâr",
    "hâlâ", "bir", "ve", "gelmişti", "x=1", "def f(a):", "12.345,67", "%5", "https://a.b/c?d=e",
)  # fmt: skip
_SPACES = (" ", "  ", "     ", "\n", "\n\n", "\t", "\r\n", "\r", "\u00a0", "\u2009", "\u3000", "\u2028", "\x0b", "\x85")  # fmt: skip
_MARKS = ("\u0307", "\u0327", "\u0306", "\u0301", "\u0308", "\u200d", "\u200b", "\ufeff", "\ufe0f")
_EMOJI = ("🙂", "👩‍👩‍👧", "👨🏽‍🚀", "🇹🇷", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣")
_OWN = (
    "▁", "▁▁", "▅", "\0", "\ufffd", "<", "<|", "|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>",
    "</s>", "<s>", "<unk>", "<pad>", "<0x41>", "<0x0A>", "⁇", " ⁇ ",
)  # fmt: skip
_LETTERS = "abcçdefgğhıijklmnoöprsştuüvyzABCÇIİĞŞÖÜ0123456789.,;:!?'’\"()-_/<>|= "


def hard_texts(seed: int) -> Iterator[str]:
    """Random texts of 0 to 40 parts, without end; each is whole Unicode, without surrogates."""
    rng = random.Random(seed)
    listed = (_WORDS, _SPACES, _MARKS, _EMOJI, _OWN, _LETTERS)
    while True:
        parts = []
        for _ in range(rng.randint(0, 40)):
            kind = rng.randrange(len(listed) + 2)
            part = rng.choice(listed[kind]) if kind < len(listed) else _any_character(rng)
            parts.append(part * rng.randint(2, 40) if rng.random() < 0.05 else part)
        yield "".join(parts)


def _any_character(rng: random.Random) -> str:
    """From the whole of Unicode, half of them below U+3000."""
    code = rng.randrange(0x3000 if rng.random() < 0.5 else 0x110000 - 0x800)
    return chr(code if code < 0xD800 else code + 0x800)
