"""The law of the ledger: no document is lost or doubled.

    documents in = documents out + rejects + duplicates, for every source

It is checked of a ledger alone, and of finished folders: a corpus holds the very documents that its
ledger says are in, and its ledger the very documents of data/raw. One pass over each; memory does
not grow with the corpus.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sifirdan.corpus.ledger_file import (
    LEDGER_FILE,
    SPLITS,
    SUMMARY_FILE,
    Account,
    id_words,
    read_accounts,
    read_ledger,
    read_summary,
    rows_of,
)
from sifirdan.corpus.records import part_files

MAX_IDS_HELD = 1 << 22  # 64 MB of ids; a larger ledger is looked through several times


# Of a ledger alone.


def law_problems(accounts: Mapping[str, Account], documents_in: Mapping[str, int]) -> list[str]:
    """Where the rows of the ledger are not the documents that came in, a line each."""
    problems = []
    for name in sorted(set(accounts) | set(documents_in)):
        expected = documents_in.get(name, 0)
        account = accounts.get(name, Account(""))
        parts = (account.out.total(), account.rejected.total(), account.duplicates.total())
        if expected != sum(parts):
            problems.append(
                f"source {name}: {expected} documents came in, but {sum(parts)} are accounted for"
                f" ({parts[0]} out + {parts[1]} rejected + {parts[2]} duplicates)"
            )
    return problems


def id_problems(path: Path) -> list[str]:
    """Ids that a ledger holds twice, and copies "that stayed" that it does not hold at all."""
    with pq.ParquetFile(path) as file:
        num_rows = file.metadata.num_rows
    num_passes = max(1, -(-num_rows // MAX_IDS_HELD))
    twice, missing = [], []
    for number in range(num_passes):
        ids, kept = _ids_of_pass(path, number, num_passes)
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        ids = ids[order]
        equal = (ids[1:] == ids[:-1]).all(axis=1)
        twice += [_id_text(words) for words in ids[1:][equal]]
        # 64 of the 128 bits are enough to find an accident
        missing += [_id_text(words) for words in kept[~np.isin(kept[:, 0], ids[:, 0])]]
    problems = []
    if twice:
        problems.append(f"{len(twice)} documents are in the ledger twice ({twice[0]} …)")
    if missing:
        problems.append(f"{len(missing)} kept_id are no document of the ledger ({missing[0]} …)")
    return problems


def _ids_of_pass(path: Path, number: int, num_passes: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids and kept_ids whose leading bits fall to pass `number`, shapes (n, 2), uint64."""
    ids, kept = [np.zeros((0, 2), np.uint64)], [np.zeros((0, 2), np.uint64)]
    for table in read_ledger(path, ["id", "kept_id"]):
        for column, found in (("id", ids), ("kept_id", kept)):
            words = id_words(table[column].drop_null())
            bucket = ((words[:, 0] >> np.uint64(32)) * np.uint64(num_passes)) >> np.uint64(32)
            found.append(words[bucket == number])
    return np.concatenate(ids), np.concatenate(kept)


def _id_text(words: Iterable[np.uint64]) -> str:
    return "".join(f"{int(word):016x}" for word in words)


# Of finished folders.


def law_lines(sources: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The law in numbers, a line a source: 'own: 5 in = 3 out + 1 rejected + 1 duplicates'; `sources`
    as in the data card."""
    lines = []
    for name, account in sources.items():
        out, rejected, duplicates = (
            sum(account[part].values()) for part in ("out", "rejected", "duplicates")
        )
        lines.append(
            f"{name}: {account['in']:,} in = {out:,} out + {rejected:,} rejected"
            f" + {duplicates:,} duplicates{unread_note(account)}"
        )
    return lines


def unread_note(source: Mapping[str, Any]) -> str:
    """What never became a document, for behind a line about a source; often nothing."""
    if source["left_out"]:
        return f"; left out: {source['license']} is not in ingest.allowed_licenses"
    unread = source["unread"]
    return f"; {unread:,} unread (data/raw/quarantine.jsonl says why)" if unread else ""


def corpus_problems(corpus: Path, raw: Path | None) -> list[str]:
    """Where a corpus folder breaks the law, a line each; empty when it holds. The ledger is compared
    with ledger.json, with the texts of all splits (ids and lengths) and, where the raw folder is
    given, with the documents in it. Reads every text once."""
    path = Path(corpus) / LEDGER_FILE
    if not path.is_file():
        return [
            f"there is no {LEDGER_FILE}: an older release made this corpus; run dvc repro clean"
        ]
    accounts = read_accounts(path)
    stated = read_summary(corpus)
    problems = law_problems(accounts, {name: entry["in"] for name, entry in stated.items()})
    not_empty = {name: entry for name, entry in stated.items() if entry["in"]}
    if not problems and not_empty != {name: a.summary() for name, a in accounts.items()}:
        problems.append(f"{SUMMARY_FILE} does not say what {LEDGER_FILE} says")
    problems += id_problems(path)

    went_out, came_in = _told(path)
    return (
        problems + _text_problems(corpus, went_out) + (_raw_problems(raw, came_in) if raw else [])
    )


def _text_problems(corpus: Path, said: Mapping[tuple[str, str], "_Sum"]) -> list[str]:
    """Where the texts of the splits are not those that the ledger says are in."""
    problems = []
    for split in SPLITS:
        stored = _stored(corpus / split)
        for name in sorted(set(stored) | {source for source, s in said if s == split}):
            there, told = stored.get(name, _Sum()), said.get((name, split), _Sum())
            if there != told:
                problems.append(
                    f"source {name}: {split} holds {there.documents} documents of {there.chars}"
                    f" characters, the ledger says {told.documents} of {told.chars}"
                    + (", and other ids" if there.documents == told.documents else "")
                )
    return problems


def _raw_problems(raw: Path, said: Mapping[str, "_Sum"]) -> list[str]:
    """Where the documents of the raw folder are not those of the ledger."""
    problems = []
    for name, told in sorted(said.items()):
        there = _stored(raw / name, texts=False).get(name, _Sum())
        if there != told:
            problems.append(
                f"source {name}: {raw / name} holds {there.documents} documents, the ledger has"
                f" {told.documents}"
                + (" with other ids" if there.documents == told.documents else "")
            )
    return problems


@dataclass
class _Sum:
    """Which documents a set holds, whatever their order: their number, the sums of the two halves of
    their ids (which are hashes) modulo 2^64, and their characters."""

    documents: int = 0
    first: int = 0
    second: int = 0
    chars: int = 0

    def add(self, words: np.ndarray, chars: np.ndarray) -> None:
        """`words`: shape (documents, 2), uint64."""
        self.documents += len(words)
        self.first = (self.first + int(words[:, 0].sum(dtype=np.uint64))) % (1 << 64)
        self.second = (self.second + int(words[:, 1].sum(dtype=np.uint64))) % (1 << 64)
        self.chars += int(chars.sum())


def _told(ledger: Path) -> tuple[dict[tuple[str, str], _Sum], dict[str, _Sum]]:
    """What a ledger says is in, by source and split, and what came in, by source (ids only)."""
    went_out: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
    came_in: dict[str, _Sum] = defaultdict(_Sum)
    for table in read_ledger(ledger, ["id", "source", "verdict", "chars_out"]):
        words, chars = id_words(table["id"]), table["chars_out"].to_numpy()
        verdicts = rows_of(table["verdict"])
        for name, rows in rows_of(table["source"]).items():
            came_in[name].add(words[rows], chars[:0])
            for split in set(SPLITS) & set(verdicts):
                chosen = rows & verdicts[split]
                if chosen.any():
                    went_out[name, split].add(words[chosen], chars[chosen])
    return went_out, came_in


def _stored(folder: Path, *, texts: bool = True) -> dict[str, _Sum]:
    """What the document files of a folder hold, by source."""
    sums: dict[str, _Sum] = defaultdict(_Sum)
    columns = ["id", "source", *(["text"] if texts else [])]
    for path in part_files(folder):
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, columns=columns)
                words = id_words(table["id"])
                lengths = pc.utf8_length(table["text"]).to_numpy() if texts else words[:0, 0]
                for name, rows in rows_of(table["source"]).items():
                    sums[name].add(words[rows], lengths[rows] if texts else lengths)
    return sums
