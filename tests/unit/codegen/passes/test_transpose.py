"""Blocks of vectors are transposed by shuffles."""

import pytest

from tilework.codegen.passes.transpose import segments, transpose
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops.control import SHUFFLE
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, LoadAttrs, ParamAttrs


def vectors(count: int, lanes: int) -> list[Node]:
    buffer = PARAM(attrs=ParamAttrs(0, (count * lanes,), float32))
    return [
        LOAD(INDEX(buffer, const_index(row * lanes)), attrs=LoadAttrs(lanes))
        for row in range(count)
    ]


def lanes_of(node: Node, known: dict[Node, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Which (row, lane) each lane of a vector holds."""
    if node in known:
        return known[node]
    assert node.op is SHUFFLE
    both = [*lanes_of(node.src[0], known), *lanes_of(node.src[1], known)]
    return [both[lane] for lane in node.attrs.lanes]


@pytest.mark.parametrize(("count", "lanes"), [(4, 4), (16, 16), (8, 16), (4, 16), (16, 4), (2, 8)])
def test_columns_become_vectors(count: int, lanes: int) -> None:
    rows = vectors(count, lanes)
    known = {row: [(i, lane) for lane in range(lanes)] for i, row in enumerate(rows)}
    columns = [lanes_of(column, known) for column in transpose(rows)]
    assert columns == [[(i, lane) for i in range(count)] for lane in range(lanes)]


@pytest.mark.parametrize(
    ("count", "lanes", "expected"),
    [(16, 16, (16, [0])), (14, 16, (8, [0, 6])), (6, 16, (4, [0, 2])), (20, 8, (8, [0, 8, 12]))],
)
def test_segments_cover_rows_and_reach_back_at_the_end(
    count: int, lanes: int, expected: tuple[int, list[int]]
) -> None:
    assert segments(count, lanes) == expected
