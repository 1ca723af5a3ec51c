import pytest

from tilework.base import faults
from tilework.base.errors import InternalError
from tilework.base.faults import InjectedFault


def test_a_hit_is_nothing_when_off() -> None:
    faults.hit("anything")


def test_the_chosen_hit_fails_and_names_its_point() -> None:
    with faults.fail_at(1) as passed:
        faults.hit("first")
        with pytest.raises(InjectedFault, match="second: injected fault"):
            faults.hit("second")
        faults.hit("third")
    assert passed == ["first", "second", "third"]


def test_a_test_may_choose_the_error() -> None:
    with faults.fail_at(0, OSError), pytest.raises(OSError, match="mmap"):
        faults.hit("mmap")


def test_plans_do_not_nest() -> None:
    with faults.count(), pytest.raises(InternalError, match="active already"), faults.count():
        pass


def test_a_plan_ends_with_its_block() -> None:
    with faults.fail_at(0):
        pass
    faults.hit("after")
