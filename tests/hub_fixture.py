"""A small Hub on 127.0.0.1 for the real clients: data sets to read, models to push and load.

What it holds and refuses is in hub_repositories.py; here are the addresses, the tokens, a log of all
requests, and faults to order. The client takes the address from HF_ENDPOINT when it is imported, so
it runs in a process of its own, with the variables of `environment`; or it is an
`HfApi(endpoint=hub.url, token=WRITER)`.
"""

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from hub_repositories import (
    Refusal,
    Repository,
    card_errors,
    describe,
    describe_file,
    describe_folder,
    describe_ref,
    list_files,
    new_repository,
    repository_of,
)

OWNER = "ayse"
WRITER, READER, LIMITED = ("hf_" + letter * 34 for letter in "wrl")
ROLES = {WRITER: "write", READER: "read", LIMITED: "fineGrained"}  # the last one without any right


@dataclass
class DataSet:
    """A data set with one commit."""

    commit: str
    files: dict[str, bytes]


@dataclass
class Fault:
    """Something that goes wrong with requests whose "METHOD /path" the pattern is found in: after
    the first `skip` of them, `times` of them are answered with a status, or the connection is
    dropped, before or after the request is carried out; or something else happens first."""

    pattern: str
    status: int | None = None
    drop: Literal["before", "after"] | None = None
    meanwhile: Callable[[], object] | None = None
    skip: int = 0
    times: int = 1


@dataclass(frozen=True)
class Request:
    line: str  # "METHOD /path"
    token: str  # that came along, or nothing
    num_bytes: int


@dataclass
class Hub:
    url: str
    data_sets: dict[str, Repository]  # by owner/name
    models: dict[str, Repository] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [request.line for request in self.requests]

    def count(self, pattern: str) -> int:
        """How many requests have the pattern in their line."""
        return sum(bool(re.search(pattern, line)) for line in self.asked)


@contextmanager
def serve(data_sets: dict[str, DataSet] | None = None) -> Iterator[Hub]:
    """Run a Hub while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    held = {n: repository_of(d.files, d.commit) for n, d in (data_sets or {}).items()}
    hub = Hub(f"http://127.0.0.1:{server.server_port}", held)
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment(hub: Hub, home: Path, token: str | None = None) -> dict[str, str]:
    """Variables with which the client talks to this Hub only, caches in `home`, and knows no token
    but the one given."""
    ours = ("HF_", "HUGGING")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return (
        kept
        | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }
        | ({"HF_TOKEN": token} if token else {})
    )


@dataclass(frozen=True)
class _Answer:
    status: int
    content: bytes
    headers: dict[str, str]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16  # head and body in one packet, or every answer waits 40 ms

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub: Hub = self.server.hub  # type: ignore[attr-defined]
        self.token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        split = urlsplit(self.path)
        self.query = parse_qs(split.query)
        line = f"{self.command} {unquote(split.path)}"
        self.hub.requests.append(Request(line, self.token, len(self.body)))
        fault = _take_fault(self.hub.faults, line)
        if fault and fault.meanwhile:
            fault.meanwhile()
        if fault and fault.status:
            self._send(_json({"error": "ordered"}, fault.status))
            return
        answer = None if fault and fault.drop == "before" else self._answer(line)
        if answer is None or (fault and fault.drop):
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(answer)

    do_HEAD = do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    def _answer(self, line: str) -> _Answer:
        try:
            for pattern, action in _ROUTES.items():
                if match := re.fullmatch(pattern, line):
                    return action(self, **match.groupdict())
            raise Refusal(404, "Not found", "EntryNotFound")
        except Refusal as no:
            headers = {"X-Error-Message": str(no)} | ({"X-Error-Code": no.code} if no.code else {})
            return _json(no.body, no.status, headers)

    # Who asks, and for what

    def _role(self) -> str:
        if self.token not in ROLES:
            raise Refusal(401, "Invalid username or password.")
        return ROLES[self.token]

    def _require_write(self, name: str) -> None:
        if self._role() != "write" or not name.startswith(f"{OWNER}/"):
            raise Refusal(403, "You don't have the rights to write here")

    def _repository(self, kind: str | None, name: str) -> Repository:
        held = self.hub.data_sets if (kind or "").startswith("datasets") else self.hub.models
        found = held.get(name)
        if found is None or (found.is_private and self.token not in ROLES):
            raise Refusal(404 if self.token else 401, "Repository not found", "RepoNotFound")
        return found

    # Accounts and repositories

    def whoami(self) -> _Answer:
        account = {"type": "user", "name": OWNER, "orgs": []}
        return _json(account | {"auth": {"accessToken": {"role": self._role()}}})

    def create(self) -> _Answer:
        wanted = json.loads(self.body)
        name = f"{wanted.get('organization') or OWNER}/{wanted['name']}"
        self._require_write(name)
        url = {"url": f"{self.hub.url}/{name}", "id": name, "name": name}
        if name in self.hub.models:
            raise Refusal(409, "You already created this model repo", **url)
        self.hub.models[name] = new_repository(is_private=wanted.get("visibility") == "private")
        return _json(url)

    def delete(self) -> _Answer:
        wanted = json.loads(self.body)
        name = f"{wanted.get('organization') or OWNER}/{wanted['name']}"
        self._require_write(name)
        if self.hub.models.pop(name, None) is None:
            raise Refusal(404, "Repository not found", "RepoNotFound")
        return _json({})

    def validate(self) -> _Answer:
        errors = card_errors(json.loads(self.body)["content"])
        return _json({"errors": errors, "warnings": []}, 400 if errors else 200)

    # Reading

    def info(self, kind: str, name: str, revision: str = "main") -> _Answer:
        found = self._repository(kind, name)
        return _json(describe(name, found, found.find(revision)))

    def refs(self, kind: str, name: str) -> _Answer:
        found = self._repository(kind, name)
        tags = [describe_ref("tags", tag, commit) for tag, commit in found.tags.items()]
        main = [describe_ref("heads", "main", found.head.oid)]
        return _json({"branches": main, "converts": [], "tags": tags})

    def tree(self, kind: str, name: str, revision: str, folder: str | None = None) -> _Answer:
        files = self._repository(kind, name).find(revision).files
        deep = self.query.get("recursive", ["false"])[0] in ("true", "True")
        listed = list_files(files, folder or "", deep=deep)
        if folder and not listed:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        return _json(listed)

    def paths_info(self, kind: str, name: str, revision: str) -> _Answer:
        files = self._repository(kind, name).find(revision).files
        if "json" in self.headers.get("Content-Type", ""):
            paths = json.loads(self.body)["paths"]
        else:
            paths = parse_qs(self.body.decode()).get("paths", [])
        entries = [describe_file(path, files[path]) for path in paths if path in files]
        inside = [p for p in paths if any(name.startswith(f"{p}/") for name in files)]
        return _json(entries + [describe_folder(path) for path in inside])

    def resolve(self, kind: str | None, name: str, revision: str, path: str) -> _Answer:
        found = self._repository(kind, name)
        file, commit = found.get(revision, path), found.find(revision)
        mark = file.sha256 if file.is_large else file.oid
        headers = {
            "X-Repo-Commit": commit.oid,
            "ETag": f'"{mark}"',
            "X-Linked-ETag": f'"{mark}"',
            "X-Linked-Size": str(len(file.content)),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if not (wanted := self.headers.get("Range")):
            return _Answer(200, file.content, headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        end = min(int(last or len(file.content)), len(file.content) - 1)
        headers["Content-Range"] = f"bytes {first}-{end}/{len(file.content)}"
        return _Answer(206, file.content[int(first) : end + 1], headers)

    # Pushing

    def preupload(self, kind: str, name: str) -> _Answer:
        found = self._repository(kind, name)
        self._require_write(name)
        asked = json.loads(self.body)
        return _json({"files": found.upload_modes(asked["files"], asked.get("gitIgnore", ""))})

    def batch(self, name: str) -> _Answer:
        found = self._repository("models", name)
        self._require_write(name)
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            href = f"{self.hub.url}/_objects/{name}/{wanted['oid']}/{wanted['size']}"
            actions = {key: {"href": href, "header": {}} for key in ("upload", "verify")}
            there = wanted["oid"] in found.objects
            objects.append(wanted | ({} if there else {"actions": actions}))
        return _json({"transfer": "basic", "objects": objects})

    def receive(self, name: str, sha256: str, size: str) -> _Answer:
        """The address itself is the permission, as in an object store."""
        self.hub.models[name].receive(sha256, int(size), self.body)
        return _json({})

    def verify(self, name: str, sha256: str, size: str) -> _Answer:
        self._require_write(name)
        if sha256 not in self.hub.models[name].objects:
            raise Refusal(404, "the large file has not come")
        return _json({})

    def commit(self, kind: str, name: str) -> _Answer:
        found = self._repository(kind, name)
        self._require_write(name)
        done = found.commit([json.loads(line) for line in self.body.splitlines() if line])
        url = f"{self.hub.url}/{name}/commit/{done.oid}"
        return _json({"success": True, "commitOid": done.oid, "commitUrl": url, "hookOutput": ""})

    def tag(self, kind: str, name: str, revision: str) -> _Answer:
        found = self._repository(kind, name)
        self._require_write(name)
        found.tags[json.loads(self.body)["tag"]] = found.find(revision).oid
        return _json({})


_API = r"/api/(?P<kind>models|datasets)/(?P<name>[\w.-]+/[\w.-]+)"
_OBJECT = r"/_objects/(?P<name>[\w.-]+/[\w.-]+)/(?P<sha256>\w{64})/(?P<size>\d+)"
_ROUTES: dict[str, Callable[..., _Answer]] = {
    r"GET /api/whoami-v2": _Handler.whoami,
    r"POST /api/repos/create": _Handler.create,
    r"DELETE /api/repos/delete": _Handler.delete,
    r"POST /api/validate-yaml": _Handler.validate,
    rf"GET {_API}": _Handler.info,
    rf"GET {_API}/revision/(?P<revision>[^/]+)": _Handler.info,
    rf"GET {_API}/refs": _Handler.refs,
    rf"GET {_API}/tree/(?P<revision>[^/]+)(/(?P<folder>.+))?": _Handler.tree,
    rf"POST {_API}/paths-info/(?P<revision>[^/]+)": _Handler.paths_info,
    rf"POST {_API}/preupload/main": _Handler.preupload,
    rf"POST {_API}/commit/main": _Handler.commit,
    rf"POST {_API}/tag/(?P<revision>[^/]+)": _Handler.tag,
    r"POST /(?P<name>[\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch": _Handler.batch,
    rf"PUT {_OBJECT}": _Handler.receive,
    rf"POST {_OBJECT}": _Handler.verify,
    r"(GET|HEAD) /(?P<kind>datasets/)?(?P<name>[\w.-]+/[\w.-]+)"
    r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)": _Handler.resolve,
}


def _take_fault(faults: list[Fault], line: str) -> Fault | None:
    """The fault that this request meets; faults count down."""
    for fault in faults:
        if fault.times and re.search(fault.pattern, line):
            if fault.skip:
                fault.skip -= 1
            else:
                fault.times -= 1
                return fault
    return None


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> _Answer:
    kind = {"Content-Type": "application/json"}
    return _Answer(status, json.dumps(content).encode(), kind | (headers or {}))
