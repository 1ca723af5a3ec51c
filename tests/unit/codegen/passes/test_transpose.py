"""Blocks of vectors are transposed by shuffles."""

from typing import Any

import numpy as np
import pytest

from tilework import Tensor
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


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int8, np.int32])
@pytest.mark.parametrize("shape", [(64, 64), (37, 100), (3, 50, 70), (16, 17), (5, 300)])
def test_transposed_rows_may_be_read_backward(shape: tuple[int, ...], kind: Any) -> None:
    x = (np.random.default_rng(1).standard_normal(shape) * 50).astype(kind)
    for turns in (1, 3):
        found = Tensor(x).rot90(turns, (-2, -1)).contiguous().numpy()
        assert found.tobytes() == np.rot90(x, turns, (-2, -1)).tobytes()
    found = Tensor(x).flip(-1, -2).transpose(-1, -2).contiguous().numpy()
    assert found.tobytes() == x[..., ::-1, ::-1].swapaxes(-1, -2).tobytes()
