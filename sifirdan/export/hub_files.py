"""What of a finished folder may go to the Hub, and what of that the Hub does not have yet.

Only names on a list go, and of them only what the manifest names, whole: a `.env`, a saved training
state or a sample of the corpus that lies in the folder stays. Not for the network, which only
hub.py talks to.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sifirdan import runs
from sifirdan.errors import DataError
from sifirdan.export.hub_card import CARD_FILE, check_card

ALLOWED = {
    CARD_FILE,
    runs.MANIFEST,
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.model",
    "tokenizer.vocab",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "data_card.json",
}
_PART = re.compile(r"model-\d{5}-of-\d{5}\.safetensors", re.ASCII)
TOKEN = re.compile(rb"hf_[A-Za-z0-9]{30,}")  # of the Hub, whoever's


@dataclass(frozen=True)
class File:
    """A file that goes."""

    name: str
    path: Path
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Change:
    """What a commit has to do so that the repository holds the folder; names, sorted."""

    sent: tuple[str, ...]
    unchanged: tuple[str, ...]
    deleted: tuple[str, ...]


def list_files(folder: Path, manifest: runs.Manifest) -> list[File]:
    """What would go, by name: neither files are read nor is the network asked."""
    entries = {name: entry for name, entry in manifest.files.items() if is_allowed(name)}
    files = [File(n, folder / n, e["bytes"], e["sha256"]) for n, e in entries.items()]
    file = folder / runs.MANIFEST
    files.append(File(runs.MANIFEST, file, file.stat().st_size, manifest.sha256))
    return sorted(files, key=lambda file: file.name)


def left_out(folder: Path, files: Sequence[File]) -> list[str]:
    """Everything else in the folder, by name; subfolders end in a slash."""
    going = {file.name for file in files}
    names = (path.name + "/" * path.is_dir() for path in folder.iterdir())
    return sorted(name for name in names if name not in going)


def is_allowed(name: str) -> bool:
    return name in ALLOWED or _PART.fullmatch(name) is not None


def check_files(folder: Path, files: Sequence[File], *, made_by: str) -> None:
    """Refuse files that differ from the manifest, that hold a token, or a page that the Hub would
    refuse; no network is needed."""
    for file in files:
        if not file.path.is_file():
            raise _damaged(file.path, "is missing", made_by)
        if runs.sha256_of(file.path) != file.sha256:
            raise _damaged(file.path, "is damaged: its sha256 has changed", made_by)
        if TOKEN.search(_shown_text(file)):
            raise DataError(
                f"{file.path}: holds what looks like a token of the Hugging Face Hub",
                expected="a file that may be shown to others",
                todo="withdraw that token at https://huggingface.co/settings/tokens, and take it out "
                "of the source of this file",
            )
    page = next((file for file in files if file.name == CARD_FILE), None)
    if page is None:
        raise DataError(
            f"{folder}: there is no {CARD_FILE}",
            expected="a page that says what the folder is and which licences it rests on",
            todo=f"make it anew with this release: dvc repro -f -s {made_by}",
        )
    check_card(page.path, read_whole(page).decode("utf-8", errors="replace"))


def read_whole(file: File) -> bytes:
    """The bytes of a file, which are those that were checked."""
    content = file.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise changed(file)
    return content


def changed(file: File) -> DataError:
    """What to say of a file that is no longer the one that was checked."""
    return DataError(
        f"{file.path}: has changed while it was being published",
        expected="a folder that nothing writes to meanwhile",
        todo="wait until no stage runs, then publish again",
    )


def is_weights(name: str) -> bool:
    """Whether a file is large: sent by itself, and never held in memory."""
    return name.endswith(".safetensors")


def _shown_text(file: File) -> bytes:
    """What of a file people read: all, or the header of one with weights."""
    if not is_weights(file.name):
        return read_whole(file)
    with open(file.path, "rb") as content:
        length = int.from_bytes(content.read(8), "little")
        return content.read(min(length, 1 << 24))


def _damaged(path: Path, how: str, made_by: str) -> DataError:
    return DataError(
        f"{path}: {how}",
        expected=f"the files named in {runs.MANIFEST}, unchanged",
        todo=f"make the folder anew: dvc repro -f -s {made_by}",
    )


def compare(files: Sequence[File], hashes: Mapping[str, str]) -> Change:
    """What it takes to go from the repository's files, by the Hub's hashes, to `files`."""
    names = {file.name for file in files}
    same = {file.name for file in files if _is_same(file, hashes.get(file.name, ""))}
    gone = {name for name in hashes if is_allowed(name)} - names
    return Change(*(tuple(sorted(part)) for part in (names - same, same, gone)))


def _is_same(file: File, remote: str) -> bool:
    """The Hub knows a large file by the sha256 of its content, a small one by its id in Git."""
    if len(remote) != 40:
        return remote == file.sha256
    content = read_whole(file)
    return remote == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
