"""Runs numeric constructions on NumPy arrays, operation by operation, each rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilework.codegen.decompose.builder import (
    BinaryName,
    CompareName,
    Dtype,
    Number,
    UnaryName,
    Value,
)

Array: TypeAlias = NDArray[Any]

_COMPARE: dict[CompareName, Callable[[Array, Array], Array]] = {
    "less": np.less,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
_BINARY: dict[BinaryName, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_UNARY: dict[UnaryName, Callable[[Array], Array]] = {
    "abs": np.abs,
    "neg": np.negative,
    "sqrt": np.sqrt,
}


class NumpyBuilder:
    """A raw value is an array; overflow and invalid operations are as silent as on a machine."""

    has_scale = False
    has_branches = False
    checks_domains = False

    def const(self, value: Number, dtype: Dtype) -> Array:
        """Return the constant `value`."""
        return np.asarray(value, dtype=dtype)

    def unary(self, name: UnaryName, x: Array, dtype: Dtype) -> Array:
        """Apply one operation of one operand."""
        with np.errstate(all="ignore"):
            return _UNARY[name](x)

    def binary(self, name: BinaryName, x: Array, y: Array, dtype: Dtype) -> Array:
        """Apply one operation of two operands."""
        with np.errstate(all="ignore"):
            return _BINARY[name](x, y)

    def compare(self, name: CompareName, x: Array, y: Array, dtype: Dtype) -> Array:
        """Return a bool of the comparison."""
        return _COMPARE[name](x, y)

    def fma(self, x: Array, y: Array, z: Array, dtype: Dtype) -> Array:
        """Return `x * y + z`, rounded once."""
        with np.errstate(all="ignore"):
            return fma_float32(x, y, z) if dtype == "float32" else fma_float64(x, y, z)

    def scale(self, x: Array, n: Array, dtype: Dtype) -> Array:
        """Return `x * 2**n`, rounded once."""
        with np.errstate(all="ignore"):
            return np.ldexp(x, n.astype(np.int32))

    def where(self, condition: Array, x: Array, y: Array, dtype: Dtype) -> Array:
        """Select by `condition`."""
        return np.where(condition, x, y)

    def where_rare(self, condition: Array, rare: Array, common: Array, dtype: Dtype) -> Array:
        """Select, as there are no branches."""
        return self.where(condition, rare, common, dtype)

    def cast(self, x: Array, source: Dtype, target: Dtype) -> Array:
        """Convert by value."""
        with np.errstate(all="ignore"):
            return x.astype(target)

    def bitcast(self, x: Array, source: Dtype, target: Dtype) -> Array:
        """Reinterpret the bits."""
        return np.ascontiguousarray(x).reshape(x.shape).view(target)

    def check_domain(self, x: Array, low: float, high: float, helper: str) -> None:
        """Not called: see `checks_domains`."""


def _odd_sum(x: Array, y: Array) -> Array:
    """Return x + y in float64, rounded to odd: an inexact sum keeps a set last bit.

    A later rounding to a shorter format then gives what one rounding would have given.
    """
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)
    bits = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
    toward_zero = (error > 0) != (total > 0)
    step = np.where(toward_zero, -1, 1)
    odd = np.where(inexact, bits + step, bits).view(np.float64)
    return np.where(inexact, odd, total)


def fma_float32(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z rounded once to float32; the product is exact in float64."""
    product = np.multiply(x, y, dtype=np.float64)
    product, addend = np.broadcast_arrays(product, z.astype(np.float64))
    return _odd_sum(np.ascontiguousarray(product), np.ascontiguousarray(addend)).astype(np.float32)


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the product and its rounding error, after splitting each factor into halves."""
    splitter = 2.0**27 + 1
    product = x * y
    x_big, y_big = x * splitter, y * splitter
    x_high, y_high = x_big - (x_big - x), y_big - (y_big - y)
    x_low, y_low = x - x_high, y - y_high
    error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    return product, error


def fma_float64(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z rounded once to float64, barring results near the ends of the range.

    The product's two words and the addend are summed with one rounding to odd in the middle
    (Boldo and Melquiond). Factors are scaled by powers of two, so that no split overflows.
    """
    x, y, z = (np.ascontiguousarray(v) for v in np.broadcast_arrays(x, y, z))
    x_part, x_power = np.frexp(x)
    y_part, y_power = np.frexp(y)
    high, low = _two_product(x_part, y_part)
    # A product far below or above the addend is brought near: only its sign matters there.
    power = (x_power + y_power).astype(np.int64)
    z_part, z_power = np.frexp(z)
    distance = np.where(z == 0, 0, z_power.astype(np.int64) - power)
    shift = np.clip(distance, -200, 200)
    scaled = np.ldexp(z_part, shift)
    upper, lower = _two_sum(scaled, low)
    total, rest = _two_sum(high, upper)
    result = total + _odd_sum(rest, lower)
    back = power + (distance - shift).clip(0)
    exact = np.ldexp(result, back.astype(np.int32))
    plain = x * y + z
    regular = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x * y != 0)
    return np.where(regular, exact, plain)


def array_value(array: Array) -> Value[Array]:
    """Return a construction's input that stands for `array`."""
    name: Any = "bool" if array.dtype == np.bool_ else array.dtype.name
    return Value(NumpyBuilder(), array, name)


def evaluate(construction: Callable[..., Value[Array]], *arrays: Array) -> Array:
    """Return what `construction` computes for whole arrays."""
    return construction(*(array_value(array) for array in arrays)).raw
