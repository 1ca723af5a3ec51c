import io

import pytest

from tilework.base import log, settings, trace

EVENTS = [
    (trace.Warned("disk cache", "full"), "warning: disk cache: full"),
    (trace.Allocated("CPU", 2048), "CPU: allocated 2 KiB of buffer"),
    (trace.Allocated("CPU", -2048), "CPU: freed 2 KiB of buffer"),
    (trace.KernelCompiled("k", "CPU", 0.5, 1024), "CPU: compiled k, 1 KiB, 500 ms"),
    (trace.KernelCompiled("k", "CPU", 0.0, 1024, cached=True), "CPU: found k, 1 KiB, 0 ns"),
    (trace.Launched("k", "CPU"), "CPU: ran k"),
    (trace.Launched("k", "CPU", 0.5, 10**9, 10**9), "CPU: ran k, 500 ms, 2 GFLOP/s, 2 GB/s"),
    (trace.Waited("CPU", "queue", 0.25), "CPU: waited 250 ms for queue"),
    (trace.CacheLookup("disk", "ab", hit=True), "disk cache: hit ab"),
    (trace.Recaptured("f", "a global"), "captured f again: a global"),
    (trace.PassEnded("fuse", 1, 1, 0.001), "pass fuse, 1 ms (unchanged)"),
    (trace.RuleFired("mul_by_one", "a", "b"), "rule mul_by_one: 'a' -> 'b'"),
]


@pytest.mark.parametrize(("event", "text"), EVENTS)
def test_each_event_reads_as_a_line(event: trace.Event, text: str) -> None:
    assert log.describe(event) == text


def test_an_event_of_another_package_is_shown_by_its_repr() -> None:
    assert log.describe(trace.Event()) == "Event()"


def test_the_level_filters() -> None:
    stream = io.StringIO()
    with log.console(2, stream):
        trace.emit(trace.PassEnded("fuse", 1, 2, 0.001))
        trace.emit(trace.Launched("k", "CPU"))
    assert stream.getvalue() == "tilework: CPU: ran k\n"


def test_level_four_prints_changed_graphs() -> None:
    stream = io.StringIO()
    with log.console(4, stream):
        trace.emit(trace.PassEnded("fuse", "old", "new", 0.001))
    assert stream.getvalue().endswith("\nnew\n")


def test_level_zero_does_not_even_subscribe() -> None:
    with log.console(0):
        assert not trace.enabled()


def test_attach_follows_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    log.attach()
    with settings.override(log_level=1):
        log.attach()
        trace.warn("a", "b")
    log.detach()
    assert (capsys.readouterr().err, trace.enabled()) == ("tilework: warning: a: b\n", False)
