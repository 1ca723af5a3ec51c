"""Where the user's code is: the line that wrote an operation, and tracebacks that end there."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple, ParamSpec, TypeVar

from tilework.base.errors import InternalError, SettingsError, TileworkError
from tilework.base.settings import current

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


class Location(NamedTuple):
    """A line of a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        """`file:line`, as editors and terminals link it."""
        return f"{self.file}:{self.line}"


def user_location() -> Location | None:
    """Return the innermost line outside tilework that is being run, or None if there is none.

    It is cheap enough to be noted with every operation: it walks up the frames that are ours.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE):
            return Location(file, frame.f_lineno)
        frame = frame.f_back
    return None


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
