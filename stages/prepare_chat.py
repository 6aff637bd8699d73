"""Make instruction data: questions and answers as readable messages and as shards with a loss mask.

Reads data/raw (sources that are for chat), data/corpus (which records were pretrained on),
models/tokenizer, the folder of your own messages and the project's hand-written turns. Writes
data/chat/{train,known,unseen,handwritten}.jsonl and, for each, a folder of the same name with an
Arrow shard. Costs: about 20 seconds and 1 GB for the default sources; the dictionary is held in
memory, of the corpus only ids.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sifirdan import runs, track
from sifirdan.chat import encode_conversation
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.corpus import chat_sources, instructions, own_text, shards
from sifirdan.corpus.dictionary_pairs import dictionary_candidates
from sifirdan.corpus.instructions import Example, Where
from sifirdan.corpus.question_templates import DICTIONARY_TEMPLATES, PROVINCE_TEMPLATES
from sifirdan.corpus.records import Document, read_folder
from sifirdan.errors import DataError, require, run_command
from sifirdan.runs import Manifest
from sifirdan.tokenizer import Tokenizer

log = logging.getLogger(__name__)

SETS = ("train", "known", "unseen", "handwritten")
_CAPPED = (*DICTIONARY_TEMPLATES, *PROVINCE_TEMPLATES, "qa", "talk")
# What a record of each shape holds in `meta`, whatever its source is called.
_SHAPES = {"dictionary": "headwords", "provinces": "province", "qa": "question", "talk": "turns"}


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    seed: int
    caps: dict[str, int]
    heldout_templates: int
    known_words: int
    unseen_words: int
    min_uses: int
    counted_chars: int
    max_answer_chars: int
    max_tokens: int
    handwritten_copies: int
    own_messages: str

    def __post_init__(self) -> None:
        key = "prepare_chat"
        same = set(self.caps) == set(_CAPPED)
        require(same, f"{key}.caps", sorted(self.caps), f"exactly the keys {', '.join(_CAPPED)}")
        for name, cap in self.caps.items():
            require(cap >= 0, f"{key}.caps.{name}", cap, "0 or more")
        most = min(len(templates) for templates in DICTIONARY_TEMPLATES.values()) - 1
        held = self.heldout_templates
        require(1 <= held <= most, f"{key}.heldout_templates", held, f"from 1 to {most}")
        for name in ("known_words", "unseen_words", "min_uses", "counted_chars"):
            require(getattr(self, name) >= 0, f"{key}.{name}", getattr(self, name), "0 or more")
        for name in ("max_answer_chars", "max_tokens", "handwritten_copies"):
            require(getattr(self, name) >= 1, f"{key}.{name}", getattr(self, name), "1 or more")


def prepare_chat(
    raw: Path, corpus: Path, tokenizer_folder: Path, out: Path, params: Params
) -> dict[str, Any]:
    """Write the four sets to the folder `out`; returns the metrics."""
    inputs = {
        "raw": runs.open_folder(raw, "raw", made_by="ingest"),
        "corpus": runs.open_folder(corpus, "corpus", made_by="clean"),
        "tokenizer": runs.open_folder(tokenizer_folder, "tokenizer", made_by="train_tokenizer"),
    }
    runs.require_same(inputs["corpus"], "raw", inputs["raw"], what=str(corpus), made_by="clean")
    tokenizer = Tokenizer.load(tokenizer_folder)
    drops: Counter[str] = Counter()
    sets = _make_sets(_read_chat_records(raw, inputs["raw"], drops), corpus, params, drops)
    stated = asdict(params)
    del stated["own_messages"]  # a path of this machine changes nothing in the data
    with runs.new_folder(
        out, kind="chat", inputs=inputs, params=stated, packages=("sentencepiece", "pyarrow")
    ) as output:
        for name, examples in sets.items():
            output.counts[name] = _write_set(output.path, name, examples, tokenizer, params, drops)
    log.info("dropped: %s", ", ".join(f"{name} {n}" for name, n in sorted(drops.items()) if n))
    return {"sets": output.counts, "dropped": dict(sorted((+drops).items()))}


def _read_chat_records(
    raw: Path, manifest: Manifest, drops: Counter[str]
) -> dict[str, list[Document]]:
    """The records of all sources that are for chat, by shape."""
    found: dict[str, list[Document]] = {shape: [] for shape in _SHAPES}
    for source, counts in manifest.counts.items():
        for document in read_folder(raw / source) if "chat" in counts["uses"] else ():
            shape = next((s for s, key in _SHAPES.items() if key in document.meta), None)
            if shape:
                found[shape].append(document)
            else:
                drops[f"{source}/nothing_to_ask"] += 1
    return found


def _make_sets(
    records: dict[str, list[Document]], corpus: Path, params: Params, drops: Counter[str]
) -> dict[str, list[Example]]:
    entries, caps, seed = records["dictionary"], params.caps, params.seed
    held = params.heldout_templates
    candidates = dictionary_candidates(
        entries, max_answer_chars=params.max_answer_chars, drops=drops
    )
    where = _find_records(corpus, entries)
    single_words = {c.subject for c in candidates if " " not in c.subject}
    uses = instructions.count_uses(_texts(corpus, params.counted_chars), single_words)
    words = instructions.split_headwords(
        entries,
        candidates,
        where,
        caps=caps,
        known=params.known_words,
        unseen=params.unseen_words,
        seed=seed,
    )
    divided = instructions.divide(candidates, entries, where, words, drops)
    train = instructions.ask_for_training(
        divided["train"],
        uses,
        caps=caps,
        heldout_templates=held,
        min_uses=params.min_uses,
        seed=seed,
        drops=drops,
    )
    provinces = chat_sources.province_candidates(records["provinces"])
    train += chat_sources.ask_about_provinces(provinces, caps, seed=seed, drops=drops)
    train += chat_sources.given_questions(records["qa"], caps["qa"], drops)
    train += chat_sources.short_talk(records["talk"], caps["talk"], drops)
    train += chat_sources.handwritten("train", copies=params.handwritten_copies)
    train += chat_sources.own_messages(Path(params.own_messages))
    return {
        "train": train,
        "known": instructions.ask_for_evaluation(
            divided["known"], heldout_templates=held, seed=seed
        ),
        "unseen": instructions.ask_for_evaluation(
            divided["unseen"], heldout_templates=held, seed=seed
        ),
        "handwritten": chat_sources.handwritten("heldout"),
    }


def _find_records(corpus: Path, entries: list[Document]) -> dict[str, Where]:
    """Where in the corpus each dictionary record lies."""
    where: dict[str, Where] = {entry.id: "absent" for entry in entries}
    places: dict[str, Where] = {"train": "train", "val": "heldout", "test": "heldout"}
    for split, place in places.items():
        for document in read_folder(corpus / split) if entries else ():
            if document.id in where:
                where[document.id] = place
    return where


def _texts(corpus: Path, max_chars: int) -> Iterator[str]:
    for document in read_folder(corpus / "train"):
        if max_chars <= 0:
            return
        yield document.text
        max_chars -= len(document.text)


def _write_set(
    folder: Path,
    name: str,
    examples: list[Example],
    tokenizer: Tokenizer,
    params: Params,
    drops: Counter[str],
) -> dict[str, Any]:
    """Write one set as messages and as a shard; returns its counts. What is too long goes: cut, it
    would teach a question without its answer."""
    kept, rows = [], []
    for example in examples:
        encoded = encode_conversation(tokenizer, list(example.messages))
        if len(encoded.ids) > params.max_tokens:
            drops[f"{example.type}/over_max_tokens"] += 1
            continue
        kept.append(example)
        num_bytes = sum(len(message["content"].encode()) for message in example.messages)
        rows.append(
            shards.Row(encoded.ids, example.id, example.source, num_bytes, encoded.loss_mask)
        )
    if examples and not kept:
        raise DataError(
            f"all {len(examples)} examples of '{name}' are longer than {params.max_tokens} tokens",
            expected="at least one that fits",
            todo="raise prepare_chat.max_tokens (up to the model's context length)",
        )
    lines = (json.dumps(example.row(), ensure_ascii=False) + "\n" for example in kept)
    runs.write_text(folder / f"{name}.jsonl", "".join(lines))
    (folder / name).mkdir()
    counts: dict[str, Any] = dict(
        shards.write(
            folder / name / "part-00000.arrow",
            rows,
            vocab_size=tokenizer.vocab_size,
            loss_mask=True,
        )
    )
    share = counts["targets"] / counts["tokens"] if kept else 0.0
    assert not kept or 0 < share < 1, (name, counts)
    types = Counter(example.type for example in kept)
    log.info("set=%s examples=%d target_share=%.3f", name, len(kept), share)
    return counts | {"target_share": round(share, 4), "types": dict(sorted(types.items()))}


def main() -> None:
    params = load_params(PARAMS_FILE, "prepare_chat", Params)
    own_text.refuse_missing_in_copy(params.own_messages, copy=Path.cwd(), root=runs.project_root())
    raw, corpus, tokenizer = Path("data/raw"), Path("data/corpus"), Path("models/tokenizer")
    out = Path("data/chat")
    with track.stage(
        "prepare_chat",
        params=asdict(params),
        inputs={"raw": raw, "corpus": corpus, "tokenizer": tokenizer},
        outputs={"chat": out},
    ) as run:
        metrics = prepare_chat(raw, corpus, tokenizer, out, params)
        run.finish(metrics, Path("metrics/prepare_chat.json"))


if __name__ == "__main__":
    run_command(main)
