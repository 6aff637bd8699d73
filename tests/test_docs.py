"""The documents say what is there: tree, picture, commands, sections, links. Not for their style."""

import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from sifirdan import cli
from sifirdan.config import read_yaml
from stages import report

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "README.tr.md",
    "CHANGELOG.md",
    "data/README.md",
    "models/README.md",
    "docs/ARCHITECTURE.md",
    "docs/DATA.md",
    "docs/COMPARING.md",
    "docs/EXPERIMENTS.md",
    "docs/MINIMAL_PAIRS.md",
    "docs/PAGES.md",
    "docs/SCALING.md",
    "docs/TASKS.md",
    "docs/TEAMS.md",
    "docs/TOKENIZER.md",
    "reference/README.md",
)
READMES = PAGES[:2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The contents of a page's fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", read(page), flags=re.M | re.S)


def code_of(page: str) -> str:
    """Everything on a page that is set as code: shell blocks without comments, and inline code."""
    shell = "\n".join(blocks(page, "sh") + blocks(page, "powershell"))
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S))
    return "\n".join([re.sub(r"(^|\s)#.*", "", shell), *inline])


@cache
def tracked_files() -> list[str]:
    result = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, encoding="utf-8")
    if result.returncode:
        pytest.skip("not a Git repository")
    return result.stdout.splitlines()


@cache
def pipeline() -> dict[str, Any]:
    """The stages of dvc.yaml with their templated paths filled in."""
    text = read("dvc.yaml")
    params = read_yaml(ROOT / "params.yaml")
    for section, key in re.findall(r"\$\{(\w+)\.(\w+)\}", text):
        text = text.replace(f"${{{section}.{key}}}", params[section][key])
    stages: dict[str, Any] = yaml.safe_load(text)["stages"]
    return stages


def paths(entries: list[Any]) -> list[str]:
    """The paths in a list of dvc.yaml, whose entries may carry settings."""
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


@cache
def edges() -> dict[tuple[str, str], str]:
    """(earlier stage, later stage) -> "-->", or "-.->" where only metrics go that way."""
    found: dict[tuple[str, str], str] = {}
    for later, stage in pipeline().items():
        for earlier, other in pipeline().items():
            if set(stage["deps"]) & set(paths(other["outs"])):
                found[earlier, later] = "-->"
            elif set(stage["deps"]) & set(paths(other.get("metrics", []))):
                found[earlier, later] = "-.->"
    return found


def followers(stage: str) -> set[str]:
    """Every stage that runs again when `stage` made something else."""
    direct = {later for earlier, later in edges() if earlier == stage}
    return direct.union(*(followers(later) for later in direct))


# The tree


def shown_tree() -> list[str]:
    """The names in the README's tree, as paths; a folder ends in a slash."""
    (tree,) = [block for block in blocks("README.md", "text") if "params.yaml  " in block]
    names, folder = [], ""
    for line in tree.splitlines():
        is_inside = line.startswith("    ")
        # Two blanks part names, more of them the names from what is said about them.
        entries = re.match(r"\S+(  \S+)*(?= {3}|$)", line.strip()) if line[4:5] != " " else None
        for name in entries[0].split() if entries else []:
            if is_inside:
                names.append(folder + name)
            else:
                names.append(name)
                folder = name
    return names


def test_the_tree_is_that_of_the_repository() -> None:
    tree = shown_tree()
    assert len(tree) == len(set(tree))
    top = {name.split("/")[0] + "/" * ("/" in name) for name in tracked_files()}
    shown_top = {name for name in tree if "/" not in name.rstrip("/")}
    assert shown_top == {name for name in top if not name.startswith(".")}
    for folder in shown_top:
        shown = {name for name in tree if name.startswith(folder) and name != folder}
        inside = [name.removeprefix(folder) for name in tracked_files() if name.startswith(folder)]
        there = {folder + name.split("/")[0] + "/" * ("/" in name) for name in inside}
        assert shown in (set(), there), folder


# The picture


def drawn_edges(page: str) -> dict[tuple[str, str], str]:
    (picture,) = blocks(page, "mermaid")
    drawn: dict[tuple[str, str], str] = {}
    for line in picture.splitlines()[1:]:
        left, arrow, right = re.split(r" (-->|-\.->) ", line.strip())
        for earlier in left.split(" & "):
            for later in right.split(" & "):
                assert (earlier, later) not in drawn, f"{earlier} to {later} is drawn twice"
                drawn[earlier, later] = arrow
    return drawn


@pytest.mark.parametrize("page", READMES)
def test_the_picture_is_that_of_dvc_yaml(page: str) -> None:
    assert drawn_edges(page) == edges()


@pytest.mark.parametrize("page", READMES)
def test_every_stage_is_explained(page: str) -> None:
    explained = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| [^`|]", read(page), flags=re.M)
    names = [name for cell in explained for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(names) == sorted(pipeline())


# Which section re-runs what


@pytest.mark.parametrize("page", READMES)
def test_the_sections_of_params_re_run_what_the_table_says(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`[^|]+) \| ([^|]+) \|$", read(page), flags=re.M)
    table = {section: (set(re.findall(r"`(\w+)`", r)), then) for section, r, then in rows}
    assert set(table) == set(read_yaml(ROOT / "params.yaml"))
    everything = set(pipeline())
    for section, (readers, then) in table.items():
        reading = {
            name
            for name, stage in pipeline().items()
            if section in {param.split(".")[0] for param in stage["params"]}
            or (section == "runtime" and "Runtime)" in read(f"{stage_file(name)}"))
        }
        assert readers == reading, section
        follow = (
            set() if section == "runtime" else set[str]().union(*map(followers, reading)) - reading
        )
        named = set(re.findall(r"`(\w+)`", then))
        # "all others", "all others but …": written without a list where the list would be long
        stated = everything - readers - named if then.startswith(("all", "diğer")) else named
        assert stated == follow, section


def stage_file(name: str) -> str:
    module = pipeline()[name]["cmd"].split()[2]
    return module.replace(".", "/") + ".py"


# Commands


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", read("Makefile"), flags=re.M))


def named_targets(page: str) -> set[str]:
    return set(re.findall(r"\bmake ([a-z]+)\b", code_of(page)))


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_is_named_exists(page: str) -> None:
    assert named_targets(page) <= make_targets()


def test_both_readmes_name_the_same_targets() -> None:
    assert named_targets("README.md") == named_targets("README.tr.md")
    assert named_targets("README.md") >= {"test", "ui", "chat"}


@pytest.mark.parametrize("page", PAGES)
def test_every_variable_of_make_that_is_set_exists(page: str) -> None:
    named = set(re.findall(r"\bmake (?:[a-z]+ )?([A-Z]+)=", code_of(page)))
    assert named <= set(re.findall(r"^([A-Z]+)\s*\?=", read("Makefile"), flags=re.M)) | {"PRESET"}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_ours_that_is_named_parses(page: str) -> None:
    for line in re.findall(r"(?:^|/)sifirdan ((?:\w|-).*)$", code_of(page), flags=re.M):
        words = shlex.split(line)
        assert words[0] in our_commands()
        if words[1:]:  # with arguments; a command's name alone may stand for it in a sentence
            cli._parser().parse_args(words)  # ends the process where a word is not known


def our_commands() -> set[str]:
    return set(cli._parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr,arg-type]


def test_the_changelog_names_every_command() -> None:
    assert our_commands() <= set(re.findall(r"`(?:sifirdan )?([\w-]+)`", read("CHANGELOG.md")))


@pytest.mark.parametrize("page", PAGES)
def test_every_preset_and_key_that_is_named_exists(page: str) -> None:
    for preset in re.findall(r"PRESET=([\w-]+)", code_of(page)):
        assert preset == "name" or any(
            (ROOT / folder / f"{preset}.yaml").is_file() for folder in ("presets", "presets/model")
        ), preset
    params = read_yaml(ROOT / "params.yaml")
    for section, key in re.findall(rf"\b({'|'.join(params)})\.([a-z_]+)\b", code_of(page)):
        assert key in params[section] or key in ("py", "json", "md", "html"), f"{section}.{key}"


def test_the_versions_in_plain_commands_are_those_of_the_constraints() -> None:
    for page in READMES:
        for pin in re.findall(r"\btorch==\S+", code_of(page)):
            assert pin in read("constraints.txt").splitlines(), page


def test_the_card_in_the_readme_has_the_lines_of_the_real_one(tmp_path: Path) -> None:
    card = report.make_card(metrics_of_a_run(), sample_folder(tmp_path), report.Params(2))
    real = [shape_of(line) for line in card.splitlines() if line.strip()]
    (shown,) = [text for text in blocks("README.md", "text") if "your model is ready" in text]
    assert [shape_of(line) for line in shown.splitlines() if line.strip()] == real


def shape_of(line: str) -> str:
    """A line of the card without its numbers and samples."""
    return re.sub(r"“.*”|[\d.,]*\d%?", "…", line)


def metrics_of_a_run() -> dict[str, dict[str, Any]]:
    split = {"documents": 3, "bytes": 2_000_000, "tokens": 500_000}
    score = {"bits_per_byte": 1.5, "token_perplexity": 40.0}
    known = {"questions": 200, "stopped_share": 0.9, "own_question_share": 0.8}
    return {
        "clean": {"splits": {"train": split}},
        "tokenize_corpus": {"splits": {"train": split}},
        "train_tokenizer": {"vocab_size": 8192},
        "train": {"parameters": 7_000_000, "tokens": 2_000_000, "epochs": 1.0},
        "evaluate_base": {"val": score, "ood": score},
        "evaluate_chat": {"val": score, "questions": {"known": known}},
    }


def sample_folder(folder: Path) -> Path:
    (folder / "evaluate/base").mkdir(parents=True)
    lines = [json.dumps({"prompt": "", "text": text}) for text in ("bir", "iki")]
    (folder / "evaluate/base/samples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


# Links


def anchors(page: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", read(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, "docs/colab.ipynb"])
def test_links_lead_to_files_that_exist(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        path, _, anchor = target.partition("#")
        if path.startswith("https://github.com/sifirdan/sifirdan/blob/main/"):
            path = "../" * page.count("/") + path.rsplit("/main/", 1)[1]
        if not path.startswith("http"):
            file = (ROOT / page).parent / path if path else ROOT / page
            assert file.exists(), target
            assert not anchor or anchor in anchors(str(file.relative_to(ROOT))), target


@pytest.mark.parametrize("page", READMES)
def test_folders_that_are_named_exist_or_are_made_by_a_stage(page: str) -> None:
    made = {path for stage in pipeline().values() for path in paths(stage["outs"])}
    made.add("reports/compare.html")  # `sifirdan compare` writes it
    for name in re.findall(r"`((?:data|models|reports|metrics)/[^`*\s]*)`", read(page)):
        path = name.rstrip("/")
        is_made = any(
            f"{path}/".startswith(f"{out}/") or out.startswith(f"{path}/") for out in made
        )
        is_hidden = re.match(r"(data|models)/\.", path)  # caches and state; ignored as a whole
        assert is_made or is_hidden or (ROOT / path).exists(), name


# params.yaml and the licence


@pytest.mark.parametrize("path", ["params.yaml", "presets/tiny.yaml"])
def test_every_key_of_params_has_a_comment(path: str) -> None:
    """On its line; or, for the entries of `sources`, above the group."""
    bare = []
    in_sources = False
    for number, line in enumerate(read(path).splitlines(), start=1):
        key = re.match(r"( *)(\w+):(.*)", line)
        if key:
            depth = len(key[1]) // 2
            in_sources = (in_sources and depth >= 2) or (depth == 1 and key[2] == "sources")
            is_group = not key[3].strip()
            if not in_sources and not is_group and " # " not in line:
                bare.append(f"{number}: {line}")
    assert not bare


def test_params_name_no_machine_path_and_no_host() -> None:
    for name in ["params.yaml", *(f"presets/{p.name}" for p in (ROOT / "presets").glob("*.yaml"))]:
        assert not re.search(r"https?://|(?<![\w.*])/[a-z]+/|~/|[A-Z]:\\|localhost", read(name)), (
            name
        )


def test_the_licence_is_apache_2() -> None:
    licence = read("LICENSE")
    assert "Apache License" in licence.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in licence


def test_the_page_of_the_tokenizer_has_the_numbers_of_the_committed_run() -> None:
    found = json.loads(read("metrics/evaluate_tokenizer.json"))["tokenizers"]
    page = read("docs/TOKENIZER.md")
    for name, values in found.items():
        lines = [line for line in page.split("\n") if line.startswith(f"| {name} |")]
        assert len(lines) == 4, name
        assert f"| {values['bytes_per_token']:.2f} | {values['tokens_per_word']:.2f} |" in lines[0]
        assert f"| {values['suffix_f1']:.3f} |" in lines[1]
        assert (
            f"| {values['probe_tokens']['plain']} | {values['probe_tokens']['capitals']} |"
            in lines[2]
        )
    assert (ROOT / "docs/tokenizer_card.png").is_file()
