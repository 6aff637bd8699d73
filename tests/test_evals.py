"""Scores depend on weights and text alone; every token is scored exactly once; brute force agrees."""

import math

import numpy as np
import pytest
import torch
from conftest import tiny_model

from sifirdan.chat import encode_conversation
from sifirdan.evals.answers import Answer, answer, answer_nats, own_question_share, stop_rules
from sifirdan.evals.bits_per_byte import score_documents, total, windows
from sifirdan.evals.samples import draw_samples, known_word_share, words_of
from sifirdan.generate import Sampling
from sifirdan.tokenizer import Tokenizer

EOS = 2


def documents() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        np.append(rng.integers(4, 300, size), EOS).astype(np.uint16)
        for size in (0, 1, 3, 15, 16, 17, 90, 5)
    ]


def brute_force(model, ids: np.ndarray, window: int, stride: int) -> float:
    """Each token alone, with the context its window gives it."""
    stream = [EOS, *ids.tolist()]
    nats = 0.0
    for place in range(1, len(stream)):
        first = 0
        while first + window < place:
            first += stride
        first = min(first, max(0, len(ids) - window))  # the last window is full
        logits = model(torch.tensor([stream[first:place]]))[0, -1]
        nats -= float(logits.log_softmax(-1)[stream[place]])
    return nats


@pytest.mark.parametrize(("window", "stride"), [(16, 16), (16, 8), (16, 5), (64, 1), (64, 64)])
def test_E_03_every_token_once_and_equal_to_brute_force(window: int, stride: int) -> None:
    model = tiny_model()
    scores = score_documents(model, documents(), [10] * 8, window=window, stride=stride, eos_id=EOS)
    with torch.no_grad():
        for ids, score in zip(documents(), scores, strict=True):
            assert score.nats == pytest.approx(brute_force(model, ids, window, stride), rel=1e-5)
    for ids in documents():
        scored = [
            int(t)
            for piece in windows(0, ids, window, stride, EOS, False)
            for t in piece.targets
            if t != -100
        ]
        assert scored == ids.tolist()


def test_E_04_lengths_in_a_batch_change_nothing() -> None:
    model = tiny_model()
    options = {"window": 64, "stride": 64, "eos_id": EOS}
    together = score_documents(model, documents(), [1] * 8, **options)
    alone = [score_documents(model, [ids], [1], **options)[0] for ids in documents()]
    for a, b in zip(together, alone, strict=True):
        assert a.nats == pytest.approx(b.nats, rel=1e-6)
    turned = score_documents(model, documents()[::-1], [1] * 8, **options)
    assert total(turned).nats == pytest.approx(total(together).nats, rel=1e-7)


def test_E_01_units_and_sums_divided_once() -> None:
    model = tiny_model()
    scores = score_documents(
        model, documents(), list(range(1, 9)), window=64, stride=64, eos_id=EOS
    )
    whole = total(scores)
    assert whole.bits_per_byte == pytest.approx(sum(s.nats for s in scores) / math.log(2) / 36)
    assert whole.token_perplexity == pytest.approx(math.exp(whole.nats / whole.tokens))
    assert whole.tokens == sum(len(ids) for ids in documents()) and whole.documents == 8


def test_evaluation_leaves_training_as_it_was() -> None:
    model = tiny_model().train()
    before = torch.get_rng_state()
    score_documents(model, documents(), [1] * 8, window=64, stride=64, eos_id=EOS)
    assert model.training and torch.equal(before, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def conversations() -> list:
    return [
        [
            {"role": "user", "content": f"“{word}” ne demek?"},
            {"role": "assistant", "content": f"{word} bir şeydir."},
        ]
        for word in ("ağaç", "deniz", "kuş")
    ]


def test_answer_nats_equal_brute_force(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size, 128)
    with torch.no_grad():
        for messages, (nats, targets) in zip(
            conversations(), answer_nats(model, tokenizer, conversations()), strict=True
        ):
            encoded = encode_conversation(tokenizer, messages)
            logprobs = model(torch.tensor([encoded.ids]))[0].log_softmax(-1)
            expected = -sum(
                float(logprobs[i - 1, encoded.ids[i]])
                for i in range(len(encoded.ids))
                if encoded.loss_mask[i]
            )
            assert nats == pytest.approx(expected, rel=1e-5) and targets == sum(encoded.loss_mask)


def test_own_question_share_pairs_questions_of_one_wording(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size, 128)
    talks = conversations()
    own = [nats for nats, _ in answer_nats(model, tokenizer, talks)]

    def under(question: int, answer: int) -> float:
        return answer_nats(model, tokenizer, [[talks[question][0], talks[answer][1]]])[0][0]

    expected = [own[0] < under(2, 0), own[2] < under(0, 2)]  # the one in the middle is alone
    share = own_question_share(model, tokenizer, talks, [7, 8, 7])
    assert share == pytest.approx(sum(expected) / 2)
    assert math.isnan(own_question_share(model, tokenizer, talks, [1, 2, 3]))
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()  # no token sees another
    assert own_question_share(model, tokenizer, talks, [1, 1, 1]) == 0.0, "a tie is not a win"


def test_answers_hold_no_control_text_and_know_whether_they_stopped(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size, 128)
    answers = answer(
        model, tokenizer, conversations(), sampling=Sampling(1.0, 0, 1.0), max_new_tokens=20, seed=1
    )
    assert [a.question for a in answers] == [c[0]["content"] for c in conversations()]
    assert all("<|" not in a.text and "</s>" not in a.text for a in answers)
    rules = stop_rules(tokenizer)
    assert set(rules["stop_ids"]) | set(rules["forbidden_ids"]) == tokenizer.control_ids


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("Bir ağaçtır.", True),
        ("Bir. İki.", False),
        ("yarım kaldı", False),
        ("“Ev.”", True),
        ("", False),
        ("1.5 kilo.", True),
    ],
)
def test_one_sentence(text: str, one: bool) -> None:
    assert Answer("s", "y", text, True).is_one_sentence is one


def test_samples_start_from_the_document_mark_and_words_are_turkish(tokenizer: Tokenizer) -> None:
    model = tiny_model(tokenizer.vocab_size, 128)
    samples = draw_samples(
        model, tokenizer, ["", "Bir gün"], sampling=Sampling(1.0, 0, 1.0), max_new_tokens=10, seed=1
    )
    assert [sample.prompt for sample in samples] == ["", "Bir gün"] and all(
        sample.text for sample in samples
    )
    assert words_of("IĞDIR'da İzmir 12 ev") == ["ığdır", "da", "izmir", "ev"]
    assert known_word_share(["ev Ilık x"], {"ev", "ılık"}) == pytest.approx(2 / 3)
    assert known_word_share([""], set()) == 0.0
