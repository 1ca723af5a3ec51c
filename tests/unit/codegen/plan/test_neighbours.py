"""Neighbours of a plan are legal, and mean what the plan means."""

import numpy as np
import pytest

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.neighbours import neighbours
from tilework.codegen.plan.plan import Plan
from tilework.dtypes import int32
from tilework.engine.compile import compile_with_plan
from tilework.engine.device import Device
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.runtime.driver import Launch

M, N, K = 30, 50, 70


def product() -> Node:
    """A product of int32 matrices, which is exact in any order."""
    i, j, p = (RANGE(const_index(n), attrs=RangeAttrs(at)) for at, n in enumerate((M, N, K)))
    x, y, out = (
        PARAM(attrs=ParamAttrs(slot, (count,), int32))
        for slot, count in ((1, M * K), (2, K * N), (0, M * N))
    )
    left = LOAD(INDEX(x, simplify.add(simplify.scale(i, K), p)))
    right = LOAD(INDEX(y, simplify.add(simplify.scale(p, N), j)))
    total = REDUCE(math.MUL(left, right), p, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(INDEX(out, simplify.add(simplify.scale(i, N), j)), total))


def planned() -> tuple[Kernel, Plan]:
    kernel = analyse(normalise_ranges(product()))
    return kernel, choose_plan(kernel, Device["CPU"].spec)


def test_neighbours_differ_from_the_plan_and_from_each_other() -> None:
    kernel, plan = planned()
    found = neighbours(plan, kernel, Device["CPU"].spec)
    assert plan not in found
    assert len(found) == len(set(found)) > 10


def test_neighbours_are_legal() -> None:
    kernel, plan = planned()
    for neighbour in neighbours(plan, kernel, Device["CPU"].spec):
        check(neighbour, kernel, Device["CPU"].spec)


@pytest.mark.parametrize("place", range(0, 40, 2))
def test_neighbours_compute_the_same(place: int) -> None:
    device = Device["CPU"]
    kernel, plan = planned()
    found = neighbours(plan, kernel, device.spec)
    code = compile_with_plan(device, product(), found[place % len(found)])
    x = np.arange(M * K, dtype=np.int32).reshape(M, K) % 101 - 50
    y = np.arange(K * N, dtype=np.int32).reshape(K, N) % 97 - 48
    buffers = [device.allocate(4 * count) for count in (M * N, M * K, K * N)]
    for buffer, data in zip(buffers[1:], (x, y), strict=True):
        device.copy_in(buffer, memoryview(data.tobytes()))
    program = device.driver.load([code.as_code()])
    grid = (code.tasks.evaluate({}),)
    device.driver.submit([Launch(program.kernels[0], tuple(buffers), (), grid=grid)])
    result = bytearray(4 * M * N)
    device.copy_out(buffers[0], memoryview(result))
    program.close()
    np.testing.assert_array_equal(np.frombuffer(result, np.int32).reshape(M, N), x @ y)
