"""Register transposes: vectors along one range made of vectors along another, by shuffles.

A block of `count` rows of `lanes` elements is cut into segments of rows, each as long as a power of
two; the last segment reaches back over the one before where they do not fit.  A segment is made of
squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops.control import SHUFFLE, ShuffleAttrs

if TYPE_CHECKING:
    from tilework.ir.node import Node


def segments(count: int, lanes: int) -> tuple[int, list[int]]:
    """The length of the segments that cover `count` rows, and where they start."""
    length = lanes
    while length > count:
        length //= 2
    starts = list(range(0, count - length + 1, length))
    if starts[-1] + length < count:
        starts.append(count - length)
    return length, starts


def transpose(vectors: list[Node]) -> list[Node]:
    """The columns of n vectors of m lanes, as m vectors of n lanes; n and m are powers of two."""
    count, lanes = len(vectors), vectors[0].type.lanes
    if count < lanes:
        # Blocks of the rows side by side, each a square.
        result: list[Node] = []
        for start in range(0, lanes, count):
            picked = tuple(range(start, start + count))
            result += _square([_shuffle(row, row, picked) for row in vectors])
        return result
    if count > lanes:
        squares = [_square(vectors[at : at + lanes]) for at in range(0, count, lanes)]
        while len(squares) > 1:
            pairs = zip(squares[::2], squares[1::2], strict=True)
            squares = [[_joined(*rows) for rows in zip(*pair, strict=True)] for pair in pairs]
        return squares[0]
    return _square(vectors)


def _square(vectors: list[Node]) -> list[Node]:
    """A square of vectors transposed: blocks are exchanged across the diagonal, halving their size.

    Step d swaps, in every pair of rows d apart, the lanes whose bit d is set in the upper row with
    those whose bit is clear in the lower one.
    """
    size = len(vectors)
    rows = list(vectors)
    step = size // 2
    while step:
        upper = tuple(i if not i & step else size + i - step for i in range(size))
        lower = tuple(i + step if not i & step else size + i for i in range(size))
        for row in range(size):
            if not row & step:
                x, y = rows[row], rows[row + step]
                rows[row] = _shuffle(x, y, upper)
                rows[row + step] = _shuffle(x, y, lower)
        step //= 2
    return rows


def _joined(x: Node, y: Node) -> Node:
    return _shuffle(x, y, tuple(range(2 * x.type.lanes)))


def _shuffle(x: Node, y: Node, lanes: tuple[int, ...]) -> Node:
    return SHUFFLE(x, y, attrs=ShuffleAttrs(lanes))
