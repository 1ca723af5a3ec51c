"""The audit of accesses: what lies inside is proven, what does not is never, no gate gets lost."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework import Tensor, dtypes
from tilework.base.errors import VerifyError
from tilework.base.settings import override
from tilework.codegen import audit, pipeline
from tilework.codegen.analysis import analyse
from tilework.codegen.linearize.order import linearise
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.choose import choose_plan
from tilework.dtypes import DType, float32, int64
from tilework.ir.build import bitcast, cast, const, const_index
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)
Shift = Callable[[Node], Node]


def loop(number: int, size: int | Node) -> Node:
    return RANGE(const_index(size) if isinstance(size, int) else size, attrs=RangeAttrs(number))


def at(slot: int, count: int | Node, offset: Node, dtype: DType = float32) -> Node:
    return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), offset)


def lowered(sink: Node) -> Node:
    kernel = analyse(normalise_ranges(sink))
    return expand(apply_plan(kernel, choose_plan(kernel, TARGET)))[0]


def moved(by: int) -> Shift:
    return lambda offset: simplify.add(offset, const_index(by))


# Each kernel takes a function that moves the index of its load.


def plain(shift: Shift) -> Node:
    i = loop(0, 33)
    return SINK(STORE(at(0, 33, i), LOAD(at(1, 33, shift(i)))))


def scalar(shift: Shift) -> Node:
    return SINK(STORE(at(0, 1, const_index(0)), LOAD(at(1, 1, shift(const_index(0))))))


def rows(shift: Shift) -> Node:
    i, j = loop(0, 7), loop(1, 19)
    offset = simplify.add(simplify.scale(i, 19), j)
    return SINK(STORE(at(0, 133, offset), LOAD(at(1, 133, shift(offset)))))


def transposed(shift: Shift) -> Node:
    i, j = loop(0, 12), loop(1, 20)
    inside = simplify.add(simplify.scale(j, 12), i)
    outside = simplify.add(simplify.scale(i, 20), j)
    return SINK(STORE(at(0, 240, outside), LOAD(at(1, 240, shift(inside)))))


def flipped(shift: Shift) -> Node:
    i = loop(0, 40)
    return SINK(STORE(at(0, 40, i), LOAD(at(1, 40, shift(simplify.sub(const_index(39), i))))))


def strided(shift: Shift) -> Node:
    i = loop(0, 16)
    return SINK(STORE(at(0, 16, i), LOAD(at(1, 31, shift(simplify.scale(i, 2))))))


def reshaped(shift: Shift) -> Node:
    i = loop(0, 96)
    row, column = simplify.idiv(i, const_index(8)), simplify.mod(i, const_index(8))
    offset = simplify.add(simplify.scale(column, 12), row)
    return SINK(STORE(at(0, 96, i), LOAD(at(1, 96, shift(offset)))))


def converted(shift: Shift) -> Node:
    i = loop(0, 24)
    value = cast(bitcast(LOAD(at(1, 24, shift(i))), dtypes.int32), float32)
    return SINK(STORE(at(0, 24, i), value))


def symbolic(shift: Shift) -> Node:
    n = VARIABLE(attrs=VariableAttrs("n", 1, 50))
    i = loop(0, n)
    return SINK(STORE(at(0, n, i), LOAD(at(1, n, shift(i)))))


def padded(shift: Shift) -> Node:
    i = loop(0, 40)
    gate = simplify.both(simplify.at_least(i, const_index(3)), simplify.less(i, const_index(37)))
    value = LOAD(at(1, 34, shift(simplify.sub(i, const_index(3)))), gate)
    return SINK(STORE(at(0, 40, i), value))


def gathered(shift: Shift) -> Node:
    i = loop(0, 10)
    where = LOAD(at(2, 10, i, int64))
    place = cast(where, dtypes.index)
    gate = simplify.both(
        simplify.at_least(place, const_index(0)), simplify.less(place, const_index(6))
    )
    return SINK(STORE(at(0, 10, i), LOAD(at(1, 6, shift(place)), gate)))


FORMS = [
    plain, scalar, rows, transposed, flipped, strided, reshaped, converted, symbolic, padded,
    gathered,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_CST_06_an_access_that_lies_inside_is_proven(form: Callable[[Shift], Node]) -> None:
    assert audit.unproven(lowered(form(lambda offset: offset))) == []


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("form", FORMS)
def test_CST_06_an_index_that_is_off_by_one_is_found(
    form: Callable[[Shift], Node], by: int
) -> None:
    faults = audit.unproven(lowered(form(moved(by))))
    assert faults
    wanted = "before" if by < 0 else "beyond"
    assert all(wanted in fault.what for fault in faults)


def without_gate(sink: Node, victim: Node) -> Node:
    """The kernel in which one access has lost its gate."""
    done: dict[Node, Node] = {}
    for node in toposort(sink):
        src = tuple([done[source] for source in node.src])
        if node is victim:
            src = src[:-1]
        done[node] = make(node.op, src, node.attrs)
    return done[sink]


def gated(root: Node) -> list[Node]:
    return [
        node
        for node in toposort(root)
        if (node.op is LOAD and len(node.src) == 2) or (node.op is STORE and len(node.src) == 3)
    ]


@pytest.mark.parametrize("form", [padded, gathered])
def test_CST_04_a_kernel_that_lost_a_gate_is_refused(form: Callable[[Shift], Node]) -> None:
    kernel = lowered(form(lambda offset: offset))
    victims = gated(kernel)
    assert victims
    for victim in victims:
        faults = audit.unproven(without_gate(kernel, victim))
        assert faults, victim


def test_CST_04_a_gate_lost_while_statements_are_made_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(*arguments: Any) -> Node:
        linear = linearise(*arguments)
        victim = gated(linear)[0]
        done: dict[Node, Node] = {}
        for node in toposort(linear):
            src = tuple([done[source] for source in node.src])
            done[node] = make(node.op, src[:-1] if node is victim else src, node.attrs)
        return LINEAR(*done[linear].src)

    pipeline.lower_kernel(padded(lambda offset: offset), TARGET)
    monkeypatch.setattr(pipeline, "linearise", careless)
    with pytest.raises(VerifyError, match="a gate was lost"):
        pipeline.lower_kernel(padded(lambda offset: offset), TARGET)


def test_CST_06_lowering_refuses_what_is_not_proven() -> None:
    pipeline.lower_kernel(flipped(moved(1)), TARGET)
    with (
        override(prove_accesses=True),
        pytest.raises(VerifyError, match="not proven to lie inside") as info,
    ):
        pipeline.lower_kernel(flipped(moved(1)), TARGET)
    assert "beyond the buffer" in str(info.value)


def test_a_gate_that_never_holds_proves_everything() -> None:
    i = loop(0, 4)
    never = math.LT(simplify.add(i, const_index(9)), const_index(2))
    sink = SINK(STORE(at(0, 4, i), LOAD(at(1, 1, simplify.add(i, const_index(7))), never)))
    assert audit.unproven(lowered(sink)) == []


def test_a_quotient_is_rounded_down_in_proofs() -> None:
    i = loop(0, 10)
    third = math.IDIV(i, const_index(3))
    assert audit.unproven(SINK(STORE(at(0, 4, third), const(0, float32)))) == []
    assert audit.unproven(SINK(STORE(at(0, 3, third), const(0, float32)))) != []


def test_CST_06_strided_and_padded_convolutions_are_proven() -> None:
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((2, 4, 9, 11)).astype(np.float32), requires_grad=True)
    w = Tensor(rng.standard_normal((6, 2, 3, 3)).astype(np.float32), requires_grad=True)
    with override(prove_accesses=True):  # a kernel that is not proven would raise
        x.conv2d(w, stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=2).sum().backward()
        assert x.grad is not None
        assert x.grad.numpy().shape == (2, 4, 9, 11)


LOOPS = (loop(0, 5), loop(1, 3))
SIZES = (5, 3)


def drawn_place(draw: Any, depth: int) -> Node:
    """An integer expression of two loops, of every op that proofs look into."""
    if depth == 0:
        leaf: Node = draw(st.sampled_from([*LOOPS, *map(const_index, (-2, 0, 1, 3, 7))]))
        return leaf
    x, y = drawn_place(draw, depth - 1), drawn_place(draw, depth - 1)
    by = const_index(draw(st.integers(1, 4)))
    choices: list[Callable[[], Node]] = [
        lambda: math.ADD(x, y),
        lambda: math.SUB(x, y),
        lambda: math.MUL(x, by),
        lambda: math.MINIMUM(x, y),
        lambda: math.MAXIMUM(x, y),
        lambda: math.IDIV(x, by),
        lambda: math.MOD(x, by),
        lambda: math.SHR(x, by),
        lambda: math.AND(x, const_index(3)),
        lambda: math.WHERE(math.LT(x, y), x, by),
        lambda: math.WHERE(math.LE(x, by), y, x),
    ]
    chosen: Callable[[], Node] = draw(st.sampled_from(choices))
    return chosen()


def value_of(node: Node, values: dict[Node, int]) -> int:
    """What an integer expression is for some values of loops."""
    if node in values:
        return values[node]
    if node.op is math.CONST:
        return int(node.attrs.bits) - (int(node.attrs.bits) >> 63 << 64)
    x = [value_of(source, values) for source in node.src]
    found = {
        math.ADD: lambda: x[0] + x[1], math.SUB: lambda: x[0] - x[1],
        math.MUL: lambda: x[0] * x[1], math.MINIMUM: lambda: min(x),
        math.MAXIMUM: lambda: max(x), math.IDIV: lambda: x[0] // x[1],
        math.MOD: lambda: x[0] % x[1], math.SHR: lambda: x[0] >> x[1],
        math.AND: lambda: x[0] & x[1], math.LT: lambda: int(x[0] < x[1]),
        math.LE: lambda: int(x[0] <= x[1]), math.WHERE: lambda: x[1] if x[0] else x[2],
    }[node.op]()  # fmt: skip
    return int(found)


@given(st.data())
def test_CST_06_what_is_proven_lies_inside_for_all_values(data: st.DataObject) -> None:
    place = drawn_place(data.draw, data.draw(st.integers(1, 3)))
    first, second = drawn_place(data.draw, 1), drawn_place(data.draw, 1)
    order = data.draw(st.sampled_from([math.LT, math.LE]))
    gate = order(first, second)
    size = data.draw(st.integers(1, 12))
    access = STORE(at(0, size, place), const(0, float32), gate)
    if audit.unproven_parts(access):
        return
    for one in range(SIZES[0]):
        for other in range(SIZES[1]):
            values = dict(zip(LOOPS, (one, other), strict=True))
            if value_of(gate, values):
                assert 0 <= value_of(place, values) < size
