"""Random numbers: the published generator, their distributions, and that nothing changes them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from tilework import Tensor
from tilework.base import settings
from tilework.base.errors import UserError

#: A distribution that passes is refused once in so many runs; the seeds are fixed.
UNLIKELY = 1e-4
COUNT = 200_000


def as_words(pairs: np.ndarray) -> np.ndarray:
    """Pairs of 32-bit words as 64-bit ones, the first word low."""
    wide = pairs.astype(np.uint64)
    return np.asarray(wide[0] | wide[1] << np.uint64(32))


def test_threefry_is_that_of_jax_for_the_same_keys_and_counters() -> None:
    from jax.extend.random import threefry_2x32

    generator = np.random.default_rng(5)
    for _ in range(20):
        key = generator.integers(0, 2**32, 2, dtype=np.uint32)
        counters = generator.integers(0, 2**32, (2, 50), dtype=np.uint32)
        want = np.asarray(threefry_2x32(key, counters.reshape(-1))).reshape(2, 50)
        ours = Tensor(as_words(counters)).threefry(Tensor(as_words(key.reshape(2, 1))))
        np.testing.assert_array_equal(ours.numpy(), as_words(want))


def draws() -> list[np.ndarray]:
    """One draw of each kind."""
    Tensor.manual_seed(11)
    made = [
        Tensor.rand(37), Tensor.randn(5, 7), Tensor.randint(41, low=-3, high=90),
        Tensor.randperm(23), Tensor.rand(19, dtype="float64"), Tensor.rand(19, dtype="bfloat16"),
    ]  # fmt: skip
    return [one.numpy() for one in made]


@pytest.mark.parametrize("device", ["PYTHON", "CPU:CLANG"])
def test_draws_are_the_same_on_every_device(device: str) -> None:
    here = draws()
    with settings.override(dev=device):
        there = draws()
    for number, (a, b) in enumerate(zip(here, there, strict=True)):
        if number == 1:  # normal numbers go through logarithms and cosines
            np.testing.assert_allclose(a, b, rtol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


def test_draws_do_not_depend_on_how_work_is_divided() -> None:
    found = []
    for threads in (1, 2, 5):
        with settings.override(num_threads=threads):
            Tensor.manual_seed(3)
            found.append(Tensor.rand(300_001).numpy())
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_a_part_of_a_draw_has_the_numbers_of_the_whole() -> None:
    Tensor.manual_seed(3)
    whole = Tensor.rand(1000).numpy()
    Tensor.manual_seed(3)
    np.testing.assert_array_equal(Tensor.rand(1000)[200:300].numpy(), whole[200:300])


def test_several_draws_are_one_draw_cut_up() -> None:
    Tensor.manual_seed(3)
    whole = Tensor.rand(100).numpy()
    Tensor.manual_seed(3)
    parts = np.concatenate([Tensor.rand(size).numpy() for size in (1, 40, 0, 59)])
    np.testing.assert_array_equal(parts, whole)


def test_a_state_that_was_saved_goes_on_where_it_was() -> None:
    Tensor.manual_seed(9)
    Tensor.rand(17).realize()
    state = Tensor.random_state()
    assert state[2] == 17
    want = Tensor.rand(5).tolist()
    Tensor.manual_seed(1)
    Tensor.set_random_state(state)
    assert Tensor.rand(5).tolist() == want


def test_a_wrong_state_is_refused() -> None:
    with pytest.raises(UserError, match="no state of random numbers"):
        Tensor.set_random_state((1, 2))
    with pytest.raises(UserError, match="no state of random numbers"):
        Tensor.set_random_state((1, 2**32, 0))


# --- distributions -----------------------------------------------------------------------------


def likely(p: float) -> bool:
    return p > UNLIKELY


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_are_uniform(dtype: str) -> None:
    Tensor.manual_seed(1)
    values = Tensor.uniform(COUNT, low=-2, high=6, dtype=dtype).numpy().astype(np.float64)
    assert likely(scipy.stats.kstest(values, "uniform", (-2, 8)).pvalue)
    counts = np.histogram(values, 256, (-2, 6))[0]
    assert likely(scipy.stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_are_normal(dtype: str) -> None:
    Tensor.manual_seed(2)
    values = Tensor.normal(COUNT, mean=3, std=2, dtype=dtype).numpy().astype(np.float64)
    assert likely(scipy.stats.kstest(values, "norm", (3, 2)).pvalue)
    assert abs(scipy.stats.kurtosis(values)) < 0.05
    assert np.abs(values - 3).max() > 2 * 4  # the tails are there


def test_neighbouring_numbers_are_independent() -> None:
    Tensor.manual_seed(3)
    values = Tensor.rand(COUNT).numpy().astype(np.float64)
    for lag in (1, 2, 7, 64):
        correlation = np.corrcoef(values[:-lag], values[lag:])[0, 1]
        assert abs(correlation) < 4 / math.sqrt(COUNT)
    pairs = np.floor(values.reshape(-1, 2) * 16).astype(int)
    counts = np.bincount(pairs[:, 0] * 16 + pairs[:, 1], minlength=256)
    assert likely(scipy.stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("span", [2, 3, 7, 100, 1000])
def test_integers_are_all_equally_likely(span: int) -> None:
    Tensor.manual_seed(4)
    values = Tensor.randint(COUNT, low=-5, high=span - 5).numpy()
    assert likely(scipy.stats.chisquare(np.bincount(values + 5, minlength=span)).pvalue)


def test_permutations_are_all_equally_likely() -> None:
    Tensor.manual_seed(5)
    place = {order: at for at, order in enumerate(itertools.permutations(range(4)))}
    found = [tuple(Tensor.randperm(4).tolist()) for _ in range(480)]
    counts = np.bincount([place[order] for order in found], minlength=24)
    assert likely(scipy.stats.chisquare(counts).pvalue)


def test_multinomial_with_replacement_follows_its_weights() -> None:
    Tensor.manual_seed(6)
    weights = np.array([1.0, 0, 5, 2, 8], np.float32)
    values = Tensor(weights).multinomial(COUNT, replacement=True).numpy()
    counts = np.bincount(values, minlength=5)
    assert counts[1] == 0
    some = weights > 0
    expected = COUNT * weights[some] / weights.sum()
    assert likely(scipy.stats.chisquare(counts[some], expected).pvalue)


def test_multinomial_without_replacement_draws_each_at_most_once() -> None:
    Tensor.manual_seed(7)
    weights = np.array([[1.0, 2, 3, 4]] * 4000, np.float32)
    values = Tensor(weights).multinomial(2).numpy()
    assert (values[:, 0] != values[:, 1]).all()
    counts = np.bincount(values[:, 0], minlength=4)
    assert likely(scipy.stats.chisquare(counts, 4000 * weights[0] / 10).pvalue)
    pair = np.mean([((a, b) in ((2, 3), (3, 2))) for a, b in values])
    want = 0.3 * 0.4 / 0.7 + 0.4 * 0.3 / 0.6
    assert abs(pair - want) < 4 * math.sqrt(want * (1 - want) / 4000)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_independently_with_its_probability(p: float) -> None:
    Tensor.manual_seed(8)
    with Tensor.train():
        kept = Tensor.ones(COUNT).dropout(p).numpy() != 0
    share = kept.mean()
    assert abs(share - (1 - p)) < 4 * math.sqrt(p * (1 - p) / COUNT)
    assert abs(np.corrcoef(kept[:-1], kept[1:])[0, 1]) < 4 / math.sqrt(COUNT)
