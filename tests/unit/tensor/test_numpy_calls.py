"""NumPy's functions take tensors: operators give tensors, all others arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base.errors import TileworkError

A = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
N = np.array([5, 3, 12], dtype=np.int32)
OF_FLOATS = (
    np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.power,
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
)  # fmt: skip
OF_INTEGERS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift)


@pytest.mark.parametrize("function", OF_FLOATS + OF_INTEGERS, ids=lambda f: f.__name__)
def test_operators_give_tensors_on_both_sides(function: Any) -> None:
    one = N if function in OF_INTEGERS else A
    two = np.array([2, 1, 3], dtype=one.dtype)
    expected = function(one, two)
    for found in (function(Tensor(one), two), function(one, Tensor(two))):
        assert isinstance(found, Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_products_of_matrices_and_numpys_numbers() -> None:
    found: Any = A @ Tensor(A).transpose()
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), A @ A.T)
    scaled: Any = np.float32(2) * Tensor(A)
    assert isinstance(scaled, Tensor)
    assert scaled.dtype.name == "float32"
    np.testing.assert_array_equal(scaled.numpy(), 2 * A)


@pytest.mark.parametrize("function", [np.sin, np.sqrt, np.isnan, np.maximum, np.hypot])
def test_other_functions_give_arrays(function: Any) -> None:
    given = (Tensor(A), 2.0)[: function.nin]
    found = function(*given)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, function(*(A, 2.0)[: function.nin]))


def test_folds_outer_products_and_conditions_give_arrays() -> None:
    np.testing.assert_array_equal(np.add.reduce(Tensor(A)), A.sum(0))
    np.testing.assert_array_equal(np.multiply.outer(Tensor(A[0]), A[1]), np.outer(A[0], A[1]))
    where = np.array([True, False, True])
    found = np.add(Tensor(A), 1, where=where, out=np.zeros_like(A))
    np.testing.assert_array_equal(found, np.where(where, A + 1, 0))


def test_an_array_is_written_in_place_and_a_tensor_is_not() -> None:
    array = A.copy()
    kept = array
    array += Tensor(A)
    assert array is kept
    np.testing.assert_array_equal(array, 2 * A)
    with pytest.raises(TypeError):
        np.add(A, 1, out=Tensor(A))  # type: ignore[call-overload]


def test_a_capture_refuses_an_array_of_what_is_not_computed() -> None:
    @jit
    def step(x: Tensor) -> Any:
        return Tensor(np.sin(x))

    with pytest.raises(TileworkError):
        step(Tensor(A))


def test_a_tensor_may_say_where() -> None:
    t, chosen = Tensor([1.0, 2.0, 3.0]), Tensor([True, False, True])
    assert np.add(t, t, where=chosen, out=np.zeros(3, np.float32)).tolist() == [2, 0, 6]
    assert np.add.reduce(t, where=chosen) == 4
