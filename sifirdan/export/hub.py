"""Push a finished folder to a repository of the Hugging Face Hub: all of it in one commit, or nothing.

Beside corpus/sources.py and corpus/files.py the only file that talks to the network; the address and
the token are those of huggingface_hub itself (HF_ENDPOINT; HF_TOKEN or `hf auth login`). Not for
making folders or pages.

What goes is decided in hub_files.py. The large files are sent first, each as often as it takes: the
Hub keeps what it has, so nothing is sent twice, also not by the next run. Then one commit follows, on
top of the head that was compared with. Where its answer is lost or somebody else was faster, the new
head is compared again; what stands there already is no second commit. The revision returned was read
back and holds exactly the files of the folder.
"""

import logging
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from sifirdan.errors import ConfigError, DataError, SifirdanError
from sifirdan.export.hub_card import CARD_FILE
from sifirdan.export.hub_files import TOKEN, Change, File, changed, compare, is_weights, read_whole

T = TypeVar("T")

WAITS = (1.0, 5.0, 20.0, 60.0)  # seconds before each further try
LOGIN = (
    "make a token with write access at https://huggingface.co/settings/tokens, then run "
    "`hf auth login`, or set HF_TOKEN"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """Where a folder stands on the Hub, and what it took."""

    repository: str
    revision: str  # of the commit that holds the files: load by it, and nothing can change
    url: str
    files: Change


@dataclass(frozen=True)
class _Head:
    revision: str
    hashes: dict[str, str]  # name -> the Hub's hash, of all files that could be ours


def is_repository(name: str) -> bool:
    """Whether the Hub can have a repository of that name.

    >>> is_repository("ayşe/model"), is_repository("ayse/model-1.5"), is_repository("model")
    (False, True, False)
    """
    parts = name.split("/")
    return (
        len(parts) == 2
        and parts[0] not in ("datasets", "models", "spaces")
        and all(
            re.fullmatch(r"\w([\w.-]{0,94}\w)?", part, re.ASCII)
            and not re.search(r"--|\.\.|\.git$", part)
            for part in parts
        )
    )


def connect(waits: Sequence[float] = WAITS) -> Any:
    """A client (`HfApi`) whose token may write, as far as the Hub says so beforehand."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    token = get_token()
    if token is None:
        raise ConfigError("there is no token for the Hugging Face Hub", todo=LOGIN)
    api = HfApi(token=token)  # handed over: a setting of the user's may keep it from being implied
    me = _ask(api.whoami, "asking the Hub whose token this is", waits)
    if me.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ConfigError(
            f"the token of {me['name']} may only read", expected="one that may write", todo=LOGIN
        )
    return api


def push(
    api: Any,
    repository: str,
    files: Sequence[File],
    *,
    private: bool,
    message: str,
    waits: Sequence[float] = WAITS,
) -> Published:
    """Make the repository hold exactly `files` among the allowed names, and leave all others
    alone. The files are those of `check_files`."""
    _check_page_on_hub(api, files, waits)
    _open_repository(api, repository, private, waits)
    tried: Change | None = None
    for wait in (*waits, None):
        head = _look(api, repository, None, waits)
        change = compare(files, head.hashes)
        if not change.sent and not change.deleted:  # the same, or a commit whose answer was lost
            return _published(api, repository, head.revision, tried or change)
        tried = change
        additions = _upload(api, repository, [f for f in files if f.name in change.sent], waits)
        try:
            revision = _commit(api, repository, additions, change, head.revision, message)
        except _errors() as error:
            if wait is None or not (_is_transient(error) or _status(error) in (409, 412)):
                raise _explain(error, f"the commit to {repository}") from None
            _log.warning("hub: no commit yet (%s); looking again in %.0f s", _text(error), wait)
            time.sleep(wait)
            continue
        taken = compare(files, _look(api, repository, revision, waits).hashes)
        if missing := [*taken.sent, *taken.deleted]:
            raise DataError(
                f"{repository}: the commit {revision} does not hold {', '.join(missing)}",
                expected="every file that was sent",
                todo="look for a .gitignore in the repository that keeps such files out",
            )
        return _published(api, repository, revision, change)
    raise AssertionError("the last try returns or raises")


def _check_page_on_hub(api: Any, files: Sequence[File], waits: Sequence[float]) -> None:
    """The Hub's own check of the page's header, which may know more than ours."""
    from huggingface_hub import get_session

    (page,) = [file for file in files if file.name == CARD_FILE]
    question = {
        "content": read_whole(page).decode("utf-8", errors="replace"),
        "repoType": "model",
    }

    def ask() -> list[str]:
        response = get_session().post(f"{api.endpoint}/api/validate-yaml", json=question)
        errors = response.json().get("errors") if response.status_code in (200, 400) else None
        if errors is None:
            response.raise_for_status()
        return [str(error.get("message")) for error in errors or []]

    if problems := _ask(ask, "the check of the page", waits):
        raise DataError(
            f"{page.name}: the Hub refuses its header: " + "\n  ".join(problems),
            todo="mend the header where the page is made, then make the folder anew",
        )


def _open_repository(api: Any, repository: str, private: bool, waits: Sequence[float]) -> None:
    """Make the repository if it is not there, and see that its visibility is the one wanted."""
    doing = f"opening {repository}"
    _ask(lambda: api.create_repo(repository, private=private, exist_ok=True), doing, waits)
    is_private = _ask(lambda: api.model_info(repository), doing, waits).private
    if private and not is_private:
        raise ConfigError(
            f"{api.endpoint}/{repository} is public, and publish.private is true",
            expected="a private repository",
            todo="make it private on its settings page, or set publish.private to false",
        )
    if is_private and not private:
        _log.warning("hub: %s stays private; its settings page on the Hub changes that", repository)


def _look(api: Any, repository: str, revision: str | None, waits: Sequence[float]) -> _Head:
    """A commit, the newest by default, and the hashes of the files at its top."""

    def ask() -> _Head:
        commit = revision or api.model_info(repository).sha
        hashes = {
            entry.path: entry.lfs.sha256 if entry.lfs else entry.blob_id
            for entry in api.list_repo_tree(repository, revision=commit)
            if hasattr(entry, "blob_id")  # not a folder
        }
        return _Head(commit, hashes)

    return _ask(ask, f"looking at {repository}", waits)


def _upload(api: Any, repository: str, files: list[File], waits: Sequence[float]) -> list[Any]:
    """Send the large files, one after the other; small ones travel inside the commit."""
    from huggingface_hub import CommitOperationAdd

    additions = []
    for file in files:
        # Small files are sent from memory, as they were checked; weights are hashed once more here, and
        # the Hub refuses what does not have that hash.
        content = file.path if is_weights(file.name) else read_whole(file)
        addition = CommitOperationAdd(file.name, content)
        if addition.upload_info.sha256.hex() != file.sha256:
            raise changed(file)
        send = partial(api.preupload_lfs_files, repository, [addition], free_memory=False)
        _log.info("hub: sending %s bytes=%d", file.name, file.num_bytes)
        _ask(send, f"sending {file.name}", waits)
        additions.append(addition)
    return additions


def _commit(
    api: Any, repository: str, additions: list[Any], change: Change, parent: str, message: str
) -> str:
    from huggingface_hub import CommitOperationDelete

    deletions = [CommitOperationDelete(name, is_folder=False) for name in change.deleted]
    done = api.create_commit(
        repository, [*additions, *deletions], commit_message=message, parent_commit=parent
    )
    return str(done.oid)


def _published(api: Any, repository: str, revision: str, change: Change) -> Published:
    url = f"{api.endpoint}/{repository}/tree/{revision}"
    return Published(repository, revision, url, change)


# Failures


def _ask(question: Callable[[], T], doing: str, waits: Sequence[float]) -> T:
    """The answer, asked for again after each of `waits` where the failure may pass."""
    for wait in (*waits, None):
        try:
            return question()
        except _errors() as error:
            if wait is None or not _is_transient(error):
                raise _explain(error, doing) from None
            _log.warning("hub: %s failed (%s); again in %.0f s", doing, _text(error), wait)
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _errors() -> tuple[type[Exception], ...]:
    """Everything that the client raises: its own errors are HTTPErrors, those of the disk and of
    xet OSErrors, odd answers ValueErrors, and a failed upload is wrapped in a RuntimeError."""
    from huggingface_hub import errors

    # HTTPError is that of httpx or httpx2, whichever the installed release uses; XetError is of 1.x.
    of_xet = getattr(errors, "XetError", OSError)
    return (errors.HTTPError, OSError, ValueError, RuntimeError, of_xet)  # type: ignore[attr-defined]


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error


def _status(error: BaseException) -> int | None:
    """The status of the HTTP answer behind an error, if there was one."""
    response = getattr(_cause(error), "response", None)
    return None if response is None else int(response.status_code)


def _is_transient(error: BaseException) -> bool:
    """Whether the same request may well succeed later: 5xx, too many requests, no connection."""
    from huggingface_hub import errors

    cause, status = _cause(error), _status(error)
    if status is not None:
        return status >= 500 or status in (408, 429)
    if isinstance(cause, errors.OfflineModeIsEnabled):
        return False
    # A RuntimeError without a cause is of xet, which says no more about what went wrong.
    kinds = (errors.HTTPError, ConnectionError, TimeoutError, RuntimeError)  # type: ignore[attr-defined]
    return isinstance(cause, kinds)


def _explain(error: BaseException, doing: str) -> SifirdanError:
    from huggingface_hub import errors

    found = f"{doing}: {_text(error)}"
    if isinstance(_cause(error), errors.OfflineModeIsEnabled):
        return ConfigError(
            f"{doing}: HF_HUB_OFFLINE is set",
            todo="unset it to publish, or set the repository in `publish` to null",
        )
    if _status(error) == 401:
        return ConfigError(found, expected="a token that the Hub knows", todo=LOGIN)
    if _status(error) == 403:
        return ConfigError(
            found, expected="a token that may write to the repository",
            todo=f"give it write access to that owner's repositories, or {LOGIN}",
        )  # fmt: skip
    if _is_transient(error):
        return DataError(
            found, todo="look at the network, then run it again: what the Hub has is not sent twice"
        )
    return DataError(found, todo="mend what the Hub complains about, then run it again")


def _text(error: BaseException) -> str:
    """An error in one line, in the Hub's own words where it has some, without anything that looks
    like a token."""
    cause, status = _cause(error), _status(error)
    said = str(getattr(cause, "server_message", None) or cause) or type(cause).__name__
    line = (f"the Hub answered {status}: " if status else "") + " ".join(said.split())
    return TOKEN.sub(b"hf_***", line.encode()).decode()
