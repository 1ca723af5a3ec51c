"""Reductions inside of reductions: every loop of a kernel stands at one place."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tilework.base.errors import PlanError
from tilework.codegen.analysis import FreeRanges, analyse
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.choose import plain_plan
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.codegen.plan.plan import Part, Plan, Split
from tilework.dtypes import int32
from tilework.ir.build import const_index
from tilework.ir.interpret import run_blocks, run_kernel, run_linear
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec
from tilework.target.known.cuda import cuda_spec
from tilework.target.spec import TargetSpec

CPU, GPU = x86_level_spec("x86-64-v4", cores=2), cuda_spec(90)
ROW, COLUMN, K, J, LAST = (
    RANGE(const_index(size), attrs=RangeAttrs(number))
    for number, size in enumerate((2, 3, 5, 4, 7))
)
INPUTS = (4, 5)


def read(slot: int, *steps: tuple[Node, int]) -> Node:
    offset = const_index(0)
    for range_, step in steps:
        offset = simplify.add(offset, simplify.scale(range_, step))
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (200,), int32)), offset))


def fold(value: Node, *ranges: Node, by: Fold = Fold.ADD) -> Node:
    return REDUCE(value, *ranges, attrs=ReduceAttrs(by))


def stored(*values: Node) -> Node:
    """A kernel that stores each value, over rows and columns, in a buffer of its own."""
    place = simplify.add(simplify.scale(ROW, 3), COLUMN)
    own = read(4, (ROW, 3), (COLUMN, 1))
    return SINK(
        *(
            STORE(INDEX(PARAM(attrs=ParamAttrs(slot, (6,), int32)), place), math.ADD(value, own))
            for slot, value in enumerate(values)
        )
    )


def results(run: Callable[[list[memoryview]], object]) -> list[list[int]]:
    """What a run leaves in the buffers that kernels of this file store in."""
    draws = np.random.default_rng(3)
    arrays = [
        draws.integers(-9, 9, 200).astype(np.int32) if slot in INPUTS else np.zeros(6, np.int32)
        for slot in range(6)
    ]
    buffers = [memoryview(bytearray(array.tobytes())) for array in arrays]
    run(buffers)
    return [np.frombuffer(buffer, np.int32).tolist() for buffer in buffers[:4]]


def lowered_results(sink: Node, target: TargetSpec, plan: Plan | None = None) -> list[list[int]]:
    lowered = lower_kernel(sink, target, plan)
    if target is GPU:
        blocks = int(lowered.tasks.attrs.bits)
        return results(lambda buffers: run_blocks(lowered.linear, buffers, blocks=blocks))
    return results(lambda buffers: run_linear(lowered.linear, buffers))


def side_by_side() -> Node:
    """Sums over sums of one shape: the inner ones could share a loop, were it not for the outer."""
    sums = [fold(read(slot, (ROW, 20), (K, 4), (J, 1)), J) for slot in INPUTS]
    return stored(*(fold(math.MUL(inner, read(4, (ROW, 5), (K, 1))), K) for inner in sums))


def in_two_others() -> Node:
    """One sum inside of two others, of which one also reads a third."""
    inner = fold(read(4, (ROW, 20), (K, 4), (J, 1)), J)
    total = fold(inner, K)
    return stored(total, fold(math.MUL(inner, math.ADD(total, read(5, (K, 1)))), K))


def bound_again() -> Node:
    """An inner reduction that binds the range of the one around it."""
    inner = fold(read(4, (ROW, 20), (K, 4)), K, by=Fold.MAX)
    return stored(fold(math.MUL(read(5, (K, 1), (ROW, 3)), inner), K))


@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("make", [side_by_side, in_two_others, bound_again])
def test_reductions_inside_of_reductions_compute_what_is_written(
    make: Callable[[], Node], target: TargetSpec
) -> None:
    sink = make()
    expected = results(lambda buffers: run_kernel(sink, buffers))
    assert lowered_results(sink, target) == expected


def test_reductions_in_the_same_loops_share_theirs() -> None:
    sums = [fold(read(slot, (ROW, 20), (K, 4)), K) for slot in INPUTS]
    kernel = analyse(ready_for_plans(stored(*sums), CPU))
    tiled = toposort(apply_plan(kernel, plain_plan(kernel)))
    assert len({node.src[1:] for node in tiled if node.op is REDUCE}) == 1


def test_what_a_tiled_loop_does_not_change_is_reduced_once_for_tiles_and_rest() -> None:
    top = fold(read(4, (ROW, 20), (J, 1)), J, by=Fold.MAX)
    sink = stored(fold(math.MUL(read(5, (ROW, 20), (K, 3)), top), K))
    kernel = analyse(ready_for_plans(sink, CPU))
    long = next(r for r in kernel.free.ranges if simplify.value_of(r.src[0]) == 5)
    split = Split(int(long.attrs.number), (Part(Unit.LOOP),), (Part(Unit.UNROLL, 2),))
    tiled = toposort(apply_plan(kernel, replace(plain_plan(kernel), splits=(split,))))
    folds = [node.attrs.fold for node in tiled if node.op is REDUCE]
    assert (folds.count(Fold.ADD), folds.count(Fold.MAX)) == (2, 1)


class _Drawn:
    """A kernel at random: reductions over three ranges, in each other and side by side."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.made: list[Node] = []
        outputs = [ROW, COLUMN]
        count = self.draw.choice((1, 2, 2, 3))
        self.sink = stored(*(self._value(outputs, 5, [K, J, LAST]) for _ in range(count)))

    def _read(self, ranges: list[Node]) -> Node:
        return read(
            self.draw.choice(INPUTS), *((r, self.draw.choice((1, 1, 2, 3))) for r in ranges)
        )

    def _value(self, ranges: list[Node], depth: int, left: list[Node]) -> Node:
        kind = self.draw.random()
        fitting = [made for made in self.made if _free(made) <= set(ranges)]
        if kind < 0.25 and fitting:
            return self.draw.choice(fitting)
        if kind < 0.8 and depth and left:
            return self._reduction(ranges, depth - 1, left)
        if kind < 0.95 and depth:
            x, y = (self._value(ranges, depth - 1, left) for _ in range(2))
            return self.draw.choice((math.ADD, math.MUL))(x, y)
        return self._read(self.draw.sample(ranges, min(len(ranges), 2)))

    def _reduction(self, ranges: list[Node], depth: int, left: list[Node]) -> Node:
        count = self.draw.choice((1, 1, 1, 2))
        bound = left[:count]
        around = [range_ for range_ in ranges if self.draw.random() < 0.7]
        inside = self._value([*around, *bound], depth, left[count:])
        total = fold(
            math.ADD(inside, self._read(bound)),
            *bound,
            by=self.draw.choice((Fold.ADD, Fold.MAX)),
        )
        self.made.append(total)
        return math.ADD(total, self._read(around)) if self.draw.random() < 0.7 else total

    def plan(self) -> Plan:
        """Plain loops, some of them unrolled."""
        kernel = analyse(ready_for_plans(self.sink, CPU))
        splits = [
            Split(
                int(range_.attrs.number),
                (Part(Unit.LOOP),),
                (Part(Unit.UNROLL, self.draw.choice((2, 3))),),
            )
            for range_ in kernel.free.ranges
            if self.draw.random() < 0.4
        ]
        return replace(plain_plan(kernel), splits=tuple(splits))


def _free(node: Node) -> set[Node]:
    return set(FreeRanges(toposort(node)).of(node))


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_nests_at_random_compute_what_is_written(first: int) -> None:
    checked = 0
    for seed in range(first, first + 20):
        drawn = _Drawn(seed)
        expected = results(partial(run_kernel, drawn.sink))
        assert lowered_results(drawn.sink, CPU) == expected, seed
        assert lowered_results(drawn.sink, GPU) == expected, seed
        try:
            tiled = lowered_results(drawn.sink, CPU, drawn.plan())
        except PlanError:
            continue  # the plan asks for more copies than there are registers
        assert tiled == expected, seed
        checked += 1
    assert checked >= 10
