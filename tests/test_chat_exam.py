"""The examination of a chat model: matches by hand, blind baselines, form, questions by type."""

import pytest
from conftest import tiny_model

from sifirdan.evals.answers import Answer
from sifirdan.evals.chat_exam import (
    constant_answers,
    draw_questions,
    examine,
    form,
    is_well_formed,
    matches,
    partial_match,
)
from sifirdan.generate import Sampling
from sifirdan.tokenizer import Tokenizer


def row(kind: str, question: str, answer: str, template: int | None = 0) -> dict:
    talk = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"type": kind, "template": template, "messages": talk}


def given(text: str, expected: str = "y", stopped: bool = True) -> Answer:
    return Answer("s", expected, text, stopped)


@pytest.mark.parametrize(
    ("text", "expected", "value"),
    [
        ("Iğdır büyük.", "ığdır BÜYÜK", 1.0),
        ("İyi bir ev", "iyi ev", 0.8),
        ("ev ev ev", "ev", 0.5),
        ("42", "Konya'nın plaka kodu 42", 2 * 1 / (1 + 5)),
        ("", "ev", 0.0),
        ("", "", 0.0),
    ],
)
def test_partial_match_is_the_f1_of_words(text: str, expected: str, value: float) -> None:
    assert partial_match(text, expected) == pytest.approx(value)


def test_matches_stand_beside_what_is_had_without_the_question() -> None:
    answers = [given("Ev.", "ev"), given("Su.", "göl"), given("göl", "su")]
    found = matches(answers, "ev")
    assert found["exact_match_share"] == pytest.approx(1 / 3)
    assert found["blind_exact_match_share"] == pytest.approx(1 / 3)
    assert found["shifted_exact_match_share"] == pytest.approx(1 / 3), "göl answers the second"
    assert "blind_partial_match" not in matches(answers, None)


def test_the_best_constant_answer_matches_the_others_best() -> None:
    rows = [row("a", "s", text) for text in ("bir iki üç", "bir iki dört", "bir beş", "altı")]
    assert constant_answers(rows, 1)["a"] in ("bir iki üç", "bir iki dört")


def test_form_is_counted_whatever_is_said() -> None:
    answers = [
        given("Evet."),
        given("evet."),
        given("Evet.", stopped=False),
        given("<|user|> Evet."),
    ]
    found = form(answers)
    assert found["questions"] == 4 and found["stopped_share"] == 0.75
    assert found["well_formed_share"] == 0.25 and found["control_text_share"] == 0.25
    assert found["distinct_share"] == 0.75
    assert is_well_formed(given("“Evet” dedi.")) and not is_well_formed(given("Evet"))
    assert not is_well_formed(given("Bir iki üç dört bir iki üç dört.")) and not is_well_formed(given(""))  # fmt: skip


def test_questions_are_drawn_by_type_and_seed() -> None:
    rows = [row("definition", f"s{n}", "y") for n in range(9)]
    rows += [row(kind, f"{kind}{n}", "y") for kind in ("synonym", "idiom") for n in range(5)]
    drawn = draw_questions(rows, main=4, others=2, seed=1)
    assert [q.type for q in drawn] == ["definition"] * 4 + ["idiom"] * 2 + ["synonym"] * 2
    assert drawn == draw_questions(rows, main=4, others=2, seed=1)
    assert drawn != draw_questions(rows, main=4, others=2, seed=2)
    fewer = draw_questions(rows[:9], main=4, others=2, seed=1)
    assert fewer == drawn[:4], "other types change nothing"


def test_an_examination_has_every_type(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size, 128)
    rows = [
        row("definition", f"{word} ne demek?", f"Bir {word}.") for word in ("ağaç", "deniz", "kuş")
    ]
    rows += [row("synonym", f"{word} eş anlamlısı?", word, None) for word in ("su", "yol")]
    found, answers = examine(
        model, tokenizer, draw_questions(rows, main=3, others=1, seed=1), {"definition": "Bir ağaç."},
        sampling=Sampling(1.0, 0, 1.0), max_new_tokens=8, seed=1,
    )  # fmt: skip
    assert found["questions"] == 3 and list(found["types"]) == ["synonym"] and len(answers) == 4
    assert found["types"]["synonym"]["questions"] == 1
    assert found["blind_partial_match"] > found["partial_match"]
    assert "own_question_share" in found and "own_question_share" not in found["types"]["synonym"]
    assert found["nats_per_target"] > 0 and found["control_text_share"] == 0.0
