import pytest

from tilework.base.errors import StaleHandleError
from tilework.base.generation import Generation


def test_a_fresh_stamp_is_accepted() -> None:
    life = Generation("CPU")
    life.check(life.stamp())


def test_a_stamp_of_before_a_reset_is_stale() -> None:
    life = Generation("CPU")
    old = life.stamp()
    life.advance()
    with pytest.raises(
        StaleHandleError, match=r"(?s)the buffer is of an earlier.*got: generation 0"
    ):
        life.check(old, "buffer")


def test_a_stamp_of_another_owner_is_refused() -> None:
    with pytest.raises(StaleHandleError):
        Generation("CPU").check(Generation("CUDA").stamp())
