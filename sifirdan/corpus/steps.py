"""The steps of cleaning in their order, as the data card and the page tell of them: what each does,
with which settings, and which verdicts it can give. Every verdict belongs to exactly one step, so
the numbers of all steps add up to the documents that are out.
"""

from collections.abc import Mapping
from typing import Any

from sifirdan.cleaning.by_reader import REASONS as PLAIN_REASONS
from sifirdan.cleaning.by_reader import all_repairs
from sifirdan.cleaning.quality import QualityParams, quality_checks
from sifirdan.corpus.card import Step
from sifirdan.corpus.compare import COPY_REASONS, REPEATED_LINES
from sifirdan.corpus.reasons import NOT_FOR_PRETRAINING
from sifirdan.corpus.settle import CONTAMINATED, RESERVED

Places = Mapping[str, Mapping[str, int]]  # by source, then by what was done


def steps_of(
    params: Mapping[str, Any], repairs: Places, personal: Places, cut: Places
) -> list[Step]:
    """`params` is the section `clean` as a dict. `repairs` counts the places that each repair mended,
    `personal` those of each kind of personal data, `cut` those where lines and sentences went."""
    chat = Step("chat", "Sources for chat alone stay out.", {}, (NOT_FOR_PRETRAINING,))
    return [chat, *_repair_steps(params["repairs"], repairs), *_rule_steps(params, personal, cut)]


def _repair_steps(settings: Mapping[str, Any], repairs: Places) -> list[Step]:
    """One step for each repair that mended something."""
    on = Step("repairs", "Which repairs are made; NFC and LF always.", _keyed("repairs", settings))
    found: list[Step] = []
    for repair in all_repairs():
        name, what = repair.__name__, " ".join((repair.__doc__ or "").split())
        if places := _places(repairs, name):
            found.append(Step(name, what, places=places))
    return [on, *found]


def _rule_steps(params: Mapping[str, Any], personal: Places, cut: Places) -> list[Step]:
    def plain(*keys: str) -> dict[str, Any]:
        return {f"clean.{key}": params[key] for key in keys}

    def section(name: str) -> dict[str, Any]:
        return _keyed(name, params[name])

    masked = {name: total for name, kinds in personal.items() if (total := sum(kinds.values()))}
    return [
        Step("personal data", "Masked, or the document goes.", section("personal"),
             tuple(f"personal_{kind}" for kind in params["personal"]), masked),
        Step("plain rules", "Empty, damaged, placeholder or too short.",
             plain("min_chars", "max_replacement_share"), PLAIN_REASONS),
        Step("flags", "Marked; dropped by setting.", section("flags"), tuple(params["flags"])),
        Step("language", "Web text in another language goes.", section("language"),
             ("other_language", "uncertain_language")),
        Step("quality", "Web text outside the limits goes.", section("quality"),
             _quality_reasons(QualityParams(**params["quality"]))),
        Step("duplicates", "Of equal and nearly equal texts one stays.",
             section("duplicates") | plain("max_duplicate_share"), COPY_REASONS),
        Step("repeated lines", "Lines in many documents of a source stay in the first ones.",
             section("repeated_lines") | plain("min_chars"), (REPEATED_LINES,), _places(cut, REPEATED_LINES)),
        Step("slices", "Text of a held-out slice that val does not use.", plain("val_share"),
             (RESERVED,)),
        Step("decontamination", "Sentences shared with held-out text go.",
             section("contamination") | plain("min_clean_share", "min_chars"), (CONTAMINATED,),
             _places(cut, CONTAMINATED)),
    ]  # fmt: skip


def _quality_reasons(params: QualityParams) -> tuple[str, ...]:
    """Those of the rules that are on: each measures any text."""
    return tuple(check.reason for check in quality_checks("Bir söz.", params))


def _keyed(section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"clean.{section}.{key}": value for key, value in settings.items()}


def _places(counts: Places, name: str) -> dict[str, int]:
    return {source: found[name] for source, found in counts.items() if found.get(name)}
