"""Panels are fetched ahead of their use, into the second cache or the first."""

from dataclasses import replace

import pytest

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.plan import Staged
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory
from tilework.render.base import locality
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v4", cores=1)


def packed_product(depth: int) -> Kernel:
    """8 rows times 16 panels of 48 columns, each panel packed step after step."""
    i, panel, j, p = (
        RANGE(const_index(n), attrs=RangeAttrs(at)) for at, n in enumerate((8, 16, 48, depth))
    )

    def at(slot: int, count: int, *terms: tuple[Node, int]) -> Node:
        total = const_index(0)
        for node, factor in terms:
            total = simplify.add(total, simplify.scale(node, factor))
        return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), float32)), total)

    a = LOAD(at(1, 8 * depth, (i, depth), (p, 1)))
    b = LOAD(at(2, 768 * depth, (panel, 48 * depth), (p, 48), (j, 1)))
    total = REDUCE(math.MUL(a, b), p, attrs=ReduceAttrs(Fold.ADD))
    return analyse(SINK(STORE(at(0, 8 * 768, (i, 768), (panel, 48), (j, 1)), total)))


def test_panels_larger_than_the_cache_are_fetched_ahead() -> None:
    kernel = packed_product(2048)
    assert choose_plan(kernel, TARGET).ahead > 0
    lowered = lower_kernel(kernel.sink, TARGET)
    assert "llvm.prefetch" in LlvmRenderer().render(lowered)
    assert "__builtin_prefetch" in ClangRenderer().render(lowered)


def test_panels_that_stay_in_the_cache_are_not() -> None:
    assert choose_plan(packed_product(16), TARGET).ahead == 0


def plain_product(size: int) -> Kernel:
    """A square product of matrices in rows, whose second factor is copied into panels."""
    i, j, p = (RANGE(const_index(size), attrs=RangeAttrs(at)) for at in range(3))

    def at(slot: int, row: Node, column: Node) -> Node:
        place = simplify.add(simplify.scale(row, size), column)
        return INDEX(PARAM(attrs=ParamAttrs(slot, (size * size,), float32)), place)

    product = math.MUL(LOAD(at(1, i, p)), LOAD(at(2, p, j)))
    total = REDUCE(product, p, attrs=ReduceAttrs(Fold.ADD))
    return analyse(SINK(STORE(at(0, i, j), total)))


def test_copied_panels_larger_than_the_first_cache_are_fetched_from_the_second() -> None:
    kernel = plain_product(512)
    plan = choose_plan(kernel, TARGET)
    assert [staged.operand for staged in plan.staged] == [1]
    assert 0 < plan.ahead < 4096
    lowered = lower_kernel(kernel.sink, TARGET)
    assert "i32 0, i32 3, i32 1)" in LlvmRenderer().render(lowered)
    assert ", 0, 3);" in ClangRenderer().render(lowered)


def test_copied_panels_that_stay_in_the_first_cache_are_not() -> None:
    plan = choose_plan(plain_product(56), TARGET)
    assert [staged.operand for staged in plan.staged] == [1]
    assert plan.ahead == 0


@pytest.mark.parametrize(("ahead", "nearness"), [(64, 3), (4095, 3), (4096, 2), (65536, 2)])
def test_what_is_used_soon_goes_to_the_first_cache(ahead: int, nearness: int) -> None:
    assert locality(ahead) == nearness


def convolution(channels: int, side: int) -> Kernel:
    """3 x 3, 32 channels of results; the input lies channel by channel, with its padding."""
    wide = side + 2
    sizes = (32, side, side, channels, 3, 3)
    o, y, x, c, ky, kx = (RANGE(const_index(n), attrs=RangeAttrs(at)) for at, n in enumerate(sizes))

    def at(slot: int, count: int, *terms: tuple[Node, int]) -> Node:
        total = const_index(0)
        for node, factor in terms:
            total = simplify.add(total, simplify.scale(node, factor))
        return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), float32)), total)

    places = ((c, wide * wide), (y, wide), (ky, wide), (x, 1), (kx, 1))
    image = LOAD(at(1, channels * wide * wide, *places))
    taps = LOAD(at(2, 32 * channels * 9, (o, channels * 9), (c, 9), (ky, 3), (kx, 1)))
    total = REDUCE(math.MUL(image, taps), c, ky, kx, attrs=ReduceAttrs(Fold.ADD))
    place = at(0, 32 * side * side, (o, side * side), (y, side), (x, 1))
    return analyse(normalise_ranges(SINK(STORE(place, total))))


def test_images_are_fetched_two_channels_ahead_of_the_copy_of_their_windows() -> None:
    kernel = convolution(16, 30)
    plan = choose_plan(kernel, TARGET)
    windows = Staged(0, Memory.TILE, plan.tasks, 16, windows=True)
    plan = replace(plan, staged=(windows, *plan.staged), ahead=0)
    text = LlvmRenderer().render(lower_kernel(kernel.sink, TARGET, plan))
    assert "llvm.prefetch" in text
    assert f", i64 {2 * 4 * 32 * 32}\n" in text
