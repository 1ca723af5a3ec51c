import pytest

from tilework.base.clock import SYSTEM_CLOCK, Deadline, ManualClock, WaitLimit
from tilework.base.errors import DeviceTimeoutError


def test_a_deadline_counts_down_to_zero() -> None:
    clock = ManualClock()
    deadline = Deadline.after(2.0, clock)
    clock.sleep(5.0)
    assert (deadline.remaining(), deadline.is_past()) == (0.0, True)


def test_the_sooner_of_two_deadlines() -> None:
    clock = ManualClock()
    soon, late = Deadline.after(1.0, clock), Deadline.after(2.0, clock)
    assert late.sooner(soon) is soon.sooner(late) is soon


def test_GEN_05_a_signal_that_creeps_on_still_ends_at_the_deadline() -> None:
    clock = ManualClock()
    wait = WaitLimit.of(10.0, no_progress_seconds=1.0, clock=clock).start("CPU: queue 0")

    def creep() -> None:
        for step in range(100):
            wait.check(progress=step)
            clock.sleep(0.9)

    with pytest.raises(DeviceTimeoutError, match="the deadline has passed") as caught:
        creep()
    assert caught.value.waited == pytest.approx(10.0, abs=0.9)


def test_GEN_05_no_progress_ends_a_wait_before_its_deadline() -> None:
    clock = ManualClock()
    wait = WaitLimit.of(10.0, no_progress_seconds=1.0, clock=clock).start("CPU: queue 0")
    wait.check(progress=1)
    clock.sleep(1.0)
    with pytest.raises(DeviceTimeoutError, match="CPU: queue 0: no progress") as caught:
        wait.check(progress=1)
    assert caught.value.last_progress == 1.0


def test_a_wait_with_progress_goes_on() -> None:
    clock = ManualClock()
    wait = WaitLimit.of(10.0, no_progress_seconds=1.0, clock=clock).start("CPU")
    clock.sleep(0.9)
    wait.check(progress=1)
    clock.sleep(0.9)
    wait.check(progress=2)


def test_a_pause_does_not_pass_the_deadline() -> None:
    clock = ManualClock()
    assert WaitLimit.of(1.0, clock=clock).start("CPU").pause_seconds(5.0) == 1.0


def test_the_clock_of_the_machine_does_not_go_back() -> None:
    before = SYSTEM_CLOCK.now()
    SYSTEM_CLOCK.sleep(-1.0)
    assert SYSTEM_CLOCK.now() >= before
