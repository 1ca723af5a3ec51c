"""Values that their rounding holds exactly are read from it, so that they are stored once.

Gradients of queries, keys and values in 16 bits are put side by side in float32, for a product that
reads them in 16 bits again, and for a sum over rows that reads them as they are.  Each element is
one of 16 bits, so the sum may read those: the float32 array is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.ir.node import make, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.schedule.passes.cost import rounds
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: Along each axis, between which places elements may be other than 0.
_Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Exact:
    """A value whose elements are all of a narrower dtype.

    Attributes:
        dtype: The narrower one.
        region: Where elements may be other than 0; None for everywhere.
        is_computed: Is it more than a moved array of that dtype?
    """

    dtype: DType
    region: _Region | None
    is_computed: bool


def read_roundings(function: Node, kinds: tuple[str, ...]) -> Node:
    """TENSOR -> TENSOR, with what its rounding holds exactly read from there.

    Args:
        function: what is to be computed.
        kinds: kinds of devices for which it is done.

    Ensures: equal values, bit for bit, but for what NaN says besides being one.
    """
    order = toposort(function)
    params = [node for node in order if node.op is memory.PARAM]
    if any(kind_of(node.attrs.device) not in kinds for node in params):
        return function
    exact: dict[Node, _Exact] = {}
    for node in order:
        found = _exact(node, exact)
        if found is not None:
            exact[node] = found
    readers: dict[Node, list[Node]] = {}
    for node in order:
        for source in dict.fromkeys(node.src):
            if source in exact and exact[source].is_computed:
                readers.setdefault(source, []).append(node)
    #: Values and the roundings that others read instead.
    kept: dict[Node, Node] = {}
    for value, users in readers.items():
        for user in users:
            if rounds(user) and user.type.dtype is exact[value].dtype and len(users) > 1:
                kept[value] = user
    return _rewritten(order, kept) if kept else function


def _rewritten(order: list[Node], kept: dict[Node, Node]) -> Node:
    done: dict[Node, Node] = {}
    for node in order:
        src = []
        for source in node.src:
            rounding = kept.get(source)
            if rounding is None or rounds(node) or node.op in MOVEMENT or node.op is math.ADD:
                src.append(done[source])
            else:
                new = make(math.CAST, (done[source],), rounding.attrs)
                src.append(math.CAST(new, attrs=math.CastAttrs(source.type.dtype)))
        done[node] = node if tuple(src) == node.src else make(node.op, tuple(src), node.attrs)
    return done[order[-1]]


def _exact(node: Node, exact: dict[Node, _Exact]) -> _Exact | None:
    """What is known of a node, given what is known of its operands."""
    if node.op is math.CAST:
        source, target = node.src[0].type.dtype, node.type.dtype
        is_float = source.is_float and target.is_float
        if not is_float or source.itemsize != 2 or target.itemsize <= source.itemsize:
            return None
        return _Exact(source, None, False)
    known = [exact.get(source) for source in node.src[:2]]
    if node.op is math.ADD:
        first, second = known
        if first is None or second is None or first.dtype is not second.dtype:
            return None
        if not _are_apart(first.region, second.region):
            return None
        return _Exact(first.dtype, _hull(first.region, second.region), True)
    if node.op not in MOVEMENT or not known or known[0] is None:
        return None
    return _Exact(known[0].dtype, _moved(node, known[0].region), known[0].is_computed)


def _moved(node: Node, region: _Region | None) -> _Region | None:
    sizes = [size for size in node.src[0].type.shape if isinstance(size, int)]
    if node.op is tensor.PAD and len(sizes) == len(node.attrs.pads):
        whole = region or tuple((0, size) for size in sizes)
        pads = [before for before, _ in node.attrs.pads if isinstance(before, int)]
        if len(pads) < len(sizes):
            return None
        pairs = zip(whole, pads, strict=True)
        return tuple((low + before, high + before) for (low, high), before in pairs)
    if node.op is tensor.PERMUTE and region is not None:
        return tuple(region[axis] for axis in node.attrs.axes)
    results = [size for size in node.type.shape if isinstance(size, int)]
    is_fixed = len(sizes) == len(node.src[0].type.shape) and len(results) == len(node.type.shape)
    if node.op is tensor.RESHAPE and region is not None and is_fixed and 0 not in sizes:
        return _merged(sizes, region, results)
    return None


def _merged(sizes: list[int], region: _Region, results: list[int]) -> _Region | None:
    """The region where neighbouring axes become one; None where an axis becomes several."""
    found: list[tuple[int, int]] = []
    axis = 0
    for result in results:
        low, last, size = 0, 0, 1
        while axis < len(sizes) and size < result:
            low = low * sizes[axis] + region[axis][0]
            last = last * sizes[axis] + region[axis][1] - 1
            size *= sizes[axis]
            axis += 1
        if size != result:
            return None
        found.append((low, last + 1))
    return tuple(found) if all(size == 1 for size in sizes[axis:]) else None


def _are_apart(first: _Region | None, second: _Region | None) -> bool:
    """Is one of two elements always 0?"""
    if first is None or second is None:
        return False
    pairs = zip(first, second, strict=True)
    return any(high <= other or top <= low for (low, high), (other, top) in pairs)


def _hull(first: _Region | None, second: _Region | None) -> _Region | None:
    if first is None or second is None:
        return None
    pairs = zip(first, second, strict=True)
    return tuple((min(low, other), max(high, top)) for (low, high), (other, top) in pairs)
