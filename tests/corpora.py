"""Raw folders made by the real `ingest`, and corpora made from them by the real `clean`.

For tests of what these two promise together; the texts are made up so that no two are alike. Not for
folders with every kind of verdict (tiny_corpus.py), nor for whole projects (tiny.py).
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sifirdan.config import build, load_params
from sifirdan.corpus import records
from sifirdan.corpus.ledger_file import SPLITS
from sifirdan.corpus.records import Document
from stages import clean as clean_stage
from stages import ingest as ingest_stage

PROJECT = Path(__file__).parents[1]
CLEAN = replace(
    load_params(PROJECT / "presets/tiny.yaml", "clean", clean_stage.Params), reject_sample=2
)
ROOTS = [
    "kalem",
    "defter",
    "kapı",
    "pencere",
    "masa",
    "bahçe",
    "çiçek",
    "deniz",
    "gemi",
    "yol",
    "köprü",
    "dağ",
    "göl",
    "orman",
    "ekmek",
    "peynir",
    "tuz",
    "şeker",
    "çay",
    "kahve",
    "saat",
    "gözlük",
    "şapka",
    "ayakkabı",
    "eldiven",
    "kitap",
    "gazete",
    "mektup",
    "pul",
    "harita",
    "balık",
    "kuş",
    "kedi",
    "köpek",
    "arı",
    "elma",
    "üzüm",
    "incir",
    "zeytin",
    "nar",
    "çanta",
    "sepet",
    "kutu",
    "sandık",
    "halı",
    "ayna",
    "tarak",
    "sabun",
    "havlu",
]
ENDINGS = ["lar", "lık", "da", "dan", "a", "ın", "ım", "sız", "lı", "ca"]


def sentence(rng: random.Random, num_words: int = 10) -> str:
    """Made-up Turkish; two of ten words or more share no run of five words."""
    words = [rng.choice(ROOTS) + rng.choice(ENDINGS) for _ in range(num_words)]
    return " ".join(["Şu", *words]) + "."


def texts(count: int, *, seed: int = 1, num_words: int = 10) -> list[str]:
    """Different documents of one sentence."""
    rng = random.Random(seed)
    return [sentence(rng, num_words) for _ in range(count)]


def write_jsonl(path: Path, documents: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def ingest_params(own: Path, **changes: Any) -> ingest_stage.Params:
    own.mkdir(parents=True, exist_ok=True)
    section = {
        "own_text": str(own), "own_license": "own", "own_encoding": "utf-8",
        "own_on_error": "stop", "max_document_bytes": 10**8, "max_unpacked_bytes": 10**9,
        "max_members": 1000, "allowed_licenses": ["own", "CC-BY-4.0", "GPL-3.0"], "sources": {},
    }  # fmt: skip
    params: ingest_stage.Params = build(ingest_stage.Params, section | changes, "ingest")
    return params


def files_source(*paths: str, **changes: Any) -> dict[str, Any]:
    """A section of `ingest.sources` of the kind `files`."""
    return {
        "kind": "files", "paths": list(paths), "format": "auto", "encoding": "utf-8",
        "text_column": "text", "xml_element": None, "license": "own", "attribution": None, "uses": ["pretraining"],
        "text_kind": "curated", "on_error": "stop",
    } | changes  # fmt: skip


def ingest(folder: Path, **changes: Any) -> Path:
    """folder/own and the sources in `changes` become folder/raw."""
    params = ingest_params(folder / "own", **changes)
    ingest_stage.ingest(folder / "raw", params, cache=folder / "cache", root=folder)
    return folder / "raw"


def make_raw(
    folder: Path, sources: Mapping[str, Iterable[str]], **settings: dict[str, Any]
) -> Path:
    """Each source as a .jsonl file that `ingest` reads; `settings` changes sections by source."""
    for name, documents in sources.items():
        write_jsonl(folder / f"{name}.jsonl", documents)
    sections = {name: files_source(f"{name}.jsonl", **settings.get(name, {})) for name in sources}
    return ingest(folder, sources=sections)


def clean(
    raw: Path,
    corpus: Path,
    params: clean_stage.Params = CLEAN,
    *,
    num_workers: int = 1,
    report: Path | None = None,
) -> dict[str, Any]:
    """The stage, with its page beside the corpus; conftest.py checks the law after each use."""
    report = report or corpus.with_name(corpus.name + "_report")
    return clean_stage.clean(raw, corpus, report, params, num_workers)


def stored(corpus: Path) -> dict[str, list[Document]]:
    """The documents of each split of a corpus."""
    return {split: list(records.read_folder(corpus / split)) for split in SPLITS}


def all_texts(corpus: Path) -> list[str]:
    return [document.text for split in stored(corpus).values() for document in split]


def raw_texts(raw: Path, source: str = "own") -> dict[str, str]:
    """The texts of a raw folder's source by origin."""
    return {document.origin: document.text for document in records.read_folder(raw / source)}


def quarantine(raw: Path) -> list[dict[str, str]]:
    """What `ingest` set aside."""
    path = raw / "quarantine.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def file_bytes(*folders: Path) -> dict[str, bytes]:
    """Every file below some folders, by its place there."""
    return {
        f"{number}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for number, folder in enumerate(folders)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
