"""How often threads take turns: raised for a while, and put back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tilework.base.switching import prompt_switching


@pytest.fixture(autouse=True)
def _interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield
    sys.setswitchinterval(before)


def test_the_interval_is_short_inside_and_what_it_was_after() -> None:
    with prompt_switching():
        assert sys.getswitchinterval() < 0.001
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_the_interval_is_put_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), prompt_switching():
        raise ValueError("inside")
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_an_interval_that_is_shorter_already_stays() -> None:
    sys.setswitchinterval(0.0001)
    with prompt_switching():
        assert sys.getswitchinterval() == pytest.approx(0.0001)
    assert sys.getswitchinterval() == pytest.approx(0.0001)


def test_what_somebody_else_has_set_meanwhile_stays() -> None:
    with prompt_switching():
        sys.setswitchinterval(0.01)
    assert sys.getswitchinterval() == pytest.approx(0.01)
