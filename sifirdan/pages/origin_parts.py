"""The parts of a model's page about where it comes from: the data card and the lineage."""

from collections.abc import Iterator, Mapping
from typing import Any

from sifirdan.pages.figures import bar, details, escaped, percent, row, setting, table
from sifirdan.pages.model_facts import ModelFacts

MADE_BY = {
    "data/raw": "ingest",
    "data/corpus": "clean",
    "models/tokenizer": "train_tokenizer",
    "data/tokens": "tokenize_corpus",
    "models/base": "train",
    "data/chat": "prepare_chat",
    "models/chat": "finetune",
}


def data_section(card: Mapping[str, Any]) -> Iterator[str]:
    """Sources with their shares and licences, and the splits."""
    sources = {
        name: one for name, one in card.get("sources", {}).items() if not one.get("left_out")
    }
    if not sources:
        return
    chars = {name: one.get("chars_out", {}).get("train", 0) for name, one in sources.items()}
    total = sum(chars.values())
    yield "<p>The text that it was pretrained on, by source; shares are of the training text's characters.</p>"
    for name, number in chars.items():
        if number:
            share = percent(number, total)
            yield row(name, share, bar(number, total, f"{name} {share} of the training text", ""))
    yield table(
        ["source", "licence", "used for", "training documents", "characters", "share", "note"],
        [
            [
                name,
                one.get("license"),
                ", ".join(one.get("uses", ())),
                one.get("out", {}).get("train"),
                chars[name],
                percent(chars[name], total) if chars[name] else None,
                one.get("note", ""),
            ]
            for name, one in sources.items()
        ],
        wide=(6,),
        numbers=(3, 4, 5),
    )
    licenses = sorted(card.get("licenses", {}).items(), key=lambda item: -item[1]["train_share"])
    if licenses:
        yield "<h3>Licences of the training text</h3>"
        yield table(
            ["licence", "share", "sources"],
            [
                [name, percent(one["train_share"]), ", ".join(one["sources"])]
                for name, one in licenses
            ],
            numbers=(1,),
        )
    splits = card.get("splits", {})
    if splits:
        yield "<h3>Splits</h3>"
        yield table(
            ["split", "documents", "characters", "bytes"],
            [[name, one.get("documents"), one.get("chars"), one.get("bytes")] for name, one in splits.items()],
            numbers=(1, 2, 3),
        )  # fmt: skip


def lineage_section(facts: ModelFacts) -> Iterator[str]:
    """Which data, tokenizer, code and parameters made the model."""
    if facts.folders:
        yield "<p>Each folder by the hash of its manifest, which holds the hashes of its files and inputs.</p>"
        steps = "".join(
            f"<li><b>{escaped(folder)}</b><code>{escaped(sha256[:12])}</code>"
            f' <span class="soft">{escaped(MADE_BY.get(folder, ""))}</span></li>'
            for folder, sha256 in facts.folders.items()
        )
        yield f'<ol class="chain">{steps}</ol>'
    if facts.against and (facts.against.params or facts.against.data):
        yield '<h3 id="changes">What differs from the reference</h3>'
        yield table(
            ["", "reference", "here"],
            [
                *([key, setting(a), setting(b)] for key, (a, b) in facts.against.params.items()),
                *([key, str(a)[:12], str(b)[:12]] for key, (a, b) in facts.against.data.items()),
            ],
            wide=(1, 2),
        )
    for title, entries in (("code", facts.code), ("packages", facts.versions)):
        if entries:
            yield details(table([title, "version"], [[k, v] for k, v in entries.items()]), title)
    if facts.folders:
        full = [[folder, sha256] for folder, sha256 in facts.folders.items()]
        yield details(table(["folder", "sha256 of its manifest"], full, wide=(1,)), "whole hashes")
    if facts.params:
        rows = [[key, setting(value)] for key, value in facts.params.items()]
        yield details(table(["parameter", "value"], rows, wide=(1,)), f"{len(rows)} parameters")
