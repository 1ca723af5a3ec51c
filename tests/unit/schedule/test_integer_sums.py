"""Sums of products of dequantised numbers are sums of integers, wherever that is exact."""

from __future__ import annotations

import math as numbers
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schedule.schedule_builders import expand, matmul, pad, param, reduce, reshape

from tilework import Tensor, Variable, dtypes, jit
from tilework.dtypes import DType, float32, int8, int16, int32, uint8
from tilework.ir.build import cast, const, const_like
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.schedule.passes.integer_sums import sum_integers

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES = ("PYTHON", "CPU:CLANG", "CPU")


def scaled(x: Node, factor: Node, point: int | None = None) -> Node:
    """The numbers of `x`, less a zero point, times a factor."""
    value = cast(x, float32)
    if point is not None:
        value = math.SUB(value, const_like(point, value))
    return math.MUL(value, factor)


def summed_dtypes(function: Node) -> list[DType]:
    return [n.type.dtype for n in toposort(sum_integers(function)) if n.op is tensor.REDUCE]


def a(dtype: DType = uint8, rows: int = 6, depth: int = 8) -> Node:
    return param(0, (rows, depth), dtype)


def b(dtype: DType = int8, depth: int = 8, columns: int = 5) -> Node:
    return param(1, (depth, columns), dtype)


def one(x: Node, slot: int = 2) -> Node:
    """A scale of all of `x`."""
    return expand(reshape(param(slot, ()), *[1] * len(x.type.shape)), x.type.shape)


def by_column(x: Node, slot: int = 3) -> Node:
    rows, columns = x.type.shape
    return expand(reshape(param(slot, (columns,)), 1, columns), (rows, columns))


def by_row(x: Node, slot: int = 3) -> Node:
    rows, columns = x.type.shape
    return expand(reshape(param(slot, (rows,)), rows, 1), (rows, columns))


def test_a_product_of_dequantised_matrices_is_summed_in_int32() -> None:
    product = matmul(scaled(a(), one(a()), 3), scaled(b(), by_column(b())))
    assert summed_dtypes(memory.SINK(product)) == [int32]


def test_bytes_that_are_only_converted_are_summed_in_int32() -> None:
    assert summed_dtypes(memory.SINK(matmul(cast(a(), float32), cast(b(), float32)))) == [int32]


def test_a_zero_point_that_is_a_value_counts_with_all_that_its_dtype_holds() -> None:
    point = expand(reshape(param(4, (), uint8), 1, 1), (6, 8))
    value = math.SUB(cast(a(), int32), cast(point, int32))
    product = matmul(scaled(value, one(value)), scaled(b(), one(b(), 3)))
    assert summed_dtypes(memory.SINK(product)) == [int32]


@pytest.mark.parametrize(
    ("dtype", "point"), [(int8, None), (int8, 0), (int8, 3), (uint8, None), (uint8, 128)]
)
def test_cards_sum_bytes_in_integers_too_whatever_their_zero_points(
    dtype: DType, point: int | None
) -> None:
    x, y = param(0, (6, 8), dtype, "CUDA:1"), param(1, (8, 5), int8, "CUDA:1")
    scale = expand(reshape(param(2, (), float32, "CUDA:1"), 1, 1), (6, 8))
    product = matmul(scaled(x, scale, point), cast(y, float32))
    assert summed_dtypes(memory.SINK(product)) == [int32]


def test_padding_holds_the_integer_zero() -> None:
    padded = pad(scaled(a(depth=6), one(a(depth=6)), 100), (0, 0), (1, 1))
    function = sum_integers(memory.SINK(matmul(padded, scaled(b(), one(b(), 3)))))
    assert summed_dtypes(function) == [int32]
    (padding,) = [n for n in toposort(function) if n.op is tensor.PAD]
    assert padding.type.dtype is int32


@pytest.mark.parametrize(
    "product",
    [
        pytest.param(
            lambda: matmul(scaled(a(), by_column(a())), scaled(b(), one(b()))),
            id="scales along the sum",
        ),
        pytest.param(
            lambda: matmul(
                pad(scaled(a(depth=6), by_column(a(depth=6))), (0, 0), (1, 1)),
                scaled(b(), one(b())),
            ),
            id="scales along the sum, padded",
        ),
        pytest.param(
            lambda: matmul(scaled(a(), one(a())), param(1, (8, 5))),
            id="a factor of floats",
        ),
        pytest.param(
            lambda: matmul(scaled(a(int16), one(a())), scaled(b(int16), one(b()))),
            id="wide integers",
        ),
        pytest.param(
            lambda: matmul(
                scaled(a(), one(a()), None),
                scaled(b(), math.MUL(one(b()), by_column(b())), None),
            ).src[0],
            id="no sum",
        ),
        pytest.param(
            lambda: matmul(
                math.MUL(scaled(a(), one(a())), one(a(), 4)),
                math.MUL(scaled(b(), one(b())), by_column(b(), 5)),
            ),
            id="many factors",
        ),
        pytest.param(
            lambda: matmul(
                math.MUL(math.SUB(cast(a(), float32), const(0.5, float32, (6, 8))), one(a())),
                scaled(b(), one(b())),
            ),
            id="a zero point between integers",
        ),
        pytest.param(
            lambda: matmul(
                math.MUL(math.SUB(cast(a(), float32), one(a(), 4)), one(a())),
                scaled(b(), one(b())),
            ),
            id="a zero point of floats",
        ),
        pytest.param(
            lambda: reduce(
                math.MUL(scaled(a(), one(a())), scaled(a(), one(a()))), fold=tensor.Fold.MAX
            ),
            id="another fold",
        ),
        pytest.param(
            lambda: matmul(
                scaled(a(depth=1), one(a(depth=1))), scaled(b(depth=1), one(b(depth=1)))
            ),
            id="a single product",
        ),
    ],
)
def test_other_sums_stay_in_floats(product: Callable[[], Node]) -> None:
    function = memory.SINK(product())
    assert sum_integers(function) is function


@pytest.mark.parametrize(("depth", "dtype"), [(65793, int32), (65794, float32)])
def test_sums_that_might_overflow_stay_in_floats(depth: int, dtype: DType) -> None:
    assert 255 * 128 * 65793 <= int32.maximum < 255 * 128 * 65794
    x, y = a(depth=depth), b(depth=depth)
    assert summed_dtypes(memory.SINK(matmul(scaled(x, one(x)), scaled(y, one(y))))) == [dtype]


def test_a_zero_point_makes_sums_overflow_sooner() -> None:
    x, y = a(depth=40000), b(depth=40000)
    inside = matmul(scaled(x, one(x), 128), scaled(y, one(y)))
    outside = matmul(scaled(x, one(x), 900), scaled(y, one(y)))
    assert summed_dtypes(memory.SINK(inside)) == [int32]
    assert summed_dtypes(memory.SINK(outside)) == [float32]


# --- values ---------------------------------------------------------------------------------------


def quantised(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def floats(x: Tensor, point: Tensor | float, scale: Tensor | float) -> Tensor:
    return (x.cast(dtypes.float32) - point) * scale


def is_near(got: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> bool:
    """Within the roundings of one conversion and two factors, of the exact result."""
    return bool(np.all(np.abs(got - exact) <= 3.1 * 2.0**-24 * np.abs(exact)))


@settings(max_examples=8, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(2, 40),
    st.integers(1, 9),
    st.sampled_from([np.uint8, np.int8]),
    st.sampled_from([np.uint8, np.int8]),
    st.integers(0, 1 << 30),
)
def test_products_have_the_error_of_three_roundings(
    m: int, k: int, n: int, first: Any, second: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, y = quantised(rng, (m, k), first), quantised(rng, (k, n), second)
    point, points = quantised(rng, (), first), quantised(rng, (n,), second)
    scale = np.float32(rng.standard_normal())
    scales = rng.standard_normal(n).astype(np.float32)
    left = x.astype(np.float64) - point.astype(np.float64)
    right = y.astype(np.float64) - points.astype(np.float64)
    exact = (left @ right) * scale.astype(np.float64) * scales.astype(np.float64)
    found = []
    for device in DEVICES:
        tensors = [Tensor(one, device=device) for one in (x, y, point, points, scale, scales)]
        xs, ys, zero, zeros, factor, factors = tensors
        product = floats(xs, zero.cast(dtypes.float32), factor) @ floats(
            ys, zeros.cast(dtypes.float32), factors
        )
        found.append(product.numpy())
    assert is_near(found[0], exact)
    assert all(np.array_equal(found[0], one) for one in found[1:])


@pytest.mark.parametrize(
    ("groups", "stride", "dilation", "padding", "dtype"),
    [
        (1, 1, 1, 1, np.uint8),
        (2, 2, 1, (1, 0, 0, 2), np.int8),
        (8, 1, 1, 1, np.uint8),
        (8, 2, 2, (3, 1, 0, 2), np.int8),
        (4, 3, 1, 0, np.uint8),
    ],
)
def test_convolutions_are_those_of_integers(
    groups: int, stride: int, dilation: int, padding: Any, dtype: Any
) -> None:
    rng = np.random.default_rng(groups + stride)
    x, w = quantised(rng, (1, 8, 6, 7), dtype), quantised(rng, (16, 8 // groups, 3, 3), np.int8)
    point, scale = np.float32(np.iinfo(dtype).max // 3), np.float32(0.037)
    scales = rng.random((16, 1, 1, 1)).astype(np.float32)
    attrs = {"groups": groups, "stride": stride, "dilation": dilation, "padding": padding}
    integers = Tensor(x, device="CPU").cast(dtypes.float64) - float(point)
    exact = integers.conv2d(Tensor(w, device="CPU").cast(dtypes.float64), None, **attrs).numpy()
    exact = exact * np.float64(scale) * scales.astype(np.float64).reshape(1, 16, 1, 1)
    found = []
    for device in DEVICES:
        values = floats(Tensor(x, device=device), float(point), Tensor(scale, device=device))
        filters = Tensor(w, device=device).cast(dtypes.float32) * Tensor(scales, device=device)
        found.append(values.conv2d(filters, None, **attrs).numpy())
    assert is_near(found[0], exact)
    assert all(np.array_equal(found[0], one) for one in found[1:])


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (1e30, 1e-30, "finite"),
        (1e-30, 1e30, "finite"),
        (1e-30, 1e-12, "finite"),
        (1e36, 1e-36, "finite"),
        (1e-45, 1e38, "finite"),
        (numbers.nan, 1.0, "nan"),
        (1.0, numbers.nan, "nan"),
        (numbers.inf, 1.0, "not finite"),
        (0.0, numbers.inf, "not finite"),
    ],
)
def test_factors_of_any_size_give_what_their_product_gives(
    first: float, second: float, kind: str
) -> None:
    rng = np.random.default_rng(1)
    x, y = quantised(rng, (4, 64), np.uint8), quantised(rng, (64, 4), np.int8)
    scales = np.float32(first), np.float32(second)
    left = Tensor(x, device="CPU").cast(dtypes.float32) * Tensor(scales[0], device="CPU")
    right = Tensor(y, device="CPU").cast(dtypes.float32) * Tensor(scales[1], device="CPU")
    got = (left @ right).numpy()
    if kind == "finite":
        exact = x.astype(np.float64) @ y.astype(np.float64)
        exact = exact * float(scales[0]) * float(scales[1])
        # Where the result is subnormal its last place is a fixed one.
        assert np.all(np.abs(got - exact) <= 3.1 * 2.0**-24 * np.abs(exact) + 2.0**-149)
    elif kind == "nan":
        assert np.isnan(got).all()
    else:
        assert not np.isfinite(got).any()


@pytest.mark.parametrize("device", DEVICES)
def test_a_sum_of_zeros_is_positive_with_a_negative_factor(device: str) -> None:
    zeros = Tensor(np.zeros((3, 8), np.uint8), device=device).cast(dtypes.float32)
    ones = Tensor(np.ones((8, 3), np.int8), device=device).cast(dtypes.float32)
    factor = Tensor(np.float32(-2.0), device=device)
    assert not np.signbit((zeros * factor @ ones).numpy()).any()


@pytest.mark.parametrize("shape", [(0, 8), (4, 0)])
def test_empty_arrays_are_scaled_and_multiplied(shape: tuple[int, int]) -> None:
    empty = Tensor(np.zeros(shape, np.int8)).cast(dtypes.float32) * 0.5
    others = Tensor(np.ones((shape[1], 3), np.int8)).cast(dtypes.float32) * 0.25
    assert empty.numpy().shape == shape
    assert np.array_equal((empty @ others).numpy(), np.zeros((shape[0], 3), np.float32))


def test_lengths_may_be_symbolic() -> None:
    rng = np.random.default_rng(5)
    x, y = quantised(rng, (4, 64), np.uint8), quantised(rng, (64, 4), np.int8)
    length = Variable("length", 1, 64)

    @jit
    def multiplied(first: Tensor, second: Tensor) -> Tensor:
        return floats(first, 7, 0.5) @ floats(second, 0, 0.25)

    for count in (5, 64, 33, 40):
        bound = length.bind(count)
        left = Tensor(x, device="CPU")[:, :bound]
        right = Tensor(y, device="CPU")[:bound]
        got = multiplied(left, right).numpy()
        exact = (x[:, :count].astype(np.float64) - 7) @ y[:count].astype(np.float64) * 0.125
        assert np.array_equal(got, exact)


def test_gradients_of_scales_are_those_of_the_floats() -> None:
    rng = np.random.default_rng(6)
    x, y = quantised(rng, (4, 16), np.uint8), quantised(rng, (16, 4), np.int8)
    scale = Tensor(np.float32(0.5), device="CPU", requires_grad=True)
    product = (
        (Tensor(x, device="CPU").cast(dtypes.float32) - 100)
        * scale
        @ Tensor(y, device="CPU").cast(dtypes.float32)
    )
    product.sum().backward()
    exact = ((x.astype(np.float64) - 100) @ y.astype(np.float64)).sum()
    assert scale.grad is not None
    assert numbers.isclose(float(scale.grad.numpy()), exact, rel_tol=1e-5)
