"""Long rows of which the elements are wanted, and not their positions: only keys are moved.

A word is a key, half as wide as one with a position.  Keys of 8 bits are counted, and written as
often.  All others go through a radix sort (`moved.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.digits import TABLES, count_by_turns
from tilework.codegen.sort.elements import ElementSort
from tilework.codegen.sort.keys import key_bits
from tilework.codegen.sort.moved import MovedSort
from tilework.dtypes import index, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Keys of so many bits are counted, and not moved.
_COUNTED_BITS = 8


def is_counted(dtype: DType) -> bool:
    """Whether elements of this dtype are counted, and not moved."""
    return key_bits(dtype) <= _COUNTED_BITS


def sort_values(out: Statements, row: Row, digit: int, target: TargetSpec) -> None:
    """Write the elements of one row in order, by digits of so many bits."""
    if is_counted(row.source.dtype):
        _Counted(out, row, target).write()
    else:
        MovedSort(out, row, target, digit).write()


class _Counted(ElementSort):
    """Keys of few bits: each is written as often as it was counted."""

    def write(self) -> None:
        out, row = self.out, self.row
        size, tables = 1 << self.bits, TABLES
        counts = out.allocate(uint32, tables * size)
        with out.loop(tables * size) as i:
            out.store(counts, i, const_bits(0, uint32))
        count_by_turns(out, row.size, lambda table, at: self._count(counts, table, at))
        begin = out.variable(const_index(0))
        with out.loop(size) as value:
            count = out.variable(const_bits(0, uint32))
            with out.loop(tables) as table_:
                entry = simplify.add(simplify.scale(table_, size), value)
                out.assign(count, math.ADD(count, out.load(counts, out.emit(entry))))
            element = out.emit(self.element(cast(bitcast(value, uint64), self.kind)))
            number = out.emit(cast(count, index))
            with out.loop(number) as i:
                self.put(simplify.add(begin, i), element)
            out.assign(begin, math.ADD(begin, number))
        if self.shared:
            difference = self.differences()
            self.walk(lambda _, element: difference.look_at(element, self.key(element)))
            self.write_shared(difference, None)

    def _count(self, counts: Node, table: int, at: Node) -> None:
        out = self.out
        element = self.row.element(out, out.emit(at))
        key = bitcast(cast(self.key(element), uint64), index)
        entry = out.emit(simplify.add(key, const_index(table << self.bits)))
        out.store(counts, entry, math.ADD(out.load(counts, entry), const_bits(1, uint32)))
