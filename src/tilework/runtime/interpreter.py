"""Machine code that Python calls as a function of its own, through the interpreter's stable C API.

    call = native_function(address, argument)    # code of PyObject *f(PyObject *, PyObject *)
    call()                                        # some 10 ns; `ctypes` takes hundreds

The code gets `argument` (an integer that may be the address of memory) as its first parameter and
returns a new reference.  It runs with the interpreter's lock, so it must end soon and touch no
object of Python but through `CALLED_FUNCTIONS`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

#: Functions of the interpreter that such code may call.
CALLED_FUNCTIONS: Final = ("PyLong_AsVoidPtr", "PyLong_FromLongLong")

_NO_ARGUMENTS: Final = 0x0004  # METH_NOARGS
_WRITABLE: Final = 0x200  # PyBUF_WRITE


class _Definition(ctypes.Structure):
    """`PyMethodDef`, which must outlive the functions that are made of it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Argument(int):
    """The address that native code gets, and what must live as long as the function does."""

    owners: tuple[Any, ...]

    @classmethod
    def of(cls, address: int, *owners: object) -> Argument:
        """The address `address`, which keeps `owners` alive."""
        made = cls(address)
        made.owners = owners
        return made


@cache
def is_supported() -> bool:
    """Whether this interpreter makes functions of machine code."""
    interface = getattr(ctypes, "pythonapi", None)
    names = (*CALLED_FUNCTIONS, "PyCFunction_NewEx")
    return interface is not None and all(hasattr(interface, name) for name in names)


def called_addresses() -> dict[str, int]:
    """Return the addresses of `CALLED_FUNCTIONS`; none where they are not supported."""
    if not is_supported():
        return {}
    return {name: _address_of(getattr(ctypes.pythonapi, name)) for name in CALLED_FUNCTIONS}


def native_function(address: int, argument: Argument) -> Callable[[], Any]:
    """Return a function of the interpreter that runs the machine code at `address`.

    Args:
        address: the code; it must stay mapped as long as the function is called.
        argument: what it gets.
    """
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    definition = _definition(address)
    argument.owners = (*argument.owners, definition)
    made: Callable[[], Any] = make(ctypes.addressof(definition), argument, None)
    return made


def _definition(address: int) -> _Definition:
    return _Definition(b"native", address, _NO_ARGUMENTS, None)


def _address_of(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def view_memory(address: int, size_bytes: int) -> memoryview:
    """Return bytes of this process that can be written; nothing keeps them alive."""
    if not size_bytes:
        return memoryview(bytearray())
    make = _view_function()
    if make is None:
        array: Any = (ctypes.c_ubyte * size_bytes).from_address(address)
        return memoryview(array).cast("B")
    view: memoryview = make(address, size_bytes, _WRITABLE)
    return view


@cache
def _view_function() -> Any:
    make = getattr(getattr(ctypes, "pythonapi", None), "PyMemoryView_FromMemory", None)
    if make is not None:
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    return make
