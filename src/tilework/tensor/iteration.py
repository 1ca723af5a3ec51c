"""Loops of equal steps: each step is the same kernels, however many there are.

A step gets its number as a tensor and not as a constant, and its results are computed at once, so
that the schedule and the kernels of one step serve all of them.  Of many steps one is captured
(`tensor.jit`) and replayed, which takes microseconds where Python takes milliseconds; a later loop
of the same step and shapes finds it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tilework import dtypes
from tilework.engine.capture import is_capturing
from tilework.tensor.realize import depends_on_row, realize
from tilework.tensor.version import history

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.tensor.core import TensorBase

T = TypeVar("T", bound="TensorBase")

#: Loops of fewer steps are not captured: that takes as long as some steps.
_CAPTURED_FROM: Final = 4
_MOST_REPLAYS: Final = 64
#: Shapes for which one step is kept.
_CAPTURES: Final = 8
#: Captured steps, by their code and what it closes over.
_replays: dict[Any, Callable[..., Any]] = {}


def repeated(count: int, step: Callable[..., tuple[T, ...]], *state: Any) -> tuple[T, ...]:
    """`step(number, *state)` gives the next state; the last one after `count` steps.

    No history is recorded: what calls this states a gradient of its own.

    Args:
        count: how many steps.
        step: takes the number of the step (int64, a scalar tensor) and the state.
        state: tensors.
    """
    with history(False):
        current: Sequence[Any] = [_own(each) for each in state]
        compute(*current)
        (number,) = replayed(_first_number, current[0])

        def advance(number: Any, *state: Any) -> tuple[Any, ...]:
            following = [each.contiguous() for each in step(number, *state)]
            following.insert(0, (number + 1).contiguous())
            compute(*following)
            return tuple(following)

        run = _replay_of(advance, step, current) if count >= _CAPTURED_FROM else advance
        for _ in range(count):
            number, *current = run(number, *current)
        return tuple(current)


def _first_number(beside: Any) -> tuple[Any, ...]:
    """The number of the first step, on the device of another tensor."""
    return (beside._from_numbers([0], dtypes.index, beside.device).reshape(()),)


def replayed(function: Callable[..., tuple[T, ...]], *state: Any) -> tuple[T, ...]:
    """`function(*state)` computed at once, captured the first time and replayed from then on.

    No history is recorded.

    Args:
        function: takes and returns tensors; apart from them it depends on numbers alone.
        state: tensors.
    """
    with history(False):
        current = tuple([_own(each) for each in state])
        compute(*current)

        def run(*state: T) -> tuple[T, ...]:
            found = tuple([each.contiguous() for each in function(*state)])
            compute(*found)
            return found

        return _replay_of(run, function, current)(*current)


def _replay_of(
    run: Callable[..., tuple[T, ...]], step: Callable[..., Any], state: Sequence[T]
) -> Callable[..., tuple[T, ...]]:
    """What captures and replays `run`, found again by the code of its step and its numbers.

    `run` itself where that cannot be: inside a capture, whose part it becomes; for mapped rows; and
    where the step closes over anything but numbers.
    """
    numbers = tuple([cell.cell_contents for cell in step.__closure__ or ()])
    if (
        is_capturing()
        or not all(isinstance(each, int | float | None) for each in numbers)
        or depends_on_row([each._version_to_realize() for each in state])
    ):
        return run
    # By the class, too: a captured call gives results of that which it was captured with.
    key = (step.__code__, numbers, type(state[0]))
    found = _replays.pop(key, None)
    if found is None:
        # So many whatever the user has set: a capture that is missing is made, never refused.
        found = importlib.import_module("tilework.tensor.jit").Jit(run, captures=_CAPTURES)
    _replays[key] = found  # the last used last
    while len(_replays) > _MOST_REPLAYS:
        _replays.pop(next(iter(_replays)), None)
    return found


def compute(*state: Any) -> None:
    """Compute what a step gave, if it has values: that of a mapped row has them with the others."""
    versions = [each._version_to_realize() for each in state if not _is_there(each)]
    if versions and not depends_on_row(versions):
        realize(versions)


def _is_there(tensor: TensorBase) -> bool:
    """Whether a tensor is an array that has been computed."""
    return not tensor._chain and tensor._storage.version.buffer is not None


def _own(tensor: T) -> T:
    """The tensor as an array of its own without a history, perhaps to be computed."""
    if _is_there(tensor) and not tensor._storage.version.needs_gradient:
        return tensor
    return tensor.detach().contiguous()


def settled(*parts: T) -> tuple[T, ...]:
    """The tensors as arrays of their own, computed at once and without a history.

    What is computed from them is a schedule of its own, which others of these shapes share.
    """
    with history(False):
        found = tuple([_own(each) for each in parts])
        compute(*found)
        return found
