"""Are near duplicates found, and nothing else? Recall and precision on copies altered as real ones.

    python -m bench.near_duplicates [--texts 1500] [--raw data/raw]

Altered copies of generated texts: old spelling (â for a), hyphens of a line's end, slips of optical
reading, moved and lost paragraphs, shared footers. The truth is the Jaccard similarity of the sets
of word n-grams, made of plain strings, over all pairs. Then the speeches of data/raw/ataturk, in
which seven texts are other versions of another; and speed, in MB a second of one core.
"""

import argparse
import dataclasses
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench.generated_corpus import FOOTERS, documents
from sifirdan.corpus import records
from sifirdan.corpus.dedup import priority
from sifirdan.corpus.near_duplicates import (
    CONTAINED,
    Copies,
    DuplicateParams,
    NearDuplicates,
    fingerprints,
)
from sifirdan.corpus.shingles import (
    as_sets,
    keys_and_words,
    ngrams,
    signatures,
    word_hashes,
    words_of,
)

PARAMS = DuplicateParams(
    shingle_words=5, bands=16, rows=6, similarity=0.8, containment=0.53,
    containment_min_shared=50, memory_mb=256,
)  # fmt: skip

Rng = np.random.Generator
Pair = tuple[int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=1500)
    parser.add_argument("--raw", type=Path, default=Path("data/raw"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    texts = altered_corpus(arguments.texts, np.random.default_rng(arguments.seed))
    measure_quality(texts)
    if (arguments.raw / "ataturk").exists():
        show_speeches(arguments.raw / "ataturk")
    measure_speed(texts)


# Copies as they really occur


def respell(text: str, rng: Rng, amount: float) -> str:
    """Newer spelling: circumflexes go, some words change a letter."""
    pairs = [("â", "a"), ("î", "i"), ("û", "u"), ("yor ", "yör "), ("ki ", "kî ")]
    for old, new in pairs:
        if rng.random() < amount * 20:
            text = text.replace(old, new, int(1 + amount * len(text) / 50))
    return text


def hyphenate(text: str, rng: Rng, amount: float) -> str:
    """Words parted at the end of a printed line: 'gel- diği'."""
    words = text.split(" ")
    for place in rng.integers(0, len(words), _times(words, amount)).tolist():
        if len(words[place]) > 6:
            words[place] = f"{words[place][:4]}- {words[place][4:]}"
    return " ".join(words)


def misread(text: str, rng: Rng, amount: float) -> str:
    """Letters that optical reading mistakes for others."""
    slips = {"ı": "i", "ğ": "g", "ş": "s", "m": "rn", "l": "1", "o": "0", "e": "c", "ü": "ii"}
    words = text.split(" ")
    for place in rng.integers(0, len(words), _times(words, amount)).tolist():
        letter = list(slips)[int(rng.integers(len(slips)))]
        words[place] = words[place].replace(letter, slips[letter], 1)
    return " ".join(words)


def move_paragraph(text: str, rng: Rng, amount: float) -> str:
    """One paragraph stands elsewhere."""
    parts = text.split("\n\n")
    if len(parts) > 2:
        parts.insert(int(rng.integers(len(parts) - 1)), parts.pop(int(rng.integers(len(parts)))))
    return "\n\n".join(parts)


def lose_paragraph(text: str, rng: Rng, amount: float) -> str:
    """One paragraph is missing."""
    parts = text.split("\n\n")
    if len(parts) > 1:
        parts.pop(int(rng.integers(len(parts))))
    return "\n\n".join(parts)


def add_footer(text: str, rng: Rng, amount: float) -> str:
    """A site's footer below the text."""
    return f"{text}\n\n{FOOTERS[int(rng.integers(len(FOOTERS)))]}"


ALTERATIONS: tuple[Callable[[str, Rng, float], str], ...] = (
    respell, hyphenate, misread, move_paragraph, lose_paragraph, add_footer,
)  # fmt: skip


def altered_corpus(num_texts: int, rng: Rng) -> list[str]:
    """Texts, half of them altered copies of others (some copies of copies), in mixed order."""
    found = documents(1 << 62, seed=int(rng.integers(1 << 30)))
    texts = [next(found) for _ in range(num_texts // 2)]
    while len(texts) < num_texts:
        text = texts[int(rng.integers(len(texts)))]
        for number in rng.permutation(len(ALTERATIONS))[: int(rng.integers(1, 4))].tolist():
            text = ALTERATIONS[number](text, rng, float(rng.uniform(0.001, 0.05)))
        texts.append(text)
    return [texts[n] for n in rng.permutation(num_texts).tolist()]


def _times(words: list[str], amount: float) -> int:
    return max(1, int(len(words) * amount))


# Truth by brute force


def true_similarities(texts: Sequence[str], num_words: int) -> dict[Pair, float]:
    """Jaccard similarity of every pair that shares a word n-gram at all, larger number first."""
    shingles = [plain_shingles(text, num_words) for text in texts]
    having: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, found in enumerate(shingles):
        for shingle in found:
            having[shingle].append(number)
    shared: Counter[Pair] = Counter()
    for numbers in having.values():
        for i, b in enumerate(numbers):
            shared.update((b, a) for a in numbers[:i])
    sizes = [len(found) for found in shingles]
    return {(b, a): count / (sizes[a] + sizes[b] - count) for (b, a), count in shared.items()}


def plain_shingles(text: str, num_words: int) -> set[tuple[str, ...]]:
    words = words_of(text)
    last = max(len(words) - num_words, 0)
    return {tuple(words[i : i + num_words]) for i in range(last + 1)} if words else set()


def search(texts: Sequence[str], params: DuplicateParams) -> tuple[Copies, list[int]]:
    """What our search decides, and the order of the texts from the one that stays first."""
    prints = fingerprints(texts, params)
    priorities = [priority(0, len(text), f"{n:06x}") for n, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        search = NearDuplicates(Path(folder), params)
        search.add(prints, np.array(priorities, np.uint64))
        found = search.find()
        copies = Copies(*(np.array(a) for a in (found.kept, found.similarity, found.kind)))
    return copies, sorted(range(len(texts)), key=lambda n: (priorities[n], n))


def measure_quality(texts: list[str]) -> None:
    truth = true_similarities(texts, PARAMS.shingle_words)
    limit = PARAMS.similarity
    alike = {pair for pair, similarity in truth.items() if similarity >= limit}
    bands = fingerprints(texts, PARAMS).bands
    met = {pair for pair in alike if (bands[pair[0]] == bands[pair[1]]).any()}
    print(
        f"{len(texts)} texts, {len(truth)} pairs share an n-gram, {len(alike)} are alike ({limit})"
    )
    print(f"pairs alike that become candidates: recall {len(met) / len(alike):.4f}")
    for low in np.arange(limit, 1.0, 0.05):
        within = {pair for pair in alike if low <= truth[pair] < low + 0.05 + (low > 0.94)}
        print(f"  {low:.2f} to {low + 0.05:.2f}: {len(within & met)} of {len(within)}")
    # Without containment, which removes some of the copies that are less alike.
    near_only = dataclasses.replace(PARAMS, containment_min_shared=1 << 40)
    copies, order = search(texts, near_only)
    kept: set[int] = set()
    wanted: set[int] = set()
    neighbours = defaultdict(list)
    for b, a in alike:
        neighbours[a].append(b)
        neighbours[b].append(a)
    for number in order:
        if kept.intersection(neighbours[number]):
            wanted.add(number)
        else:
            kept.add(number)
    removed = np.flatnonzero(copies.kept >= 0).tolist()
    right = [n for n in removed if (max(n, copies.kept[n]), min(n, copies.kept[n])) in alike]
    print(f"removed {len(removed)} texts, brute force removes {len(wanted)}")
    print(f"recall    {len(wanted.intersection(removed)) / len(wanted):.4f}")
    print(f"precision {len(right) / max(len(removed), 1):.4f}")


def show_speeches(folder: Path) -> None:
    """Every text of the speeches that is removed, with the one that stays."""
    documents = [d for d in records.read_folder(folder) if d.text.strip()]
    copies, _ = search([document.text for document in documents], PARAMS)
    print(f"\n{folder}: {len(documents)} documents, removed {int((copies.kind > 0).sum())}")
    for number in np.flatnonzero(copies.kind > 0).tolist():
        kind = "contained" if copies.kind[number] == CONTAINED else "near"
        kept = documents[copies.kept[number]]
        gone = documents[number]
        print(f"  {kind:9} {copies.similarity[number]:.2f} {gone.origin} ({len(gone.text)})"
              f" <- {kept.origin} ({len(kept.text)})")  # fmt: skip


def measure_speed(texts: list[str]) -> None:
    while sum(map(len, texts)) < 8_000_000:
        texts = texts + texts
    size = sum(len(text.encode()) for text in texts) / 1e6
    words = word_hashes(texts)
    sets = as_sets(ngrams(words, 5))
    steps: dict[str, Callable[[], object]] = {
        "words": lambda: word_hashes(texts),
        "words and keys": lambda: keys_and_words(texts),
        "n-grams": lambda: ngrams(words, 5),
        "sets": lambda: as_sets(ngrams(words, 5)),
        "signatures": lambda: signatures(sets, 96),
        "all": lambda: fingerprints(texts, PARAMS),
    }
    print(f"\n{size:.1f} MB, {len(texts)} texts, CPU time of one core, best of 3")
    for name, step in steps.items():
        seconds = []
        for _ in range(3):
            start = time.process_time()
            step()
            seconds.append(time.process_time() - start)
        print(f"  {name:15} {size / min(seconds):7.1f} MB/s")


if __name__ == "__main__":
    main()
