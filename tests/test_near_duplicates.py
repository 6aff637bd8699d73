"""Near duplicates: what is removed is a verified copy of what stays, as by brute force."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sifirdan.corpus import disk_rows, near_duplicates
from sifirdan.corpus.dedup import priority
from sifirdan.corpus.near_duplicates import (
    CONTAINED,
    NEAR,
    Copies,
    DuplicateParams,
    Fingerprints,
    NearDuplicates,
    fingerprints,
)
from sifirdan.corpus.shingles import Ragged, shingle_hashes
from sifirdan.errors import ConfigError

ROOT = Path(__file__).parents[1]
PARAMS = DuplicateParams(
    shingle_words=3, bands=16, rows=6, similarity=0.8, containment=0.3, containment_min_shared=20,
    memory_mb=64,
)  # fmt: skip
NEAR_ONLY = dataclasses.replace(PARAMS, containment_min_shared=1 << 40)
WORDS = [f"{a}{b}{c}" for a in ("kır", "göl", "dağ", "yaz", "ışık") for b in ("lar", "da", "ı", "lık", "sız") for c in ("", "n", "m", "dan")]  # fmt: skip


def prose(num_words: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{WORDS[n]}{rng.integers(40)}" for n in rng.integers(0, len(WORDS), num_words)]


def changed(words: list[str], share: float, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [f"{w}x{seed}" if rng.random() < share else w for w in words]


def search(
    folder: Path, texts: list[str], *, sources: list[int] | None = None, batch: int = 1000,
    left_out: list[bool] | None = None, params: DuplicateParams = PARAMS,
) -> Copies:  # fmt: skip
    near = NearDuplicates(folder, params)
    for start in range(0, len(texts), batch):
        part = texts[start : start + batch]
        ranks = [priority_of(texts, n, sources) for n in range(start, start + len(part))]
        near.add(fingerprints(part, params), np.array(ranks, np.uint64))
    return near.find(None if left_out is None else np.array(left_out))


def priority_of(texts: list[str], number: int, sources: list[int] | None) -> int:
    return priority(sources[number] if sources else 0, len(texts[number]), f"{number:06x}")


def similarity(a: np.ndarray, b: np.ndarray) -> tuple[float, float, int]:
    """Jaccard similarity, share of `a` found in `b`, number shared."""
    shared = len(np.intersect1d(a, b))
    return shared / max(len(a) + len(b) - shared, 1), shared / max(len(a), 1), shared


def brute_force(
    texts: list[str], sources: list[int] | None = None, params: DuplicateParams = PARAMS
) -> dict[int, int]:
    """Near duplicates removed, greedily from the text that comes first, by all pairs."""
    sets = [shingle_hashes(t, params.shingle_words) for t in texts]
    order = sorted(range(len(texts)), key=lambda n: (priority_of(texts, n, sources), n))
    kept: list[int] = []
    removed: dict[int, int] = {}
    for number in order:
        for other in kept:
            if similarity(sets[number], sets[other])[0] >= params.similarity:
                removed[number] = other
                break
        else:
            kept.append(number)
    return removed


def family_corpus() -> tuple[list[str], list[int]]:
    """Texts in families of copies, some alike enough and some not, of two sources, mixed."""
    texts, sources = [], []
    for family in range(40):
        base = prose(60 + 7 * family, family)
        for copy in range(6):
            share = (0.0, 0.01, 0.02, 0.04, 0.1, 0.3)[copy]
            texts.append(" ".join(changed(base, share, 1000 * family + copy)))
            sources.append((family + copy) % 2)
    order = np.random.default_rng(0).permutation(len(texts)).tolist()
    return [texts[n] for n in order], [sources[n] for n in order]


def test_what_brute_force_removes_is_removed(tmp_path: Path) -> None:
    texts, sources = family_corpus()
    copies = search(tmp_path, texts, sources=sources, params=NEAR_ONLY)
    wanted = brute_force(texts, sources)
    assert len(wanted) > 60
    found = {n: int(copies.kept[n]) for n in np.flatnonzero(copies.kind == NEAR).tolist()}
    assert len(found.keys() & wanted.keys()) >= 0.97 * len(wanted)
    assert len(found.keys() - wanted.keys()) <= 0.03 * len(wanted)


def test_every_removed_text_was_compared_with_the_one_that_stays(tmp_path: Path) -> None:
    texts, sources = family_corpus()
    excerpt = " ".join(prose(400, 3)[100:200])
    texts += [" ".join(prose(400, 3)), excerpt]
    sources += [1, 1]
    copies = search(tmp_path, texts, sources=sources)
    for number in np.flatnonzero(copies.kept >= 0).tolist():
        keeper = int(copies.kept[number])
        assert copies.kept[keeper] == -1
        assert priority_of(texts, keeper, sources) < priority_of(texts, number, sources)
        a, b = (shingle_hashes(texts[n], PARAMS.shingle_words) for n in (number, keeper))
        jaccard, share, shared = similarity(a, b)
        if copies.kind[number] == NEAR:
            assert copies.similarity[number] == pytest.approx(jaccard) and jaccard >= 0.8
        else:
            assert copies.similarity[number] == pytest.approx(share) and share >= 0.3
            assert shared >= PARAMS.containment_min_shared
    assert copies.kind[-1] == CONTAINED and copies.kept[-1] == len(texts) - 2


def test_no_chain_removes_a_text_unlike_the_one_that_stays(tmp_path: Path) -> None:
    base = prose(400, 1)
    chain = [base + ["son"] * 10]
    for step in range(1, 12):  # each is like its neighbours only
        chain.append([*prose(400, 77)[: 30 * step], *base[30 * step :]])
    texts = [" ".join(words) for words in chain]
    copies = search(tmp_path, texts, params=NEAR_ONLY)
    removed = np.flatnonzero(copies.kept >= 0).tolist()
    assert {n: int(copies.kept[n]) for n in removed} == brute_force(texts)
    assert 1 < int((copies.kept < 0).sum()) < len(texts)


@pytest.mark.parametrize("batch", [1, 17])
def test_batches_and_memory_change_nothing(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, sources = family_corpus()
    texts += [" ".join(prose(300, 5)), " ".join(prose(300, 5)[:90])]
    sources += [0, 0]
    whole = search(tmp_path / "whole", texts, sources=sources)
    monkeypatch.setattr(near_duplicates, "buckets_for", lambda *_: 8)
    monkeypatch.setattr(near_duplicates, "BLOCK_ROWS", 16)
    monkeypatch.setattr(disk_rows, "BLOCK_ROWS", 64)
    parts = search(tmp_path / "parts", texts, sources=sources, batch=batch)
    assert parts.kept.tolist() == whole.kept.tolist()
    assert parts.similarity.tolist() == whole.similarity.tolist()
    assert parts.kind.tolist() == whole.kind.tolist()


def test_the_earlier_source_then_the_longer_stays(tmp_path: Path) -> None:
    base = prose(200, 9)
    texts = [" ".join(base), " ".join([*base, "uzun", "ek"]), " ".join([*base, "ek"])]
    assert search(tmp_path / "a", texts, sources=[1, 1, 0]).kept.tolist() == [2, 2, -1]
    assert search(tmp_path / "b", texts, sources=[0, 0, 0]).kept.tolist() == [1, -1, 1]


def test_of_equals_the_smaller_id_stays(tmp_path: Path) -> None:
    base = " ".join(prose(50, 9))
    assert search(tmp_path, [base, base]).kept.tolist() == [-1, 0]


def test_left_out_documents_neither_go_nor_stand_for_others(tmp_path: Path) -> None:
    base = prose(200, 4)
    texts = [" ".join([*base, "en", "uzun"]), " ".join([*base, "iki"]), " ".join(base)]
    copies = search(tmp_path, texts, left_out=[True, False, False])
    assert copies.kept.tolist() == [-1, -1, 1]


def test_a_group_of_many_copies_is_found_by_its_first(tmp_path: Path) -> None:
    base = prose(300, 6)
    texts = [" ".join(changed(base, 0.002, n)) + " son" * (n == 250) for n in range(500)]
    copies = search(tmp_path, texts)
    assert int((copies.kept < 0).sum()) <= 3


def test_a_text_whose_keeper_goes_is_compared_with_the_next(tmp_path: Path) -> None:
    whole = prose(900, 8)
    part = whole[100:400]
    near_part = changed(part, 0.01, 5)
    stranger = [*prose(62, 50), *part[62:]]  # like the part, hardly like the whole
    texts = [" ".join(whole), " ".join([*part, "uzun", "son"]), " ".join(near_part)]
    copies = search(tmp_path / "a", texts)
    assert copies.kept.tolist() == [-1, 0, 0]
    assert copies.kind.tolist() == [0, CONTAINED, CONTAINED]
    strict = DuplicateParams(3, 16, 6, 0.6, 0.93, 20, 64)
    texts[2] = " ".join(stranger)
    copies = search(tmp_path / "b", texts, params=strict)
    assert copies.kept.tolist() == [-1, 0, -1], "a copy of the part, but not of what stays"


def test_set_phrases_are_no_evidence(tmp_path: Path) -> None:
    phrase = prose(25, 1)
    texts = [" ".join([*prose(40, 100 + n), *phrase]) for n in range(60)]
    assert (search(tmp_path, texts).kept == -1).all()


def test_I_11_long_texts_with_shared_footers_and_tables_all_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    footer = "Bu yazının her hakkı saklıdır. İzinsiz çoğaltılamaz ve başka yerde yayımlanamaz. " * 4
    head = "Yıl Nüfus Oran Değişim\n"
    texts = []
    for number in range(200):
        table = head + "\n".join(
            f"{year} {rng.integers(1, 400)} {rng.integers(1, 100)},{rng.integers(10)} 0 0 1"
            for year in range(1950, 2020)
        )
        texts.append(" ".join(prose(300, 200 + number)) + "\n" + table + "\n" + footer)
    assert (search(tmp_path, texts).kept == -1).all()


def test_I_12_kar_and_kâr_stay_apart_and_composed_twins_do_not(tmp_path: Path) -> None:
    texts = ["kar yağdı dağa", "kâr yağdı dağa", "ılık su", "ilik su", "şu İl", "s\u0327u I\u0307l"]
    assert search(tmp_path, texts).kept.tolist() == [-1, -1, -1, -1, 5, -1]


def test_texts_without_words_are_no_copies(tmp_path: Path) -> None:
    assert search(tmp_path, ["", " ", "\n", ""]).kept.tolist() == [-1] * 4


def test_no_documents(tmp_path: Path) -> None:
    near = NearDuplicates(tmp_path, PARAMS)
    near.add(Fingerprints([], Ragged(np.zeros(0, np.uint64), np.zeros(1, np.int64)), np.zeros((0, 16), np.uint64)), np.zeros(0, np.uint64))  # fmt: skip
    assert near.find().kept.tolist() == []


@pytest.mark.slow
def test_memory_is_bounded_whatever_the_number_of_texts(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from sifirdan.corpus.near_duplicates import *
params = DuplicateParams(5, 16, 6, 0.8, 0.3, 20, 32)
near = NearDuplicates(Path(sys.argv[1]), params)
rng = np.random.default_rng(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(int(sys.argv[2])):
    texts = [" ".join(map(str, rng.integers(0, 9999, 100))) for _ in range(1000)]
    texts[1] = texts[0] + " 7"
    near.add(fingerprints(texts, params), np.arange(1000).astype(np.uint64))
copies = near.find()
assert (copies.kept >= 0).sum() == int(sys.argv[2])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    grown = {}
    for batches in (10, 60):
        command = [sys.executable, "-c", script, str(tmp_path / str(batches)), str(batches)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT)
        assert done.returncode == 0, done.stderr
        grown[batches] = float(done.stdout)
    assert grown[60] < grown[10] + 40, grown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shingle_words", 0),
        ("bands", 0),
        ("rows", 0),
        ("similarity", 0.0),
        ("similarity", 1.1),
        ("containment", 0.0),
        ("containment_min_shared", 0),
        ("memory_mb", 1),
    ],
)
def test_values_that_cannot_work_are_refused(key: str, value: float) -> None:
    values = {**PARAMS.__dict__, key: value}
    with pytest.raises(ConfigError, match=rf"clean\.duplicates\.{key} is "):
        DuplicateParams(**values).check("clean.duplicates")
