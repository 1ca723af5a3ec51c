"""A captured call runs the kernels that the plain call runs, however the function keeps values.

Which values are computed depends on who still sees them.  The notes that a capture takes of what
a function reads must therefore keep nothing alive: neither lists and cells of functions that have
returned, nor variables that have got another value.
"""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework import Tensor, jit
from tilework.engine.holdings import held_here_alone
from tilework.engine.watcher import Watcher

Step = Callable[[Tensor], Tensor]


def _less_mean(axis: int) -> Step:
    return lambda x: x - x.mean(axis, keepdim=True)


def _unit_length(axis: int) -> Step:
    return lambda x: x / ((x * x).sum(axis, keepdim=True) + 0.1).sqrt()


def _softmax(axis: int) -> Step:
    return lambda x: x.softmax(axis) * 5


STEPS: list[Step] = [
    _less_mean(0),
    _less_mean(1),
    _unit_length(0),
    _softmax(0),
    _softmax(1),
    lambda x: x.permute(1, 0),
    lambda x: x.flip(0),
    lambda x: x.reshape(x.shape[1], x.shape[0]),
]


def _in_a_list(steps: list[Step], x: Tensor) -> Tensor:
    seen = [x]
    for step in steps:
        seen.append(step(seen[-1]))
    last = [seen[number] for number in (-1,)]
    return last[0]


class _Holder:
    def __init__(self) -> None:
        self.value: Any = None

    def put(self, value: Tensor) -> None:
        self.value = value

    def take(self) -> Tensor:
        return self.value  # type: ignore[no-any-return]


def _in_an_object(steps: list[Step], x: Tensor) -> Tensor:
    holder = _Holder()
    holder.put(x)
    for step in steps:
        holder.put(step(holder.take()))
    return holder.take()


def _in_a_cell(steps: list[Step], x: Tensor) -> Tensor:
    value = x

    def advance(step: Step) -> None:
        nonlocal value
        value = step(value)

    for step in steps:
        advance(step)
    return value


def _in_calls(steps: list[Step], x: Tensor) -> Tensor:
    return _in_calls(steps[1:], steps[0](x)) if steps else x


def _in_a_dictionary(steps: list[Step], x: Tensor) -> Tensor:
    values = {0: x}

    def get(number: int) -> Tensor:
        return values[number]

    for number, step in enumerate(steps):
        values[number + 1] = step(get(number))
    return get(len(steps))


KEEPING = [_in_a_list, _in_an_object, _in_a_cell, _in_calls, _in_a_dictionary]


@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=7),
    keep=st.sampled_from(KEEPING),
    rows=st.sampled_from([3, 7, 17]),
    columns=st.sampled_from([5, 8]),
)
@settings(max_examples=25)
def test_EXE_09_capture_and_replay_have_the_bits_of_the_plain_call(
    steps: list[Step], keep: Callable[[list[Step], Tensor], Tensor], rows: int, columns: int
) -> None:
    values = np.random.default_rng(len(steps)).standard_normal((rows, columns), np.float32)
    x = Tensor(values).realize()

    def function(x: Tensor) -> Tensor:
        return keep(steps, x).realize()

    plain = function(x).numpy().tobytes()
    captured = jit(function)
    for _ in range(2):
        assert captured(x).numpy().tobytes() == plain


@pytest.mark.parametrize("keep", KEEPING)
def test_EXE_09_a_view_of_a_value_that_nobody_sees_is_computed_in_its_own_order(
    keep: Callable[[list[Step], Tensor], Tensor],
) -> None:
    steps: list[Step] = [_less_mean(0), _softmax(1), _softmax(0), lambda x: x.permute(1, 0)]
    x = Tensor(np.arange(35, dtype=np.float32).reshape(7, 5)).realize()

    def function(x: Tensor) -> Tensor:
        return keep(steps, x).realize()

    assert not function(x)._chain
    assert not jit(function)(x)._chain


class _Value:
    """What a watcher takes for a tensor."""


def _watcher(new: bool = True) -> Watcher:
    return Watcher(lambda value: isinstance(value, _Value), lambda leaf: new)


def _closure(values: list[_Value]) -> int:
    return (lambda: len(values))()


def test_a_list_of_a_function_that_has_returned_is_forgotten() -> None:
    watcher = _watcher()

    def make() -> weakref.ref[_Value]:
        values = [_Value()]
        _closure(values)
        return weakref.ref(values[0])

    with watcher.watching():
        reference = make()
        assert reference() is not None
        watcher.forget_locals()
        assert reference() is None
    assert not [entry for entry in watcher.guards().entries if entry.kind == "items"]


def test_a_list_that_is_still_there_is_watched() -> None:
    watcher = _watcher()
    values = [_Value()]
    with watcher.watching():
        _closure(values)
        watcher.forget_locals()
    guards = watcher.guards()
    assert guards.leaves == (values[0],)
    assert guards.changed() is None
    values[0] = _Value()
    assert guards.changed() == "values: its items changed"


@pytest.mark.parametrize("new", [False, True])
def test_only_an_old_value_is_kept_when_its_list_has_another(new: bool) -> None:
    watcher = _watcher(new)
    values = [_Value()]
    with watcher.watching():
        _closure(values)
        values[0] = _Value()
        watcher.forget_locals()
    guards = watcher.guards()
    assert len(guards.leaves) == (not new)
    assert guards.changed() == "values: its items changed"


def test_an_argument_that_has_got_another_value_is_not_kept_alive() -> None:
    watcher = _watcher()

    def replaced(value: Any) -> _Value | None:
        reference: weakref.ref[_Value] = weakref.ref(value)
        value = None
        _closure([])  # as any call does, it has the copy of the variables emptied
        return reference()

    with watcher.watching():
        left = replaced(_Value())
    assert left is None


def test_a_class_of_arrays_is_not_taken_for_an_array() -> None:
    watcher = _watcher()
    kinds = [np.ndarray]

    def reads() -> int:
        return len(kinds)

    with watcher.watching():
        reads()
    assert watcher.guards().changed() is None


def test_what_others_hold_is_not_held_here_alone() -> None:
    shared = _Value()
    notes = [_Value(), shared, _Value()]
    notes.append(notes[0])
    alone = held_here_alone(note for note in notes)
    assert [id(note) in alone for note in notes] == [True, False, True, True]
