"""Which folds over windows get a copied input."""

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan.check import check
from tilework.codegen.plan.window_plan import choose_window_plan
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)


def loop(number: int, size: int) -> Node:
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def pooling(step: int, padding: int, out: int = 24, taps: int = 3) -> Kernel:
    """The greatest of `taps` elements, along one axis of 8 channels."""
    c, x, tap = loop(0, 8), loop(1, out), loop(2, taps)
    size = step * (out - 1) + taps - 2 * padding
    place = simplify.add(simplify.scale(x, step), simplify.add(tap, const_index(-padding)))
    inside = simplify.both(
        simplify.less(const_index(-1), place), simplify.less(place, const_index(size))
    )
    gate = [] if inside is simplify.TRUE else [inside]
    buffer = PARAM(attrs=ParamAttrs(1, (8 * size,), float32))
    read = LOAD(INDEX(buffer, simplify.add(simplify.scale(c, size), place)), *gate)
    target = PARAM(attrs=ParamAttrs(0, (8 * out,), float32))
    total = REDUCE(read, tap, attrs=ReduceAttrs(Fold.MAX))
    return analyse(SINK(STORE(INDEX(target, simplify.add(simplify.scale(c, out), x)), total)))


def test_padded_windows_are_copied_once() -> None:
    kernel = pooling(1, 1)
    plan = choose_window_plan(kernel, TARGET)
    assert plan is not None
    check(plan, kernel, TARGET)
    assert [staged.windows for staged in plan.staged] == [True]


def test_strided_windows_are_copied_once() -> None:
    assert choose_window_plan(pooling(2, 0), TARGET) is not None


def test_plain_windows_are_read_as_they_are() -> None:
    assert choose_window_plan(pooling(1, 0), TARGET) is None


def test_too_few_outputs_for_a_vector_have_no_window_plan() -> None:
    assert choose_window_plan(pooling(1, 1, out=3), TARGET) is None


def test_folds_without_overlap_have_no_window_plan() -> None:
    assert choose_window_plan(pooling(3, 1), TARGET) is None
