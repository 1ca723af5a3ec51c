"""Figures of repeated calls, and sums of events."""

import math

import pytest

from tilework.base import trace
from tilework.tools.measure import Latency, Stages, percentile, recording, time_calls


@pytest.mark.parametrize(("share", "wanted"), [(0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_a_value_that_was_measured(share: float, wanted: float) -> None:
    assert percentile([float(i) for i in range(1, 101)], share) == wanted


def test_the_percentile_of_nothing_is_nan() -> None:
    assert math.isnan(percentile([], 0.5))


def test_latency_sums_up_in_milliseconds() -> None:
    found = Latency.of([0.003, 0.001, 0.002]).to_milliseconds()
    assert found == {
        "count": 3, "p50_ms": 2.0, "p99_ms": 3.0, "min_ms": 1.0, "max_ms": 3.0, "mean_ms": 2.0
    }  # fmt: skip


def test_calls_are_made_as_often_as_asked() -> None:
    calls: list[int] = []
    steps: list[int] = []
    found = time_calls(lambda: calls.append(1), 5, lambda: steps.append(1))
    assert (found.count, len(calls), len(steps)) == (5, 5, 5)


def test_events_are_summed_while_recording_only() -> None:
    with recording() as events:
        trace.emit(trace.PassEnded("a", 1, 2, 0.5))
        trace.emit(trace.PassEnded("a", 1, 2, 0.25))
        trace.emit(trace.KernelCompiled("k", "CPU", 2.0))
        trace.emit(trace.KernelCompiled("k", "CPU", 3.0, cached=True))
        trace.emit(trace.Allocated("CPU", 100))
        trace.emit(trace.Allocated("CPU", -60))
        trace.emit(trace.Warned("part", "odd"))
    trace.emit(trace.Allocated("CPU", 1000))
    assert events.passes == {"a": 0.75}
    assert (events.compile_seconds, len(events.compiled)) == (2.0, 2)
    assert (events.allocated_bytes, events.peak_bytes) == (40, 100)
    assert events.warnings == ["part: odd"]


def test_passes_are_summed_by_the_part_of_the_compiler() -> None:
    with recording() as events:
        trace.emit(trace.PassEnded("schedule.order", 1, 2, 0.5))
        trace.emit(trace.PassEnded("schedule.group", 1, 2, 0.25))
        trace.emit(trace.PassEnded("codegen.expand", 1, 2, 2.0))
    assert events.pass_seconds() == {"schedule": 0.75, "codegen": 2.0}


def test_stages_of_one_name_add_up() -> None:
    stages = Stages()
    for _ in range(2):
        with stages.measure("load"):
            pass
    assert list(stages.seconds) == ["load"]
