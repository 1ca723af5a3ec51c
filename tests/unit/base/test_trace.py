import pytest

from tilework.base import trace


def test_nobody_listens_at_first() -> None:
    assert not trace.enabled()


def test_a_subscriber_gets_each_event_of_its_block() -> None:
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        trace.emit(trace.Allocated("CPU", 8))
    trace.emit(trace.Allocated("CPU", 9))
    assert events == [trace.Allocated("CPU", 8)]


def test_events_are_enabled_while_somebody_listens() -> None:
    with trace.subscribe(lambda event: None):
        assert trace.enabled()


def test_two_subscribers_hear_the_same() -> None:
    first: list[trace.Event] = []
    second: list[trace.Event] = []
    with trace.subscribe(first.append), trace.subscribe(second.append):
        trace.emit(trace.Waited("CPU", "queue", 0.1))
    assert first == second == [trace.Waited("CPU", "queue", 0.1)]


def test_the_inner_of_two_equal_subscriptions_ends_first() -> None:
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        with trace.subscribe(events.append):
            pass
        trace.emit(trace.Warned("a", "b"))
    assert len(events) == 1


def test_an_error_of_a_subscriber_is_not_hidden() -> None:
    def broken(event: trace.Event) -> None:
        raise ZeroDivisionError

    with trace.subscribe(broken), pytest.raises(ZeroDivisionError):
        trace.emit(trace.Warned("a", "b"))


def test_warnings_are_kept_without_a_listener() -> None:
    trace.warn("disk cache", "full")
    assert trace.recent_warnings() == (trace.Warned("disk cache", "full"),)


def test_kept_warnings_are_bounded() -> None:
    for number in range(100):
        trace.warn("x", str(number))
    assert [event.message for event in trace.recent_warnings()][::63] == ["36", "99"]


def test_a_pass_that_returns_its_graph_has_not_changed_it() -> None:
    graph = object()
    assert not trace.PassEnded("p", graph, graph, 0.0).is_changed
