"""Minimal pairs over training: the default model, and the same model on text without word order.

    python -m bench.minimal_pairs [--page docs/MINIMAL_PAIRS.md] [--picture docs/minimal_pairs.png]
                                  [--tokens N] [--checkpoints 8]

Stand in the folder of a finished run. It is read (data/tokens, models/tokenizer, params.yaml) and not
changed. Two models are trained from the same random weights with the settings of its section `train`:
on its text, and on its text with the words of each document shuffled, which leaves every count of
words as it is. Each is scored on all pairs along the way. Costs twice the training, and for each
checkpoint some seconds.
"""

import argparse
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sifirdan import runs
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus.loader import Batches, Stream
from sifirdan.corpus.shards import Shards, batch_of_ids, write_folder
from sifirdan.device import prepare
from sifirdan.evals.minimal_pairs.baselines import length_accuracy, unigram_accuracy, words_of
from sifirdan.evals.minimal_pairs.pairs import PHENOMENA, all_pairs
from sifirdan.evals.minimal_pairs.scoring import by_phenomenon, overall, score_pairs
from sifirdan.model.transformer import ModelConfig, Transformer
from sifirdan.runtime import Runtime
from sifirdan.tokenizer import Tokenizer
from sifirdan.training.loop import FitSettings, eval_steps, fit
from sifirdan.training.optim import build_optimizers
from sifirdan.training.plan import make_plan
from sifirdan.training.resume import ResumeStore
from stages.train import Params

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
_WORD = re.compile(r"\S+")
_GROUP = 2000  # documents that are shuffled and encoded at once
_MAX_SHARD_TOKENS = 1 << 30


@dataclass(frozen=True)
class Checkpoint:
    """The scores of a model after some training, by phenomenon."""

    tokens: int
    phenomena: Mapping[str, Mapping[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="a page whose marked place is filled")
    parser.add_argument("--picture", type=Path, help="PNG of the curves, beside the page")
    parser.add_argument("--tokens", type=int, help="a smaller budget than that of params.yaml")
    parser.add_argument("--checkpoints", type=int, default=8)
    arguments = parser.parse_args()
    params = load_params(PARAMS_FILE, "train", Params)
    runtime = load_params(PARAMS_FILE, "runtime", Runtime)
    tokenizer = Tokenizer.load(Path("models/tokenizer"))
    shards = Shards(Path("data/tokens/train"))
    num_steps = (arguments.tokens or params.tokens) // params.batch_tokens
    with tempfile.TemporaryDirectory() as folder:
        shuffled = shuffle_words(shards, tokenizer, Path(folder), params.seed)
        base = train(shards, tokenizer, params, runtime, num_steps, arguments.checkpoints)
        control = train(shuffled, tokenizer, params, runtime, num_steps, arguments.checkpoints)
    text = report(base, control, baselines(shards, tokenizer))
    if arguments.picture:
        draw(arguments.picture, base, control)
        text = f"![accuracy over training]({arguments.picture.name})\n\n{text}"
    print(text)
    if arguments.page:
        page = arguments.page.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        runs.write_text(arguments.page, f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}")


def train(
    shards: Shards,
    tokenizer: Tokenizer,
    params: Params,
    runtime: Runtime,
    num_steps: int,
    num_checkpoints: int,
) -> list[Checkpoint]:
    """A model trained as the stage `train` does it, scored at evenly spaced steps."""
    device = prepare(runtime)
    model = Transformer(ModelConfig(tokenizer.vocab_size, params.context_length, params.model))
    model.initialise(torch.Generator().manual_seed(params.seed))
    model.to(device)
    torch.manual_seed(params.seed)
    windows = Stream(
        shards, context_length=params.context_length, seed=params.seed,
        sampling=params.sampling, eos_id=tokenizer.eos_id, document_mask=params.document_mask,
    )  # fmt: skip
    rows = params.batch_tokens // params.context_length
    plan = make_plan(rows, num_steps, params.precision, runtime, device)
    every = -(-num_steps // num_checkpoints)
    scored: list[Mapping[str, Mapping[str, Any]]] = []

    def validate() -> dict[str, float]:
        scored.append(by_phenomenon(score_pairs(model, tokenizer, all_pairs())))
        return {"minimal_pairs": overall(scored[-1])["accuracy"]}

    with tempfile.TemporaryDirectory() as folder:
        points = fit(
            model,
            build_optimizers(model, params.optimizer, plan.dtype),
            Batches(windows, plan.micro_batch),
            FitSettings(
                num_steps=num_steps,
                micro_batches_per_step=plan.accumulation,
                schedule=params.schedule,
                max_grad_norm=params.optimizer.max_grad_norm,
                dtype=plan.dtype,
                compiled=plan.compiled,
                eval_steps=eval_steps(num_steps, every),
                checkpoint_every_steps=num_steps,
                loader_workers=runtime.loader_workers,
            ),
            ResumeStore(Path(folder) / "state", {}),
            validate=validate,
            on_resume=lambda _: None,
            on_point=_say,
            extra={},
        )
    steps = [point["step"] for point in points if "minimal_pairs" in point]
    return [
        Checkpoint(step * params.batch_tokens, phenomena)
        for step, phenomena in zip(steps, scored, strict=True)
    ]


def _say(point: dict[str, Any]) -> None:
    if "minimal_pairs" in point:
        line = " ".join(f"{name}={value:.4g}" for name, value in point.items())
        print(line, file=sys.stderr, flush=True)


def shuffle_words(shards: Shards, tokenizer: Tokenizer, folder: Path, seed: int) -> Shards:
    """The same documents with the words of each in another order; spaces and line ends stay."""
    rng = random.Random(seed)
    documents, sources, sizes = (
        shards.column(name) for name in ("document", "source", "num_bytes")
    )

    def batches() -> Iterator[Any]:
        for first in range(0, len(shards), _GROUP):
            here = slice(first, min(first + _GROUP, len(shards)))
            texts = [
                _shuffled(tokenizer.decode(shards.tokens(i).tolist()), rng)
                for i in range(here.start, here.stop)
            ]
            ids = [
                np.append(some, np.uint32(tokenizer.eos_id))
                for some in tokenizer.encode_arrays(texts)
            ]
            yield batch_of_ids(
                ids, documents[here], sources[here], sizes[here], vocab_size=tokenizer.vocab_size
            )

    write_folder(
        folder, batches(), vocab_size=tokenizer.vocab_size, max_shard_tokens=_MAX_SHARD_TOKENS
    )
    return Shards(folder)


def _shuffled(text: str, rng: random.Random) -> str:
    words = _WORD.findall(text)
    rng.shuffle(words)
    left = iter(words)
    return _WORD.sub(lambda _: next(left), text)


def baselines(shards: Shards, tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """By column and phenomenon: what the frequencies of the training text alone give."""
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    tokens: Counter[int] = Counter()
    for index in range(len(shards)):
        ids = shards.tokens(index).tolist()
        text = tokenizer.decode(ids)
        characters.update(text)
        words.update(words_of(text))
        tokens.update(ids)
    pairs = all_pairs()
    return {
        "characters": unigram_accuracy(pairs, characters, str),
        "length": length_accuracy(pairs),
        "words": unigram_accuracy(pairs, words, words_of),
        "tokens": unigram_accuracy(pairs, tokens, tokenizer.encode),
        "fewer tokens": length_accuracy(pairs, lambda text: len(tokenizer.encode(text))),
    }


def report(
    base: list[Checkpoint], control: list[Checkpoint], measured: Mapping[str, Mapping[str, float]]
) -> str:
    """The tables: at the end of training with the baselines, and on the way."""
    last, other = base[-1].phenomena, control[-1].phenomena
    lines = [
        f"After {base[-1].tokens:,} tokens, accuracy in percent ± standard error; chance is 50. The columns"
        " from *characters* on are baselines that know no Turkish.",
        "",
        "| phenomenon | trained | invented stems | trained on shuffled words | "
        + " | ".join(measured)
        + " |",
        "| --- |" + " --- |" * (3 + len(measured)),
    ]
    for name in PHENOMENA:
        invented = last[name].get("nonce_accuracy")
        cells = [name, _cell(last[name]), f"{100 * invented:.1f}" if invented is not None else ""]
        cells += [
            _cell(other[name]),
            *(f"{100 * column[name]:.1f}" for column in measured.values()),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    means = [f"{100 * sum(column.values()) / len(column):.1f}" for column in measured.values()]
    cells = ["**mean**", _cell(overall(last)), "", _cell(overall(other)), *means]
    lines += ["| " + " | ".join(cells) + " |", ""]
    for title, points in (("Trained", base), ("Trained on shuffled words", control)):
        heads = [f"{point.tokens / 1e6:.2f} M" for point in points]
        lines += [f"{title}, after so many tokens:", "", f"| phenomenon | {' | '.join(heads)} |"]
        lines.append("| --- |" + " --- |" * len(points))
        for name in PHENOMENA:
            cells = [f"{100 * point.phenomena[name]['accuracy']:.0f}" for point in points]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        cells = [f"{100 * overall(point.phenomena)['accuracy']:.1f}" for point in points]
        lines += [f"| **mean** | {' | '.join(cells)} |", ""]
    return "\n".join(lines)


def _cell(entry: Mapping[str, float]) -> str:
    return f"{100 * entry['accuracy']:.1f} ± {100 * entry['standard_error']:.1f}"


def draw(path: Path, base: list[Checkpoint], control: list[Checkpoint]) -> None:
    """Small curves, one a phenomenon: trained, trained on shuffled words, and chance."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(PHENOMENA) // 4)
    figure, axes = pyplot.subplots(
        rows, 4, figsize=(12, 2.3 * rows), sharex=True, sharey=True, layout="constrained"
    )
    for axis, name in zip(axes.flat, PHENOMENA, strict=False):
        for label, points in (("text", base), ("shuffled words", control)):
            axis.plot(
                [point.tokens / 1e6 for point in points],
                [100 * point.phenomena[name]["accuracy"] for point in points],
                marker=".", label=label,
            )  # fmt: skip
        axis.axhline(50, color="grey", linewidth=0.8, linestyle="--")
        axis.set_title(name.replace("_", " "), fontsize=9)
        axis.set_ylim(0, 102)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(PHENOMENA) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=7, loc="lower right")
    figure.supxlabel("million tokens of training", fontsize=9)
    figure.supylabel("accuracy, percent", fontsize=9)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
