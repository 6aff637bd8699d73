"""The presets for real corpora: their Hub sources, read by the real client from a Hub on loopback
that has the same names, commits and columns."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import hub_fixture
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_fixture import DataSet

from sifirdan import runs
from sifirdan.config import load_params, read_yaml
from sifirdan.corpus import records
from sifirdan.corpus.source_kinds import HuggingFaceSource
from stages.ingest import Params

ROOT = Path(__file__).parents[1]
WIKI, FINEWEB = "presets/wiki-tr.yaml", "presets/fineweb2-tr.yaml"

# Runs in a process of its own: the client reads the Hub's address when it is imported.
SCRIPT = """
import dataclasses, sys
from pathlib import Path
from sifirdan.config import load_params
from stages.ingest import Params, ingest
preset, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
params = load_params(Path(preset), "ingest", Params)
source = dataclasses.replace(params.sources[name], max_documents=int(sys.argv[4]) or None)
(folder / "own").mkdir(exist_ok=True)
params = dataclasses.replace(params, own_text=str(folder / "own"), sources={name: source})
ingest(folder / "raw", params, cache=folder / "cache", root=folder)
"""


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def article(number: int) -> dict[str, Any]:
    url = f"https://tr.wikipedia.org/wiki/Sayfa_{number}"
    text = f"Sayfa {number}\n\nIğdır'da {number}. sayfanın metni."
    return {"id": str(number), "url": url, "title": f"Sayfa {number}", "text": text}


def web_page(number: int) -> dict[str, Any]:
    return {
        "text": f"{number}. sayfa: şöyle böyle bir yazı.", "id": f"<urn:uuid:{number}>",
        "dump": "CC-MAIN-2024-10", "url": f"https://ornek.com.tr/{number}",
        "date": "2024-02-21T05:06:07Z", "file_path": "s3://commoncrawl/x.warc.gz",
        "language": "tur", "language_score": 0.9987, "language_script": "Latn",
        "minhash_cluster_size": 3, "top_langs": '{"tur_Latn_score": 0.9987}',
    }  # fmt: skip


def card(configs: dict[str, dict[str, str]]) -> bytes:
    lines = ["---", "configs:"]
    for name, splits in configs.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, path in splits.items():
            lines += [f"  - split: {split}", f"    path: {path}"]
    return ("\n".join([*lines, "---"]) + "\n").encode()


@pytest.fixture
def data_sets() -> dict[str, DataSet]:
    """Both data sets as they lie on the Hub, in small: other configs stand beside the wanted one."""
    wiki = {
        "README.md": card(
            {
                "20231101.az": {"train": "20231101.az/train-*"},
                "20231101.tr": {"train": "20231101.tr/train-*"},
            }
        ),
        "20231101.az/train-00000-of-00001.parquet": parquet([article(900)]),
        "20231101.tr/train-00000-of-00002.parquet": parquet([article(n) for n in range(3)]),
        "20231101.tr/train-00001-of-00002.parquet": parquet([article(n) for n in range(3, 5)]),
    }
    web = {
        "README.md": card(
            {
                "azj_Latn": {"train": "data/azj_Latn/train/*"},
                "tur_Latn": {"train": "data/tur_Latn/train/*", "test": "data/tur_Latn/test/*"},
            }
        ),
        "data/azj_Latn/train/000_00000.parquet": parquet([web_page(900)]),
        "data/tur_Latn/train/000_00000.parquet": parquet([web_page(n) for n in range(3)]),
        "data/tur_Latn/train/000_00001.parquet": parquet([web_page(n) for n in range(3, 5)]),
        "data/tur_Latn/test/000_00000.parquet": parquet([web_page(800)]),
    }
    return {
        "wikimedia/wikipedia": DataSet(revision(WIKI, "wikipedia"), wiki),
        "HuggingFaceFW/fineweb-2": DataSet(revision(FINEWEB, "fineweb2"), web),
    }


def source_of(preset: str, name: str) -> HuggingFaceSource:
    source = load_params(ROOT / preset, "ingest", Params).sources[name]
    assert isinstance(source, HuggingFaceSource)
    return source


def revision(preset: str, name: str) -> str:
    found = source_of(preset, name).revision
    assert found is not None and len(found) == 40
    return found


def run(hub: hub_fixture.Hub, preset: str, name: str, folder: Path, limit: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT / preset), name, str(folder), str(limit)],
        cwd=ROOT, env=hub_fixture.environment(hub, folder / "hf"), capture_output=True,
        encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "name", "kind", "meta"),
    [(WIKI, "wikipedia", "curated", article), (FINEWEB, "fineweb2", "web", web_page)],
)
def test_a_preset_reads_its_pinned_config_and_nothing_else(
    tmp_path: Path, data_sets: dict[str, DataSet], preset: str, name: str, kind: str, meta: Any
) -> None:
    source = source_of(preset, name)
    with hub_fixture.serve(data_sets) as hub:
        run(hub, preset, name, tmp_path)
    counts = runs.read_manifest(tmp_path / "raw").counts[name]
    assert (counts["documents"], counts["text_kind"]) == (5, kind)
    documents = list(records.read_folder(tmp_path / f"raw/{name}"))
    assert [d.text for d in documents] == [meta(n)["text"] for n in range(5)]
    assert [d.meta for d in documents] == [
        {column: meta(n)[column] for column in source.meta_columns} for n in range(5)
    ]
    place = f"{source.path}@{source.revision}/{source.split}"
    assert [d.origin for d in documents] == [f"{place}#{n}" for n in range(5)]
    assert all(d.license == source.license for d in documents)
    read = [line for line in hub.asked if line.startswith("GET") and line.endswith(".parquet")]
    assert read and all(f"/resolve/{source.revision}/" in line for line in read)
    assert not any("az" in line.split("/resolve/")[1] for line in read)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "name"), [(WIKI, "wikipedia"), (FINEWEB, "fineweb2")])
def test_the_first_documents_are_enough(
    tmp_path: Path, data_sets: dict[str, DataSet], preset: str, name: str
) -> None:
    with hub_fixture.serve(data_sets) as hub:
        run(hub, preset, name, tmp_path, limit=2)
    documents = list(records.read_folder(tmp_path / f"raw/{name}"))
    assert [d.origin[-2:] for d in documents] == ["#0", "#1"]


def test_a_commit_that_the_hub_does_not_have_is_explained(
    tmp_path: Path, data_sets: dict[str, DataSet]
) -> None:
    data_sets["wikimedia/wikipedia"].commit = "0" * 40
    with hub_fixture.serve(data_sets) as hub, pytest.raises(AssertionError) as error:
        run(hub, WIKI, "wikipedia", tmp_path)
    assert "the data set cannot be read" in str(error.value)


@pytest.mark.parametrize("preset", [WIKI, FINEWEB])
def test_a_preset_differs_from_the_default_in_values_only(preset: str) -> None:
    default, content = read_yaml(ROOT / "params.yaml"), read_yaml(ROOT / preset)
    added = set(content["ingest"].pop("sources")) - set(default["ingest"].pop("sources"))
    assert len(added) == 1
    assert json.dumps(shape(content)) == json.dumps(shape(default))


def shape(content: Any) -> Any:
    """The keys of nested mappings, in order."""
    if not isinstance(content, dict):
        return None
    return {key: shape(value) for key, value in content.items()}
