"""A multiply-add with one rounding, for targets without the instruction."""

from __future__ import annotations

from tilework.codegen.decompose.builder import Raw, Value, where

SPLITTER = 2.0**27 + 1


def emulated_fma(x: Value[Raw], y: Value[Raw], z: Value[Raw]) -> Value[Raw]:
    """Return `x * y + z`, rounded once, of float32 or float64 values.

    The float64 form is exact unless a product or a result comes near the ends of the range
    (above 2**995, or below 2**-960 in magnitude).
    """
    return _fma_float32(x, y, z) if x.dtype == "float32" else _fma_float64(x, y, z)


def two_sum(x: Value[Raw], y: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return the rounded sum and its error, which together are exact."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def odd_sum(x: Value[Raw], y: Value[Raw]) -> Value[Raw]:
    """Return x + y of float64, rounded to odd: an inexact sum keeps a set last bit."""
    total, error = two_sum(x, y)
    bits = total.bits("int64")
    # The error's sign against the sum's tells on which side of the exact value the sum lies.
    apart = ((error.bits("int64") ^ bits) >> 63) | 1
    moved = bits + where((bits & 1).equal(0), apart, 0)
    finite = (total - total).equal(0.0)
    return where(finite, where(error.equal(0.0), total, moved.bits("float64")), total)


def _fma_float32(x: Value[Raw], y: Value[Raw], z: Value[Raw]) -> Value[Raw]:
    product = x.cast("float64") * y.cast("float64")
    return odd_sum(product, z.cast("float64")).cast("float32")


def _halves(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    big = x * SPLITTER
    high = big - (big - x)
    return high, x - high


def two_product(x: Value[Raw], y: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return the rounded product and its error, without a multiply-add."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    return product, error


def _fma_float64(x: Value[Raw], y: Value[Raw], z: Value[Raw]) -> Value[Raw]:
    high, low = two_product(x, y)
    upper, lower = two_sum(z, low)
    total, rest = two_sum(high, upper)
    result = total + odd_sum(rest, lower)
    plain = high + z  # right where a part is infinite, and for the sign of a zero
    regular = (low - low).equal(0.0) & (result - result).equal(0.0)
    is_zero = plain.equal(0.0) & low.equal(0.0)
    return where(regular, where(is_zero, plain, result), plain)
