"""Folds of a product of three factors, read from a sum of two of them that is there already.

The gradient of softmax subtracts, in each row i, the sum over j of what arrives at the weights
times the weights.  What arrives is a product itself, of g and the values:

    sum over j of w_ij (sum over d of g_id v_dj)  =  sum over d of g_id (sum over j of w_ij v_dj)

and the sum on the right is what the forward pass has computed.  Read from there, the fold takes a
row of g and one of the results, and no product.  Nothing is known by name: both sums of products
have one factor in common, and what else is folded is the other factor of the result.

Numbers: the same sums in another order, without the roundings of weights, and of what arrives at
them, that the fold had.  Where the results are kept rounded and not otherwise, those are read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.ir.build import cast, const_bits
from tilework.ir.node import make, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.schedule.passes.cost import is_contraction, rounds
from tilework.schedule.passes.prepare import numel
from tilework.schedule.passes.variation import varying_axes
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Shape
    from tilework.schedule.schedule import Limits

#: How many factors of a product are looked at, and how deep for axes along which they differ.
_FUEL = 24


def read_results(function: Node, limits: Limits) -> Node:
    """TENSOR -> TENSOR, with folds of large products read from results that are there already.

    Args:
        function: what is to be computed.
        limits: from how many bytes on products are not stored, on which devices.

    Ensures: values that differ by the roundings of their sums.
    """
    order = toposort(function)
    kinds = {kind_of(node.attrs.device) for node in order if node.op is memory.PARAM}
    least = dict(limits.recomputed_from)
    if not kinds or not kinds <= least.keys():
        return function
    found = _Search(order, max(least[kind] for kind in kinds)).found()
    if not found:
        return function
    done: dict[Node, Node] = {}
    for node in order:
        source = found.get(node, node)
        if source is not node:
            # What takes its place is computed from nodes that come before it.
            done[node] = _rebuilt(source, done)
            continue
        src = tuple([done[each] for each in node.src])
        done[node] = node if src == node.src else make(node.op, src, node.attrs)
    return done[function]


def _rebuilt(root: Node, done: dict[Node, Node]) -> Node:
    for node in toposort(root):
        if node not in done:
            src = tuple([done[each] for each in node.src])
            done[node] = node if src == node.src else make(node.op, src, node.attrs)
    return done[root]


@dataclass(slots=True)
class _Factors:
    """What a product multiplies.

    Attributes:
        along: Factors that differ along an axis, each as often as it stands there.
        chosen: Conditions; elsewhere the product is 0.
        rows: Factors that are the same all along the axis: how often each multiplies, and divides.
        is_negative: Is it the negative of all that?
    """

    along: Counter[Node] = field(default_factory=Counter)
    chosen: set[Node] = field(default_factory=set)
    rows: dict[Node, int] = field(default_factory=dict)
    is_negative: bool = False


def _factors(root: Node, axis: int) -> _Factors | None:
    """The factors of a product, but for their roundings; None where there is no telling."""
    found = _Factors()
    stack = [(root, 1)]
    for _ in range(_FUEL):
        if not stack:
            return found
        node, power = stack.pop()
        if axis not in varying_axes(node, _FUEL):
            found.rows[node] = found.rows.get(node, 0) + power
        elif node.op is math.MUL:
            stack += [(node.src[1], power), (node.src[0], power)]
        elif node.op is math.FDIV:
            stack += [(node.src[1], -power), (node.src[0], power)]
        elif node.op is math.NEG:
            found.is_negative = not found.is_negative
            stack.append((node.src[0], power))
        elif _is_seen_through(node):
            stack.append((node.src[0], power))
        elif power < 0:
            return None
        elif node.op is math.WHERE and _is_zero(node.src[2]):
            found.chosen.add(node.src[0])
            stack.append((node.src[1], power))
        else:
            found.along[node] += 1
    return None


def _is_seen_through(node: Node) -> bool:
    """Is this its operand, perhaps rounded?"""
    if node.op is math.CAST:
        return node.src[0].type.dtype.is_float and node.type.dtype.is_float
    if node.op is tensor.RESHAPE:
        return bool(node.type.shape == node.src[0].type.shape)
    return node.op is tensor.DETACH


def _is_zero(node: Node) -> bool:
    return node.op is math.CONST and node.attrs.bits == 0


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum over one axis of products of `own` and `other`, found by its `other` factor."""

    node: Node
    axis: int
    own: Node
    other: Node


class _Search:
    """Looks for folds that results tell."""

    def __init__(self, order: list[Node], least: int) -> None:
        self.order = order
        self.least = least
        self.users: dict[Node, list[Node]] = {}
        #: Sums of products by each of their factors.
        self.sums: dict[Node, list[_Sum]] = {}
        for node in order:
            for source in dict.fromkeys(node.src):
                self.users.setdefault(source, []).append(node)
            for each in _sums_in(node):
                self.sums.setdefault(each.other, []).append(each)

    def found(self) -> dict[Node, Node]:
        """For each such fold what takes its place."""
        if not any(len(each) > 1 for each in self.sums.values()):
            return {}
        found: dict[Node, Node] = {}
        for node in self.order:
            value = self._read(node)
            if value is not None:
                found[node] = value
        return found

    def _read(self, fold: Node) -> Node | None:
        if fold.op is not tensor.REDUCE or fold.attrs.fold is not Fold.ADD:
            return None
        if len(fold.attrs.axes) != 1 or is_contraction(fold) or not fold.type.dtype.is_float:
            return None
        (axis,) = fold.attrs.axes
        parts = _factors(fold.src[0], axis)
        if parts is None:
            return None
        arriving = [node for node in parts.along if self._is_large(node)]
        for first in [each for node in arriving for each in _sums_in(node)]:
            for result in self.sums[first.other]:
                value = self._matched(fold, parts, first, result)
                if value is not None:
                    return value
        return None

    def _is_large(self, node: Node) -> bool:
        """Is this so large that it would not be stored?"""
        if not all(isinstance(size, int) for size in node.type.shape):
            return False
        return numel(node) * node.type.dtype.itemsize >= self.least

    def _matched(self, fold: Node, parts: _Factors, first: _Sum, result: _Sum) -> Node | None:
        """The fold of `parts`, one of which is `first`, by a result that sums over its axis."""
        (axis,) = fold.attrs.axes
        # Both have the axes of their products but one.
        if result.axis != axis + (first.axis <= axis) or result.axis == first.axis:
            return None
        if result.node.type.dtype is not fold.type.dtype is not first.node.type.dtype:
            return None
        weight = _without_axis(result.own, first.axis)
        row = _without_axis(first.own, result.axis)
        if weight is None or row is None or weight.type.shape != fold.src[0].type.shape:
            return None
        known = _factors(weight, axis)
        if known is None or known.chosen != parts.chosen:
            return None
        if parts.along != known.along + Counter([first.node]):
            return None
        mixed = self._as_kept(result.node)
        at = first.axis - (result.axis < first.axis)
        product = math.MUL(row, mixed)
        total = make(tensor.REDUCE, (product,), tensor.ReduceAttrs(Fold.ADD, (at,)))
        return _with_rows(total, parts, known, axis) if total.type == fold.type else None

    def _as_kept(self, result: Node) -> Node:
        """A result, rounded if all that read it do so alike."""
        kept: set[DType] = set()
        stack = [result]
        while stack:
            node = stack.pop()
            users = self.users.get(node, [])
            for user in users:
                if rounds(user):
                    kept.add(user.type.dtype)
                elif _is_seen_through(user) and user.op is not math.CAST:
                    stack.append(user)
                else:
                    return result
        return cast(cast(result, kept.pop()), result.type.dtype) if len(kept) == 1 else result


def _sums_in(node: Node) -> list[_Sum]:
    """A sum of products over one axis, with either factor as the other one; [] for other nodes."""
    if node.op is not tensor.REDUCE or not is_contraction(node) or node.src[0].op is not math.MUL:
        return []
    if len(node.attrs.axes) != 1:
        return []
    (axis,) = node.attrs.axes
    x, y = node.src[0].src
    return [_Sum(node, axis, x, y), _Sum(node, axis, y, x)]


def _without_axis(node: Node, axis: int) -> Node | None:
    """A value that is repeated along an axis, without it; None if it is not."""
    if node.op is math.CAST:
        inner = _without_axis(node.src[0], axis)
        return None if inner is None else cast(inner, node.type.dtype)
    shape = _dropped(node.type.shape, axis)
    if node.op is math.CONST:
        return const_bits(node.attrs.bits, node.attrs.dtype, shape)
    if node.op is not tensor.EXPAND or node.src[0].type.shape[axis] != 1:
        return None
    source = node.src[0]
    short = _dropped(source.type.shape, axis)
    while source.op is tensor.RESHAPE and source.type.shape != short:
        source = source.src[0]
    if source.type.shape != short:
        source = make(tensor.RESHAPE, (node.src[0],), tensor.ShapeAttrs(short))
    if short == shape:
        return source
    return make(tensor.EXPAND, (source,), tensor.ShapeAttrs(shape))


def _dropped(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _with_rows(total: Node, parts: _Factors, known: _Factors, axis: int) -> Node | None:
    """A sum with the factors of its rows that the result does not have already."""
    powers = dict(parts.rows)
    for node, power in known.rows.items():
        powers[node] = powers.get(node, 0) - power
    for node, power in powers.items():
        if not power:
            continue
        factor = _without_axis(node, axis)
        if factor is None:
            return None
        for _ in range(abs(power)):
            total = (math.MUL if power > 0 else math.FDIV)(total, factor)
    return math.NEG(total) if parts.is_negative != known.is_negative else total
