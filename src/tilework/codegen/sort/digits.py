"""Tables of a radix sort: how often each value of a digit occurs, then where its words go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index, uint32
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node


#: Into how many tables the same digit is counted: equal neighbours do not wait for each other's
#: counters.
TABLES = 4


def count_by_turns(out: Statements, size: Node, count: Callable[[int, Node], None]) -> None:
    """Have each of so many positions counted into one of `TABLES` tables.

    Args:
        out: Gets the statements.
        size: How many positions.
        count: Writes what counts the position given into the table of a number.
    """
    groups = simplify.idiv(size, const_index(TABLES))
    if groups.op is math.IDIV:
        groups = math.CDIV(size, const_index(TABLES))
    groups = out.emit(groups)
    with out.loop(groups) as group:
        for table in range(TABLES):
            count(table, simplify.add(simplify.scale(group, TABLES), const_index(table)))
    rest = out.emit(simplify.scale(groups, TABLES))
    with out.loop(out.emit(simplify.sub(size, rest))) as i:
        count(0, simplify.add(rest, i))


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
