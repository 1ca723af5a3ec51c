"""Random TENSOR graphs some of whose extents are a variable, and what they mean for its values."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.property.schedule.schedule_graphs import (
    Graphs,
    param,
    random_value,
    run_schedule,
    spread,
    to_bytes,
)

from tilework.dtypes import index, int16, int32
from tilework.ir.build import cast, const
from tilework.ir.interpret import evaluate, evaluate_all
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.ir.symbolic import dims
from tilework.schedule.check import check_schedule
from tilework.schedule.pipeline import build_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node
    from tilework.ir.types import Dim, Shape
    from tilework.schedule.schedule import Schedule

#: The extent of which the values are not known before the schedule is made.
N = VARIABLE(attrs=VariableAttrs("n", 1, 6))


def check_sizes(made: Schedule, outputs: Sequence[Node], params: Sequence[Node], n: int) -> None:
    """Run a schedule where the variable is `n`, and compare with the meaning of the graph."""
    check_schedule(made)
    rng = random.Random(n)
    bindings: dict[Node, Any] = {N: n}
    for node in params:
        sizes = [
            d if isinstance(d, int) else int(evaluate(d, {N: n}).item()) for d in node.type.shape
        ]
        bindings[node] = random_value(rng, tuple(sizes), node.type.dtype)
    expected = evaluate_all(list(outputs), bindings)
    slots, faults = run_schedule(made, [to_bytes(bindings[p]) for p in params], {"n": n})
    assert faults == []
    for slot, value in zip(made.outputs, expected, strict=True):
        raw = to_bytes(value)
        assert slots[slot][: len(raw)] == raw


def check_symbolic(outputs: Sequence[Node], params: Sequence[Node], n: int) -> None:
    """Schedule `outputs`, and compare with their meaning where the variable is `n`."""
    check_sizes(build_schedule(memory.SINK(*outputs)), outputs, params, n)


@dataclass
class SymbolicGraphs(Graphs):
    """Makes random graphs of values whose extents are `N`, numbers, and what comes of both."""

    most: int = 400

    def leaf(self) -> Node:
        node = param(len(self.bindings), self.extents())
        self.bindings[node] = random_value(self.rng, (1,), int32)
        self.storages.append(node)
        return node

    def extents(self) -> Shape:
        sizes: list[Dim] = [N, self.rng.choice((N, 1, 2, 3))]
        self.rng.shuffle(sizes)
        return tuple(sizes[: self.rng.choice((1, 2, 2))])

    def moved(self, x: Node, *, injective: bool) -> Node:
        rng = self.rng
        shape = x.type.shape
        axes = range(len(shape))
        choice = rng.choice(("flatten", "permute", "shrink", "flip", "pad", "expand"))
        if choice == "flatten":
            return tensor.RESHAPE(x, attrs=tensor.ShapeAttrs((dims.product(shape),)))
        if choice == "permute":
            return tensor.PERMUTE(x, attrs=tensor.AxesAttrs(tuple(rng.sample(axes, len(shape)))))
        if choice == "flip":
            flipped = tuple(axis for axis in axes if rng.random() < 0.5)
            return tensor.FLIP(x, attrs=tensor.AxesAttrs(flipped))
        if choice == "shrink":
            # Each extent is at least 1.
            bounds = [(0, size, 1) if rng.random() < 0.5 else (0, 1, 1) for size in shape]
            return tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(tuple(bounds)))
        if injective:
            return x
        if choice == "expand":
            wide = tuple(N if size == 1 and rng.random() < 0.7 else size for size in shape)
            return tensor.EXPAND(x, attrs=tensor.ShapeAttrs(wide))
        pads = tuple((rng.choice((0, 1, N)), rng.choice((0, 0, 2))) for _ in shape)
        return tensor.PAD(x, attrs=tensor.PadAttrs(pads))

    def window(self) -> Node | None:
        return None  # windows have sizes that are numbers

    def scatter(self) -> Node | None:
        return self.gather()

    def gather(self) -> Node | None:
        x, source = self.any(), self.any()
        if not x.type.shape:
            return None
        axis = self.rng.randrange(len(x.type.shape))
        size = cast(spread(x.type.shape[axis], source.type.shape), int32)
        where = cast(math.MOD(source, size), self.rng.choice((index, int32, int16)))
        return tensor.GATHER(x, where, attrs=tensor.GatherAttrs(axis))

    def other(self) -> Node | None:
        x = self.any()
        choice = self.rng.randrange(4)
        if choice == 0:
            return tensor.CONTIGUOUS(x)
        if choice == 1 and x.type.shape and isinstance(x.type.shape[-1], int):
            return cast(math.BITCAST(x, attrs=math.CastAttrs(int16)), int32)
        if choice == 2:
            return math.ADD(x, cast(spread(N, x.type.shape), int32))
        return math.MAXIMUM(x, const(0, int32, x.type.shape))
