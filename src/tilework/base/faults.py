"""Fault points: named places where a test can make the next step fail.

Code calls `faults.hit("cpu.alloc.map")` before each acquisition and each device command.  Off, a
hit is one test of a module global.  A trace run counts the points, then one run per point fails
there:

    with faults.count() as points:
        work()
    for k in range(len(points)):
        with faults.fail_at(k), pytest.raises(InjectedFault):
            work()

Only one plan is active in a process at a time; it sees hits of every thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilework.base.errors import DeviceError, InternalError
from tilework.base.forks import new_lock


class InjectedFault(DeviceError):
    """The failure that a test asked for."""


_plan: Callable[[str], None] | None = None
_lock = new_lock()


def hit(name: str) -> None:
    """Pass a fault point; raises what an active plan wants raised here."""
    if _plan is not None:
        _plan(name)


@contextmanager
def _installed(plan: Callable[[str], None]) -> Iterator[None]:
    global _plan
    with _lock:
        if _plan is not None:
            raise InternalError("faults: a plan is active already", try_="nest no fault plans")
        _plan = plan
    try:
        yield
    finally:
        with _lock:
            _plan = None


@contextmanager
def count() -> Iterator[list[str]]:
    """Collect the names of the points that the block passes, in order."""
    points: list[str] = []
    with _installed(points.append):
        yield points


@contextmanager
def fail_at(
    step: int, make_error: Callable[[str], BaseException] | None = None
) -> Iterator[list[str]]:
    """Fail at the hit number `step` (from 0); later hits pass.

    Args:
        step: which hit fails.
        make_error: builds the exception from the point's name; None raises `InjectedFault`.

    Returns:
        A context that gives the names passed so far, the failing one last.
    """
    points: list[str] = []
    guard = new_lock()

    def plan(name: str) -> None:
        with guard:
            points.append(name)
            is_due = len(points) == step + 1
        if is_due:
            raise (
                InjectedFault(f"{name}: injected fault") if make_error is None else make_error(name)
            )

    with _installed(plan):
        yield points
