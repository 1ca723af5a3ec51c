"""Results of a tile that go through memory: the same numbers, from much shorter code."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tilework.base.errors import PlanError
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.plan import Plan
from tilework.codegen.plan.results import MOST_ACCESSES, accesses, can_roll
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.interpret import run_kernel, run_linear
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import x86_level_spec
from tilework.testing.kernels import Case, run_on_machine

V3, V4 = x86_level_spec("x86-64-v3", cores=2), x86_level_spec("x86-64-v4", cores=2)
STEPS = 9  # elements from one result to the next, as between the weights of windows of 3 x 3


def step(rows: int, columns: int, depth: int) -> Node:
    """w -= 0.5 * (x.T @ y) and m = 0.75 * m + x.T @ y, whose elements lie `STEPS` apart."""
    extents = (rows, columns, depth)
    i, j, p = (RANGE(const_index(n), attrs=RangeAttrs(at)) for at, n in enumerate(extents))
    count = rows * columns * STEPS
    sizes = (count, count, depth * rows, depth * columns)
    w, m, x, y = (PARAM(attrs=ParamAttrs(at, (n,), float32)) for at, n in enumerate(sizes))
    left = LOAD(INDEX(x, simplify.add(simplify.scale(p, rows), i)))
    right = LOAD(INDEX(y, simplify.add(simplify.scale(p, columns), j)))
    total = REDUCE(math.MUL(left, right), p, attrs=ReduceAttrs(Fold.ADD))
    place = simplify.scale(simplify.add(simplify.scale(i, columns), j), STEPS)
    moved = math.ADD(math.MUL(LOAD(INDEX(m, place)), const(0.75, float32)), total)
    taken = math.SUB(LOAD(INDEX(w, place)), math.MUL(total, const(0.5, float32)))
    return SINK(STORE(INDEX(w, place), taken), STORE(INDEX(m, place), moved))


def planned(sink: Node) -> tuple[Kernel, Plan]:
    kernel = analyse(normalise_ranges(sink))
    return kernel, choose_plan(kernel, V4)


def case_of(sink: Node, rows: int, columns: int, depth: int) -> Case:
    numbers = np.random.default_rng(0)
    count = rows * columns * STEPS
    sizes = (count, count, depth * rows, depth * columns)
    return Case(sink, [numbers.integers(-8, 8, n).astype(np.float32).tobytes() for n in sizes])


def after(run: Callable[..., object], node: Node, case: Case) -> list[bytes]:
    """The buffers of a case after a run of the interpreter."""
    buffers = [bytearray(raw) for raw in case.buffers]
    run(node, buffers)
    return [bytes(buffer) for buffer in buffers]


def test_a_kernel_with_many_scattered_accesses_is_rolled() -> None:
    kernel, plan = planned(step(32, 64, 128))
    assert accesses(kernel, replace(plan, rolled=False)) > MOST_ACCESSES
    assert plan.rolled


def test_a_plain_product_is_not() -> None:
    i, j, p = (RANGE(const_index(64), attrs=RangeAttrs(at)) for at in range(3))
    z, x, y = (PARAM(attrs=ParamAttrs(at, (4096,), float32)) for at in range(3))

    def at(first: Node, second: Node) -> Node:
        return simplify.add(simplify.scale(first, 64), second)

    product = math.MUL(LOAD(INDEX(x, at(i, p))), LOAD(INDEX(y, at(p, j))))
    total = REDUCE(product, p, attrs=ReduceAttrs(Fold.ADD))
    kernel, plan = planned(SINK(STORE(INDEX(z, at(i, j)), total)))
    assert accesses(kernel, plan) < MOST_ACCESSES
    assert not plan.rolled


@pytest.mark.parametrize("shape", [(32, 64, 6), (8, 48, 5), (6, 16, 40)])
def test_rolled_code_gives_the_same_numbers(shape: tuple[int, int, int]) -> None:
    sink = step(*shape)
    kernel, plan = planned(sink)
    case = case_of(sink, *shape)
    wanted = after(run_kernel, sink, case)
    for is_rolled in (True, False):
        changed = replace(plan, rolled=is_rolled)
        check(changed, kernel, V4)
        lowered = lower_kernel(sink, V4, changed)
        assert after(run_linear, lowered.linear, case) == wanted, is_rolled


def test_the_machine_gives_what_the_interpreter_gives() -> None:
    shape = (32, 64, 7)
    case = case_of(step(*shape), *shape)
    found = run_on_machine(case, "llvm").buffers
    assert [bytes(buffer) for buffer in found] == after(run_kernel, case.sink, case)


def test_code_is_as_long_as_a_vector_and_not_as_a_tile() -> None:
    sink = step(32, 64, 128)
    _, plan = planned(sink)
    long, short = (
        len(LlvmRenderer().render(lower_kernel(sink, V4, replace(plan, rolled=is_rolled))))
        for is_rolled in (False, True)
    )
    assert short < 100_000
    assert short * 4 < long


@pytest.mark.parametrize("target", [V3, V4], ids=["avx2", "avx512"])
def test_no_default_plan_renders_more_than_its_bound(target: object) -> None:
    assert isinstance(target, type(V3))
    for shape in ((32, 64, 128), (64, 32, 512), (14, 96, 200)):
        text = LlvmRenderer().render(lower_kernel(step(*shape), target))
        assert len(text) < 100_000, shape


def test_tiles_that_are_not_whole_are_refused() -> None:
    sink = step(32, 64, 16)
    kernel, plan = planned(sink)
    tile = plan.splits[0]
    part = replace(tile.tile[0], size=5)
    uneven = replace(plan, splits=(replace(tile, tile=(part, *tile.tile[1:])), *plan.splits[1:]))
    assert not can_roll(kernel, uneven)
    with pytest.raises(PlanError, match="whole tiles"):
        check(replace(uneven, rolled=True), kernel, V4)
