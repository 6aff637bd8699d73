"""The repositories of the loopback Hub (hub_fixture.py): commits, large files, and what is refused.

Every commit has its own files, so an old revision stays loadable. Ids are those of Git and of Git
LFS. Not for HTTP: a `Refusal` carries the status and the code that the Hub would answer with.
"""

import base64
import fnmatch
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

LARGE_BYTES = 10_000_000
LARGE_NAMES = (".safetensors", ".model", ".bin", ".parquet", ".arrow")
LICENSES = ("apache-2.0", "mit", "gpl-3.0", "cc-by-4.0", "openrail", "unknown", "other")


class Refusal(Exception):
    """An answer other than yes."""

    def __init__(self, status: int, message: str, code: str = "", **body: Any) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.body = {"error": message} | body


@dataclass(frozen=True)
class File:
    content: bytes
    is_large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """Git's id of what Git keeps: the content, or the pointer to a large file."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        kept = pointer.encode() if self.is_large else self.content
        return hashlib.sha1(b"blob %d\0" % len(kept) + kept).hexdigest()


@dataclass(frozen=True)
class Commit:
    oid: str
    files: dict[str, File]
    title: str


@dataclass
class Repository:
    is_private: bool
    commits: list[Commit]  # of the branch main, oldest first
    tags: dict[str, str] = field(default_factory=dict)  # name -> commit
    objects: dict[str, bytes] = field(default_factory=dict)  # large files that came, by sha256

    @property
    def head(self) -> Commit:
        return self.commits[-1]

    def find(self, revision: str) -> Commit:
        oid = self.tags.get(revision, self.head.oid if revision == "main" else revision)
        for commit in self.commits:
            if commit.oid == oid:
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def get(self, revision: str, name: str) -> File:
        files = self.find(revision).files
        if name not in files:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        return files[name]

    def upload_modes(self, files: list[dict[str, Any]], ignored: str) -> list[dict[str, Any]]:
        """How each file is to be sent, and the id of the one that is there."""
        rules = ignored or self.text(".gitignore")
        modes = []
        for name, size in ((file["path"], file["size"]) for file in files):
            there = self.head.files.get(name)
            modes.append(
                {
                    "path": name,
                    "uploadMode": "lfs" if is_large(name, size) else "regular",
                    "shouldIgnore": any(fnmatch.fnmatch(name, rule) for rule in rules.split()),
                    "oid": (there.sha256 if there.is_large else there.oid) if there else None,
                }
            )
        return modes

    def text(self, name: str) -> str:
        file = self.head.files.get(name)
        return file.content.decode() if file else ""

    def receive(self, sha256: str, size: int, content: bytes) -> None:
        """A large file, as it was announced."""
        if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
            raise Refusal(400, "the content does not have the announced size and sha256")
        self.objects[sha256] = content

    def commit(self, lines: list[dict[str, Any]]) -> Commit:
        """Apply the lines of a commit request, all or none."""
        header, *operations = lines
        if header["value"].get("parentCommit", self.head.oid) != self.head.oid:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(self.head.files)
        for operation in operations:
            self._apply(operation["key"], operation["value"], files)
        return self.add(files, header["value"]["summary"])

    def _apply(self, key: str, value: dict[str, Any], files: dict[str, File]) -> None:
        path = value["path"]
        if key == "file":
            content = base64.b64decode(value["content"], validate=True)
            if re.search(rb"hf_[A-Za-z0-9]{34}", content):
                raise Refusal(403, "Your push was rejected: it contains Hugging Face secrets")
            if path == "README.md" and (errors := card_errors(content.decode())):
                raise Refusal(400, "Invalid metadata in README.md", errors=errors)
            files[path] = File(content, is_large=False)
        elif key == "lfsFile":
            if value["algo"] != "sha256" or value["oid"] not in self.objects:
                raise Refusal(400, f"{path} points to a large file that does not exist")
            files[path] = File(self.objects[value["oid"]], is_large=True)
        elif key == "deletedFile":
            if path not in files:
                raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
            del files[path]
        elif key == "deletedFolder":
            inside = [name for name in files if name.startswith(path.rstrip("/") + "/")]
            for name in inside:
                del files[name]
        else:
            raise Refusal(400, f"unknown operation {key}")

    def add(self, files: dict[str, File], title: str) -> Commit:
        """A commit on top of the head."""
        parent = self.head.oid if self.commits else ""
        listing = sorted((name, file.oid) for name, file in files.items())
        oid = hashlib.sha1(json.dumps([parent, title, listing]).encode()).hexdigest()
        self.commits.append(Commit(oid, files, title))
        return self.head


def is_large(name: str, size: int) -> bool:
    return size > 0 and (size > LARGE_BYTES or name.endswith(LARGE_NAMES))


def new_repository(*, is_private: bool) -> Repository:
    """As the Hub makes one: with a first commit that holds .gitattributes."""
    repository = Repository(is_private, [])
    rules = "".join(f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LARGE_NAMES)
    repository.add({".gitattributes": File(rules.encode(), is_large=False)}, "initial commit")
    return repository


def repository_of(files: dict[str, bytes], commit: str) -> Repository:
    """A public repository with one commit of a given id."""
    stored = {name: File(content, is_large(name, len(content))) for name, content in files.items()}
    return Repository(False, [Commit(commit, stored, "all")])


def card_errors(text: str) -> list[dict[str, str]]:
    """What the Hub finds in the header of a README.md; none at all is no error to it."""
    header = re.match(r"---\n(.*?)^---$", text, re.DOTALL | re.MULTILINE)
    if not header:
        return []
    try:
        content = yaml.safe_load(header[1])
    except yaml.YAMLError as error:
        return [{"message": f"cannot be parsed: {error}"}]
    if not isinstance(content, dict):
        return [{"message": '"value" must be of type object'}]
    messages = []
    for key in ("language", "license", "datasets", "tags", "base_model"):
        value = content.get(key, [])
        for index, entry in enumerate(value if isinstance(value, list) else [value]):
            place = f"{key}[{index}]" if isinstance(value, list) else key
            if not isinstance(entry, str):
                messages.append(f'"{place}" must be a string')
            elif key == "license" and entry not in LICENSES:
                messages.append(f'"license" must be one of [{", ".join(LICENSES)}, ...]')
            elif key == "language" and not re.fullmatch(r"[a-z]{2,3}|code|multilingual", entry):
                messages.append(f'"{place}" must only contain an ISO 639-1, 639-2 or 639-3 code')
            elif key == "base_model" and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", entry):
                messages.append(f'"{place}" with value "{entry}" is not valid. Use a model id')
    if content.get("license") == "other" and not content.get("license_name"):
        messages.append('"license_name" is required when license is "other"')
    return [{"message": message} for message in messages]


# As the Hub describes things in JSON


def describe(name: str, found: Repository, commit: Commit) -> dict[str, Any]:
    day = "2026-01-01T00:00:00.000Z"
    return {
        "_id": "1", "id": name, "author": name.split("/")[0], "sha": commit.oid,
        "lastModified": day, "createdAt": day, "private": found.is_private, "disabled": False,
        "gated": False, "tags": [], "downloads": 0, "likes": 0,
        "siblings": [{"rfilename": file} for file in sorted(commit.files)],
    }  # fmt: skip


def describe_ref(kind: str, name: str, commit: str) -> dict[str, str]:
    return {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit}


def list_files(files: dict[str, File], folder: str, *, deep: bool) -> list[dict[str, Any]]:
    below, entries = (f"{folder}/" if folder else ""), []
    folders: set[str] = set()
    for name, file in sorted(files.items()):
        if not name.startswith(below):
            continue
        inner = name.removeprefix(below).split("/")
        parents = ["/".join(inner[:depth]) for depth in range(1, len(inner))]
        for parent in parents if deep else parents[:1]:
            if parent not in folders:
                folders.add(parent)
                entries.append(describe_folder(below + parent))
        if deep or not parents:
            entries.append(describe_file(name, file))
    return entries


def describe_folder(name: str) -> dict[str, Any]:
    return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}


def describe_file(name: str, file: File) -> dict[str, Any]:
    entry = {"type": "file", "oid": file.oid, "size": len(file.content), "path": name}
    large = {"lfs": {"oid": file.sha256, "size": len(file.content), "pointerSize": 130}}
    return entry | (large if file.is_large else {})
