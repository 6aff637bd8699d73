"""The third pass of cleaning: splits, what training text loses, and the examples of copies."""

import json
from dataclasses import replace
from pathlib import Path

import corpora
from corpora import CLEAN

from sifirdan.corpus import card
from sifirdan.corpus.contamination import overlap

SENTENCES = corpora.texts(500, seed=21, num_words=16)
HELD_OUT = ("val", "test", "ood")


def test_training_text_loses_what_it_shares_with_held_out_text(tmp_path: Path) -> None:
    test = [" ".join(SENTENCES[n : n + 3]) for n in range(0, 30, 3)]
    mixed = [f"{SENTENCES[100 + n]} {SENTENCES[n]} Bugün {SENTENCES[200 + n]}" for n in range(20)]
    raw = corpora.make_raw(
        tmp_path, {"alan": test, "a": mixed, "b": SENTENCES[300:]}, alan={"uses": ["ood"]}
    )
    corpora.clean(raw, tmp_path / "corpus", replace(CLEAN, min_clean_share=0.2))
    splits = corpora.stored(tmp_path / "corpus")
    train = {d.origin: d.text for d in splits["train"] if d.source == "a"}
    assert len(splits["ood"]) == 10 and len(train) > 15
    for n in range(20):
        (text,) = [t for t in train.values() if SENTENCES[100 + n] in t] or [None]
        if text is not None:  # else it is held out itself
            assert SENTENCES[n] not in text and SENTENCES[200 + n] in text
    held_out = [tmp_path / "corpus" / split for split in HELD_OUT]
    found = overlap(tmp_path / "corpus/train", held_out, CLEAN.contamination)
    assert found.documents == len(splits["train"]) and not found.shared_documents
    (step,) = [
        s for s in card.read_card(tmp_path / "corpus")["steps"] if s["name"] == "decontamination"
    ]
    assert step["places"]["a"] == len(train)


def test_a_document_that_would_lose_too_much_goes(tmp_path: Path) -> None:
    test = [" ".join(SENTENCES[n : n + 3]) for n in range(0, 30, 3)]
    mostly = [f"{SENTENCES[n]} {SENTENCES[100 + n]}" for n in range(20)]
    raw = corpora.make_raw(
        tmp_path, {"alan": test, "a": mostly, "b": SENTENCES[300:]}, alan={"uses": ["ood"]}
    )
    metrics = corpora.clean(raw, tmp_path / "corpus", replace(CLEAN, min_clean_share=0.9))
    account = metrics["sources"]["a"]
    assert account["rejected"]["contaminated"] == account["in"] - sum(account["out"].values()) > 15


def test_a_copy_is_shown_beside_the_text_that_stayed(tmp_path: Path) -> None:
    original = f"{SENTENCES[0]} Bana ali@ornek.com adresinden yazın."
    raw = corpora.make_raw(tmp_path, {"a": [original, original.replace(" ", "  ")], "b": SENTENCES})
    keep = replace(CLEAN.personal, email="keep")
    corpora.clean(raw, tmp_path / "corpus", replace(CLEAN, personal=keep))
    lines = (tmp_path / "corpus/rejected.jsonl").read_text(encoding="utf-8").splitlines()
    (shown,) = [row for row in map(json.loads, lines) if row["source"] == "a"]
    assert shown["reason"] == "duplicate"
    stayed = shown["kept"].replace("  ", " ")
    assert stayed.startswith(SENTENCES[0]) and "[E-POSTA]" in stayed
    assert stayed == shown["text"].replace("  ", " ") and shown["kept"] != shown["text"]
