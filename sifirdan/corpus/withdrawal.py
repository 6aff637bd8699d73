"""What a source has touched, should it have to be withdrawn: which outputs, models and reports on this
disk were made with it, and what to change and run.

It follows the hashes of inputs in the manifests, in the work tree and in DVC's local cache of earlier
versions, and counts the source's documents in data folders themselves. A source is known by its name
in params.yaml. Not searched: other machines, the Hub, the tracking store. No stage imports this file.
"""

import difflib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc

from sifirdan import json_files, runs
from sifirdan.config import read_yaml
from sifirdan.corpus.ledger_file import SUMMARY_FILE
from sifirdan.corpus.shard_rows import batches
from sifirdan.errors import ConfigError, DataError

How = Literal["holds", "learned", "reports", "beside", "unknown"]
MEANING: dict[How, str] = {
    "holds": "hold its text",
    "learned": "learned from its text",
    "reports": "report on these",
    "beside": "made in one run with it, but hold nothing of it and learned nothing from it",
    "unknown": "cannot be told: made from folders that are not on this disk",
}
DATA_KINDS = ("raw", "corpus", "tokens", "chat")
LEARNED_KINDS = ("tokenizer", "model")
OWN = "own"
_SKIPPED = ("mlartifacts", "mlruns", "node_modules")  # and every hidden folder


@dataclass(frozen=True)
class Folder:
    """A finished folder, in the work tree or in DVC's cache; `files` says where the bytes of each
    of its files lie, `sha256` is that of its manifest."""

    place: str
    cached: bool
    kind: str
    sha256: str
    inputs: dict[str, str]
    counts: dict[str, Any]
    files: dict[str, Path]


@dataclass(frozen=True)
class Fate:
    """How a folder is touched: its documents of the source by set, and the touched inputs."""

    how: How
    documents: dict[str, int]
    through: tuple[str, ...]


def withdraw(root: Path, source: str) -> dict[str, Any]:
    """Every finished folder below `root` that the source has touched, and what to do."""
    here = list(_work_tree_folders(root))
    current = {folder.sha256 for folder in here}
    # DVC's cache also holds what lies in the work tree; only other versions are worth naming
    everywhere = [*(f for f in _cached_folders(root) if f.sha256 not in current), *reversed(here)]
    folders = {folder.sha256: folder for folder in everywhere}
    _require_known(source, _known_sources(root, folders.values()))
    fates: dict[str, Fate | None] = {}
    for sha256 in folders:
        _find_fate(sha256, source, folders, fates)
    order = list(MEANING)
    touched = [(folder, fate) for folder in everywhere if (fate := fates[folder.sha256])]
    touched.sort(key=lambda f: (order.index(f[1].how), f[0].cached, _stage_order(f[0]), f[0].place))
    return {
        "source": source,
        "touched": [
            {
                "place": folder.place,
                "kind": folder.kind,
                "how": fate.how,
                "documents": fate.documents,
                "through": sorted(folders[i].place if i in folders else i for i in fate.through),
                "sha256": folder.sha256,
            }
            for folder, fate in touched
        ],
        "untouched": sorted(folder.place for folder in everywhere if not fates[folder.sha256]),
        "todo": _todo(root, source, touched),
    }


def withdraw_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """`withdraw` for a terminal."""
    source, touched = found["source"], found["touched"]
    if not touched:
        yield f"nothing on this disk was made with {source}"
        return
    for how, meaning in MEANING.items():
        group = [entry for entry in touched if entry["how"] == how]
        if not group:
            continue
        yield f"{len(group)} {meaning}:"
        width = max(len(entry["place"]) for entry in group)
        for entry in group:
            documents = ", ".join(f"{name} {n:,}" for name, n in entry["documents"].items())
            detail = f"documents: {documents}" if documents else ""
            if not detail and entry["through"]:
                detail = f"from {', '.join(entry['through'])}"
            yield f"  {entry['place']:<{width}}  {entry['kind']:<10}  {detail}".rstrip()
        yield ""
    if found["untouched"]:
        yield f"untouched: {', '.join(found['untouched'])}"
        yield ""
    yield "what to do:"
    for number, line in enumerate(found["todo"], start=1):
        yield f"  {number}. {line}"


def _find_fate(
    sha256: str, source: str, folders: Mapping[str, Folder], fates: dict[str, Fate | None]
) -> Fate | None:
    """How the folder with this hash is touched, found after those of its inputs."""
    if sha256 in fates:
        return fates[sha256]
    folder = folders[sha256]
    inputs = {
        i: _find_fate(i, source, folders, fates) for i in folder.inputs.values() if i in folders
    }
    missing = tuple(i for i in folder.inputs.values() if i not in folders)
    touched = tuple(i for i, fate in inputs.items() if fate)
    unsure = missing or any(fate and fate.how == "unknown" for fate in inputs.values())
    documents = _documents(folder, source) if folder.kind in DATA_KINDS else {}
    how: How | None = "beside" if touched else None
    if documents:
        how = "holds"
    elif folder.kind in LEARNED_KINDS:
        taught = [i for i, fate in inputs.items() if fate and _taught(folders[i], fate)]
        how = "learned" if taught else "unknown" if unsure else how
        touched = tuple(taught) or touched
    elif folder.kind not in DATA_KINDS:
        shown = [i for i, f in inputs.items() if f and f.how in ("holds", "learned", "reports")]
        how = "reports" if shown else "unknown" if unsure else how
        touched = tuple(shown) or touched
    fates[sha256] = Fate(how, documents, touched or missing) if how else None
    return fates[sha256]


def _taught(folder: Folder, fate: Fate) -> bool:
    """Whether what was made from this input learned from the source: from training text that holds
    it, or from weights or pieces that already did."""
    return fate.how == "learned" or fate.documents.get("train", 0) > 0


def _documents(folder: Folder, source: str) -> dict[str, int]:
    """The source's documents in a data folder, by split or set; only those that are there."""
    if folder.kind == "raw":
        number = folder.counts.get(source, {}).get("documents", 0)
        return {"all": number} if number else {}
    if folder.kind == "corpus":
        account = _summary(folder).get(source, {"out": {}})
        return {split: number for split, number in account["out"].items() if number}
    counted: Counter[str] = Counter()
    for name, path in sorted(folder.files.items()):
        if name.endswith(".arrow") and path.is_file():
            for batch in batches(path):
                same = pc.sum(pc.equal(batch.column("source"), source)).as_py() or 0
                counted[name.split("/")[0]] += same
    return dict(+counted)


def _summary(folder: Folder) -> dict[str, Any]:
    """The account of each source in a corpus; empty where it has none."""
    path = folder.files.get(SUMMARY_FILE)
    if path is None or not path.is_file():
        return {}
    return json_files.read_object(path, todo=_mend(path) if folder.cached else "dvc repro clean")


def _work_tree_folders(root: Path) -> Iterator[Folder]:
    for here, below, files in os.walk(root):
        below[:] = sorted(n for n in below if not n.startswith(".") and n not in _SKIPPED)
        if runs.MANIFEST not in files:
            continue
        folder = Path(here)
        manifest = _parsed((folder / runs.MANIFEST).read_bytes())
        if manifest:
            places = {name: folder / name for name in manifest["files"]}
            yield _folder(folder.relative_to(root).as_posix(), False, manifest, places)


def _cached_folders(root: Path) -> Iterator[Folder]:
    """Earlier versions that DVC keeps: a `.dir` file lists a folder's files with their MD5, and the
    bytes of each lie under that name. Only the cache inside the project is looked through."""
    cache = root / ".dvc/cache/files/md5"
    for listing in sorted(cache.glob("*/*.dir")):
        try:
            entries = json_files.loads(listing.read_bytes())
            places = {e["relpath"]: cache / e["md5"][:2] / e["md5"][2:] for e in entries}
        except (OSError, ValueError, TypeError, KeyError):
            raise json_files.damaged(
                str(listing),
                "it lists no files",
                todo=_mend(listing),
                expected="DVC's list of a folder",
            ) from None
        path = places.get(runs.MANIFEST)
        manifest = _parsed(path.read_bytes()) if path and path.is_file() else None
        if manifest:
            place = f"DVC cache {listing.parent.name}{listing.stem[:10]}"
            yield _folder(place, True, manifest, places)


def _mend(path: Path) -> str:
    return f"rm -f {path}; where a remote has it, dvc fetch --all-commits brings it back"


def _folder(place: str, cached: bool, manifest: dict[str, Any], files: dict[str, Path]) -> Folder:
    kind, sha256, inputs = manifest["kind"], manifest["sha256"], manifest["inputs"]
    return Folder(place, cached, kind, sha256, inputs, manifest["counts"], files)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """A manifest of ours, or None for another file of that name."""
    try:
        content = json_files.loads(raw)
    except ValueError:
        return None
    if not isinstance(content, dict) or not {"kind", "inputs", "counts", "files"} <= content.keys():
        return None
    return content | {"sha256": hashlib.sha256(raw).hexdigest()}


def _stage_order(folder: Folder) -> int:
    kinds = (*DATA_KINDS, *LEARNED_KINDS)
    return kinds.index(folder.kind) if folder.kind in kinds else len(kinds)


def _known_sources(root: Path, folders: Any) -> set[str]:
    known = {name for f in folders if f.kind == "raw" for name in f.counts}
    for folder in folders:
        known |= set(_summary(folder) if folder.kind == "corpus" else ())
    return known | set(_params_sources(root))


def _params_sources(root: Path) -> dict[str, Any]:
    try:
        section = read_yaml(root / "params.yaml").get("ingest")
    except ConfigError:
        return {}
    sources = section.get("sources") if isinstance(section, dict) else None
    return sources if isinstance(sources, dict) else {}


def _require_known(source: str, known: set[str]) -> None:
    if source in known:
        return
    near = difflib.get_close_matches(source, sorted(known), 3, 0.4)
    raise DataError(
        f"no source is called {source!r}",
        expected=f"one of {', '.join(sorted(known))}" if known else "a project with data/raw",
        todo=f"did you mean {' or '.join(near)}?" if near else "sifirdan ledger names the sources",
    )


def _todo(root: Path, source: str, touched: list[tuple[Folder, Fate]]) -> list[str]:
    if source == OWN:
        lines = ["take the files out of the folder that ingest.own_text names (data/own)"]
    elif source in (named := _params_sources(root)):
        lines = [f"in params.yaml take out ingest.sources.{source}, also from presets you use"]
        if isinstance(named[source], dict) and named[source].get("kind") in ("files", "mediawiki"):
            lines.append("delete the files themselves: their paths are in params.yaml")
    else:
        lines = [f"params.yaml does not name {source} any more: nothing to change there"]
    here = [folder.place for folder, fate in touched if not folder.cached and fate.how != "unknown"]
    if here:
        lines.append("dvc repro: makes anew what it touched in the work tree")
    if any(folder.cached for folder, _ in touched) or (root / ".dvc/cache").is_dir():
        lines.append(
            "dvc gc --workspace: drops earlier versions from DVC's cache (--cloud: remotes)"
        )
    for left, what in (("models/.resume", "unfinished training"), ("data/.cache", "fetched files")):
        if (root / left).is_dir():
            lines.append(f"delete {left}, which keeps {what}")
    lines.append(
        f"sifirdan ledger --withdraw {source}: finds nothing, or no such source, when done"
    )
    lines.append(
        "elsewhere, by hand: pushed models and data sets, runs and samples in the tracking store,"
        " copies on other machines"
    )
    return lines
