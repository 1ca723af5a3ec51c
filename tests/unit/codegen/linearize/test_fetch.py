"""What a kernel is about to write is fetched: early, once for each line, and without effect."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.codegen.decompose.test_scale_power import kernel, run

from tilework.codegen.linearize.fetch import fetch_results
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node, OpDef, toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import END
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import (
    FETCH,
    INDEX,
    LOAD,
    PARAM,
    STORE,
    FetchAttrs,
    LoadAttrs,
    ParamAttrs,
)
from tilework.ir.ops.program import LINEAR
from tilework.ir.stage import Stage
from tilework.ir.symbolic import simplify
from tilework.ir.verify import verify
from tilework.testing.kernels import compile_to, target

HOST = target("host")
LARGE = 16 * HOST.l2_bytes // 4
LANES = 16


def statements_of(*roots: Node) -> list[Node]:
    """What computes values, in order, without parameters, constants and loops."""
    return [node for node in toposort(*roots) if node.src and node.op is not RANGE]


def two_loops(rows: int, columns: int, turns: int, step: int = LANES, lanes: int = LANES) -> Node:
    """Each row is read in a number of turns, and then copied vector by vector."""
    count = rows * columns * step // lanes
    x, y = (PARAM(attrs=ParamAttrs(slot, (count,), float32)) for slot in (1, 0))
    row = RANGE(const_index(rows), attrs=RangeAttrs(0, Unit.THREAD))
    reading = RANGE(const_index(turns), attrs=RangeAttrs(1, Unit.LOOP))
    writing = RANGE(const_index(columns // lanes), attrs=RangeAttrs(2, Unit.LOOP))
    start = simplify.scale(row, columns * step // lanes)
    read = LOAD(INDEX(x, simplify.add(start, simplify.scale(reading, columns // turns))))
    at = simplify.add(start, simplify.scale(writing, step))
    store = STORE(INDEX(y, at), LOAD(INDEX(x, at), attrs=LoadAttrs(lanes)))
    first = [n for n in statements_of(read) if n is not start]
    second = [n for n in statements_of(store) if n is not start]
    loops = [reading, *first, END(reading), writing, *second, END(writing)]
    return LINEAR(row, start, *loops, END(row))


def rows_of(columns: int) -> int:
    """Rows that the second cache does not hold."""
    return 2 * HOST.l2_bytes // (4 * columns)


def loops_around(linear: Node, op: OpDef) -> list[int]:
    """The numbers of the innermost loops in which an op stands."""
    found, opened = [], []
    for node in linear.src:
        if node.op is RANGE:
            opened.append(int(node.attrs.number))
        elif node.op is END:
            opened.pop()
        elif node.op is op:
            found.append(opened[-1])
    return found


def test_a_loop_over_a_large_array_asks_for_lines_ahead() -> None:
    machine = target("x86-64-v3")  # a vector is half a line: it does not go past the caches
    large = kernel(math.NEG, float32, 16 * machine.l2_bytes // 4)
    linear = lower_kernel(large, machine).linear
    assert [node.attrs.ahead > 0 for node in linear.src if node.op is FETCH] == [True]


def test_a_small_array_is_not_fetched() -> None:
    linear = lower_kernel(kernel(math.NEG, float32, 1 << 16), HOST).linear
    assert loops_around(linear, FETCH) == []


@pytest.mark.parametrize("kind", ["llvm", "clang"])
def test_fetches_change_no_bit(kind: str) -> None:
    x = np.random.default_rng(1).standard_normal(LARGE).astype(np.float32)
    assert run(math.NEG, float32, x, "host", kind) == (-x).tobytes()


@pytest.mark.parametrize("kind", ["llvm", "clang"])
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
def test_other_machines_have_the_instruction_too(level: str, kind: str) -> None:
    machine = target(level)
    lowered = lower_kernel(kernel(math.NEG, float32, 16 * machine.l2_bytes // 4), machine)
    assert loops_around(lowered.linear, FETCH)
    assert compile_to(kind, level, lowered)


@pytest.mark.parametrize("turns", [64, 16])
def test_the_loop_before_asks_for_what_the_next_one_writes(turns: int) -> None:
    before = two_loops(rows_of(1024), 1024, turns)
    after = fetch_results(before, HOST)
    verify(before, Stage.LINEAR)
    verify(after, Stage.LINEAR)
    assert loops_around(after, FETCH) == [1] * (64 // turns)


def test_a_line_that_takes_two_iterations_is_asked_for_once() -> None:
    after = fetch_results(two_loops(2 * rows_of(1024), 1024, 16, lanes=8, step=8), HOST)
    assert loops_around(after, FETCH) == [1] * 4


def test_what_stands_in_an_earlier_loop_too_is_not_moved_out_of_it() -> None:
    row, start, *rest = two_loops(rows_of(1024), 1024, 64).src
    end = next(place for place, node in enumerate(rest) if node.op is END)
    earlier = RANGE(const_index(64), attrs=RangeAttrs(3, Unit.LOOP))
    x = next(node for node in rest if node.op is LOAD).src[0].src[0]
    used = statements_of(LOAD(INDEX(x, simplify.add(start, earlier))))
    unused = statements_of(LOAD(INDEX(x, rest[0])))
    first = [earlier, *used, END(earlier), rest[0], *unused]
    before = LINEAR(row, *first, rest[end], start, *rest[end + 1 :])
    verify(before, Stage.LINEAR)
    after = fetch_results(before, HOST)
    verify(after, Stage.LINEAR)
    assert after.src.count(start) == 2


def test_an_iteration_asks_for_few_lines() -> None:
    after = fetch_results(two_loops(rows_of(1024), 1024, 2), HOST)
    assert loops_around(after, FETCH) == []


def test_lines_of_which_parts_are_written_are_not_fetched() -> None:
    after = fetch_results(two_loops(rows_of(1024), 1024, 64, step=2 * LANES), HOST)
    assert loops_around(after, FETCH) == []


def test_every_line_of_a_row_is_asked_for() -> None:
    columns = 256
    after = fetch_results(two_loops(rows_of(columns), columns, 8), HOST)
    fetches = [node for node in after.src if node.op is FETCH]
    lines: set[int] = set()
    for turn in range(8):
        for fetch in fetches:
            offset = fetch.src[0].src[1]
            values = {n: const_index(turn if n.attrs.number else 0) for n in ranges_of(offset)}
            (place,) = simplify.substitute([offset], values)
            lines.add(simplify.value_of(place) or 0)
    assert lines == set(range(0, columns, LANES))


def ranges_of(node: Node) -> list[Node]:
    return [part for part in toposort(node) if part.op is RANGE]


def test_the_interpreter_passes_over_it() -> None:
    rows, columns = 4, 64
    linear = two_loops(rows, columns, 4)
    place = next(at for at, node in enumerate(linear.src) if node.op is STORE)
    hinted = LINEAR(
        *linear.src[:place],
        FETCH(linear.src[place].src[0], attrs=FetchAttrs()),
        *linear.src[place:],
    )
    verify(hinted, Stage.LINEAR)
    x = np.arange(rows * columns, dtype=np.float32)
    memories = [bytearray(x.nbytes), bytearray(x.tobytes())]
    run_linear(hinted, memories, end=rows)
    assert bytes(memories[0]) == x.tobytes()
