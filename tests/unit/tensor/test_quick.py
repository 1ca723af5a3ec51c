"""Replays without loops accept only what the loops would, and hand nothing out twice."""

import gc
import threading
import weakref
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base import settings, trace
from tilework.base.errors import BoundsError, StaleHandleError
from tilework.engine.device import Device
from tilework.runtime import interpreter
from tilework.tensor.jit import Jit
from tilework.tensor.quick import MISS

Pair = namedtuple("Pair", "first second")  # what users have
scale = 2.0


def tensor(*values: float) -> Tensor:
    return Tensor(np.array(values, dtype=np.float32)).contiguous().realize()


def warmed(function: Callable[..., Any], *args: Any, **options: Any) -> Jit[..., Any]:
    """`function`, captured and replayed often enough to be replayed without loops."""
    step = jit(function, **options)
    for _ in range(3):
        step(*args)
    assert step._quick is not None
    return step


def test_the_third_call_runs_without_loops() -> None:
    x = tensor(1, 2)
    step = warmed(lambda x: x * 3, x)
    assert step._quick is not None
    assert step._quick((x,)).tolist() == [3, 6]


@pytest.mark.parametrize(
    "args",
    [(), (1.0,), (tensor(1, 2), tensor(1, 2)), (tensor(1, 2, 3),), (None,)],
    ids=["none", "number", "two", "shape", "None"],
)
def test_other_arguments_are_refused(args: tuple[Any, ...]) -> None:
    step = warmed(lambda x: x * 3, tensor(1, 2))
    assert step._quick is not None
    assert step._quick(args) is MISS


def test_another_tensor_of_the_same_kind_is_read() -> None:
    step = warmed(lambda x: x * 3, tensor(1, 2))
    assert [step(tensor(i, 0)).tolist() for i in range(4)] == [[3 * i, 0] for i in range(4)]


def test_a_result_that_is_given_back_takes_the_short_way() -> None:
    """So that loops which hand a state from call to call do not search."""
    function = warmed(lambda x: x + 1, tensor(1, 2))
    quick = function._quick
    assert quick is not None
    first = quick((tensor(1, 2),))
    second = quick((first,))
    assert second is not MISS
    assert quick((second,)).tolist() == [4, 5]
    assert first.tolist() == [2, 3]


def test_an_argument_that_is_not_computed_yet_is_computed() -> None:
    step = warmed(lambda x: x * 3, tensor(1, 2))
    assert step(tensor(1, 2) + 1).tolist() == [6, 9]


def test_views_and_strided_arguments_are_right() -> None:
    base = tensor(0, 1, 2, 3, 4, 5)
    step = warmed(lambda x: x * 10, base[0:3])
    assert step(base[2:5]).tolist() == [20, 30, 40]
    assert step(base[::2]).tolist() == [0, 20, 40]
    assert step(base[0:3]).tolist() == [0, 10, 20]


# --- what is watched ------------------------------------------------------------------------------


def test_EXE_07_a_global_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tensor(1)
    step = warmed(lambda x: x * scale, x)
    monkeypatch.setitem(globals(), "scale", 5.0)
    assert step(x).item() == 5


def test_EXE_07_a_closure_variable_that_changes_is_seen() -> None:
    factor, x = 2.0, tensor(1)
    step = warmed(lambda x: x * factor, x)
    factor = 7.0
    assert step(x).item() == 7


def test_EXE_07_an_attribute_that_changes_is_seen() -> None:
    options, x = SimpleNamespace(factor=2.0), tensor(1)
    step = warmed(lambda x: x * options.factor, x)
    options.factor = 9.0
    assert step(x).item() == 9
    del options.factor
    with pytest.raises(AttributeError):
        step(x)


def test_EXE_07_defaults_that_change_are_seen() -> None:
    def function(x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor

    x = tensor(1)
    step = warmed(function, x)
    function.__defaults__ = (4.0,)
    assert step(x).item() == 4


@pytest.mark.parametrize(
    "change",
    [lambda row: row.__setitem__(1, 5.0), lambda row: row.append(1.0), lambda row: row.reverse()],
    ids=["item", "longer", "order"],
)
def test_EXE_07_a_list_that_changes_is_seen(change: Callable[[list[float]], None]) -> None:
    row, x = [2.0, 3.0], tensor(1)

    def function(x: Tensor) -> Tensor:
        for factor in row:
            x = x * factor + 1
        return x

    step = warmed(function, x)
    change(row)
    assert step(x).item() == function(x).item()


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.__setitem__("a", 5.0),
        lambda row: row.__setitem__("c", 1.0),
        lambda row: row.__setitem__("a", row.pop("a")),  # moves to the end
        lambda row: row.__setitem__("z", row.pop("b")),  # another name at the same place
        lambda row: row.clear(),
    ],
    ids=["item", "more", "order", "name", "empty"],
)
def test_EXE_07_a_dictionary_that_changes_is_seen(
    change: Callable[[dict[str, float]], None],
) -> None:
    row, x = {"a": 2.0, "b": 3.0}, tensor(1)

    def function(x: Tensor) -> Tensor:
        for name, factor in row.items():
            x = x * factor + len(name) + (name == "z")
        return x * 1

    step = warmed(function, x)
    change(row)
    assert step(x).item() == function(x).item()


def test_EXE_07_an_empty_container_that_is_filled_is_seen() -> None:
    row: list[float] = []
    x = tensor(1)
    step = warmed(lambda x: x * (2 + len(row)), x)
    row.append(1.0)
    assert step(x).item() == 3


def test_EXE_07_a_large_container_that_changes_is_seen() -> None:
    row, x = [1.0] * 500, tensor(1)
    step = warmed(lambda x: x * row[499], x)
    row[499] = 3.0
    assert step(x).item() == 3


def test_EXE_07_an_array_that_changes_is_seen() -> None:
    row, x = np.array([2.0, 3.0]), tensor(1)
    step = warmed(lambda x: x * float(row[0]), x)
    row[0] = 8.0
    assert step(x).item() == 8


def test_EXE_07_a_setting_that_changes_is_seen() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x, captures=2)
    with settings.override(fp_mode="contract"):
        assert step._quick is not None
        assert step._quick((x,)) is MISS
    assert step._quick((x,)) is not MISS


def test_EXE_07_training_and_no_grad_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tensor(1)
    step = warmed(lambda x: x * (3 if Tensor.training else 2), x)
    with Tensor.no_grad():
        assert step._quick is not None
        assert step._quick((x,)) is MISS
    monkeypatch.setattr(Tensor, "training", True)
    assert step(x).item() == 3


def test_a_weight_that_is_written_is_seen() -> None:
    weight, x = tensor(2), tensor(3)
    step = warmed(lambda x: x * weight, x)
    weight.assign(tensor(5))
    assert [step(x).item() for _ in range(3)] == [15, 15, 15]


def test_packed_weights_that_are_written_are_seen() -> None:
    weight = Tensor(np.eye(64, dtype=np.float32)).contiguous().realize()
    x = Tensor(np.ones((4, 64), dtype=np.float32)).contiguous().realize()
    step = warmed(lambda x: x @ weight, x)
    weight.assign(weight * 3)
    weight.realize()
    assert [step(x).numpy().sum().item() for _ in range(2)] == [768, 768]


def test_one_argument_that_was_given_twice_must_be_again() -> None:
    x = tensor(2)
    step = warmed(lambda a, b: a * b, x, x)
    assert step(x, tensor(5)).item() == 10
    assert step(x, x).item() == 4


def test_the_very_tensor_that_is_held_must_be_given() -> None:
    held = tensor(2)
    step = warmed(lambda x: x * held, held)
    assert step(tensor(5)).item() == 10


def test_a_call_inside_a_capture_is_part_of_it() -> None:
    inner = warmed(lambda x: x * 2, tensor(1))
    outer = warmed(lambda x: inner(x) + 1, tensor(1))
    assert outer(tensor(4)).item() == 9


# --- results --------------------------------------------------------------------------------------


def test_EXE_06_a_dropped_result_is_handed_out_again() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    first = id(step(x))
    assert id(step(x)) == first


@pytest.mark.parametrize(
    "keep",
    [
        lambda y: y,
        lambda y: y + 0,
        lambda y: y.reshape(1, 2),
        lambda y: y[1:].numpy(),
        lambda y: y.numpy(),
        lambda y: y._storage,
    ],
    ids=["result", "reader", "view", "part", "array", "storage"],
)
def test_EXE_06_what_shows_a_result_keeps_it(keep: Callable[[Tensor], Any]) -> None:
    step = warmed(lambda x: x * 2, tensor(1, 1))
    kept = [(keep(step(tensor(i, i))), i) for i in range(8)]
    for row, i in kept:
        shown = Tensor._over(row.version) if hasattr(row, "version") else row
        numbers = np.asarray(shown.numpy() if isinstance(shown, Tensor) else shown)
        assert numbers.ravel().tolist() == [2 * i] * numbers.size


def test_EXE_06_a_result_that_was_written_to_is_not_handed_out_as_it_is() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    for i in range(6):
        y = step(x)
        assert y.item() == 2
        y.assign(tensor(i + 10)).realize()
        assert y.item() == i + 10
        del y


def test_EXE_06_a_result_forgets_that_its_gradient_was_wanted() -> None:
    x = tensor(1, 2)
    step = warmed(lambda x: x * 2, x)
    y = step(x).requires_grad_()
    (y * 3).sum().backward()
    assert y.grad is not None
    del y
    gc.collect()
    for _ in range(6):
        z = step(x)
        assert z.requires_grad is None
        assert z.grad is None
        assert not (z * 1)._storage.version.needs_gradient


def test_EXE_06_a_weak_reference_to_a_result_dies_with_it() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    reference = weakref.ref(step(x))
    results = [step(x) for _ in range(6)]
    assert all(result is not reference() for result in results)


def test_EXE_06_results_in_containers_are_made_anew() -> None:
    def function(x: Tensor, y: Tensor) -> dict[str, Any]:
        return {"a": [x * 2, (y + 1, 7)], "b": Pair(x, None), "c": (x - y).reshape(1, 2)}

    x, y = tensor(1, 2), tensor(3, 4)
    step = warmed(function, x, y)
    first, second = step(x, y), step(y, x)
    assert first["a"] is not second["a"]
    assert first["a"][0].tolist() == [2, 4]
    assert second["a"][1][0].tolist() == [2, 3]
    assert second["a"][1][1] == 7
    assert second["b"].first is y
    assert first["c"].tolist() == [[-2, -2]]


def test_two_results_that_share_a_storage_share_it_again() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x * 2).realize()
        return y, y.reshape(1, 2)

    x = tensor(1, 2)
    step = warmed(function, x)
    whole, view = step(x)
    whole.assign(tensor(8, 9))
    assert view.tolist() == [[8, 9]]


def test_no_memory_is_kept_from_arguments() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    y = tensor(4)
    memory = weakref.ref(y._storage.version.buffer.memory)  # type: ignore[union-attr]
    step(y)
    del y
    gc.collect()
    assert memory() is None


# --- faults, devices, threads ---------------------------------------------------------------------


def test_an_index_out_of_range_raises_and_the_next_call_is_right() -> None:
    table, index = tensor(1, 2, 3), Tensor(np.array([1], dtype=np.int32)).realize()
    step = warmed(lambda i: table[i], index)
    with pytest.raises(BoundsError):
        step(Tensor(np.array([7], dtype=np.int32)).realize())
    assert step(index).tolist() == [2]


def test_listeners_hear_of_each_call() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        step(x)
    assert [event for event in events if isinstance(event, trace.Launched)]


def test_memory_that_was_closed_is_refused() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    x._storage.version.buffer.close()  # type: ignore[union-attr]
    with pytest.raises(StaleHandleError):
        step(x)


def test_a_device_that_was_closed_is_not_called() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    assert step._quick is not None
    Device[x.device].close()
    assert step._quick((x,)) is MISS
    assert step(tensor(4)).item() == 8


def test_memory_given_back_is_taken_again() -> None:
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    step.free_intermediates()
    assert step(x).item() == 2
    assert step(x).item() == 2


def test_threads_get_their_own_results() -> None:
    step = warmed(lambda x: x * 2, tensor(1))
    wrong: list[int] = []

    def work(number: int) -> None:
        x = tensor(number)
        wrong.extend(number for _ in range(300) if step(x).item() != 2 * number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interpreter_without_native_functions_replays_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interpreter, "is_supported", lambda: False)
    x = tensor(1)
    step = warmed(lambda x: x * 2, x)
    assert step(tensor(4)).item() == 8


def test_captures_that_alternate_each_replay_what_is_theirs() -> None:
    small, large = tensor(1), tensor(1, 2)
    step = jit(lambda x: x * 2)
    results = [(step(small).tolist(), step(large).tolist()) for _ in range(6)]
    assert results == [([2], [2, 4])] * 6


def test_timing_the_kernels_reads_the_arguments_of_that_call() -> None:
    first, second = tensor(1), tensor(5)
    step = warmed(lambda x: x * 2, first)
    step(second)
    step.measure(kernels=True)
    assert step(first).item() == 2
    step.stop_measuring()
    assert step(second).item() == 10
