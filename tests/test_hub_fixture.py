"""The loopback Hub refuses what the Hub refuses, so that a push that passes here has a meaning."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_fixture
import pytest
from hub_fixture import LIMITED, READER, WRITER, DataSet, Hub
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_session
from huggingface_hub.errors import (
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

NAME = "ayse/masal"
WEIGHTS = b"agirlik" * 100


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_fixture.serve({"biri/veri": DataSet("c" * 40, {"a/b.txt": b"veri"})}) as hub:
        yield hub


@pytest.fixture
def api(hub: Hub) -> HfApi:
    api = HfApi(endpoint=hub.url, token=WRITER)
    api.create_repo(NAME, private=True)
    return api


def add(name: str, content: bytes) -> CommitOperationAdd:
    return CommitOperationAdd(name, content)


def commit(api: HfApi, *operations: Any, **changes: Any) -> str:
    return str(api.create_commit(NAME, operations, commit_message="x", **changes).oid)


def status_of(hub: Hub, method: str, path: str, token: str = WRITER, **content: Any) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return get_session().request(method, hub.url + path, headers=headers, **content).status_code


def test_every_commit_keeps_its_files(api: HfApi, tmp_path: Path) -> None:
    first = commit(api, add("model.safetensors", WEIGHTS), add("a/config.json", b"{}"))
    api.create_tag(NAME, tag="v1")
    second = commit(api, add("a/config.json", b"[]"), CommitOperationDelete("model.safetensors"))
    third = commit(api, CommitOperationDelete("a/"))
    listed = {oid: set(api.list_repo_files(NAME, revision=oid)) for oid in (first, second, "v1")}
    assert listed["v1"] == listed[first] == {".gitattributes", "model.safetensors", "a/config.json"}
    assert listed[second] == {".gitattributes", "a/config.json"}
    assert api.list_repo_files(NAME) == [".gitattributes"]
    folder = api.snapshot_download(NAME, revision="v1", cache_dir=tmp_path)
    assert (Path(folder) / "model.safetensors").read_bytes() == WEIGHTS
    assert (Path(folder) / "a/config.json").read_bytes() == b"{}"
    refs = api.list_repo_refs(NAME)
    assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v1", first)]
    assert refs.branches[0].target_commit == third and api.model_info(NAME).private


def test_files_have_the_ids_of_git_and_of_large_files(api: HfApi) -> None:
    commit(api, add("a.safetensors", WEIGHTS), add("b.json", b"{}\n"))
    large, small = api.get_paths_info(NAME, ["a.safetensors", "b.json"])
    assert large.lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()  # type: ignore[union-attr]
    assert small.lfs is None  # type: ignore[union-attr]
    assert small.blob_id == "0967ef424bce6791893e9a57bb952f80fd536e93"  # type: ignore[union-attr]


def test_parts_of_files_are_served(hub: Hub, api: HfApi) -> None:
    commit(api, add("a.safetensors", WEIGHTS))
    url = f"{hub.url}/{NAME}/resolve/main/a.safetensors"
    headers = {"Authorization": f"Bearer {WRITER}", "Range": "bytes=3-8"}
    part = get_session().get(url, headers=headers)
    assert (part.status_code, part.content) == (206, WEIGHTS[3:9])
    assert part.headers["Content-Range"] == "bytes 3-8/700"
    assert get_session().head(url, headers=headers).content == b""


def test_a_large_file_must_be_the_one_announced(hub: Hub, api: HfApi) -> None:
    place = f"/_objects/{NAME}/{hashlib.sha256(WEIGHTS).hexdigest()}"
    assert status_of(hub, "PUT", f"{place}/700", content=WEIGHTS[1:] + b"x") == 400
    assert status_of(hub, "PUT", f"{place}/701", content=WEIGHTS) == 400
    assert status_of(hub, "POST", f"{place}/700") == 404
    assert status_of(hub, "PUT", f"{place}/700", "", content=WEIGHTS) == 200
    assert status_of(hub, "POST", f"{place}/700") == 200


def lines(*values: tuple[str, dict[str, Any]], parent: str | None = None) -> bytes:
    header = {"summary": "x"} | ({"parentCommit": parent} if parent else {})
    rows = [("header", header), *values]
    return b"".join(json.dumps({"key": k, "value": v}).encode() + b"\n" for k, v in rows)


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        (("lfsFile", {"path": "a.bin", "algo": "sha256", "oid": "0" * 64, "size": 1}), 400),
        (("file", {"path": "README.md", "content": "LS0tCmxpY2Vuc2U6IHgKLS0tCg=="}), 400),
        (("deletedFile", {"path": "not-there"}), 404),
        (("rename", {"path": "a"}), 400),
    ],
)
def test_a_commit_is_made_whole_or_not_at_all(
    hub: Hub, api: HfApi, operation: tuple[str, dict[str, Any]], status: int
) -> None:
    good = ("file", {"path": "a.json", "content": "e30="})
    body = lines(good, operation)
    assert status_of(hub, "POST", f"/api/models/{NAME}/commit/main", content=body) == status
    assert api.list_repo_files(NAME) == [".gitattributes"]


def test_a_token_inside_a_file_is_refused(api: HfApi) -> None:
    with pytest.raises(HfHubHTTPError, match="secrets"):
        commit(api, add("config.json", f'{{"token": "{WRITER}"}}'.encode()))


def test_a_commit_on_an_old_or_unknown_parent_is_refused(api: HfApi) -> None:
    old = api.model_info(NAME).sha
    commit(api, add("a.json", b"1"), parent_commit=old)
    for parent in (old, "0" * 40):
        with pytest.raises(HfHubHTTPError, match="A commit has happened since") as error:
            commit(api, add("a.json", b"2"), parent_commit=parent)
        assert error.value.response.status_code == 412


def test_tokens_and_their_rights(hub: Hub, api: HfApi) -> None:
    push = f"/api/models/{NAME}/commit/main"
    for token, status in (("", 401), ("hf_unknown", 404), (READER, 403), (LIMITED, 403)):
        assert status_of(hub, "POST", push, token, content=lines()) == status
    assert status_of(hub, "GET", f"/api/models/{NAME}", READER) == 200
    assert status_of(hub, "GET", f"/api/models/{NAME}", "") == 401
    assert status_of(hub, "GET", "/api/whoami-v2", "") == 401
    roles = [HfApi(hub.url, token=token).whoami() for token in (WRITER, READER, LIMITED)]
    assert [me["auth"]["accessToken"]["role"] for me in roles] == ["write", "read", "fineGrained"]
    with pytest.raises(HfHubHTTPError, match="rights"):
        api.create_repo("baskasi/masal")


def test_what_is_not_there_has_the_codes_of_the_hub(hub: Hub, api: HfApi) -> None:
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("ayse/yok")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(NAME, revision="0" * 40)
    with pytest.raises(RemoteEntryNotFoundError):
        api.hf_hub_download(NAME, "yok.json", force_download=True)
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(NAME, "yok"))
    with pytest.raises(HfHubHTTPError) as error:
        api.create_repo(NAME)
    assert error.value.response.status_code == 409
    assert str(api.create_repo(NAME, exist_ok=True)) == f"{hub.url}/{NAME}"
    api.delete_repo(NAME)
    with pytest.raises(RepositoryNotFoundError):
        api.delete_repo(NAME)


def test_data_sets_are_read_only_and_public(hub: Hub) -> None:
    api = HfApi(hub.url, token=False)
    assert api.list_repo_files("biri/veri", repo_type="dataset") == ["a/b.txt"]
    assert api.dataset_info("biri/veri").sha == "c" * 40
    assert status_of(hub, "POST", "/api/datasets/biri/veri/commit/main", content=lines()) == 403
    assert [request.token for request in hub.requests] == ["", "", WRITER]
