"""Several language models on the same texts: one row a model, and the words that belong to it.

Bits per byte compare whatever the tokenizers are: total nats over the UTF-8 bytes of the texts. The
closing mark of a document is left out here, since models disagree on what it is; the stage `evaluate`
counts it. Token perplexities are of one tokenizer each.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sifirdan.baselines.language_models import LanguageModel
from sifirdan.errors import CheckpointError, ConfigError, DataError
from sifirdan.evals.bits_per_byte import Score, score_documents, total
from sifirdan.evals.language_model import bits, bootstrap_interval, perplexity
from sifirdan.evals.likelihood import BATCH_TOKENS
from sifirdan.evals.multiple_choice import (
    MIN_ITEMS,
    TASKS,
    Accuracy,
    Item,
    accuracy,
    read_items,
    read_task,
    score_items,
)
from sifirdan.evals.own_files import read_rows, read_text
from sifirdan.text_table import aligned

MAX_WINDOW = 1024  # tokens, unless more are asked for: a long context costs time and memory
MIN_DOCUMENTS = 10  # for an interval: of fewer there is nothing to draw from
MAX_LOGITS = 1 << 28  # numbers of one forward pass: 1 GiB
SEED = 1  # of the bootstrap, as evaluate.seed is by default
_LINE = '{"text": "…"} on every line'


@dataclass(frozen=True)
class Row:
    """What one model got on the texts. `low` and `high` are the 95 % interval of bits per byte, None for
    fewer than MIN_DOCUMENTS. A perplexity is infinite where it has no float, and NaN where the texts hold
    no such unit. `ids` is a hash of all token ids: equal where two models cut the texts alike."""

    name: str
    bits_per_byte: float
    low: float | None
    high: float | None
    token_perplexity: float
    word_perplexity: float
    character_perplexity: float
    documents: int
    unscorable: int
    tokens: int
    words: int
    characters: int
    bytes: int
    window: int
    stride: int
    vocab_size: int
    ids: str
    mark: str
    mark_every_window: bool
    changed_texts: int
    first_changed: str
    unknown_tokens: int


def window_of(model: LanguageModel, asked: int | None) -> int:
    """The window to score with, in tokens."""
    if asked is None:
        return min(model.context_length or MAX_WINDOW, MAX_WINDOW)
    if asked < 1 or (model.context_length and asked > model.context_length):
        raise ConfigError(
            f"--window is {asked}",
            expected=f"1 to {model.context_length}, the context of {model.name}"
            if model.context_length
            else "1 or more",
            todo="give a smaller --window, or leave it out: then each model has its own",
        )
    return asked


def score_texts(
    model: LanguageModel, texts: Sequence[str], *, window: int, stride: int | None = None
) -> Row:
    """Score whole documents; a text without a token has nothing to score and is counted."""
    stride = max(1, window // 2) if stride is None else stride
    if not 1 <= stride <= window:
        raise ConfigError(
            f"--stride is {stride}", expected=f"1 to {window}, the window", todo="change --stride"
        )
    encoded = model.encode_many(texts)
    changed = [
        text for text, ids in zip(texts, encoded, strict=True) if ids and model.decode(ids) != text
    ]
    changed += [text for text, ids in zip(texts, encoded, strict=True) if text and not ids]
    known = [(text, ids) for text, ids in zip(texts, encoded, strict=True) if text and ids]
    if not known:
        raise DataError(
            "there is no text to score",
            expected="texts of at least one token",
            todo="give files that are not empty with --text",
        )
    scores = score_documents(
        model.model,
        [np.array(ids, np.int64) for _, ids in known],
        [len(text.encode()) for text, _ in known],
        window=window,
        stride=stride,
        eos_id=model.mark_id,
        mark_every_window=model.mark_every_window,
        batch_tokens=batch_tokens(model, window),
    )
    whole = total(scores)
    _require_finite(model, [whole.nats])
    low, high = _interval(scores)
    words = sum(len(text.split()) for text, _ in known)
    characters = sum(len(text) for text, _ in known)
    return Row(
        name=model.name,
        bits_per_byte=whole.bits_per_byte,
        low=low,
        high=high,
        token_perplexity=_perplexity(whole.nats, whole.tokens),
        word_perplexity=_perplexity(whole.nats, words),
        character_perplexity=_perplexity(whole.nats, characters),
        documents=len(known),
        unscorable=len(texts) - len(known),
        tokens=whole.tokens,
        words=words,
        characters=characters,
        bytes=whole.num_bytes,
        window=window,
        stride=stride,
        vocab_size=model.vocab_size,
        ids=hashlib.sha256(json.dumps(encoded).encode()).hexdigest()[:12],
        mark=model.mark,
        mark_every_window=model.mark_every_window,
        changed_texts=len(changed),
        first_changed=changed[0][:60] if changed else "",
        unknown_tokens=sum(ids.count(model.unknown_id) for _, ids in known)
        if model.unknown_id is not None
        else 0,
    )


def score_task(model: LanguageModel, task: str, items: Sequence[Item], *, window: int) -> Accuracy:
    """How many items of a task the model answers rightly; `task` names it in messages."""
    try:
        scores = score_items(
            model.model,
            model.encode_many,
            items,
            window=window,
            mark_id=model.mark_id,
            mark_before_context=model.mark_every_window,
            batch_tokens=batch_tokens(model, window),
        )
    except DataError as error:
        raise DataError(f"{model.name}: {task}: {error}") from None
    for score in scores:
        _require_finite(model, [*score.nats, *score.nats_alone])
    return accuracy(scores)


def _require_finite(model: LanguageModel, nats: Sequence[float]) -> None:
    """A model may overflow on some texts only, or give a token no probability at all."""
    if not all(map(math.isfinite, nats)):
        raise CheckpointError(
            f"{model.name}: the likelihood that it gives is no finite number",
            expected="a probability above 0 for every token",
            todo="leave this model out; its logits overflow, or exclude tokens that stand in the text",
        )


def _interval(scores: Sequence[Score]) -> tuple[float | None, float | None]:
    if len(scores) < MIN_DOCUMENTS:
        return None, None
    nats, sizes = (np.array(c) for c in zip(*((s.nats, s.num_bytes) for s in scores), strict=True))
    low, high = bootstrap_interval(nats, sizes, SEED)
    return bits(low), bits(high)


def _perplexity(nats: float, units: int) -> float:
    return perplexity(nats, units) if units else math.nan


def batch_tokens(model: LanguageModel, window: int) -> int:
    """The tokens of one forward pass, so that its logits stay below MAX_LOGITS numbers."""
    return max(window, min(BATCH_TOKENS, MAX_LOGITS // model.vocab_size))


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of text, best first, and below them how to read them."""
    rows = sorted(rows, key=lambda row: row.bits_per_byte)
    head = (
        "model",
        "bits/byte",
        "95 % interval",
        "word ppl",
        "char ppl",
        "token ppl",
        "tokenizer",
        "tokens",
        "window",
    )
    cells = [
        (
            row.name,
            f"{row.bits_per_byte:.4f}",
            "–" if row.low is None or row.high is None else f"{row.low:.3f}–{row.high:.3f}",
            _short(row.word_perplexity),
            f"{row.character_perplexity:.3f}",
            _short(row.token_perplexity, 2),
            f"{row.vocab_size} ids ({row.ids[:6]})",
            str(row.tokens),
            f"{row.window}/{row.stride}",
        )
        for row in rows
    ]
    lines = _aligned(head, cells)
    same = {(row.documents, row.unscorable, row.words, row.bytes) for row in rows}
    for documents, unscorable, words, size in sorted(same):
        lines.append(
            f"{documents} documents, {words} words, {size} bytes; {unscorable} with nothing to score"
        )
    if any(row.low is None for row in rows):
        lines.append(f"An interval takes {MIN_DOCUMENTS} documents or more.")
    lines.append(
        "Every token of the text is scored once; the closing mark of a document is not. The stage evaluate"
        " counts it, so its figures differ, most where documents are short (ood). window/stride in tokens."
        " More: docs/TASKS.md"
    )
    if len({row.ids for row in rows}) > 1:
        lines.append(
            "Token perplexities do not compare here: the models cut the text into other tokens."
            " Compare bits per byte."
        )
    for row in rows:
        place = "every window" if row.mark_every_window else "each document"
        lines.append(f"{row.name}: {row.mark} stands before {place}")
    return lines + unequal_terms(rows) + [warning for row in rows for warning in warnings(row)]


def unequal_terms(rows: Sequence[Row]) -> list[str]:
    """A warning where models saw more or less of the text before a token; mostly empty."""
    terms = sorted({(row.window, row.stride) for row in rows})
    if len(terms) < 2:
        return []
    said = ", ".join(f"{window}/{stride}" for window, stride in terms)
    window, stride = (min(column) for column in zip(*terms, strict=True))
    return [
        f"warning: windows and strides differ ({said}), and who sees more before a token does better;"
        f" on equal terms: --window {window} --stride {stride}"
    ]


def warnings(row: Row) -> list[str]:
    """Why a model's bits per byte are not those of the whole text; mostly empty."""
    found = []
    if row.changed_texts:
        found.append(
            f"warning: {row.name}: its tokenizer does not give back {row.changed_texts} of the texts"
            f" (first {json.dumps(row.first_changed, ensure_ascii=False)}); its bits per byte leave something out"
        )
    if row.unknown_tokens:
        found.append(
            f"warning: {row.name}: {row.unknown_tokens} of {row.tokens} tokens stand for what its"
            " tokenizer does not know; its bits per byte leave something out"
        )
    return found


def task_table(results: Sequence[tuple[str, str, Accuracy]]) -> list[str]:
    """Lines for (model, task, accuracy)."""
    head = ("model", "task", "items", "chance", "accuracy", "by bytes", "by tokens", "over alone")
    cells = [
        (
            name,
            task,
            str(found.items),
            f"{found.chance:.3f}",
            f"{found.accuracy:.3f}"
            + (f" ± {found.standard_error:.3f}" if found.standard_error is not None else ""),
            f"{found.accuracy_by_bytes:.3f}",
            f"{found.accuracy_by_tokens:.3f}",
            f"{found.accuracy_over_alone:.3f}",
        )
        for name, task, found in results
    ]
    lines = _aligned(head, cells)
    if any(found.standard_error is None for _, _, found in results):
        lines.append(f"A standard error takes {MIN_ITEMS} items or more.")
    return lines


def for_machines(
    rows: Sequence[Row], results: Sequence[tuple[str, str, Accuracy]], refused: Sequence[str]
) -> dict[str, Any]:
    """The same as an object for JSON, the best row first; what is no finite number is null."""
    return {
        "texts": [
            {key: value if not isinstance(value, float) or math.isfinite(value) else None
             for key, value in asdict(row).items()} | {"warnings": warnings(row)}
            for row in sorted(rows, key=lambda row: row.bits_per_byte)
        ],
        "tasks": [{"model": name, "task": task} | asdict(found) for name, task, found in results],
        "warnings": unequal_terms(rows),
        "refused": list(refused),
    }  # fmt: skip


def read_text_files(paths: Sequence[Path]) -> list[str]:
    """The documents of some files: of `.jsonl` the "text" of each line, of every other the whole."""
    texts: list[str] = []
    for path in paths:
        if path.suffix != ".jsonl":
            texts.append(read_text(path))
            continue
        for place, row in read_rows(path, expected=_LINE):
            if not isinstance(row.get("text"), str):
                raise DataError(f'{place}: has no "text"', expected=_LINE, todo="mend this line")
            texts.append(row["text"])
    return texts


def read_tasks(names: Sequence[str]) -> dict[str, list[Item]]:
    """The items by task: a name is one of ours, "all" is every one of ours, and so is no name at all;
    anything else is a file."""
    wanted = dict.fromkeys(
        name for given in names or ["all"] for name in (TASKS if given == "all" else [given])
    )
    return {name: read_task(name) if name in TASKS else read_items(Path(name)) for name in wanted}


def _short(value: float, digits: int = 1) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if value < 1e6 else f"{value:.3g}"


def _aligned(head: tuple[str, ...], cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Names to the left, numbers to the right."""
    names = ("model", "task", "tokenizer")
    return list(aligned([head, *cells], [n for n, title in enumerate(head) if title in names]))
