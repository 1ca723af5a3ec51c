"""Short rows: the place of an element is the number of those that go before it.

Quadratic, but without branches and in whole vectors, so nothing beats it up to some tens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.keys import key_bits, sorting_key
from tilework.dtypes import index, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST, FOLD_LANES, FoldAttrs
from tilework.ir.ops.index import LANES, LanesAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node

_SIGN = 1 << 63


def sort_by_rank(out: Statements, row: Row, lanes: int) -> None:
    """Sort one row of at most some tens of elements."""
    # Keys are signed: vectors compare those in one instruction.  A key of at most 32 bits carries
    # its position below it, so that no two are equal.
    keys = out.allocate(index, row.limit + lanes)
    packed = key_bits(row.source.dtype) <= 32
    with out.loop(row.size) as i:
        key = cast(sorting_key(row.element(out, i), descending=row.descending), uint64)
        if packed:
            high = math.SHL(key, const_bits(32, uint64))
            key = math.OR(high, bitcast(i, uint64))
        out.store(keys, i, bitcast(math.XOR(key, const_bits(_SIGN, uint64)), index))
    with out.loop(lanes) as i:
        # No element goes after these: none but an equal one is counted, and they come last.
        out.store(keys, simplify.add(row.size, i), const_index((1 << 63) - 1))
    padded = simplify.add(row.size, const_index(lanes - 1))
    blocks = simplify.idiv(padded, const_index(lanes))
    if blocks.op is math.IDIV:  # of a size known at run time; it is not negative
        blocks = math.CDIV(padded, const_index(lanes))
    with out.loop(row.size) as i:
        own = out.load(keys, i)
        count = out.variable(const_bits(0, index, (lanes,) if lanes > 1 else ()))
        with out.loop(blocks) as block:
            start = simplify.scale(block, lanes)
            others = out.load(keys, start, lanes)
            before = math.LT(others, _spread(own, lanes))
            if not packed:
                is_equal = math.EQ(others, _spread(own, lanes))
                is_earlier = math.LT(_positions(start, lanes), _spread(i, lanes))
                before = math.OR(before, math.AND(is_equal, is_earlier))
            update = out.assign(count, math.ADD(count, cast(before, index)))
        total = out.read(count, update)
        rank = FOLD_LANES(total, attrs=FoldAttrs(Fold.ADD)) if lanes > 1 else total
        row.put(out, out.emit(rank), i)


def _spread(value: Node, lanes: int) -> Node:
    return BROADCAST(value, attrs=LanesAttrs(lanes)) if lanes > 1 else value


def _positions(start: Node, lanes: int) -> Node:
    if lanes == 1:
        return start
    return math.ADD(_spread(start, lanes), LANES(attrs=LanesAttrs(lanes)))
