"""Barriers: where they are put, and what their checker finds."""

from __future__ import annotations

import pytest

from tilework.base.errors import InternalError
from tilework.codegen.gpu.barriers import find_missing, insert_barriers
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.control import ALLOCATE, BARRIER, END, AllocateAttrs
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE, ParamAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.types import Memory

THREADS = 8


def exchange(steps: int) -> Node:
    """Each thread hands its number to the thread opposite, `steps` times over."""
    local = RANGE(const_index(THREADS), attrs=RangeAttrs(0, Unit.LOCAL))
    loop = RANGE(const_index(steps), attrs=RangeAttrs(1))
    x, y = (PARAM(attrs=ParamAttrs(slot, (THREADS,), float32)) for slot in (1, 0))
    shared = ALLOCATE(attrs=AllocateAttrs(float32, THREADS, Memory.TILE, 0))
    here, source = INDEX(shared, local), INDEX(x, local)
    loaded = LOAD(source)
    opposite = math.SUB(const_index(THREADS - 1), local)
    there = INDEX(shared, opposite)
    filled = STORE(here, loaded)
    taken = LOAD(there, math.EQ(const_index(0), const_index(0)), filled)
    target = INDEX(y, local)
    last = STORE(target, taken)
    gate = taken.src[1]
    return LINEAR(
        local, source, here, opposite, there, target, gate, loop, loaded, filled, taken, last,
        END(loop), END(local),
    )  # fmt: skip


def test_memory_that_others_fill_is_read_after_a_barrier_and_filled_again_after_another() -> None:
    assert sum(node.op is BARRIER for node in insert_barriers(exchange(3)).src) == 2


def test_threads_exchange_what_they_have() -> None:
    x = memoryview(bytearray(4 * THREADS)).cast("f")
    x[:] = memoryview(bytes(4 * THREADS)).cast("f")
    for i in range(THREADS):
        x[i] = float(i)
    y = memoryview(bytearray(4 * THREADS))
    run_blocks(insert_barriers(exchange(2)), [y, x.cast("B")], blocks=1)
    assert list(y.cast("f")) == [float(i) for i in reversed(range(THREADS))]


def test_a_missing_barrier_is_found_before_and_while_it_runs() -> None:
    broken = exchange(2)
    assert find_missing(broken.src) is not None
    inserted = insert_barriers(broken)
    assert find_missing(inserted.src) is None
    first = next(node for node in inserted.src if node.op is BARRIER)
    without = LINEAR(*(node for node in inserted.src if node is not first))
    assert find_missing(without.src) is not None
    buffers = [memoryview(bytearray(4 * THREADS)) for _ in range(2)]
    with pytest.raises(InternalError, match="without a barrier"):
        run_blocks(without, buffers, blocks=1)


def test_a_kernel_without_shared_memory_is_left_as_it_is() -> None:
    local = RANGE(const_index(THREADS), attrs=RangeAttrs(0, Unit.LOCAL))
    target = INDEX(PARAM(attrs=ParamAttrs(0, (THREADS,), float32)), local)
    value = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (THREADS,), float32)), local))
    linear = LINEAR(local, target, value.src[0], value, STORE(target, value), END(local))
    assert insert_barriers(linear) is linear
