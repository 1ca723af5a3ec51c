"""Every dtype through the whole path, judged by the oracle: values at the ends of each range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensor_oracle import value_of  # type: ignore[import-not-found]
from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError
from tilework.dtypes import DType

Check = tuple[str, Tensor]


def numbers(dtype: DType, seed: int) -> Tensor:
    """Twelve numbers, the extreme and the special ones among them."""
    generator = np.random.default_rng(seed)
    if dtype.is_bool:
        return Tensor(generator.integers(0, 2, 12).astype(bool))
    if dtype.is_float:
        values: list[Any] = (generator.standard_normal(12) * 3).tolist()
        large = 448.0 if dtype.finite_only else float("inf")
        values[:6] = [0.0, -0.0, large, float("nan"), 1e-3, -large]
    else:
        low, high = max(dtype.minimum, -120), min(dtype.maximum, 120)
        values = generator.integers(low, high, 12).tolist()
        values[:3] = [dtype.minimum, dtype.maximum, 0]
    return Tensor(values, dtype=dtype)


def elementwise(dtype: DType) -> Iterator[Check]:
    x, y = numbers(dtype, 1), numbers(dtype, 2)
    for name in ("add", "mul", "maximum", "minimum", "eq", "lt", "le", "ne"):
        yield name, getattr(x, name)(y)
    if not dtype.is_bool:
        for name in ("sub", "div", "mod", "floordiv"):
            yield name, getattr(x, name)(y)
        yield "neg", -x
        yield "abs", x.abs()
    if not dtype.is_float:
        yield from (("and", x & y), ("or", x | y), ("xor", x ^ y), ("not", ~x))
    if dtype.is_integer:
        shifts = Tensor([0, 1, 2, 3, 7, 8, 15, 31, 63, 64, 5, 6], dtype=dtype)
        yield from (("shl", x << shifts), ("shr", x >> shifts))
    if dtype.is_float:
        for name in ("exp", "sqrt", "tanh", "floor", "round", "trunc", "sigmoid", "log"):
            yield name, getattr(x, name)()
    yield "where", (x != y).where(x, y)


def structural(dtype: DType) -> Iterator[Check]:
    x, y = numbers(dtype, 1), numbers(dtype, 2)
    square = x.reshape(3, 4)
    for name in ("sum", "max", "min", "prod", "argmax", "argmin", "any", "all", "mean"):
        yield name, getattr(square, name)(1)
    if not dtype.is_bool:
        yield from (("cumsum", square.cumsum(1)), ("cummax", square.cummax(1)[0]))
    yield "sort", x.sort()[1]
    yield "gather", x[Tensor([3, 0, -1])]
    yield "scatter", x.scatter(0, Tensor([1, 1, 5]), Tensor([1, 0, 1], dtype=dtype))
    yield "pad", x.pad(((1, 2),))
    yield "cat", x.cat(y)
    yield "flip", x.flip(0)
    yield "matmul", square @ y.reshape(4, 3)


def casts(dtype: DType) -> Iterator[Check]:
    x = numbers(dtype, 3)
    for target in dtypes.ALL:
        yield f"to {target.name}", x.cast(target)


def assert_as_the_oracle_says(name: str, tensor: Tensor) -> None:
    want, got = value_of(tensor), tensor.numpy()
    assert got.shape == want.shape, name
    if not tensor.dtype.is_float:
        np.testing.assert_array_equal(got, want, name)
        return
    is_small = tensor.dtype.bits < 32
    relative = 2.0**-tensor.dtype.mantissa_bits if is_small else 2e-6
    absolute = 2e-3 if is_small else 1e-30
    np.testing.assert_allclose(got, want, relative, absolute, equal_nan=True, err_msg=name)


@pytest.mark.parametrize("make", [elementwise, structural, casts])
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_operations_on_every_dtype(dtype: DType, make: Callable[[DType], Iterator[Check]]) -> None:
    for name, tensor in make(dtype):
        assert_as_the_oracle_says(name, tensor)


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "float64"])
def test_a_dtype_of_numpy_names_the_same_dtype(name: str) -> None:
    wanted, given = getattr(dtypes, name), np.dtype(name)
    for form in (given, given.type):
        assert Tensor([1], dtype=form).dtype is wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [float, "floaty", np.datetime64, None, 3])
def test_what_is_no_dtype_is_refused(given: Any) -> None:
    with pytest.raises(DTypeError, match="this is not a dtype"):
        Tensor([1]).cast(given)
