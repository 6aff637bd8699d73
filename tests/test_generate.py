"""Cached, batched and streamed generation are the same function; samplers keep their promises."""

import pytest
import torch
from conftest import tiny_model

from sifirdan.errors import CheckpointError, ConfigError
from sifirdan.generate import Sampling, generate, keep_top_k, keep_top_p, sample, steps

GREEDY = Sampling(0.0, 0, 1.0)


def naive(model, prompt: list[int], count: int, forbidden: list[int]) -> list[int]:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([ids]))[0, -1]
            logits[forbidden] = -torch.inf
            ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_G_01_G_03_cache_and_batch_change_nothing(kv_heads: int) -> None:
    model = tiny_model(num_kv_heads=kv_heads)
    prompts = [[5], [5, 6], list(range(10, 33)), [9, 9, 9]]
    options = {
        "max_new_tokens": 40,
        "sampling": GREEDY,
        "stop_ids": [],
        "forbidden_ids": [0, 1],
        "seed": 1,
    }
    together = generate(model, prompts, **options)
    for prompt, completion in zip(prompts, together, strict=True):
        assert (
            completion.ids
            == generate(model, [prompt], **options)[0].ids
            == naive(model, prompt, 40, [0, 1])
        )
        assert not completion.stopped


def test_stop_ids_end_a_row_alone_and_are_not_returned() -> None:
    model = tiny_model()
    free = generate(
        model, [[5], [7]], max_new_tokens=20, sampling=GREEDY, stop_ids=[], forbidden_ids=[], seed=1
    )
    stop = free[0].ids[3]
    ended = generate(
        model,
        [[5], [7]],
        max_new_tokens=20,
        sampling=GREEDY,
        stop_ids=[stop],
        forbidden_ids=[],
        seed=1,
    )
    assert ended[0].ids == free[0].ids[: free[0].ids.index(stop)] and ended[0].stopped
    assert ended[1].ids[:3] == free[1].ids[:3]


def test_forbidden_ids_never_come() -> None:
    model = tiny_model()
    allowed = [7, 8, 9]
    forbidden = [i for i in range(300) if i not in allowed]
    for sampling in (
        GREEDY,
        Sampling(1.0, 0, 1.0),
        Sampling(10.0, 200, 1.0),
        Sampling(1e-4, 0, 0.5),
    ):
        drawn = generate(
            model,
            [[5]] * 8,
            max_new_tokens=30,
            sampling=sampling,
            stop_ids=[],
            forbidden_ids=forbidden,
            seed=2,
        )
        assert {i for completion in drawn for i in completion.ids} <= set(allowed)


def test_streaming_equals_one_call_and_can_be_closed() -> None:
    model = tiny_model()
    options = {
        "max_new_tokens": 25,
        "sampling": Sampling(0.9, 20, 0.95),
        "stop_ids": [3],
        "forbidden_ids": [0],
        "seed": 4,
    }
    whole = generate(model, [[5, 6]], **options)[0]
    streamed = [fresh[0] for fresh in steps(model, [[5, 6]], **options)]
    assert [token for token in streamed if token is not None] == whole.ids
    some = steps(model, [[5, 6]], **options)
    next(some)
    some.close()
    assert torch.is_grad_enabled()


def test_the_seed_decides_the_draw() -> None:
    model = tiny_model()

    def draw(seed: int) -> list[int]:
        return generate(
            model,
            [[5]],
            max_new_tokens=30,
            sampling=Sampling(1.0, 0, 1.0),
            stop_ids=[],
            forbidden_ids=[],
            seed=seed,
        )[0].ids

    before = torch.get_rng_state()
    assert draw(1) == draw(1) != draw(2)
    assert torch.equal(before, torch.get_rng_state()), "the global generator is left alone"


def test_order_is_temperature_top_k_top_p() -> None:
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0]])
    kept = torch.isfinite(keep_top_k(logits, 3))[0].tolist()
    assert kept == [True, True, True, False, False]
    assert torch.equal(keep_top_k(logits, 0), logits) and torch.equal(keep_top_k(logits, 9), logits)
    probabilities = logits.softmax(-1)[0]
    p = float(probabilities[:2].sum())
    assert torch.isfinite(keep_top_p(logits, p - 1e-4))[0].tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert torch.isfinite(keep_top_p(logits, p + 1e-4))[0].tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert torch.isfinite(keep_top_p(logits, 1e-9))[0].tolist() == [
        True,
        False,
        False,
        False,
        False,
    ]
    generator = torch.Generator().manual_seed(1)
    hot = {int(sample(logits, Sampling(10.0, 2, 1.0), generator)) for _ in range(200)}
    assert hot == {0, 1}


def test_drawn_frequencies_follow_the_probabilities() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0]]).repeat(20_000, 1)
    drawn = sample(logits, Sampling(0.7, 0, 1.0), torch.Generator().manual_seed(3))
    expected = (logits[0] / 0.7).softmax(-1)
    assert torch.allclose(torch.bincount(drawn, minlength=3) / 20_000, expected, atol=0.015)


@pytest.mark.parametrize(
    "values",
    [
        (-0.1, 0, 1.0),
        (11.0, 0, 1.0),
        (float("nan"), 0, 1.0),
        (1.0, -1, 1.0),
        (1.0, 0, 0.0),
        (1.0, 0, 1.1),
    ],
)
def test_settings_outside_the_documented_range_are_refused(values: tuple) -> None:
    with pytest.raises(ConfigError):
        Sampling(*values)


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 0.01, 1.0, 10.0])
@pytest.mark.parametrize("top_k", [0, 1, 299, 1000])
@pytest.mark.parametrize("top_p", [1e-6, 0.5, 1.0])
def test_settings_inside_the_range_work(temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(1)) * 50
    drawn = sample(logits, Sampling(temperature, top_k, top_p), torch.Generator().manual_seed(1))
    assert drawn.shape == (4,) and (temperature > 0.01 or torch.equal(drawn, logits.argmax(-1)))


def test_what_does_not_fit_or_is_not_finite_is_refused() -> None:
    model = tiny_model()
    options = {"sampling": GREEDY, "stop_ids": [], "forbidden_ids": [], "seed": 1}
    with pytest.raises(ConfigError, match="context"):
        generate(model, [[1] * 60], max_new_tokens=5, **options)
    with pytest.raises(ConfigError, match="0 tokens"):
        generate(model, [[]], max_new_tokens=5, **options)
    model.model.norm.weight.data[0] = float("nan")
    with pytest.raises(CheckpointError, match="not finite"):
        generate(model, [[1]], max_new_tokens=5, **options)
