"""In which order copies of windows are filled."""

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import STAGE
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory

CHANNELS, OUTPUTS, COLUMNS, TAPS = 64, 24, 32, 3


def loop(number: int, size: int) -> Node:
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def convolution() -> Kernel:
    """A convolution along one axis whose channels are stored last."""
    x, n, c, tap = loop(0, OUTPUTS), loop(1, COLUMNS), loop(2, CHANNELS), loop(3, TAPS)
    place = simplify.add(x, simplify.add(tap, const_index(-1)))
    inside = simplify.both(
        simplify.less(const_index(-1), place), simplify.less(place, const_index(OUTPUTS))
    )
    image = PARAM(attrs=ParamAttrs(1, (OUTPUTS * CHANNELS,), float32))
    weights = PARAM(attrs=ParamAttrs(2, (CHANNELS * TAPS * COLUMNS,), float32))
    first = LOAD(INDEX(image, simplify.add(simplify.scale(place, CHANNELS), c)), inside)
    row = simplify.add(simplify.scale(c, TAPS), tap)
    second = LOAD(INDEX(weights, simplify.add(simplify.scale(row, COLUMNS), n)))
    total = REDUCE(math.MUL(first, second), c, tap, attrs=ReduceAttrs(Fold.ADD))
    target = PARAM(attrs=ParamAttrs(0, (OUTPUTS * COLUMNS,), float32))
    return analyse(SINK(STORE(INDEX(target, simplify.add(simplify.scale(x, COLUMNS), n)), total)))


def test_channels_that_are_stored_last_are_copied_place_by_place() -> None:
    plan = Plan(
        (
            Split(0, (Part(Unit.LOOP),), (Part(Unit.UNROLL, 8),)),
            Split(1, (Part(Unit.LOOP),), (Part(Unit.LANE, 16),)),
        ),
        ((1, 0), (0, 0)),
        0,
        (Staged(0, Memory.TILE, 0, 16, windows=True),),
    )
    (stage,) = [n for n in toposort(apply_plan(convolution(), plan)) if n.op is STAGE]
    blocks, places, lanes = stage.src[1:]
    assert [simplify.value_of(r.src[0]) for r in (blocks, places, lanes)] == [4, 26, 16]
    # In memory a block holds all places; it is filled with the blocks of a place in the inner loop.
    assert places.attrs.number < blocks.attrs.number < lanes.attrs.number
