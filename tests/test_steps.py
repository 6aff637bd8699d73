"""The steps that the data card names, and that every verdict belongs to one of them."""

from dataclasses import asdict, replace

import corpora

from sifirdan.cleaning.quality import quality_checks
from sifirdan.config import read_yaml
from sifirdan.corpus.compare import COPY_REASONS, REPEATED_LINES
from sifirdan.corpus.judge import NOT_FOR_PRETRAINING
from sifirdan.corpus.settle import CONTAMINATED, RESERVED
from sifirdan.corpus.steps import steps_of

FIXED = (
    "empty", "invalid", "replacement_characters", "index_page", "placeholder", "no_definition",
    "too_short", "asciified", "profanity", "other_language", "uncertain_language",
    *(f"personal_{kind}" for kind in ("tckn", "iban", "card", "phone", "email")),
    NOT_FOR_PRETRAINING, *COPY_REASONS, REPEATED_LINES, RESERVED, CONTAMINATED,
)  # fmt: skip


def test_every_verdict_belongs_to_exactly_one_step() -> None:
    steps = steps_of(asdict(corpora.CLEAN), {}, {}, {})
    named = [reason for step in steps for reason in step.reasons]
    quality = [check.reason for check in quality_checks("Bir söz.", corpora.CLEAN.quality)]
    assert sorted(named) == sorted([*FIXED, *quality])


def test_every_setting_of_cleaning_is_named_with_its_value() -> None:
    section = read_yaml(corpora.PROJECT / "presets/tiny.yaml")["clean"]
    named = {k: v for step in steps_of(section, {}, {}, {}) for k, v in step.settings.items()}
    for key, value in section.items():
        for name, one in value.items() if isinstance(value, dict) else [("", value)]:
            if key != "reject_sample":
                assert named[f"clean.{key}.{name}".rstrip(".")] == one


def test_a_rule_that_is_off_gives_no_verdict() -> None:
    quality = replace(corpora.CLEAN.quality, min_words=None)
    steps = steps_of(asdict(replace(corpora.CLEAN, quality=quality)), {}, {}, {})
    assert "too_few_words" not in {reason for step in steps for reason in step.reasons}


def test_places_are_counted_by_source() -> None:
    repairs = {"a": {"compose": 3}, "b": {"compose": 0, "strip_controls": 1}}
    personal = {"a": {"email": 2, "phone": 1}, "b": {}}
    cut = {"a": {REPEATED_LINES: 4, CONTAMINATED: 0}}
    steps = {s.name: s for s in steps_of(asdict(corpora.CLEAN), repairs, personal, cut)}
    assert steps["compose"].places == {"a": 3} and steps["strip_controls"].places == {"b": 1}
    assert steps["personal data"].places == {"a": 3}
    assert steps["repeated lines"].places == {"a": 4}
    assert steps["decontamination"].places == {}
