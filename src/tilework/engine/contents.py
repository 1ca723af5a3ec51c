"""Objects of Python's own that hold others: of which kind they are, and what they lead to."""

from __future__ import annotations

import array
import gc
import sys
import types
import weakref
from collections import deque
from typing import Any, Final

_COLLECTIONS: Final = frozenset({"collections", "configparser", "queue", "threading"})
_ENVIRONMENT: Final = frozenset({"getenv", "getenvb", "get_exec_path"})
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
    kind = type(value)  # whose attributes run none of the user's code
    if hasattr(kind, "__array_interface__") and hasattr(kind, "dtype"):
        return True
    return any(base.__module__ == "_ctypes" for base in kind.__mro__) or _is_torch_array(value)


def _is_torch_array(value: Any) -> bool:
    """Whether it is a tensor of PyTorch in the memory of the host."""
    is_torch = any(
        base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(value).__mro__
    )
    return is_torch and value.device.type == "cpu" and str(value.layout) == "torch.strided"


def bytes_of(value: Any) -> bytes:
    """The contents of what `is_bytes` accepts."""
    if _is_torch_array(value):
        row = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        value = row.view(sys.modules["torch"].uint8).numpy()
    return value.tobytes() if hasattr(value, "tobytes") else bytes(value)


def objects_in(value: Any) -> list[object]:
    """The objects that an array of NumPy's refers to: its bytes are where they are."""
    dtype = getattr(value, "dtype", None)
    return value.ravel().tolist() if getattr(dtype, "kind", "") == "O" else []


def size_of(value: Any) -> int:
    """How many bytes they are."""
    return int(memoryview(value).nbytes) if not hasattr(value, "nbytes") else int(value.nbytes)


def is_collection(value: object) -> bool:
    """Whether it is of a class of the standard library whose own methods read its attributes.

    Such are a UserDict, a ChainMap, a Queue, an Event: no code that is watched names them.
    """
    return any(base.__module__ in _COLLECTIONS for base in type(value).__mro__)


def attributes_of(value: object) -> dict[str, Any] | None:
    """The object's own attributes, without running the user's code; None if it has no such."""
    look = type(value).__getattribute__
    if not isinstance(look, types.WrapperDescriptorType):  # written in Python
        look = object.__getattribute__
    try:
        found = look(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if isinstance(found, dict) else None


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


def is_environment(value: object) -> bool:
    """Whether it is the mapping that holds the environment of the process."""
    return type(value).__module__ == "os" and type(value).__name__ == "_Environ"


def environment_behind(value: object) -> object:
    """The environment, if a function of the standard library reads it; else None."""
    if isinstance(value, types.FunctionType) and value.__module__ == "os":
        return value.__globals__.get("environ") if value.__name__ in _ENVIRONMENT else None
    return None
