"""Threads that build kernels."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tilework.engine.workers import BuildThreads


def build(source: Any) -> bytes:
    if source == "bad":
        raise ValueError("bad source")
    return str(source).encode()


def test_each_ticket_gives_its_own_result_in_any_order() -> None:
    threads = BuildThreads(build, 2)
    sources: list[Any] = list(range(20))
    tickets = [threads.submit(source) for source in sources]
    assert [threads.result(ticket) for ticket in reversed(tickets)] == [
        str(source).encode() for source in reversed(sources)
    ]
    threads.close()


def test_an_error_is_raised_where_its_result_is_asked_for() -> None:
    threads = BuildThreads(build, 1)
    sources: list[Any] = ["bad", "good"]
    bad, good = [threads.submit(source) for source in sources]
    assert threads.result(good) == b"good"
    with pytest.raises(ValueError, match="bad source"):
        threads.result(bad)
    threads.close()


def test_close_drops_what_was_not_begun_and_ends_the_threads() -> None:
    may_go, begun = threading.Event(), []

    def wait(source: Any) -> bytes:
        begun.append(source)
        may_go.wait(10)
        return b""

    threads = BuildThreads(wait, 1)
    for number in range(10):
        source: Any = number
        threads.submit(source)
    timer = threading.Timer(0.05, may_go.set)
    timer.start()
    threads.close()
    timer.join()
    assert len(begun) <= 2
    assert not [one for one in threading.enumerate() if one.name == "tilework-build"]
