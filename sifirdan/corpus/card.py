"""The data card of a cleaned corpus: what is in it, under which licences, and what was done to it.

`data_card.json` is for machines, `README.md` for people and for `datasets` (its YAML header names the
files of each split, so `datasets.load_dataset("data/corpus")` works). The page is made from the JSON
and from nothing else, so the two never disagree. The card is carried on to the token shards and to
every model (model_card.py), which is why this file imports so little: what it imports, training
imports.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from sifirdan import runs
from sifirdan.errors import DataError

CARD_FILE = "data_card.json"
PAGE_FILE = "README.md"
FORMAT_VERSION = 1
NOT_ALLOWED = "all: licence not allowed"  # of a source that ingest left out

# What the licence asks to be said, or what a reader of the card should know, by reader.
PROVENANCE = {
    "ataturk_speeches": "Speeches and letters of 1906-1938; their author died in 1938. Old,"
    " political Turkish. The authenticity of the Bursa speech is disputed, and the long parliament addresses"
    " from Wikisource were put into newer Turkish by an unnamed hand.",
    "kenet": "KeNet, the Turkish WordNet, grants GPL-3.0. Its README says that the dictionary was"
    " mined from the Turkish Language Institute's dictionary of 2011; whether its authors could"
    " license those definitions is not shown. A dictionary also has vulgar entries.",
    "treebank_wiki": "Turkish Web Treebank (Google Research). The sentences come from Turkish"
    " Wikipedia (CC BY-SA); the page of each is in its origin.",
    "treebank_web": "Turkish Web Treebank (Google Research). The sentences come from public web"
    " pages.",
    "food_safety": '"Turkish Food Safety Knowledge Dataset" by Dokumantum'
    " (https://dokumantum.com/sektorler/gida), licensed under CC BY 4.0.",
    "chatterbot": "The licence is named by the package's classifier only.",
}


@dataclass(frozen=True)
class Step:
    """One step of cleaning, as people are told of it: `what` it does in a sentence, its settings
    with their dotted keys, the `reasons` (verdicts) it can give, and per source the number of
    `places` it mended."""

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)


def card_content(
    raw: runs.Manifest,
    summary: Mapping[str, Mapping[str, Any]],
    splits: Mapping[str, Mapping[str, int]],
    steps: Sequence[Step],
    hashes: Mapping[str, str],
    languages: Sequence[str] = (),
) -> dict[str, Any]:
    """The card as a JSON value. `raw` is the raw folder's manifest, `summary` the ledger's account of
    each source (see ledger_file.py), `splits` the documents, chars and bytes of each split, `hashes` the
    sha256 of files that prove the card, by their name in the folder, `languages` the ISO 639-1 codes
    that web text was kept for."""
    described = raw.params.get("sources", {})
    sources = {
        name: {
            "uses": raw.counts[name]["uses"],
            "reader": raw.counts[name]["reader"],
            "from": _all_public(described.get(name, {"kind": "files of your own"})),
            "note": described.get(name, {}).get("attribution")
            or PROVENANCE.get(raw.counts[name]["reader"], ""),
            "left_out": raw.counts[name]["left_out"],
            "unread": raw.counts[name]["bad_records"] + raw.counts[name]["not_read"],
            **account,
        }
        for name, account in summary.items()
    }
    return {
        "format_version": FORMAT_VERSION,
        "kind": "data_card",
        "languages": list(languages),
        "splits": {name: dict(counts) for name, counts in splits.items()},
        "sources": sources,
        "licenses": license_shares(summary),
        "steps": [asdict(step) for step in steps],
        "hashes": {"raw/manifest.json": raw.sha256, **hashes},
    }


def license_shares(summary: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By licence: its sources, and documents, characters and share of the training text; only what
    gave any."""
    total = sum(account["chars_out"]["train"] for account in summary.values())
    shares: dict[str, dict[str, Any]] = {}
    giving = {name: account for name, account in summary.items() if account["out"]["train"]}
    for name, account in sorted(giving.items(), key=lambda item: item[1]["license"]):
        entry = shares.setdefault(
            account["license"], {"sources": [], "train_documents": 0, "train_chars": 0}
        )
        entry["sources"].append(name)
        entry["train_documents"] += account["out"]["train"]
        entry["train_chars"] += account["chars_out"]["train"]
    for entry in shares.values():
        entry["train_share"] = round(entry["train_chars"] / total, 6) if total else 0.0
    return shares


def write_card(folder: Path, content: Mapping[str, Any]) -> None:
    """Write data_card.json and README.md into a corpus folder."""
    runs.write_json(folder / CARD_FILE, content)
    runs.write_text(folder / PAGE_FILE, card_page(content))


def read_card(folder: Path) -> dict[str, Any]:
    """The data card in a folder: data/corpus, or one that it was carried on to."""
    path = Path(folder) / CARD_FILE
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = content["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(
            f"{path}: there is no data card, or it is damaged",
            expected="the card that the stage clean writes",
            todo="dvc repro",
        ) from None
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path}: has format {version}",
            expected=f"format {FORMAT_VERSION}",
            todo="make it anew with this release: dvc repro -f -s clean",
        )
    return content


def carry_card(source: Path, target: Path) -> None:
    """Copy the data card from one folder to another that is made from it, bytes unchanged."""
    read_card(source)
    shutil.copyfile(source / CARD_FILE, target / CARD_FILE)


def card_page(content: Mapping[str, Any]) -> str:
    """The card as Markdown."""
    splits, sources = content["splits"], content["sources"]
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for name in [name for name in splits if splits[name]["documents"]]:  # an empty one is refused
        lines += [f"  - split: {name}", f'    path: "{name}/*.parquet"']
    lines += [
        "---",
        "",
        "# Corpus",
        "",
        "Made by the stage `clean` from the sources below. Texts keep the licence of their source;",
        "every row names both. `val` and `test` are slices chosen by a hash of the text and never",
        "trained on; `ood` is text of another domain. `data_card.json` says the same for machines.",
    ]
    lines += table(
        ["split", "documents", "characters", "bytes"],
        [[name, s["documents"], s["chars"], s["bytes"]] for name, s in splits.items()],
    )
    lines += [
        "",
        "## Sources",
        "",
        "Documents in = out + rejected + duplicates, for every source.",
        "Unread: places and files that gave no document; data/raw/quarantine.jsonl says why.",
    ]
    lines += table(
        ["source", "licence", "uses", "unread", "documents in", "out", "rejected", "duplicates"],
        [
            [
                name,
                entry["license"],
                ", ".join(entry["uses"]),
                NOT_ALLOWED if entry["left_out"] else entry["unread"],
                entry["in"],
                sum(entry["out"].values()),
                counted(entry["rejected"]),
                counted(entry["duplicates"]),
            ]
            for name, entry in sources.items()
        ],
    )
    lines += ["", "Where each comes from:", ""]
    lines += [f"- `{name}`: {origin(entry['from'])}" for name, entry in sources.items()]
    lines += ["", "## Licences of the training text"]
    lines += license_table(content["licenses"])
    if notes := {name: entry["note"] for name, entry in sources.items() if entry["note"]}:
        lines += ["", "## Provenance", ""]
        lines += [f"- `{name}`: {note}" for name, note in notes.items()]
    flagged = {name: entry["flags"] for name, entry in sources.items() if entry["flags"]}
    if flagged:
        lines += ["", "## Flags", "", "Marked in the ledger, in documents:", ""]
        lines += [f"- `{name}`: {counted(flags)}" for name, flags in flagged.items()]
    lines += ["", "## Steps", "", "In this order:", ""]
    for step in content["steps"]:
        lines += step_lines(step, sources)
    lines += ["", "## Hashes", "", "sha256 of what this card was made from:", ""]
    lines += [f"- `{name}`: {sha256}" for name, sha256 in content["hashes"].items()]
    return "\n".join(lines) + "\n"


def step_lines(step: Mapping[str, Any], sources: Mapping[str, Any]) -> list[str]:
    """A step of cleaning as an entry of a list: what it does and, by source, what it did."""
    settings = ", ".join(
        f"`{key}: {json.dumps(value, ensure_ascii=False)}`"
        for key, value in step["settings"].items()
    )
    removed = {
        name: sum(
            entry[part].get(reason, 0)
            for part in ("rejected", "duplicates")
            for reason in step["reasons"]
        )
        for name, entry in sources.items()
    }
    lines = [f"- `{step['name']}`: {step['what']}" + (f" ({settings})" if settings else "")]
    for counts, unit in ((removed, "documents out"), (step["places"], "places mended")):
        if any(counts.values()):
            lines.append(f"  - {unit}: " + ", ".join(f"{n} {c:,}" for n, c in counts.items() if c))
    return lines


def origin(described: Mapping[str, Any]) -> str:
    """Where a source comes from, as a sentence."""
    hidden = ("license", "uses", "reader", "attribution")  # said elsewhere
    shown = {k: v for k, v in described.items() if k not in hidden and v is not None}
    parts = [
        f"{key} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in shown.items()
    ]
    return ", ".join(parts) + "."


def _all_public(described: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _public(value) for key, value in described.items()}


def _public(value: Any) -> Any:
    """A value as a published card may show it: of a path on this machine only the last part."""
    if isinstance(value, list):
        return [_public(item) for item in value]
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return value


def license_table(licenses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The share of training text under each licence."""
    return table(
        ["licence", "sources", "documents", "characters", "share of training characters"],
        [
            [
                name,
                ", ".join(entry["sources"]),
                entry["train_documents"],
                entry["train_chars"],
                f"{entry['train_share']:.1%}",
            ]
            for name, entry in licenses.items()
        ],
    )


def counted(counts: Mapping[str, int]) -> str:
    """{"too_short": 3} -> 'too_short 3', without what is 0."""
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n) or "none"


def table(head: list[str], rows: list[list[Any]]) -> list[str]:
    """A Markdown table, with the empty line before it; no cell can break it."""
    lines = [" | ".join(map(_cell, row)) for row in (head, ["---"] * len(head), *rows)]
    return ["", *(f"| {line} |" for line in lines)]


def _cell(value: Any) -> str:
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    return shown.replace("|", "\\|").replace("\n", " ")
