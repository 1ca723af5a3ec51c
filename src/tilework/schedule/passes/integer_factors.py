"""Float values that are small integers times factors: dequantised numbers, and parts of such.

    float(int32(x) - point) * scale        float(x) * scale        pad(float(x) - 3)

A factor is kept thin: an axis along which it does not vary has the size 1.  Movement moves the
integers and, where it concerns them, the factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tilework.dtypes import decode, float32, float64, int8, int32, uint8
from tilework.ir.build import cast
from tilework.ir.node import make
from tilework.ir.ops import math, tensor
from tilework.schedule.passes.movement import MOVEMENT, axis_groups
from tilework.schedule.passes.slices import between
from tilework.schedule.passes.variation import varying_axes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Shape

_NARROW: Final = frozenset({int8, uint8})
_FLOATS: Final = frozenset({float32, float64})
#: Integers up to here are exact in every float that counts.
_EXACT: Final = 1 << 24
_FUEL: Final = 24


class Scaled(NamedTuple):
    """A value: integers times factors.

    Attributes:
        integer: The integers as int32, in the shape of the value.
        low: None of them is smaller.
        high: None of them is greater.
        is_narrow: Whether they come from bytes, and are not literals alone.
        factors: What they are multiplied by one after the other; of equal rank, thin.
    """

    integer: Node
    low: int
    high: int
    is_narrow: bool = True
    factors: tuple[Node, ...] = ()

    @property
    def greatest(self) -> int:
        """The greatest magnitude."""
        return max(abs(self.low), abs(self.high))


class IntegerFactors:
    """What is known of the values of a function, each of which is looked at after its sources."""

    def __init__(self) -> None:
        self._known: dict[Node, Scaled] = {}

    def of(self, node: Node) -> Scaled | None:
        """A value as integers times factors; None if it is no such."""
        return self._known.get(node)

    def look_at(self, node: Node) -> None:
        """Remember a value that is integers times factors."""
        dtype = node.type.dtype
        if dtype in _NARROW or not (dtype in _FLOATS or dtype.is_integer):
            return
        if 0 in node.type.shape:  # no element that a thin factor could be taken from
            return
        found = self._found(node)
        if found is None:
            return
        if not found.factors and not _fits(found, dtype):
            return
        self._known[node] = found

    def _found(self, node: Node) -> Scaled | None:
        op = node.op
        if op is math.CONST:
            return _literal(node)
        if op is math.CAST:
            return self._cast(node)
        if op is math.ADD or op is math.SUB:
            return self._sum(node)
        if op is math.MUL:
            return self._product(node)
        if op in MOVEMENT and (source := self.of(node.src[0])) is not None:
            return _moved(node, source)
        return None

    def _cast(self, node: Node) -> Scaled | None:
        source = node.src[0]
        dtype = source.type.dtype
        if dtype in _NARROW:
            return Scaled(cast(source, int32), dtype.minimum, dtype.maximum)
        return self.of(source) if dtype.is_integer else None

    def _sum(self, node: Node) -> Scaled | None:
        """Sums of integers alone: those are exact in floats too."""
        first, second = (self.of(source) for source in node.src)
        if first is None or second is None or first.factors or second.factors:
            return None
        integer = make(node.op, (first.integer, second.integer), None)
        is_narrow = first.is_narrow or second.is_narrow
        if node.op is math.ADD:
            low, high = first.low + second.low, first.high + second.high
        else:
            low, high = first.low - second.high, first.high - second.low
        return Scaled(integer, low, high, is_narrow)

    def _product(self, node: Node) -> Scaled | None:
        """Integers times one factor more."""
        if not node.type.dtype.is_float:
            return None
        first, second = (self._narrow(source) for source in node.src)
        if (first is None) == (second is None):
            return None
        source = first or second
        factor = _thin(node.src[1] if second is None else node.src[0])
        return source and source._replace(factors=(*source.factors, factor))

    def _narrow(self, node: Node) -> Scaled | None:
        found = self.of(node)
        return found if found is not None and found.is_narrow else None


def _fits(found: Scaled, dtype: DType) -> bool:
    """Are the integers exact in a dtype, and do sums of two of them fit their own?"""
    if found.greatest > _EXACT:
        return False
    return dtype.is_float or (dtype.minimum <= found.low and found.high <= dtype.maximum)


def _literal(node: Node) -> Scaled | None:
    dtype = node.type.dtype
    value = decode(node.attrs.bits, dtype)
    if not abs(value) <= _EXACT or value != int(value):
        return None
    whole = int(value)
    attrs = math.ConstAttrs(whole & 0xFFFF_FFFF, int32, node.type.shape)
    return Scaled(math.CONST(attrs=attrs), whole, whole, is_narrow=False)


def _thin(node: Node) -> Node:
    """One element along each axis along which a value does not vary."""
    varying = varying_axes(node, _FUEL)
    for axis, size in enumerate(node.type.shape):
        if axis not in varying and size != 1:
            node = between(node, axis, 0, 1)
    return node


# --- movement ------------------------------------------------------------------------------------


def _moved(node: Node, source: Scaled) -> Scaled | None:
    """The integers moved, and the factors; None where factors would no longer be constant."""
    factors = []
    for factor in source.factors:
        moved = _MOVED[node.op](node, factor)
        if moved is None:
            return None
        factors.append(moved)
    integer = make(node.op, (source.integer,), node.attrs)
    low, high = source.low, source.high
    if node.op is tensor.PAD or node.op is tensor.UNWINDOW:
        low, high = min(low, 0), max(high, 0)
    return Scaled(integer, low, high, source.is_narrow, tuple(factors))


def _reshaped(node: Node, factor: Node) -> Node:
    shape, old = node.type.shape, node.src[0].type.shape
    thin: list[object] = [1] * len(shape)
    wide: list[object] = [1] * len(old)
    for group, source_group in axis_groups(shape, old):
        if any(factor.type.shape[axis] != 1 for axis in source_group):
            for axis in group:
                thin[axis] = shape[axis]
            for axis in source_group:
                wide[axis] = old[axis]
    return _as_shape(expanded(factor, tuple(wide)), tuple(thin))  # type: ignore[arg-type]


def _as_shape(node: Node, shape: Shape) -> Node:
    if node.type.shape == shape:
        return node
    return tensor.RESHAPE(node, attrs=tensor.ShapeAttrs(shape))


def expanded(node: Node, shape: Shape) -> Node:
    """Axes of size 1 repeated to the sizes of a shape; the value itself where nothing is."""
    if node.type.shape == shape:
        return node
    return tensor.EXPAND(node, attrs=tensor.ShapeAttrs(shape))


def _permuted(node: Node, factor: Node) -> Node:
    return tensor.PERMUTE(factor, attrs=node.attrs)


def _same(node: Node, factor: Node) -> Node:
    return factor


def _padded(node: Node, factor: Node) -> Node | None:
    """A place outside holds the integer 0, so that its factor is anyone's."""
    for size, pair in zip(factor.type.shape, node.attrs.pads, strict=True):
        if size != 1 and pair != (0, 0):
            return None
    return factor


def _shrunk(node: Node, factor: Node) -> Node:
    bounds = tuple(
        (0, 1, 1) if size == 1 else kept
        for size, kept in zip(factor.type.shape, node.attrs.bounds, strict=True)
    )
    if all(size == 1 for size in factor.type.shape):
        return factor
    return tensor.SHRINK(factor, attrs=tensor.ShrinkAttrs(bounds))


def _flipped(node: Node, factor: Node) -> Node:
    axes = tuple(axis for axis in node.attrs.axes if factor.type.shape[axis] != 1)
    return tensor.FLIP(factor, attrs=tensor.AxesAttrs(axes)) if axes else factor


def _windowed(node: Node, factor: Node) -> Node | None:
    axis, shape = node.attrs.axis, factor.type.shape
    return _as_shape(factor, (*shape[:axis], 1, *shape[axis:])) if shape[axis] == 1 else None


def _unwindowed(node: Node, factor: Node) -> Node | None:
    return factor if factor.type.shape[node.attrs.axis] == 1 else None


_MOVED: Final[dict[object, Callable[[Node, Node], Node | None]]] = {
    tensor.RESHAPE: _reshaped,
    tensor.PERMUTE: _permuted,
    tensor.EXPAND: _same,
    tensor.PAD: _padded,
    tensor.SHRINK: _shrunk,
    tensor.FLIP: _flipped,
    tensor.WINDOW: _windowed,
    tensor.UNWINDOW: _unwindowed,
}
