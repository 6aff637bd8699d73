"""What is in a corpus: documents, characters, tokens, licence and share of every source.

Read from finished folders; no stage imports this file. For one document see provenance.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.corpus.card import license_shares, read_card
from sifirdan.corpus.conservation import unread_note
from sifirdan.corpus.ledger_file import SPLITS, read_summary
from sifirdan.corpus.reasons import NOT_FOR_PRETRAINING
from sifirdan.corpus.shard_rows import token_counts
from sifirdan.errors import DataError
from sifirdan.text_table import aligned


def contents(corpus: Path, tokens: Path) -> dict[str, Any]:
    """Per source and per licence: documents, characters, tokens and share of the training text.
    Tokens are counted where the folder `tokens` was made from this corpus, else they are null and
    "tokens_note" says why."""
    manifest = runs.read_manifest(corpus, made_by="clean")
    summary = read_summary(corpus)
    card = read_card(corpus)["sources"]
    counted, note = _tokens_of(corpus, manifest, tokens)
    unit = "chars" if counted is None else "tokens"
    train = {
        name: account["chars_out"]["train"] if counted is None else counted["train"][name]
        for name, account in summary.items()
    }
    total = sum(train.values())
    sources = {
        name: {
            **account,
            "tokens": None if counted is None else {s: counted[s][name] for s in SPLITS},
            "train_share": train[name] / total if total else 0.0,
            "unread": card[name]["unread"],
            "left_out": card[name]["left_out"],
        }
        for name, account in summary.items()
    }
    return {
        "corpus": manifest.sha256,
        "sources": sources,
        "licenses": license_shares(summary),
        "share_of": f"training {unit}",
        "tokens_note": note,
    }


def contents_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """`contents` as a table for a terminal."""
    head = ["source", "licence", "in", *SPLITS, "rejected", "duplicates"]
    head += ["chars", "tokens", "share"]
    rows, sums = [], Counter[int]()
    for name, account in found["sources"].items():
        numbers = [
            account["in"],
            *(account["out"][split] for split in SPLITS),
            sum(account["rejected"].values()),
            sum(account["duplicates"].values()),
            sum(account["chars_out"].values()),
            sum(account["tokens"].values()) if account["tokens"] else 0,
        ]
        sums.update(dict(enumerate(numbers)))
        share = f"{account['train_share']:.1%}"
        rows.append([name, account["license"], *_grouped(numbers), share])
    rows.append(["all", "", *_grouped([sums[n] for n in range(9)]), ""])
    if found["tokens_note"]:
        for row in rows:
            row[-2] = "-"
    yield from aligned([head, *rows], left=(0, 1))
    yield ""
    yield f"share: of {found['share_of']}; in = train + val + test + ood + rejected + duplicates"
    yield "chars, tokens: of all four splits"
    if found["tokens_note"]:
        yield f"tokens: {found['tokens_note']}"
    yield ""
    for name, entry in found["licenses"].items():
        sources = ", ".join(entry["sources"])
        yield f"{entry['train_share']:6.1%} of training characters under {name} ({sources})"
    reasons = {
        name: Counter(account["rejected"]) + Counter(account["duplicates"])
        for name, account in found["sources"].items()
    }
    notes = {name: unread_note(account) for name, account in found["sources"].items()}
    if any(reasons.values()) or any(notes.values()):
        yield ""
    for name, counts in reasons.items():
        said = ", ".join(f"{r} {n:,}" for r, n in counts.most_common())
        if said or notes[name]:
            yield f"out of {name}: {said or 'none'}{notes[name]}"
    if any(NOT_FOR_PRETRAINING in counts for counts in reasons.values()):
        yield f"{NOT_FOR_PRETRAINING}: read by prepare_chat; --withdraw SOURCE tells what they touched"


def _tokens_of(
    corpus: Path, manifest: runs.Manifest, tokens: Path
) -> tuple[dict[str, Counter[str]] | None, str | None]:
    try:
        made_from = runs.read_manifest(tokens, made_by="tokenize_corpus").inputs.get("corpus")
    except DataError:
        return None, f"{tokens} is not there; dvc repro tokenize_corpus makes it"
    if made_from != manifest.sha256:
        return None, f"{tokens} was made from another corpus; dvc repro tokenize_corpus"
    return token_counts(tokens), None


def _grouped(numbers: list[int]) -> list[str]:
    return [f"{number:,}" for number in numbers]
