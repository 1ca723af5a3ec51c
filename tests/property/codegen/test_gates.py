"""Random gates over gates: what a gate leaves out is never touched, next to pages without access.

Each kernel is built beside a function of plain Python that says what it means; offsets run far
outside of their buffers wherever a gate is false.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.dtypes import bool_, index, int32, int64
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.testing.kernels import Case, can_run, run_on_machine

LEVELS = [level for level in ("x86-64", "x86-64-v3", "x86-64-v4", "host") if can_run(level)]
Place = tuple[int, ...]


@dataclass(frozen=True)
class Truth:
    """A condition or an integer as a node, and its value at a place of the loops."""

    node: Node
    at: Callable[[Place], int]


@dataclass
class Kernels:
    """Builds one kernel; slot 0 is what it writes, then data, indexes and masks."""

    choose: random.Random
    loops: list[Node] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)

    def loop(self) -> None:
        size = self.choose.choice((1, 2, 3, 7, 8, 13, 16, 21))
        self.loops.append(RANGE(const_index(size), attrs=RangeAttrs(len(self.loops))))
        self.sizes.append(size)

    def offset(self) -> Truth:
        """An affine function of the loops, as often as not one step apart along the last."""
        factors = [self.choose.choice((0, 1, 2, 3, -1, 5)) for _ in self.loops]
        factors[-1] = self.choose.choice((1, 1, 1, 2, -1, 0))
        shift = self.choose.randrange(-9, 10)
        node = const_index(shift)
        for loop, factor in zip(self.loops, factors, strict=True):
            node = simplify.add(node, simplify.scale(loop, factor))
        return Truth(
            node, lambda place: shift + sum(f * p for f, p in zip(factors, place, strict=True))
        )

    def inside(self, offset: Truth, size: int) -> Truth:
        node = simplify.both(
            simplify.at_least(offset.node, const_index(0)),
            simplify.less(offset.node, const_index(size)),
        )
        return Truth(node, lambda place: 0 <= offset.at(place) < size)

    def both(self, one: Truth, other: Truth) -> Truth:
        return Truth(
            simplify.both(one.node, other.node), lambda place: one.at(place) and other.at(place)
        )

    def array(self, values: np.ndarray) -> Node:
        self.arrays.append(values)
        dtype = {"int32": int32, "int64": int64, "bool": bool_}[values.dtype.name]
        return PARAM(attrs=ParamAttrs(len(self.arrays), (len(values),), dtype))

    def loaded(self, gate: Truth, values: np.ndarray, offset: Truth) -> Truth:
        """A load under `gate` and where the offset lies inside; elsewhere it is 0."""
        whole = self.both(gate, self.inside(offset, len(values)))
        node = LOAD(INDEX(self.array(values), offset.node), whole.node)
        return Truth(node, lambda place: int(values[offset.at(place)]) if whole.at(place) else 0)

    def gate(self, depth: int) -> Truth:
        kind = self.choose.randrange(6) if depth else self.choose.randrange(3)
        if kind <= 1:
            offset, bound = self.offset(), self.choose.randrange(-4, 20)
            return Truth(
                math.LT(offset.node, const_index(bound)), lambda place: offset.at(place) < bound
            )
        if kind == 2:
            offset, step = self.offset(), self.choose.choice((2, 3))
            rest = simplify.mod(offset.node, const_index(step))
            node = math.EQ(rest, const_index(1))
            return Truth(node, lambda place: offset.at(place) % step == 1)
        if kind == 3:
            return self.both(self.gate(depth - 1), self.gate(depth - 1))
        if kind == 4:
            inner = self.gate(depth - 1)
            node = math.XOR(inner.node, const(True, bool_))
            return Truth(node, lambda place: not inner.at(place))
        # A mask that is itself read under a gate.
        mask = np.array(self.choose.choices((True, False), k=self.choose.randrange(1, 30)))
        return self.loaded(self.gate(depth - 1), mask, self.offset())

    def value(self, depth: int) -> Truth:
        data = np.array(
            self.choose.choices(range(1, 1 << 30), k=self.choose.randrange(1, 40)), np.int32
        )
        gate = self.gate(2)
        if depth and self.choose.random() < 0.5:  # at an index that comes from memory
            wild = [-1, len(data), 1 << 40, -(1 << 40), *range(len(data))]
            count = self.choose.randrange(1, 30)
            table = np.array(self.choose.choices(wild, k=count), np.int64)
            found = self.loaded(self.gate(1), table, self.offset())
            return self.loaded(gate, data, Truth(cast(found.node, index), found.at))
        return self.loaded(gate, data, self.offset())


def build(seed: int) -> tuple[Case, bytes]:
    """A kernel, and what its first buffer holds afterwards."""
    make = Kernels(random.Random(seed))
    choose = make.choose
    for _ in range(choose.choice((1, 2, 2))):
        make.loop()
    parts = [make.value(1) for _ in range(choose.choice((1, 2, 3)))]
    total = parts[0].node
    for part in parts[1:]:
        total = math.ADD(total, part.node)
    # Every iteration has a place of its own; some are shifted out of the buffer and gated.
    order = list(range(len(make.loops)))
    choose.shuffle(order)
    node, factors, stride = const_index(0), [0] * len(order), 1
    for at in order:
        node = simplify.add(node, simplify.scale(make.loops[at], stride))
        factors[at] = stride
        stride *= make.sizes[at]
    shift = choose.choice((0, 0, 3, -3, 11))
    size = max(stride - choose.choice((0, 0, 5)), 1)
    target = Truth(
        simplify.add(node, const_index(shift)),
        lambda place: shift + sum(f * p for f, p in zip(factors, place, strict=True)),
    )
    gate = make.inside(target, size)
    if choose.random() < 0.6:
        gate = make.both(make.gate(2), gate)
    address = INDEX(PARAM(attrs=ParamAttrs(0, (size,), int32)), target.node)
    sink = SINK(STORE(address, total, gate.node))
    before = np.full(size, 0x5A5A5A5A, np.int32)
    after = before.copy()
    for place in np.ndindex(*make.sizes):
        if gate.at(place):
            value = sum(part.at(place) for part in parts)
            after[target.at(place)] = np.array(value & 0xFFFFFFFF, np.uint32).view(np.int32)
    case = Case(sink, [before.tobytes(), *[row.tobytes() for row in make.arrays]])
    return case, after.tobytes()


def build_sum(seed: int) -> tuple[Case, bytes]:
    """A sum along a loop of loads under gates that depend on both loops."""
    make = Kernels(random.Random(seed))
    make.loop()
    make.loop()
    part = make.value(1)
    rows, columns = make.sizes
    address = INDEX(PARAM(attrs=ParamAttrs(0, (rows,), int32)), make.loops[0])
    total = REDUCE(part.node, make.loops[1], attrs=ReduceAttrs(Fold.ADD))
    sums = [sum(part.at((row, column)) for column in range(columns)) for row in range(rows)]
    after = np.array([total & 0xFFFFFFFF for total in sums], np.uint32)
    sink = SINK(STORE(address, total))
    case = Case(sink, [bytes(4 * rows), *[row.tobytes() for row in make.arrays]])
    return case, after.tobytes()


@pytest.mark.parametrize("make", [build, build_sum])
@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), level=st.sampled_from(LEVELS), at_start=st.booleans())
def test_CST_03_what_random_nested_gates_leave_out_is_never_touched(
    make: Callable[[int], tuple[Case, bytes]], seed: int, level: str, at_start: bool
) -> None:
    case, expected = make(seed)
    outcome = run_on_machine(case, "llvm", level, at_start=at_start)
    assert outcome.buffers[0] == expected
    assert outcome.buffers[1:] == case.buffers[1:]


@pytest.mark.needs("program:cc")
@pytest.mark.parametrize("make", [build, build_sum])
@settings(max_examples=12)
@given(seed=st.integers(0, 1 << 32), at_start=st.booleans())
def test_CST_03_nor_in_the_text_of_c(
    make: Callable[[int], tuple[Case, bytes]], seed: int, at_start: bool
) -> None:
    case, expected = make(seed)
    outcome = run_on_machine(case, "clang", "x86-64", at_start=at_start)
    assert outcome.buffers[0] == expected


def test_the_generator_makes_gates_inside_of_gates_and_offsets_outside_of_buffers() -> None:
    nested = kept = left_out = 0
    for seed in range(60):
        case, after = build(seed)
        before = np.frombuffer(case.buffers[0], np.int32)
        changed = np.frombuffer(after, np.int32) != before
        kept += int((~changed).any())
        left_out += int(changed.any())
        nested += sum(buffer.count(b"\1") > 0 for buffer in case.buffers[1:]) > 1
    assert min(nested, kept, left_out) > 15
