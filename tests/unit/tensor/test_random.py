"""Random numbers: the published algorithm, seeds, independence, order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError
from tilework.tensor.random import _scaled, key_of_seed
from tilework.tensor.threefry import threefry_numbers


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(counter: Any, key: Any, want: Any) -> None:
    assert threefry_numbers(key, counter) == want


def test_draws_are_the_words_of_the_counter() -> None:
    Tensor.manual_seed(5)
    key = key_of_seed(5)
    want = [threefry_numbers(key, (number, 0))[0] for number in range(7)]
    first = Tensor.random_bits(3).tolist()
    second = Tensor.random_bits(4).tolist()
    assert first + second == want


def test_the_same_seed_gives_the_same_numbers() -> None:
    Tensor.manual_seed(3)
    first = Tensor.rand(5).tolist()
    Tensor.manual_seed(3)
    assert Tensor.rand(5).tolist() == first


def test_another_seed_gives_other_numbers() -> None:
    Tensor.manual_seed(3)
    first = Tensor.rand(5).tolist()
    Tensor.manual_seed(4)
    assert Tensor.rand(5).tolist() != first


def test_the_order_of_realization_changes_nothing() -> None:
    Tensor.manual_seed(3)
    a, b = Tensor.rand(4), Tensor.rand(4)
    forward = a.tolist(), b.tolist()
    Tensor.manual_seed(3)
    c, d = Tensor.rand(4), Tensor.rand(4)
    last = d.tolist()
    assert (c.tolist(), last) == forward


def test_a_draw_made_before_a_new_seed_keeps_its_numbers() -> None:
    Tensor.manual_seed(3)
    want = Tensor.rand(4).tolist()
    Tensor.manual_seed(3)
    early = Tensor.rand(4)
    Tensor.manual_seed(9)
    assert early.tolist() == want


def test_a_draw_is_the_same_whenever_it_is_read() -> None:
    x = Tensor.rand(4)
    y = x * 2
    assert (x * 2).tolist() == y.tolist()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_lie_below_one(name: str) -> None:
    Tensor.manual_seed(1)
    values = Tensor.rand(20000, dtype=name).numpy()
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(float(values.astype(np.float64).mean()) - 0.5) < 0.01


def test_normal_numbers_have_mean_zero_and_variance_one() -> None:
    Tensor.manual_seed(1)
    values = Tensor.randn(20000).numpy()
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.02
    assert np.isfinite(values).all()


def test_integers_cover_their_range_and_no_more() -> None:
    Tensor.manual_seed(1)
    values = Tensor.randint(5000, low=-2, high=3).numpy()
    assert sorted(set(values.tolist())) == [-2, -1, 0, 1, 2]


def test_bounds_outside_of_the_dtype_are_refused() -> None:
    with pytest.raises(DTypeError, match="the bounds don't fit"):
        Tensor.randint(3, low=0, high=300, dtype=dtypes.int8)


def test_a_permutation_holds_each_number_once() -> None:
    assert sorted(Tensor.randperm(50).tolist()) == list(range(50))


def test_dropout_does_nothing_outside_of_training() -> None:
    x = Tensor.ones(10)
    assert x.dropout(0.5) is x


def test_dropout_keeps_the_mean_while_training() -> None:
    Tensor.manual_seed(2)
    with Tensor.train():
        values = Tensor.ones(10000).dropout(0.25).numpy()
    assert set(np.unique(values).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert abs(values.mean() - 1) < 0.03


def test_multinomial_follows_its_weights() -> None:
    Tensor.manual_seed(2)
    found = Tensor([0.0, 3.0, 1.0]).multinomial(4000, replacement=True).numpy()
    share = np.bincount(found, minlength=3) / 4000
    np.testing.assert_allclose(share, [0, 0.75, 0.25], atol=0.03)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("int64", 0, 2**40),
        ("int64", -(2**63), 2**63),
        ("uint64", 2**63, 2**64),
        ("int64", -5, 2**32 - 5),
        ("uint32", 0, 2**32),
        ("int8", -128, 128),
    ],
)
def test_integers_are_drawn_from_any_range_of_their_dtype(kind: str, low: int, high: int) -> None:
    Tensor.manual_seed(3)
    found = [int(one) for one in Tensor.randint(4000, low=low, high=high, dtype=kind).numpy()]
    assert low <= min(found) < low + (high - low) // 20
    assert high - (high - low) // 20 <= max(found) < high
    assert abs(sum(found) / len(found) - (low + high) / 2) < (high - low) / 40


def test_large_spans_are_scaled_as_whole_numbers() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, (2, 50), dtype=np.uint64)
    for span in (1, 10, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 12345, 2**64 - 1, 2**64):
        found = _scaled(Tensor(words[0]), Tensor(words[1]), span).numpy()
        want = [((int(a) << 32 | int(b)) * span) >> 64 for a, b in words.T]
        assert [int(one) for one in found] == want


def farthest_from(counts: Any, exact: Any) -> float:
    """The greatest distance between the distribution functions of draws and of exact chances."""
    found = np.bincount(counts.astype(int), minlength=len(exact))[: len(exact)] / len(counts)
    return float(np.abs(np.cumsum(found) - np.cumsum(exact)).max())


def log_factorials(most: int) -> Any:
    return np.array([math.lgamma(k + 1) for k in range(most)])


@pytest.mark.parametrize("rate", [0.3, 9.9, 10.0, 47.0])
def test_poisson_draws_have_the_exact_distribution(rate: float) -> None:
    Tensor.manual_seed(5)
    counts = Tensor.full((20000,), rate).poisson().numpy()
    k = np.arange(200)
    exact = np.exp(k * math.log(rate) - rate - log_factorials(200))
    assert farthest_from(counts, exact) < 0.013


@pytest.mark.parametrize(("trials", "chance"), [(10, 0.3), (10, 0.95), (100, 0.5), (300, 0.9)])
def test_binomial_draws_have_the_exact_distribution(trials: int, chance: float) -> None:
    Tensor.manual_seed(6)
    counts = Tensor.full((20000,), float(trials)).binomial(Tensor(chance)).numpy()
    k, logs = np.arange(trials + 1), log_factorials(trials + 1)
    ways = logs[-1] - logs - logs[::-1]
    exact = np.exp(ways + k * math.log(chance) + (trials - k) * math.log(1 - chance))
    assert farthest_from(counts, exact) < 0.013


def test_counts_of_nothing_certain_and_impossible() -> None:
    assert Tensor([0.0, -1.0, math.nan]).poisson().isnan().tolist() == [False, True, True]
    assert Tensor([5.0, 5.0, 0.0]).binomial(Tensor([0.0, 1.0, 0.5])).tolist() == [0.0, 5.0, 0.0]
    wrong = Tensor([2.5, -1.0, 3.0]).binomial(Tensor([0.5, 0.5, 1.5]))
    assert wrong.isnan().tolist() == [True, True, True]
    assert Tensor.zeros(0, 3).poisson().shape == (0, 3)


def test_a_poisson_draw_repeats_with_the_seed() -> None:
    drawn = []
    for _ in range(2):
        Tensor.manual_seed(7)
        drawn.append(Tensor([3.0, 30.0, 300.0]).poisson().tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("trials", [1e6, 1e9, 1e13, 1e15])
def test_few_successes_of_many_trials_are_a_poisson_draw(trials: float) -> None:
    Tensor.manual_seed(5)
    numbers = Tensor.full((4000,), trials, dtype="float64")
    found = numbers.binomial(Tensor.full((4000,), 2.0 / trials, dtype="float64")).numpy()
    assert abs(found.mean() - 2.0) < 0.12
    assert abs(found.var() - 2.0) < 0.3
