"""jit: a captured call means what the plain call means, or refuses and says why."""

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, TinyJit, Variable, jit
from tilework.base import settings, trace
from tilework.base.errors import BoundsError, CaptureError, StaleOutputError, UserError
from tilework.engine import capture
from tilework.engine.device import OpenDevice
from tilework.engine.latency import PARTS, Latency
from tilework.engine.link import TableInstance
from tilework.engine.stats import COUNTERS, difference
from tilework.tensor.captured import Captured
from tilework.tensor.jit import Jit
from tilework.tensor.results import Results


def array(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.float32)


def tensor(*values: float) -> Tensor:
    return Tensor(array(*values)).realize()


def test_each_call_gives_the_plain_result() -> None:
    step = jit(lambda x, y: x * 2 + y)
    results = [step(tensor(i, i + 1), tensor(1, 2)).tolist() for i in range(5)]
    assert results == [[2 * i + 1, 2 * i + 4] for i in range(5)]


def test_EXE_01_a_replay_compiles_links_and_schedules_nothing() -> None:
    step = jit(lambda x: (x * 3).exp())
    x = tensor(0, 1)
    for _ in range(3):
        step(x)
    before = COUNTERS.snapshot()
    for _ in range(1000):
        step(x)
    done = difference(before)
    assert done["replays"] == 1000
    assert done["launches"] == 1000
    assert not {"compiles", "links", "schedules", "allocations", "captures"} & done.keys()


def test_EXE_06_results_that_are_kept_stay_right() -> None:
    step = jit(lambda x: x * x)
    kept = [step(tensor(i)) for i in range(12)]
    assert [result.item() for result in kept] == [i * i for i in range(12)]


def test_EXE_06_a_lazy_reader_of_a_result_keeps_it() -> None:
    step = jit(lambda x: x * x)
    readers = [step(tensor(i)) + 1 for i in range(6)]
    assert [reader.item() for reader in readers] == [i * i + 1 for i in range(6)]


def test_EXE_06_a_superseded_result_of_a_ring_raises() -> None:
    step = jit(lambda x: x + 1, outputs=2)
    results = [step(tensor(i)) for i in range(5)]
    assert results[4].item() == 5
    assert results[3].item() == 4
    with pytest.raises(StaleOutputError, match="superseded 2 calls later"):
        results[2].item()


def test_EXE_05_an_argument_that_is_assigned_is_state() -> None:
    def step(total: Tensor, x: Tensor) -> Tensor:
        total.assign(total * 2 + x)
        return (x * 5).sum()

    captured, total, expected = jit(step), tensor(0, 0), array(0, 0)
    for i in range(6):
        captured(total, tensor(i, i + 1))
        expected = expected * 2 + array(i, i + 1)
        np.testing.assert_array_equal(total.numpy(), expected)


def test_EXE_05_an_argument_that_is_not_assigned_is_never_written() -> None:
    step = jit(lambda x: x * 2)
    x = tensor(1, 2)
    for _ in range(4):
        x_copy = step(x)
        assert x.tolist() == [1, 2]
        assert x_copy.tolist() == [2, 4]


def test_held_state_is_carried_from_call_to_call() -> None:
    state = tensor(1)

    def step(x: Tensor) -> Tensor:
        state.assign(state * 2 + x)
        return state + 0

    captured = jit(step)
    assert [captured(tensor(1)).item() for _ in range(5)] == [3, 7, 15, 31, 63]
    assert state.item() == 63


def test_state_that_was_never_computed_before_is_carried_too() -> None:
    state = Tensor.zeros(1)

    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 1

    captured = jit(step)
    assert [captured(tensor(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]


def test_a_reader_of_the_old_state_keeps_its_value() -> None:
    state = tensor(1)

    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 1

    captured = jit(step)
    for _ in range(3):
        captured(tensor(1))
    reader = state * 10
    captured(tensor(1))
    assert (reader.item(), state.item()) == (40, 5)


def test_a_write_from_outside_is_seen_by_the_next_replay() -> None:
    weight = tensor(2)
    captured = jit(lambda x: x * weight)
    assert [captured(tensor(3)).item() for _ in range(3)] == [6, 6, 6]
    weight.assign(tensor(5))
    assert captured(tensor(3)).item() == 15


def test_views_are_inputs() -> None:
    base = tensor(0, 1, 2, 3, 4, 5)
    captured = jit(lambda x: x * 10)
    for _ in range(3):
        assert captured(base[2:4]).tolist() == [20, 30]
    assert captured(base[1:3]).tolist() == [10, 20]


def test_one_tensor_may_be_given_twice() -> None:
    captured = jit(lambda a, b: a + b)
    for i in range(4):
        x = tensor(i)
        assert captured(x, x).item() == 2 * i
    assert captured(tensor(1), tensor(2)).item() == 3


def test_an_argument_that_the_function_also_holds_is_no_argument_like_others() -> None:
    weight = tensor(3)
    captured = jit(lambda x: x + weight)
    assert captured(weight).item() == 6
    assert [captured(tensor(i)).item() for i in range(3)] == [3, 4, 5]


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (lambda: tensor(1, 2, 3), "argument 0: shape"),
        (lambda: Tensor(np.array([1, 2], np.int32)), "argument 0: dtype"),
        (lambda: tensor(0, 1, 2, 3)[::2], "argument 0: base shape"),
        (lambda: Tensor([1.0, 2.0], device="PYTHON"), "argument 0: device"),
        (lambda: 5, "argument 0"),
    ],
)
def test_EXE_03_a_changed_argument_is_refused_by_field(
    other: Callable[[], Any], field: str
) -> None:
    state = tensor(1)

    def step(x: Tensor) -> Tensor:
        state.assign(state + 1)
        return x * 2

    captured: Any = TinyJit(step)
    for _ in range(2):
        captured(tensor(1, 2))
    with pytest.raises(CaptureError) as caught:
        captured(other())
    assert caught.value.field == field
    assert state.item() == 3  # nothing has run


def test_EXE_03_a_changed_view_is_refused() -> None:
    square = Tensor(np.arange(4, dtype=np.float32).reshape(2, 2)).realize()
    captured: Any = TinyJit(lambda x: x * 2)
    captured(square)
    with pytest.raises(CaptureError, match="argument 0: view"):
        captured(square.T)


def test_EXE_03_a_capture_error_is_a_runtime_error_that_says_what_to_do() -> None:
    captured: Any = TinyJit(lambda x, n: x * n)
    captured(tensor(1), 2)
    with pytest.raises(RuntimeError, match="argument 1") as caught:
        captured(tensor(1), 3)
    assert "captures=8" in str(caught.value)


def test_EXE_04_an_argument_that_overlaps_a_written_one_is_refused() -> None:
    def step(total: Tensor, x: Tensor) -> None:
        total.assign(total + x)

    captured: Any = TinyJit(step)
    for _ in range(2):
        captured(tensor(1, 2), tensor(1, 1))
    x = tensor(1, 2)
    with pytest.raises(CaptureError, match="alias pattern"):
        captured(x, x)
    assert x.tolist() == [1, 2]


def test_a_changed_number_captures_again_with_an_event() -> None:
    scale = SimpleNamespace(value=2.0)
    captured = jit(lambda x: x * scale.value)
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        captured(tensor(1))
        scale.value = 4.0
        assert captured(tensor(1)).item() == 4
    changes = [event for event in events if isinstance(event, trace.Recaptured)]
    assert [event.changed for event in changes] == ["scale.value: 2.0 became 4.0"]


def test_no_more_captures_are_kept_than_allowed() -> None:
    captured = jit(lambda x, n: x * n, captures=3)
    for n in range(6):
        assert captured(tensor(2), n).item() == 2 * n
    assert captured.num_captures == 3


def test_a_changed_setting_captures_again() -> None:
    captured = jit(lambda x: x * 2)
    captured(tensor(1))
    with settings.override(fp_mode="contract"):
        captured(tensor(1))
    assert captured.num_captures == 2


def test_training_mode_is_part_of_the_call() -> None:
    captured = jit(lambda x: x * (2 if Tensor.training else 3))
    assert captured(tensor(1)).item() == 3
    with Tensor.train():
        assert captured(tensor(1)).item() == 2


@pytest.mark.parametrize(
    "read", [lambda x: x.numpy(), lambda x: x.item(), lambda x: x.tolist(), lambda x: float(x)]
)
def test_EXE_08_a_host_read_inside_is_refused_and_leaves_no_capture(
    read: Callable[[Tensor], Any],
) -> None:
    captured = jit(lambda x: x * read(x))
    with pytest.raises(CaptureError, match="read on the host"):
        captured(tensor(1))
    assert not capture.is_capturing()
    assert captured.num_captures == 0
    assert (tensor(1) + 1).item() == 2


def test_EXE_08_an_exception_inside_leaves_no_capture() -> None:
    def step(x: Tensor) -> Tensor:
        (x * 2).realize()
        raise ValueError("mine")

    captured = jit(step)
    with pytest.raises(ValueError, match="mine"):
        captured(tensor(1))
    assert not capture.is_capturing()


def test_EXE_08_a_capture_inside_a_capture_is_inlined() -> None:
    inner = jit(lambda x: x + 1)
    outer = jit(lambda x: inner(x) * 2)
    assert [outer(tensor(i)).item() for i in range(4)] == [2, 4, 6, 8]
    assert inner.num_captures == 0


def test_EXE_07_other_threads_run_eagerly_while_one_captures() -> None:
    results: list[list[float]] = []

    def step(x: Tensor) -> Tensor:
        thread = threading.Thread(target=lambda: results.append((tensor(1, 2) + 1).tolist()))
        thread.start()
        thread.join()
        return x * 2

    captured = jit(step)
    assert [captured(tensor(i)).item() for i in range(3)] == [0, 2, 4]
    assert results[0] == [2, 3]


def test_EXE_07_threads_capture_at_once() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        captured = jit(lambda x: (x * number + 1) * 2)
        results = [captured(tensor(i)).item() for i in range(5)]
        wrong.extend([number] if results != [(i * number + 1) * 2 for i in range(5)] else [])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_random_numbers_go_on_and_follow_the_seed() -> None:
    def draw() -> list[tuple[float, ...]]:
        Tensor.manual_seed(7)
        captured = jit(lambda x: x + Tensor.rand(4))
        return [tuple(captured(tensor(0, 0, 0, 0)).tolist()) for _ in range(5)]

    first = draw()
    assert len(set(first)) == 5
    assert draw() == first


def test_containers_and_keywords_hold_tensors() -> None:
    def step(pair: tuple[Tensor, Tensor], *, more: dict[str, Tensor]) -> dict[str, Any]:
        return {"sum": pair[0] + pair[1], "rest": [more["a"] * 2, None, 5]}

    captured = jit(step)
    for i in range(4):
        result = captured((tensor(i), tensor(1)), more={"a": tensor(i)})
        assert result["sum"].item() == i + 1
        assert result["rest"][0].item() == 2 * i
        assert result["rest"][1:] == [None, 5]


def test_a_returned_argument_is_the_argument() -> None:
    captured = jit(lambda x: (x, x * 2))
    for i in range(3):
        x = tensor(i)
        same, double = captured(x)
        assert same is x
        assert double.item() == 2 * i


def test_a_returned_view_of_a_result_is_right() -> None:
    captured = jit(lambda x: (x * 2).realize()[1:])
    for i in range(3):
        assert captured(tensor(i, i + 1, i + 2)).tolist() == [2 * i + 2, 2 * i + 4]


def test_a_bound_size_may_change_from_call_to_call() -> None:
    base = tensor(*range(8))
    captured = TinyJit(lambda x: x.sum() * 2)
    n = Variable("n", 1, 8)
    results = [captured(base[: n.bind(count)]).item() for count in (2, 3, 4, 8)]
    assert results == [2, 6, 12, 56]


def test_EXE_16_MPL_13_a_replay_checks_the_range_of_a_variable() -> None:
    base = tensor(*range(8))
    captured = TinyJit(lambda x: x.sum())
    n = Variable("n", 1, 8)
    captured(base[: n.bind(2)])
    with pytest.raises(BoundsError):
        captured(base[: n.bind(9)])


def test_a_dictionary_that_the_function_fills_is_filled_at_each_call() -> None:
    left: dict[str, Tensor] = {}

    def step(x: Tensor) -> Tensor:
        left.update(half=x / 2)
        return x * 2

    captured = jit(step)
    for i in range(3):
        captured(tensor(i))
        assert left["half"].item() == i / 2


def test_a_tensor_left_behind_by_the_capture_goes_stale() -> None:
    box = SimpleNamespace()

    def step(x: Tensor) -> Tensor:
        box.half = x / 2
        return x * 2

    captured = jit(step)
    captured(tensor(4))
    assert box.half.item() == 2
    captured(tensor(8))
    with pytest.raises(StaleOutputError, match="has run again"):
        box.half.item()


def test_state_that_is_replaced_by_another_object_is_refused_or_followed() -> None:
    box = [tensor(1)]

    def step(x: Tensor) -> Tensor:
        box[0] = (box[0] + x).realize()
        return box[0] * 1

    captured = jit(step)
    assert [captured(tensor(1)).item() for _ in range(4)] == [2, 3, 4, 5]


def test_a_method_is_captured_for_each_instance() -> None:
    class Model:
        def __init__(self, weight: float) -> None:
            self.weight = tensor(weight)

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight

    two, three = Model(2), Model(3)
    for i in range(3):
        assert two(tensor(i)).item() == 2 * i
        assert three(tensor(i)).item() == 3 * i


def test_a_gradient_through_a_replayed_result_raises() -> None:
    weight = Tensor(array(2), requires_grad=True)
    captured = jit(lambda x: (x * weight).sum())
    for _ in range(3):
        loss = captured(tensor(3))
    with pytest.raises(UserError):
        loss.backward()


def test_a_training_step_equals_the_plain_one() -> None:
    def train(wrap: Callable[[Any], Any]) -> list[float]:
        weight: Any = Tensor(array(0.5, -0.5), requires_grad=True)

        def step(x: Tensor) -> Any:
            weight.grad = None
            loss = ((x * weight).sum() - 1).square()
            loss.backward()
            with Tensor.no_grad():
                weight.assign(weight - 0.1 * weight.grad)
            return loss.detach()

        run = wrap(step)
        losses = [run(tensor(i, 1)).item() for i in range(6)]
        return [*losses, *weight.tolist()]

    assert train(jit) == train(lambda step: step)


@pytest.fixture
def measured() -> Iterator[tuple[Jit[..., Any], Latency]]:
    """A jit that was replayed once, and what it fills."""
    captured = jit(lambda x: x * 2)
    captured(tensor(1))
    yield captured, captured.measure()
    captured.stop_measuring()


def test_EXE_13_the_parts_of_a_call_sum_to_its_time(
    measured: tuple[Jit[..., Any], Latency],
) -> None:
    captured, latency = measured
    for i in range(10):
        captured(tensor(i))
    summary = latency.summary()
    assert summary["call"].count == 10
    assert sum(summary[part].mean for part in PARTS) == pytest.approx(summary["call"].mean)
    assert summary["call"].p50 <= summary["call"].p99 <= summary["call"].most
    assert str(latency).splitlines()[-1].startswith("call")


def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.02)
        return function(*args, **kwargs)

    return slow


@pytest.mark.parametrize(
    ("owner", "name", "part"),
    [
        (Captured, "match", "check"),
        (Results, "for_replay", "bind"),
        (TableInstance, "launch", "run"),
        (Captured, "_wrap", "results"),
        (OpenDevice, "synchronize", "read wait"),
        (OpenDevice, "copy_out", "readback"),
    ],
)
def test_EXE_12_EXE_13_a_delay_shows_in_its_part_alone(
    measured: tuple[Jit[..., Any], Latency],
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    part: str,
) -> None:
    captured, latency = measured
    x = tensor(1)
    # The parts are methods where a call is checked by loops.
    monkeypatch.setattr("tilework.tensor.jit.make_quick", lambda *arguments: None)
    captured(x)
    monkeypatch.setattr(owner, name, slowly(getattr(owner, name)))
    assert captured(x).item() == 2
    last = latency.last()
    longest = max((*PARTS, "read wait", "readback"), key=lambda stage: last[stage])
    assert longest == part
    assert last[part] >= 0.02


def test_EXE_13_a_record_looks_at_the_clock_five_times(
    measured: tuple[Jit[..., Any], Latency], monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, latency = measured
    looks: list[int] = []

    def clock() -> int:
        looks.append(len(looks))
        return len(looks)

    for module in (
        "tilework.tensor.jit",
        "tilework.engine.captured_program",
        "tilework.engine.latency",
    ):
        monkeypatch.setattr(f"{module}.perf_counter_ns", clock)
    x = tensor(1)
    captured(x)
    assert len(looks) == 5
    captured.stop_measuring()
    captured(x)
    assert len(looks) == 5
    assert latency.summary()["call"].count == 1


class Ticking:
    """A clock that shows one microsecond more each time, and a delay that a test has put in."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def quick_times(monkeypatch: pytest.MonkeyPatch, body: Callable[..., Any]) -> tuple[Any, Latency]:
    """A captured function whose replays are one function, timed by a clock that ticks."""
    clock = Ticking()
    for module in ("jit", "quick"):
        monkeypatch.setattr(f"tilework.tensor.{module}.perf_counter_ns", clock)
    for module in ("captured_program", "latency"):
        monkeypatch.setattr(f"tilework.engine.{module}.perf_counter_ns", clock)
    captured = jit(body)
    x = tensor(1)
    captured(x)
    latency = captured.measure()
    captured(x)
    assert captured._quick is not None
    latency.clear()
    return captured, latency


def test_EXE_13_a_replay_that_is_one_function_notes_its_parts_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    captured, latency = quick_times(monkeypatch, lambda x: x * 2)
    for number in range(4):
        assert captured(tensor(number)).item() == 2 * number
    last = latency.last()
    assert {part: round(last[part] * 1e6) for part in PARTS} == {
        "check": 1, "bind": 1, "run": 1, "wait": 0, "results": 1,
    }  # fmt: skip
    assert latency.summary()["call"].count == 4


def test_EXE_13_a_replay_that_writes_notes_its_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    total = Tensor([0.0]).contiguous().realize()

    def body(x: Tensor) -> Tensor:
        total.assign(total + x)
        return x * 2

    captured, latency = quick_times(monkeypatch, body)
    captured(tensor(3))
    assert sum(latency.last()[part] for part in PARTS) == pytest.approx(latency.last()["call"])
    assert total.item() == 5


def test_EXE_13_whoever_measures_next_gets_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    captured, first = quick_times(monkeypatch, lambda x: x * 2)
    captured(tensor(1))
    second = captured.measure()
    for _ in range(3):
        captured(tensor(1))
    captured.stop_measuring()
    captured(tensor(1))
    assert (first.summary()["call"].count, second.summary()["call"].count) == (1, 3)


def test_EXE_13_nothing_is_noted_when_nobody_measures() -> None:
    captured = jit(lambda x: x * 2)
    captured(tensor(1))
    latency = captured.measure()
    captured.stop_measuring()
    assert captured(tensor(2)).item() == 4
    assert latency.summary() == {}


def test_explain_shows_the_time_of_kernels_that_were_measured() -> None:
    captured = jit(lambda x: (x * 2).realize() + 1)
    with settings.override(poison=False):  # which is a step of its own
        for _ in range(3):
            captured(tensor(1))
            latency = captured.measure(kernels=True)
        captured(tensor(1))
    captured.stop_measuring()
    assert len(latency.kernel_seconds()) == 2


def test_reset_forgets_and_the_next_call_captures() -> None:
    captured = jit(lambda x: x * 2)
    captured(tensor(1))
    captured.reset()
    assert captured.num_captures == 0
    assert captured(tensor(3)).item() == 6


def test_explain_lists_launches_and_memory() -> None:
    captured = jit(lambda x: (x * 2).realize() + 1)
    assert captured.explain() == "nothing has been captured"
    captured(tensor(1))
    lines = captured.explain().splitlines()
    assert lines[0].startswith("2 steps, 1 input, 0 held buffers, 1 output, 256 B")
    assert lines[1].split()[:4] == ["kernel", "device", "threads", "time"]
    assert lines[2].split()[-2:] == ["arena0+0", "input0"]
    assert lines[3].split()[-2:] == ["output0", "arena0+0"]
    assert len(lines) == 4


def test_a_gradient_through_an_argument_is_whole_though_the_capture_had_none() -> None:
    captured = jit(lambda x: (x * x).sum())
    for _ in range(4):
        captured(tensor(1, 2))
    weight: Any = Tensor(array(1, 2), requires_grad=True).realize()
    (captured(weight) + weight.sum()).backward()
    assert weight.grad.tolist() == [3, 5]


def test_a_gradient_through_a_held_tensor_is_whole_though_the_capture_had_none() -> None:
    weight: Any = tensor(1, 2)
    captured = jit(lambda x: (x * weight).sum())
    for _ in range(4):
        captured(tensor(3, 4))
    weight.requires_grad = True
    (captured(tensor(3, 4)) + weight.sum()).backward()
    assert weight.grad.tolist() == [4, 5]


def test_a_held_result_that_was_superseded_raises() -> None:
    ring = jit(lambda x: x + 1, outputs=1)
    for _ in range(3):
        held = ring(tensor(1))
    captured = jit(lambda x: x + held)
    for _ in range(4):
        assert captured(tensor(0)).item() == 2
    ring(tensor(50))
    with pytest.raises(StaleOutputError):
        captured(tensor(0))


def test_state_that_a_failed_replay_has_ruined_is_not_read_by_another_capture() -> None:
    state, table = tensor(0, 0), tensor(1, 2)

    def step(position: Tensor) -> Tensor:
        state.assign(state + table[position])
        return state * 1

    write, read = jit(step), jit(lambda x: x + state)
    for _ in range(4):
        write(Tensor([0, 1]))
        read(tensor(0, 0))
    with pytest.raises(BoundsError):
        write(Tensor([0, 9]))
    with pytest.raises(StaleOutputError):
        read(tensor(0, 0))


def test_a_held_tensor_that_refers_to_another_storage_is_captured_again() -> None:
    weight = tensor(1, 2)
    captured = jit(lambda x: x + weight)
    for _ in range(4):
        captured(tensor(0, 0))
    weight.replace(tensor(5, 6))
    for _ in range(3):
        assert captured(tensor(0, 0)).tolist() == [5, 6]


def test_a_function_that_replaces_the_storage_of_a_tensor_is_refused() -> None:
    state = tensor(1)
    other = state.detach()

    def step(x: Tensor) -> Tensor:
        state.replace(state + x)
        return state * 1

    with pytest.raises(CaptureError, match="another storage"):
        jit(step)(tensor(1))
    assert other.item() == 1


def test_arguments_that_inner_functions_use_may_be_other_tensors_in_the_next_call() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        several = [x, y]
        doubled = [each * 2 for each in several if each.shape == x.shape]
        return (lambda factor: x * factor + doubled[1])(3)

    captured = jit(function)
    for start in range(3):
        found = captured(Tensor([start, 1.0]).realize(), Tensor([2.0, start]).realize())
        assert found.tolist() == [3.0 * start + 4, 3.0 + 2 * start]
    assert captured.num_captures == 1
