"""The data card of a cleaned corpus: a README.md that people and `datasets` can read.

Its YAML header names the files of each split, so `datasets.load_dataset("data/corpus")` works.
"""

from typing import Any

from sifirdan.text import REPAIRS, REPAIRS_FOR_ALL

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


def data_card(
    sources: dict[str, Any], ledger: dict[str, Any], splits: dict[str, dict[str, int]]
) -> str:
    """The card as text. `sources` are the counts of the raw folder's manifest, `ledger` and
    `splits` those of the corpus."""
    header = ["---", "configs:", "- config_name: default", "  data_files:"]
    for name in [name for name in splits if splits[name]["documents"]]:  # an empty one is refused
        header += [f"  - split: {name}", f'    path: "{name}/*.parquet"']
    lines = [
        *header,
        "---",
        "",
        "# Corpus",
        "",
        "Made by the stage `clean` from the sources below.",
    ]
    lines += [
        "Texts keep the licence of their source; every row names both. `val` and `test` are slices",
        "chosen by a hash of the text and never trained on; `ood` is text of another domain.",
    ]
    lines += _table(
        ["split", "documents", "characters", "bytes"],
        [[name, s["documents"], s["chars"], s["bytes"]] for name, s in splits.items()],
    )
    lines += _table(
        ["source", "licence", "uses", "documents in", "out", "rejected"],
        [
            [
                name,
                sources[name]["license"],
                ", ".join(sources[name]["uses"]),
                account["in"],
                sum(account["out"].values()),
                ", ".join(f"{reason} {n}" for reason, n in account["rejected"].items()) or "none",
            ]
            for name, account in ledger.items()
        ],
    )
    noted = {name: PROVENANCE.get(sources[name]["reader"]) for name in ledger}
    lines += ["", "## Provenance", ""]
    lines += [f"- `{name}`: {note}" for name, note in noted.items() if note]
    lines += ["", "## Repairs", "", "For every text, in this order:"]
    lines += [f"- `{repair.__name__}`: {_sentence(repair)}" for repair in REPAIRS_FOR_ALL]
    for name, account in ledger.items():
        own = REPAIRS.get(sources[name]["reader"], ())
        if own and account["in"]:
            lines += ["", f"For `{name}` also:"]
            lines += [
                f"- `{repair.__name__}`, {account['repairs'].get(repair.__name__, 0)} places:"
                f" {_sentence(repair)}"
                for repair in own
            ]
    return "\n".join(lines) + "\n"


def _table(head: list[str], rows: list[list[Any]]) -> list[str]:
    body = [head, ["---"] * len(head), *rows]
    return ["", *("| " + " | ".join(map(str, row)) + " |" for row in body)]


def _sentence(repair: Any) -> str:
    return " ".join(repair.__doc__.split())
