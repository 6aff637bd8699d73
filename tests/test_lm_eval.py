"""lm-eval on our folder and our own scorer say the same, item for item: the task files of
docs/lm_eval are run by its own command, offline."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import tiny_model

from sifirdan import runs
from sifirdan.baselines.language_models import LanguageModel, load_language_model
from sifirdan.corpus.records import Record, document, write_parquet
from sifirdan.evals import multiple_choice, side_by_side
from sifirdan.evals.multiple_choice import ItemScore
from sifirdan.tokenizer import Tokenizer
from sifirdan.training.session import save_trained

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
WINDOW = 64
SHORT = ["Kısa bir metin.", "a", "İki  boşluk\nve satır sonu."]


@pytest.fixture(scope="module")
def lengths(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """Texts of one token less, of just, and of one and more tokens over the window, and long ones."""
    parts = list(SHORT)
    words = " ".join(texts).split()
    for wanted in (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 2 * WINDOW + 1, 5 * WINDOW + 7):
        text = ""
        for word in words:
            text = f"{text} {word}".strip()
            if len(tokenizer.encode(text)) >= wanted:
                break
        while len(tokenizer.encode(text)) > wanted:
            text = text[:-1]
        assert len(tokenizer.encode(text)) == wanted
        parts.append(text)
    return parts


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, lengths: list[str]
) -> Path:
    """A project's folder: a model, validation texts, texts of one's own, the package."""
    root = tmp_path_factory.mktemp("lm eval")
    with runs.new_folder(root / "models/base", kind="model", inputs={}, params={}) as output:
        save_trained(output.path, tiny_model(tokenizer.vocab_size, WINDOW), tokenizer)
    (root / "sifirdan").symlink_to(ROOT / "sifirdan")
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in lengths]
    (root / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    (root / "data/corpus/val").mkdir(parents=True)
    documents = [
        document(Record(str(number), text, {}), source="own", license="CC0-1.0")
        for number, text in enumerate(lengths)
    ]
    write_parquet(root / "data/corpus/val/part-00000.parquet", documents)
    return root


@pytest.fixture(scope="module")
def samples(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What lm-eval noted of each item, by task; and its summary as the only one of "results"."""
    pytest.importorskip("lm_eval", reason="pip install 'sifirdan[eval]'")
    pytest.importorskip("accelerate", reason="pip install 'sifirdan[eval]'")
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf"]
    command += ["--model_args", "pretrained=models/base", "--device", "cpu", "--batch_size", "8"]
    command += ["--include_path", str(ROOT / "docs/lm_eval"), "--output_path", "out"]
    command += ["--tasks", "sifirdan,sifirdan_val,sifirdan_texts", "--log_samples"]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | quiet, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[dict[str, Any]]] = {}
    for path in (folder / "out").rglob("*.json*"):
        content = path.read_text(encoding="utf-8")
        if path.name.startswith("results"):
            found["results"] = [json.loads(content)["results"]]
        else:
            task = path.name.removeprefix("samples_").rsplit("_", 1)[0]
            rows = [json.loads(line) for line in content.split("\n") if line]
            found[task] = sorted(rows, key=lambda row: row["doc_id"])
    return found


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_language_model(str(folder / "models/base"))


def scores_of(model: LanguageModel, task: str) -> list[ItemScore]:
    return multiple_choice.score_items(
        model.model, model.encode_many, multiple_choice.read_task(task), window=WINDOW,
        mark_id=model.mark_id, mark_before_context=model.mark_every_window,
    )  # fmt: skip


@pytest.mark.parametrize("task", multiple_choice.TASKS)
def test_every_choice_gets_the_same_likelihood_and_every_item_the_same_verdict(
    samples: dict[str, list[dict[str, Any]]], model: LanguageModel, task: str
) -> None:
    theirs, ours = samples[f"sifirdan_{task}"], scores_of(model, task)
    assert len(theirs) == len(ours) >= 60
    for row, score in zip(theirs, ours, strict=True):
        found = [-float(answer[0][0]) for answer in row["resps"]]
        assert found == pytest.approx([*score.nats, *score.nats_alone], rel=1e-4)
        verdicts = {
            "acc": score.credit(score.nats),
            "acc_bytes": score.credit(score.nats / score.num_bytes),
            "acc_mutual_info": score.credit(score.nats - score.nats_alone),
        }
        assert {key: row[key] for key in verdicts} == verdicts
    results = samples["results"][0][f"sifirdan_{task}"]
    ours_together = multiple_choice.accuracy(ours)
    assert results["acc,none"] == pytest.approx(ours_together.accuracy, abs=1e-9)
    assert results["acc_stderr,none"] == pytest.approx(ours_together.standard_error, abs=1e-9)
    assert results["acc_bytes,none"] == pytest.approx(ours_together.accuracy_by_bytes, abs=1e-9)


@pytest.mark.parametrize("task", ["sifirdan_texts", "sifirdan_val"])
def test_E_01_bits_per_byte_are_the_same(
    samples: dict[str, list[dict[str, Any]]], model: LanguageModel, lengths: list[str], task: str
) -> None:
    row = side_by_side.score_texts(model, lengths, window=WINDOW, stride=WINDOW)
    results = samples["results"][0][task]
    assert results["bits_per_byte,none"] == pytest.approx(row.bits_per_byte, abs=1e-4)
    assert results["word_perplexity,none"] == pytest.approx(row.word_perplexity, rel=1e-3)
    for sample, text in zip(samples[task], lengths, strict=True):
        alone = side_by_side.score_texts(model, [text], window=WINDOW, stride=WINDOW)
        nats = -float(sample["resps"][0][0])
        assert nats / math.log(2) / alone.bytes == pytest.approx(alone.bits_per_byte, abs=1e-4)


def test_every_task_that_the_page_names_exists() -> None:
    pytest.importorskip("lm_eval", reason="pip install 'sifirdan[eval]'")
    from lm_eval.tasks import TaskManager

    page = (ROOT / "docs/TASKS.md").read_text(encoding="utf-8")
    named = set(
        re.findall(r"^\| `(\w+)` \|", page.split("## lm-eval on your folder")[1], re.MULTILINE)
    )
    commands = re.findall(r"--tasks ([\w,]+)$", page, re.MULTILINE)
    named |= {name for found in commands for name in found.split(",")}
    assert len(named) >= 15
    known = TaskManager(include_path=str(ROOT / "docs/lm_eval")).all_tasks
    assert named <= set(known), named - set(known)
