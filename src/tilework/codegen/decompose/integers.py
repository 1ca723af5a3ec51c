"""Integer ops by their written definition, from what processors have.

IDIV rounds towards minus infinity and a zero divisor gives 0; shifts by the width or more give 0
(SHR of a negative number -1).  Where bounds prove that a case cannot occur nothing is emitted for
it.  Integers divided by a power of two are shifted or masked, whatever their sign.  Short integers
divided by another literal become a multiplication and a shift; for longer ones the back ends'
compilers have better sequences, with products of both halves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import uint32
from tilework.ir.build import cast, const_like
from tilework.ir.ops import math
from tilework.ir.rules.division import divide
from tilework.ir.rules.integer import idiv_by_power_of_two, mod_by_power_of_two
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node


#: Up to this size the product with the multiplier of a quotient fits 32 bits, mostly.
_SHORT = 1 << 15


def _zero(node: Node) -> Node:
    return const_like(0, node)


def _safe_divisor(x: Node, y: Node) -> tuple[Node, Node | None]:
    """A divisor that CDIV accepts, and the condition (None: always) that it is `y` itself."""
    low, high = bounds(y)
    least = bounds(x)[0] if x.dtype.is_signed else 0
    condition: Node | None = None
    if low <= 0 <= high:
        condition = math.NE(y, _zero(y))
    overflows = x.dtype.is_signed and low <= -1 <= high and least == x.dtype.minimum
    if overflows:
        fine = math.NE(y, const_like(-1, y))
        condition = fine if condition is None else math.AND(condition, fine)
    if condition is None:
        return y, None
    return math.WHERE(condition, y, const_like(1, y)), condition


def _short_quotient(x: Node, y: Node) -> Node | None:
    """x // y by a multiplication in 32 bits, for a literal y where the bounds of x allow it."""
    if y.op is not math.CONST or max(map(abs, bounds(x))) > _SHORT:
        return None
    divisor = bounds(y)[0]
    return None if divisor in (-1, 0, 1) else divide(x, divisor)


def floor_divide(node: Node) -> Node:
    """IDIV from a shift, or from CDIV and CMOD."""
    x, y = node.src
    if y.op is math.CONST and (shifted := idiv_by_power_of_two(x, y)) is not None:
        return shifted
    if (short := _short_quotient(x, y)) is not None:
        return short
    divisor, condition = _safe_divisor(x, y)
    quotient = math.CDIV(x, divisor)
    if bounds(x)[0] < 0 or bounds(y)[0] < 0:
        rest = math.CMOD(x, divisor)
        apart = math.LT(math.XOR(rest, divisor), _zero(x))
        step = math.AND(math.NE(rest, _zero(x)), apart)
        quotient = math.WHERE(step, math.SUB(quotient, const_like(1, x)), quotient)
    if condition is None:
        return quotient
    # Divided by -1 the least number wraps to itself, as negation does; by 0 it is 0.
    special = math.WHERE(math.EQ(y, _zero(y)), _zero(x), math.NEG(x))
    return math.WHERE(condition, quotient, special)


def floor_modulo(node: Node) -> Node:
    """MOD from a mask, or from CMOD."""
    x, y = node.src
    if y.op is math.CONST and (masked := mod_by_power_of_two(x, y)) is not None:
        return masked
    if (short := _short_quotient(x, y)) is not None:
        return math.SUB(x, math.MUL(short, y))
    divisor, condition = _safe_divisor(x, y)
    rest = math.CMOD(x, divisor)
    if bounds(x)[0] < 0 or bounds(y)[0] < 0:
        apart = math.LT(math.XOR(rest, divisor), _zero(x))
        step = math.AND(math.NE(rest, _zero(x)), apart)
        rest = math.WHERE(step, math.ADD(rest, divisor), rest)
    if condition is None:
        return rest
    return math.WHERE(condition, rest, _zero(x))


def shift_left(node: Node) -> Node:
    """SHL with counts of at least the width (or below zero) made to give 0."""
    x, count = node.src
    if _is_proper(count):
        return node
    return math.WHERE(_count_fits(count), math.SHL(x, _clamped(count)), _zero(x))


def shift_right(node: Node) -> Node:
    """SHR with counts of at least the width (or below zero) made to give 0 or the sign."""
    x, count = node.src
    if _is_proper(count):
        return node
    if x.dtype.is_signed:
        most = const_like(x.dtype.bits - 1, count)
        return math.SHR(x, math.WHERE(_count_fits(count), _clamped(count), most))
    return math.WHERE(_count_fits(count), math.SHR(x, _clamped(count)), _zero(x))


def dot_of_words(node: Node) -> Node:
    """Sums of products in words by shifts and multiplications."""
    x, y, total = node.src
    bits = 16 if node.op is math.DOT_PAIRS else 8
    first = cast(x, uint32) if node.op in math.UNSIGNED_FIRST else x
    second = cast(y, uint32) if node.op in math.UNSIGNED_SECOND else y
    for place in range(0, 32, bits):
        factors = [
            cast(math.SHR(_shifted(word, 32 - bits - place), const_like(32 - bits, word)), x.dtype)
            for word in (first, second)
        ]
        total = math.ADD(total, math.MUL(*factors))
    return total


def _shifted(word: Node, count: int) -> Node:
    return math.SHL(word, const_like(count, word)) if count else word


def _is_proper(count: Node) -> bool:
    low, high = bounds(count)
    return low >= 0 and high < count.dtype.bits


def _clamped(count: Node) -> Node:
    """The count, or a count that the processor defines; its bounds are proven."""
    least = math.MAXIMUM(count, _zero(count)) if count.dtype.is_signed else count
    return math.MINIMUM(least, const_like(count.dtype.bits - 1, count))


def _count_fits(count: Node) -> Node:
    fits = math.LT(count, const_like(count.dtype.bits, count))
    if count.dtype.is_signed:
        fits = math.AND(fits, math.LE(_zero(count), count))
    return fits
