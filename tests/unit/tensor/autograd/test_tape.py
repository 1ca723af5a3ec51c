"""The reverse walk: identity of tensors, history, writes, edges."""

from __future__ import annotations

import gc
import math
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError


def gradient_at(function: Any, *values: float) -> list[float]:
    x = Tensor(np.array(values, np.float32))
    found: list[float] = function(x).sum().gradient(x)[0].tolist()
    return found


def grad_of(x: Tensor) -> Any:
    assert x.grad is not None
    return x.grad.tolist()


def test_equal_tensors_have_gradients_of_their_own() -> None:
    a, b = Tensor.zeros(2), Tensor.zeros(2)
    first, second = (a * 3 + b * 5).sum().gradient(a, b)
    assert (first.tolist(), second.tolist()) == ([3, 3], [5, 5])


def test_equal_intermediate_values_have_gradients_of_their_own() -> None:
    x = Tensor([1.0, 2.0])
    a, b = x * 2, x * 2
    assert (a * 3 + b * 5).sum().gradient(a)[0].tolist() == [3, 3]


def test_a_view_is_a_target_of_its_own() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    row = x[0]
    loss = (row * row).sum() + x.sum()
    assert loss.gradient(row, x)[0].tolist() == [2, 4]
    assert loss.gradient(x)[0].tolist() == [[3, 5], [1, 1]]


def test_the_gradient_goes_through_values_that_were_realized() -> None:
    x = Tensor([2.0, 3.0], requires_grad=True)
    y = (x * x).realize()
    z = (y * x).realize()
    z.sum().backward()
    assert grad_of(x) == [12, 27]


def test_a_gradient_through_a_freed_history_is_an_error() -> None:
    x = Tensor([1.0, 2.0])
    y = (x * 2).realize()
    with pytest.raises(UserError, match="its history is gone"):
        (y + x).sum().gradient(x)


def test_a_second_backward_through_a_consumed_history_is_an_error() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum().realize()
    loss.backward()
    with pytest.raises(UserError):
        loss.backward()


def test_the_history_can_be_retained() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum().realize()
    loss.backward(retain_graph=True)
    loss.backward()
    assert grad_of(x) == [4, 8]


def test_gradients_add_up() -> None:
    x = Tensor([1.0], requires_grad=True)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert grad_of(x) == [5]


def test_backward_reaches_tensors_that_nobody_spoke_for_if_none_asks() -> None:
    x, y = Tensor([[2.0, 0.0]]), Tensor.eye(2)
    x.matmul(y).sum().backward()
    assert grad_of(x) == [[1, 1]]
    assert grad_of(y) == [[2, 2], [0, 0]]


def test_backward_leaves_tensors_alone_that_say_no() -> None:
    x, y = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=False)
    (x * y).sum().backward()
    assert y.grad is None


def test_a_target_that_the_value_does_not_depend_on_is_an_error() -> None:
    x, y = Tensor([1.0]), Tensor([1.0])
    with pytest.raises(UserError, match="doesn't depend on target 0"):
        (x * 2).sum().gradient(y)


def test_a_view_that_the_value_was_not_computed_from_is_an_error() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    view = x[1:]
    with pytest.raises(UserError, match="doesn't depend on target 0"):
        (x * x).sum().gradient(view)
    assert view[1:].floor().sum().gradient(view)[0].tolist() == [0.0, 0.0]


def test_zeros_can_be_asked_for_instead() -> None:
    x, y = Tensor([1.0]), Tensor([1.0])
    assert (x * 2).sum().gradient(y, materialize_grads=True)[0].tolist() == [0]


def test_only_scalars_are_differentiated_without_a_gradient() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(ShapeError, match="the value is not a scalar"):
        (x * 2).backward()


def test_integers_have_no_gradient() -> None:
    x = Tensor([1, 2])
    with pytest.raises(DTypeError, match="only floats have gradients"):
        (x * 1.5).sum().gradient(x)


def test_a_cast_to_integers_and_back_passes_nothing() -> None:
    assert gradient_at(lambda x: x.int().float() + x, 1.5, 2.5) == [1, 1]


def test_detach_stops_the_gradient() -> None:
    assert gradient_at(lambda x: x * x.detach(), 3.0) == [3]


def test_no_history_is_recorded_inside_no_grad() -> None:
    x = Tensor([1.0], requires_grad=True)
    with Tensor.no_grad():
        y = x * 2
    with pytest.raises(UserError, match="nothing to differentiate by"):
        y.sum().backward()


def test_second_derivatives() -> None:
    x = Tensor([2.0, 3.0])
    (first,) = (x * x * x).sum().gradient(x)
    assert first.sum().gradient(x)[0].tolist() == [12, 18]


def test_a_write_into_a_part_sends_the_gradient_to_the_value() -> None:
    x, v = Tensor([1.0, 2.0, 3.0]), Tensor([5.0, 6.0])
    y = x * 2
    y[1:] = v * 10
    first, second = (y * Tensor([1.0, 2.0, 3.0])).sum().gradient(x, v)
    assert (first.tolist(), second.tolist()) == ([2, 0, 0], [20, 30])


def test_a_parameter_written_as_a_whole_is_a_new_leaf() -> None:
    w = Tensor([1.0], requires_grad=True)
    (w * 2).sum().backward()
    w.assign(w.detach() - Tensor(grad_of(w)))
    w.grad = None
    (w * 3).sum().backward()
    assert w.tolist() == [-1]
    assert grad_of(w) == [3]


def test_the_history_of_training_steps_does_not_grow() -> None:
    w = Tensor([1.0], requires_grad=True)
    counts = []
    for _ in range(6):
        w.grad = None
        loss = (w * w).sum()
        loss.backward()
        w.assign((w - w.grad * 0.1).detach())  # type: ignore[operator]
        Tensor.realize(w, loss)
        gc.collect()
        counts.append(sum(type(each).__name__ == "Version" for each in gc.get_objects()))
    assert counts[-1] <= counts[2]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("elu", (100.0, 0.0, -100.0)), ("celu", (100.0, 0.0)), ("selu", (0.0, 90.0)),
        ("asin", (0.0,)), ("acos", (0.0,)), ("atan", (0.0, 1e20)), ("asinh", (0.0,)),
        ("sigmoid", (0.0, 100.0, -100.0)), ("softplus", (0.0, 100.0, -100.0)),
        ("relu", (0.0, 1.0)), ("abs", (0.0, -1.0)), ("silu", (0.0, 80.0)), ("tanh", (0.0, 50.0)),
        ("logsigmoid", (0.0, 100.0, -100.0)), ("mish", (0.0, 20.0)), ("relu6", (0.0, 6.0, 3.0)),
        ("sqrt", (4.0, 0.0)), ("expm1", (0.0,)), ("log1p", (0.0,)),
    ],
)  # fmt: skip
def test_gradients_at_the_edges_are_those_of_pytorch(name: str, values: Any) -> None:
    x = torch.tensor(values, requires_grad=True)
    functional = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    functional(x).sum().backward()
    got = gradient_at(lambda t: getattr(t, name)(), *values)
    assert x.grad is not None
    np.testing.assert_allclose(got, x.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_branch_that_is_not_taken_sends_no_nan() -> None:
    assert gradient_at(lambda x: (x > 0).where(x, 0.0).sqrt() * 0 + x, 1.0) == [1]


def test_the_power_of_zero_has_a_finite_gradient() -> None:
    assert gradient_at(lambda x: x**2.5 + x**0, 0.0) == [0]


def test_the_gradient_of_a_masked_row_is_finite() -> None:
    x = Tensor(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    masked = Tensor([[True, False], [True, True]]).where(x, -math.inf)
    got = masked.softmax(-1).sum().gradient(x)[0].numpy()
    assert np.isfinite(got).all()


def test_gradients_of_small_floats_keep_their_dtype() -> None:
    x = Tensor([1.0, 2.0], dtype=dtypes.float16)
    assert (x * x).sum().gradient(x)[0].dtype is dtypes.float16


def test_SCH_20_the_gradient_of_a_long_chain_takes_no_recursion() -> None:
    x = Tensor([1.0])
    y = x
    for _ in range(1500):
        y = y * 1.0
    assert y.sum().gradient(x)[0].tolist() == [1]


def test_scatter_sends_the_gradient_to_the_last_writer_alone() -> None:
    x, s = Tensor([0.0, 0.0]), Tensor([1.0, 2.0, 3.0])
    y = x.scatter(0, Tensor([0, 0, 1]), s)
    assert y.sum().gradient(s)[0].tolist() == [0, 1, 1]
