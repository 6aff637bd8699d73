"""One whole tiny pipeline through DVC, then every promise about what it leaves behind."""

import copy as copies
import functools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from tiny import STAGES, Finished

from sifirdan import runs, track_record
from sifirdan.config import read_yaml
from sifirdan.corpus.records import Document, read_folder
from sifirdan.corpus.shards import SPLITS, Shards
from sifirdan.text import dedup_key
from sifirdan.tokenizer import Tokenizer
from stages import train_tokenizer

pytestmark = pytest.mark.slow

TEXTS = ["Bir gün İstanbul'da ığdır", "kitap (isim): okunan şey.\n\n  Çağ", "<|user|> x </s> 🙂"]
# Files that cannot change a result: tracking, messages, the command line, Git's own, locks and
# names that an output has until it is whole.
EXEMPT = re.compile(
    r"\.git/|\.track/|mlflow\.db|mlartifacts/|params\.yaml$|(sifirdan|stages)/(.+/)?__init__\.py$"
    r"|sifirdan/(track\w*|errors|json_files|model/flops|cli)\.py$|(.+/)?\.\w+\.lock$|(.+/)?\.[\w.]+\.(partial|old)(/|$)"
)
OWN_STATE = {
    "ingest": "data/.cache/", "clean": "data/.corpus.scratch/", "train": "models/.resume/train/",
    "finetune": "models/.resume/finetune/",
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    done = tiny.finished(tmp_path_factory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def project(finished: Finished, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return tiny.copy(finished, tmp_path)


@pytest.fixture(scope="module")
def pipeline(finished: Finished) -> dict[str, dict[str, Any]]:
    content = yaml.safe_load((finished.path / "dvc.yaml").read_text(encoding="utf-8"))
    stages: dict[str, dict[str, Any]] = content["stages"]
    return stages


def documents(project: Path) -> dict[str, list[Document]]:
    return {split: list(read_folder(project / "data/corpus" / split)) for split in SPLITS}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_stage_ran_and_the_card_is_printed(finished: Finished) -> None:
    assert re.findall(r"Running stage '(\w+)'", finished.stdout) == list(STAGES)
    card = (finished.path / "reports/index/card.txt").read_text(encoding="utf-8")
    assert card in finished.stdout
    for word in ("data ", "tokenizer ", "model ", "bits per byte", "samples", "make ui"):
        assert word in card
    assert not tiny.leftovers(finished.path)


def test_nothing_to_do_the_second_time(finished: Finished) -> None:
    again = tiny.repro(finished.path)
    assert again.returncode == 0 and "Running stage" not in again.stdout
    status = tiny.run(finished.path, "dvc", "status")
    assert "up to date" in status.stdout
    changed = tiny.run(finished.path, "git", "status", "--porcelain").stdout.split("\n")
    assert {line[3:] for line in changed if line} == {"dvc.lock", "metrics/"}


def test_D_02_verify_finds_every_output_whole_and_names_a_flipped_byte(project: Path) -> None:
    command = ("python", "-m", "sifirdan.cli", "verify", *tiny.OUTPUTS)
    whole = tiny.run(project, *command)
    assert whole.returncode == 0 and whole.stdout.count(": whole (") == len(tiny.OUTPUTS)
    flip_byte(project / "models/chat/model.safetensors")
    damaged = tiny.run(project, *command)
    assert damaged.returncode == 1
    assert "models/chat: model.safetensors is damaged" in damaged.stdout


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


def recorded(finished: Finished, stage: str, kind: str) -> set[str]:
    """What tests/recorder noted; a compiled file stands for its source."""
    lines = (Path(finished.recorded) / f"{stage}.tsv").read_text(encoding="utf-8").splitlines()
    values = {value for found, value in (line.split("\t") for line in lines) if found == kind}
    compiled = r"__pycache__/(\w+)\.cpython-\d+\.pyc(\.\d+)?$"
    return {re.sub(compiled, r"\1.py", value) for value in values}


@pytest.mark.parametrize("stage", STAGES)
def test_D_04_a_stage_opens_only_what_dvc_knows(
    finished: Finished, pipeline: dict[str, dict[str, Any]], stage: str
) -> None:
    entry = pipeline[stage]
    params = read_yaml(finished.path / "params.yaml")
    templated = {f"${{{s}.{k}}}": params[s][k] for s, k in [("ingest", "own_text"), ("prepare_chat", "own_messages")]}  # fmt: skip
    outs = [out if isinstance(out, str) else next(iter(out)) for out in entry["outs"]]
    known = [templated.get(dep, dep) for dep in entry["deps"]] + outs
    known += [name for metrics in entry["metrics"] for name in metrics]
    opened = {path for path in recorded(finished, stage, "file") if not EXEMPT.match(path)}
    opened = {path for path in opened if not path.startswith(OWN_STATE.get(stage, "-"))}
    if stage == "report":  # tracking keeps the hashes of all folders with the pipeline run
        opened = {path for path in opened if not re.fullmatch(r"data/\w+/manifest\.json", path)}
    unknown = {p for p in opened if not any(p == k or p.startswith(f"{k}/") for k in known)}
    assert not unknown
    linked = ["reports/corpus", "reports/tokenizer"] if stage == "report" else []
    empty = {"data/own_chat", *linked}  # or only linked
    if stage.startswith("evaluate_"):  # named by code that is imported and not called
        empty.add("sifirdan/evals/turkish_stems.json")
    # what tracking opens for itself, in every stage, is not looked at
    empty |= {"sifirdan/json_files.py", "sifirdan/model/flops.py"}
    if stage == "report":  # there is no run to compare with in a new project
        empty.add("reference")
    unused = {k for k in known if not any(p == k or p.startswith(f"{k}/") for p in opened)}
    assert unused - empty - set(outs) - {f"metrics/{stage}.json"} == set()


LOOPBACK = re.compile(r"\(b?'(127\.0\.0\.1|::1|localhost)'|b?'/")  # or a socket that is a file


def test_only_loopback_is_talked_to_after_ingest(finished: Finished) -> None:
    for stage in STAGES:
        if stage != "ingest":
            addresses = recorded(finished, stage, "address")
            assert not {address for address in addresses if not LOOPBACK.match(address)}, stage


def test_the_recorder_sees_files_and_addresses(tmp_path: Path) -> None:
    (tmp_path / "içeride").touch()
    script = """
import contextlib, socket
open("içeride").close(); open("/dev/null").close()
with contextlib.suppress(OSError): socket.getaddrinfo("localhost", 1)
for address in (("127.0.0.1", 1), ("192.0.2.1", 1)):  # UDP: nothing is sent
    with contextlib.suppress(OSError): socket.socket(type=socket.SOCK_DGRAM).connect(address)
"""
    recorder = {"RECORD_FOLDER": str(tmp_path), "PYTHONPATH": str(tiny.ROOT / "tests/recorder")}
    of_dvc = {"DVC_STAGE": "x", "DVC_ROOT": str(tmp_path)}
    assert tiny.run(tmp_path, "python", "-c", script, **recorder, **of_dvc).returncode == 0
    lines = (tmp_path / "x.tsv").read_text(encoding="utf-8").splitlines()
    files = [line for line in lines if line.startswith("file")]
    assert files == ["file\tiçeride"]
    addresses = [line.split("\t")[1] for line in lines if line.startswith("address")]
    assert [bool(LOOPBACK.match(address)) for address in addresses] == [True, True, False]


def test_I_10_documents_in_are_documents_out_and_rejects(finished: Finished) -> None:
    raw = runs.read_manifest(finished.path / "data/raw").counts
    corpus = runs.read_manifest(finished.path / "data/corpus").counts
    tokens = runs.read_manifest(finished.path / "data/tokens").counts
    ledger = read_json(finished.path / "data/corpus/ledger.json")
    assert set(ledger) == set(raw) == {"own", *read_yaml(finished.path / "params.yaml")["ingest"]["sources"]}  # fmt: skip
    for source, account in ledger.items():
        stored = sum(1 for _ in read_folder(finished.path / "data/raw" / source))
        assert raw[source]["documents"] == account["in"] == stored
        parts = (account[part] for part in ("out", "rejected", "duplicates"))
        assert account["in"] == sum(sum(part.values()) for part in parts)
    for split, found in documents(finished.path).items():
        out = sum(account["out"][split] for account in ledger.values())
        shards = Shards(finished.path / "data/tokens" / split)
        assert len(found) == out == corpus[split]["documents"] == tokens[split]["documents"]
        assert len(shards) == len(found) and shards.num_tokens == tokens[split]["tokens"]
        assert [d.id for d in found] == shards.column("document")


def test_no_document_nor_its_twin_is_in_two_splits(finished: Finished) -> None:
    everything = [d for found in documents(finished.path).values() for d in found]
    assert len({d.id for d in everything}) == len(everything)
    assert len({dedup_key(d.text) for d in everything}) == len(everything)
    assert all(found for found in documents(finished.path).values())


def test_S_02_the_stream_is_the_text_and_its_closing_marks(finished: Finished) -> None:
    tokenizer = Tokenizer.load(finished.path / "models/tokenizer")
    for split, found in documents(finished.path).items():
        shards = Shards(finished.path / "data/tokens" / split)
        for index, document in enumerate(found):
            *ids, last = shards.tokens(index).tolist()
            assert last == tokenizer.eos_id and tokenizer.eos_id not in ids
            assert tokenizer.decode(ids) == document.text


def test_provenance_leads_from_a_shard_row_to_source_and_licence(finished: Finished) -> None:
    raw = runs.read_manifest(finished.path / "data/raw").counts
    for split, found in documents(finished.path).items():
        by_id = {document.id: document for document in found}
        shards = Shards(finished.path / "data/tokens" / split)
        rows = zip(shards.column("document"), shards.column("source"), strict=True)
        for key, source in rows:
            assert by_id[key].source == source and by_id[key].origin
            assert by_id[key].license == raw[source]["license"]
    for name in ("train", "known", "unseen", "handwritten"):
        lines = (finished.path / f"data/chat/{name}.jsonl").read_text("utf-8").splitlines()
        by_key = {row["id"]: row for row in map(json.loads, lines)}
        shards = Shards(finished.path / "data/chat" / name)
        for key, source in zip(shards.column("document"), shards.column("source"), strict=True):
            assert by_key[key]["source"] == source
            assert source == "handwritten" or by_key[key]["license"] == raw[source]["license"]


@pytest.fixture
def status(project: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """What `dvc status --json` says of the project, asked of DVC in this process: a hundred times."""
    from dvc.repo import Repo  # type: ignore[import-untyped]
    from ruamel.yaml import YAML

    load = YAML.load
    parsed: dict[tuple[str, str], Any] = {}

    def load_once(self: Any, text: str) -> Any:  # DVC parses the same file for every stage
        key = (str(self.typ), text)
        parsed[key] = parsed[key] if key in parsed else load(self, text)
        return copies.deepcopy(parsed[key])

    monkeypatch.setattr(YAML, "load", load_once)
    monkeypatch.chdir(project)
    return lambda: Repo(str(project)).status()


def leaves(content: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, *path, key)
        else:
            yield (*path, key)


def changed_value(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, *value] or ["x"]
        case None:
            return 1
        case _:
            return {"x": 1}


def test_D_04_every_key_dirties_exactly_the_stages_that_read_its_section(
    project: Path, pipeline: dict[str, dict[str, Any]], status: Callable[[], dict[str, Any]]
) -> None:
    assert status() == {}
    path = project / "params.yaml"
    before = path.read_bytes()
    params = read_yaml(path)
    paths = list(leaves(params))
    assert len(paths) > 100 and {path[0] for path in paths} == set(params)
    for section, *inner in paths:
        changed = copies.deepcopy(params)
        place = functools.reduce(lambda content, key: content[key], [section, *inner[:-1]], changed)
        place[inner[-1]] = changed_value(place[inner[-1]])
        path.write_text(yaml.safe_dump(changed, allow_unicode=True), encoding="utf-8")
        watching = {section, f"{section}.{inner[0]}"}
        expected = {name for name, entry in pipeline.items() if watching & set(entry["params"])}
        assert set(status()) == expected, ".".join([section, *inner])
    path.write_bytes(before)
    assert status() == {}


def test_D_04_own_files_and_code_dirty_exactly_the_stages_that_read_them(
    project: Path, pipeline: dict[str, dict[str, Any]], status: Callable[[], dict[str, Any]]
) -> None:
    for folder, stage in (("data/own", "ingest"), ("data/own_chat", "prepare_chat")):
        path = project / folder / "yeni.txt"
        path.write_text("yeni", encoding="utf-8")
        assert set(status()) == {stage}
        path.unlink()
    (project / "data/own/doga.txt").rename(project / "data/own/çevre.txt")
    assert set(status()) == {"ingest"}
    (project / "data/own/çevre.txt").rename(project / "data/own/doga.txt")
    for name in ("sifirdan/corpus/loader.py", "sifirdan/text.py", "stages/evaluate.py"):
        before = (project / name).read_bytes()
        (project / name).write_bytes(before + b"\n")
        assert set(status()) == {s for s, entry in pipeline.items() if name in entry["deps"]}
        (project / name).write_bytes(before)
    assert status() == {}


def test_datasets_opens_corpus_and_tokens_unchanged(finished: Finished, tmp_path: Path) -> None:
    import datasets

    corpus = datasets.load_dataset(str(finished.path / "data/corpus"), cache_dir=str(tmp_path))
    tokens = datasets.load_dataset(str(finished.path / "data/tokens"), cache_dir=str(tmp_path))
    assert set(corpus) == set(tokens) == set(SPLITS)
    for split, found in documents(finished.path).items():
        assert corpus[split]["text"] == [document.text for document in found]
        assert tokens[split]["document"] == [document.id for document in found]
        shards = Shards(finished.path / "data/tokens" / split)
        assert tokens[split][0]["tokens"] == shards.tokens(0).tolist()


@pytest.mark.parametrize("name", ["base", "chat"])
def test_transformers_loads_the_same_model_and_tokenizer(finished: Finished, name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from sifirdan.model.checkpoint import load_model

    folder = finished.path / "models" / name
    ours, tokenizer = load_model(folder), Tokenizer.load(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    exported = AutoTokenizer.from_pretrained(folder)
    val = [document.text for document in documents(finished.path)["val"]]
    for text in [*TEXTS, *val]:
        ids = tokenizer.encode(text)
        assert exported(text, split_special_tokens=True)["input_ids"] == ids
        assert exported.decode(ids) == text
        window = torch.tensor([[tokenizer.eos_id, *ids][: ours.config.context_length]])
        with torch.no_grad():
            torch.testing.assert_close(ours(window), theirs(window).logits, atol=1e-4, rtol=0)


def test_mlflow_holds_one_pipeline_with_the_numbers_of_all_stages(finished: Finished) -> None:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{finished.path}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "sifirdan"]
    found = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    nested = [run for run in found if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in nested} == {parent.info.run_id}
    assert sorted(run.data.tags["stage"] for run in nested) == sorted(STAGES)
    assert {run.info.status for run in found} == {"FINISHED"}
    for stage in STAGES:
        numbers = track_record.read_metrics(finished.path / f"metrics/{stage}.json")
        assert numbers or stage == "report", stage
        for name, value in numbers.items():
            key = track_record.safe_name(track_record.metric_name(stage, name), 250)
            assert parent.data.metrics[key] == pytest.approx(value), key
    history = client.get_metric_history(parent.info.run_id, "train/loss")
    steps = [point.step for point in history]
    assert len(set(steps)) >= 10 and parent.data.params["train.tokens"] == "40960"


def test_changing_the_budget_runs_training_and_what_follows(project: Path) -> None:
    tiny.edit_params(project, lambda params: params["train"].update(tokens=5120))
    done = tiny.repro(project, "finetune")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"Running stage '(\w+)'", done.stdout) == ["train", "finetune"]
    left = json.loads(tiny.run(project, "dvc", "status", "--json").stdout)
    after = {"evaluate_base", "evaluate_chat", "report", "publish_base", "publish_chat"}
    assert set(left) == after
    tiny.edit_params(project, lambda params: params["train"].update(tokens=40960))
    back = tiny.repro(project)
    assert back.returncode == 0 and "Stage 'train' is cached" in back.stdout
    again = set(re.findall(r"Running stage '(\w+)'", back.stdout))
    assert again <= {"publish_base", "publish_chat"}  # never from the run cache


def test_without_the_gpl_text_the_pipeline_runs_end_to_end(tmp_path: Path) -> None:
    project = tiny.make_project(tmp_path / "proje")
    tiny.edit_params(project, lambda params: params["ingest"]["allowed_licenses"].remove("GPL-3.0"))
    done = tiny.run(project, "python", "-c", ALL_STAGES)
    assert done.returncode == 0, done.stderr
    assert "source=kenet left out" in done.stderr
    assert read_json(project / "metrics/ingest.json")["sources"]["kenet"]["documents"] == 0
    lines = (project / "data/chat/train.jsonl").read_text(encoding="utf-8").splitlines()
    used = {json.loads(line)["license"] for line in lines}
    assert "GPL-3.0" not in used and (project / "reports/index/card.txt").is_file()


# Every stage in one process, without DVC: starting ten of them takes most of a minute.
ALL_STAGES = """
import sys
from stages import ingest, clean, train_tokenizer, tokenize_corpus, train
from stages import evaluate_tokenizer, evaluate, prepare_chat, finetune, publish, report
from sifirdan.errors import run_command
def every():
    for stage in (ingest, clean, train_tokenizer, evaluate_tokenizer, tokenize_corpus, train):
        stage.main()
    sys.argv[1:] = ["base"]; evaluate.main()
    prepare_chat.main(); finetune.main()
    sys.argv[1:] = ["chat"]; evaluate.main()
    report.main()
    for name in ("tokenizer", "base", "chat"):
        sys.argv[1:] = [name]; publish.main()
run_command(every)
"""


def wrong_key(project: Path) -> None:
    tiny.edit_params(project, lambda params: params["train"].update(tokenz=1))


def wrong_type(project: Path) -> None:
    tiny.edit_params(project, lambda params: params["clean"].update(min_chars="yirmi"))


def bad_utf8(project: Path) -> None:
    (project / "data/own/bozuk.txt").write_bytes("İyi günler ".encode() + b"\xfe dedi.")


def empty_corpus(project: Path) -> None:
    tiny.edit_params(project, lambda params: params["ingest"].update(sources={}))
    for path in (project / "data/own").iterdir():
        path.unlink()


def too_many_pieces(project: Path) -> None:
    tiny.edit_params(project, lambda params: params["train_tokenizer"].update(vocab_size=60000))


def too_long_context(project: Path) -> None:
    sizes = {"context_length": 131072, "batch_tokens": 131072, "tokens": 131072}
    tiny.edit_params(project, lambda params: params["train"].update(sizes))


def damaged_shard(project: Path) -> None:
    flip_byte(next((project / "data/tokens/train").glob("*.arrow")))


def another_tokenizer(project: Path) -> None:
    params = train_tokenizer.Params("bpe", 650, 1000000, {}, seed=1)
    train_tokenizer.train_tokenizer(project / "data/corpus", project / "models/tokenizer", params)


@pytest.mark.parametrize(
    ("spoil", "stage", "said"),
    [
        (wrong_key, "train", ["train.tokenz is not a known key", "context_length"]),
        (wrong_type, "clean", ["clean.min_chars is 'yirmi'", "a whole number"]),
        (bad_utf8, "ingest", ["own: bozuk.txt: byte 13 (0xfe) is not utf-8"]),
        (empty_corpus, "ingest", ["no text at all", "data/own"]),
        (too_many_pieces, "train_tokenizer", ["60000", "train_tokenizer.vocab_size"]),
        (too_long_context, "train", ["train.context_length is 131072", "tokens"]),
        (damaged_shard, "train", ["data/tokens: train/part-", "is damaged", "tokenize_corpus"]),
        (another_tokenizer, "train", ["data/tokens was made with another tokenizer"]),
    ],
)
def test_a_bad_input_ends_in_one_clear_message(
    project: Path, spoil: Callable[[Path], None], stage: str, said: list[str]
) -> None:
    spoil(project)
    for folder in STAGES[stage]:  # DVC removes them first, too
        shutil.rmtree(project / folder)
    (project / f"metrics/{stage}.json").unlink()
    done = tiny.run(project, "python", "-m", f"stages.{stage}")
    assert done.returncode == 1
    assert (
        "Traceback" not in done.stderr and len(re.findall(r"^\w+Error: ", done.stderr, re.M)) == 1
    )
    message = done.stderr[done.stderr.index("Error: ") :]
    assert all(part in message for part in said), message
    assert "what to do:" in message and len(message.splitlines()) <= 4
    for folder in STAGES[stage]:
        assert not (project / folder).exists()
    assert not (project / f"metrics/{stage}.json").exists() and not tiny.leftovers(project)
