"""What is compared between runs: each number's label, which direction is better, and what must be equal
in two runs before their values mean the same thing.

Only this table; the comparison itself is in `comparison.py`. A number that no line here matches is not
compared: counts, sizes and settings are shown where they are made.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sifirdan import track_record

Better = Literal["lower", "higher", ""]  # "": neither, the number only changed


@dataclass(frozen=True)
class Measure:
    """Metrics whose dotted name `<stage>.<place in its file>` matches `pattern` as a whole. Groups of
    the pattern fill `label` and `needs`, a list of what has to be equal in both runs:

        text:SPLIT      the documents of val, test, ood; `text:questions.SET` of a set of questions
        windows         how the text was cut: window and stride of the evaluation
        tokenizer       the tokenizer
        folder:PATH     a folder of the pipeline
        params:KEY      a parameter
        items:NAME      another number, of the same stage's metrics

    `exact`: no seed moves it, so that any difference is one.
    """

    pattern: str
    label: str
    better: Better
    needs: tuple[str, ...] = ()
    headline: bool = False
    exact: bool = False


_EVAL = r"evaluate_(?P<model>base|chat)\."
_SPLIT = _EVAL + r"(?P<split>val|test|ood)\."
_SPLITS = ("val", "test", "ood")
_TEXT = ("text:{split}",)
_SCORED = ("text:{split}", "windows")
_TOKENS = ("text:{split}", "windows", "tokenizer")
_DRAWN = tuple(
    f"params:evaluate.{key}"
    for key in ("seed", "num_samples", "sample_temperature", "sample_tokens")
)
_ASKED = ("text:questions.{set}",)
_QUESTIONS = r"evaluate_chat\.questions\.(?P<set>\w+)\."
_TYPES = _QUESTIONS + r"types\.(?P<type>.+)\."
_PHENOMENON = r"minimal_pairs\.phenomena\.(?P<phenomenon>.+)\."
_TOKENIZER = r"evaluate_tokenizer\.tokenizers\.sifirdan\."

# Names in the metrics, and what people call them.
ANSWERS = {  # of the answers to a set of questions
    "questions": "questions asked",
    "stopped_share": "answers that end by themselves",
    "one_sentence_share": "answers of one whole sentence",
    "well_formed_share": "answers in good form: capital, closing mark, nothing said twice",
    "distinct_share": "different answers, of all answers",
    "control_text_share": "answers with marks of the dialogue in them",
    "own_question_share": "own question's answer likelier than another's (chance 50 %)",
    "own_question_share_any_wording": "the same, whatever the wording",
    "exact_match_share": "answers equal to the right one",
    "shifted_exact_match_share": "… its answer to another question",
    "blind_exact_match_share": "… the best answer that does not see the question",
    "partial_match": "words shared with the right answer (F1)",
    "shifted_partial_match": "… of its answer to another question",
    "blind_partial_match": "… of the best answer that does not see the question",
    "nats_per_target": "nats per token of the right answer",
}
TASKS = {
    "es_anlam": "Eş anlamlı sözcük",
    "cloze_son_kelime": "Cümlenin son sözcüğü",
    "ek_secimi": "Ek seçimi",
    "dunya": "Dünya bilgisi",
}
_TOLD = ("task", "answer", "phenomenon", "type")  # groups of a pattern that are put in words
_ALONE = {"own_question_share_any_wording": "own question's answer likelier, whatever the wording"}

MEASURES = (
    Measure(_SPLIT + "bits_per_byte", "{model} model: bits per byte of {split}", "lower", _SCORED, True),
    Measure(_SPLIT + "token_perplexity", "{model} model: token perplexity of {split}", "lower", _TOKENS, True),
    Measure(_SPLIT + "word_perplexity", "{model} model: word perplexity of {split}", "lower", _SCORED),
    Measure(_SPLIT + "character_perplexity", "{model} model: character perplexity of {split}", "lower", _SCORED),
    Measure(_SPLIT + r"sources\.(?P<name>.+)", "{model} model: bits per byte of {split}, {name}", "lower", _SCORED),
    Measure(_SPLIT + r"lengths\.(?P<name>.+)", "{model} model: bits per byte of {split}, documents of {name}", "lower", _TOKENS),
    Measure(_SPLIT + r"positions\.(?P<name>.+)", "{model} model: bits per token of {split}, places {name}", "lower", _TOKENS),
    Measure(_SPLIT + r"calibration\.error", "{model} model: calibration error on {split}", "lower", _TOKENS),
    Measure(_SPLIT + r"calibration\.accuracy", "{model} model: share of next tokens right, {split}", "higher", _TOKENS),
    Measure(_EVAL + r"minimal_pairs\.accuracy", "{model} model: minimal pairs right", "higher", ("items:minimal_pairs.phenomena.*.pairs",), True),
    Measure(_EVAL + _PHENOMENON + "accuracy", "{model} model: minimal pairs right, {phenomenon}", "higher", ("items:minimal_pairs.phenomena.{phenomenon}.pairs",)),
    Measure(_EVAL + r"tasks\.(?P<task>.+)\.accuracy", "{model} model: task “{task}”, right", "higher", ("items:tasks.{task}.items",), True),
    Measure(_EVAL + r"tasks\.(?P<task>.+)\.accuracy_by_bytes", "{model} model: task “{task}”, right by bytes", "higher", ("items:tasks.{task}.items",)),
    Measure(_EVAL + r"samples\.distinct_(?P<n>\d)", "{model} model: different {n}-grams in samples", "", (*_DRAWN, "tokenizer")),
    Measure(_EVAL + r"samples\.temperatures\.(?P<t>.+)\.distinct_(?P<n>\d)", "{model} model: different {n}-grams, temperature {t}", "", (*_DRAWN, "params:evaluate.prompts", "tokenizer")),
    Measure(_EVAL + r"samples\.repetition", "{model} model: repetition in samples", "lower", (*_DRAWN, "tokenizer")),
    Measure(_EVAL + r"samples\.stopped_share", "{model} model: samples that ended by themselves", "", (*_DRAWN, "tokenizer")),
    Measure(_EVAL + r"samples\.longest_copy_chars", "{model} model: longest copy of training text, characters", "lower", (*_DRAWN, "folder:data/corpus")),
    Measure(_EVAL + r"samples\.copied_share", "{model} model: samples copied from training text", "lower", (*_DRAWN, "folder:data/corpus")),
    Measure(_EVAL + r"(samples\.known_word_share|known_word_share\.samples)", "{model} model: known words in samples", "higher", (*_DRAWN, "folder:data/corpus"), True),
    Measure(_QUESTIONS + "nats_per_target", "chat questions, {set}: nats a token of the right answer", "lower", (*_ASKED, "tokenizer"), True),
    Measure(_QUESTIONS + "(?P<answer>exact_match_share|partial_match|own_question_share)", "chat questions, {set}: {answer}", "higher", _ASKED, True),
    Measure(_QUESTIONS + r"(?P<answer>own_question_share_any_wording|(stopped|one_sentence|well_formed|distinct)_share)", "chat questions, {set}: {answer}", "higher", _ASKED),
    Measure(_QUESTIONS + "control_text_share", "chat questions, {set}: answers with marks of the dialogue", "lower", _ASKED),
    Measure(_TYPES + "nats_per_target", "chat questions, {set}, {type}: nats a token of the right answer", "lower", (*_ASKED, "tokenizer")),
    Measure(_TYPES + r"(?P<answer>exact_match_share|partial_match|own_question_share(_any_wording)?)", "chat questions, {set}, {type}: {answer}", "higher", _ASKED),
    Measure(r"evaluate_chat\.forgetting\.after", "forgetting: bits per byte after instruction tuning", "lower", ("text:val", "windows")),
    Measure(r"evaluate_chat\.forgetting\.rise", "forgetting: rise of bits per byte by instruction tuning", "lower", ("text:val", "windows"), True),
    Measure(r"train\.val_bits_per_byte", "pretraining: bits per byte of val, its subset", "lower", ("text:val", "params:train.val_tokens")),
    Measure(r"train\.loss", "pretraining: loss of the last batch, nats", "lower", ("tokenizer", "folder:data/tokens")),
    Measure(r"finetune\.loss", "instruction tuning: loss of the last batch, nats", "lower", ("tokenizer", "folder:data/chat")),
    Measure(r"finetune\.known_nats_per_target", "instruction tuning: nats per target of known questions", "lower", ("tokenizer", "folder:data/chat", "params:finetune.val_conversations")),
    Measure(r"train\.parameters", "parameters of the model", "", (), True),
    Measure(r"train\.tokens", "tokens trained on", "", (), True),
    Measure(r"train\.epochs", "times through the training text", ""),
    Measure(r"train_tokenizer\.vocab_size", "pieces of the tokenizer", ""),
    Measure(_TOKENIZER + "(?P<name>bytes_per_token)", "tokenizer: bytes a token", "higher", ("text:val",), True, exact=True),
    Measure(_TOKENIZER + "(?P<name>tokens_per_word)", "tokenizer: tokens a word", "lower", ("text:val",), exact=True),
    Measure(_TOKENIZER + r"domains_bytes_per_token\.(?P<split>val|test|ood) (?P<name>.+)", "tokenizer: bytes a token of {split}, {name}", "higher", _TEXT, exact=True),
    Measure(_TOKENIZER + "suffix_(?P<name>precision|recall|f1)", "tokenizer: cuts at suffixes, {name}", "higher", ("items:gold_words",), exact=True),
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
            told = {
                key: in_words(group) if key in _TOLD else group for key, group in groups.items()
            }
            needs = tuple(need.format(**groups) for need in measure.needs)
            return replace(measure, label=measure.label.format(**told), needs=needs)
    return None


def in_words(name: str) -> str:
    """A name in the metrics as people read it; a name that is not ours stays as it is.

    >>> in_words("dunya"), in_words("exact_match_share"), in_words("word_order")
    ('Dünya bilgisi', 'answers equal to the right one', 'word order')
    """
    return {**ANSWERS, **_ALONE, **TASKS}.get(name) or name.replace("_", " ")


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
        return float(value)  # json_files.loads reads no number that is too long for it
    return None


def plain(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """A number with so many digits that say something, and never an exponent that a person has to undo;
    `zeros` keeps those at its end.

    >>> plain(1.54613), plain(0.000085, 2), plain(68.22553), plain(778373.97)
    ('1.546', '0.000085', '68.23', '778,374')
    """
    size = abs(value)
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if size < 1e-9:
        return "under 0.000000001" if value > 0 else "over −0.000000001"
    places = digits - 1 - math.floor(math.log10(size))
    if places < 1:
        return f"{value:,.0f}"
    said = f"{value:,.{places}f}"
    return said if zeros else said.rstrip("0").rstrip(".")


def apart(values: Sequence[float | None]) -> list[str]:
    """Numbers of one row in as many digits as it takes to see that they differ, at most 7.

    >>> apart([1.54613, 1.54622, None])
    ['1.5461', '1.5462', '-']
    """
    there, digits = {value for value in values if value is not None}, 4
    while digits < 7 and len({plain(value, digits) for value in there}) < len(there):
        digits += 1
    zeros = digits > 4  # then all have as many places
    return ["-" if value is None else plain(value, digits, zeros=zeros) for value in values]


def numbers(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Every number of every stage, by `<stage>.<place in its file>`."""
    found = {name: number(value) for name, value in flat(metrics)}
    return {name: value for name, value in found.items() if value is not None}
