"""What the constructions need to know of float32 and float64, in one record each."""

from __future__ import annotations

from typing import Final

from tilework.base.records import dataclass
from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Dtype, Raw, Value, where


@dataclass(frozen=True, slots=True)
class Format:
    """One binary float format.

    Args:
        integer: signed integers of the same width.
        mantissa_bits: stored bits of the mantissa.
        bias: of the exponent.
        tables: the coefficients in this format, by name.
        root_half_bits: the bits of sqrt(1/2).
        exp_limits: e**x rounds to 0 below the first, and overflows above the second even if halved;
            both leave an exponent that two scalings can express.
        expm1_limits: e**x - 1 rounds to -1 below the first and overflows above the second, where
            round(x / ln(2)) is still `bias + 1`.
        tanh_limit: tanh rounds to 1 from here on.
        erf_limit: erf rounds to 1 from here on.
    """

    integer: Dtype
    mantissa_bits: int
    bias: int
    tables: dict[str, tuple[float, ...]]
    root_half_bits: int
    exp_limits: tuple[float, float]
    expm1_limits: tuple[float, float]
    tanh_limit: float
    erf_limit: float

    @property
    def magic(self) -> float:
        """What, added to a float of at most 2**(mantissa_bits - 1), rounds it to an integer."""
        return 1.5 * 2.0**self.mantissa_bits

    @property
    def sign_bit(self) -> int:
        """The sign bit alone, as a signed integer."""
        return -1 << (self.mantissa_bits + self.bias.bit_length() + 1)

    @property
    def exponent_mask(self) -> int:
        """Sign and exponent bits, as a signed integer."""
        return -1 << self.mantissa_bits

    @property
    def smallest_normal(self) -> float:
        """The least positive float of full precision."""
        return 2.0 ** (1 - self.bias)


FORMATS: Final[dict[Dtype, Format]] = {
    "float32": Format(
        integer="int32",
        mantissa_bits=23,
        bias=127,
        tables=coefficients.FLOAT32,
        root_half_bits=0x3F3504F3,
        exp_limits=(-105.0, 90.0),
        expm1_limits=(-18.0, 88.75),
        tanh_limit=9.5,
        erf_limit=3.9375,
    ),
    "float64": Format(
        integer="int64",
        mantissa_bits=52,
        bias=1023,
        tables=coefficients.FLOAT64,
        root_half_bits=0x3FE6A09E667F3BCD,
        exp_limits=(-746.0, 712.0),
        expm1_limits=(-38.0, 709.8125),
        tanh_limit=19.5,
        erf_limit=6.0,
    ),
}


def format_of(x: Value[Raw]) -> Format:
    """Return the format of a float32 or float64 value."""
    return FORMATS[x.dtype]


def with_sign_of(x: Value[Raw], magnitude: Value[Raw]) -> Value[Raw]:
    """Return `magnitude`, which is not negative, with the sign bit of `x`."""
    form = format_of(x)
    sign = x.bits(form.integer) & form.sign_bit
    return (magnitude.bits(form.integer) | sign).bits(x.dtype)


def clamp(x: Value[Raw], low: float, high: float) -> Value[Raw]:
    """Return `x` limited to [low, high]; a NaN stays."""
    x = where(x.greater(high), high, x)
    return where(x.less(low), low, x)
