"""A small Hub on 127.0.0.1 that serves data sets to the real `datasets` client, read only.

It answers what the client asks for: what a repository holds at a commit, lists of its files, and
their bytes, also parts of them. The client takes the address from HF_ENDPOINT when it is imported,
so it runs in a process of its own: `environment` gives the variables.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class DataSet:
    """A repository with one commit."""

    commit: str
    files: dict[str, bytes]


@dataclass
class Hub:
    url: str
    data_sets: dict[str, DataSet]  # by owner/name
    asked: list[str] = field(default_factory=list)  # paths of all requests


@contextmanager
def serve(data_sets: dict[str, DataSet]) -> Iterator[Hub]:
    """Run a Hub while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_port}", data_sets)
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """Variables with which the client talks to this Hub only and caches in `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path)
        hub.asked.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "datasets"]
        rest = parts[2:] if is_api else parts[1:]
        found = hub.data_sets.get("/".join(rest[:2]))
        if found is None or not (is_api or parts[0] == "datasets"):
            self._error("RepoNotFound")
            return
        what, revision, inside = rest[2:3], rest[3:4], "/".join(rest[4:])
        if revision and revision[0] not in ("main", found.commit):
            self._error("RevisionNotFound")
        elif what in ([], ["revision"]):
            self._json(_describe("/".join(rest[:2]), found))
        elif what == ["tree"]:
            deep = "recursive=True" in self.path or "recursive=true" in self.path
            if listed := _list(found, inside, deep=deep):
                self._json(listed)
            else:
                self._error("EntryNotFound")
        elif what == ["paths-info"]:
            self._json(_paths_info(body, self.headers.get("Content-Type", ""), found))
        elif what == ["resolve"]:
            self._file(found, inside)
        else:
            self._error("EntryNotFound")

    def _file(self, found: DataSet, name: str) -> None:
        if name not in found.files:
            self._error("EntryNotFound", {"X-Repo-Commit": found.commit})
            return
        content = found.files[name]
        mark = hashlib.sha256(content).hexdigest()
        headers = {
            "X-Repo-Commit": found.commit,
            "ETag": f'"{mark}"',
            "X-Linked-ETag": f'"{mark}"',
            "X-Linked-Size": str(len(content)),
            "Accept-Ranges": "bytes",
        }
        status = 200
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = min(int(last), len(content) - 1) if last else len(content) - 1
            headers["Content-Range"] = f"bytes {first}-{end}/{len(content)}"
            content, status = content[int(first) : end + 1], 206
        self._send(status, content, headers | {"Content-Type": "application/octet-stream"})

    def _json(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _error(self, code: str, headers: dict[str, str] | None = None) -> None:
        self._send(404, b"{}", {"X-Error-Code": code, "X-Error-Message": code} | (headers or {}))

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _describe(name: str, found: DataSet) -> dict[str, Any]:
    day = "2026-01-01T00:00:00.000Z"
    return {
        "_id": "1", "id": name, "author": name.split("/")[0], "sha": found.commit,
        "lastModified": day, "createdAt": day, "private": False, "disabled": False, "gated": False,
        "tags": [], "downloads": 0, "likes": 0,
        "siblings": [{"rfilename": file} for file in sorted(found.files)],
    }  # fmt: skip


def _list(found: DataSet, folder: str, *, deep: bool) -> list[dict[str, Any]]:
    below, entries = (f"{folder}/" if folder else ""), []
    folders: set[str] = set()
    for name, content in sorted(found.files.items()):
        if not name.startswith(below):
            continue
        inner = name.removeprefix(below).split("/")
        parents = ["/".join(inner[:depth]) for depth in range(1, len(inner))]
        for parent in parents if deep else parents[:1]:
            if parent not in folders:
                folders.add(parent)
                entries.append(_folder(below + parent))
        if deep or not parents:
            entries.append(_entry(name, content))
    return entries


def _folder(name: str) -> dict[str, Any]:
    return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}


def _entry(name: str, content: bytes) -> dict[str, Any]:
    mark = hashlib.sha256(content).hexdigest()
    large = {"lfs": {"oid": mark, "size": len(content), "pointerSize": 130}}
    entry = {"type": "file", "oid": mark[:40], "size": len(content), "path": name}
    return entry | (large if name.endswith(".parquet") else {})


def _paths_info(body: bytes, kind: str, found: DataSet) -> list[dict[str, Any]]:
    if "json" in kind:
        names = json.loads(body)["paths"]
    else:
        pairs = (part.split("=", 1) for part in body.decode().split("&"))
        names = [unquote(value.replace("+", " ")) for key, value in pairs if key == "paths"]
    entries = []
    for name in names:
        if name in found.files:
            entries.append(_entry(name, found.files[name]))
        elif any(file.startswith(f"{name}/") for file in found.files):
            entries.append(_folder(name))
    return entries
