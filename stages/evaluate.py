"""Measure a finished model: `python -m stages.evaluate base` or `… chat`.

Reads models/X, data/corpus, data/tokens (and data/chat for the chat model). Writes
reports/evaluate/X: a Markdown report, a plot, all samples; and the metrics. Costs about a minute
on two cores for the default corpus; memory for one batch of logits.
"""

import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sifirdan import runs, track
from sifirdan.chat import Message
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.records import read_folder
from sifirdan.corpus.shards import Shards
from sifirdan.device import prepare
from sifirdan.errors import ConfigError, require, run_command
from sifirdan.evals.answers import Answer, answer, answer_nats, own_question_share
from sifirdan.evals.bits_per_byte import Score, score_documents, total
from sifirdan.evals.samples import Sample, draw_samples, known_word_share, words_of
from sifirdan.generate import Sampling
from sifirdan.model.checkpoint import load_model
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.tokenizer import Tokenizer

SPLITS = ("val", "test", "ood")


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    stride: int
    prompts: list[str]
    temperatures: list[float]
    num_samples: int
    sample_temperature: float
    sample_tokens: int
    chat_prompts: list[str]
    chat_temperature: float
    chat_top_p: float
    answer_tokens: int
    num_questions: int

    def __post_init__(self) -> None:
        for key in ("stride", "sample_tokens", "answer_tokens"):
            require(getattr(self, key) >= 1, f"evaluate.{key}", getattr(self, key), "1 or more")
        for key in ("num_samples", "num_questions"):
            require(getattr(self, key) >= 0, f"evaluate.{key}", getattr(self, key), "0 or more")
        for temperature in (*self.temperatures, self.sample_temperature):
            Sampling(temperature, 0, 1.0)
        Sampling(self.chat_temperature, 0, self.chat_top_p)


@dataclass(frozen=True)
class Findings:
    """What one evaluation found; becomes the metrics and the report."""

    scores: dict[str, dict[str, Score]]  # split -> source -> score
    samples: list[Sample]
    free_samples: list[Sample]
    word_shares: dict[str, float]
    chat: dict[str, Any]
    answers: list[Answer]


def evaluate(
    name: str,
    model_folder: Path,
    corpus: Path,
    tokens: Path,
    chat_folder: Path | None,
    out: Path,
    params: Params,
    runtime: Runtime,
) -> dict[str, Any]:
    """Score the model `name` ("base" or "chat"), draw samples, write the report; returns metrics."""
    device = prepare(runtime)
    inputs = {
        "model": runs.open_folder(
            model_folder, "model", made_by="finetune" if name == "chat" else "train"
        ),
        "corpus": runs.open_folder(corpus, "corpus", made_by="clean"),
        "tokens": runs.open_folder(tokens, "tokens", made_by="tokenize_corpus"),
    }
    if chat_folder:
        inputs["chat"] = runs.open_folder(chat_folder, "chat", made_by="prepare_chat")
    model, tokenizer = load_model(model_folder, device), Tokenizer.load(model_folder)
    window = model.config.context_length
    stride = min(params.stride, window)
    scores = {
        split: _score_split(model, Shards(tokens / split), window, stride, tokenizer.eos_id)
        for split in SPLITS
    }
    prompt_room = window - params.sample_tokens - 1
    prompts = [prompt for prompt in params.prompts if len(tokenizer.encode(prompt)) < prompt_room]
    samples = [
        sample
        for temperature in params.temperatures
        for sample in draw_samples(
            model, tokenizer, prompts, sampling=Sampling(temperature, 0, 1.0),
            max_new_tokens=min(params.sample_tokens, window - 1), seed=params.seed,
        )
    ] if prompts else []  # fmt: skip
    free_samples = draw_samples(
        model, tokenizer, [""] * params.num_samples, sampling=Sampling(params.sample_temperature, 0, 1.0),
        max_new_tokens=min(params.sample_tokens, window - 1), seed=params.seed,
    ) if params.num_samples else []  # fmt: skip
    chat, answers = (
        _examine_chat(model, tokenizer, chat_folder, params) if chat_folder else ({}, [])
    )
    findings = Findings(
        scores, samples, free_samples, _word_shares(corpus, free_samples), chat, answers
    )
    made: dict[str, Any] = {
        "inputs": inputs,
        "params": asdict(params),
        "packages": ("torch", "sentencepiece"),
    }
    with runs.new_folder(out, kind="evaluation", **made) as output:
        _write_report(output.path, name, findings, window, stride, params)
    return _metrics(findings, window, stride)


def _score_split(
    model: Transformer, shards: Shards, window: int, stride: int, eos_id: int
) -> dict[str, Score]:
    documents = [shards.tokens(index) for index in range(len(shards))]
    scores = score_documents(
        model, documents, shards.column("num_bytes"), window=window, stride=stride, eos_id=eos_id
    )
    by_source: dict[str, list[Score]] = {}
    for source, score in zip(shards.column("source"), scores, strict=True):
        by_source.setdefault(source, []).append(score)
    return {source: total(part) for source, part in sorted(by_source.items())}


def _word_shares(corpus: Path, samples: list[Sample]) -> dict[str, float]:
    vocabulary = {
        word for document in read_folder(corpus / "train") for word in words_of(document.text)
    }
    return {
        "samples": known_word_share([sample.text for sample in samples], vocabulary),
        "val": known_word_share(
            (document.text for document in read_folder(corpus / "val")), vocabulary
        ),
    }


def _examine_chat(
    model: Transformer, tokenizer: Tokenizer, folder: Path, params: Params
) -> tuple[dict[str, Any], list[Answer]]:
    """Checks on questions the model was not tuned on: does it stop, with one sentence, differently
    for different questions, and does it tell its own question's answer from another's?"""
    sampling = Sampling(params.chat_temperature, 0, params.chat_top_p)
    results: dict[str, Any] = {}
    all_answers: list[Answer] = []
    for name in ("known", "unseen"):
        asked, wordings = _draw_questions(folder / f"{name}.jsonl", params)
        if not asked:
            continue
        answers = answer(
            model,
            tokenizer,
            asked,
            sampling=sampling,
            max_new_tokens=params.answer_tokens,
            seed=params.seed,
        )
        nats = answer_nats(model, tokenizer, asked)
        results[name] = {
            "questions": len(asked),
            "stopped_share": sum(a.stopped for a in answers) / len(answers),
            "one_sentence_share": sum(a.stopped and a.is_one_sentence for a in answers)
            / len(answers),
            "distinct_share": len({a.text for a in answers}) / len(answers),
            "own_question_share": own_question_share(model, tokenizer, asked, wordings),
            "own_question_share_any_wording": own_question_share(
                model, tokenizer, asked, [None] * len(asked)
            ),
            "exact_match_share": sum(a.text.strip() == a.expected for a in answers) / len(answers),
            "nats_per_target": sum(n for n, _ in nats) / sum(t for _, t in nats),
        }
        all_answers += answers
    spoken: list[list[Message]] = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": "-"}]
        for prompt in params.chat_prompts
    ]
    talk = answer(
        model,
        tokenizer,
        spoken,
        sampling=sampling,
        max_new_tokens=params.answer_tokens,
        seed=params.seed,
    )
    return results, [*talk, *all_answers]


def _draw_questions(path: Path, params: Params) -> tuple[list[list[Message]], list[int | None]]:
    """Dictionary questions (kind "definition") of a file of messages, drawn by seed, and the number
    of each one's wording."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    drawn = [row for row in rows if row["type"] == "definition"]
    random.Random(params.seed).shuffle(drawn)
    drawn = drawn[: params.num_questions]
    return [row["messages"] for row in drawn], [row["template"] for row in drawn]


def _metrics(findings: Findings, window: int, stride: int) -> dict[str, Any]:
    metrics: dict[str, Any] = {"window": window, "stride": stride}
    for split, by_source in findings.scores.items():
        if not by_source:
            continue
        whole = total(list(by_source.values()))
        metrics[split] = {
            "bits_per_byte": whole.bits_per_byte,
            "token_perplexity": whole.token_perplexity,
            "documents": whole.documents,
            "tokens": whole.tokens,
            "bytes": whole.num_bytes,
            "sources": {source: score.bits_per_byte for source, score in by_source.items()},
        }
    metrics["known_word_share"] = findings.word_shares
    if findings.chat:
        metrics["questions"] = findings.chat
    return metrics


def _write_report(
    folder: Path, name: str, findings: Findings, window: int, stride: int, params: Params
) -> None:
    everything: list[Sample | Answer] = [
        *findings.samples,
        *findings.free_samples,
        *findings.answers,
    ]
    lines = "".join(json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in everything)
    runs.write_text(folder / "samples.jsonl", lines)
    _plot(folder / "bits_per_byte.png", findings.scores)
    parts = [
        f"# Evaluation of models/{name}\n",
        f"Bits per byte of the text as stored, closing marks included; every token scored once, each "
        f"document from `</s>`, window {window} tokens, stride {stride}. Token perplexity compares only "
        "within one tokenizer.\n",
        "| split | source | documents | bytes | bits per byte | token perplexity |\n|---|---|---|---|---|---|",
    ]
    for split, by_source in findings.scores.items():
        for source, score in {**by_source, "all": total(list(by_source.values()))}.items():
            if score.documents:
                parts.append(
                    f"| {split} | {source} | {score.documents} | {score.num_bytes} | "
                    f"{score.bits_per_byte:.3f} | {score.token_perplexity:.1f} |"
                )
    parts.append("\n![bits per byte](bits_per_byte.png)\n")
    if findings.chat:
        parts.append("## Questions it was not tuned on\n\n| set | check | value |\n|---|---|---|")
        parts += [
            f"| {group} | {check} | {value:.3f} |" for group, checks in findings.chat.items()
            for check, value in checks.items()
        ]  # fmt: skip
        shown = findings.answers[: len(params.chat_prompts) + 20]
        parts.append(
            "\n" + "\n".join(f"- **{a.question}** {_inline(a.text)}" for a in shown) + "\n"
        )
    parts.append(
        f"## {len(findings.free_samples)} samples from nothing, temperature {params.sample_temperature}\n"
    )
    parts.append(
        f"Words that occur in the training text: {findings.word_shares['samples']:.1%} "
        f"(val: {findings.word_shares['val']:.1%}).\n"
    )
    parts += [
        f"{index}. {_inline(sample.text)}" for index, sample in enumerate(findings.free_samples, 1)
    ]
    parts.append("\n## Fixed prompts\n")
    parts += [
        f"- T={sample.temperature:g}: **{sample.prompt}**{_inline(sample.text)}"
        for sample in findings.samples
    ]
    runs.write_text(folder / "report.md", "\n".join(parts) + "\n")


def _inline(text: str) -> str:
    return text.replace("\n", " ⏎ ").replace("*", r"\*")


def _plot(path: Path, scores: Mapping[str, Mapping[str, Score]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars: Sequence[tuple[str, float]] = [
        (f"{split} {source}", score.bits_per_byte)
        for split, by_source in scores.items()
        for source, score in by_source.items()
    ]
    figure, axis = pyplot.subplots(figsize=(7, 1 + 0.35 * len(bars)), layout="constrained")
    drawn = axis.barh([label for label, _ in bars], [value for _, value in bars])
    axis.bar_label(drawn, fmt="%.3f", padding=3)
    axis.invert_yaxis()
    axis.set(xlabel="bits per byte")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    if sys.argv[1:] not in (["base"], ["chat"]):
        raise ConfigError(f"evaluate was called with {sys.argv[1:]}", expected="'base' or 'chat'")
    name = sys.argv[1]
    params = load_params(PARAMS_FILE, "evaluate", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    model, out = Path("models") / name, Path("reports/evaluate") / name
    corpus, tokens = Path("data/corpus"), Path("data/tokens")
    chat = Path("data/chat") if name == "chat" else None
    inputs = {name: model, "corpus": corpus, "tokens": tokens} | ({"chat": chat} if chat else {})
    with track.stage(
        f"evaluate_{name}", params=asdict(params), inputs=inputs, outputs={"report": out}
    ) as run:
        metrics = evaluate(name, model, corpus, tokens, chat, out, params, runtime)
        run.log_artifact(out / "report.md")
        run.log_artifact(out / "bits_per_byte.png")
        run.finish(metrics, Path(f"metrics/evaluate_{name}.json"))


if __name__ == "__main__":
    run_command(main)
