"""Threads of a block in software: where one has failed, the others end at once."""

from __future__ import annotations

import threading

import pytest

from tilework.base.errors import InternalError
from tilework.ir.interpret.blocks import Team
from tilework.ir.interpret.rings import Signal


@pytest.fixture
def team() -> Team:
    found = Team(1, 64)
    found.fail(InternalError("the first"))
    return found


def test_nobody_meets_others_who_have_failed(team: Team) -> None:
    with pytest.raises(threading.BrokenBarrierError):
        team.meet()
    with pytest.raises(threading.BrokenBarrierError):
        team.meet_some("two of them", 0, 2)


def test_nobody_waits_for_a_signal_that_is_made_after_a_failure(team: Team) -> None:
    signal = Signal(1, team.count)
    team.add_signal((0, 0), signal)
    assert signal.wait(0) is None


def test_the_first_error_stays(team: Team) -> None:
    team.fail(InternalError("a later one"))
    assert str(team.error).startswith("the first")
