"""Short ways to build nodes: literals, casts and the like."""

from __future__ import annotations

from functools import lru_cache
from math import copysign
from typing import TYPE_CHECKING, Final

from tilework.dtypes import encode, index
from tilework.ir.ops.math import BITCAST, CAST, CONST, CastAttrs, ConstAttrs

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Shape


def const(value: float | int | bool, dtype: DType, shape: Shape = ()) -> Node:
    """The literal `value` in `dtype`, for every element of `shape`."""
    # Numbers that are equal have one encoding but for -0.0, and NaN equals nothing.
    if value == value if value else copysign(1.0, value) > 0:
        return _known(value, dtype, shape)
    return CONST(attrs=ConstAttrs(encode(value, dtype), dtype, shape))


@lru_cache(maxsize=1024)
def _known(value: float | int | bool, dtype: DType, shape: Shape) -> Node:
    """A literal; whether the number comes as a bool, an integer or a float makes no difference."""
    return CONST(attrs=ConstAttrs(encode(value, dtype), dtype, shape))


def const_bits(bits: int, dtype: DType, shape: Shape = ()) -> Node:
    """The literal with these bits."""
    return CONST(attrs=ConstAttrs(bits, dtype, shape))


def const_index(value: int) -> Node:
    """An integer of index arithmetic."""
    found = _small.get(value)
    if found is None:
        found = CONST(attrs=ConstAttrs(value & 0xFFFF_FFFF_FFFF_FFFF, index))
        if -_MOST_SMALL < value < _MOST_SMALL:
            _small[value] = found
    return found


#: Small integers of index arithmetic, which are asked for all the time.
_small: Final[dict[int, Node]] = {}
_MOST_SMALL: Final = 1024


def const_like(value: float | int | bool, node: Node) -> Node:
    """The literal `value` in the dtype and shape of `node`."""
    return CONST(attrs=ConstAttrs(encode(value, node.dtype), node.dtype, node.shape))


def cast(node: Node, dtype: DType) -> Node:
    """`node` converted to `dtype`; `node` itself if it has it already."""
    return node if node.dtype is dtype else CAST(node, attrs=CastAttrs(dtype))


def bitcast(node: Node, dtype: DType) -> Node:
    """The bits of `node` read as `dtype`."""
    return node if node.dtype is dtype else BITCAST(node, attrs=CastAttrs(dtype))
