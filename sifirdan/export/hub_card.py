"""The README.md of a folder that goes to the Hub: its header, checked before anything is sent.

The Hub refuses a commit with a bad header, which would be after the upload; so the same rules stand
here. They are a part of the Hub's own check, which `hub.py` asks as well. Not for making the pages:
corpus/model_card.py does.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from sifirdan.errors import DataError

CARD_FILE = "README.md"
# As the Hub itself lists them (huggingface/huggingface_hub issue 4218, May 2026). A later one is
# written as `license: other` with its name.
_LISTED = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
    bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
    c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0
    cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
    cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl
    ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
    lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0
    odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr
    deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3
    llama4 grok2-community gemma unknown other
"""
LICENSES = frozenset(_LISTED.split())
LISTS = ("language", "license", "datasets", "tags", "metrics", "base_model")  # or one entry alone
_HEADER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")  # ISO 639-1 to 639-3
_LICENSE_NAME = re.compile(r"[a-z0-9.-]+")


def check_card(path: Path, text: str) -> None:
    """Refuse a page whose header the Hub would not take; every fault is named."""
    if problems := card_problems(text):
        raise DataError(
            f"{path}: " + "\n  ".join(problems),
            expected="a header that the Hub takes, between two lines of ---",
            todo="mend the header where the page is made, then make the folder anew",
        )


def card_problems(text: str) -> list[str]:
    """What is wrong with a page's header, a line each.

    >>> card_problems("---\\nlicense: mit\\nlanguage: Turkish\\n---\\n")
    ["language is 'Turkish', not a code of two or three small letters such as tr"]
    """
    header = _HEADER.match(text)
    if header is None:
        return ["it does not begin with a header between two lines of ---"]
    try:
        content = yaml.safe_load(header[1])
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        return [f"the header is not valid YAML: {' '.join(str(error).split())}"]
    if not isinstance(content, dict):
        return [f"the header holds {type(content).__name__}, not keys with values"]
    entries = [
        (f"{key}[{index}]" if isinstance(value, list) else str(key), str(key), entry)
        for key, value in content.items()
        for index, entry in enumerate(value if isinstance(value, list) else [value])
    ]
    problems = [
        problem for place, key, entry in entries if (problem := _problem(place, key, entry))
    ]
    return problems + _license_problems(content)


def _problem(place: str, key: str, entry: Any) -> str | None:
    if entry is None:
        return f"{place} is null: fill it or take it out"
    if key in LISTS and not isinstance(entry, str):
        return f"{place} is {entry!r}, not text (write it in quotes)"
    if key == "language" and not _LANGUAGE.fullmatch(entry):
        return f"{place} is {entry!r}, not a code of two or three small letters such as tr"
    if key == "license" and entry not in LICENSES:
        return (
            f"{place} is {entry!r}, not an id of the Hub's list such as apache-2.0"
            " (another one is written as license: other with license_name)"
        )
    return None


def _license_problems(content: dict[Any, Any]) -> list[str]:
    """What the licence needs beside its own form."""
    if not content.get("license"):
        return ["license is missing (other, with license_name, for one that the Hub does not know)"]
    name = content.get("license_name")
    licenses = content["license"] if isinstance(content["license"], list) else [content["license"]]
    if "other" in licenses and name is None:
        return ["license is other, and license_name does not say which"]
    if name is not None and not _LICENSE_NAME.fullmatch(str(name)):
        return [f"license_name is {name!r}, not small letters, digits, dots and hyphens"]
    return []
