"""Why a document is in or out, and what it says: the questions that the ledger answers about one
document of a finished corpus.

Each question has a function that returns a JSON value and one that makes it readable lines. No stage
imports this file, so it may grow without making anything anew. For the whole see contents.py, for a
row of a shard shard_rows.py, for a source that is withdrawn withdrawal.py.
"""

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from sifirdan import json_files, runs
from sifirdan.corpus.card import CARD_FILE, read_card
from sifirdan.corpus.ledger_file import LEDGER_FILE, SPLITS, read_ledger
from sifirdan.corpus.reasons import deciding, in_words
from sifirdan.corpus.records import QUARANTINE_FILE, part_files
from sifirdan.errors import DataError

TEXT_CHARS = 600  # of a text's beginning
MIN_ID_DIGITS = 6  # of an id that is given by its beginning
NEAR_MATCHES = 5
MOST_UNREAD = 20  # places that are shown


def why(corpus: Path, raw: Path, wanted: str) -> dict[str, Any]:
    """The ledger row of a document, named by its id, the beginning of its id or (part of) its
    origin; what the verdict means, the beginning of the text, and the copy that stayed. The texts
    of documents that are out lie in `raw`, and so do the places that gave no document: where
    `wanted` names some, they are "unread", and "id" is null if it names nothing else."""
    manifest = runs.read_manifest(corpus, made_by="clean")
    unread = unread_places(raw, wanted)
    try:
        row = find_row(corpus / LEDGER_FILE, wanted)
    except DataError:
        if not unread:
            raise
        return {"id": None, "in": False, "unread": unread}
    kept = find_by_id(corpus / LEDGER_FILE, row["kept_id"]) if row["kept_id"] else None
    step = _step_of(corpus, row["verdict"])
    return {
        **row,
        "unread": unread,
        "in": row["verdict"] in SPLITS,
        "because": _because(row, step),
        "step": step and step["name"],
        "settings": deciding(row["verdict"], step["settings"]) if step else {},
        **text_of(corpus, raw, manifest, row),
        "kept": kept and {**kept, **text_of(corpus, raw, manifest, kept)},
    }


def why_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """`why` for a terminal."""
    for place in found["unread"]:
        origin = printable(place["origin"])
        yield f"{place['source']}: {origin} gave no document: {printable(place['reason'])}"
    if found["id"] is None:
        return
    yield f"{found['id']} is {'in' if found['in'] else 'out'}: {found['verdict']}"
    yield f"  because   {found['because']}"
    if found["step"]:
        yield f"  step      {found['step']}"
    for key, value in found["settings"].items():
        yield f"  setting   {key}: {json.dumps(value, ensure_ascii=False)}"
    yield from row_lines(found)
    if found["similarity"] is not None:
        yield f"  likeness  {found['similarity']:.3f} with the copy that stayed"
    yield from text_lines(found)
    if kept := found["kept"]:
        yield ""
        yield f"the copy that stayed: {kept['id']}, {kept['verdict']}"
        yield from row_lines(kept)
        yield from text_lines(kept)


def unread_places(raw: Path, wanted: str) -> list[dict[str, Any]]:
    """What `ingest` set aside under this name or a part of it: source, origin and reason."""
    path = raw / QUARANTINE_FILE
    if not wanted or not path.is_file():
        return []
    places = json_files.read_lines(path, todo="dvc repro ingest, which restores it")
    exact = [place for place in places if place.get("origin") == wanted]
    found = exact or [place for place in places if wanted in str(place.get("origin"))]
    return found[:MOST_UNREAD]


def find_by_id(ledger: Path, wanted: str) -> dict[str, Any] | None:
    """The row with exactly this id, or None."""
    for table in read_ledger(ledger):
        index = pc.index(table["id"], wanted).as_py()
        if index >= 0:
            row: dict[str, Any] = table.slice(index, 1).to_pylist()[0]
            return row
    return None


def find_row(ledger: Path, wanted: str) -> dict[str, Any]:
    """The one row meant by an id, the beginning of one, an origin or a part of one. When several or
    none fit, the error names them or the nearest."""
    if row := find_by_id(ledger, wanted):
        return row
    fitting: list[dict[str, Any]] = []
    verdicts: Counter[str] = Counter()
    exact: list[dict[str, Any]] = []
    for table in read_ledger(ledger) if wanted else ():
        fits = pc.match_substring(table["origin"], wanted)
        if len(wanted) >= MIN_ID_DIGITS:
            fits = pc.or_(fits, pc.starts_with(table["id"], wanted))
        those = table.filter(fits)
        verdicts.update(those["verdict"].to_pylist())
        fitting += those.slice(0, NEAR_MATCHES).to_pylist()
        exact += table.filter(pc.equal(table["origin"], wanted)).slice(0, 2).to_pylist()
    number = verdicts.total()
    if number == 1 or len(exact) == 1:
        return (exact or fitting)[0]
    if number:
        told = ", ".join(f"{verdict} {count:,}" for verdict, count in verdicts.most_common())
        more = f"; and {number - NEAR_MATCHES:,} more" if number > NEAR_MATCHES else ""
        raise DataError(
            f"{number:,} documents fit {wanted!r} ({told}): {_named(fitting)}{more}",
            expected="one document",
            todo="give the whole id or the whole origin",
        )
    near = _nearest(ledger, wanted)
    raise DataError(
        f"no document of this corpus has the id or origin {wanted!r}",
        expected="an id (32 hex digits, or its beginning) or an origin that stands in the ledger",
        todo=f"did you mean {_named(near)}?" if near else "see data/corpus/ledger.parquet",
    )


def _nearest(ledger: Path, wanted: str) -> list[dict[str, Any]]:
    """Rows that share the first or the second half of the id or origin, the most alike first."""
    best: list[tuple[float, str, dict[str, Any]]] = []
    half = len(wanted) // 2
    halves = [part for part in (wanted[:half], wanted[half:]) if len(part) >= 2]
    for table in read_ledger(ledger) if halves else ():
        for column in ("id", "origin"):
            fits = pc.match_substring(table[column], halves[0])
            for part in halves[1:]:
                fits = pc.or_(fits, pc.match_substring(table[column], part))
            for row in table.filter(fits).slice(0, 1000).to_pylist():
                likeness = difflib.SequenceMatcher(None, wanted, row[column]).ratio()
                best.append((-likeness, row["id"], row))
        best = sorted(best, key=lambda entry: entry[:2])[:NEAR_MATCHES]
    return [row for likeness, _, row in best if likeness <= -0.5]


def _named(rows: list[dict[str, Any]]) -> str:
    return "; ".join(
        f"{row['id']} ({row['source']}, {row['origin']})" for row in rows[:NEAR_MATCHES]
    )


def _because(row: Mapping[str, Any], step: Mapping[str, Any] | None) -> str:
    if words := in_words(row["verdict"]):
        return words
    return step["what"] if step else f"the rule {row['verdict']!r} turned it away"


def _step_of(corpus: Path, verdict: str) -> dict[str, Any] | None:
    """The step of the data card that gives this verdict."""
    if not (corpus / CARD_FILE).is_file():
        return None
    steps = read_card(corpus)["steps"]
    return next((step for step in steps if verdict in step["reasons"]), None)


def text_of(
    corpus: Path, raw: Path, manifest: runs.Manifest, row: Mapping[str, Any]
) -> dict[str, Any]:
    """The beginning of a document's text and the folder it was read from: as it is trained on, or,
    for what is out, as it was found."""
    if row["verdict"] in SPLITS:
        folder = corpus / row["verdict"]
    else:
        folder = raw / row["source"]
        try:
            same = runs.read_manifest(raw).sha256 == manifest.inputs.get("raw")
        except DataError:
            return {"text": None, "text_from": f"{raw} is not on this disk"}
        if not same:
            return {"text": None, "text_from": f"{raw} is of another run than the corpus"}
    for path in part_files(folder):
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                ids = file.read_row_group(number, columns=["id"])["id"]
                index = pc.index(ids, row["id"]).as_py()
                if index >= 0:
                    text = file.read_row_group(number, columns=["text"])["text"][index].as_py()
                    return {"text": text[:TEXT_CHARS], "text_from": folder.as_posix()}
    return {"text": None, "text_from": f"{folder} does not hold it; sifirdan verify {corpus}"}


# Lines.


def row_lines(row: Mapping[str, Any]) -> Iterator[str]:
    yield f"  source    {row['source']} ({row['license']})"
    yield f"  origin    {printable(row['origin'])}"
    if "chars_in" in row:
        yield f"  length    {row['chars_in']:,} characters in, {row['chars_out']:,} out"
    if row.get("flags"):
        yield f"  flags     {', '.join(row['flags'])}"


def text_lines(found: Mapping[str, Any]) -> Iterator[str]:
    if found["text"] is None:
        yield f"  text      (not to be had: {found['text_from']})"
        return
    yield f"  text      (its beginning, from {found['text_from']})"
    for line in found["text"].split("\n"):
        yield f"    {printable(line)}"


def printable(line: str) -> str:
    """A line that cannot move the cursor or turn the writing round: controls are shown as marks."""
    return "".join(c if c.isprintable() or c == "\t" else f"<U+{ord(c):04X}>" for c in line)
