"""The metrics file of a stage as pages and card take it: an object of the shape that the stage writes.
Comparisons take any shape, since they read other releases: `run_records.py`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sifirdan.compare.measures import number
from sifirdan.json_files import damaged, kind_of, read_object

# Numbers that a report cannot do without, by stage.
NEEDED = {
    "clean": ("splits/train/documents", "splits/train/bytes"),
    "tokenize_corpus": ("splits/train/bytes", "splits/train/tokens"),
    "train_tokenizer": ("vocab_size",),
    "train": ("parameters", "tokens", "epochs"),
    "evaluate_base": ("val/bits_per_byte", "val/token_perplexity"),
    "evaluate_chat": ("val/bits_per_byte",),
}
# Places that hold more places, in an evaluation; whatever else stands in them is a number or a hash.
_GROUPS = re.compile(
    r"(val|test|ood)(/(sources|lengths|positions|calibration))?|minimal_pairs(/phenomena(/[^/]+)?)?"
    r"|tasks(/[^/]+)?|samples(/temperatures(/[^/]+)?)?|questions(/[^/]+(/types(/[^/]+)?)?)?|forgetting"
)
_ABSENT = object()
_HASHES = ("text", "tokenizer")
# Of a training, what pages show where it is there.
_SHOWN = (
    "steps", "tokens", "conversations", "epochs", "loss", "val_bits_per_byte", "known_nats_per_target",
)  # fmt: skip


def read_metrics(path: Path) -> dict[str, Any]:
    """The content of metrics/STAGE.json, or what is wrong with it, by place."""
    todo = f"dvc repro {path.stem}, or git checkout {path}"
    content = read_object(path, todo=todo)
    faults = [*_missing(content, NEEDED.get(path.stem, ()))]
    if path.stem in ("evaluate_base", "evaluate_chat"):
        faults += _misshapen(content)
    elif path.stem in ("train", "finetune"):
        faults += _misshapen({k: content[k] for k in _SHOWN if k in content}, "/")
    if faults:
        expected = f"what the stage {path.stem} writes"
        raise damaged(str(path), faults[0], expected=expected, todo=todo)
    return content


def _missing(content: Mapping[str, Any], needed: tuple[str, ...]) -> Iterator[str]:
    for place in needed:
        found: Any = content
        for name in place.split("/"):
            found = found.get(name, _ABSENT) if isinstance(found, Mapping) else _ABSENT
        if found is _ABSENT:
            yield f"{_dotted(place)} is not there"
        elif number(found) is None:
            yield f"{_dotted(place)} is {kind_of(found)}, not a number"


def _misshapen(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in content.items():
        place = f"{prefix}{name}"
        if _GROUPS.fullmatch(place):
            if isinstance(value, Mapping):
                yield from _misshapen(value, f"{place}/")
            else:
                yield f"{_dotted(place)} is {kind_of(value)}, not an object"
        elif prefix and name in _HASHES:
            if not isinstance(value, str):
                yield f"{_dotted(place)} is {kind_of(value)}, not a text"
        elif prefix and number(value) is None:
            yield f"{_dotted(place)} is {kind_of(value)}, not a number"


def _dotted(place: str) -> str:
    return place.strip("/").replace("/", ".")
