import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tilework.base import frames, settings
from tilework.base.errors import InternalError, SettingsError, ShapeError, TileworkError
from tilework.base.frames import public

DEEP = """
def deep(error):
    def inner():
        raise error

    inner()
"""


def defined_in(filename: str) -> Callable[[Exception], None]:
    """A function that raises an error two calls below, as if it stood in this file."""
    names: dict[str, Any] = {}
    exec(compile(DEEP, filename, "exec"), names)
    found: Callable[[Exception], None] = names["deep"]
    return found


deep = defined_in(frames.PACKAGE + "some/module.py")


def frames_of(call: Callable[[Exception], None], error: Exception) -> list[str]:
    with pytest.raises(type(error)) as caught:
        call(error)
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_inner_frames_of_a_users_error_are_dropped() -> None:
    assert frames_of(public(deep), ShapeError("reduce: wrong")) == ["frames_of"]


def test_a_function_of_the_user_that_we_call_is_shown_to_its_last_line() -> None:
    users = defined_in("model.py")
    assert frames_of(public(users), ShapeError("reduce: wrong"))[-2:] == ["deep", "inner"]

    def calls_ours(error: Exception) -> None:
        deep(error)

    assert frames_of(public(calls_ours), ShapeError("reduce: wrong"))[-1] == "calls_ours"


def test_a_setting_keeps_them() -> None:
    with settings.override(show_internal_frames=True):
        assert frames_of(public(deep), ShapeError("reduce: wrong"))[-2:] == ["deep", "inner"]


@pytest.mark.parametrize("error", [InternalError("impossible"), ZeroDivisionError()])
def test_our_own_faults_keep_their_frames(error: Exception) -> None:
    assert frames_of(public(deep), error)[-1] == "inner"


def test_the_wrapped_function_keeps_its_name_and_result() -> None:
    @public
    def twice(value: int) -> int:
        """Double it."""
        return 2 * value

    assert (twice(2), twice.__name__, twice.__doc__) == (4, "twice", "Double it.")


def test_the_error_itself_is_unchanged() -> None:
    error = ShapeError("reduce: wrong")
    with pytest.raises(TileworkError) as caught:
        public(deep)(error)
    assert caught.value is error


def test_settings_that_cannot_be_read_hide_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def current() -> None:
        raise SettingsError("settings: wrong")

    monkeypatch.setattr(frames, "current", current)
    assert frames_of(public(deep), ShapeError("reduce: wrong")) == ["frames_of"]
