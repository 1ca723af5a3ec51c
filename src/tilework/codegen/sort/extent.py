"""Between which keys the keys of a row lie, and which of their lowest bits are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.dtypes import index, uint64
from tilework.ir.build import bitcast, cast, const_index
from tilework.ir.ops import math

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.sort.elements import ElementSort
    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class Spread:
    """How far keys lie apart.

    All keys have the bits of `least` below bit `low`.  `width` is what the greatest exceeds the
    least one by, without those bits, as a number of `bits` bits.
    """

    least: Node
    low: Node
    width: Node
    bits: Node


class Extent:
    """Looks at keys, in vectors and one by one."""

    def __init__(self, sort: ElementSort) -> None:
        self._sort = sort
        lanes = {1, sort.lanes}
        self._found = {count: [self._variable(each, count) for each in _FOLDS] for count in lanes}

    def _variable(self, fold: _Fold, lanes: int) -> Node:
        identity = (1 << self._sort.bits) - 1 if fold.begins_full else 0
        return self._sort.out.variable(self._sort.number(identity, lanes))

    def look_at(self, key: Node, chosen: Node | None) -> None:
        """Take note of a key, or of each of a vector that is chosen."""
        lanes = key.type.lanes if key.type.shape else 1
        for fold, variable in zip(_FOLDS, self._found[lanes], strict=True):
            value = key
            if chosen is not None:
                identity = (1 << self._sort.bits) - 1 if fold.begins_full else 0
                value = math.WHERE(chosen, key, self._sort.number(identity, lanes))
            self._sort.out.assign(variable, fold.combine(variable, value))

    def found(self) -> Spread:
        """What was found of all keys."""
        sort, out = self._sort, self._sort.out
        totals = list(self._found[1])
        if sort.lanes > 1 and sort.lanes in self._found:
            for number, (fold, variable) in enumerate(
                zip(_FOLDS, self._found[sort.lanes], strict=True)
            ):
                kept = out.allocate(sort.kind, sort.lanes)
                out.store(kept, const_index(0), variable)
                with out.loop(sort.lanes) as lane:
                    lane_value = out.load(kept, lane)
                    out.assign(totals[number], fold.combine(totals[number], lane_value))
        least, most, common, united = [out.emit(math.ADD(t, sort.number(0))) for t in totals]
        low, bits = out.variable(const_index(0)), out.variable(const_index(0))
        varying = out.variable(math.XOR(common, united))
        one, zero = sort.number(1), sort.number(0)
        is_shared = math.AND(math.EQ(math.AND(varying, one), zero), math.NE(varying, zero))
        with out.loop(sort.bits), out.when(is_shared):
            out.assign(varying, math.SHR(varying, one))
            out.assign(low, math.ADD(low, const_index(1)))
        place = cast(bitcast(low, uint64), sort.kind)
        width = out.emit(math.SHR(math.SUB(most, least), place))
        rest = out.variable(width)
        with out.loop(sort.bits), out.when(math.NE(rest, zero)):
            out.assign(rest, math.SHR(rest, one))
            out.assign(bits, math.ADD(bits, const_index(1)))
        return Spread(least, low, out.emit(bitcast(cast(width, uint64), index)), bits)


@dataclass(frozen=True, slots=True)
class _Fold:
    combine: Callable[[Node, Node], Node]
    begins_full: bool


#: The least and the greatest key, the bits that all have, and those that any has.
_FOLDS = (
    _Fold(math.MINIMUM, True),
    _Fold(math.MAXIMUM, False),
    _Fold(math.AND, True),
    _Fold(math.OR, False),
)
