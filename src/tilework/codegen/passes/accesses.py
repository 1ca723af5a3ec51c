"""Loads and stores of vectors: side by side, in steps, of one element, or anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import (
    BROADCAST,
    EXTRACT,
    FOLD_LANES,
    SHUFFLE,
    STACK,
    FoldAttrs,
    LaneAttrs,
    ShuffleAttrs,
)
from tilework.ir.ops.index import RANGE, LanesAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, LoadAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: The longest step between lanes that is bridged by loading what lies between them.
LONGEST_STEP = 4
#: The bits of elements that one access moves at a vector of addresses, and the fewest lanes.
_BITS = (32, 64)
_LEAST_LANES = 4


class Gathers:
    """When one access serves a vector of addresses better than one for each lane.

    It tests all lanes of a mask at once, but has fewer lines on their way at a time: what lies
    beyond the second cache comes later.
    """

    def __init__(self, target: TargetSpec | None) -> None:
        has_one = target is not None and "gather" in target.native_ops
        #: How far apart places may lie: the rest of the second cache is for what is read in order.
        #: None where there is no such access.
        self.reach_bytes = target.l2_bytes // 2 if target is not None and has_one else None

    def serve(
        self, address: Node, terms: Mapping[Node, int], gates: Sequence[Node], lanes: int
    ) -> bool:
        """Do they serve an address whose lanes lie where loaded values say?

        Args:
            address: The INDEX before lanes were made.
            terms: The parts of its offset that differ from lane to lane, with their factors.
            gates: Its gate, if it has one.
            lanes: How many.
        """
        size = address.type.dtype.itemsize
        if self.reach_bytes is None or 8 * size not in _BITS or lanes < _LEAST_LANES:
            return False
        return _reach(address.src[0], terms, gates) * size <= self.reach_bytes


def _reach(buffer: Node, terms: Mapping[Node, int], gates: Sequence[Node]) -> int:
    """How many elements places lie apart at most, as far as gates limit loaded values."""
    limits: dict[Node, int] = {}
    for gate in gates:
        for part in simplify.conjuncts(gate):
            limit = simplify.value_of(part.src[1]) if part.op is math.LT else None
            if limit is not None:
                limits[part.src[0]] = limit
    reach = 0
    for term, factor in terms.items():
        if term in limits:
            reach += abs(factor) * limits[term]
        elif term.op is not RANGE:
            return int(buffer.attrs.shape[0]) if buffer.op is PARAM else 0
    return reach


def as_vector(value: Node, lanes: int) -> Node:
    """A value, if it is a scalar in every lane."""
    return value if value.type.shape else broadcast(value, lanes)


def broadcast(node: Node, lanes: int) -> Node:
    """A scalar in every lane."""
    if node.op is math.CONST:
        return const_bits(node.attrs.bits, node.attrs.dtype, (lanes,))
    return BROADCAST(node, attrs=LanesAttrs(lanes))


def extract(vector: Node, lane: int) -> Node:
    """One lane of a vector, looked up where the vector was put together from scalars."""
    if vector.op is STACK:
        return vector.src[lane]
    if vector.op is BROADCAST:
        return vector.src[0]
    if vector.op is math.CONST:
        return const_bits(vector.attrs.bits, vector.attrs.dtype)
    return EXTRACT(vector, attrs=LaneAttrs(lane))


def load(
    target: Node,
    offset: Node,
    gate: Node | None,
    after: Sequence[Node],
    lanes: int,
    ahead: int = 0,
) -> Node:
    """A LOAD of lanes from an offset on where its gate holds, once `after` has happened."""
    address = INDEX(target, offset)
    attrs = LoadAttrs(lanes, ahead) if lanes > 1 else None
    if gate is not None and lanes == 1 and gate.type.shape and not offset.type.shape:
        gate = extract(gate, 0)  # a vector of one lane is loaded as a scalar
    if gate is None and not after:
        return LOAD(address, attrs=attrs)
    return LOAD(address, gate if gate is not None else simplify.TRUE, *after, attrs=attrs)


def strided(target: Node, start: Node, step: int, lanes: int, after: Sequence[Node]) -> Node:
    """Every `step`-th element: vectors from the first element to the last, shuffled into one."""
    reach = step * (lanes - 1) + 1
    firsts = [*range(0, reach - lanes, lanes), reach - lanes]
    vectors = [
        load(target, simplify.add(start, const_index(first)), None, after, lanes)
        for first in firsts
    ]
    result = vectors[0]
    for i in range(1, len(vectors)):
        # Lanes found so far stay; the others come from the vector that holds them.
        picked = []
        for lane in range(lanes):
            at = lane * step
            if at < firsts[i]:
                picked.append(lane if i > 1 else at)
            else:
                picked.append(lanes + min(at - firsts[i], lanes - 1))
        result = SHUFFLE(result, vectors[i], attrs=ShuffleAttrs(tuple(picked)))
    return result


def gated_scalar(target: Node, offset: Node, gate: Node, after: Sequence[Node]) -> Node:
    """The same element for every lane, each with its own gate."""
    lanes = gate.type.lanes
    any_ = any_lane(gate)
    value = broadcast(load(target, offset, any_, after, 1), lanes)
    zero = const_bits(0, value.dtype, (lanes,))
    return math.WHERE(gate, value, zero)


def any_lane(gate: Node) -> Node:
    """True if a lane of a vector of bools is."""
    if not gate.type.shape:
        return gate
    lanes = gate.type.lanes
    if lanes & (lanes - 1) == 0:
        return FOLD_LANES(gate, attrs=FoldAttrs(Fold.MAX))
    result = extract(gate, 0)
    for i in range(1, gate.type.lanes):
        result = math.OR(result, extract(gate, i))
    return result


def store(buffer: Node, offset: Node, value: Node, gate: Node | None) -> Node:
    """A STORE at an offset, where its gate holds."""
    address = INDEX(buffer, offset)
    return STORE(address, value) if gate is None else STORE(address, value, gate)


def scatter(buffer: Node, offsets: Sequence[Node], value: Node, gate: Node | None) -> Node:
    """One scalar store a lane, in lane order."""
    stores = []
    for i, offset in enumerate(offsets):
        own_value = extract(value, i) if value.type.shape else value
        own_gate = extract(gate, i) if gate is not None and gate.shape else gate
        stores.append(store(buffer, offset, own_value, own_gate))
    return SINK(*stores)


def lanes_of(vector: Node) -> list[Node]:
    """The lanes of a vector."""
    return [extract(vector, lane) for lane in range(vector.type.lanes)]


def load_vector(target: Node, offsets: Node, gate: Node | None, after: Sequence[Node]) -> Node:
    """The elements at a vector of offsets."""
    own = None if gate is None else as_vector(gate, offsets.type.lanes)
    return load(target, offsets, own, after, 1)


def store_vector(buffer: Node, offsets: Node, value: Node, gate: Node | None) -> Node:
    """Write the elements at a vector of offsets, in the order of lanes."""
    lanes = offsets.type.lanes
    own = None if gate is None else as_vector(gate, lanes)
    return store(buffer, offsets, as_vector(value, lanes), own)


def gather(target: Node, offsets: Sequence[Node], gate: Node | None, after: Sequence[Node]) -> Node:
    """One scalar load a lane."""
    loads = []
    for i, offset in enumerate(offsets):
        own = extract(gate, i) if gate is not None and gate.shape else gate
        loads.append(load(target, offset, own, after, 1))
    return STACK(*loads)
