"""How large arrays are beside the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Arrays of so many times the second cache, and of so many bytes, leave all caches before they are
#: read again.  What of the last cache is one program's share no machine tells.
_LARGE: Final = 16
_LEAST_BYTES: Final = 32 << 20


def bytes_of(array: Node) -> int:
    """The bytes of a PARAM; 0 where its size is known at run time only."""
    count = int(array.type.dtype.itemsize)
    for extent in array.type.shape:
        count *= extent if isinstance(extent, int) else 0
    return count


def leaves_caches(array: Node, target: TargetSpec) -> bool:
    """Has what is written of an array left the caches before somebody reads it?"""
    return bool(target.l2_bytes) and bytes_of(array) >= max(_LARGE * target.l2_bytes, _LEAST_BYTES)
