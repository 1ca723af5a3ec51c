"""Objects of Python's own that hold others: of which kind they are, and what they lead to."""

from __future__ import annotations

import array
import gc
import types
import weakref
from collections import deque
from typing import Any, Final

_VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))


def is_sequence(value: object) -> bool:
    """Whether it is a container that is compared item by item, in the order of its items."""
    return isinstance(value, list | tuple | set | frozenset | deque)


def is_mapping(value: object) -> bool:
    """Whether it is a container of keys and values."""
    return isinstance(value, dict | types.MappingProxyType)


def is_bytes(value: Any) -> bool:
    """Whether it is memory that is compared byte by byte: of NumPy's arrays and of Python's."""
    if isinstance(value, bytearray | memoryview | array.array):
        return True
    return hasattr(value, "__array_interface__") and hasattr(value, "dtype")


def bytes_of(value: Any) -> bytes:
    """The contents of what `is_bytes` accepts."""
    return bytes(value) if isinstance(value, bytearray) else value.tobytes()


def is_collection(value: object) -> bool:
    """Whether it is a container that is written in Python, such as a UserDict or a ChainMap."""
    return any(base.__module__ == "collections" for base in type(value).__mro__)


def targets_of(value: Any) -> tuple[object, ...] | None:
    """What a weak reference, a view of a dictionary or a method of C code leads to.

    Returns:
        None for another object.
    """
    if isinstance(value, weakref.ref):
        return (value(),)
    if isinstance(value, _VIEWS):
        return tuple(gc.get_referents(value))  # `mapping` is a proxy that nobody else has
    if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
        return (value.__self__,)
    return None
