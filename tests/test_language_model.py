"""Scores taken apart still add up; brute force agrees; intervals and calibration by hand."""

import math

import numpy as np
import pytest
import torch
from conftest import tiny_model
from torch import nn

from sifirdan.evals.bits_per_byte import score_documents, total
from sifirdan.evals.language_model import (
    DocumentScores,
    TextFacts,
    bootstrap_interval,
    calibration,
    fingerprint,
    measure,
    perplexity,
    score_tokens,
    text_facts,
    token_counts,
    unigram_bits_per_byte,
)
from sifirdan.evals.likelihood import Piece, token_scores
from sifirdan.model.transformer import Transformer

EOS, WINDOW = 2, 32
LENGTHS = (1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW - 1, 2 * WINDOW, 2 * WINDOW + 5)


def documents(vocab_size: int, lengths: tuple[int, ...] = LENGTHS) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [np.append(rng.integers(8, vocab_size, length - 1), EOS) for length in lengths]


@torch.no_grad()
def one_by_one(model: Transformer, ids: np.ndarray, stride: int) -> tuple[list[float], list[int]]:
    """Nats of each token from a forward pass of its own, and how many tokens that pass saw."""
    stream = [EOS, *ids.tolist()]
    nats, seen = [], []
    for place in range(1, len(stream)):
        first = 0
        while first + WINDOW < place:
            first += stride
        first = min(first, max(0, len(ids) - WINDOW))  # the last window is moved back
        context = stream[first:place]
        logits = model(torch.tensor([context]))[0, -1].double()
        nats.append(-float(logits.log_softmax(-1)[stream[place]]))
        seen.append(len(context))
    return nats, seen


@pytest.mark.parametrize("stride", [1, 7, WINDOW])
def test_E_03_windows_equal_one_token_at_a_time(trained_model: Transformer, stride: int) -> None:
    texts = documents(trained_model.config.vocab_size)
    scores = score_tokens(trained_model, texts, window=WINDOW, stride=stride, eos_id=EOS)
    sums = score_documents(
        trained_model, texts, [1] * len(texts), window=WINDOW, stride=stride, eos_id=EOS
    )
    for ids, score, whole in zip(texts, scores, sums, strict=True):
        nats, seen = one_by_one(trained_model, ids, stride)
        assert score.nats == pytest.approx(nats, rel=1e-4)
        assert score.nats.sum() == pytest.approx(sum(nats), rel=1e-5) == whole.nats
        assert score.seen.tolist() == seen


def test_a_model_without_an_opinion_scores_ln_V() -> None:
    model = tiny_model(300, WINDOW)
    nn.init.zeros_(model.lm_head.weight)
    texts = documents(300)
    whole = total(score_documents(model, texts, [1] * 8, window=WINDOW, stride=7, eos_id=EOS))
    assert whole.nats / whole.tokens == pytest.approx(math.log(300), rel=1e-7)
    assert whole.token_perplexity == pytest.approx(300, rel=1e-6)
    facts = [TextFacts("a", 10, 2, 9)] * 8
    found = measure(score_tokens(model, texts, window=WINDOW, stride=7, eos_id=EOS), facts, seed=1)
    assert all(bits == pytest.approx(math.log2(300)) for bits in found["positions"].values())
    assert found["calibration"]["confidence"] == pytest.approx(1 / 300)


def test_dropout_changes_no_figure(trained_model: Transformer) -> None:
    class WithDropout(nn.Module):
        def __init__(self, inside: nn.Module) -> None:
            super().__init__()
            self.inside, self.dropout = inside, nn.Dropout(0.5)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.dropout(self.inside(ids))
            return logits

    texts = documents(trained_model.config.vocab_size)
    options = {"window": WINDOW, "stride": 7, "eos_id": EOS}
    plain = score_tokens(trained_model, texts, **options)
    model = WithDropout(trained_model).train()
    before = torch.get_rng_state()
    again = score_tokens(model, texts, **options)
    assert model.training and torch.equal(before, torch.get_rng_state())
    trained_model.eval()
    for a, b in zip(plain, again, strict=True):
        assert np.array_equal(a.nats, b.nats)


def test_E_04_lengths_of_a_batch_change_no_token(trained_model: Transformer) -> None:
    texts = documents(trained_model.config.vocab_size, (3, 300, 17))
    options = {"window": WINDOW, "stride": 16, "eos_id": EOS}
    together = score_tokens(trained_model, texts, **options)
    for ids, score in zip(texts, together, strict=True):
        (alone,) = score_tokens(trained_model, [ids], **options)
        assert score.nats == pytest.approx(alone.nats, rel=1e-4, abs=1e-6)
        assert np.array_equal(score.correct, alone.correct)


def test_confidence_and_correctness_are_of_the_likeliest_token(trained_model: Transformer) -> None:
    ids = documents(trained_model.config.vocab_size, (20,))[0]
    inputs = np.concatenate([[EOS], ids[:-1]])
    (scores,) = token_scores(trained_model, [Piece(0, inputs, ids)])
    with torch.no_grad():
        chances = trained_model(torch.tensor(inputs[None]))[0].softmax(-1)
    assert scores.confidence == pytest.approx(chances.max(-1).values.numpy(), rel=1e-4)
    assert scores.correct.tolist() == (chances.argmax(-1).numpy() == ids).tolist()


def made_up(nats: list[float]) -> DocumentScores:
    size = len(nats)
    return DocumentScores(
        np.array(nats), np.arange(1, size + 1), np.full(size, 0.5), np.zeros(size, bool)
    )


def test_parts_add_up_to_the_whole() -> None:
    scores = [made_up([1.0, 2.0, 3.0]), made_up([4.0]), made_up([0.5] * 20), made_up([9.0])]
    facts = [TextFacts("a", 6, 2, 5), TextFacts("b", 4, 1, 4), TextFacts("a", 30, 5, 29)]
    found = measure(scores, [*facts, TextFacts("b", 0, 0, 0)], seed=1)
    assert found["documents"] == 3 and found["unscorable"] == 1
    assert (found["tokens"], found["words"], found["characters"], found["bytes"]) == (24, 8, 38, 40)
    assert found["bits_per_byte"] == pytest.approx(20 / math.log(2) / 40)
    assert found["token_perplexity"] == pytest.approx(math.exp(20 / 24))
    assert found["word_perplexity"] == pytest.approx(math.exp(20 / 8))
    assert found["character_perplexity"] == pytest.approx(math.exp(20 / 38))
    assert found["sources"] == {
        "a": pytest.approx(16 / math.log(2) / 36), "b": pytest.approx(4 / math.log(2) / 4)
    }  # fmt: skip
    assert found["lengths"] == {
        "1-16": pytest.approx(10 / math.log(2) / 10), "17-32": pytest.approx(10 / math.log(2) / 30)
    }  # fmt: skip
    assert list(found["positions"]) == ["1", "2-3", "4-7", "8-15", "16-31"]
    assert found["positions"]["1"] == pytest.approx((1 + 4 + 0.5) / 3 / math.log(2))
    assert found["low"] <= found["bits_per_byte"] <= found["high"]
    assert measure([made_up([])], [TextFacts("a", 0, 0, 0)], seed=1) == {
        "documents": 0, "unscorable": 1
    }  # fmt: skip


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(60):
        sizes = rng.integers(50, 150, 200)
        nats = sizes * rng.normal(1.0, 0.3, 200)
        low, high = bootstrap_interval(nats, sizes, seed, resamples=200)
        held += low <= 1.0 <= high
    assert 50 <= held <= 60, "95 % of 60 is 57"
    same = np.full(5, 7.0)
    assert bootstrap_interval(same, same, 1) == (1.0, 1.0)


def test_calibration_by_hand() -> None:
    scores = DocumentScores(
        np.zeros(4),
        np.ones(4),
        np.array([0.95, 0.95, 0.25, 1.0]),
        np.array([True, False, True, True]),
    )
    found = calibration([scores])
    assert [part["tokens"] for part in found["bins"]] == [1, 3]
    assert found["error"] == pytest.approx((1 * 0.75 + 3 * abs(2 / 3 - 2.9 / 3)) / 4)
    assert found["accuracy"] == 0.75


def test_text_facts_count_what_a_reader_counts() -> None:
    assert text_facts("a", "Iğdır'da  kar\nyağdı.") == TextFacts("a", 24, 3, 20)


def test_perplexity_of_nothing_is_infinite() -> None:
    assert perplexity(3.0, 0) == math.inf and perplexity(1e6, 1) == math.inf
    assert perplexity(0.0, 4) == 1.0


def test_a_fingerprint_names_the_set_of_texts() -> None:
    assert fingerprint(["b", "a"]) == fingerprint(["a", "b"]) != fingerprint(["a", "c"])
    assert len(fingerprint([])) == 12


def test_frequencies_of_tokens_alone() -> None:
    counts = token_counts([np.array([0, 1, 1]), np.array([1])], 4)
    assert counts.tolist() == [1, 3, 0, 0]
    expected = -(math.log2(4 / 8) + math.log2(1 / 8)) / 5
    assert unigram_bits_per_byte(counts, [np.array([1, 3])], 5) == pytest.approx(expected)
