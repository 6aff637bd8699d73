"""Several language models on the same texts: one row a model, and the words that belong to it.

Bits per byte compare whatever the tokenizers are: total nats over the UTF-8 bytes of the texts. The
closing mark of a document is left out here, since models disagree on what it is; the stage `evaluate`
counts it. Token perplexities are of one tokenizer each.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sifirdan.baselines.language_models import LanguageModel
from sifirdan.errors import ConfigError, DataError
from sifirdan.evals.bits_per_byte import score_documents, total
from sifirdan.evals.likelihood import BATCH_TOKENS
from sifirdan.evals.multiple_choice import Accuracy, Item, accuracy, score_items

MAX_WINDOW = 1024  # tokens, unless more are asked for: a long context costs time and memory
MAX_LOGITS = 1 << 28  # numbers of one forward pass: 1 GiB


@dataclass(frozen=True)
class Row:
    """What one model got on the texts. `ids` is a hash of all token ids: equal where two models cut
    the texts alike."""

    name: str
    bits_per_byte: float
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
            expected=f"1 to {model.context_length}, the context of {model.name}",
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
    known = [(text, ids) for text, ids in zip(texts, encoded, strict=True) if ids]
    if not known:
        raise DataError("there is no text to score", expected="texts of at least one token")
    whole = total(
        score_documents(
            model.model,
            [np.array(ids, np.int64) for _, ids in known],
            [len(text.encode()) for text, _ in known],
            window=window,
            stride=stride,
            eos_id=model.mark_id,
            mark_every_window=model.mark_every_window,
            batch_tokens=batch_tokens(model, window),
        )
    )
    words = sum(len(text.split()) for text, _ in known)
    characters = sum(len(text) for text, _ in known)
    return Row(
        name=model.name,
        bits_per_byte=whole.bits_per_byte,
        token_perplexity=whole.token_perplexity,
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


def score_task(model: LanguageModel, items: Sequence[Item], *, window: int) -> Accuracy:
    """How many items of a task the model answers rightly."""
    return accuracy(
        score_items(
            model.model,
            model.encode_many,
            items,
            window=window,
            mark_id=model.mark_id,
            mark_before_context=model.mark_every_window,
            batch_tokens=batch_tokens(model, window),
        )
    )


def batch_tokens(model: LanguageModel, window: int) -> int:
    """The tokens of one forward pass, so that its logits stay below MAX_LOGITS numbers."""
    return max(window, min(BATCH_TOKENS, MAX_LOGITS // model.vocab_size))


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of text, best first, and below them how to read them."""
    rows = sorted(rows, key=lambda row: row.bits_per_byte)
    head = (
        "model",
        "bits/byte",
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
            _short(row.word_perplexity),
            f"{row.character_perplexity:.3f}",
            f"{row.token_perplexity:.2f}",
            f"{row.vocab_size} ids ({row.ids[:6]})",
            str(row.tokens),
            f"{row.window}/{row.stride}",
        )
        for row in rows
    ]
    lines = _aligned([head, *cells])
    same = {(row.documents, row.unscorable, row.words, row.bytes) for row in rows}
    for documents, unscorable, words, size in sorted(same):
        lines.append(
            f"{documents} documents, {words} words, {size} bytes; {unscorable} with nothing to score"
        )
    lines.append(
        "Every token of the text is scored once; the closing mark of a document is not (the stage"
        " evaluate counts it). window/stride in tokens."
    )
    if len({row.ids for row in rows}) > 1:
        lines.append(
            "Token perplexities do not compare here: the models cut the text into other tokens."
            " Compare bits per byte."
        )
    for row in rows:
        place = "every window" if row.mark_every_window else "each document"
        lines.append(f"{row.name}: {row.mark} stands before {place}")
    return lines + [warning for row in rows for warning in warnings(row)]


def warnings(row: Row) -> list[str]:
    """Why a model's bits per byte are not those of the whole text; mostly empty."""
    found = []
    if row.changed_texts:
        found.append(
            f"warning: {row.name}: its tokenizer does not give back {row.changed_texts} of the texts"
            f" (first {row.first_changed!r}); its bits per byte leave something out"
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
            f"{found.accuracy:.3f} ± {found.standard_error:.3f}",
            f"{found.accuracy_by_bytes:.3f}",
            f"{found.accuracy_by_tokens:.3f}",
            f"{found.accuracy_over_alone:.3f}",
        )
        for name, task, found in results
    ]
    return _aligned([head, *cells])


def read_text_files(paths: Sequence[Path]) -> list[str]:
    """The documents of some files: of `.jsonl` the "text" of each line, of every other the whole."""
    texts: list[str] = []
    for path in paths:
        try:
            content = path.read_bytes().decode()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: is not UTF-8 (byte {error.start})", todo="iconv -f windows-1254 -t utf-8"
            ) from None
        if path.suffix != ".jsonl":
            texts.append(content)
            continue
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                texts.append(_text_of(line, f"{path}:{number}"))
    return texts


def _text_of(line: str, place: str) -> str:
    try:
        text = json.loads(line)["text"]
        if not isinstance(text, str):
            raise TypeError("text is no string")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{place}: has no text ({error!r})", expected='{"text": "…"} on every line'
        ) from None
    return text


def _perplexity(nats: float, units: int) -> float:
    return math.exp(min(nats / units, 700.0)) if units else math.nan


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 1e6 else f"{value:.3g}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Names to the left, numbers to the right."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    texts = {
        index for index, title in enumerate(rows[0]) if title in ("model", "task", "tokenizer")
    }
    return [
        "  ".join(
            cell.ljust(width) if index in texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
