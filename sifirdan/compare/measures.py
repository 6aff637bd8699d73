"""What is compared between runs: each number's label, which direction is better, and what must be equal
in two runs before their values mean the same thing.

Only this table; the comparison itself is in `comparison.py`. A number that no line here matches is not
compared: counts, sizes and settings are shown where they are made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sifirdan import track_record

Better = Literal["lower", "higher", ""]  # "": neither, the number only changed


@dataclass(frozen=True)
class Measure:
    """Metrics whose dotted name `<stage>.<place in its file>` matches `pattern` as a whole. Groups of
    the pattern fill `label` and `needs`, a list of what has to be equal in both runs:

        text:SPLIT      the documents of val, test, ood; `text:questions.SET` of a set of questions
        tokenizer       the tokenizer
        folder:PATH     a folder of the pipeline
        params:KEY      a parameter
        items:NAME      another number, of the same stage's metrics
    """

    pattern: str
    label: str
    better: Better
    needs: tuple[str, ...] = ()
    headline: bool = False


_EVAL = r"evaluate_(?P<model>base|chat)\."
_SPLIT = _EVAL + r"(?P<split>val|test|ood)\."
_SPLITS = ("val", "test", "ood")
_TEXT = ("text:{split}",)
_TOKENS = ("text:{split}", "tokenizer")
_DRAWN = tuple(
    f"params:evaluate.{key}"
    for key in ("seed", "num_samples", "sample_temperature", "sample_tokens")
)
_ASKED = ("text:questions.{set}",)
_QUESTIONS = r"evaluate_chat\.questions\.(?P<set>\w+)\."
_TYPES = _QUESTIONS + r"types\.(?P<type>.+)\."
_PHENOMENON = r"minimal_pairs\.phenomena\.(?P<name>.+)\."
_TOKENIZER = r"evaluate_tokenizer\.tokenizers\.sifirdan\."

MEASURES = (
    Measure(_SPLIT + "bits_per_byte", "{model} model: bits per byte of {split}", "lower", _TEXT, True),
    Measure(_SPLIT + "token_perplexity", "{model} model: token perplexity of {split}", "lower", _TOKENS, True),
    Measure(_SPLIT + "word_perplexity", "{model} model: word perplexity of {split}", "lower", _TEXT),
    Measure(_SPLIT + "character_perplexity", "{model} model: character perplexity of {split}", "lower", _TEXT),
    Measure(_SPLIT + r"sources\.(?P<name>.+)", "{model} model: bits per byte of {split}, {name}", "lower", _TEXT),
    Measure(_SPLIT + r"lengths\.(?P<name>.+)", "{model} model: bits per byte of {split}, documents of {name}", "lower", _TOKENS),
    Measure(_SPLIT + r"positions\.(?P<name>.+)", "{model} model: bits per token of {split}, places {name}", "lower", _TOKENS),
    Measure(_SPLIT + r"calibration\.error", "{model} model: calibration error on {split}", "lower", _TOKENS),
    Measure(_SPLIT + r"calibration\.accuracy", "{model} model: share of next tokens right, {split}", "higher", _TOKENS),
    Measure(_EVAL + r"minimal_pairs\.accuracy", "{model} model: minimal pairs right", "higher", ("items:minimal_pairs.phenomena.*.pairs",), True),
    Measure(_EVAL + _PHENOMENON + "accuracy", "{model} model: minimal pairs right, {name}", "higher", ("items:minimal_pairs.phenomena.{name}.pairs",)),
    Measure(_EVAL + r"tasks\.(?P<name>.+)\.accuracy", "{model} model: task {name}, right", "higher", ("items:tasks.{name}.items",), True),
    Measure(_EVAL + r"tasks\.(?P<name>.+)\.accuracy_by_bytes", "{model} model: task {name}, right by bytes", "higher", ("items:tasks.{name}.items",)),
    Measure(_EVAL + r"samples\.distinct_(?P<n>\d)", "{model} model: different {n}-grams in samples", "", (*_DRAWN, "tokenizer")),
    Measure(_EVAL + r"samples\.temperatures\.(?P<t>.+)\.distinct_(?P<n>\d)", "{model} model: different {n}-grams, temperature {t}", "", (*_DRAWN, "params:evaluate.prompts", "tokenizer")),
    Measure(_EVAL + r"samples\.repetition", "{model} model: repetition in samples", "lower", (*_DRAWN, "tokenizer")),
    Measure(_EVAL + r"samples\.stopped_share", "{model} model: samples that ended by themselves", "", (*_DRAWN, "tokenizer")),
    Measure(_EVAL + r"samples\.longest_copy_chars", "{model} model: longest copy of training text, characters", "lower", (*_DRAWN, "folder:data/corpus")),
    Measure(_EVAL + r"samples\.copied_share", "{model} model: samples copied from training text", "lower", (*_DRAWN, "folder:data/corpus")),
    Measure(_EVAL + r"(samples\.known_word_share|known_word_share\.samples)", "{model} model: known words in samples", "higher", (*_DRAWN, "folder:data/corpus"), True),
    Measure(_QUESTIONS + "nats_per_target", "chat questions, {set}: nats a token of the right answer", "lower", (*_ASKED, "tokenizer"), True),
    Measure(_QUESTIONS + "(?P<name>exact_match_share|partial_match|own_question_share)", "chat questions, {set}: {name}", "higher", _ASKED, True),
    Measure(_QUESTIONS + r"(?P<name>own_question_share_any_wording|(stopped|one_sentence|well_formed|distinct)_share)", "chat questions, {set}: {name}", "higher", _ASKED),
    Measure(_QUESTIONS + "control_text_share", "chat questions, {set}: answers with marks of the dialogue", "lower", _ASKED),
    Measure(_TYPES + "nats_per_target", "chat questions, {set}, {type}: nats a token of the right answer", "lower", (*_ASKED, "tokenizer")),
    Measure(_TYPES + r"(?P<name>exact_match_share|partial_match|own_question_share(_any_wording)?)", "chat questions, {set}, {type}: {name}", "higher", _ASKED),
    Measure(r"evaluate_chat\.forgetting\.after", "forgetting: bits per byte after instruction tuning", "lower", ("text:val",)),
    Measure(r"evaluate_chat\.forgetting\.rise", "forgetting: rise of bits per byte by instruction tuning", "lower", ("text:val",), True),
    Measure(r"train\.val_bits_per_byte", "pretraining: bits per byte of val, its subset", "lower", ("text:val", "params:train.val_tokens")),
    Measure(r"train\.loss", "pretraining: loss of the last batch, nats", "lower", ("tokenizer", "folder:data/tokens")),
    Measure(r"finetune\.loss", "instruction tuning: loss of the last batch, nats", "lower", ("tokenizer", "folder:data/chat")),
    Measure(r"finetune\.known_nats_per_target", "instruction tuning: nats per target of known questions", "lower", ("tokenizer", "folder:data/chat", "params:finetune.val_conversations")),
    Measure(r"train\.parameters", "parameters of the model", "", (), True),
    Measure(r"train\.tokens", "tokens trained on", "", (), True),
    Measure(r"train\.epochs", "times through the training text", ""),
    Measure(r"train_tokenizer\.vocab_size", "pieces of the tokenizer", ""),
    Measure(_TOKENIZER + "(?P<name>bytes_per_token)", "tokenizer: bytes a token", "higher", ("text:val",), True),
    Measure(_TOKENIZER + "(?P<name>tokens_per_word)", "tokenizer: tokens a word", "lower", ("text:val",)),
    Measure(_TOKENIZER + r"domains_bytes_per_token\.(?P<split>val|test|ood) (?P<name>.+)", "tokenizer: bytes a token of {split}, {name}", "higher", _TEXT),
    Measure(_TOKENIZER + "suffix_(?P<name>precision|recall|f1)", "tokenizer: cuts at suffixes, {name}", "higher", ("items:gold_words",)),
    Measure(r"clean\.splits\.train\.bytes", "bytes of training text", ""),
)  # fmt: skip
_PATTERNS = [(re.compile(measure.pattern), measure) for measure in MEASURES]


def find(name: str) -> Measure | None:
    """The measure of a metric, its label and needs filled in; None where nothing is compared.

    >>> find("evaluate_base.val.bits_per_byte").label
    'base model: bits per byte of val'
    """
    for pattern, measure in _PATTERNS:
        if match := pattern.fullmatch(name):
            groups = match.groupdict()
            label = measure.label.format(**groups)
            needs = tuple(need.format(**groups) for need in measure.needs)
            return Measure(measure.pattern, label, measure.better, needs, measure.headline)
    return None


def order(name: str) -> tuple[int, int, str]:
    """Where a metric stands in a table: as in MEASURES, val before test and ood."""
    for place, (pattern, _) in enumerate(_PATTERNS):
        if match := pattern.fullmatch(name):
            split = match.groupdict().get("split")
            return place, _SPLITS.index(split) if split else 0, name
    return len(_PATTERNS), 0, name


flat = track_record.leaves  # metrics have the same dotted names here as in MLflow


def number(value: Any) -> float | None:
    """A number of a metrics file, where NaN and infinities are spelled; None for anything else."""
    if value in ("nan", "inf", "-inf") or type(value) in (int, float):
        return float(value)
    return None


def numbers(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Every number of every stage, by `<stage>.<place in its file>`."""
    found = {name: number(value) for name, value in flat(metrics)}
    return {name: value for name, value in found.items() if value is not None}
