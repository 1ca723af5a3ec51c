"""Quotients of many vectors by one number, without the divider of the machine.

A vector of sixteen quotients occupies the divider for ten cycles and more.  With the reciprocal r
of the divisor d, rounded, and what the rounding lost, l = (1 - r d) r, four instructions give the
same: q = x r + (x l) is within one unit of the quotient, so that x - q d is exact, and
q + (x - q d) r is the quotient correctly rounded (Markstein's theorem).

That holds where nothing overflows or gets subnormal on the way.  Lanes are compared with bounds
that see to it, as integers and with their signs first, since most quotients are positive; a vector
with a lane outside is divided by the machine.  Of zeros +0 is let through, since masks make many:
x = +0 gives +0 for positive divisors, and the others are never taken for fine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilework.dtypes import DType, float32, float64
from tilework.ir.ops import control, math
from tilework.ir.ops.index import RANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.ir.node import Node

#: Fewer lanes than this are divided by the machine.
_LEAST_LANES = 4


class _Format(NamedTuple):
    """The name of a type, its integers, and the powers of two that x and d must lie between."""

    name: str
    integer: str
    suffix: str
    mantissa: int
    bias: int
    reach: int  # x
    divisors: int  # d

    def bits(self, exponent: int) -> int:
        """A power of two as an integer."""
        return (exponent + self.bias) << self.mantissa


_FORMATS: dict[DType, _Format] = {
    float32: _Format("float", "i32", "f32", 23, 127, 100, 24),
    float64: _Format("double", "i64", "f64", 52, 1023, 900, 50),
}


class Divisor(NamedTuple):
    """Vectors of what the quotients by one number share."""

    whole: str
    reciprocal: str
    lost: str
    least: str
    span: str
    zero: str


def shared_divisors(statements: Sequence[Node]) -> frozenset[Node]:
    """The BROADCASTs by which loops that open after them divide."""
    depths: dict[Node, int] = {}
    found: set[Node] = set()
    depth = 0
    for node in statements:
        if node.op is RANGE:
            depth += 1
        elif node.op is control.END:
            depth -= 1
        elif node.op is control.BROADCAST:
            depths[node] = depth
        elif node.op is math.FDIV and node.type.dtype in _FORMATS:
            divisor = node.src[1]
            known = depths.get(divisor)
            if known is not None and depth > known and node.type.lanes >= _LEAST_LANES:
                found.add(divisor)
    return frozenset(found)


class Writer:
    """Writes quotients into a function.

    Args:
        define: writes a line that names a value, and gives the name.
        emit: writes a line.
        label: gives a new label.
        begin: begins the block of a label.
        declare: declares a function of LLVM: result, name, arguments; gives the name.
    """

    def __init__(
        self,
        define: Callable[[str], str],
        emit: Callable[[str], None],
        label: Callable[[], str],
        begin: Callable[[str], None],
        declare: Callable[..., str],
    ) -> None:
        self._define = define
        self._emit = emit
        self._label = label
        self._begin = begin
        self._declare = declare

    def divisor(self, node: Node, scalar: str, vector: str) -> Divisor:
        """What quotients by a BROADCAST share.

        Args:
            node: the BROADCAST.
            scalar: the name of the number.
            vector: the name of the vector.
        """
        kind, lanes, define = _FORMATS[node.type.dtype], node.type.lanes, self._define
        name, integer = kind.name, kind.integer
        fma = self._declare(name, f"llvm.fma.{kind.suffix}", *[name] * 3)
        reciprocal = define(f"fdiv {name} 1.0, {scalar}")
        minus = define(f"fneg {name} {reciprocal}")
        rest = define(f"call {name} @{fma}({name} {minus}, {name} {scalar}, {name} 1.0)")
        lost = define(f"fmul {name} {rest}, {reciprocal}")
        # Where the divisor is extreme or negative, the bounds let nothing through but NaN.
        bits = define(f"bitcast {name} {scalar} to {integer}")
        low, high = kind.bits(-kind.divisors), kind.bits(kind.divisors)
        above = define(f"sub {integer} {bits}, {low}")
        fine = define(f"icmp ule {integer} {above}, {high - low}")
        nan = kind.bits(kind.bias + 1) + 1
        least, most = kind.bits(-kind.reach), kind.bits(kind.reach)
        pick = f"select i1 {fine}, {integer}"
        return Divisor(
            vector,
            self._spread(name, lanes, reciprocal),
            self._spread(name, lanes, lost),
            self._spread(integer, lanes, define(f"{pick} {least}, {integer} {nan}")),
            self._spread(integer, lanes, define(f"{pick} {most - least}, {integer} 0")),
            self._spread(integer, lanes, define(f"{pick} 0, {integer} {nan}")),
        )

    def quotient(self, node: Node, x: str, by: Divisor) -> str:
        """The name of a vector of quotients."""
        kind, lanes, define = _FORMATS[node.type.dtype], node.type.lanes, self._define
        full, integers = f"<{lanes} x {kind.name}>", f"<{lanes} x {kind.integer}>"
        fma = self._declare(full, f"llvm.fma.v{lanes}{kind.suffix}", *[full] * 3)

        def multiply_add(a: str, b: str, c: str) -> str:
            return define(f"call {full} @{fma}({full} {a}, {full} {b}, {full} {c})")

        small = define(f"fmul {full} {x}, {by.lost}")
        near = multiply_add(x, by.reciprocal, small)
        minus = define(f"fneg {full} {near}")
        rest = multiply_add(minus, by.whole, x)
        fast = multiply_add(rest, by.reciprocal, near)
        bits = define(f"bitcast {full} {x} to {integers}")
        check, divide, done = self._label(), self._label(), self._label()
        start = self._label()
        self._emit(f"br label %{start}")
        self._begin(start)
        outside = define(f"sub {integers} {bits}, {by.least}")
        is_outside = define(f"icmp ugt {integers} {outside}, {by.span}")
        self._branch(is_outside, lanes, check, done)
        # Negative numbers and zeros are looked at a second time.
        self._begin(check)
        magnitude = (1 << (kind.mantissa + kind.bias.bit_length() + 1)) - 1
        sizes = define(f"and {integers} {bits}, splat ({kind.integer} {magnitude})")
        beyond = define(f"sub {integers} {sizes}, {by.least}")
        is_beyond = define(f"icmp ugt {integers} {beyond}, {by.span}")
        is_other = define(f"icmp ne {integers} {bits}, {by.zero}")
        both = define(f"and <{lanes} x i1> {is_beyond}, {is_other}")
        self._branch(both, lanes, divide, done)
        self._begin(divide)
        slow = define(f"fdiv {full} {x}, {by.whole}")
        self._emit(f"br label %{done}")
        self._begin(done)
        return define(
            f"phi {full} [ {fast}, %{start} ], [ {fast}, %{check} ], [ {slow}, %{divide} ]"
        )

    def _branch(self, lanes_: str, lanes: int, then: str, done: str) -> None:
        """Go to `then` if any lane holds."""
        mask = self._define(f"bitcast <{lanes} x i1> {lanes_} to i{lanes}")
        any_ = self._define(f"icmp ne i{lanes} {mask}, 0")
        self._emit(f"br i1 {any_}, label %{then}, label %{done}")

    def _spread(self, kind: str, lanes: int, scalar: str) -> str:
        full = f"<{lanes} x {kind}>"
        first = self._define(f"insertelement {full} poison, {kind} {scalar}, i64 0")
        return self._define(
            f"shufflevector {full} {first}, {full} poison, <{lanes} x i32> zeroinitializer"
        )
