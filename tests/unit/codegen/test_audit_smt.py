"""The proofs of the audit, judged by an SMT solver that knows nothing of how they are found."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.codegen.test_audit import FORMS, Shift, at, drawn_place, loop, lowered, moved

from tilework import Tensor, Variable
from tilework.base.errors import UnsupportedError
from tilework.codegen import audit, pipeline
from tilework.dtypes import float32, index, int32
from tilework.engine.execute import schedule_of
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE, ParamAttrs
from tilework.schedule.call import transform_to_call
from tilework.target.known.cpu import x86_level_spec
from tilework.target.known.cuda import cuda_spec
from tilework.testing.smt import Verdict, accesses_of, judge, outside

pytestmark = pytest.mark.needs("package:z3")
TARGETS = {"CPU": x86_level_spec("x86-64-v3", cores=2), "CUDA": cuda_spec(90)}


def windows() -> Tensor:
    x = Tensor.empty(2, 4, 9, 11)
    return x.conv2d(Tensor.empty(6, 2, 3, 3), stride=(2, 3), padding=(1, 2), groups=2)


def pooled() -> Tensor:
    found: Tensor = Tensor.empty(2, 3, 13, 10).max_pool2d((3, 2), stride=2, padding=1)
    return found


def sized() -> Tensor:
    n = Variable("n", 3, 70)
    x = Tensor.empty(70, 12)[: n.bind(5)]
    return (x.flip(0) * 2).cat(x, dim=0)


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "a convolution": windows,
    "a pool": pooled,
    "rows of a size known later": sized,
    "a product": lambda: Tensor.empty(33, 70) @ Tensor.empty(70, 45),
    "a gather": lambda: Tensor.empty(9, 5).gather(1, Tensor.empty(9, 3, dtype="int64")),
    "a scan": lambda: Tensor.empty(5, 700).cumsum(1),
    "parts that are joined": lambda: Tensor.empty(7, 3).cat(Tensor.empty(7, 4), dim=1).roll(2, 1),
    "a reflection": lambda: Tensor.empty(2, 3, 11).pad((4, 3), mode="reflect"),
    "a triangle": lambda: Tensor.empty(19, 23).tril(-2).permute(1, 0).reshape(19, 23).sum(0),
    "a scatter": lambda: Tensor.zeros(40, 6).scatter_reduce(
        0, Tensor.empty(90, 6, dtype="int64"), Tensor.empty(90, 6), "sum"),
}  # fmt: skip


def kernels_of(value: Tensor, device: str, monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The kernels that a tensor takes on a device, LOWERED."""
    found: list[Node] = []
    monkeypatch.setattr(audit, "check_as_settings_say", found.append)
    for call in schedule_of(transform_to_call([value.node]).function).linear.src:
        pipeline.lower_kernel(call.src[0], TARGETS[device])
    return found


@pytest.mark.parametrize("device", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_CST_06_what_is_proven_of_kernels_lies_inside_for_an_smt_solver(
    program: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [
        judge(access)
        for kernel in kernels_of(PROGRAMS[program](), device, monkeypatch)
        for access in accesses_of(kernel)
        if not audit.unproven_parts(access)
    ]
    assert Verdict.OUTSIDE not in verdicts
    assert verdicts.count(Verdict.INSIDE) > 0.9 * len(verdicts)


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("form", FORMS)
def test_CST_06_an_smt_solver_finds_each_index_that_is_off_by_one(
    form: Callable[[Shift], Node], by: int
) -> None:
    assert outside(lowered(form(moved(by))))
    assert not outside(lowered(form(lambda offset: offset)))


def of_any_size(place: Node) -> Node:
    """The expression with loops of which one has a size known at run time, and one is long."""
    size = VARIABLE(attrs=VariableAttrs("rows", 1, 1000))
    done = {loop(0, 5): loop(0, size), loop(1, 3): loop(1, 977)}
    for node in toposort(place):
        if node not in done:
            done[node] = make(node.op, tuple([done[each] for each in node.src]), node.attrs)
    return done[place]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_CST_06_what_is_proven_of_random_places_lies_inside_for_an_smt_solver(
    data: st.DataObject,
) -> None:
    place = of_any_size(drawn_place(data.draw, data.draw(st.integers(1, 2))))
    first, second = (of_any_size(drawn_place(data.draw, 1)) for _ in range(2))
    gate = data.draw(st.sampled_from([math.LT, math.LE]))(first, second)
    size = data.draw(st.sampled_from([1, 3, 977, 1000, 2000, 4000]))
    access = STORE(at(0, size, place), const(0, float32), gate)
    if not audit.unproven_parts(access):
        assert judge(access, work=100_000) is not Verdict.OUTSIDE


def test_CST_06_a_sum_of_32_bits_that_may_wrap_is_not_proven_by_its_parts() -> None:
    parts = [LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (8,), int32)), loop(0, 8))) for slot in (1, 2)]
    place = cast(math.ADD(*parts), index)
    none = const(0, int32)
    gates = [math.LE(none, part) for part in parts] + [math.LT(place, const_index(6))]
    gate = math.AND(math.AND(gates[0], gates[1]), gates[2])
    access = STORE(at(0, 6, place), const(0, float32), gate)
    assert judge(access) is Verdict.OUTSIDE
    assert audit.unproven_parts(access)


def test_a_missing_solver_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(UnsupportedError, match="no solver") as caught:
        judge(STORE(at(0, 6, const_index(1)), const(0, float32)))
    assert caught.value.try_ == "pip install tilework[smt]"
