"""Tracebacks of our errors end at the line that the user wrote."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from tilework.base.errors import InternalError, SettingsError, TileworkError
from tilework.base.settings import current

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


def shows_internal_frames() -> bool:
    """Whether tracebacks keep the frames of this package."""
    try:
        return current().show_internal_frames
    except SettingsError:
        # The settings cannot be read: that is the error which is on its way to the user already.
        return False


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Make tracebacks of tilework's errors end at the user's line.

    The frames below this one are dropped from an error that the user can act on.  Our own faults
    keep theirs, and so does everything while `show_internal_frames` is set.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TileworkError as error:
            if not isinstance(error, InternalError) and not shows_internal_frames():
                error.__traceback__ = None
            raise

    return call
