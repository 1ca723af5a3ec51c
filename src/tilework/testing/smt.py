"""Accesses of a kernel that is LOWERED, judged by an SMT solver (`pip install tilework[smt]`).

    outside(lowered)        # the accesses that leave their buffer for some loops, sizes and data

The prover of the compiler (`codegen.audit`) is small and quick.  Here the same question is asked of
a solver that knows nothing of it, over formulas that are written from what operations mean: with
integers that wrap, quotients that round down, and whatever memory may hold.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import UnsupportedError
from tilework.dtypes import bool_
from tilework.ir.node import toposort
from tilework.ir.ops import control, math
from tilework.ir.ops.index import LANES, RANGE, VARIABLE
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: Work after which a question stays open; counted by the solver, so that it is the same anywhere.
WORK: Final = 1_000_000


class Verdict(Enum):
    """What a solver says of an access."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    OPEN = "open"


def judge(access: Node, work: int = WORK) -> Verdict:
    """Whether a LOAD or STORE of a buffer stays inside of it, whatever loops and memory hold.

    Args:
        access: The operation.
        work: After so much of it the question stays open.

    Raises:
        UnsupportedError: z3-solver is not installed.
    """
    return _Formulas().judge(access, work)


def accesses_of(lowered: Node) -> list[Node]:
    """The loads and stores of buffers in a kernel."""
    return [
        node
        for node in toposort(lowered)
        if (node.op is LOAD or node.op is STORE)
        and node.src[0].op is INDEX
        and node.src[0].src[0].op is PARAM
    ]


def outside(lowered: Node) -> list[Node]:
    """The accesses of a LOWERED kernel that leave their buffer for some values.

    Raises:
        UnsupportedError: z3-solver is not installed.
    """
    return [access for access in accesses_of(lowered) if judge(access) is Verdict.OUTSIDE]


class _Formulas:
    """Expressions of one access as formulas."""

    def __init__(self) -> None:
        try:
            import z3
        except ImportError as error:
            raise UnsupportedError(
                "smt: there is no solver", got="z3-solver is not installed",
                try_="pip install tilework[smt]",
            ) from error  # fmt: skip
        self._z3: Any = z3
        self._known: dict[tuple[Node, int], Any] = {}
        #: What holds of the unknowns.
        self._limits: list[Any] = []

    def judge(self, access: Node, work: int) -> Verdict:
        z3 = self._z3
        gates = access.src[1 if access.op is LOAD else 2 :]
        kind = access.type if access.op is LOAD else access.src[1].type
        address = access.src[0]
        size = self._of(dims.as_node(dims.product(address.src[0].attrs.shape)), 0)
        leaves = []
        for lane in range(kind.lanes if kind.shape else 1):
            place = self._of(address.src[1], lane)
            if not address.src[1].type.shape:
                place = place + lane
            holds = [self._of(gate, lane) for gate in gates]
            leaves.append(z3.And(*holds, z3.Or(place < 0, place >= size)))
        solver = z3.Solver()
        solver.set("rlimit", work)
        solver.add(*self._limits, z3.Or(*leaves))
        found = solver.check()
        if found == z3.sat:
            return Verdict.OUTSIDE
        return Verdict.INSIDE if found == z3.unsat else Verdict.OPEN

    def _of(self, node: Node, lane: int) -> Any:
        """The value of a node in one lane."""
        key = (node, lane if node.type.shape else 0)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._made(node, lane)
        return found

    def _made(self, node: Node, lane: int) -> Any:
        op = node.op
        if op is LANES:
            return self._z3.IntVal(lane)
        if op is control.BROADCAST:
            return self._of(node.src[0], 0)
        if op is control.EXTRACT:
            return self._of(node.src[0], node.attrs.lane)
        if op is control.STACK:
            return self._of(node.src[lane], 0)
        if op is math.CONST and (node.dtype.is_integer or node.dtype is bool_):
            return self._constant(node)
        if op in _LOGIC and node.dtype is bool_:
            return self._logic(node, lane)
        if op is math.WHERE and (node.dtype.is_integer or node.dtype is bool_):
            return self._z3.If(*[self._of(source, lane) for source in node.src])
        if op is math.CAST and node.dtype.is_integer and node.src[0].dtype is bool_:
            return self._z3.If(self._of(node.src[0], lane), 1, 0)
        is_counted = all(source.dtype.is_integer for source in node.src)
        if op in _COMPARED and is_counted:
            return _COMPARED[op](*[self._of(source, lane) for source in node.src])
        if op in _COUNTED and node.dtype.is_integer and is_counted:
            value = self._number(node, [self._of(source, lane) for source in node.src])
            if value is not None:
                return self._wrapped(value, node.dtype)
        return self._unknown(node)

    def _constant(self, node: Node) -> Any:
        bits = int(node.attrs.bits)
        if node.dtype is bool_:
            return self._z3.BoolVal(bool(bits))
        return self._z3.IntVal(bits - ((bits << 1) & (1 << node.dtype.bits)) * _sign(node.dtype))

    def _logic(self, node: Node, lane: int) -> Any:
        z3 = self._z3
        x, y = (self._of(source, lane) for source in node.src)
        make = {math.AND: z3.And, math.OR: z3.Or, math.XOR: z3.Xor}[node.op]
        return make(x, y)

    def _number(self, node: Node, x: list[Any]) -> Any:
        """The value of an operation on integers, without a width; None where it is not known."""
        z3, op = self._z3, node.op
        if op in _PLAIN:
            return _PLAIN[op](*x)
        if op is math.MINIMUM:
            return z3.If(x[0] < x[1], x[0], x[1])
        if op is math.MAXIMUM:
            return z3.If(x[0] < x[1], x[1], x[0])
        by = z3.simplify(x[1])
        if not z3.is_int_value(by):
            return self._divided(op, *x) if op in _DIVIDED else None
        number = by.as_long()
        if op in (math.SHL, math.SHR):
            power = 1 << number if 0 <= number < node.dtype.bits else 0
            if not power:
                return None
            return x[0] * power if op is math.SHL else x[0] / power
        if op is math.AND:
            is_mask = number >= 0 and not number & (number + 1)
            return x[0] % (number + 1) if is_mask else None
        return self._divided(op, *x) if number > 0 else None

    def _divided(self, op: Any, x: Any, y: Any) -> Any:
        """Quotients and rests by what is positive, which is said of it; z3 rounds down there."""
        z3 = self._z3
        quotient, rest = x / y, x % y
        if op in (math.CDIV, math.CMOD):  # towards zero
            short = z3.And(x < 0, rest != 0)
            quotient, rest = z3.If(short, quotient + 1, quotient), z3.If(short, rest - y, rest)
        found = quotient if op in (math.IDIV, math.CDIV) else rest
        if z3.is_int_value(z3.simplify(y)):
            return found
        other = z3.FreshInt()
        self._limits.append(z3.Implies(y > 0, other == found))
        return other

    def _wrapped(self, value: Any, dtype: DType) -> Any:
        """An integer modulo 2**width; what has 64 bits counts elements, and never gets so large."""
        if dtype.bits == 64:
            return value
        least = int(dtype.minimum)
        return (value - least) % (1 << dtype.bits) + least

    def _unknown(self, node: Node) -> Any:
        """What loops, variables and memory may hold."""
        z3 = self._z3
        if node.dtype is bool_:
            return z3.FreshBool()
        found = z3.FreshInt()
        if node.op is RANGE:
            self._limits += [found >= 0, found < self._of(node.src[0], 0)]
        elif node.op is VARIABLE:
            self._limits += [found >= node.attrs.minimum, found <= node.attrs.maximum]
        elif node.dtype.is_integer:
            self._limits += [found >= int(node.dtype.minimum), found <= int(node.dtype.maximum)]
        return found


def _sign(dtype: DType) -> int:
    return int(dtype.minimum < 0)


_LOGIC: Final = (math.AND, math.OR, math.XOR)
_COMPARED: Final[dict[Any, Any]] = {
    math.LT: lambda x, y: x < y,
    math.LE: lambda x, y: x <= y,
    math.EQ: lambda x, y: x == y,
    math.NE: lambda x, y: x != y,
}
_PLAIN: Final[dict[Any, Any]] = {
    math.ADD: lambda x, y: x + y,
    math.SUB: lambda x, y: x - y,
    math.MUL: lambda x, y: x * y,
    math.NEG: lambda x: -x,
    math.CAST: lambda x: x,
}
_DIVIDED: Final = (math.IDIV, math.MOD, math.CDIV, math.CMOD)
_COUNTED: Final = frozenset(
    (*_PLAIN, *_DIVIDED, math.MINIMUM, math.MAXIMUM, math.SHL, math.SHR, math.AND)
)
