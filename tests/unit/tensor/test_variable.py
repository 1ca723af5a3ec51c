"""Sizes and positions that are given at run time."""

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, Variable, jit
from tilework.base.errors import BoundsError, DTypeError, IndexingError, ShapeError, UserError
from tilework.engine.stats import COUNTERS


def test_EXE_16_values_at_the_bounds_are_taken_and_those_outside_refused() -> None:
    n = Variable("n", 1, 8)
    assert [int(n.bind(value)) for value in (1, 8)] == [1, 8]
    for value in (0, 9):
        with pytest.raises(BoundsError, match="outside of its bounds"):
            n.bind(value)


def test_arithmetic_on_variables() -> None:
    n = Variable("n", 1, 8).bind(3)
    assert [int(each) for each in (n + 1, 2 * n, n - 1, 10 - n, n // 2)] == [4, 6, 2, 7, 1]


def test_a_variable_has_one_value_in_one_expression() -> None:
    x = Tensor(np.arange(8, dtype=np.float32))
    n = Variable("n", 1, 8)
    with pytest.raises(UserError, match="the variable n has two values"):
        x[: n.bind(2)].sum() + x[: n.bind(3)].sum()


def test_tensors_with_different_values_are_realized_together() -> None:
    x = Tensor(np.arange(8, dtype=np.float32)).realize()
    n = Variable("n", 1, 8)
    a, b = x[: n.bind(2)] * 2, x[: n.bind(3)] * 2
    Tensor.realize(a, b)
    assert (a.tolist(), b.tolist()) == ([0, 2], [0, 2, 4])


def test_a_slice_of_a_variable_size_is_computed_once_for_all_sizes() -> None:
    x = Tensor(np.arange(8, dtype=np.float32)).realize()
    n = Variable("n", 1, 8)
    assert (x[: n.bind(2)] * 3).sum().item() == 3
    before = COUNTERS.compiles
    assert [(x[: n.bind(k)] * 3).sum().item() for k in (3, 5, 8)] == [9, 30, 84]
    assert COUNTERS.compiles == before


def test_a_variable_position() -> None:
    t = Tensor(np.arange(24, dtype=np.float32).reshape(4, 3, 2))
    assert t[Variable("i", 0, 3).bind(2)].tolist() == [[12, 13], [14, 15], [16, 17]]


def test_a_variable_that_may_reach_outside_is_refused() -> None:
    t = Tensor(np.arange(4, dtype=np.float32))
    with pytest.raises(IndexingError, match="reach outside"):
        t[Variable("i", 0, 4).bind(1)]


def test_shapes_show_variables() -> None:
    n = Variable("n", 1, 8).bind(3)
    x = Tensor(np.arange(8, dtype=np.float32))[:n]
    assert x.shape == (3,)
    assert int(x.shape[0]) == 3


def test_matmul_over_a_variable_size() -> None:
    a = np.arange(24, dtype=np.float32).reshape(3, 8)
    n = Variable("n", 1, 8).bind(5)
    got = Tensor(a)[:, :n] @ Tensor(a.T)[:n]
    np.testing.assert_array_equal(got.numpy(), a[:, :5] @ a.T[:5])


def test_softmax_and_mean_over_a_variable_size() -> None:
    a = np.linspace(-1, 1, 8, dtype=np.float32)
    n = Variable("n", 1, 8).bind(5)
    part = Tensor(a)[:n]
    e = np.exp(a[:5])
    np.testing.assert_allclose(part.softmax().numpy(), e / e.sum(), rtol=1e-5)
    np.testing.assert_allclose(part.mean().numpy(), a[:5].mean(), atol=1e-6)


def test_an_unbound_variable_is_named() -> None:
    x = Tensor(np.arange(8, dtype=np.float32))[: Variable("n", 1, 8)]
    with pytest.raises(UserError, match="the variable n has no value"):
        x.numpy()


def test_a_size_must_be_an_integer() -> None:
    with pytest.raises(DTypeError, match="a size must be an integer"):
        Tensor.ones(2.5)


def test_elements_of_a_variable_number_of_rows_are_gathered_and_scattered() -> None:
    a = np.arange(40, dtype=np.float32).reshape(8, 5)
    places = np.array([[0, 3], [4, 4], [2, 1], [1, 0]] * 2)
    n = Variable("n", 1, 8).bind(3)
    x, index = Tensor(a)[:n], Tensor(places)[:n]
    np.testing.assert_array_equal(
        x.gather(1, index).numpy(), np.take_along_axis(a[:3], places[:3], 1)
    )
    want = a[:3].copy()
    np.add.at(want, (np.arange(3)[:, None], places[:3]), 1)
    got = x.scatter_add(1, index, index.ones_like().cast(x.dtype))
    np.testing.assert_array_equal(got.numpy(), want)


def test_an_index_of_another_variable_number_of_rows_is_refused() -> None:
    x, index = Tensor.zeros(8, 5), Tensor(np.zeros((8, 2), np.int64))
    with pytest.raises(ShapeError, match="the index doesn't fit"):
        x[: Variable("n", 1, 8).bind(3)].gather(1, index[: Variable("m", 1, 8).bind(3)])


def test_systems_of_a_variable_number_of_matrices() -> None:
    a = np.random.default_rng(0).standard_normal((4, 3, 3)).astype(np.float32)
    sides = np.ones((4, 3, 1), np.float32)
    n = Variable("n", 1, 4).bind(2)
    np.testing.assert_allclose(Tensor(a)[:n].det().numpy(), np.linalg.det(a[:2]), rtol=1e-4)
    solved = Tensor(a)[:n].solve(Tensor(sides)[:n]).numpy()
    np.testing.assert_allclose(solved, np.linalg.solve(a[:2], sides[:2]), rtol=1e-3)


@pytest.mark.parametrize("least", [1, 4])
def test_positions_from_the_end_of_a_variable_size_count_from_where_it_ends(least: int) -> None:
    x = Tensor(np.arange(8, dtype=np.float32))[: Variable("n", least, 8).bind(6)]
    assert x[[-1]].tolist() == [5]
    written = x.clone().realize()
    written[[-1, 0]] = 9
    assert written.tolist() == [9, 1, 2, 3, 4, 9]


def test_positions_from_the_end_follow_a_variable_in_replays() -> None:
    x, n = Tensor(np.arange(8, dtype=np.float32)).realize(), Variable("n", 1, 8)
    last = jit(lambda part: part[[-1]] * 2)
    assert [last(x[: n.bind(k)]).item() for k in (3, 3, 3, 5, 8)] == [4, 4, 4, 8, 14]


def test_a_mask_of_a_variable_size_picks_elements() -> None:
    x = Tensor(np.arange(8, dtype=np.float32))[: Variable("n", 1, 8).bind(6)]
    assert x[x > 3].tolist() == [4, 5]
    assert x.masked_select(x > 3).tolist() == [4, 5]


@pytest.mark.parametrize("mask", [[True], [True] * 6, Tensor([True])])
def test_a_mask_of_a_fixed_size_is_refused_where_the_size_is_variable(mask: Any) -> None:
    x = Tensor(np.arange(8, dtype=np.float32))[: Variable("n", 1, 8).bind(6)]
    with pytest.raises(IndexingError, match="the mask doesn't fit axis 0"):
        x[mask]
