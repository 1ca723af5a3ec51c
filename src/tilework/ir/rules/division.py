"""Integer division by a literal as a multiplication and a shift, for late passes.

With m = ceil(2**s / d) and e = m * d - 2**s, n * m / 2**s lies above n / d by n * e / (d * 2**s).
While that is below 1 / d, the floors agree for n >= 0.  For negative n the product lies below, so
half of 1 / d is added first, which costs one more bit of precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import DType, int32, int64, uint64
from tilework.ir.build import cast, const
from tilework.ir.ops.math import ADD, CONST, IDIV, MOD, MUL, NEG, SHR, SUB, XOR
from tilework.ir.pattern import RuleSet, Var
from tilework.ir.rules.literals import integer_of
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node

DIVISION = RuleSet("division")


def magic(divisor: int, greatest: int, *, halves: bool) -> tuple[int, int]:
    """The least (m, s) such that (n * m) >> s is n // divisor for 0 <= n <= greatest.

    With `halves` it is (n * m + 2**s // (2 * divisor)) >> s, for -greatest <= n <= greatest.
    """
    shift = 0
    while True:
        multiplier = -(-(1 << shift) // divisor)
        error = multiplier * divisor - (1 << shift)
        if halves:
            # The error must neither pull a multiple below itself nor push n / d a step up.
            half = (1 << shift) // (2 * divisor) * divisor
            if error * greatest <= half and error * greatest + half < 1 << shift:
                return multiplier, shift
        elif error * greatest < 1 << shift:
            return multiplier, shift
        shift += 1


def divide(x: Node, divisor: int) -> Node | None:
    """x // divisor without a division; None where no type is wide enough for the product.

    Args:
        x: An integer node; its bounds decide how wide the product is.
        divisor: Not 0, 1 or -1.
    """
    low, high = bounds(x)
    if divisor < 0:
        low, high = -high, -low
    size = abs(divisor)
    if low >= 0:
        return _divide_positive(x, divisor, high)
    greatest = max(high, -low)
    multiplier, shift = magic(size, greatest, halves=True)
    half = (1 << shift) // (2 * size)
    wide = _wide_enough(greatest * multiplier + half, max(x.dtype.bits, 32))
    if wide is None:
        return _divide_by_magnitude(x, divisor, greatest)
    product = ADD(
        MUL(_numerator(x, divisor, wide), const(multiplier, wide, x.shape)),
        const(half, wide, x.shape),
    )
    return cast(SHR(product, const(shift, wide, x.shape)), x.dtype)


def _wide_enough(product: int, least_bits: int) -> DType | None:
    """The least signed type in which a product up to `product` fits."""
    for dtype in (int32, int64):
        if product <= dtype.maximum and dtype.bits >= least_bits:
            return dtype
    return None


def _numerator(x: Node, divisor: int, wide: DType) -> Node:
    """x in a wide type; -x for a negative divisor, since x // -d is (-x) // d."""
    return NEG(cast(x, wide)) if divisor < 0 else cast(x, wide)


def _divide_positive(x: Node, divisor: int, greatest: int) -> Node | None:
    size = abs(divisor)
    multiplier, shift = magic(size, greatest, halves=False)
    wide = _wide_enough(greatest * multiplier, max(min(x.dtype.bits, 64), 32))
    if wide is None or greatest > wide.maximum:
        if greatest * multiplier < 1 << 64:
            wide = uint64
        elif greatest < 1 << 32 and multiplier >> 33 == 0:
            return _divide_by_long_multiplier(x, divisor, multiplier, shift)
        else:
            return None
    product = MUL(_numerator(x, divisor, wide), const(multiplier, wide, x.shape))
    return cast(SHR(product, const(shift, wide, x.shape)), x.dtype)


def _divide_by_long_multiplier(x: Node, divisor: int, multiplier: int, shift: int) -> Node:
    """n * (2**32 + m) >> s for 32-bit n and m, without leaving 64 bits."""
    n = _numerator(x, divisor, uint64)
    upper = SHR(MUL(n, const(multiplier - (1 << 32), uint64, x.shape)), const(32, uint64, x.shape))
    quotient = SHR(ADD(upper, n), const(shift - 32, uint64, x.shape))
    return cast(quotient, x.dtype)


def _divide_by_magnitude(x: Node, divisor: int, greatest: int) -> Node | None:
    """For negative n, -1 - (-1 - n) // d: the bits are flipped before and after."""
    if x.dtype.bits > 32 and greatest >= 1 << 32:
        return None
    multiplier, shift = magic(abs(divisor), greatest, halves=False)
    if greatest * multiplier >= 1 << 64:
        return None
    n = _numerator(x, divisor, int64)
    sign = SHR(n, const(63, int64, x.shape))
    magnitude = cast(XOR(n, sign), uint64)
    product = MUL(magnitude, const(multiplier, uint64, x.shape))
    quotient = cast(SHR(product, const(shift, uint64, x.shape)), int64)
    return cast(XOR(quotient, sign), x.dtype)


def _is_worth_it(x: Node, c: Node) -> bool:
    return x.dtype.is_integer and x.op is not CONST and integer_of(c) not in (-1, 0, 1)


@DIVISION.rule(IDIV, Var("x"), Var("c", CONST))
def idiv_by_constant(x: Node, c: Node) -> Node | None:
    """x // c  ->  (x * m + h) >> s

    Needs: bounds of x for which the product fits 64 bits; always so up to 32 bits.
    Keeps: rounding towards minus infinity, for negative x and c too.
    Gain:  a division takes 20 to 40 cycles and has no vector form.
    """
    return divide(x, integer_of(c)) if _is_worth_it(x, c) else None


@DIVISION.rule(MOD, Var("x"), Var("c", CONST))
def mod_by_constant(x: Node, c: Node) -> Node | None:
    """x % c  ->  x - (x // c) * c, with the quotient as in `idiv_by_constant`

    Keeps: the sign of the divisor.
    """
    quotient = divide(x, integer_of(c)) if _is_worth_it(x, c) else None
    return None if quotient is None else SUB(x, MUL(quotient, c))
