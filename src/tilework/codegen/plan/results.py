"""Results of a tile that go through memory, so that what follows runs over them in loops.

A tile of a product has some hundred results in registers.  Where what follows reads and writes
memory that does not lie along the lanes (the weights of a convolution, in an optimiser's step),
each of them takes scalar instructions of its own, and the code of a kernel is as long as its tile.
Instead the tile is written to TILE memory once, and a loop takes one vector of it at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.codegen.analysis import stride, substitute_ranges
from tilework.codegen.plan.extents import number
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort, toposort_above
from tilework.ir.ops.control import STAGE, StageAttrs
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import INDEX, LOAD, STORE
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.apply import Application
    from tilework.codegen.plan.plan import Plan

#: So many accesses after the product, for one tile, are worth a loop over its vectors.
MOST_ACCESSES: Final = 512


def rolled(application: Application, sink: Node) -> Node:
    """The sink with the results of its one reduction staged, and loops over what follows."""
    (reduce,) = [node for node in toposort(sink) if node.op is REDUCE]
    parts = [part for found in application.tile_parts.values() for part in found]
    fresh = {part: _loop_over(application, part) for part in parts}
    result = substitute_ranges(reduce, application.values, {})
    attrs = StageAttrs(Memory.TILE, len(application.plan.staged))
    stage = STAGE(result, *parts, attrs=attrs)
    position = const_index(0)
    for part in parts:
        position = simplify.add(simplify.mul(position, part.src[0]), fresh[part])
    values = {
        range_: substitute_ranges(value, fresh, {}) for range_, value in application.values.items()
    }
    # What the reduction was stands for its result until the ranges around it are replaced.
    done = {reduce: LOAD(INDEX(stage, position))}
    return substitute_ranges(sink, values, {}, done)


def _loop_over(application: Application, part: Node) -> Node:
    unit = Unit.LOOP if part.attrs.unit is Unit.UNROLL else part.attrs.unit
    return application.numbers.range(part.src[0], unit)


def accesses(kernel: Kernel, plan: Plan) -> int:
    """How many loads and stores follow the reduction for one tile; 0 where a loop cannot help."""
    if len(kernel.reduces) != 1:
        return 0
    total = 0
    for node in toposort_above(kernel.sink.src, set(kernel.reduces)):
        if node.op is not LOAD and node.op is not STORE:
            continue
        copies = 1
        for range_ in kernel.free.of(node):
            for part in plan.split_of(number(range_)).tile:
                along = stride(node.src[0].src[1], range_)
                copies *= 1 if part.unit is Unit.LANE and along in (0, 1) else part.size
        total += copies
    return total


def can_roll(kernel: Kernel, plan: Plan) -> bool:
    """Is there one reduction whose tile is whole everywhere?"""
    if len(kernel.reduces) != 1 or plan.ahead < 0:
        return False
    outputs = {number(range_) for range_ in kernel.outputs}
    if not any(split.tile_size > 1 and split.number in outputs for split in plan.splits):
        return False
    for range_ in kernel.outputs:
        rest = simplify.mod(range_.src[0], const_index(plan.split_of(number(range_)).tile_size))
        if simplify.value_of(rest) != 0 and not plan.overlap:
            return False
    return True


__all__ = ["MOST_ACCESSES", "accesses", "can_roll", "rolled"]
