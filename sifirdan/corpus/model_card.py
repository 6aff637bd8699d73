"""The card of a model folder: README.md with a few numbers and what the model learned from, and the
data card of the corpus beside it.

Made from the data card that came with the token shards, and for a chat model from data/chat; from no
clock, run id or path of a machine, so the same training gives the same card.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from sifirdan import runs
from sifirdan.corpus.card import (
    PAGE_FILE,
    carry_card,
    counted,
    license_table,
    origin,
    read_card,
    step_lines,
    table,
)


def write_model_card(
    model: Path,
    card_from: Path,
    *,
    title: str,
    facts: Mapping[str, object],
    sections: Sequence[str] = (),
) -> None:
    """Write README.md and the data card into a model folder that is being made and has its config.json.
    `card_from` is a folder with the data card of what the model learned from."""
    carry_card(card_from, model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    library = "transformers"
    if note := config.get("note"):  # a combination of parts that no other program loads
        library, sections = "sifirdan", [f"## Use\n\nNote: {note}.\n", *sections]
    page = model_card(card_from, title=title, facts=facts, sections=sections, library=library)
    runs.write_text(model / PAGE_FILE, page)


_USE_OF_A_TOKENIZER = """## Use

`AutoTokenizer.from_pretrained(...)` gives the ids of the pipeline. Every text comes back byte for byte;
what is no piece is spelt in bytes. Encode text that a user typed with
`tokenizer(text, split_special_tokens=True)`, so that a typed `<|user|>` stays plain text.
"""


def write_tokenizer_card(
    folder: Path,
    card_from: Path,
    facts: Mapping[str, object],
    drawn: Mapping[str, int],
    totals: Mapping[str, int],
) -> None:
    """Write README.md and the data card into a tokenizer folder that is being made. `drawn` of the
    `totals` are the bytes of each source that it learned from."""
    carry_card(card_from, folder)
    page = model_card(
        card_from,
        title="Tokenizer",
        facts=facts,
        sections=[_USE_OF_A_TOKENIZER, _sample_section(drawn, totals)],
        header=["tags: [tokenizer]"],
    )
    runs.write_text(folder / PAGE_FILE, page)


def _sample_section(drawn: Mapping[str, int], totals: Mapping[str, int]) -> str:
    lines = ["## What it learned from", ""]
    lines += [
        f"{sum(drawn.values()):,} bytes of the {sum(totals.values()):,} of training text. What is said"
        " below of documents, licences and sources is of the whole; these are the bytes drawn from it:"
    ]
    lines += table(
        ["source", "bytes", "of"], [[name, drawn[name], totals[name]] for name in sorted(totals)]
    )
    return "\n".join(lines) + "\n"


def model_card(
    card_from: Path,
    *,
    title: str,
    facts: Mapping[str, object],
    sections: Sequence[str] = (),
    header: Sequence[str] = ("pipeline_tag: text-generation",),
    library: str = "transformers",
) -> str:
    """A model folder's README.md: a header for the Hub, `facts` (training tokens, bits per byte …)
    as a table, more `sections`, and the section on training data."""
    languages = read_card(card_from).get("languages", [])  # missing in cards of older releases
    lines = ["---", f"library_name: {library}", *header]
    lines += [f"language: [{', '.join(languages)}]"] if languages else []
    lines += ["license: other", "license_name: see-training-data", "---", "", f"# {title}"]
    lines += table(["what", "value"], [[name, value] for name, value in facts.items()])
    return "\n".join(["\n".join(lines) + "\n", *sections, data_section(card_from)])


def data_section(card_from: Path) -> str:
    """What a model learned from, as Markdown: sources, licences, origins, and what was done to the
    text. The folder is data/corpus or any that the data card was carried on to."""
    content = read_card(card_from)
    train = content["splits"]["train"]
    total = train["chars"]
    lines = [
        "## Training data",
        "",
        f"{train['documents']:,} documents of {total:,} characters ({train['bytes']:,} bytes of UTF-8)."
        " Each document's source, licence and place in it are in the ledger of the corpus.",
    ]
    used = {n: e for n, e in content["sources"].items() if e["out"]["train"]}
    lines += table(
        ["source", "licence", "documents", "characters", "share"],
        [
            [
                name,
                entry["license"],
                entry["out"]["train"],
                entry["chars_out"]["train"],
                f"{entry['chars_out']['train'] / total:.1%}" if total else "-",
            ]
            for name, entry in used.items()
        ],
    )
    lines += ["", "### Licences"]
    lines += license_table(
        {name: e for name, e in content["licenses"].items() if e["train_documents"]}
    )
    lines += ["", "### Where it comes from", ""]
    for name, entry in used.items():
        lines.append(f"- `{name}`: {origin(entry['from'])} {entry['note']}".rstrip())
    kept_out = [
        f"`{name}` ({counts['documents']:,} documents)"
        for name, counts in content["splits"].items()
        if name != "train" and counts["documents"]
    ]
    if kept_out:
        lines += ["", "Never trained on: " + ", ".join(kept_out) + "."]
    lines += ["", "### What was done to it", ""]
    for step in content["steps"]:
        lines += step_lines(step, content["sources"])
    lines += ["", "### Proof", ""]
    lines += [f"- sha256 of `{name}`: {sha256}" for name, sha256 in content["hashes"].items()]
    return "\n".join(lines) + "\n"


def chat_section(chat: Path, card_from: Path) -> str:
    """What a chat model was tuned on, as Markdown: the examples of data/chat by source and licence,
    and the sets that were kept out."""
    counts = runs.read_manifest(chat, made_by="prepare_chat").counts
    sources = read_card(card_from)["sources"]
    by_source: Counter[tuple[str, str]] = Counter()
    with open(chat / "train.jsonl", encoding="utf-8", newline="\n") as lines_of_train:
        for line in lines_of_train:
            row = json.loads(line)
            by_source[row["source"], row["license"]] += 1
    total = by_source.total()
    lines = ["## Instruction data", ""]
    lines += [
        f"{total:,} conversations; the loss counts the assistant's answers only"
        f" ({counts['train']['targets']:,} of {counts['train']['tokens']:,} tokens)."
    ]
    lines += table(
        ["source", "licence", "conversations", "share"],
        [
            [name, license, number, f"{number / total:.1%}"]
            for (name, license), number in sorted(by_source.items())
        ],
    )
    lines += ["", "Their kinds: " + counted(counts["train"]["types"]) + "."]
    told = {name: sources[name] for name in sorted({n for n, _ in by_source}) if name in sources}
    lines += ["", "### Where it comes from", ""] if told else []
    for name, entry in told.items():
        lines.append(f"- `{name}`: {origin(entry['from'])} {entry['note']}".rstrip())
    kept_out = {name: c["documents"] for name, c in counts.items() if name != "train"}
    lines += ["", "Never tuned on: " + counted(kept_out) + "."]
    return "\n".join(lines) + "\n"
