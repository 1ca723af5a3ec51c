"""Which pairs of ranges a factor reads through their sum alone."""

from tilework.codegen.plan.windows import Window, windows_of
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, ParamAttrs
from tilework.ir.symbolic import simplify


def loop(number: int, size: int) -> Node:
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def read(offset: Node, *gate: Node) -> Node:
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (1000,), float32)), offset), *gate)


def place(out: Node, step: int, tap: Node, dilation: int, start: int = 0) -> Node:
    total = simplify.add(simplify.scale(out, step), simplify.scale(tap, dilation))
    return simplify.add(total, const_index(start))


X, TAP, CHANNEL = loop(0, 20), loop(1, 3), loop(2, 4)


def test_a_strided_and_padded_axis_is_a_window() -> None:
    at = place(X, 2, TAP, 1, start=-1)
    factor = read(simplify.add(simplify.scale(CHANNEL, 50), at), simplify.less(const_index(-1), at))
    assert windows_of(factor, [X], [CHANNEL, TAP]) == [Window(X, TAP, 2, 1)]


def test_taps_may_run_backwards() -> None:
    window = windows_of(read(place(X, 1, TAP, -1, start=2)), [X], [TAP])[0]
    assert (window.dilation, window.start, window.span(20)) == (-1, 2, 22)


def test_a_gate_on_one_range_alone_is_no_window() -> None:
    factor = read(place(X, 1, TAP, 1), simplify.less(X, const_index(7)))
    assert windows_of(factor, [X], [TAP]) == []


def test_a_product_of_matrices_has_no_windows() -> None:
    assert windows_of(read(place(X, 3, TAP, 1)), [X], [CHANNEL]) == []


def test_steps_longer_than_the_window_would_copy_what_nobody_reads() -> None:
    assert windows_of(read(place(X, 4, TAP, 1)), [X], [TAP]) == []


def test_of_ranges_in_two_different_sums_there_is_no_window() -> None:
    factor = read(
        simplify.add(place(X, 1, TAP, 1), simplify.scale(simplify.idiv(X, const_index(3)), 100))
    )
    assert windows_of(factor, [X], [TAP]) == []
