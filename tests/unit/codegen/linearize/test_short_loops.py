"""Innermost loops of a few iterations are written out."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.linearize.order import linearise
from tilework.codegen.linearize.short_loops import LONGEST, write_out
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.control import ACCUMULATE
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.symbolic import simplify
from tilework.ir.verify import verify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v4")  # 32 vector registers
ADD = ReduceAttrs(Fold.ADD)
RESULTS, WEIGHTS, INPUT = (PARAM(attrs=ParamAttrs(slot, (4096,), float32)) for slot in range(3))


def read(buffer: Node, *terms: Node) -> Node:
    place = const_index(0)
    for term in terms:
        place = simplify.add(place, term)
    return LOAD(INDEX(buffer, place))


def taps(outputs: int, channels: int, width: int, fold: Fold = Fold.ADD) -> Node:
    """A row of neighbouring outputs, each folded over channels and taps."""
    channel = RANGE(const_index(channels), attrs=RangeAttrs(0))
    tap = RANGE(const_index(width), attrs=RangeAttrs(1))
    weight = read(WEIGHTS, simplify.scale(channel, width), tap)
    stores = []
    for output in range(outputs):
        row = simplify.scale(channel, 64)
        value = math.MUL(weight, read(INPUT, row, tap, const_index(output)))
        total = REDUCE(value, channel, tap, attrs=ReduceAttrs(fold))
        stores.append(STORE(INDEX(RESULTS, const_index(output)), total))
    return linearise(SINK(*stores))


def loops(linear: Node) -> list[int]:
    return [simplify.value_of(node.src[0]) or 0 for node in linear.src if node.op is RANGE]


def count(linear: Node, op: object) -> int:
    return sum(node.op is op for node in linear.src)


def results(linear: Node) -> bytes:
    # Values of very different size, so that any other order of additions gives other bits.
    numbers = [(-1) ** i * 3.0 ** (i % 23 - 11) for i in range(4096)]
    data = bytearray(struct.pack("4096f", *numbers))
    buffers = [bytearray(4 * 4096), bytearray(data[::-1]), data]
    # Reversed bytes are odd numbers, some of them NaN or infinite: those must stay as they are.
    run_linear(linear, buffers, {})
    return bytes(buffers[0])


@pytest.mark.parametrize("fold", [Fold.ADD, Fold.MAX])
@pytest.mark.parametrize("width", [2, 3, 5, LONGEST])
def test_taps_are_written_out_and_give_the_same_bits(width: int, fold: Fold) -> None:
    before = taps(6, 4, width, fold)
    after = write_out(before, TARGET)
    verify(after, Stage.LINEAR)
    assert loops(before) == [4, width]
    assert loops(after) == [4]
    assert results(after) == results(before)


def test_what_neighbouring_taps_read_is_loaded_once() -> None:
    after = write_out(taps(8, 4, 3), TARGET)
    assert count(after, LOAD) == 3 + 8 + 2


def test_an_accumulator_is_updated_once_for_all_taps() -> None:
    assert count(write_out(taps(8, 4, 3), TARGET), ACCUMULATE) == 8


def test_a_loop_may_vanish_altogether() -> None:
    before = taps(4, 1, 3)
    after = write_out(before, TARGET)
    assert 3 not in loops(after)
    assert results(after) == results(before)


def test_longer_loops_stay() -> None:
    before = taps(2, 4, LONGEST + 1)
    assert write_out(before, TARGET) is before


def test_loops_stay_whose_values_need_more_registers_than_there_are() -> None:
    before = taps(20, 4, 3)
    assert write_out(before, TARGET) is before
    few = x86_level_spec("x86-64-v3")
    assert loops(write_out(taps(7, 4, 3), few)) == [4]
    assert loops(write_out(taps(10, 4, 3), few)) == [4, 3]


def test_loops_that_store_stay() -> None:
    loop = RANGE(const_index(3), attrs=RangeAttrs(0))
    before = linearise(SINK(STORE(INDEX(RESULTS, loop), read(INPUT, loop))))
    assert write_out(before, TARGET) is before


def test_a_value_that_the_loop_does_not_change_is_folded_each_time() -> None:
    loop = RANGE(const_index(3), attrs=RangeAttrs(0))
    total = REDUCE(const(0.1, float32), loop, attrs=ReduceAttrs(Fold.ADD))
    before = linearise(SINK(STORE(INDEX(RESULTS, const_index(0)), total)))
    after = write_out(before, TARGET)
    assert loops(after) == []
    assert results(after)[:4] == results(before)[:4] != struct.pack("f", 0.1)


def test_two_loops_side_by_side_are_both_written_out() -> None:
    stores = []
    for at in range(2):
        loop = RANGE(const_index(3), attrs=RangeAttrs(at))
        total = REDUCE(read(INPUT, loop, const_index(100 * at)), loop, attrs=ReduceAttrs(Fold.ADD))
        stores.append(STORE(INDEX(RESULTS, const_index(at)), total))
    before = linearise(SINK(*stores))
    after = write_out(before, TARGET)
    assert loops(after) == []
    assert results(after) == results(before)


def test_loops_in_different_blocks_that_read_the_same_keep_one_of_them() -> None:
    """A value may stand in one place alone, so that the second loop stays as it is."""
    stores = []
    for at in range(2):
        outer = RANGE(const_index(5), attrs=RangeAttrs(2 * at))
        inner = RANGE(const_index(3), attrs=RangeAttrs(2 * at + 1))
        total = REDUCE(math.MUL(read(INPUT, inner), read(WEIGHTS, outer)), inner, attrs=ADD)
        stores.append(STORE(INDEX(RESULTS, simplify.add(outer, const_index(8 * at))), total))
    before = linearise(SINK(*stores))
    after = write_out(before, TARGET)
    verify(after, Stage.LINEAR)
    assert results(after) == results(before)


@pytest.mark.parametrize("length", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loop_that_follows_one_that_is_written_out_is_whole(length: int, dtype: str) -> None:
    x = Tensor(np.linspace(-1, 2, 3 * length).reshape(3, length), dtype=dtype)
    row = x[1].flip(0)
    total = (row.logsumexp(0, keepdim=True) * 3).sum()
    (found,) = total.gradient(x)
    held = np.exp(x.numpy()[1])
    want = np.zeros((3, length))
    want[1] = 3 * held / held.sum()
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)
