"""Objects of Python's own that hold others: of which kind they are, and what they lead to."""

from __future__ import annotations

import array
import functools
import gc
import mmap
import sys
import types
from collections import deque
from contextvars import ContextVar
from typing import Any, Final

from tilework.engine.foreign import is_a, is_foreign_code

_COLLECTIONS: Final = frozenset({
    "argparse", "asyncio.locks", "asyncio.queues", "collections", "concurrent.futures._base",
    "configparser", "email.message", "http.cookies", "multiprocessing.shared_memory",
    "multiprocessing.sharedctypes", "optparse", "queue", "string", "threading", "_weakrefset",
    "weakref",
})  # fmt: skip
#: Modules of Python's own, written in C, whose objects change and do not show their state.
_CLOSED: Final = frozenset({
    "_asyncio", "_blake2", "_bz2", "_curses", "_hashlib", "_lzma", "_md5", "_multibytecodec",
    "_pickle", "_sha1", "_sha2", "_sha256", "_sha3", "_sha512", "_sre", "_ssl",
    "_tkinter", "pyexpat", "select", "sqlite3", "xml.etree.ElementTree", "zlib",
})  # fmt: skip
#: Where NumPy keeps them.
_SETTINGS_OF_NUMPY: Final = (
    ("numpy._core.printoptions", "format_options"),
    ("numpy._core.umath", "_extobj_contextvar"),
)
_ENVIRONMENT: Final = frozenset({"getenv", "getenvb", "get_exec_path"})
_VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))


def is_sequence(value: object) -> bool:
    """Whether it is a container that is compared item by item, in the order of its items."""
    return is_a(value, list | tuple | set | frozenset | deque)


def is_mapping(value: object) -> bool:
    """Whether it is a container of keys and values."""
    return is_a(value, dict | types.MappingProxyType)


def is_bytes(value: Any) -> bool:
    """Whether it is memory that is compared byte by byte: of NumPy's arrays and of Python's."""
    if is_a(value, bytearray | memoryview | array.array | mmap.mmap):
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


def is_closed(value: object) -> bool:
    """Whether it is an object of Python's own C code that changes and does not show its state.

    Such are a connection to a database and a hash that is being computed.
    """
    return any(base.__module__ in _CLOSED for base in type(value).__mro__)


def remembered_by(function: object) -> tuple[object, ...] | None:
    """What `functools.lru_cache` has kept of a user's function, and it; None for others.

    Results that are kept are objects that a call gives out without running any code.
    """
    if type(function) is not functools._lru_cache_wrapper:
        return None
    code = getattr(function.__wrapped__, "__code__", None)
    if code is None or is_foreign_code(code):
        return None
    return tuple(part for part in gc.get_referents(function) if not isinstance(part, type))


def answers_itself(value: object) -> bool:
    """Whether the user's own code runs for each attribute that is asked for, its class too."""
    return not isinstance(type(value).__getattribute__, types.WrapperDescriptorType)


def attributes_of(value: object) -> dict[str, Any] | None:
    """The object's own attributes, without running the user's code; None if it has no such."""
    look = object.__getattribute__ if answers_itself(value) else type(value).__getattribute__
    try:
        found = look(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def targets_of(value: Any) -> tuple[object, ...] | None:
    """What a view of a dictionary or a method of C code leads to.

    Returns:
        None for another object.
    """
    if is_a(value, _VIEWS):
        return tuple(gc.get_referents(value))  # `mapping` is a proxy that nobody else has
    if is_a(value, types.BuiltinMethodType | types.MethodWrapperType):
        return (value.__self__,)
    return None


def is_environment(value: object) -> bool:
    """Whether it is the mapping that holds the environment of the process."""
    return type(value).__module__ == "os" and type(value).__name__ == "_Environ"


def environment_behind(value: Any) -> object:
    """The environment, if a function of the standard library reads it; else None."""
    if is_a(value, types.FunctionType) and value.__module__ == "os":
        return value.__globals__.get("environ") if value.__name__ in _ENVIRONMENT else None
    return None


def settings_of_numpy() -> list[ContextVar[Any]]:
    """The variables that say how NumPy prints and what it does about errors, if it is imported."""
    found: list[ContextVar[Any]] = []
    for module, name in _SETTINGS_OF_NUMPY:
        variable = getattr(sys.modules.get(module), name, None)
        if type(variable) is ContextVar:
            found.append(variable)
    return found
