"""Index expressions along a range of lanes: as vectors, as conditions, and at one lane.

An expression is straight along the lanes where it is a base plus a step times the lane.  Then its
vector is one broadcast and one multiplication, whatever the machine; else it is put together lane
by lane.
"""

from __future__ import annotations

from tilework.codegen.analysis import depends_on
from tilework.codegen.passes.accesses import broadcast
from tilework.dtypes import index, int32
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.control import STACK
from tilework.ir.ops.index import LANES, LanesAttrs
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds


def lane_vector(expression: Node, lane: Node) -> Node:
    """An index expression over one lane range as a vector."""
    lanes = simplify.value_of(lane.src[0]) or 1
    constant, total = simplify.terms(expression)
    factor = total.get(lane, 0)
    others = {term: c for term, c in total.items() if term is not lane}
    if any(depends_on(term, lane) for term in others):
        return STACK(*at_lanes(expression, lane, lanes))
    base = simplify.from_terms(constant, others)
    steps = LANES(attrs=LanesAttrs(lanes))
    if factor != 1:
        scale = const_bits(factor & 0xFFFF_FFFF_FFFF_FFFF, index, (lanes,))
        steps = math.MUL(steps, scale)
    if simplify.value_of(base) == 0:
        return steps
    return math.ADD(broadcast(base, lanes), steps)


def vector_condition(condition: Node, lane: Node) -> Node:
    """A condition over a lane range, in 32-bit arithmetic where its bounds allow it."""
    lanes = simplify.value_of(lane.src[0]) or 1
    op = condition.op
    if op in (math.AND, math.OR, math.XOR) and condition.dtype.is_bool:
        sides = [
            vector_condition(s, lane) if depends_on(s, lane) else broadcast(s, lanes)
            for s in condition.src
        ]
        return op(*sides)
    if op in (math.LT, math.LE, math.EQ, math.NE) and condition.src[0].dtype is index:
        narrow = all(_fits_int32(side) for side in condition.src)
        sides = []
        for side in condition.src:
            if depends_on(side, lane):
                sides.append(_narrow_vector(side, lane, narrow))
            else:
                sides.append(broadcast(cast(side, int32) if narrow else side, lanes))
        return op(*sides)
    return STACK(*at_lanes(condition, lane, lanes))


def _narrow_vector(expression: Node, lane: Node, narrow: bool) -> Node:
    """The vector of one side of a comparison, in 32 bits if both sides fit them."""
    if not narrow:
        return lane_vector(expression, lane)
    lanes = simplify.value_of(lane.src[0]) or 1
    constant, total = simplify.terms(expression)
    factor = total.get(lane, 0)
    others = {term: c for term, c in total.items() if term is not lane}
    base = simplify.from_terms(constant, others)
    if any(depends_on(term, lane) for term in others) or not _fits_int32(base):
        return cast(lane_vector(expression, lane), int32)
    steps = cast(LANES(attrs=LanesAttrs(lanes)), int32)
    if factor != 1:
        steps = math.MUL(steps, const_bits(factor & 0xFFFF_FFFF, int32, (lanes,)))
    return math.ADD(broadcast(cast(base, int32), lanes), steps)


def _fits_int32(node: Node) -> bool:
    low, high = bounds(node)
    return low >= int32.minimum and high <= int32.maximum


def at_lane(expression: Node, lane: Node, position: int) -> Node:
    """What an expression is at one lane."""
    (result,) = simplify.substitute([expression], {lane: const_index(position)})
    return result


def at_lanes(expression: Node, lane: Node, count: int) -> list[Node]:
    """What an expression is at each of the first `count` lanes."""
    found = _straight(expression, lane)
    if found is None:
        return [at_lane(expression, lane, i) for i in range(count)]
    base, start, step = found
    return [simplify.plus(base, start + step * i) for i in range(count)]


def _straight(expression: Node, lane: Node) -> tuple[Node, int, int] | None:
    """An offset as base + start + step * lane, the base a sum without a constant."""
    if expression.type.dtype is not index:
        return None
    start, total = simplify.terms(expression)
    step = total.get(lane)
    if step is None:
        return None
    rest = {term: factor for term, factor in total.items() if term is not lane}
    if any(depends_on(term, lane) for term in rest):
        return None
    return simplify.from_terms(0, rest), start, step
