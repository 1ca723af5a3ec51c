"""What `from tinygrad.uop.ops import ...` gives: symbolic integers, not the graph."""

from __future__ import annotations

from typing import Any

from tilework import Variable

#: What a size is: a number or a symbolic integer.
sint = int | Variable


class _Symbolic(type):
    """Makes symbolic integers instances of `UOp`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Variable)


class UOp(metaclass=_Symbolic):
    """A name for symbolic integers, which programs test for and make."""

    @staticmethod
    def variable(name: str, min_val: int, max_val: int, dtype: Any = None) -> Variable:
        """An integer between two bounds, to be bound to a value."""
        return Variable(name, min_val, max_val)


def resolve(x: Any, default: bool = True) -> bool:
    """Whether a comparison holds; `default` if that depends on a variable without a value."""
    if isinstance(x, Variable):
        return bool(int(x)) if x.bindings is not None else default
    return bool(x)


def smax(*numbers: Any) -> Any:
    """The greatest of the numbers, given one by one or as one sequence."""
    return max(numbers[0] if len(numbers) == 1 else numbers)


def smin(*numbers: Any) -> Any:
    """The least of the numbers, given one by one or as one sequence."""
    return min(numbers[0] if len(numbers) == 1 else numbers)


__all__ = ["UOp", "Variable", "resolve", "sint", "smax", "smin"]
