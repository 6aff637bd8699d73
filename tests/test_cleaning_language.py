"""Turkish is let in, its sisters are not, nothing is fetched, and short lines are as documented."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sifirdan.cleaning.language import LanguageParams, assess, guess, language_reason
from sifirdan.errors import ConfigError
from sifirdan.text import upper_tr

ROOT = Path(__file__).parents[1]
LANGUAGES = ROOT / "tests/data/languages"
PARAMS = LanguageParams(allowed=["tr"], min_letters=20, min_probability=0.5)


def lines(name: str) -> list[str]:
    return (LANGUAGES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def test_turkish_is_let_in(texts: list[str]) -> None:
    for line in [*lines("tr"), *map(upper_tr, lines("tr")), "\n".join(lines("tr"))]:
        assert language_reason(line, PARAMS) is None, (line, guess(line))
    assert guess("\n".join(lines("tr")))[0] == "tr"
    assert guess("\n".join(texts))[1] > 0.9


def test_turkish_typed_without_its_letters_is_let_in() -> None:
    for line in [*lines("tr_ascii"), "\n".join(lines("tr_ascii"))]:
        assert language_reason(line, PARAMS) is None, (line, guess(line))


@pytest.mark.parametrize("name", ["az", "tk", "uz", "ku", "en", "de", "fr", "is"])
def test_other_languages_are_turned_away(name: str) -> None:
    for line in [*lines(name), "\n".join(lines(name))]:
        if len(line) >= 40:
            assert language_reason(line, PARAMS) is not None, (line, guess(line))


@pytest.mark.parametrize("name", ["crh", "gag"])
def test_languages_that_the_model_was_not_taught_are_turned_away_as_documents(name: str) -> None:
    assert language_reason("\n".join(lines(name)), PARAMS) == "other_language"


def test_a_few_foreign_names_in_a_long_turkish_text_do_no_harm() -> None:
    names = "Əliyev, Nový, Ňazar, Xuan, Qin ve Weber de oradaydı, aqlı olan gelsin."
    document = "\n".join([*lines("tr"), names, *lines("tr")])
    assert language_reason(document, PARAMS) is None


@pytest.mark.parametrize(
    "line",
    ["Это предложение написано по-русски.", "这是一个中文句子。" * 5, "هذه جملة عربية قصيرة جدا"],
)
def test_other_alphabets_are_turned_away_at_any_length(line: str) -> None:
    assert language_reason(line, PARAMS) == "other_language"
    assert language_reason(line[:8], PARAMS) == "other_language"


@pytest.mark.parametrize("line", ["", "12345 67", "Evet.", "OK", "New York", "Tamam, geliyorum"])
def test_a_short_line_is_not_judged(line: str) -> None:
    assert language_reason(line, PARAMS) is None


def test_a_foreign_name_or_an_address_in_turkish_does_no_harm() -> None:
    for line in (
        "Washington'da yaşayan Max Weber'in kitabı Türkçeye çevrildi.",
        "Ayrıntılar için https://www.example.com/qwx/wxq?ə=ə adresine bakınız, teşekkürler.",
        "Händel'in bu eseri yarın akşam Ankara'da seslendirilecek.",
    ):
        assert language_reason(line, PARAMS) is None, (line, guess(line))


def test_the_limits_decide() -> None:
    line = lines("en")[0]
    assert language_reason(line, PARAMS) == "other_language"
    both = LanguageParams(allowed=["tr", "en"], min_letters=20, min_probability=0.5)
    assert language_reason(line, both) is None
    sure = LanguageParams(allowed=["tr", "en"], min_letters=20, min_probability=1.0)
    assert language_reason("Bu sentence karışık, very mixed bir cümle.", sure) is not None
    assert language_reason(line, LanguageParams(["tr"], 1000, 0.5)) is None


def test_assess_is_guess_and_reason_in_one() -> None:
    for name in ("tr", "tr_ascii", "az", "en"):
        for line in [*lines(name), lines(name)[0][:15], ""]:
            assert assess(line, PARAMS) == (*guess(line), language_reason(line, PARAMS))


def test_a_long_text_is_judged_by_its_whole_length() -> None:
    turkish, english = "\n".join(lines("tr")), "\n".join(lines("en"))
    assert guess(turkish * 200)[0] == "tr"
    assert guess(turkish[:100] + english * 200)[0] == "en"


def test_nothing_is_fetched() -> None:
    script = """
import socket, sys
def refuse(event, args):
    if event.startswith("socket."):
        raise AssertionError(event)
sys.addaudithook(refuse)
from sifirdan.cleaning.language import guess
print(guess("Bugün hava çok güzel, biz de çocuklarla parka gittik.")[0])
try:
    socket.socket()
except AssertionError:
    print("guarded")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["tr", "guarded"], done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [("allowed", []), ("allowed", ["Turkish"]), ("min_letters", 0), ("min_probability", 1.5)],
)
def test_values_that_cannot_work_are_refused(key: str, value: Any) -> None:
    good: dict[str, Any] = {"allowed": ["tr"], "min_letters": 20, "min_probability": 0.5}
    with pytest.raises(ConfigError, match=key):
        LanguageParams(**{**good, key: value})
