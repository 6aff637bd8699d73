"""Raw, corpus and token folders of a few documents with every kind of verdict, written through the
same functions as the stages use. For what reads finished folders; not for cleaning itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.corpus import card, records, shards
from sifirdan.corpus.card import Step
from sifirdan.corpus.corpus_report import CorpusFindings
from sifirdan.corpus.examples import Example, Samples
from sifirdan.corpus.ledger import LedgerWriter
from sifirdan.corpus.ledger_file import (
    LEDGER_FILE,
    SPLITS,
    LedgerRow,
    length_histograms,
    read_summary,
)
from sifirdan.corpus.records import Document, PartWriter, Record

# name: (reader, licence, uses)
SOURCES = {
    "own": ("own_text", "own", ["pretraining"]),
    "haber": ("kenet", "GPL-3.0", ["pretraining", "chat"]),
    "sinav": ("treebank_web", "Apache-2.0", ["ood"]),
    "sohbet": ("chatterbot", "BSD-3-Clause", ["chat"]),
}
STEPS = (
    Step("chat_only", "A source that is for chat alone stays out.", {}, ("not_for_pretraining",)),
    Step("compose", "Unicode NFC.", {}, (), {"own": 2}),
    Step("length", "A document has this many characters.", {"clean.min_chars": 20}, ("too_short",)),
    Step("exact", "Of equal texts the first stays.", {}, ("duplicate",)),
    Step("near", "Of texts that are much alike the first stays.",
         {"clean.min_similarity": 0.8}, ("near_duplicate",)),
    Step("slices", "Text of a held-out slice that val does not use.", {}, ("reserved",)),
)  # fmt: skip


@dataclass(frozen=True)
class Told:
    """One document of the story: its text and what becomes of it; `kept` is the number of the copy
    that stays, counted over all."""

    source: str
    text: str
    verdict: str
    kept: int | None = None
    similarity: float | None = None
    flags: tuple[str, ...] = ()


LINE = "Bu {} numaralı belgedir; içinde İstanbul, ığdır ve kâr geçer."
STORY = (
    *(Told("own", LINE.format(n), "train") for n in range(12)),
    Told("own", "kısa", "too_short"),
    Told("own", LINE.format(0).replace("  ", " ").replace(" ", "  "), "duplicate", kept=0),
    Told("own", "cok guzel bir gun, hava da acik.", "train", flags=("asciified",)),
    Told("haber", LINE.format("on") + " Haber.", "train"),
    Told("haber", LINE.format("on") + " Haber!", "near_duplicate", kept=15, similarity=0.91),
    Told("haber", LINE.format("yirmi") + " Haber.", "val"),
    Told("haber", LINE.format("otuz") + " Haber.", "test"),
    Told("haber", LINE.format("elli") + " Haber.", "reserved"),
    Told("sinav", "Başka bir alandan gelen bir söz, hem de uzunca.", "ood"),
    Told("sohbet", "Merhaba\nMerhaba, nasılsın?", "not_for_pretraining"),
    Told("sohbet", "Selam\nSelam!", "not_for_pretraining", flags=("asciified", "profanity")),
)


def documents(story: Sequence[Told] = STORY) -> list[Document]:
    """The documents of a story as `ingest` would write them."""
    return [
        records.document(
            Record(f"{told.source}.txt#{n}", told.text, {}),
            source=told.source,
            license=SOURCES[told.source][1],
        )
        for n, told in enumerate(story)
    ]


def ledger_rows(story: Sequence[Told] = STORY) -> list[LedgerRow]:
    """The ledger that `clean` would write for a story."""
    found = documents(story)
    return [
        LedgerRow(
            d.id, d.source, d.license, d.origin, told.verdict,
            len(d.text), len(d.text) if told.verdict in SPLITS else 0,
            None if told.kept is None else found[told.kept].id, told.similarity, told.flags,
        )
        for d, told in zip(found, story, strict=True)
    ]  # fmt: skip


def sources_of(story: Sequence[Told] = STORY) -> dict[str, tuple[int, str]]:
    """What LedgerWriter wants to know: documents in and licence of each source."""
    return {
        name: (sum(told.source == name for told in story), license)
        for name, (_, license, _) in SOURCES.items()
    }


def make_raw(folder: Path, story: Sequence[Told] = STORY) -> runs.Manifest:
    params: dict[str, Any] = {"sources": {n: {"kind": "package"} for n in SOURCES if n != "own"}}
    with runs.new_folder(folder, kind="raw", inputs={}, params=params) as output:
        for name, (reader, license, uses) in SOURCES.items():
            chosen = [d for d in documents(story) if d.source == name]
            with PartWriter(output.path / name) as writer:
                for document in chosen:
                    writer.add(document)
            output.counts[name] = {
                "documents": len(chosen), "chars": sum(len(d.text) for d in chosen),
                "license": license, "uses": uses, "reader": reader, "text_kind": "curated",
                "bad_records": 0, "not_read": 0, "left_out": False,
            }  # fmt: skip
    return runs.read_manifest(folder)


def make_corpus(folder: Path, raw: runs.Manifest, story: Sequence[Told] = STORY) -> runs.Manifest:
    splits = {name: {"documents": 0, "chars": 0, "bytes": 0} for name in SPLITS}
    with runs.new_folder(folder, kind="corpus", inputs={"raw": raw}, params={}) as output:
        for split in SPLITS:
            with PartWriter(output.path / split) as writer:
                for document, told in zip(documents(story), story, strict=True):
                    if told.verdict == split:
                        writer.add(document)
                        splits[split]["documents"] += 1
                        splits[split]["chars"] += len(document.text)
                        splits[split]["bytes"] += len(document.text.encode())
        with LedgerWriter(output.path, sources_of(story)) as ledger:
            for row in ledger_rows(story):
                ledger.add(row)
        summary = {name: account.summary() for name, account in ledger.accounts.items()}
        hashes = {LEDGER_FILE: runs.sha256_of(output.path / LEDGER_FILE)}
        card.write_card(output.path, card.card_content(raw, summary, splits, STEPS, hashes))
        output.counts.update(splits)
    return runs.read_manifest(folder)


def make_tokens(
    folder: Path, corpus: Path, inputs: dict[str, runs.Manifest], *, max_shard_tokens: int = 40
) -> runs.Manifest:
    """Token shards with a token a word, so that they need no tokenizer."""
    with runs.new_folder(folder, kind="tokens", inputs=inputs, params={}) as output:
        for split in SPLITS:
            (output.path / split).mkdir()
            rows = [
                shards.Row([7] * (1 + len(d.text.split())), d.id, d.source, len(d.text.encode()))
                for d in records.read_folder(corpus / split)
            ]
            batch = shards.batch_of_rows(rows, shards.shard_schema(100))
            output.counts[split] = shards.write_folder(
                output.path / split, [batch], vocab_size=100, max_shard_tokens=max_shard_tokens
            )
    return runs.read_manifest(folder)


def make_data(root: Path, story: Sequence[Told] = STORY) -> Path:
    """data/raw, data/corpus and data/tokens below `root`."""
    raw = make_raw(root / "data/raw", story)
    corpus = make_corpus(root / "data/corpus", raw, story)
    make_tokens(root / "data/tokens", root / "data/corpus", {"corpus": corpus})
    return root


def example(told: Told, number: int, **more: str) -> Example:
    id = documents()[number].id
    return Example(id, told.source, f"#{number}", told.text, **more)


def findings(folder: Path, story: tuple[Told, ...] = STORY, **changes: object) -> CorpusFindings:
    """What the page about the corpus is made of; `changes` are fields of it."""
    folder.mkdir(exist_ok=True)
    with LedgerWriter(folder, sources_of(story)) as ledger:
        for row in ledger_rows(story):
            ledger.add(row)
    samples = Samples(3)
    for number, told in enumerate(STORY):
        if told.verdict in ("train", "val", "test", "ood"):
            continue
        kept = {} if told.kept is None else {"kept": STORY[told.kept].text}
        samples.offer(told.verdict, "rejected", example(told, number, **kept))
    samples.offer("too_short", "kept", example(STORY[14], 14, note="33 characters"))
    made = {
        "summary": read_summary(folder),
        "lengths": length_histograms(folder / LEDGER_FILE),
        "steps": STEPS,
        "languages": {"haber": {"tr": 5, "az": 2}},
        "personal": {"own": {"phone": 3}, "haber": {"email": 1, "phone": 4}},
        "samples": samples,
        "links": {"data card": "../../data/corpus/README.md"},
    }
    return CorpusFindings(**(made | changes))  # type: ignore[arg-type]
