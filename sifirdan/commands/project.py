"""Commands about the folder: is it whole, where do documents come from, what takes room, what is missing; presets."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.errors import ConfigError, DataError


def verify(arguments: argparse.Namespace) -> int:
    """Hash every file of finished folders again and name what differs; of a corpus also prove that
    documents in = documents out + rejects + duplicates. With --cache do the same with DVC's objects."""
    if not arguments.paths and not arguments.cache:
        raise ConfigError(
            "verify: nothing to verify", expected="folders with a manifest.json, or --cache"
        )
    failed = int(arguments.cache and not _cache_is_whole())
    for path in arguments.paths:
        try:
            manifest = runs.read_manifest(path)
        except DataError as error:
            failed += 1
            print(error, file=sys.stderr)
            continue
        problems = runs.check_files(path, manifest)
        proved: list[str] = []
        if manifest.kind == "corpus" and not problems:
            problems, proved = _check_law(path, manifest)
        failed += bool(problems)
        if not problems:
            proved.insert(0, f"whole ({manifest.kind}, {len(manifest.files)} files)")
        for line in problems or proved:
            print(f"{path}: {line}")
    return int(failed > 0)


def _cache_is_whole() -> bool:
    from sifirdan.dvc_cache import check_cache

    found = check_cache(Path())
    for line in found.problems:
        print(line)
    if not found.problems:
        size = f"{found.num_bytes / 1e6:.1f} MB"
        print(f"DVC's cache: whole ({found.num_objects} objects of the present state, {size})")
    return not found.problems


def _check_law(corpus: Path, manifest: runs.Manifest) -> tuple[list[str], list[str]]:
    """Where a corpus breaks the conservation law, and a line a source that says how it is kept; the
    raw folder beside it is compared too, if the corpus was made from it."""
    from sifirdan.corpus.card import read_card
    from sifirdan.corpus.conservation import corpus_problems, law_lines

    raw = corpus.absolute().parent / "raw"
    there = (raw / runs.MANIFEST).is_file()
    same = there and runs.read_manifest(raw).sha256 == manifest.inputs.get("raw")
    problems = corpus_problems(corpus, raw if same else None)
    if problems:
        return problems, []
    lines = law_lines(read_card(corpus)["sources"])
    if there and not same:
        lines.append(f"out of date: {raw.name} beside it is of another run; dvc repro clean")
    return [], lines


def ledger(arguments: argparse.Namespace) -> None:
    """Say what is in the corpus, why a document is in or out, where a row of a shard comes from, or
    what a source has touched."""
    from sifirdan.corpus import contents, provenance, shard_rows, withdrawal

    corpus, raw, tokens = Path("data/corpus"), Path("data/raw"), Path("data/tokens")
    found: Any
    if arguments.why:
        found = [provenance.why(corpus, raw, wanted) for wanted in arguments.why]
        lines = [line for one in found for line in (*provenance.why_lines(one), "")][:-1]
    elif arguments.row is not None:
        found = shard_rows.shard_row(arguments.row)
        lines = [*shard_rows.shard_row_lines(found)]
    elif arguments.withdraw is not None:
        found = withdrawal.withdraw(Path(), arguments.withdraw)
        lines = [*withdrawal.withdraw_lines(found)]
    else:
        found = contents.contents(corpus, tokens)
        lines = [*contents.contents_lines(found)]
    print(json.dumps(found, ensure_ascii=False, indent=2) if arguments.json else "\n".join(lines))


def disk(arguments: argparse.Namespace) -> None:
    """Say what cache, outputs, unfinished trainings and runs take on the disk, what keeps each alive,
    and which command frees it at what loss. Deletes nothing."""
    from sifirdan.disk import disk, disk_lines

    found = disk(Path())
    lines = disk_lines(found)
    print(json.dumps(found, ensure_ascii=False, indent=2) if arguments.json else "\n".join(lines))


def preset(arguments: argparse.Namespace) -> None:
    """Lay a preset of presets/model over params.yaml: only its keys change, and the old file is kept as
    params.before.yaml. Without a name, list them."""
    from sifirdan.presets import KEPT, names, use_preset

    if arguments.name is None:
        print("\n".join(names(Path())))
        return
    changed = use_preset(Path(), arguments.name)
    print("\n".join(changed))
    kept = f"; the old params.yaml is {KEPT}" if changed else ""
    print(f"preset {arguments.name}: {len(changed)} lines of params.yaml changed{kept}")


def doctor(_: argparse.Namespace) -> int:
    """Say what this machine has, what is missing and how to get it."""
    from sifirdan.doctor import examine

    findings = examine(Path.cwd())
    for finding in findings:
        print(
            f"{'ok   ' if finding.ok else 'MISSING' if finding.needed else 'note '} {finding.text}"
        )
        if finding.todo:
            print(f"      what to do: {finding.todo}")
    return int(any(finding.needed and not finding.ok for finding in findings))
