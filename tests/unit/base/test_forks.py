"""Locks after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from tilework.base import forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def status_of_child(work: Callable[[], bool]) -> int:
    """0 if `work` is true in a forked child."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("make", [forks.new_lock, forks.new_rlock])
def test_a_lock_that_another_thread_held_is_free_in_the_child(make: Callable[[], object]) -> None:
    lock = make()
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:  # type: ignore[attr-defined]
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        assert status_of_child(lambda: lock.acquire(timeout=5)) == 0  # type: ignore[attr-defined]
    finally:
        done.set()
        thread.join()


def test_what_the_forking_thread_holds_it_holds_in_the_child() -> None:
    lock = forks.new_rlock()
    with lock:
        assert status_of_child(lambda: lock._is_owned()) == 0  # type: ignore[attr-defined]


def test_a_fork_waits_for_the_holder_of_an_outer_lock() -> None:
    lock = forks.new_outer_lock(9)
    state: list[str] = []
    taken = threading.Event()

    def change() -> None:
        with lock:
            state.append("begun")
            taken.set()
            threading.Event().wait(0.05)
            state.append("ended")

    thread = threading.Thread(target=change)
    thread.start()
    taken.wait()
    assert status_of_child(lambda: state == ["begun", "ended"] and lock.acquire(timeout=5)) == 0
    thread.join()
    assert lock.acquire(timeout=5)
    lock.release()
