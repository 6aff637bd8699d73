"""The keyed permutation: a bijection for every size, and every order as likely as another."""

from collections import Counter
from math import factorial, sqrt

import pytest

from sifirdan.corpus.permutation import mixed, permuted


def order(size: int, *key: int) -> tuple[int, ...]:
    return tuple(permuted(index, size, mixed(*key)) for index in range(size))


def chi_square(counts: Counter, kinds: int) -> float:
    """How far the counts are from equal, in standard deviations of what chance gives."""
    expected = counts.total() / kinds
    missing = (kinds - len(counts)) * expected
    found = sum((count - expected) ** 2 / expected for count in counts.values()) + missing
    return (found - (kinds - 1)) / sqrt(2 * (kinds - 1))


@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_a_bijection_of_every_small_size(seed: int) -> None:
    for size in range(1, 71):
        for epoch in (0, 1, 10**12):
            assert sorted(order(size, seed, epoch)) == list(range(size))


def test_a_large_size_needs_no_table() -> None:
    size = 10**15 + 37
    found = [permuted(index, size, 5) for index in (*range(500), *range(size - 500, size))]
    assert len(set(found)) == 1000 and all(0 <= place < size for place in found)
    assert max(found) > 0.98 * size and min(found) < 0.02 * size


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    for size in (9, 16, 70):
        orders = {order(size, seed, epoch) for seed in range(10) for epoch in range(10)}
        assert len(orders) == 100 and tuple(range(size)) not in orders


def test_each_place_is_as_likely_for_the_first_and_for_the_last() -> None:
    for size in (2, 3, 7, 16, 37):
        for index in (0, size - 1):
            found = Counter(permuted(index, size, mixed(1, epoch)) for epoch in range(40 * size))
            assert chi_square(found, size) < 3, (size, index, found)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_order_of_a_few_is_as_likely(size: int) -> None:
    kinds = factorial(size)
    found = Counter(order(size, 7, epoch) for epoch in range(30 * kinds))
    assert len(found) == kinds and chi_square(found, kinds) < 3


def test_neighbours_do_not_stay_neighbours() -> None:
    """Of a thousand, one pair in 500 lies side by side by chance: 20 of 10 x 999."""
    kept = 0
    for epoch in range(10):
        places = order(1000, 3, epoch)
        kept += sum(abs(a - b) == 1 for a, b in zip(places[:-1], places[1:], strict=True))
    assert 8 <= kept <= 34


def test_the_hash_is_splitmix64_and_knows_the_order() -> None:
    """Its first number from the states 0 and 1234567, as published with it."""
    assert mixed(0) == 0xE220A8397B1DCDAF and mixed(1234567) == 6457827717110365317
    assert mixed(1, 2) != mixed(2, 1) and mixed(1) != mixed(1, 0)
    assert mixed(-1) == mixed(2**64 - 1)
