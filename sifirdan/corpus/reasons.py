"""Why a document is in or out, in words: a sentence for every verdict that the ledger can hold, and
which settings decide it. For people; nothing is decided here."""

import re
from collections.abc import Mapping
from typing import Any

NOT_FOR_PRETRAINING = "not_for_pretraining"

IN = {
    "train": "it passed every rule and is trained on",
    "val": "it passed every rule; the hash of its text puts it into the slice that guides choices",
    "test": "it passed every rule; the hash of its text puts it into the slice that is scored once",
    "ood": "it passed every rule; its source is for tests on text of another domain",
}

# verdict: what the rule saw, and the ends of the settings that decide ("" stands for none)
OUT: dict[str, tuple[str, str]] = {
    NOT_FOR_PRETRAINING: ("its source is for chat alone; prepare_chat reads it", ""),
    "empty": ("no text is left after the repairs", ""),
    "invalid": ("it holds characters that cannot be stored as UTF-8", ""),
    "replacement_characters": (
        "too many of its characters are U+FFFD, which stand for lost ones",
        "max_replacement_share",
    ),
    "index_page": ("it only lists titles with their dates", ""),
    "placeholder": ("it is a dictionary entry that stands for a kind of word", ""),
    "no_definition": ("it is a dictionary entry without a definition", ""),
    "too_short": ("it has too few characters", "min_chars"),
    "personal_tckn": ("it holds a Turkish identity number", "personal.tckn"),
    "personal_iban": ("it holds a bank account number (IBAN)", "personal.iban"),
    "personal_card": ("it holds a card number", "personal.card"),
    "personal_phone": ("it holds a telephone number", "personal.phone"),
    "personal_email": ("it holds an e-mail address", "personal.email"),
    "asciified": ("it is Turkish typed without its letters ç ğ ı ö ş ü", "flags.asciified"),
    "profanity": ("it holds vulgar words", "flags.profanity"),
    "other_language": ("it is in another language than the corpus", "language."),
    "uncertain_language": ("which language it is in cannot be told", "language."),
    "too_few_words": ("it has too few words", "min_words"),
    "too_many_words": ("it has too many words", "max_words"),
    "short_words": ("its words are too short on average", "min_mean_word_chars"),
    "long_words": ("its words are too long on average", "max_mean_word_chars"),
    "symbols": ("it has too many '#' and ellipses for its words", "max_symbol_share"),
    "few_words_with_letters": ("too few of its words have a letter", "min_letter_word_share"),
    "digits": ("too many of its characters are digits", "max_digit_share"),
    "few_stop_words": ("it has too few of the commonest words", "min_stop_words"),
    "line_breaks": ("it has too many line ends for its words", "max_line_breaks_per_word"),
    "few_final_marks": (
        "too few of its lines end with a mark of a sentence",
        "min_final_mark_line_share",
    ),
    "bullet_lines": ("too many of its lines begin with a bullet", "max_bullet_line_share"),
    "ellipsis_lines": ("too many of its lines end with an ellipsis", "max_ellipsis_line_share"),
    "short_lines": ("too many of its lines are short", "max_short_line_share short_line_chars"),
    "duplicate_lines": ("too many of its lines come twice", "max_duplicate_line_share"),
    "duplicate_line_chars": (
        "too much of its text stands in lines that come twice",
        "max_duplicate_line_char_share",
    ),
    "duplicate_paragraphs": (
        "too many of its paragraphs come twice",
        "max_duplicate_paragraph_share",
    ),
    "top_gram": ("too much of it is one run of {} words", "max_top_n_gram_share"),
    "duplicate_grams": (
        "too much of it stands in runs of {} words that came before",
        "max_duplicate_n_gram_share",
    ),
    "duplicate": ("another document says the same, and that copy stayed", ""),
    "near_duplicate": (
        "another document says nearly the same, and that copy stayed",
        "duplicates.",
    ),
    "contained": ("another document holds all but all of it, and that one stayed", "duplicates."),
    "repeated_lines": (
        "too little is left without the lines that many documents of its source share",
        "repeated_lines. min_chars",
    ),
    "reserved": (
        "the hash of its text puts it into a held-out slice of which val takes only a part",
        "val_share",
    ),
    "contaminated": (
        "too little is left without the sentences that it shares with held-out text",
        "contamination. min_clean_share min_chars",
    ),
}

_WITH_NUMBER = re.compile(r"(top|duplicate)_(\d+)_(grams?)")


def in_words(verdict: str) -> str | None:
    """'duplicate_5_grams' -> 'too much of it stands in runs of 5 words that came before'; None for
    a verdict of another release."""
    number = ""
    if found := _WITH_NUMBER.fullmatch(verdict):
        verdict, number = f"{found[1]}_{found[3]}", found[2]
    if verdict in OUT:
        return OUT[verdict][0].format(number)
    return IN.get(verdict)


def deciding(verdict: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a step's settings, by dotted key, those that decide this verdict; all where that is not
    known."""
    if found := _WITH_NUMBER.fullmatch(verdict):
        verdict = f"{found[1]}_{found[3]}"
    wanted = OUT[verdict][1].split() if verdict in OUT else None
    if wanted is None:
        return dict(settings)
    return {
        key: value
        for key, value in settings.items()
        if any(f".{end}" in key if end.endswith(".") else key.endswith(f".{end}") for end in wanted)
    }
