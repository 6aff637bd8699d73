"""Asciified Turkish and vulgar words are seen; what only resembles them is not."""

from pathlib import Path

import pytest

from sifirdan.cleaning import flags
from sifirdan.cleaning.flags import FlagParams, flag_reason, flags_of, has_profanity, is_asciified

LANGUAGES = Path(__file__).parent / "data/languages"


def lines(name: str) -> list[str]:
    return (LANGUAGES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "line", ["cok guzel bir gun", "NASILSIN, BUGUN COK IYI MISIN", *lines("tr_ascii")]
)
def test_asciified_turkish_is_seen(line: str) -> None:
    assert is_asciified(line)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in LANGUAGES.glob("*.txt") if path.stem != "tr_ascii")
)
def test_other_text_is_not_asciified(name: str) -> None:
    for line in [*lines(name), "\n".join(lines(name))]:
        assert not is_asciified(line), line


@pytest.mark.parametrize(
    "line",
    [
        "Bu bir elma ve ben onu yedim, sonra eve gittim.",  # Turkish without such letters
        "Ali ile Veli bu akşam bize gelecek.",
        "He has a gun and a cok in his hand on Sunday.",
        "Bu kitob juda yaxshi va men uni bir kunda o'qidim.",  # Uzbek
        "Bir sey non e una parola.",
        "",
        "12345",
    ],
)
def test_what_is_not_asciified(line: str) -> None:
    assert not is_asciified(line)


@pytest.mark.parametrize(
    "line",
    [
        "Siktir git buradan!", "O piçin teki.", "GÖTÜNÜ KALDIR", "Boktan bir iş.", "orospunun oğlu",
        "Bu ne amk", "Sikeyim böyle işi", "sıçtım batırdım", "Yarrağı yedik.", "ibnelik yapma",
        "Pezevenkler!", "puştun biri", "Hassiktir ya", "bok’un içinde",
    ],
)  # fmt: skip
def test_vulgar_words_are_seen_with_their_endings(line: str) -> None:
    assert has_profanity(line)


@pytest.mark.parametrize(
    "line",
    [
        "boksörlük", "boks", "Bokserler ringe çıktı.", "götürmek", "Götürdüler, götürüyor.", "sikke",
        "Sikkeler ve siklet", "bisiklet", "siklon", "amca", "amcık", "Amcacığım geldi, amcam da.",
        "sıçan", "sıçramak", "Sıçrayıp kaçtı", "Sıkıntı sıktı, SIKI TUT", "aman amin ama", "Amina Hanım",
        "piknik", "MK 12. madde", "eksik klasik müzik", "Göteborg", "Goethe", "yararak", "oyarak",
        "kahpur", "disikonu", "sikinti basti cok sikildim bu gun nasil olacak", "Oğuz Atay", "çok hoş",
    ],
)  # fmt: skip
def test_false_hits_stay_away(line: str) -> None:
    assert not has_profanity(line)


def test_no_text_of_the_project_is_vulgar(texts: list[str]) -> None:
    for text in [*texts, *lines("tr")]:
        assert flags_of(text) == []


def test_flags_only_mark_and_dropping_is_a_setting() -> None:
    text = "cok guzel bir gun amk"
    assert flags_of(text) == ["asciified", "profanity"]
    for asciified, profanity, reason in (
        ("keep", "keep", None),
        ("drop", "keep", "asciified"),
        ("keep", "drop", "profanity"),
    ):
        params = FlagParams(asciified=asciified, profanity=profanity)  # type: ignore[arg-type]
        assert flag_reason(flags_of(text), params) == reason
    assert flag_reason([], FlagParams(asciified="drop", profanity="drop")) is None
    assert {flags.ASCIIFIED, flags.PROFANITY} == set(vars(FlagParams("keep", "keep")))
