"""What a captured function changes besides tensors is changed at each call; copies of captures."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, TinyJit, jit
from tilework.engine.stats import COUNTERS

X = np.arange(6, dtype=np.float32)


class Notes:
    """What a function leaves behind."""

    def __init__(self) -> None:
        self.last: Tensor | None = None
        self.count = 0
        self.rows: list[Tensor] = []
        self.table: dict[str, Tensor] = {}


def set_attribute(notes: Notes, x: Tensor) -> None:
    notes.last = x * 2


def set_item(notes: Notes, x: Tensor) -> None:
    notes.table["last"] = x * 3


def append(notes: Notes, x: Tensor) -> None:
    notes.rows.append(x * 4)


def count(notes: Notes, x: Tensor) -> None:
    notes.count += 1


def left(notes: Notes) -> list[Any]:
    tensors = [notes.last, *notes.rows, *notes.table.values()]
    return [notes.count, *[each.tolist() for each in tensors if each is not None]]


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("change", [set_attribute, set_item, append, count])
def test_what_a_function_leaves_behind_is_left_at_each_call(
    change: Callable[[Notes, Tensor], None], is_reset: bool
) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        notes, found = Notes(), []

        def function(x: Tensor) -> Tensor:
            change(notes, x)
            return x + 1

        call = wrap(function)
        for number in range(6):
            found += [call(Tensor(X + number).realize()).tolist(), *left(notes)]
            if is_reset:
                notes.last, notes.count = None, 0
                notes.rows.clear()
                notes.table.clear()
        return found

    assert run(jit) == run(lambda function: function)


def test_a_table_that_is_filled_once_does_not_stand_in_the_way() -> None:
    notes = Notes()

    @jit
    def function(x: Tensor) -> Tensor:
        if "factor" not in notes.table:
            notes.table["factor"] = Tensor(2.0).realize()
        return x * notes.table["factor"]

    for _ in range(2):
        function(Tensor(X).realize())
    before = COUNTERS.replays
    for number in range(3):
        assert function(Tensor(X + number).realize()).tolist() == ((X + number) * 2).tolist()
    assert COUNTERS.replays == before + 3


def double(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("wrap", [jit, TinyJit])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda call: pickle.loads(pickle.dumps(call))]
)
def test_a_copy_of_a_captured_function_is_captured_anew(wrap: Any, copied: Any) -> None:
    call = wrap(double)
    for _ in range(3):
        call(Tensor(X).realize())
    other = copied(call)
    assert type(other) is type(call)
    assert other.num_captures == 0
    assert other(Tensor(X + 1).realize()).tolist() == ((X + 1) * 2).tolist()
    assert call.num_captures == 1


def test_a_copied_model_captures_its_own_weights() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor(X).realize()
            self.call = jit(self.product)

        def product(self, x: Tensor) -> Tensor:
            return self.weight * x

    model = Model()
    for _ in range(2):
        model.call(Tensor(X).realize())
    other = copy.deepcopy(model)
    other.weight.assign(Tensor(X * 10))
    assert other.call(Tensor(X).realize()).tolist() == (X * X * 10).tolist()
    assert model.call(Tensor(X).realize()).tolist() == (X * X).tolist()


def is_written(held: Tensor, source: Tensor, call: int) -> None:
    held.assign(held * 2)


def item_is_written(held: Tensor, source: Tensor, call: int) -> None:
    held[0] = float(call)


def source_is_written(held: Tensor, source: Tensor, call: int) -> None:
    source.assign(source * 2).realize()


def read_through_a_view(held: Tensor, x: Tensor) -> Tensor:
    return (held[1:] * x[1:]).sum()


def read(held: Tensor, x: Tensor) -> Tensor:
    return (held * x).sum()


def read_and_write(held: Tensor, x: Tensor) -> Tensor:
    held.assign(held + x)
    return held.sum()


@pytest.mark.parametrize("source_kind", ["constant", "memory"])
@pytest.mark.parametrize("held_kind", ["constant", "sum"])
@pytest.mark.parametrize("between", [is_written, item_is_written, source_is_written])
@pytest.mark.parametrize("what", [read, read_through_a_view, read_and_write])
def test_what_was_pending_before_a_capture_is_read_anew_at_each_call(
    source_kind: str,
    held_kind: str,
    between: Callable[[Tensor, Tensor, int], None],
    what: Callable[[Tensor, Tensor], Tensor],
) -> None:
    def results(wrap: Callable[[Any], Any]) -> list[float]:
        source = Tensor.ones(6)
        if source_kind == "memory":
            source.realize()
        held = Tensor.ones(6) if held_kind == "constant" else source + 1
        function = wrap(lambda x: what(held, x))
        found = []
        for call in range(5):
            found.append(float(function(Tensor(X + call).realize()).numpy()))
            between(held, source, call)
        return found

    assert results(jit) == results(lambda function: function)


def test_what_is_pending_and_stays_as_it_is_delays_a_capture_by_one_call() -> None:
    held = Tensor.ones(6)
    function = jit(lambda x: read(held, x))
    for _ in range(2):
        function(Tensor(X).realize())
    before = COUNTERS.replays
    assert float(function(Tensor(X).realize()).numpy()) == X.sum()
    assert COUNTERS.replays == before + 1


def append_to_rows(rows: list[Any], x: Tensor) -> None:
    rows.append(x * 2)


def replace_in_rows(rows: list[Any], x: Tensor) -> None:
    rows[0] = rows[0] + x


def append_to_inner_rows(rows: list[Any], x: Tensor) -> None:
    rows[1].append(3)


def set_in_inner_table(rows: list[Any], x: Tensor) -> None:
    rows[2]["found"] = x * 3


def set_another_value(rows: list[Any], x: Tensor) -> None:
    rows[2]["count"] += 1


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        append_to_rows,
        replace_in_rows,
        append_to_inner_rows,
        set_in_inner_table,
        set_another_value,
    ],
)
def test_containers_that_are_given_are_changed_at_each_call(
    change: Callable[[list[Any], Tensor], None], by_name: bool
) -> None:
    def function(x: Tensor, rows: list[Any]) -> Tensor:
        change(rows, x)
        return x + 1

    captured = jit(function)
    for call in range(4):
        x = Tensor(X + call).realize()
        plain, other = ([Tensor(X).realize(), [], {"count": 7}] for _ in range(2))
        function(x, plain)
        if by_name:
            captured(x, rows=other)
        else:
            captured(x, other)
        assert as_numbers(other) == as_numbers(plain)


def as_numbers(value: Any) -> Any:
    """Containers with the numbers of tensors in their places."""
    if isinstance(value, Tensor):
        return value.numpy().tolist()
    if isinstance(value, dict):
        return {key: as_numbers(item) for key, item in value.items()}
    return [as_numbers(item) for item in value] if isinstance(value, list) else value


def add_in_place(result: Tensor) -> None:
    result += 1


def set_first_element(result: Tensor) -> None:
    result[0] = 9.0


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("ring", [None, 1, 2, 3])
@pytest.mark.parametrize("change", [add_in_place, set_first_element])
def test_results_that_are_written_in_place_are_no_memory_of_later_calls(
    change: Callable[[Tensor], None], ring: int | None, keeps: bool
) -> None:
    captured = jit(lambda x: x * 2, outputs=ring)
    kept = []
    for call in range(6):
        x = Tensor(X + call).realize()
        result, plain = captured(x), x * 2
        for each in (result, plain):
            change(each)
            each.realize()
        assert np.array_equal(result.numpy(), plain.numpy())
        if keeps:
            kept.append((result, plain.numpy()))
    assert all(np.array_equal(result.numpy(), plain) for result, plain in kept)
