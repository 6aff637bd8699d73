"""Pushing to a Hub on loopback with the real client: what goes, what is refused, and what happens
when requests fail. Loading back with transformers is in test_publish.py."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_fixture
import pytest
from hub_fixture import LIMITED, READER, WRITER, Fault, Hub
from hub_repositories import File as StoredFile
from huggingface_hub import HfApi, hf_hub_download

from sifirdan import runs
from sifirdan.errors import ConfigError, DataError
from sifirdan.export import hub as pushing
from sifirdan.export.hub_card import LICENSES, card_problems
from sifirdan.export.hub_files import Change, check_files, left_out, list_files

REPOSITORY = "ayse/masal"
CARD = "---\nlicense: other\nlicense_name: see-training-data\nlanguage: tr\n---\n\n# Masal\n"
FILES = {
    "README.md": CARD,
    "config.json": '{"model_type": "llama"}\n',
    "model.safetensors": "ağırlıklar " * 1000,
    "tokenizer.model": "parçalar " * 100,
    "tokenizer.json": '{"model": "ığdır"}\n',
}
OWN = {*FILES, "manifest.json"}
AGAIN = (0.0, 0.0, 0.0)  # waits
UNUSUAL = 520  # a status that the client's own backoff, which waits seconds, passes on


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_fixture.serve() as hub:
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "model", FILES)


def make_folder(path: Path, files: dict[str, str], kind: str = "model") -> Path:
    with runs.new_folder(path, kind=kind, inputs={}, params={}) as output:
        for name, text in files.items():
            (output.path / name).write_text(text, encoding="utf-8")
    return path


def push(hub: Hub, folder: Path, *, token: str = WRITER, **changes: Any) -> pushing.Published:
    files = list_files(folder, runs.read_manifest(folder))
    check_files(folder, files, made_by="train")
    api = HfApi(endpoint=hub.url, token=token)
    settings = {"repository": REPOSITORY, "private": True, "message": "deneme", "waits": AGAIN}
    return pushing.push(api, files=files, **(settings | changes))  # type: ignore[arg-type]


def on_hub(hub: Hub, name: str = REPOSITORY) -> dict[str, bytes]:
    files = hub.models[name].head.files
    return {name: file.content for name, file in files.items() if name != ".gitattributes"}


def on_disk(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OWN}


def commits(hub: Hub) -> int:
    """How many there are beside the first, which the Hub makes itself."""
    return len(hub.models[REPOSITORY].commits) - 1


# What goes


def test_H_01_only_files_of_the_list_go(hub: Hub, tmp_path: Path) -> None:
    made = FILES | {"samples.jsonl": '{"text": "derlemden"}', "optimizer.pt": "x"}
    folder = make_folder(tmp_path / "model", made)
    (folder / ".env").write_text(f"HF_TOKEN={WRITER}")
    (folder / "training_args.json").write_text("{}")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/config.json").write_text("{}")
    done = push(hub, folder)
    assert on_hub(hub) == on_disk(folder)
    assert set(done.files.sent) == OWN and done.files.deleted == ()
    files = list_files(folder, runs.read_manifest(folder))
    extra = [".env", "checkpoints/", "optimizer.pt", "samples.jsonl", "training_args.json"]
    assert left_out(folder, files) == extra


def test_parts_of_a_large_model_go_and_their_kind_in_a_folder_does_not(tmp_path: Path) -> None:
    parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    parts.append("model.safetensors.index.json")
    others = ["model-best.safetensors", "adapter.safetensors", "config.json.bak", "xconfig.json"]
    others += ["model-1evil-of-2x.safetensors"]
    (tmp_path / "model/sub").mkdir(parents=True)
    folder = make_folder(tmp_path / "model", dict.fromkeys(parts + others, "x"))
    going = [file.name for file in list_files(folder, runs.read_manifest(folder))]
    assert going == ["manifest.json", *parts]


@pytest.mark.parametrize("name", ["README.md", "config.json", "tokenizer.json"])
def test_H_01_a_file_that_holds_a_token_is_refused(hub: Hub, tmp_path: Path, name: str) -> None:
    spoilt = FILES | {name: FILES[name] + f"\n{WRITER}\n"}
    with pytest.raises(DataError, match=f"{name}: holds what looks like a token") as error:
        push(hub, make_folder(tmp_path / "model", spoilt))
    assert WRITER not in str(error.value) and "withdraw" in str(error.value)
    assert hub.requests == []


def test_H_01_repositories_are_private_and_a_public_one_is_refused(hub: Hub, folder: Path) -> None:
    push(hub, folder)
    assert hub.models[REPOSITORY].is_private
    hub.models[REPOSITORY].is_private = False
    before = commits(hub)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="is public, and publish.private is true") as error:
        push(hub, make_folder(folder, FILES | {"config.json": "{}"}))
    assert "settings page" in str(error.value) and "private to false" in str(error.value)
    assert commits(hub) == before


def test_a_new_repository_can_be_public_and_a_private_one_stays_so(
    hub: Hub, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    push(hub, folder, private=False)
    assert not hub.models[REPOSITORY].is_private and not caplog.records
    hub.models[REPOSITORY].is_private = True
    push(hub, folder, private=False)
    assert hub.models[REPOSITORY].is_private and "stays private" in caplog.text


@pytest.mark.parametrize("change", ["missing", "damaged"])
def test_a_folder_that_differs_from_its_manifest_is_refused(
    hub: Hub, folder: Path, change: str
) -> None:
    (folder / "config.json").unlink() if change == "missing" else (
        folder / "config.json"
    ).write_text(FILES["config.json"].replace("llama", "lamba"))
    with pytest.raises(DataError, match=rf"config.json: is {change}(.|\n)*dvc repro -f -s train"):
        push(hub, folder)
    assert hub.requests == []


def test_H_01_a_token_in_the_header_of_weights_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", FILES)
    header = f'{{"__metadata__": {{"note": "{WRITER}"}}}}'.encode()
    weights = len(header).to_bytes(8, "little") + header + b"\0" * 1000
    with runs.new_folder(folder, kind="model", inputs={}, params={}) as output:
        (output.path / "README.md").write_text(CARD)
        (output.path / "model.safetensors").write_bytes(weights)
    with pytest.raises(DataError, match="model.safetensors: holds what looks like a token"):
        push(hub, folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "README.md"])
def test_a_file_that_changes_behind_the_check_never_goes(hub: Hub, folder: Path, name: str) -> None:
    """Say, a `dvc repro` in another terminal."""
    push(hub, folder)
    make_folder(
        folder, {n: f"{text}yeni " for n, text in FILES.items()} | {"README.md": CARD + "yeni"}
    )
    before, there = commits(hub), on_hub(hub)

    def meanwhile() -> None:
        (folder / name).write_text("GIZLI " * 5000)

    hub.faults.append(Fault("POST /api/repos/create", meanwhile=meanwhile))
    with pytest.raises(DataError, match=f"{name}: has changed while it was being published"):
        push(hub, folder)
    assert commits(hub) == before and on_hub(hub) == there


def test_an_answer_without_a_verdict_on_the_page_is_no_approval(hub: Hub, folder: Path) -> None:
    hub.faults.append(Fault("validate-yaml", status=400, times=9))
    with pytest.raises(DataError, match="the check of the page"):
        push(hub, folder)
    assert not hub.models


def test_a_folder_without_a_page_is_refused(tmp_path: Path) -> None:
    model = make_folder(tmp_path / "model", {"config.json": "{}"})
    with pytest.raises(DataError, match=r"there is no README.md(.|\n)*dvc repro -f -s train"):
        check_files(model, list_files(model, runs.read_manifest(model)), made_by="train")


def test_names_of_repositories() -> None:
    good = ["ayse/masal", "ayse_1/Masal-1.5", "a/b", f"a/{'x' * 96}"]
    bad = ["masal", "a/b/c", "/b", "a/", "ayşe/masal", "a/-b", "a/b.", "a/b--c", "a/b..c"]
    bad += ["a/b.git", "a b/c", f"a/{'x' * 97}", "https://huggingface.co/a/b"]
    assert [pushing.is_repository(name) for name in good + bad] == [True] * 4 + [False] * len(bad)


# The page


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("language: Turkish\n", "language is 'Turkish'"),
        ("language: [tr, en-GB]\n", "language[1] is 'en-GB'"),
        ("language: [no]\n", "language[0] is False, not text (write it in quotes)"),
        ("datasets: null\n", "datasets is null"),
        ("datasets: [a/b, null]\n", "datasets[1] is null"),
        ("tags:\n- a\n-\n", "tags[1] is null"),
        ("tags: [2026]\n", "tags[0] is 2026, not text"),
        ("license: Apache 2.0\n", "license is 'Apache 2.0'"),
        ("license: GPL-3.0\n", "license is 'GPL-3.0'"),
        ("license: other\n", "license_name does not say which"),
        ("license: [other]\n", "license_name does not say which"),
        ("license: other\nlicense_name: My License\n", "license_name is 'My License'"),
        ("license:\n", "license is null"),
        ("library_name: [\n", "not valid YAML"),
        ("- a\n", "holds list, not keys"),
        ("", "holds NoneType"),
    ],
)
def test_H_02_a_bad_header_is_refused_before_anything_is_sent(
    hub: Hub, tmp_path: Path, header: str, said: str
) -> None:
    keys = header if "license" in header or header in ("", "- a\n") else f"license: mit\n{header}"
    folder = make_folder(tmp_path / "model", FILES | {"README.md": f"---\n{keys}---\n# x\n"})
    with pytest.raises(DataError) as error:
        push(hub, folder)
    message = str(error.value)
    assert f"{folder}/README.md: " in message and said in message and "what to do:" in message
    assert hub.requests == []


def test_H_02_every_fault_of_a_header_is_named() -> None:
    text = "---\nlanguage: Turkish\nlicense: apache\ndatasets:\n---\n"
    assert [line.split(" is ")[0] for line in card_problems(text)] == ["language", "license", "datasets"]  # fmt: skip
    assert card_problems("# Masal\n") == card_problems("---\nlicense: mit\n# Masal\n")
    assert "license is missing" in card_problems("---\nlanguage: tr\n---\n")[0]
    assert "license is missing" in card_problems("---\nlicense: []\n---\n")[0]
    assert "does not say which" in card_problems("---\nlicense: [other, mit]\n---\n")[0]
    assert "not valid YAML" in card_problems("---\nlicense: mit\ndate: 2024-99-99\n---\n")[0]
    for text in (CARD, CARD.replace("\n", "\r\n"), "---\nlicense: mit\ntags: []\n---\n"):
        assert card_problems(text) == []
    assert {"mit", "gpl-3.0", "other", "openrail++"} < LICENSES and len(LICENSES) > 70


def test_H_02_the_hub_is_asked_about_the_header_before_anything_is_sent(
    hub: Hub, tmp_path: Path
) -> None:
    page = "---\nlicense: mit\nbase_model: not a model\n---\n"  # only the Hub knows this rule
    folder = make_folder(tmp_path / "model", FILES | {"README.md": page})
    with pytest.raises(DataError, match="the Hub refuses its header") as error:
        push(hub, folder)
    assert '"base_model" with value "not a model" is not valid' in str(error.value)
    assert hub.asked == ["POST /api/validate-yaml"]


# One commit, or none


def test_H_03_an_unchanged_folder_makes_no_commit(hub: Hub, folder: Path) -> None:
    first = push(hub, folder)
    sent = hub.count("^PUT")
    again = push(hub, folder)
    assert first.files == Change(tuple(sorted(OWN)), (), ())
    assert again.files == Change((), tuple(sorted(OWN)), ())
    assert again.revision == first.revision == hub.models[REPOSITORY].head.oid
    assert again.url == f"{hub.url}/{REPOSITORY}/tree/{first.revision}"
    assert commits(hub) == 1 and hub.count("^PUT") == sent == 2


def test_H_03_only_changes_go_and_what_others_put_there_stays(
    hub: Hub, folder: Path, tmp_path: Path
) -> None:
    push(hub, make_folder(tmp_path / "old", FILES | {"chat_template.jinja": "x"}))
    theirs = {"photo.png": b"1", "onnx/config.json": b"2", "notes.md": b"3"}
    repository = hub.models[REPOSITORY]
    more = {name: StoredFile(content, False) for name, content in theirs.items()}
    repository.add(repository.head.files | more, "by hand")
    changed = FILES | {"tokenizer.model": "başka parçalar"}
    done = push(hub, make_folder(folder, changed))
    assert done.files.sent == ("manifest.json", "tokenizer.model")
    assert done.files.deleted == ("chat_template.jinja",)
    assert on_hub(hub) == on_disk(folder) | theirs
    assert commits(hub) == 3 and hub.count("^PUT") == 3


def test_H_03_a_revision_keeps_its_content(hub: Hub, folder: Path, tmp_path: Path) -> None:
    first, before = push(hub, folder), on_disk(folder)
    second = push(hub, make_folder(folder, FILES | {"model.safetensors": "yeni"}))
    assert first.revision != second.revision
    for done, content in ((first, before), (second, on_disk(folder))):
        for name in OWN:
            path = hf_hub_download(
                REPOSITORY, name, revision=done.revision, endpoint=hub.url, token=WRITER,
                cache_dir=tmp_path / "cache",
            )  # fmt: skip
            assert Path(path).read_bytes() == content[name]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("^PUT", status=UNUSUAL, skip=1, times=3),
        Fault("^PUT", status=503),  # here the client itself waits a second
        Fault("^PUT", drop="before"),
        Fault("^PUT", drop="after"),
        Fault("/batch$", status=UNUSUAL, times=2),
        Fault("/preupload/", status=UNUSUAL, times=2),
        Fault("/commit/", status=500),
        Fault("/commit/", status=429, times=3),
        Fault("/commit/", drop="before", times=2),
        Fault("/api/validate-yaml", status=503),
        Fault("/api/repos/create", drop="before"),
        Fault("/api/repos/create", drop="after"),
        Fault("GET /api/models", status=504, times=3),
        Fault("/tree/", drop="before", skip=1),
    ],
    ids=lambda fault: f"{fault.pattern}-{fault.drop or fault.status}",
)
def test_H_03_a_failure_that_passes_is_survived(hub: Hub, folder: Path, fault: Fault) -> None:
    hub.faults.append(fault)
    done = push(hub, folder)
    assert fault.times == 0 and commits(hub) == 1
    assert on_hub(hub) == on_disk(folder) and done.revision == hub.models[REPOSITORY].head.oid


def test_H_03_what_the_hub_has_is_not_sent_again(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = {f"model-0000{n}-of-00003.safetensors": f"parça {n} " * 500 for n in (1, 2, 3)}
    folder = make_folder(tmp_path / "model", {"README.md": CARD} | parts)
    fault = Fault("^PUT", status=UNUSUAL, skip=2, times=4)  # the third file, at every try
    hub.faults.append(fault)
    with pytest.raises(DataError, match="sending model-00003-of-00003") as error:
        push(hub, folder)
    assert "what the Hub has is not sent twice" in str(error.value) and fault.times == 0
    assert commits(hub) == 0 and on_hub(hub) == {}
    assert hub.count("^PUT") == 6 and caplog.text.count("again in 0 s") == 3
    done = push(hub, folder)
    assert hub.count("^PUT") == 7 and commits(hub) == 1
    assert set(on_hub(hub)) == set(done.files.sent) == {*parts, "README.md", "manifest.json"}


def test_H_03_a_commit_whose_answer_is_lost_is_not_made_twice(hub: Hub, folder: Path) -> None:
    hub.faults.append(Fault("/commit/", drop="after"))
    done = push(hub, folder)
    assert commits(hub) == 1 and hub.count("/commit/") == 1
    assert done.revision == hub.models[REPOSITORY].head.oid and set(done.files.sent) == OWN


def test_H_03_somebody_elses_commit_in_between_is_kept(hub: Hub, folder: Path) -> None:
    push(hub, folder)
    repository = hub.models[REPOSITORY]
    theirs = {
        "config.json": StoredFile(b"{}", False),
        "notes.md": StoredFile(b"not", False),
    }
    hub.faults.append(
        Fault("/commit/", meanwhile=lambda: repository.add(repository.head.files | theirs, "theirs"))
    )  # fmt: skip
    done = push(hub, make_folder(folder, FILES | {"tokenizer.json": "{}"}))
    assert on_hub(hub) == on_disk(folder) | {"notes.md": b"not"}
    assert done.files.sent == ("config.json", "manifest.json", "tokenizer.json")
    assert [commit.title for commit in repository.commits[1:]] == ["deneme", "theirs", "deneme"]


def test_H_03_a_head_that_never_rests_is_given_up(hub: Hub, folder: Path) -> None:
    push(hub, folder)
    repository = hub.models[REPOSITORY]
    stir = lambda: repository.add(repository.head.files, f"n{len(repository.commits)}")  # noqa: E731
    hub.faults.append(Fault("/commit/", meanwhile=stir, times=9))
    with pytest.raises(DataError, match=r"the commit to ayse/masal(.|\n)*commit has happened"):
        push(hub, make_folder(folder, FILES | {"tokenizer.json": "{}"}))
    assert hub.count("/commit/") == 1 + 1 + len(AGAIN)


def test_H_03_a_commit_that_left_files_out_is_no_success(hub: Hub, folder: Path) -> None:
    push(hub, folder)
    repository = hub.models[REPOSITORY]
    ignore = {".gitignore": StoredFile(b"*.model\n", False)}
    repository.add(repository.head.files | ignore, "by hand")
    with pytest.raises(DataError, match=r"does not hold tokenizer.model(.|\n)*\.gitignore"):
        push(hub, make_folder(folder, FILES | {"tokenizer.model": "başka"}))


def test_another_refusal_fails_at_once_in_plain_words(hub: Hub, folder: Path) -> None:
    hub.faults.append(Fault("/preupload/", status=422))
    with pytest.raises(DataError, match=r"sending README.md: (.|\n)*ordered") as error:
        push(hub, folder)
    assert hub.count("/preupload/") == 1 and len(str(error.value).splitlines()) == 2


def test_a_hub_that_is_not_there_is_reported(folder: Path) -> None:
    with hub_fixture.serve() as gone:
        pass
    with pytest.raises(DataError, match="the check of the page") as error:
        push(gone, folder)
    assert "look at the network, then run it again" in str(error.value)


# Who may push


@pytest.fixture
def connect(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`hub.connect` with a token in the environment, at this Hub."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", hub.url)

    def with_token(token: str | None) -> Any:
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        return pushing.connect(waits=AGAIN)

    return with_token


def test_H_04_a_token_that_may_write_is_taken_from_the_environment(
    hub: Hub, folder: Path, connect: Any
) -> None:
    files = list_files(folder, runs.read_manifest(folder))
    pushing.push(connect(WRITER), REPOSITORY, files, private=True, message="x", waits=AGAIN)
    assert on_hub(hub) == on_disk(folder)
    carried = {request.token for request in hub.requests if "/_objects/" not in request.line}
    assert carried - {""} == {WRITER}


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "there is no token for the Hugging Face Hub"),
        (READER, "the token of ayse may only read"),
        ("hf_" + "x" * 34, "asking the Hub whose token this is"),
    ],
)
def test_H_04_no_token_and_tokens_without_right_are_refused_with_instructions(
    hub: Hub, connect: Any, token: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        connect(token)
    assert "hf auth login" in str(error.value) and "HF_TOKEN" in str(error.value)
    assert token is None or token not in str(error.value)
    assert set(hub.asked) <= {"GET /api/whoami-v2"}


@pytest.mark.parametrize(
    ("token", "repository"), [(LIMITED, REPOSITORY), (WRITER, "baskasi/masal")]
)
def test_H_04_a_right_that_is_missing_is_named_before_anything_is_sent(
    hub: Hub, folder: Path, token: str, repository: str
) -> None:
    with pytest.raises(ConfigError, match=f"opening {repository}") as error:
        push(hub, folder, token=token, repository=repository)
    message = str(error.value)
    assert "rights to write here" in message and "write access" in message
    assert token not in message and hub.count("^PUT|/preupload/|/commit/") == 0


def test_H_04_a_right_that_is_missing_for_the_commit_alone_is_named(hub: Hub, folder: Path) -> None:
    hub.faults.append(Fault("/commit/", status=403))
    with pytest.raises(ConfigError, match="a token that may write to the repository"):
        push(hub, folder)


def test_H_04_a_client_that_was_told_to_stay_offline_says_so(
    folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import close_session

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    close_session()
    with pytest.raises(ConfigError, match=r"HF_HUB_OFFLINE is set(.|\n)*null"):
        push(hub, folder)
    assert hub.requests == []


def test_H_01_no_message_repeats_a_token(
    hub: Hub, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = ValueError(f"a server that repeats {WRITER}\nin its answer")
    assert pushing._text(error) == "a server that repeats hf_*** in its answer"
    hub.faults.append(Fault("^PUT", status=UNUSUAL))
    push(hub, folder)
    assert WRITER not in caplog.text
