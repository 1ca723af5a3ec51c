"""The few operations that a numeric construction needs, over any representation of a value.

A construction such as `exp2` is written once, against `Value`. What a `Value` stands for is the
business of a `Builder`: an IR node inside the compiler, an array in a test, a line of C in a sweep.
Every operation of a `Builder` rounds once, in the written order: none may be contracted,
reordered or replaced by an algebraic equal, since the constructions rely on exact cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Raw = TypeVar("Raw")
Dtype: TypeAlias = Literal[
    "bool",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]
Number: TypeAlias = float | int | bool
BinaryName: TypeAlias = Literal["add", "sub", "mul", "div", "and", "or", "xor", "shl", "shr"]
CompareName: TypeAlias = Literal["less", "equal", "not_equal"]
UnaryName: TypeAlias = Literal["abs", "neg", "sqrt"]


class Builder(Protocol[Raw]):
    """Makes raw values; each method is one operation of the target.

    `has_scale` says whether it multiplies by powers of 2 in one operation, rounded once, and
    `has_branches` whether what few lanes need is computed for them alone.  `checks_domains` says
    whether `check_domain` is to be called, as in a build for finding mistakes.
    """

    has_scale: bool
    has_branches: bool
    checks_domains: bool

    def const(self, value: Number, dtype: Dtype) -> Raw:
        """Return the constant `value`, which `dtype` holds exactly."""

    def unary(self, name: UnaryName, x: Raw, dtype: Dtype) -> Raw:
        """Return |x| or -x (only the sign bit changes), or the correctly rounded square root."""

    def binary(self, name: BinaryName, x: Raw, y: Raw, dtype: Dtype) -> Raw:
        """Return `x name y`, both of `dtype`; `shr` keeps the sign of a signed integer."""

    def compare(self, name: CompareName, x: Raw, y: Raw, dtype: Dtype) -> Raw:
        """Return a bool; `less` and `equal` are false and `not_equal` is true on a NaN."""

    def fma(self, x: Raw, y: Raw, z: Raw, dtype: Dtype) -> Raw:
        """Return `x * y + z`, rounded once."""

    def scale(self, x: Raw, n: Raw, dtype: Dtype) -> Raw:
        """Return `x * 2**n` for an integral n, rounded once, if `has_scale`."""

    def where(self, condition: Raw, x: Raw, y: Raw, dtype: Dtype) -> Raw:
        """Return `x` where `condition` holds, else `y`, bits untouched."""

    def where_rare(self, condition: Raw, rare: Raw, common: Raw, dtype: Dtype) -> Raw:
        """Return as `where`, for a condition that seldom holds, if `has_branches`."""

    def cast(self, x: Raw, source: Dtype, target: Dtype) -> Raw:
        """Convert the value; float to int truncates, and is used only on values that fit."""

    def bitcast(self, x: Raw, source: Dtype, target: Dtype) -> Raw:
        """Reinterpret the bits of `x`, of the same width."""

    def check_domain(self, x: Raw, low: float, high: float, helper: str) -> None:
        """Refuse an `x` outside of what a helper's text says of it, if `checks_domains`."""


class Value(Generic[Raw]):
    """A raw value with its dtype and builder, so that a construction reads as arithmetic."""

    __slots__ = ("builder", "dtype", "raw")

    def __init__(self, builder: Builder[Raw], raw: Raw, dtype: Dtype) -> None:
        self.builder = builder
        self.raw = raw
        self.dtype: Dtype = dtype

    def const(self, value: Number, dtype: Dtype | None = None) -> Value[Raw]:
        """Return a constant of `dtype`, by default of this value's dtype."""
        chosen = dtype or self.dtype
        return Value(self.builder, self.builder.const(value, chosen), chosen)

    def _operand(self, other: Value[Raw] | Number) -> Raw:
        if isinstance(other, Value):
            if other.dtype != self.dtype:
                message = f"operands of different dtypes: {self.dtype} and {other.dtype}"
                raise TypeError(message)
            return other.raw
        return self.builder.const(other, self.dtype)

    def _binary(self, name: BinaryName, other: Value[Raw] | Number) -> Value[Raw]:
        raw = self.builder.binary(name, self.raw, self._operand(other), self.dtype)
        return Value(self.builder, raw, self.dtype)

    def _compare(self, name: CompareName, other: Value[Raw] | Number) -> Value[Raw]:
        raw = self.builder.compare(name, self.raw, self._operand(other), self.dtype)
        return Value(self.builder, raw, "bool")

    def __add__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("add", other)

    def __sub__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Value[Raw]:
        return self.const(other) - self

    def __mul__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("mul", other)

    def __truediv__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Value[Raw]:
        return self.const(other) / self

    def __and__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("and", other)

    def __or__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("or", other)

    def __xor__(self, other: Value[Raw] | Number) -> Value[Raw]:
        return self._binary("xor", other)

    def __lshift__(self, other: Value[Raw] | int) -> Value[Raw]:
        return self._binary("shl", other)

    def __rshift__(self, other: Value[Raw] | int) -> Value[Raw]:
        return self._binary("shr", other)

    def __neg__(self) -> Value[Raw]:
        return Value(self.builder, self.builder.unary("neg", self.raw, self.dtype), self.dtype)

    def abs(self) -> Value[Raw]:
        """Return the magnitude: the sign bit is cleared, of a NaN too."""
        return Value(self.builder, self.builder.unary("abs", self.raw, self.dtype), self.dtype)

    def sqrt(self) -> Value[Raw]:
        """Return the correctly rounded square root."""
        return Value(self.builder, self.builder.unary("sqrt", self.raw, self.dtype), self.dtype)

    def scale(self, n: Value[Raw]) -> Value[Raw]:
        """Return `self * 2**n` for an integral n, rounded once; needs a builder that has it."""
        raw = self.builder.scale(self.raw, n.raw, self.dtype)
        return Value(self.builder, raw, self.dtype)

    def less(self, other: Value[Raw] | Number) -> Value[Raw]:
        """Return `self < other`, false on a NaN."""
        return self._compare("less", other)

    def greater(self, other: Value[Raw] | Number) -> Value[Raw]:
        """Return `self > other`, false on a NaN."""
        right = Value(self.builder, self._operand(other), self.dtype)
        return right._compare("less", self)

    def equal(self, other: Value[Raw] | Number) -> Value[Raw]:
        """Return `self == other`, false on a NaN."""
        return self._compare("equal", other)

    def not_equal(self, other: Value[Raw] | Number) -> Value[Raw]:
        """Return `self != other`, true on a NaN."""
        return self._compare("not_equal", other)

    def cast(self, dtype: Dtype) -> Value[Raw]:
        """Convert to `dtype`, rounding to nearest even."""
        if dtype == self.dtype:
            return self
        return Value(self.builder, self.builder.cast(self.raw, self.dtype, dtype), dtype)

    def bits(self, dtype: Dtype) -> Value[Raw]:
        """Reinterpret the bits as `dtype`, of the same width."""
        return Value(self.builder, self.builder.bitcast(self.raw, self.dtype, dtype), dtype)


def needs(x: Value[Raw], low: float, high: float, helper: str) -> None:
    """State that `x` lies in [low, high] or is NaN: the domain of a helper.

    It costs nothing; a builder that `checks_domains` looks at every lane.
    """
    if x.builder.checks_domains:
        x.builder.check_domain(x.raw, low, high, helper)


def fma(x: Value[Raw], y: Value[Raw] | Number, z: Value[Raw] | Number) -> Value[Raw]:
    """Return `x * y + z`, rounded once."""
    raw = x.builder.fma(x.raw, x._operand(y), x._operand(z), x.dtype)
    return Value(x.builder, raw, x.dtype)


def where(condition: Value[Raw], x: Value[Raw] | Number, y: Value[Raw] | Number) -> Value[Raw]:
    """Return `x` where `condition` holds, else `y`; one of them at least is a `Value`."""
    typed = x if isinstance(x, Value) else y
    if not isinstance(typed, Value):
        message = "where: one branch must be a Value, since a literal has no dtype"
        raise TypeError(message)
    raw = condition.builder.where(condition.raw, typed._operand(x), typed._operand(y), typed.dtype)
    return Value(condition.builder, raw, typed.dtype)


def unless_rare(
    condition: Value[Raw], general: Callable[[], Value[Raw]], common: Callable[[], Value[Raw]]
) -> Value[Raw]:
    """Return `general()`, or the same by `common()` where the condition does not hold.

    Without branches `general` alone is computed, which must serve all values.
    """
    if not condition.builder.has_branches:
        return general()
    rare, usual = general(), common()
    raw = condition.builder.where_rare(condition.raw, rare.raw, usual.raw, usual.dtype)
    return Value(condition.builder, raw, usual.dtype)


def polynomial(x: Value[Raw], coefficients: tuple[float, ...]) -> Value[Raw]:
    """Evaluate `sum(coefficients[i] * x**i)` by Horner's rule in FMAs.

    Args:
        x: where to evaluate; its dtype holds every coefficient exactly.
        coefficients: two or more, the constant term first.
    """
    result = fma(x, coefficients[-1], coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        result = fma(result, x, coefficient)
    return result
