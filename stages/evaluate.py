"""Measure a finished model: `python -m stages.evaluate base` or `… chat`.

Reads models/X, data/corpus, data/tokens; for the chat model also data/chat and the metrics of the base
model. Writes reports/evaluate/X (samples, answers, minimal pairs, what the page of `report` is drawn
from) and the metrics. Costs about a minute on two cores for the default corpus; memory for one batch
of logits.
"""

import json
import logging
import lzma
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sifirdan import runs, track
from sifirdan.chat import Message
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.records import read_texts
from sifirdan.corpus.sample import draw
from sifirdan.corpus.shards import Shards
from sifirdan.device import prepare
from sifirdan.errors import ConfigError, require, run_command
from sifirdan.evals.answers import Answer, answer
from sifirdan.evals.chat_exam import constant_answers, draw_questions, examine
from sifirdan.evals.generation import against_training, by_temperature, measure_samples
from sifirdan.evals.language_model import (
    calibration,
    fingerprint,
    measure,
    score_tokens,
    text_facts,
    token_counts,
    unigram_bits_per_byte,
)
from sifirdan.evals.minimal_pairs.baselines import count, length_accuracy, unigram_accuracy
from sifirdan.evals.minimal_pairs.baselines import words_of as written_words
from sifirdan.evals.minimal_pairs.pairs import all_pairs
from sifirdan.evals.minimal_pairs.publish import write_pairs
from sifirdan.evals.minimal_pairs.scoring import PairResult, by_phenomenon, overall, score_pairs
from sifirdan.evals.multiple_choice import TASKS, accuracy, read_task, score_items
from sifirdan.evals.samples import Sample, draw_samples, known_word_share, words_of
from sifirdan.generate import Sampling
from sifirdan.json_files import damaged, read_object
from sifirdan.model.checkpoint import load_model
from sifirdan.model.transformer import Transformer
from sifirdan.runtime import Runtime
from sifirdan.tokenizer import Tokenizer

SPLITS = ("val", "test", "ood")
QUESTION_SETS = ("known", "unseen", "handwritten")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    stride: int
    training_bytes: int
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
    num_questions_a_type: int
    max_forgetting: float

    def __post_init__(self) -> None:
        for key in ("stride", "training_bytes", "sample_tokens", "answer_tokens"):
            require(getattr(self, key) >= 1, f"evaluate.{key}", getattr(self, key), "1 or more")
        for key in (
            "seed",
            "num_samples",
            "num_questions",
            "num_questions_a_type",
            "max_forgetting",
        ):
            require(getattr(self, key) >= 0, f"evaluate.{key}", getattr(self, key), "0 or more")
        for temperature in (*self.temperatures, self.sample_temperature):
            Sampling(temperature, 0, 1.0)
        Sampling(self.chat_temperature, 0, self.chat_top_p)


@dataclass(frozen=True)
class Places:
    """The folders that an evaluation reads, and its output; `chat` and `base_metrics`, the metrics of
    the model before tuning, are for a chat model alone."""

    model: Path
    corpus: Path
    tokens: Path
    chat: Path | None
    base_metrics: Path | None
    out: Path


def evaluate(places: Places, params: Params, runtime: Runtime) -> dict[str, Any]:
    """Score the model, draw samples, ask questions; returns the metrics."""
    device = prepare(runtime)
    inputs = _open_inputs(places)
    model, tokenizer = load_model(places.model, device), Tokenizer.load(places.model)
    stride = min(params.stride, model.config.context_length)
    metrics: dict[str, Any] = {
        "window": model.config.context_length,
        "stride": stride,
        "tokenizer": inputs["tokens"].inputs["tokenizer"][:12],
    }
    parts = (*SPLITS, "samples", "minimal pairs", "tasks", *(["questions"] if places.chat else []))
    bins: dict[str, Any] = {}
    texts = {split: list(read_texts(places.corpus / split)) for split in SPLITS}
    for split, found in texts.items():
        _begin(split, parts)
        shards = Shards(places.tokens / split)
        if len(shards):
            metrics[split], bins[split] = _score(model, tokenizer, shards, found, stride, params)
    train = Shards(places.tokens / "train")
    counts = token_counts((train.tokens(n) for n in range(len(train))), tokenizer.vocab_size)
    val = [text for _, _, text in texts["val"]]
    if "val" in metrics:
        metrics["val"] |= _yardsticks(Shards(places.tokens / "val"), val, counts)
    _begin("samples", parts)
    samples = _draw(model, tokenizer, params)
    metrics["samples"] = _measure_samples(places.corpus / "train", val, samples, params)
    _begin("minimal pairs", parts)
    pairs = score_pairs(model, tokenizer, all_pairs())
    phenomena = by_phenomenon(pairs)
    frequent = _pair_baselines(tokenizer, counts, places.corpus / "train", params)
    metrics["minimal_pairs"] = {**overall(phenomena), "phenomena": phenomena}
    _begin("tasks", parts)
    metrics["tasks"] = _tasks(model, tokenizer)
    answers: list[Answer] = []
    if places.chat:
        _begin("questions", parts)
        metrics["questions"], answers = _examine(model, tokenizer, places.chat, params)
        metrics["forgetting"] = _forgetting(metrics, places.base_metrics, params)
    with runs.new_folder(
        places.out, kind="evaluation", inputs=inputs, params=asdict(params),
        packages=("torch", "sentencepiece"),
    ) as output:  # fmt: skip
        _write_lines(output.path / "samples.jsonl", [*samples, *answers])
        _write_lines(output.path / "pair_results.jsonl", [_pair_row(result) for result in pairs])
        runs.write_json(output.path / "calibration.json", bins)
        runs.write_json(output.path / "pair_baselines.json", frequent)
        if not places.chat:  # the data set for others, once
            write_pairs(output.path / "pairs", frequent)
    return metrics


def _begin(part: str, parts: Sequence[str]) -> None:
    """A line a part: some take minutes on a slow machine."""
    number = parts.index(part) + 1
    then = parts[number] if number < len(parts) else "the report"
    _log.info("evaluate: %s (%d of %d), then %s", part, number, len(parts), then)


def _open_inputs(places: Places) -> dict[str, runs.Manifest]:
    made_by = "finetune" if places.chat else "train"
    inputs = {
        "model": runs.open_folder(places.model, "model", made_by=made_by),
        "corpus": runs.open_folder(places.corpus, "corpus", made_by="clean"),
        "tokens": runs.open_folder(places.tokens, "tokens", made_by="tokenize_corpus"),
    }
    if places.chat:
        inputs["chat"] = runs.open_folder(places.chat, "chat", made_by="prepare_chat")
    return inputs


def _score(
    model: Transformer,
    tokenizer: Tokenizer,
    shards: Shards,
    texts: Sequence[tuple[str, str, str]],
    stride: int,
    params: Params,
) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """The metrics of one split, and the bins of its calibration diagram; `texts` are the documents
    of the split as `read_texts` gives them."""
    names = shards.column("document")
    facts = {name: text_facts(source, text) for name, source, text in texts}
    scores = score_tokens(
        model, [shards.tokens(index) for index in range(len(shards))],
        window=model.config.context_length, stride=stride, eos_id=tokenizer.eos_id,
    )  # fmt: skip
    found = measure(scores, [facts[name] for name in names], seed=params.seed)
    return {"text": fingerprint(names)} | found, calibration(scores)["bins"]


def _yardsticks(val: Shards, texts: Sequence[str], counts: np.ndarray) -> dict[str, float]:
    """Bits per byte of val without any model: by the frequencies of the tokens in the training text,
    and packed by xz."""
    num_bytes = sum(val.column("num_bytes"))
    documents = [val.tokens(index) for index in range(len(val))]
    return {
        "unigram_bits_per_byte": unigram_bits_per_byte(counts, documents, num_bytes),
        "xz_bits_per_byte": 8 * len(lzma.compress("\n".join(texts).encode(), preset=9)) / num_bytes,
    }


def _pair_baselines(
    tokenizer: Tokenizer, counts: np.ndarray, train: Path, params: Params
) -> dict[str, dict[str, float]]:
    """What frequencies of words and tokens, or the number of tokens, would get of the minimal pairs: of
    the training text, of which no more words are counted than samples are held against."""
    pairs, frequencies = all_pairs(), Counter(dict(enumerate(counts.tolist())))
    words = count(draw(train, params.training_bytes, {}, params.seed).texts(), written_words)
    return {
        "words": unigram_accuracy(pairs, words, written_words),
        "tokens": unigram_accuracy(pairs, frequencies, tokenizer.encode),
        "fewer tokens": length_accuracy(pairs, lambda text: len(tokenizer.encode(text))),
    }


def _pair_row(result: PairResult) -> dict[str, Any]:
    pair = result.pair
    row = {"id": pair.id, "good": pair.good, "bad": pair.bad}
    return row | {"good_nats": result.good_nats, "bad_nats": result.bad_nats}


def _tasks(model: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Our own multiple-choice tasks."""
    return {
        name: asdict(
            accuracy(
                score_items(
                    model, tokenizer.encode_many, read_task(name),
                    window=model.config.context_length, mark_id=tokenizer.eos_id, mark_before_context=False,
                )
            )
        )
        for name in TASKS
    }  # fmt: skip


def _draw(model: Transformer, tokenizer: Tokenizer, params: Params) -> list[Sample]:
    """Samples from nothing first, then the fixed prompts at each temperature."""
    length = min(params.sample_tokens, model.config.context_length - 1)
    room = model.config.context_length - params.sample_tokens - 1
    prompts = [prompt for prompt in params.prompts if len(tokenizer.encode(prompt)) < room]
    wanted = [(params.sample_temperature, [""] * params.num_samples)]
    wanted += [(temperature, prompts) for temperature in params.temperatures]
    return [
        sample
        for temperature, starts in wanted
        if starts
        for sample in draw_samples(
            model, tokenizer, starts, sampling=Sampling(temperature, 0, 1.0),
            max_new_tokens=length, seed=params.seed,
        )
    ]  # fmt: skip


def _measure_samples(
    train: Path, val: Sequence[str], samples: list[Sample], params: Params
) -> dict[str, Any]:
    """The free samples under their own names, the prompted ones by temperature."""
    val_words = {word for text in val for word in words_of(text)}
    training = draw(train, params.training_bytes, {}, params.seed)
    against = against_training(samples, val_words, training.texts())
    free, prompted = samples[: params.num_samples], samples[params.num_samples :]
    split = replace(against, copies=against.copies[: params.num_samples])
    rest = replace(against, copies=against.copies[params.num_samples :])
    return {
        **measure_samples(free, split),
        "val_known_word_share": known_word_share(val, against.known),
        "searched_bytes": sum(training.num_bytes.values()),
        "temperatures": by_temperature(prompted, rest),
    }


def _examine(
    model: Transformer, tokenizer: Tokenizer, folder: Path, params: Params
) -> tuple[dict[str, Any], list[Answer]]:
    """Held-out questions by set and type; the answers begin with those to the fixed prompts."""
    sampling = Sampling(params.chat_temperature, 0, params.chat_top_p)
    constants = constant_answers(runs.read_lines(folder / "train.jsonl"), params.seed)
    talk: list[list[Message]] = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": "-"}]
        for prompt in params.chat_prompts
    ]
    answers = answer(
        model, tokenizer, talk, sampling=sampling, max_new_tokens=params.answer_tokens, seed=params.seed
    ) if talk else []  # fmt: skip
    results: dict[str, Any] = {}
    for name in QUESTION_SETS:
        questions = draw_questions(
            runs.read_lines(folder / f"{name}.jsonl"), main=params.num_questions,
            others=params.num_questions_a_type, seed=params.seed,
        )  # fmt: skip
        if questions:
            found, given = examine(
                model, tokenizer, questions, constants,
                sampling=sampling, max_new_tokens=params.answer_tokens, seed=params.seed,
            )  # fmt: skip
            asked = [question.messages[0]["content"] for question in questions]
            results[name] = {"text": fingerprint(asked), **found}
            answers += given
    return results, answers


def _forgetting(
    metrics: Mapping[str, Any], base_metrics: Path | None, params: Params
) -> dict[str, Any]:
    """What tuning cost on the text of pretraining, in bits per byte of val."""
    assert base_metrics is not None
    todo = "dvc repro evaluate_base"
    before = read_object(base_metrics, todo=todo).get("val")
    after = metrics.get("val")
    if not before or not after:
        return {}
    if not isinstance(before, dict) or not isinstance(before.get("bits_per_byte"), float | int):
        raise damaged(str(base_metrics), "val.bits_per_byte is no number", todo=todo)
    if before.get("text") != after["text"]:
        return {}
    rise = after["bits_per_byte"] - before["bits_per_byte"]
    if rise > params.max_forgetting:
        _log.warning(
            "evaluate_chat: tuning raised the bits per byte of val by %.3f (from %.3f to %.3f), more than "
            "evaluate.max_forgetting (%g): the model forgets; lower finetune's rates or epochs",
            rise, before["bits_per_byte"], after["bits_per_byte"], params.max_forgetting,
        )  # fmt: skip
    return {
        "before": before["bits_per_byte"],
        "after": after["bits_per_byte"],
        "rise": rise,
        "above_limit": int(rise > params.max_forgetting),
    }


def _write_lines(path: Path, items: Sequence[Any]) -> None:
    rows = (item if isinstance(item, dict) else asdict(item) for item in items)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    runs.write_text(path, "".join(lines))


def _sample_rows(path: Path) -> list[dict[str, Any]]:
    """Prompted samples as MLflow's page compares them: a row a prompt and temperature."""
    return [
        {"prompt": f"{row['prompt']} (T={row['temperature']:g})", "text": row["text"]}
        for row in runs.read_lines(path)
        if row.get("prompt")
    ]


def main() -> None:
    if sys.argv[1:] not in (["base"], ["chat"]):
        raise ConfigError(f"evaluate was called with {sys.argv[1:]}", expected="'base' or 'chat'")
    name = sys.argv[1]
    params = load_params(PARAMS_FILE, "evaluate", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    chat = name == "chat"
    places = Places(
        Path("models") / name, Path("data/corpus"), Path("data/tokens"),
        Path("data/chat") if chat else None, Path("metrics/evaluate_base.json") if chat else None,
        Path("reports/evaluate") / name,
    )  # fmt: skip
    inputs = {name: places.model, "corpus": places.corpus, "tokens": places.tokens}
    inputs |= {"chat": places.chat} if places.chat else {}
    with track.stage(
        f"evaluate_{name}", params=asdict(params), inputs=inputs, outputs={"report": places.out}
    ) as run:
        metrics = evaluate(places, params, runtime)
        run.log_table(_sample_rows(places.out / "samples.jsonl"), f"samples/{name}.json")
        run.log_artifact(places.out / "samples.jsonl")
        if runtime.register_models and "val" in metrics:
            val = metrics["val"]
            run.register_model(
                name, places.model, bits_per_byte=val["bits_per_byte"], text=val["text"]
            )
        run.finish(metrics, Path(f"metrics/evaluate_{name}.json"))


if __name__ == "__main__":
    run_command(main)
