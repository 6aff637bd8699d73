"""The stage `publish`, from its parameters to a model that transformers loads from the Hub; then
through DVC, which must push anew rather than bring back an old receipt."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hub_fixture
import psutil
import pytest
import tiny
import torch
import yaml
from conftest import tiny_model
from hub_fixture import WRITER, Hub
from hub_repositories import File as StoredFile

from sifirdan import chat, runs
from sifirdan.config import load_params
from sifirdan.errors import ConfigError, DataError, run_command
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.tokenizer_files import save_hugging_face, save_readable
from sifirdan.training.session import save_trained
from stages import publish

ROOT = Path(__file__).parents[1]
CARD = "---\nlibrary_name: transformers\nlicense: mit\n---\n\n# Masal\n"
TEXT = "Iğdır'da bir gün, ağaçların altında İstanbul'u konuştuk."
NAMES = ("base", "chat", "tokenizer")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_fixture.serve() as hub:
        yield hub


@pytest.fixture
def project(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A project folder whose three models are made, and params.yaml of the preset tiny."""
    project = tmp_path / "ığdır projesi"
    make_tokenizer(project / "models/tokenizer", tokenizer)
    for number, name in enumerate(("base", "chat")):
        make_model(project / "models" / name, tokenizer, scale=1.0 + number)
    params = (ROOT / "presets/tiny.yaml").read_text(encoding="utf-8")
    (project / "params.yaml").write_text(params, encoding="utf-8")
    return project


def make_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    corpus = runs.Manifest("corpus", {}, {}, {}, {}, {}, sha256="a" * 64)
    with runs.new_folder(folder, kind="tokenizer", inputs={"corpus": corpus}, params={}) as output:
        (output.path / MODEL_FILE).write_bytes(tokenizer.proto.SerializeToString())
        save_readable(output.path, tokenizer)
        save_hugging_face(output.path, tokenizer, chat.TEMPLATE)
        runs.write_text(output.path / "README.md", CARD)


def make_model(folder: Path, tokenizer: Tokenizer, scale: float = 1.0, card: str = CARD) -> None:
    model = tiny_model(tokenizer.vocab_size)
    for parameter in model.parameters():
        parameter.data *= scale
    with runs.new_folder(folder, kind="model", inputs={}, params={}) as output:
        save_trained(output.path, model, tokenizer)
        runs.write_text(output.path / "README.md", card)


def params(**changes: Any) -> publish.Params:
    return publish.Params(**(dict.fromkeys(NAMES) | {"private": True} | changes))


def receipt_in(project: Path, name: str) -> Any:
    path = project / "reports/publish" / name / "receipt.json"
    return json.loads(path.read_text(encoding="utf-8"))


def run_stage(project: Path, name: str, params: publish.Params) -> Any:
    folder, out = project / "models" / name, project / "reports/publish" / name
    return publish.publish(name, folder, out, params)


@pytest.fixture
def logged_in(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """This process pushes to the Hub of the test, without waiting between tries."""
    monkeypatch.setenv("HF_TOKEN", WRITER)
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", hub.url)
    return hub


# The stage


@pytest.mark.parametrize("name", NAMES)
def test_H_04_without_a_name_nothing_is_sent_and_the_receipt_says_so(
    project: Path, logged_in: Hub, name: str
) -> None:
    metrics = run_stage(project, name, params())
    why = f"no repository named: publish.{name} is null"
    assert receipt_in(project, name) == {"pushed": False, "why": why}
    manifest = runs.open_folder(project / "reports/publish" / name, "receipt", made_by="publish")
    assert manifest.inputs == {name: runs.read_manifest(project / "models" / name).sha256}
    assert metrics["files"] == (7 if name == "tokenizer" else 10)
    assert logged_in.requests == []


@pytest.mark.parametrize("name", NAMES)
def test_a_receipt_says_where_the_folder_is(project: Path, logged_in: Hub, name: str) -> None:
    unnamed = run_stage(project, name, params())
    metrics = run_stage(project, name, params(**{name: "ayse/masal"}))
    assert metrics == unnamed  # they describe the folder, whatever the Hub did
    receipt = receipt_in(project, name)
    head = logged_in.models["ayse/masal"].head
    assert (receipt["pushed"], receipt["repository"]) == (True, "ayse/masal")
    assert receipt["revision"] == head.oid and receipt["url"].endswith(f"/tree/{head.oid}")
    assert len(receipt["files"]["sent"]) == metrics["files"]
    sizes = [len(f.content) for n, f in head.files.items() if n != ".gitattributes"]
    assert sum(sizes) == metrics["bytes"]
    assert runs.read_manifest(project / "models" / name).sha256[:12] in head.title
    run_stage(project, name, params(**{name: "ayse/masal"}))
    again = receipt_in(project, name)
    assert again["revision"] == head.oid and again["files"]["sent"] == []


def test_a_failed_push_leaves_no_receipt_of_an_earlier_one(project: Path, logged_in: Hub) -> None:
    run_stage(project, "base", params(base="ayse/masal"))
    assert receipt_in(project, "base")["pushed"]
    with pytest.raises(ConfigError, match="rights to write here"):
        run_stage(project, "base", params(base="baskasi/masal"))
    assert not (project / "reports/publish/base").exists()
    assert not list((project / "reports/publish").glob(".*partial"))


def test_folders_that_are_missing_or_of_another_kind_are_refused(project: Path) -> None:
    with pytest.raises(DataError, match=r"there is no manifest.json(.|\n)*dvc repro finetune"):
        publish.publish("chat", project / "none", project / "out", params())
    with pytest.raises(DataError, match=r"is a 'tokenizer' folder(.|\n)*a 'model' folder"):
        publish.publish("chat", project / "models/tokenizer", project / "out", params())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": "masal"}, "publish.base is 'masal'"),
        ({"chat": "https://huggingface.co/a/b"}, "publish.chat is 'https"),
        ({"tokenizer": ""}, "publish.tokenizer is ''"),
        ({"base": "datasets/b"}, "publish.base is 'datasets/b'"),
        ({"base": "a/B", "chat": "A/b"}, "publish.chat names it, too"),
        ({"base": "a/b", "chat": "a/b"}, r"publish.base is 'a/b'(.|\n)*publish.chat names it, too"),
    ],
)
def test_names_that_cannot_be_are_refused(changes: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        params(**changes)


def test_shipped_params_publish_nothing() -> None:
    for path in [ROOT / "params.yaml", *(ROOT / "presets").glob("*.yaml")]:
        assert load_params(path, "publish", publish.Params) == params()


def call_main(project: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["publish", *arguments])
    with pytest.raises(SystemExit) as exit:
        run_command(publish.main)
    return int(str(exit.value.code))


@pytest.mark.parametrize("arguments", [[], ["model"], ["base", "chat"], ["base", "--dry"]])
def test_other_arguments_are_refused(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    assert call_main(project, monkeypatch, *arguments) == 1
    assert "'tokenizer', 'base' or 'chat'" in capsys.readouterr().err


@pytest.mark.parametrize("named", [True, False])
def test_H_01_a_dry_run_prints_the_list_and_needs_neither_network_nor_token(
    project: Path,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: bool,
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", hub.url)
    if named:
        tiny.edit_params(project, lambda params: params["publish"].update(base="ayse/masal"))
    (project / "models/base/.env").write_text(f"HF_TOKEN={WRITER}")
    before = sorted(project.rglob("*"))
    assert call_main(project, monkeypatch, "base", "--dry-run") == 0
    shown = capsys.readouterr().out
    place = "ayse/masal" if named else "none named; set publish.base"
    assert f"repository: {place} (private)" in shown and "stays here: .env" in shown
    size = (project / "models/base/model.safetensors").stat().st_size
    assert re.search(rf"^ *{size:,}  model.safetensors$", shown, re.M)
    assert re.search(r"bytes in 10 files$", shown, re.M) and "nothing was sent" in shown
    assert sorted(project.rglob("*")) == before and hub.requests == []


def test_a_dry_run_finds_what_would_be_refused(
    project: Path,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_model(project / "models/base", tokenizer, card=CARD.replace("mit", "MIT"))
    assert call_main(project, monkeypatch, "base", "--dry-run") == 1
    said = capsys.readouterr()
    assert "README.md" in said.out and "license is 'MIT'" in said.err


# As users run it


def stage_process(project: Path, env: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "stages.publish", *arguments], cwd=project,
        env=env | {"PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    )  # fmt: skip


LOAD = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
repository, text, folder, out = sys.argv[1:5]
for revision in sys.argv[5:]:
    tokenizer = AutoTokenizer.from_pretrained(repository, revision=revision)
    model = AutoModelForCausalLM.from_pretrained(repository, revision=revision)
    ids = tokenizer(text)["input_ids"]
    torch.save({"ids": ids, "logits": model(torch.tensor([ids])).logits}, f"{out}/{revision}.pt")
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False)
    print(json.dumps(rendered))
"""


def local(folder: Path) -> tuple[list[int], torch.Tensor, str]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT)["input_ids"]
    logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": TEXT}], tokenize=False)
    return ids, logits, rendered


@pytest.mark.slow
def test_H_03_a_pushed_model_is_loaded_by_name_and_by_revision(
    project: Path, logged_in: Hub, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    expected, revisions = {}, []
    for scale in (1.0, 1.5):
        make_model(project / "models/base", tokenizer, scale=scale)
        run_stage(project, "base", params(base="ayse/masal"))
        revisions.append(receipt_in(project, "base")["revision"])
        expected[revisions[-1]] = local(project / "models/base")
    expected["main"] = expected[revisions[-1]]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, "ayse/masal", TEXT, "-", str(tmp_path), "main", *revisions],
        env=hub_fixture.environment(logged_in, tmp_path / "hf", WRITER),
        capture_output=True, encoding="utf-8", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rendered = [json.loads(line) for line in done.stdout.splitlines()]
    for revision, template in zip(["main", *revisions], rendered, strict=True):
        found = torch.load(tmp_path / f"{revision}.pt")
        ids, logits, ours = expected[revision]
        assert found["ids"] == ids and torch.equal(found["logits"], logits) and template == ours
    assert not torch.equal(expected[revisions[0]][1], expected[revisions[1]][1])


@pytest.mark.slow
def test_H_01_a_token_is_nowhere_but_in_the_requests(
    project: Path, hub: Hub, tmp_path: Path
) -> None:
    tiny.edit_params(project, lambda params: params["publish"].update(base="ayse/masal"))
    env = hub_fixture.environment(hub, tmp_path / "hf", WRITER)
    hub.faults.append(hub_fixture.Fault("^PUT", status=520))  # so that a warning is logged
    process = stage_process(project, env, "base")
    seen = set()
    while process.poll() is None:
        try:
            for one in [psutil.Process(process.pid)]:
                seen |= {" ".join(p.cmdline()) for p in (one, *one.children(recursive=True))}
        except psutil.Error:
            continue
    said = process.stdout.read()  # type: ignore[union-attr]
    assert process.returncode == 0, said
    assert WRITER in {request.token for request in hub.requests}
    assert "again in 1 s" in said and WRITER not in said
    assert seen and not any(WRITER in line for line in seen)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "mlflow.db" for path in written)
    assert any(path.name == "receipt.json" and "mlartifacts" in path.parts for path in written)
    assert not [path for path in written if WRITER.encode() in path.read_bytes()]


# Through DVC


@pytest.fixture
def dvc_project(tmp_path: Path, tokenizer: Tokenizer, hub: Hub) -> Path:
    """A clone with its own dvc.yaml, cut down to the publishing stages, and the folders they read."""
    project = tiny.make_project(tmp_path / "proje", sources=False)
    stages = yaml.safe_load((project / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    kept = {name: entry for name, entry in stages.items() if name.startswith("publish_")}
    (project / "dvc.yaml").write_text(yaml.safe_dump({"stages": kept}), encoding="utf-8")
    make_tokenizer(project / "models/tokenizer", tokenizer)
    for name in ("base", "chat"):
        make_model(project / "models" / name, tokenizer)
    return project


def online(hub: Hub, tmp_path: Path, token: str | None = WRITER) -> dict[str, str]:
    env = hub_fixture.environment(hub, tmp_path / "hf", token)
    return {name: env[name] for name in env if name.startswith("HF_")} | {"HF_HUB_OFFLINE": "0"}


@pytest.mark.slow
def test_going_back_to_an_old_name_pushes_again(
    dvc_project: Path, hub: Hub, tmp_path: Path
) -> None:
    """The run cache would bring back the receipt of the first push, while the Hub holds another
    model by now."""
    heads = []
    for value in ("ayse/parca", None, "ayse/parca"):
        if value and heads:  # somebody else changes the repository meanwhile
            repository = hub.models["ayse/parca"]
            other = StoredFile(b"{}", False)
            repository.add(repository.head.files | {"tokenizer.json": other}, "by hand")
        tiny.edit_params(dvc_project, lambda params, v=value: params["publish"].update(tokenizer=v))  # type: ignore[misc]
        done = tiny.repro(dvc_project, "-s", "publish_tokenizer", **online(hub, tmp_path))
        assert done.returncode == 0, done.stderr
        assert "Running stage 'publish_tokenizer'" in done.stdout and "cached" not in done.stdout
        receipt = receipt_in(dvc_project, "tokenizer")
        assert receipt["pushed"] == bool(value)
        if value:
            heads.append(hub.models["ayse/parca"].head)
            assert receipt["revision"] == heads[-1].oid
    assert heads[0].files == heads[1].files and heads[0].oid != heads[1].oid
    quiet = tiny.repro(dvc_project, "-s", "publish_tokenizer", **online(hub, tmp_path))
    assert "Running stage" not in quiet.stdout  # nothing changed: not even asked


@pytest.mark.slow
def test_H_04_a_push_that_fails_leaves_the_others_done_and_make_fails(
    dvc_project: Path, hub: Hub, tmp_path: Path
) -> None:
    tiny.edit_params(dvc_project, lambda params: params["publish"].update(base="ayse/masal"))
    venv = f"VENV={Path(sys.executable).parents[1]}"
    failed = tiny.run(dvc_project, "make", "repro", venv, **online(hub, tmp_path, None))
    assert failed.returncode != 0
    said = failed.stdout + failed.stderr
    assert "ConfigError: there is no token" in said and "hf auth login" in said
    assert "Traceback" not in said
    done = {name for name in NAMES if (dvc_project / f"metrics/publish_{name}.json").exists()}
    assert done == {"tokenizer", "chat"} and hub.requests == []
    mended = tiny.run(dvc_project, "make", "repro", venv, **online(hub, tmp_path))
    assert mended.returncode == 0, mended.stderr
    assert re.findall(r"Running stage '(\w+)'", mended.stdout) == ["publish_base"]
    assert receipt_in(dvc_project, "base")["revision"] == hub.models["ayse/masal"].head.oid
