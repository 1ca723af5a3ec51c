import traceback
from collections.abc import Callable

import pytest

from tilework.base import frames, settings
from tilework.base.errors import InternalError, SettingsError, ShapeError, TileworkError
from tilework.base.frames import public


def deep(error: Exception) -> None:
    def inner() -> None:
        raise error

    inner()


def frames_of(call: Callable[[Exception], None], error: Exception) -> list[str]:
    with pytest.raises(type(error)) as caught:
        call(error)
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_inner_frames_of_a_users_error_are_dropped() -> None:
    assert frames_of(public(deep), ShapeError("reduce: wrong")) == ["frames_of"]


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
