"""The audit of accesses against the interpreter, which meets every access that really happens."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.codegen import plans, programs

from tilework.base.errors import BoundsError
from tilework.codegen import audit
from tilework.ir.build import const, const_index
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.symbolic import simplify
from tilework.testing.kernels import interpret, stages, target

LEVELS = ["x86-64", "x86-64-v3", "x86-64-v4"]
few = settings(
    max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def expanded(case: object, level: str, plan: object = None) -> Node:
    forms = dict(stages(case, target(level), plan))  # type: ignore[arg-type]
    return forms["expand"]


# Two symbolic sizes that are multiplied are beyond the prover; what it says of them is right.
@pytest.mark.parametrize("family", [name for name in programs.PROGRAMS if name != "symbolic"])
@few
@given(data=st.data())
def test_CST_06_every_access_of_a_random_kernel_is_proven(family: str, data: st.DataObject) -> None:
    case = data.draw(programs.PROGRAMS[family])
    level = data.draw(st.sampled_from(LEVELS))
    form = expanded(case, level, data.draw(st.none() | plans.plans(case, level)))
    assert [fault for fault in audit.unproven(form) if not fault.from_data] == []


def moved(offset: Node, by: int) -> Node:
    """An offset, or each of a vector of them, some elements further."""
    if offset.type.shape:
        return math.ADD(offset, const(by, offset.dtype, offset.type.shape))
    return simplify.add(offset, const_index(by))


def spoiled(root: Node, victim: Node, by: int, keeps_gate: bool) -> Node:
    """The kernel with one access moved, or without its gate."""
    done: dict[Node, Node] = {}
    for node in toposort(root):
        src = tuple([done[source] for source in node.src])
        if node is victim:
            address = src[0]
            offset = moved(address.src[1], by)
            src = (INDEX(address.src[0], offset), *src[1:])
            if not keeps_gate:
                src = src[: 1 if node.op is LOAD else 2]
        done[node] = make(node.op, src, node.attrs)
    return done[root]


@pytest.mark.parametrize("family", programs.PROGRAMS)
@few
@given(data=st.data())
def test_CST_04_CST_06_nothing_that_leaves_its_buffer_is_proven(
    family: str, data: st.DataObject
) -> None:
    case = data.draw(programs.PROGRAMS[family])
    form = expanded(case, data.draw(st.sampled_from(LEVELS)))
    accesses = [
        node
        for node in toposort(form)
        if node.op in (LOAD, STORE) and node.src[0].src[0].op is PARAM
    ]
    victim = data.draw(st.sampled_from(accesses))
    by = data.draw(st.sampled_from([-2, -1, 0, 1, 2]))
    bad = spoiled(form, victim, by, data.draw(st.booleans()))
    try:
        interpret(case, bad, "spoiled")
    except BoundsError:
        assert audit.unproven(bad)
