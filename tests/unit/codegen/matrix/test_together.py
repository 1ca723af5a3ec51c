"""Quotients that share a vector."""

from __future__ import annotations

from tilework.codegen.matrix.together import divide_together
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, ParamAttrs

BUFFER = PARAM(attrs=ParamAttrs(0, (16,), float32))


def element(at: int) -> Node:
    return LOAD(INDEX(BUFFER, const_index(at)))


def quotients(values: list[Node]) -> list[Node]:
    found = dict.fromkeys(node for value in values for node in toposort(value))
    return [node for node in found if node.op is math.FDIV]


def test_one_vector_takes_the_place_of_as_many_quotients() -> None:
    values = [math.FDIV(element(i), element(i + 8)) for i in range(4)]
    (vector,) = quotients(divide_together(values))
    assert vector.type.lanes == 4
    assert list(vector.src[0].src) == [element(i) for i in range(4)]


def test_a_quotient_of_a_quotient_is_in_a_vector_of_its_own() -> None:
    values = [math.FDIV(element(9), math.FDIV(element(i), element(8))) for i in range(4)]
    first, second = sorted(quotients(divide_together(values)), key=lambda n: len(toposort(n)))
    assert first.type.lanes == second.type.lanes == 4
    assert first in toposort(second)


def test_a_quotient_that_all_share_stays_alone() -> None:
    shared = math.FDIV(element(0), element(1))
    values = [math.MUL(shared, element(i)) for i in range(2, 6)]
    assert divide_together(values) == values


def test_equal_quotients_take_one_lane() -> None:
    values = [math.FDIV(element(0), element(1 + i % 2)) for i in range(4)]
    together = divide_together(values)
    (vector,) = quotients(together)
    assert vector.type.lanes == 2
    assert together[0] is together[2]


def test_values_with_other_numbers_of_quotients_stay() -> None:
    values = [math.FDIV(element(0), element(1)), math.ADD(element(0), const(1.0, float32))]
    assert divide_together(values) == values
