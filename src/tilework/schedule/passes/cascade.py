"""Cascades: a sum of products one factor of which is computed from folds along the summed axis.

Attention is one: the scores' maximum, the sum of what exp makes of them, and the product with the
values all run along the keys.  Stored, scores and weights would cross memory several times, and
are larger than all that goes in and out.  In one kernel they stay in the memory of a tile of rows,
which code generation sees to.  Nothing is known by name: indices are traced from the product to
what it is computed from, and everything that depends on one position along the summed axis must
depend on the same one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import make
from tilework.ir.ops import math, tensor
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.symbolic.simplify import TRUE
from tilework.schedule.passes.cost import is_contraction, product_of
from tilework.schedule.passes.kernel_graph import leaves_in
from tilework.schedule.passes.movement import MOVEMENT, ZERO, source_index
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.passes.variation import varying_axes
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Dim
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.passes.prepare import Layout
    from tilework.schedule.schedule import Limits

#: How many values are traced from a product.
_FUEL = 96
#: Fewer rows than this, or shorter ones, are not worth a tile.
_LEAST_ROWS, _LEAST_LENGTH = 8, 16
#: The fewest rows, and columns, for which a matrix register pays.
_LEAST_REGISTER = 16
#: Elements of 16 bits of which rows of a matrix unit's operands are made, and the most of them.
_MATRIX_COLUMNS, _MOST_MATRIX_COLUMNS, _MATRIX_BYTES = 8, 256, 2
#: Where running values cannot be had, longer rows would take too much memory of a thread.
_MOST_LENGTH = 1 << 17


def find_cascades(
    layout: Layout, limits: Limits, others: frozenset[Node] = frozenset()
) -> dict[Node, Node]:
    """For each value that is computed inside of a cascade: the sum of products that ends it.

    Args:
        layout: The function's buffers.
        limits: On which kinds of devices cascades are looked for, and which compute them by matrix
            instructions alone: both factors have 16 bits, and columns fill rows of their slots.
        others: Sums of products that are known to be none.
    """
    found: dict[Node, Node] = {}
    for node in layout.order:
        if node in others or not is_contraction(node):
            continue
        kind = kind_of(layout.device.get(node, ""))
        by_matrix_units = kind not in limits.cascades_on
        suits = kind in limits.matrix_units_on and _suits_matrix_units(node, node.type.shape[-1])
        if by_matrix_units and not suits:
            continue
        for factor in product_of(node).src:
            trace = _Trace(layout, node)
            inside = trace.inside(factor)
            if by_matrix_units and not _has_scores_for_matrix_units(trace.scores):
                continue
            if _stores_scores([*trace.scores, node], kind, limits):
                continue
            # What positions alone decide (which keys are seen) belongs to no cascade by itself.
            own = _computed_from(inside, {*trace.scores, *trace.folds})
            if own and found.keys().isdisjoint(own):
                found.update(dict.fromkeys(own, node))
                for other in inside:
                    found.setdefault(other, node)
    return found


def _has_scores_for_matrix_units(scores: list[Node]) -> bool:
    """Is there one product of scores, in operands of 16 bits?

    Of several, blocks of threads multiply with what folds of rows have given before, from memory.
    """
    return len(scores) == 1 and _suits_matrix_units(scores[0], _depth(scores[0]))


def _stores_scores(products: list[Node], kind: str, limits: Limits) -> bool:
    """Are products done faster one by one, by matrix registers, with what is between stored?"""
    for name, dtype, most in limits.scores_stored_on:
        if name == kind:
            sizes = [numel(product) * float32.itemsize for product in products]
            return max(sizes) <= most and all(_fills_registers(p, dtype) for p in products)
    return False


def _fills_registers(product: Node, dtype: str) -> bool:
    """Are both factors of this dtype, with rows of their own enough for a matrix register?"""
    axes: list[frozenset[int]] = []
    for factor in product_of(product).src:
        axes.append(varying_axes(factor, _FUEL))
        while factor.op in MOVEMENT:
            factor = factor.src[0]
        if factor.op is not math.CAST or factor.src[0].type.dtype.name != dtype:
            return False
    shape = product.src[0].type.shape
    for own in (axes[0] - axes[1], axes[1] - axes[0]):
        extents = [extent for axis in own if isinstance(extent := shape[axis], int)]
        if max(extents, default=1) < _LEAST_REGISTER:
            return False
    return True


def _computed_from(nodes: list[Node], roots: set[Node]) -> list[Node]:
    """Those of `nodes` that are computed from one of `roots`, which are among them."""
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for source in node.src:
            users.setdefault(source, []).append(node)
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += users.get(node, ())
    return [node for node in nodes if node in found]


def _depth(node: Node) -> Dim:
    """How many products a sum adds up along its axis; of several axes, its columns stand for it."""
    shape = node.src[0].type.shape
    summed = [shape[axis] for axis in node.attrs.axes if shape[axis] != 1]
    return summed[0] if len(summed) == 1 else node.type.shape[-1]


def _suits_matrix_units(node: Node, row: Dim) -> bool:
    """Are both factors of a sum of products 16 bits wide, in rows that are whole and not long?

    Args:
        node: The sum.
        row: The elements of a row.
    """
    if not _fills_rows(row):
        return False
    for factor in product_of(node).src:
        while factor.op in MOVEMENT:
            factor = factor.src[0]
        if factor.op is not math.CAST or factor.src[0].type.dtype.itemsize != _MATRIX_BYTES:
            return False
    return True


def _fills_rows(size: Dim) -> bool:
    """Can a matrix unit's operands, or results, have rows of so many elements?"""
    return isinstance(size, int) and not size % _MATRIX_COLUMNS and 0 < size <= _MOST_MATRIX_COLUMNS


class _Trace:
    """What a factor of a sum of products is computed from, at which indices."""

    def __init__(self, layout: Layout, last: Node) -> None:
        self.layout = layout
        self.last = last
        self.length = 0
        self.sizes: list[int] = []
        self.key: Node = ZERO
        self.at: dict[Node, Index] = {}
        self.folds: list[Node] = []
        self.scores: list[Node] = []

    def inside(self, factor: Node) -> list[Node]:
        """The values to compute where the sum is; empty if this is no cascade."""
        index = self._start()
        if index is None or not self._walk(factor, index):
            return []
        if not self.folds or not self.scores or not self._has_rows():
            return []
        if any(self._gathers(product) for product in (*self.scores, self.last)):
            return []
        return list(self.at)

    def _start(self) -> Index | None:
        """An index of the product with one range for each axis; None if several are summed."""
        shape = [size for size in self.last.src[0].type.shape if isinstance(size, int)]
        if len(shape) != len(self.last.src[0].type.shape):
            return None
        summed = [axis for axis in self.last.attrs.axes if shape[axis] != 1]
        if len(summed) != 1:
            return None
        self.sizes = shape
        index: list[Node] = []
        for axis, size in enumerate(shape):
            wide = size != 1
            index.append(make(RANGE, (const_index(size),), RangeAttrs(axis)) if wide else ZERO)
        self.key = index[summed[0]]
        self.length = shape[summed[0]]
        if not _LEAST_LENGTH <= self.length <= _MOST_LENGTH:
            return None
        return tuple(index)

    def _walk(self, factor: Node, index: Index) -> bool:
        stack = [(factor, index)]
        while stack:
            node, at = stack.pop()
            known = self.at.get(node)
            if known is not None:
                if known != at:
                    return False  # needed at two positions: it would be computed twice
                continue
            if self._is_leaf(node):
                continue
            if len(self.at) >= _FUEL:
                return False
            sources = self._sources(node, at)
            if sources is None:
                return False
            self.at[node] = at
            stack.extend(sources)
        return True

    def _is_leaf(self, node: Node) -> bool:
        return not node.src or self.layout.in_memory(node) is not None

    def _sources(self, node: Node, at: Index) -> list[tuple[Node, Index]] | None:
        """What a value is computed from, and at which indices; None if that rules a cascade out."""
        if node.op in MOVEMENT:
            index, condition = source_index(node, at)
            return [(node.src[0], index)] if condition is TRUE else None
        if node.op in IDENTITY or node.op.elementwise:
            return [(source, at) for source in node.src]
        if node.op is not tensor.REDUCE:
            return None
        if self._depends(at):
            if not is_contraction(node):
                return None
            self.scores.append(node)
            return []
        shape = node.src[0].type.shape
        axes = [axis for axis in node.attrs.axes if shape[axis] != 1]
        if len(axes) != 1 or shape[axes[0]] != self.length:
            return None
        self.folds.append(node)
        kept = iter(at)
        reduced = node.attrs.axes
        position = [
            (self.key if axis == axes[0] else ZERO) if axis in reduced else next(kept)
            for axis in range(len(shape))
        ]
        return [(node.src[0], tuple(position))]

    def _depends(self, index: Index) -> bool:
        return any(self.key in leaves_in(part) for part in index)

    def _gathers(self, product: Node) -> bool:
        """Does a factor of a product look up its elements?  Then indices are checked beside it."""
        stack, seen = [product.src[0]], {product.src[0]}
        while stack and len(seen) <= _FUEL:
            node = stack.pop()
            if node.op is tensor.GATHER:
                return True
            if self._is_leaf(node) or node in self.at or node.op is tensor.REDUCE:
                continue
            for source in node.src:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return False

    def _has_rows(self) -> bool:
        """Do the scores vary along a row that the values know nothing of, with rows enough?"""
        rows = 1
        used: set[Node] = set()
        for fold in self.folds:
            for part in self.at[fold]:
                used.update(leaves_in(part))
        for range_ in used:
            rows *= self.sizes[int(range_.attrs.number)]
        wide = sum(size != 1 for size in self.sizes)
        # The product has a range of its own besides the rows' and the one that is summed.
        return rows >= _LEAST_ROWS and len(used) <= wide - 2
