"""Passes over a panel fetch the next one, all of it and evenly."""

import pytest

from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import FETCH, INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v4", cores=1)
PANELS, COLUMNS = 24, 32


def product(rows: int, depth: int) -> Node:
    """Rows times panels of columns, each packed step after step."""
    i, panel, j, p = (
        RANGE(const_index(n), attrs=RangeAttrs(at))
        for at, n in enumerate((rows, PANELS, COLUMNS, depth))
    )

    def at(slot: int, count: int, *terms: tuple[Node, int]) -> Node:
        total = const_index(0)
        for node, factor in terms:
            total = simplify.add(total, simplify.scale(node, factor))
        return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), float32)), total)

    wide = PANELS * COLUMNS
    a = LOAD(at(1, rows * depth, (i, depth), (p, 1)))
    b = LOAD(at(2, wide * depth, (panel, COLUMNS * depth), (p, COLUMNS), (j, 1)))
    total = REDUCE(math.MUL(a, b), p, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(at(0, rows * wide, (i, wide), (panel, COLUMNS), (j, 1)), total))


def fetches(kernel: LoweredKernel) -> list[Node]:
    return [node for node in kernel.linear.src if node.op is FETCH and not node.attrs.to_write]


def distances(kernel: LoweredKernel) -> set[int]:
    """How far ahead loads fetch."""
    loads = [node for node in kernel.linear.src if node.op is LOAD and node.attrs is not None]
    return {node.attrs.ahead for node in loads}


def lines_of(fetch: Node, loops: list[Node]) -> set[int]:
    """The lines of the panel after the first one that a fetch asks for in all of its loops."""
    constant, terms = simplify.terms(fetch.src[0].src[1])
    offsets = {constant}
    for loop in loops:
        step, extent = terms.get(loop, 0), simplify.value_of(loop.src[0]) or 1
        offsets = {offset + at * step for offset in offsets for at in range(extent)}
    return {(4 * offset + fetch.attrs.ahead) // 64 for offset in offsets}


@pytest.mark.parametrize(("rows", "depth"), [(56, 512), (112, 1000), (56, 64 * 27)])
def test_all_of_the_next_panel_is_fetched_while_rows_pass_over_one(rows: int, depth: int) -> None:
    lowered = lower_kernel(product(rows, depth), TARGET)
    found = fetches(lowered)
    assert found
    panel = 4 * COLUMNS * depth
    loops = [node for node in lowered.linear.src if node.op is RANGE]
    terms = simplify.terms(found[0].src[0].src[1])[1]
    inside = [loop for loop in loops if loop in terms and 4 * terms[loop] < panel]
    asked: set[int] = set().union(*(lines_of(fetch, inside) for fetch in found))
    assert asked >= set(range(panel // 64, 2 * panel // 64))
    # No more than is due, but for what rounding to whole elements adds.
    assert len(asked) <= 1.3 * panel / 64


def test_its_loads_fetch_from_the_second_cache_alone() -> None:
    assert 0 < max(distances(lower_kernel(product(56, 512), TARGET))) < 4096


def test_one_pass_over_a_panel_fetches_ahead_of_its_loads() -> None:
    lowered = lower_kernel(product(8, 512), TARGET)
    assert not fetches(lowered)
    assert max(distances(lowered)) >= 4096


def test_panels_of_which_the_cache_does_not_hold_two_are_not_fetched_whole() -> None:
    assert not fetches(lower_kernel(product(56, 4096), TARGET))


def test_both_renderers_fetch_to_read() -> None:
    lowered = lower_kernel(product(56, 512), TARGET)
    assert "i32 0, i32 2, i32 1)" in LlvmRenderer().render(lowered)
    assert ", 0, 2);" in ClangRenderer().render(lowered)
