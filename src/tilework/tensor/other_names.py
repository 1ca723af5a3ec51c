"""Arguments by the names that PyTorch and NumPy give them.

A method has one name for each argument.  A call that Python refuses, since it uses another
library's name, is read again with the names of this table; calls that fit cost nothing.  A name
means what it means there: `dim` of `max`, which asks for positions too, is an argument of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import DTypeError
from tilework.base.late import late_module

if TYPE_CHECKING:
    import inspect
else:
    inspect = late_module("inspect")

#: What the others call an argument -> what it may be called here; the first that a method has.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "axes": ("axis", "dim"), "axis": ("dim",), "axis0": ("dim0",), "axis1": ("dim1",),
    "dim": ("axis",), "dimension": ("dim",), "end": ("stop",), "exponent": ("other",),
    "from": ("low",), "indices": ("index", "indices_or_sections"), "input2": ("other",),
    "keepdims": ("keepdim",), "mat2": ("other",), "max": ("max_",), "min": ("min_",),
    "sections": ("indices_or_sections",), "size": ("shape",), "sorted": ("sorted_",),
    "split_size": ("sizes",), "split_sizes": ("sizes",), "src": ("other",), "tensor": ("other",),
    "tensor1": ("first",), "tensor2": ("second",), "to": ("high",), "value": ("src",),
    "values": ("other",), "vec": ("other",), "vec2": ("other",),
}  # fmt: skip
#: Names of what is given without a name here: sizes, axes, how often, tensors.
_SPREAD: Final = frozenset(
    ("size", "shape", "dims", "axis", "dim", "order", "repeats", "reps", "sizes", "tensors")
)
#: Arguments that change nothing here, and the values of them that do not; None: any.
_IDLE: Final[dict[str, tuple[Any, ...] | None]] = {
    "generator": (None,), "layout": None, "memory_format": None, "non_blocking": None,
    "out": (None,), "pin_memory": None, "sparse_grad": None, "stable": None,
}  # fmt: skip


def translated(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments by this function's names, or None where that makes no call that fits.

    Args:
        function: what was called.
        args: what it got by place.
        kwargs: what it got by name.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters
    spread = [each for each in parameters.values() if each.kind is each.VAR_POSITIONAL]
    found: dict[str, Any] = {}
    places = args
    for name, value in kwargs.items():
        if name in parameters and parameters[name] not in spread:
            found[name] = value
            continue
        fitting = [each for each in _NAMES.get(name, ()) if each in parameters]
        own = next((each for each in fitting if parameters[each] not in spread), None)
        if own is not None and own not in kwargs:
            found[own] = value
        elif name == "unbiased" and "correction" in parameters:
            found["correction"] = int(value)
        elif name in _SPREAD and spread:
            places = (*places, value)
        elif name not in _IDLE or (_IDLE[name] or (value,))[0] is not value:
            return None
    try:
        signature.bind(*places, **found)
    except TypeError:
        return None
    return places, found


def title_of(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """How users call a function: constructors, and objects that are called, by their class."""
    is_of_class = function.__name__ in ("__init__", "__call__") and bool(args)
    return type(args[0]).__name__ if is_of_class else function.__name__


def where_to_read(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The words that say where the arguments are explained."""
    owner = "Tensor." if function.__module__.startswith("tilework.tensor.") else ""
    title = title_of(function, args)
    is_method = "." in function.__qualname__ and title == function.__name__ and not owner
    if is_method and args:
        owner = f"{args[0].__name__ if isinstance(args[0], type) else type(args[0]).__name__}."
    return f"help({'' if title == 'Tensor' else owner}{title}) says what it takes"


def refused(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> DTypeError | None:
    """The error of a call with too many, too few or unknown arguments; None if they fit."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        own = [name for name in signature.parameters if name not in ("self", "cls")]
        is_bound = len(own) < len(signature.parameters)
        return DTypeError(
            f"{title_of(function, args)}: {error}",
            got=f"{len(args) - is_bound} by place, by name {', '.join(kwargs) or 'none'}",
            expected=", ".join(own) or "no arguments",
            try_=where_to_read(function, args),
        )
    return None
