"""The last stage: a page for each model, one page that leads to every report, and the summary card.

Reads every metrics file, the reports, the models' cards and configurations, and `reference/`, the run that
others are compared with. Writes reports/index/: `index.html`, `base.html`, `chat.html`, each self-contained,
and `card.txt`, which it also prints. Gives the tracking run the numbers of the stages that DVC took from its
cache, and closes it. Costs seconds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from sifirdan import runs, track
from sifirdan.compare.metrics_files import read_metrics
from sifirdan.compare.noise import REFERENCE_FOLDER, load_noise
from sifirdan.compare.reference import load_reference
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.errors import require, run_command
from sifirdan.pages.index_page import index_page
from sifirdan.pages.model_facts import unspelled
from sifirdan.pages.model_page import collect, model_page
from sifirdan.track_record import CHAT_DATA

STAGES = (
    "ingest",
    "clean",
    "train_tokenizer",
    "evaluate_tokenizer",
    "tokenize_corpus",
    "train",
    "evaluate_base",
    "prepare_chat",
    "finetune",
    "evaluate_chat",
)
CARD_CHARS = 160  # of a sample
MODELS = {"base": "The base model: how good it is", "chat": "The chat model: how good it is"}
LINKS = {
    "corpus/report.html": "The corpus: what came in, what went and why",
    "tokenizer/report.md": "The tokenizer's report card, beside others",
    "train/curve.png": "Curve of pretraining",
    "finetune/curve.png": "Curve of instruction tuning",
}
FOLDERS = {  # by the names of their tags, as the stages that make them give them
    "raw": Path("data/raw"),
    "corpus": Path("data/corpus"),
    "tokenizer": Path("models/tokenizer"),
    "tokens": Path("data/tokens"),
    "base": Path("models/base"),
    CHAT_DATA: Path("data/chat"),
    "chat_model": Path("models/chat"),
}
CURVES = {name: Path("reports") / name / "curve.jsonl" for name in ("train", "finetune")}


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    samples_on_card: int

    def __post_init__(self) -> None:
        require(
            self.samples_on_card >= 0, "report.samples_on_card", self.samples_on_card, "0 or more"
        )


def report(
    metrics_folder: Path, reports: Path, models: Path, reference: Path, out: Path, params: Params
) -> dict[str, Any]:
    """Write the pages and the card; returns the headline numbers."""
    metrics = {name: unspelled(read_metrics(metrics_folder / f"{name}.json")) for name in STAGES}
    card = make_card(metrics, reports, params)
    compared = load_reference(reference / "run.json")
    noise = load_noise(reference / "noise.json")
    inputs = {
        f"evaluate_{name}": runs.open_folder(
            reports / "evaluate" / name, "evaluation", made_by=f"evaluate_{name}"
        )
        for name in MODELS
    }
    links = {f"{name}.html": label for name, label in MODELS.items()}
    links |= {f"../{path}": label for path, label in LINKS.items() if (reports / path).is_file()}
    with runs.new_folder(out, kind="index", inputs=inputs, params=asdict(params)) as output:
        runs.write_text(output.path / "card.txt", card)
        for name in MODELS:
            facts = collect(name, metrics, reports, models, compared, noise, _code(metrics))
            runs.write_text(output.path / f"{name}.html", model_page(facts))
        runs.write_text(output.path / "index.html", index_page(card, links, metrics))
    return {
        "val_bits_per_byte": metrics["evaluate_base"]["val"]["bits_per_byte"],
        "chat_val_bits_per_byte": metrics["evaluate_chat"]["val"]["bits_per_byte"],
    }


def _code(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The release, and the hashes of the code that trained."""
    trained = {name: metrics[name]["code"] for name in ("train", "finetune") if "code" in metrics[name]}  # fmt: skip
    return {"sifirdan": metadata.version("sifirdan"), **trained}


def make_card(metrics: dict[str, dict[str, Any]], reports: Path, params: Params) -> str:
    """The summary of a whole run, as plain text."""
    train, base, chat = metrics["train"], metrics["evaluate_base"], metrics["evaluate_chat"]
    corpus, tokens = (
        metrics["clean"]["splits"]["train"],
        metrics["tokenize_corpus"]["splits"]["train"],
    )
    # the metrics of a model trained by an earlier release name no budget
    ((budget, size),) = train.get("budget", {"tokens": train["tokens"]}).items()
    lines = [
        "",
        "sifirdan: your model is ready",
        "",
        f"  data       {corpus['documents']:,} documents, {corpus['bytes'] / 1e6:.1f} MB of training text",
        f"  tokenizer  {metrics['train_tokenizer']['vocab_size']:,} pieces, "
        f"{tokens['bytes'] / tokens['tokens']:.2f} bytes a token",
        f"  model      {train['parameters'] / 1e6:.1f} M parameters, trained on {train['tokens'] / 1e6:.2f} M "
        f"tokens ({train['epochs']:.2f} epochs)",
        f"  quality    {base['val']['bits_per_byte']:.3f} bits per byte on held-out text (lower is better), "
        f"token perplexity {base['val']['token_perplexity']:.1f}",
    ]
    if "ood" in base:
        lines.append(f"             {base['ood']['bits_per_byte']:.3f} bits per byte out of domain")
    lines.append(f"  chat       {_chat_line(chat)}")
    lines += ["", "  two samples of the base model, unedited:"]
    lines += [
        f"    “{text}”" for text in _samples(reports / "evaluate" / "base", params.samples_on_card)
    ]
    lines += [
        "",
        "  what next:",
        "    make ui                        compare your runs in the browser (127.0.0.1)",
        "    .venv/bin/sifirdan chat        talk to your model",
        f"    in params.yaml set train.{budget} to {2 * size}"
        + ", then `make`: twice the text, a better model",
        "",
    ]
    return "\n".join(lines)


def _chat_line(chat: dict[str, Any]) -> str:
    known = chat.get("questions", {}).get("known", {})
    if "stopped_share" not in known:
        return "tuned; no dictionary questions to check it with"
    line = f"{known['stopped_share']:.0%} of {known['questions']} questions answered and ended"
    if "own_question_share" in known:
        line += (
            f", {known['own_question_share']:.0%} tell their own question's answer from another's"
        )
    return line


def _samples(folder: Path, count: int) -> list[str]:
    texts = []
    for sample in runs.read_lines(folder / "samples.jsonl"):
        if sample.get("prompt") == "" and sample["text"].strip():
            text = " ".join(sample["text"].split())
            texts.append(text if len(text) <= CARD_CHARS else f"{text[:CARD_CHARS]} …")
    return texts[:count]


def main() -> None:
    params = load_params(PARAMS_FILE, "report", Params)
    out = Path("reports/index")
    with track.stage("report", params=asdict(params), inputs={}, outputs={"index": out}) as run:
        metrics = report(
            Path("metrics"), Path("reports"), Path("models"), REFERENCE_FOLDER, out, params
        )
        for name in ("card.txt", "index.html", *(f"{model}.html" for model in MODELS)):
            run.log_artifact(out / name)
        run.finish(metrics, Path("metrics/report.json"))
        files = {name: Path("metrics") / f"{name}.json" for name in STAGES}
        track.close_pipeline(files, CURVES, FOLDERS)
    print((out / "card.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    run_command(main)
