"""Folds of vectors whose elements the target cannot compute with as vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.fold import combine
from tilework.ir.ops.control import EXTRACT, LaneAttrs

if TYPE_CHECKING:
    from tilework.ir.node import Node


def fold_one_by_one(node: Node) -> Node:
    """FOLD_LANES on scalars: lane i with lane i + n/2, then on with n/2 lanes."""
    vector, fold = node.src[0], node.attrs.fold
    lanes = [EXTRACT(vector, attrs=LaneAttrs(i)) for i in range(vector.shape[0])]
    while len(lanes) > 1:
        half = len(lanes) // 2
        rest = lanes[2 * half :]
        lanes = [combine(fold, lanes[i], lanes[i + half]) for i in range(half)] + rest
    return lanes[0]
