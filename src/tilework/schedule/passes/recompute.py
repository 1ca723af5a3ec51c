"""Products that every kernel computes again, since stored they would be larger than all else.

A gradient of attention reads the scores in four sums of products, two of which fold them along the
other axis.  Stored, scores and weights are length x length, many times what goes in and out, and
cross memory once for each use.  Computed again, tile by tile, they cost products of short rows.
What must be known of a whole row first (its maximum, its sum of exponentials, the sum that the
gradient of softmax subtracts) is small: it is stored, and read by the kernels that compute scores
again.

Nothing is known by name.  From each sum of products that is much larger than its factors, all that
is computed from it element by element is followed.  If that ends in folds along one axis and in
further sums of products, and nobody asks for any of it in memory, none of it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.ir.node import make
from tilework.ir.ops import math, tensor
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic.dims import as_node
from tilework.schedule.passes.cost import is_contraction, product_of
from tilework.schedule.passes.kernel_graph import leaves_in
from tilework.schedule.passes.movement import MOVEMENT, ZERO, axis_groups, source_index
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.passes.variation import varying_axes
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.passes.prepare import Layout
    from tilework.schedule.schedule import Limits

#: Movement that changes no more than where an element lies, or repeats it.
_MOVED = frozenset((tensor.RESHAPE, tensor.PERMUTE, tensor.EXPAND))
#: Movement through which boxes are read.
_READ = _MOVED | {tensor.SHRINK}
#: What guards rows in which nothing takes part: a choice between numbers.
_CHOOSING = frozenset((math.WHERE, math.EQ, math.NE, math.LT, math.LE))
#: How often a sum of products must have the elements of its factors, and how long it may be.
_TIMES_LARGER, _MOST_DEPTH = 4, 256
#: Kernels that would read a value; with fewer, the rules for cascades do.
_LEAST_READERS = 2
_FUEL = 24
#: What rows of a matrix unit's operand are made of, and the bytes of an element.
_MATRIX_COLUMNS, _MATRIX_BYTES = 8, 2
#: The most columns for which registers hold the results of two sums.
_MOST_MATRIX_COLUMNS = 128


@dataclass(frozen=True, slots=True)
class Again:
    """What is computed again.

    Attributes:
        values: Computed in each kernel that needs them.
        folds: Folds of their rows, which are stored.
        ends: Sums of products of them that read the folds from memory, so are no cascades.
    """

    values: frozenset[Node] = frozenset()
    folds: frozenset[Node] = frozenset()
    ends: frozenset[Node] = frozenset()


@dataclass(slots=True)
class _Part:
    """Values that depend on each other, their folds, and the sums of products they end in."""

    scores: list[Node] = field(default_factory=list)
    values: set[Node] = field(default_factory=set)
    folds: list[Node] = field(default_factory=list)
    ends: list[Node] = field(default_factory=list)
    is_asked_for: bool = False

    def take(self, other: _Part) -> None:
        """Make `other` a part of this one."""
        self.scores += other.scores
        self.values |= other.values
        self.folds += other.folds
        self.ends += other.ends
        self.is_asked_for = self.is_asked_for or other.is_asked_for


def find_recomputed(layout: Layout, limits: Limits) -> Again:
    """The products of a function that are computed again, and what becomes of them.

    Args:
        layout: The function's buffers.
        limits: From how many bytes on, on which devices.
    """
    least = dict(limits.recomputed_from)
    if not least:
        return Again()
    parts = _Following(layout, least).parts()
    values: set[Node] = set()
    folds: set[Node] = set()
    ends: set[Node] = set()
    for part in parts:
        kind = kind_of(layout.device.get(part.scores[0], ""))
        on_matrix_units = kind in limits.matrix_units_on
        if not _is_worth_it(part) or (on_matrix_units and not _suits_matrix_units(part)):
            continue
        if on_matrix_units:
            _store_operands(part, layout)
            values |= _beside(part)
        values |= part.values | _of_folds(part, layout)
        folds.update(part.folds)
        ends.update(end for end in part.ends if not _is_weighted(end, part))
    return Again(frozenset(values), frozenset(folds), frozenset(ends))


def _beside(part: _Part) -> set[Node]:
    """What else is never stored: what products add up, and choices by positions alone.

    Many kernels read it at many indices, for which it would be stored otherwise.
    """
    found: set[Node] = set()
    for score in part.scores:
        count = numel(score.src[0])
        stack = [score.src[0]]
        while stack:
            node = stack.pop()
            is_light = node.op.elementwise or node.op in MOVEMENT or node.op in IDENTITY
            # Factors have fewer elements: whether they are stored is decided as always.
            if node not in found and is_light and numel(node) == count:
                found.add(node)
                stack += node.src
    for node in part.values:
        for source in node.src:
            if source not in part.values:
                found |= _of_positions(source)
    return found


def _of_folds(part: _Part, layout: Layout) -> set[Node]:
    """What choices and comparisons make of folds of rows: every kernel that has those does so.

    Stored by a kernel of its own, it would be read by the one that folds the rows.
    """
    found: set[Node] = set()
    known = set(part.folds)
    for node in layout.order:
        sources = [source for source in node.src if source.op is not math.CONST]
        is_light = node.op in _CHOOSING or node.op is tensor.RESHAPE
        if not is_light or not sources or not known.issuperset(sources):
            continue
        if node not in layout.memory and node not in layout.forced:
            known.add(node)
            found.add(node)
    return found


def _of_positions(root: Node) -> set[Node]:
    """What `root` is computed from, if that are comparisons and choices of positions alone."""
    found: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in found or node.op in (tensor.IOTA, math.CONST):
            continue
        is_cheap = node.op is math.WHERE or not node.type.dtype.is_float
        is_moved = node.op in MOVEMENT or node.op in IDENTITY
        if len(found) == _FUEL or not (is_moved or (node.op.elementwise and is_cheap)):
            return set()
        found.add(node)
        stack += node.src
    return found


class _Following:
    """Follows what is computed from sums of products."""

    def __init__(self, layout: Layout, least: dict[str, int]) -> None:
        self.layout = layout
        self.least = least
        self.part_of: dict[Node, _Part] = {}

    def parts(self) -> list[_Part]:
        """All parts."""
        for node in self.layout.order:
            known = [self.part_of[source] for source in node.src if source in self.part_of]
            if known:
                self._follow(node, self._joined(known))
            elif self._is_large(node):
                self.part_of[node] = _Part([node], {node})
                self.part_of[node].is_asked_for = self._is_stored(node)
        return list({id(part): part for part in self.part_of.values()}.values())

    def _joined(self, known: list[_Part]) -> _Part:
        first = known[0]
        for other in known[1:]:
            if other is not first:
                first.take(other)
                for node in other.values:
                    self.part_of[node] = first
        return first

    def _follow(self, node: Node, part: _Part) -> None:
        """Add what is computed from values of a part."""
        if node.op is tensor.REDUCE:
            (part.ends if is_contraction(node) else part.folds).append(node)
            return
        if node.op.elementwise or node.op in _MOVED or node.op in IDENTITY:
            part.values.add(node)
            self.part_of[node] = part
            part.is_asked_for = part.is_asked_for or self._is_stored(node)
            return
        part.is_asked_for = True

    def _is_stored(self, node: Node) -> bool:
        return node in self.layout.memory or node in self.layout.forced

    def _is_large(self, node: Node) -> bool:
        """Is this a sum of products of few factors, larger than them and than is stored gladly?"""
        kind = kind_of(self.layout.device.get(node, ""))
        if kind not in self.least or not is_contraction(node):
            return False
        source = node.src[0]
        if not all(isinstance(size, int) for size in source.type.shape):
            return False
        count = numel(node)
        if count * node.type.dtype.itemsize < self.least[kind]:
            return False
        if numel(source) > _MOST_DEPTH * count:
            return False
        factors = 0
        for factor in product_of(node).src:
            elements = 1
            for axis in varying_axes(factor, _FUEL):
                size = source.type.shape[axis]
                elements *= size if isinstance(size, int) else 1
            factors += elements
        return count >= _TIMES_LARGER * factors


def _is_worth_it(part: _Part) -> bool:
    """Do several sums of products need it, with folds of one axis?"""
    if part.is_asked_for or not part.folds:
        return False
    if sum(not _is_weighted(end, part) for end in part.ends) < _LEAST_READERS:
        return False
    lengths = set()
    for fold in part.folds:
        shape = fold.src[0].type.shape
        axes = [axis for axis in fold.attrs.axes if shape[axis] != 1]
        if len(axes) != 1:
            return False
        lengths.add((len(shape) - axes[0], shape[axes[0]]))
    return len(lengths) == 1


def _is_weighted(end: Node, part: _Part) -> bool:
    """Is this a sum weighted by an exponential, along the axis of the folds, over factors of rows?

    A cascade computes it in one pass, with no products besides those of its own.
    """
    for factor, index, key in _factors(end):
        if factor not in part.values:
            continue
        node, at = factor, index
        while node.op in _MOVED or node.op in IDENTITY or node.op in (math.CAST, math.FDIV):
            if node.op in _MOVED:
                at, _ = source_index(node, at)
            node = node.src[0]
        if node.op is not math.EXP:
            return False
        return all(
            not any(key in leaves_in(place) for place in where)
            for _, where in _folds_below(factor, index, part)
        )
    return False


def _factors(end: Node) -> list[tuple[Node, Index, Node]]:
    """The factors of a sum of products, at an index, and the range that is summed."""
    product = product_of(end)
    shape = product.type.shape
    index = tuple(
        ZERO if size == 1 else make(RANGE, (as_node(size),), RangeAttrs(axis))
        for axis, size in enumerate(shape)
    )
    summed = [index[axis] for axis in end.attrs.axes if shape[axis] != 1]
    return [(factor, index, summed[0]) for factor in product.src] if len(summed) == 1 else []


def _folds_below(root: Node, index: Index, part: _Part) -> list[tuple[Node, Index]]:
    """The folds that a value is computed from, and at which indices."""
    found: list[tuple[Node, Index]] = []
    seen: set[tuple[Node, Index]] = set()
    stack = [(root, index)]
    while stack:
        node, at = stack.pop()
        if (node, at) in seen:
            continue
        seen.add((node, at))
        if node in part.folds:
            found.append((node, at))
        elif node.op in MOVEMENT:
            stack.append((node.src[0], source_index(node, at)[0]))
        elif node.op.elementwise or node.op in IDENTITY:
            stack.extend((source, at) for source in node.src)
    return found


def _suits_matrix_units(part: _Part) -> bool:
    """Are all factors of products 16 bits wide, in whole rows, and weights one exponential?"""
    most = [fold for fold in part.folds if fold.attrs.fold is Fold.MAX]
    if len(most) != 1 or any(f.attrs.fold not in (Fold.MAX, Fold.ADD) for f in part.folds):
        return False
    if sum(node.op is math.EXP for node in part.values) != 1:
        return False
    for node in part.scores:
        depth = numel(node.src[0]) // numel(node)
        if not _fills_rows(depth) or None in map(_operand, product_of(node).src):
            return False
    return all(
        _fills_rows(_columns_of(node, part)) and None not in map(_operand, product_of(node).src)
        for node in part.ends
    )


def _store_operands(part: _Part, layout: Layout) -> None:
    """Have the 16 bits of all factors in memory: computed beside products they are no boxes."""
    for node in (*part.scores, *part.ends):
        for factor in product_of(node).src:
            operand = _operand(factor)
            if factor not in part.values and operand is not None:
                layout.force(operand, "an operand of matrix units, which several kernels read")


def _fills_rows(count: int) -> bool:
    return not count % _MATRIX_COLUMNS and 0 < count <= _MOST_MATRIX_COLUMNS


def _columns_of(end: Node, part: _Part) -> int:
    """The length of the one axis of a sum of products that its computed factor does not have."""
    product = product_of(end)
    shape = product.type.shape
    own: set[int] = set()
    for factor in product.src:
        if factor in part.values:
            own |= varying_axes(factor, _FUEL)
    columns = [size for axis, size in enumerate(shape) if axis not in own and size != 1]
    (found,) = columns if len(columns) == 1 else (0,)
    return found if isinstance(found, int) else 0


def _operand(factor: Node) -> Node | None:
    """The 16 bits that a factor is a wider copy of; None if there are none.

    Each range of the factor must be one axis of what is copied, since boxes of it are moved.
    """
    wide: Node | None = None
    while factor.op in _READ or factor.op in IDENTITY or factor.op is math.CAST:
        if factor.op is tensor.RESHAPE and not _keeps_axes(factor):
            return None
        if factor.op is tensor.SHRINK and not _is_whole(factor):
            break
        if factor.op is math.CAST:
            if wide is not None:
                break
            if factor.src[0].type.dtype.itemsize == _MATRIX_BYTES:
                wide = factor
        factor = factor.src[0]
    return None if wide is None else factor


def _keeps_axes(node: Node) -> bool:
    """Does a reshape keep the last two axes that have several elements: lines and rows?

    Or does it only divide axes (columns into heads)?  Then each new axis is a part of an old one.
    """
    shape, source = node.type.shape, node.src[0].type.shape
    after, before = ([size for size in sizes if size != 1] for sizes in (shape, source))
    return before[-2:] == after[-2:] or all(len(old) == 1 for _, old in axis_groups(shape, source))


def _is_whole(node: Node) -> bool:
    """Does a part of an array start at, and have, whole rows of a matrix unit's operand?"""
    sizes = (node.attrs.bounds[-1][0], node.src[0].type.shape[-1])
    steps = {step for _, _, step in node.attrs.bounds}
    return steps == {1} and all(isinstance(n, int) and n % _MATRIX_COLUMNS == 0 for n in sizes)
