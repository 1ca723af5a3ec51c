"""Custom functions, checkpoints, and numbers as small integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_a_custom_function_has_the_gradient_that_it_states() -> None:
    function = Tensor.custom_function(lambda x, y: x * y, lambda g, x, y: (g * 10, None))
    x, y = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0])
    value = function(x, y)
    assert value.tolist() == [3.0, 8.0]
    assert value.sum().gradient(x)[0].tolist() == [10.0, 10.0]


def test_a_custom_gradient_can_be_differentiated_again() -> None:
    cube = Tensor.custom_function(lambda x: x * x * x, lambda g, x: g * x * x * 3)
    x = Tensor([2.0])
    (first,) = cube(x).sum().gradient(x)
    assert first.sum().gradient(x)[0].tolist() == [12.0]


def test_a_custom_function_must_give_a_gradient_for_each_tensor() -> None:
    function = Tensor.custom_function(lambda x, y: x * y, lambda g, x, y: (g,))
    x, y = Tensor([1.0]), Tensor([2.0])
    with pytest.raises(UserError, match="needs a gradient for each tensor"):
        function(x, y).sum().gradient(x)


def test_a_custom_gradient_must_have_the_shape_of_its_tensor() -> None:
    function = Tensor.custom_function(lambda x: x * 2, lambda g, x: g.sum())
    x = Tensor([1.0, 2.0])
    with pytest.raises(ShapeError, match="a gradient has another shape"):
        function(x).sum().gradient(x)


def test_a_checkpoint_has_the_value_and_the_gradient_of_its_function() -> None:
    x = Tensor(X, requires_grad=True)
    plain = (x * x).exp().sum()
    kept = Tensor.checkpoint(lambda x: (x * x).exp(), x).sum()
    np.testing.assert_array_equal(kept.numpy(), plain.numpy())
    np.testing.assert_array_equal(kept.gradient(x)[0].numpy(), plain.gradient(x)[0].numpy())


def test_parameters_that_a_checkpoint_reads_get_their_gradients() -> None:
    weight = Tensor([2.0, 3.0], requires_grad=True)
    x = Tensor([1.0, 5.0], requires_grad=True)
    Tensor.checkpoint(lambda x: x * weight, x).sum().backward()
    assert weight.grad is not None
    assert x.grad is not None
    assert weight.grad.tolist() == [1.0, 5.0]
    assert x.grad.tolist() == [2.0, 3.0]


def test_a_checkpoint_inside_of_a_checkpoint_is_one_function() -> None:
    x = Tensor([2.0])
    inner = Tensor.checkpoint(lambda x: Tensor.checkpoint(lambda y: y * y, x) * x, x)
    assert inner.sum().gradient(x)[0].tolist() == [12.0]


def test_a_checkpoint_of_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(UserError, match="must give one tensor"):
        Tensor.checkpoint(lambda x: 3, Tensor([1.0]))


@pytest.mark.filterwarnings("ignore:.*quantize")
@pytest.mark.parametrize("zero", [0, 3])
def test_quantised_numbers_agree_with_pytorch(zero: int) -> None:
    expected = torch.quantize_per_tensor(torch.tensor(X), 0.02, zero, torch.qint8)
    found = Tensor(X).quantize(0.02, zero)
    np.testing.assert_array_equal(found.numpy(), expected.int_repr().numpy())
    np.testing.assert_array_equal(
        found.dequantize(0.02, zero).numpy(), expected.dequantize().numpy()
    )


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_each_channel_has_its_own_scale() -> None:
    scales = np.array([0.02, 0.5, 1.0], np.float32)
    expected = torch.quantize_per_channel(
        torch.tensor(X), torch.tensor(scales).double(), torch.zeros(3).long(), 0, torch.quint8
    )
    found = Tensor(X).quantize(Tensor(scales), 0, dtypes.uint8, axis=0)
    np.testing.assert_array_equal(found.numpy(), expected.int_repr().numpy())


def test_fake_quantisation_agrees_with_pytorch_and_passes_the_gradient_inside() -> None:
    own, other = Tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    expected = torch.fake_quantize_per_tensor_affine(other, 0.01, 5, -128, 127)
    found = own.fake_quantize(0.01, 5)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), atol=1e-7)
    (gradient,) = torch.autograd.grad(expected.sum(), [other])
    np.testing.assert_array_equal(found.sum().gradient(own)[0].numpy(), gradient.numpy())


def test_a_float_dtype_is_no_target_of_quantisation() -> None:
    with pytest.raises(DTypeError, match="quantize: needs an integer dtype"):
        Tensor(X).quantize(0.1, dtype=dtypes.float16)


def test_a_scale_for_each_channel_must_fit_the_axis() -> None:
    with pytest.raises(ShapeError, match="needs a scale for each slice"):
        Tensor(X).quantize(Tensor([0.1, 0.2]), axis=0)
