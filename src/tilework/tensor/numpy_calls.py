"""What NumPy's functions do with tensors: operators give tensors, all others arrays.

    array + tensor        # a tensor, as tensor + array
    numpy.sin(tensor)     # an array
    array += tensor       # written into the array

The protocol is NumPy's `__array_ufunc__` (NEP 13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.tensor.core import TensorBase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: NumPy's functions that are operators: the method of a tensor on the left, and on the right.
_OPERATORS: Final = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}


def numpy_call(ufunc: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """What one of NumPy's functions of elements gives for operands of which some are tensors.

    Args:
        ufunc: The function.
        method: How it is used: "__call__", "reduce", "outer" and so on.
        inputs: The operands.
        options: What was given by name; a tensor cannot be the `out` of it.

    Returns:
        A tensor of an operator, an array of all else; NotImplemented, of which NumPy makes a
        TypeError.
    """
    names = _OPERATORS.get(ufunc.__name__)
    if method == "__call__" and names is not None and not options:
        first, second = inputs
        if isinstance(first, TensorBase):
            return getattr(first, names[0])(second)
        return getattr(second, names[1])(first)
    if any(isinstance(target, TensorBase) for target in options.get("out", ())):
        return NotImplemented
    arrays = [_array(x) if isinstance(x, TensorBase) else x for x in inputs]
    named = {name: _array(x) if isinstance(x, TensorBase) else x for name, x in options.items()}
    return getattr(ufunc, method)(*arrays, **named)


def _array(tensor: Any) -> Any:
    return tensor.__array__()


__all__ = ["numpy_call"]
