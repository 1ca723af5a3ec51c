"""Tables of a radix sort: how often each value of a digit occurs, then where its words go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index, uint32
from tilework.ir.build import cast, const_bits
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node


def begin_digit(out: Statements, counts: Node, number: Node, values: int, start: Node) -> Node:
    """Turn the counts of a digit into where its values begin; gives their table's offset.

    Args:
        out: Gets the statements.
        counts: The tables of all digits in uint32, one behind the other.
        number: Which digit.
        values: How many values a digit has.
        start: Where the first word goes.
    """
    table = out.emit(simplify.scale(number, values))
    total = out.variable(start)
    with out.loop(values) as value:
        entry = out.emit(simplify.add(table, value))
        count = out.load(counts, entry)
        out.store(counts, entry, total)
        out.assign(total, math.ADD(total, count))
    return table


def take_place(out: Statements, counts: Node, table: Node, digit: Node) -> Node:
    """Where a word with this value of a digit goes; the next one with it goes behind it."""
    entry = out.emit(simplify.add(table, digit))
    at = out.load(counts, entry)
    out.store(counts, entry, math.ADD(at, const_bits(1, uint32)))
    return cast(at, index)
