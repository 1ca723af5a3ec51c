"""The order of statements."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tilework.base.errors import InternalError
from tilework.codegen.linearize.order import linearise
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.symbolic import simplify
from tilework.ir.verify import verify

BUFFER = PARAM(attrs=ParamAttrs(0, (4096,), float32))


def place(number: int, loop: Node | None = None) -> Node:
    start = const_index(number)
    return INDEX(BUFFER, start if loop is None else simplify.add(loop, start))


def rotated(count: int, loop: Node | None = None) -> list[Node]:
    """Stores by which each place gets what its neighbour held."""
    one = const(1.0, float32)
    return [
        STORE(place(n, loop), math.ADD(LOAD(place((n + 1) % count, loop)), one))
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 64])
def test_all_reads_of_a_buffer_stand_before_the_writes_to_it(count: int) -> None:
    statements = linearise(SINK(*rotated(count))).src
    reads = [n for n, statement in enumerate(statements) if statement.op is LOAD]
    writes = [n for n, statement in enumerate(statements) if statement.op is STORE]
    assert (len(reads), len(writes)) == (count, count)
    assert max(reads) < min(writes)


def test_reads_inside_a_loop_stand_before_writes_beside_it() -> None:
    loop = RANGE(const_index(8), attrs=RangeAttrs(0))
    inside = rotated(4, loop)
    beside = STORE(place(100), const(2.0, float32))
    before = STORE(place(200), LOAD(place(300)))
    linear = linearise(SINK(*inside, beside, before))
    verify(linear, Stage.LINEAR)
    statements = list(linear.src)
    last_read = max(n for n, statement in enumerate(statements) if statement.op is LOAD)
    assert statements.index(beside) > statements.index(loop)
    # All that is in the loop reads first, and so does what reads beside it.
    assert last_read < statements.index(before)


def test_the_order_of_many_reads_and_writes_takes_linear_time() -> None:
    """Sixteen million pairs would take minutes."""
    statements = linearise(SINK(*rotated(4_000))).src
    assert sum(statement.op is STORE for statement in statements) == 4_000


@pytest.mark.parametrize("stored_by", ["rows", "columns"])
def test_a_register_tile_uses_each_element_of_its_longer_side_at_once(stored_by: str) -> None:
    """Whatever the order of the stores: six rows, of which one is held, and two columns."""
    k = RANGE(const_index(32), attrs=RangeAttrs(0))
    rows = [LOAD(place(100 * row, k)) for row in range(6)]
    columns = [LOAD(place(1000 + 100 * column, k)) for column in range(2)]
    pairs = [(row, column) for row in range(6) for column in range(2)]
    if stored_by == "columns":
        pairs.sort(key=lambda pair: pair[1])
    add = ReduceAttrs(Fold.ADD)
    stores = []
    for row, column in pairs:
        total = REDUCE(math.MUL(rows[row], columns[column]), k, attrs=add)
        stores.append(STORE(place(2000 + 10 * row + column), total))
    statements = linearise(SINK(*stores)).src
    used = [rows.index(node.src[0]) for node in statements if node.op is math.MULACC]
    changes = sum(a != b for a, b in pairwise(used))
    assert (len(used), changes) == (12, 5)


def summed(value: Node, *loops: Node) -> Node:
    return REDUCE(value, *loops, attrs=ReduceAttrs(Fold.ADD))


def test_a_reduction_whose_loop_would_stand_outside_of_those_around_it_is_refused() -> None:
    outer, inner = (RANGE(const_index(4), attrs=RangeAttrs(number)) for number in (3, 2))
    both = LOAD(INDEX(BUFFER, simplify.add(simplify.scale(outer, 4), inner)))
    total = summed(math.ADD(summed(both, inner), LOAD(place(64, outer))), outer)
    with pytest.raises(InternalError, match="outside of those around it"):
        linearise(SINK(STORE(place(100), total)))


def test_a_loop_that_would_stand_inside_of_two_others_is_refused() -> None:
    first, second, inner = (RANGE(const_index(4), attrs=RangeAttrs(n)) for n in range(3))
    totals = [
        summed(summed(LOAD(INDEX(BUFFER, simplify.add(simplify.scale(r, 4), inner))), inner), r)
        for r in (first, second)
    ]
    with pytest.raises(InternalError, match="a loop that it was not made for"):
        linearise(SINK(STORE(place(100), math.ADD(*totals))))
