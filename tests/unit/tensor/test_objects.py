"""Tensors as Python objects: comparing with what is no number, copies, other processes."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.base.errors import CaptureError, DeviceUnavailableError, DTypeError, ShapeError


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


class OfAUser(Tensor):
    """A class of a user, which takes other arguments than `Tensor`."""

    def __init__(self, count: int) -> None:
        super().__init__([2.0] * count)


@pytest.mark.parametrize("other", [Tensor([1.0, 2.0]), np.array([1, 2], dtype=np.float32)])
def test_a_class_of_a_user_meets_tensors_and_arrays_on_both_sides(other: object) -> None:
    own = OfAUser(2)
    assert isinstance(own - other, OfAUser)
    assert (own - other).tolist() == [1.0, 0.0]
    assert operator.sub(other, own).tolist() == [-1.0, 0.0]


def test_an_integer_of_one_element_is_an_index_for_python() -> None:
    assert ["a", "b", "c"][Tensor([[2]])] == "c"
    assert list(range(Tensor(3))) == [0, 1, 2]


@pytest.mark.parametrize("wrong", [Tensor(1.0), Tensor([0, 1])])
def test_no_other_tensor_is_an_index_for_python(wrong: Tensor) -> None:
    with pytest.raises(DTypeError, match="only an integer tensor of one element"):
        operator.index(wrong)


def test_a_captured_function_cannot_choose_by_a_value() -> None:
    step = jit(lambda place: Tensor([1.0, 2.0])[: range(3)[place]])
    place = Tensor(1).realize()
    with pytest.raises(CaptureError, match="a value is read on the host"):
        [step(place) for _ in range(3)]


@pytest.mark.parametrize("use", [len, list])
def test_a_scalar_is_no_sequence_which_is_an_error_of_type_and_of_shape(use: Any) -> None:
    with pytest.raises(TypeError, match="a scalar") as raised:
        use(Tensor(1.0))
    assert isinstance(raised.value, ShapeError)


def test_builtin_functions_take_tensors() -> None:
    assert [part.tolist() for part in divmod(Tensor([7, -7]), 2)] == [[3, -4], [1, 1]]
    assert [part.tolist() for part in divmod(7, Tensor([2, -2]))] == [[3, -4], [1, -1]]
    assert round(Tensor([2.5, 1.25]), 1).tolist() == [2.5, pytest.approx(1.2)]
    assert round(Tensor([2.5])).tolist() == [2.0]
    assert complex(Tensor([2.5])) == 2.5


def test_elements_cannot_be_deleted() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(DTypeError, match="can't be deleted"):
        del x[0]


def test_a_masked_array_keeps_its_mask_or_is_refused() -> None:
    data = np.ma.array([1.0, 2.0], mask=[True, False])
    with pytest.raises(DTypeError, match="masked"):
        Tensor([1.0, 1.0]) + data
    assert Tensor(np.ma.array([1.0, 2.0])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("given", ["float16", "half", np.float16, np.dtype("float16")])
def test_what_stands_for_a_dtype_converts_as_the_dtype_does(given: Any) -> None:
    assert Tensor([1.0]).to(given).dtype is dtypes.float16


def test_a_name_of_no_dtype_is_one_of_a_device() -> None:
    with pytest.raises(DeviceUnavailableError, match="no back end FLOAT17"):
        Tensor([1.0]).to("float17")
