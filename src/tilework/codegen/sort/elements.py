"""What sorts of elements share: keys, what keys are turned into, and walks in vectors.

The zeros have one key, and so have the NaNs.  Where a row has others than those that keys are
turned into, they are written once more, in the order in which they are in the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.keys import (
    UNSIGNED,
    key_bits,
    shared_keys,
    sorted_element,
    sorting_key,
)
from tilework.dtypes import bool_, index
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import FOLD_LANES, FoldAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


class ElementSort:
    """What both ways share: keys, elements, and a walk over the row in vectors."""

    def __init__(self, out: Statements, row: Row, target: TargetSpec) -> None:
        self.out, self.row, self.target = out, row, target
        self.bits = key_bits(row.source.dtype)
        self.kind = UNSIGNED[self.bits]
        self.lanes = max(target.vector_bits // self.bits, 1)
        self.shared = shared_keys(row.source.dtype, descending=row.descending)

    def number(self, value: int, lanes: int = 1) -> Node:
        """A key, or a vector of it."""
        return const_bits(value, self.kind, (lanes,) if lanes > 1 else ())

    def key(self, element: Node) -> Node:
        """The key of an element."""
        return sorting_key(element, descending=self.row.descending)

    def element(self, key: Node) -> Node:
        """The element that a key is turned into."""
        return sorted_element(key, self.row.source.dtype, descending=self.row.descending)

    def put(self, rank: Node, element: Node) -> None:
        """Write the element of a rank."""
        start = self.row.target_start
        self.out.store(self.row.target, simplify.add(start, rank), element)

    def walk(self, visit: Callable[[Node, Node], None]) -> None:
        """Call `visit` with where each vector of the row begins and its elements.

        What is left at the end comes one by one.
        """
        out, row, lanes = self.out, self.row, self.lanes
        whole = const_index(0)
        if lanes > 1:
            blocks = simplify.idiv(row.size, const_index(lanes))
            if blocks.op is math.IDIV:  # of a size known at run time; it is not negative
                blocks = math.CDIV(row.size, const_index(lanes))
            blocks = out.emit(blocks)
            with out.loop(blocks) as block:
                start = out.emit(simplify.scale(block, lanes))
                visit(start, out.load(row.source, simplify.add(row.source_start, start), lanes))
            whole = out.emit(simplify.scale(blocks, lanes))
        with out.loop(out.emit(simplify.sub(row.size, whole))) as i:
            at = out.emit(simplify.add(whole, i))
            visit(at, row.element(out, at))

    def differences(self) -> Differences:
        """Find out whether elements differ from those that their keys are turned into."""
        return Differences(self)

    def write_shared(self, difference: Differences, mine: Callable[[Node], Node] | None) -> None:
        """Write what shares a key once more, in the order of the row, if it differs.

        Args:
            difference: What has looked at all elements.
            mine: Whether this task has a key; None: it has all.
        """
        out, row = self.out, self.row
        for shared in self.shared:
            key = self.number(shared)
            found = difference.found()
            with out.when(found if mine is None else math.AND(found, mine(key))):
                below = out.variable(const_index(0))
                with out.loop(row.size) as i:
                    is_below = math.LT(self.key(row.element(out, i)), key)
                    out.assign(below, math.ADD(below, cast(is_below, index)))
                with out.loop(row.size) as i:
                    element = row.element(out, i)
                    with out.when(math.EQ(self.key(element), key)):
                        self.put(below, element)
                        out.assign(below, math.ADD(below, const_index(1)))


class Differences:
    """Whether any element has other bits than the one that its key is turned into."""

    def __init__(self, values: ElementSort) -> None:
        self._values = values
        self._vector: Node | None = None
        self._scalar: Node | None = None
        if values.shared:
            self._scalar = values.out.variable(values.number(0))
            if values.lanes > 1:
                self._vector = values.out.variable(values.number(0, values.lanes))

    def look_at(self, element: Node, key: Node) -> None:
        """Take note of an element (of a vector of them) and its key."""
        united = self._vector if element.type.shape else self._scalar
        if united is None:
            return
        values = self._values
        other = math.XOR(bitcast(element, values.kind), bitcast(values.element(key), values.kind))
        values.out.assign(united, math.OR(united, other))

    def found(self) -> Node:
        """Whether any element differs."""
        values = self._values
        if self._scalar is None:
            return const_bits(0, bool_)
        united = self._scalar
        if self._vector is not None:
            vector = FOLD_LANES(self._vector, attrs=FoldAttrs(Fold.MAX))
            united = math.OR(united, vector)
        return values.out.emit(math.NE(united, values.number(0)))
