"""Parts of a value that are all rounded are parts of the rounded value; others stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.schedule.schedule_builders import iota, matmul, param, permute, shrink

from tilework.dtypes import DType, bfloat16, float16, float32
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory
from tilework.schedule.passes.narrow import round_sources


def rounded(x: Node, dtype: DType = bfloat16) -> Node:
    return math.CAST(x, attrs=math.CastAttrs(dtype))


def part(x: Node, number: int) -> Node:
    return shrink(x, (0, 32), (16 * number, 16 * number + 16))


def made() -> Node:
    return matmul(param(0, (32, 8)), param(1, (8, 32)))


def test_parts_of_a_product_are_parts_of_the_rounded_product() -> None:
    x = made()
    function = round_sources(memory.SINK(rounded(part(x, 0)), rounded(part(x, 1))))
    assert function is memory.SINK(part(rounded(x), 0), part(rounded(x), 1))


def test_what_is_turned_after_it_was_parted_is_rounded_once() -> None:
    x = made()
    function = round_sources(memory.SINK(rounded(permute(part(x, 0), 1, 0)), rounded(part(x, 1))))
    assert [node.src[0] for node in toposort(function) if node.op is math.CAST] == [x]


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param(lambda: [rounded(permute(made(), 1, 0))], id="turned"),
        pytest.param(lambda: [rounded(part(param(0, (32, 32)), 0))], id="in memory"),
        pytest.param(lambda: [rounded(part(iota((32, 32), 1, float32), 0))], id="of positions"),
        pytest.param(lambda: [rounded(part(made(), 0)), part(made(), 1)], id="needed as it is"),
        pytest.param(lambda: [rounded(part(made(), 0)), made()], id="asked for"),
        pytest.param(
            lambda: [rounded(part(made(), 0)), rounded(part(made(), 1), float16)], id="two dtypes"
        ),
    ],
)
def test_other_values_are_left_alone(outputs: Callable[[], list[Node]]) -> None:
    function = memory.SINK(*outputs())
    assert round_sources(function) is function
