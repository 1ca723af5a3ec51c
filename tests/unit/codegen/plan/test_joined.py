"""Small kernels that were joined into one run each in loops of its own."""

import math
from collections.abc import Sequence

import pytest

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan.choose import choose_plan
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math as arithmetic
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v4", cores=2)


def joined(shapes: Sequence[Sequence[int]], is_turned: bool) -> Kernel:
    """out_n[...] = -x_n[...] for each shape, read along the first axis if `is_turned`."""
    stores: list[Node] = []
    first = 0
    for number, shape in enumerate(shapes):
        ranges = [RANGE(const_index(n), attrs=RangeAttrs(first + i)) for i, n in enumerate(shape)]
        first += len(shape)
        offsets = []
        for order in (range(len(shape)), range(len(shape))[::-1] if is_turned else None):
            offset, step = const_index(0), 1
            for axis in reversed(range(len(shape)) if order is None else list(order)):
                offset = simplify.add(offset, simplify.scale(ranges[axis], step))
                step *= shape[axis]
            offsets.append(offset)
        flat = (math.prod(shape),)
        x, out = [PARAM(attrs=ParamAttrs(2 * number + i, flat, float32)) for i in (1, 0)]
        value = arithmetic.NEG(LOAD(INDEX(x, offsets[1])))
        stores.append(STORE(INDEX(out, offsets[0]), value))
    return analyse(SINK(*stores))


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_range_that_some_store_does_not_have_is_no_task(is_turned: bool) -> None:
    kernel = joined([(70, 90), (64, 80), (50,)], is_turned)
    assert choose_plan(kernel, TARGET).tasks == 0


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_kernel_of_one_store_has_tasks(is_turned: bool) -> None:
    assert choose_plan(joined([(700, 900)], is_turned), TARGET).tasks > 0
