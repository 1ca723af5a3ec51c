"""Tensors as Python objects: comparing with what is no number, copies, other processes."""

from __future__ import annotations

import copy
import operator
import pickle

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError


def test_a_tensor_is_not_equal_to_none_or_text() -> None:
    x = Tensor([1.0])
    for other in (None, "a"):
        assert operator.eq(x, other) is False
        assert operator.ne(x, other) is True


def test_none_is_no_operand() -> None:
    with pytest.raises(DTypeError, match="add: an operand can't be used"):
        operator.add(Tensor([1.0]), None)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_])
def test_a_pickled_tensor_has_the_same_elements(dtype: dtypes.DType) -> None:
    x = Tensor([[0, 1, 1], [1, 0, 0]], dtype=dtypes.int32).cast(dtype)
    found = pickle.loads(pickle.dumps(x[:, ::2]))
    assert found.dtype is dtype
    assert found.tolist() == x[:, ::2].tolist()


def test_a_pickled_parameter_still_wants_its_gradient() -> None:
    found = pickle.loads(pickle.dumps(Tensor([1.0], requires_grad=True)))
    assert found.requires_grad


def test_a_pickled_tensor_of_no_elements_keeps_its_shape() -> None:
    assert pickle.loads(pickle.dumps(Tensor(np.zeros((0, 3), np.float32)))).shape == (0, 3)


def test_a_shallow_copy_is_a_view_and_a_deep_copy_is_not() -> None:
    x = Tensor([1.0, 2.0])
    shallow, deep = copy.copy(x), copy.deepcopy(x)
    x[0] = 5.0
    assert shallow.tolist() == [5.0, 2.0]
    assert deep.tolist() == [1.0, 2.0]
