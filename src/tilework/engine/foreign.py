"""Whose code is it: the user's, whose reads are watched, or tilework's, Python's and C's.

What is foreign reads nothing that a capture could find changed: tilework's own functions are the
same at each replay, and the standard library hands on what its callers gave it.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any, Final

_OWN: Final = str(Path(__file__).parent.parent) + "/"
#: Watched although it is our own: layers and optimizers hold what a function reads.
LIBRARY: Final = _OWN + "nn/"
_STANDARD: Final = tuple(
    {sysconfig.get_path("stdlib") + "/", sysconfig.get_path("platstdlib") + "/"}
)
_STANDARD_NAMES: Final = sys.stdlib_module_names | set(sys.builtin_module_names)
_COMPARING: Final = frozenset({
    "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__",
})  # fmt: skip
_ARRAYS: Final = "/site-packages/numpy/"  # keeps state of its own for errors and printing


def is_a(value: object, kinds: Any) -> bool:
    """Whether an object of the program is of one of these kinds.

    As `isinstance`, which asks the object itself as well: its `__getattribute__` may raise.
    """
    return issubclass(type(value), kinds)


def is_foreign(filename: str) -> bool:
    """Whether code of this file is not watched: tilework's own, the standard library's, C's."""
    if filename.startswith((_OWN, "<frozen")):
        return not filename.startswith(LIBRARY)
    if _ARRAYS in filename:
        return True
    return filename.startswith(_STANDARD) and "site-packages" not in filename


def file_of(cls: type) -> str:
    """The file that a class is written in, as `file_of_module` gives it."""
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or _place_of(cls.__module__)


def file_of_module(module: types.ModuleType) -> str:
    """The file of a module; `<frozen` for Python's own that have none, `` for the user's.

    What is typed at a prompt or into a notebook, or made while the program runs, has no file.
    """
    return getattr(module, "__file__", None) or _place_of(module.__name__)


def _place_of(name: object) -> str:
    is_own = isinstance(name, str) and name.partition(".")[0] in _STANDARD_NAMES
    return "<frozen" if is_own else ""


@functools.lru_cache(maxsize=16384)
def is_foreign_code(code: types.CodeType) -> bool:
    """Whether calls that run this code are not watched."""
    name = getattr(code, "co_qualname", code.co_name)
    if code.co_filename == "<string>" and name.startswith("__"):
        # What dataclasses generate compares and shows fields; to set them is to read nothing.
        # The code of our own records has plain names.
        return not (name.startswith("__create_fn__.") and code.co_name in _COMPARING)
    return is_foreign(code.co_filename)


def is_own_code(code: types.CodeType) -> bool:
    """Whether it is tilework's own code, layers and optimizers included."""
    return code.co_filename.startswith(_OWN)


def is_own_module(module: types.ModuleType) -> bool:
    """Whether it is one of tilework's modules."""
    return file_of_module(module).startswith(_OWN)


def is_watchable_global(value: Any) -> bool:
    """Data and the user's own functions; not modules, classes or what tilework provides."""
    if is_a(value, types.ModuleType | types.BuiltinFunctionType):
        return False
    if is_a(value, types.FunctionType):
        # `functools.singledispatch` makes one of the standard library's of the user's functions.
        return not is_foreign(value.__code__.co_filename) or "registry" in value.__dict__
    if is_a(value, type):
        return not is_foreign(file_of(value))
    return True
