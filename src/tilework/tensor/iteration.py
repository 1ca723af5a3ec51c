"""Loops of equal steps: each step is the same kernels, however many there are.

A step gets its number as a tensor and not as a constant, and its results are computed at once, so
that the schedule and the kernels of one step serve all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tilework import dtypes
from tilework.tensor.realize import depends_on_row, realize
from tilework.tensor.version import history

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.tensor.core import TensorBase

T = TypeVar("T", bound="TensorBase")


def repeated(count: int, step: Callable[..., tuple[T, ...]], *state: Any) -> tuple[T, ...]:
    """`step(number, *state)` gives the next state; the last one after `count` steps.

    No history is recorded: what calls this states a gradient of its own.

    Args:
        count: how many steps.
        step: takes the number of the step (int64, a scalar tensor) and the state.
        state: tensors.
    """
    with history(False):
        current = tuple([each.detach().contiguous() for each in state])
        first = current[0]
        number = first._from_numbers([0], dtypes.index, first.device).reshape(()).contiguous()
        compute(number, *current)
        for _ in range(count):
            current = tuple([each.contiguous() for each in step(number, *current)])
            number = (number + 1).contiguous()
            compute(number, *current)
        return current


def compute(*state: Any) -> None:
    """Compute what a step gave, if it has values: that of a mapped row has them with the others."""
    versions = [each._version_to_realize() for each in state]
    if not depends_on_row(versions):
        realize(versions)


def settled(*parts: T) -> tuple[T, ...]:
    """The tensors as arrays of their own, computed at once and without a history.

    What is computed from them is a schedule of its own, which others of these shapes share.
    """
    with history(False):
        found = tuple([each.detach().contiguous() for each in parts])
        compute(*found)
        return found
