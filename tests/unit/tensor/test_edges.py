"""Values at the edges, compared with NumPy and PyTorch."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from tilework import Tensor
from tilework.base.errors import UserError


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values, NaN where NaN is, zeros of the same sign."""
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


def test_floor_division_keeps_the_sign_of_zero() -> None:
    x = np.array([0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 5.0], np.float32)
    y = np.array([2.0, 2.0, -3.0, -3.0, np.inf, -np.inf, 7.0], np.float32)
    assert_same_bits((Tensor(x) // Tensor(y)).numpy(), x // y)


def test_softshrink_keeps_nan() -> None:
    x = np.array([np.nan, 2.0, 0.1, -2.0], np.float32)
    want = torch.nn.functional.softshrink(torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(Tensor(x).softshrink().numpy(), want)


def test_median_is_nan_where_an_element_is_nan() -> None:
    x = np.array([[3.0, np.nan, 1.0], [2.0, 0.0, 1.0]], np.float32)
    assert np.isnan(Tensor(x).median().item())
    values, places = Tensor(x).median(1)
    want = torch.median(torch.from_numpy(x), 1)
    np.testing.assert_array_equal(values.numpy(), want.values.numpy())
    np.testing.assert_array_equal(places.numpy(), want.indices.numpy())


def test_int64_powers_of_int64_tensors_compile() -> None:
    base = np.array([0, 1, -1, 5, 2, 3], np.int64)
    exponent = np.array([3, 70, 3, 3, 62, -1], np.int64)
    want = torch.pow(torch.from_numpy(base), torch.from_numpy(exponent)).numpy()
    np.testing.assert_array_equal((Tensor(base) ** Tensor(exponent)).numpy(), want)


def test_an_int64_number_can_be_squared_again_and_again() -> None:
    x = np.array([1, 2, 3], np.int64)
    found, want = Tensor(x), x
    for step in range(40):
        found, want = found * found + step, want * want + step
    np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_gradient_of_a_norm_at_zero_is_zero(p: float) -> None:
    x = Tensor(np.zeros((2, 3), np.float32))
    (found,) = x.norm(p, 1).sum().gradient(x)
    np.testing.assert_array_equal(found.numpy(), np.zeros((2, 3)))


def test_the_gradient_of_the_deviation_of_equal_numbers_is_zero() -> None:
    x = Tensor(np.ones(4, np.float32))
    (found,) = x.std().gradient(x)
    np.testing.assert_array_equal(found.numpy(), np.zeros(4))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, np.inf, -np.inf])
def test_norms_of_any_order_are_those_of_pytorch(p: float) -> None:
    x = np.array([[3.0, -4.0, 0.5], [1.0, 0.0, 2.0]], np.float32)
    want = torch.linalg.vector_norm(torch.from_numpy(x), p, dim=1).numpy()
    np.testing.assert_allclose(Tensor(x).norm(p, 1).numpy(), want, rtol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum(1.5),
        lambda x: x.sum("rows"),
        lambda x: x.max_pool2d("a"),
        lambda x: x.max_pool2d(2, stride=0),
        lambda x: x.avg_pool2d(0),
        lambda x: x.conv2d(x, stride=0),
        lambda x: x.conv2d(x, dilation=0),
        lambda x: x.conv_transpose2d(x, stride=-1),
        lambda x: x.interpolate((0, 3)),
        lambda x: Tensor.full((2,), "a"),  # type: ignore[arg-type]
        lambda x: Tensor.full((2,), 1j),  # type: ignore[arg-type]
        lambda x: Tensor.manual_seed("a"),  # type: ignore[arg-type]
        lambda x: Tensor([3, -1]).bincount(),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_got(call: Any) -> None:
    with pytest.raises(UserError, match=r"\n  got: "):
        call(Tensor(np.ones((1, 1, 3, 3), np.float32)))


def test_numpy_integers_are_sizes_seeds_and_steps() -> None:
    x = Tensor(np.ones((1, 1, 4, 4), np.float32))
    two = np.int64(2)
    assert x.max_pool2d(two, stride=(two, two)).shape == (1, 1, 2, 2)
    assert x.conv2d(x[:, :, :2, :2], stride=two).shape == (1, 1, 2, 2)
    assert x.conv2d(x[:, :, :2, :2], padding=two).shape == (1, 1, 7, 7)
    Tensor.manual_seed(np.int32(-7))
    first = Tensor.rand(3).tolist()
    Tensor.manual_seed(-7)
    assert Tensor.rand(3).tolist() == first


def test_cat_takes_one_list_too() -> None:
    a, b, cat = Tensor([1]), Tensor([2, 3]), cast(Any, Tensor.cat)
    assert cat([a, b]).tolist() == cat(a, b).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "values",
    [[1e38, -1e38], [3e38, 3e38], [1e20, 2e20, 4e20], [1e-30, 3e-30], [1e-45, 0.0]],
    ids=str,
)
def test_a_spread_that_float32_holds_neither_overflows_nor_vanishes(values: list[float]) -> None:
    held = np.array(values, np.float32)
    want = held.astype(np.float64).std(ddof=1).astype(np.float32)
    x = Tensor(held, requires_grad=True)
    spread = x.std()
    assert spread.item() == pytest.approx(float(want), rel=1e-6)
    spread.backward()
    wide = torch.tensor(held, dtype=torch.float64, requires_grad=True)
    wide.std().backward()  # type: ignore[no-untyped-call]
    slopes = torch.nan_to_num(wide.grad)  # type: ignore[arg-type]  # at a spread of 0 ours is 0
    np.testing.assert_allclose(x.grad.numpy(), slopes.numpy(), rtol=1e-5)  # type: ignore[union-attr]


def test_a_spread_of_bfloat16_is_computed_in_a_range_that_holds_its_squares() -> None:
    assert Tensor([1e30, 2e30]).cast("bfloat16").std().item() == pytest.approx(7.07e29, rel=0.01)


def test_zeros_of_padding_take_part_in_a_convolution_as_in_pytorch() -> None:
    image, weight = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    weight[0, 0, 0, 0] = np.inf
    want = torch.nn.functional.conv2d(torch.tensor(image), torch.tensor(weight), padding=1)
    np.testing.assert_array_equal(
        Tensor(image).conv2d(Tensor(weight), padding=1).numpy(), want.numpy()
    )
