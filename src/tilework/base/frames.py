"""Tracebacks of our errors end at the line that the user wrote."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tilework.base.errors import InternalError, SettingsError, TileworkError
from tilework.base.settings import current

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
#: Where the modules of Python itself are, and what is below it but not Python's.
_STANDARD = str(Path(os.__file__).parent) + "/"
_INSTALLED = _STANDARD + "site-packages/"


def shows_internal_frames() -> bool:
    """Whether tracebacks keep the frames of this package."""
    try:
        return current().show_internal_frames
    except SettingsError:
        # The settings cannot be read: that is the error which is on its way to the user already.
        return False


def is_users(filename: str) -> bool:
    """Whether code of this file is neither ours nor of Python's own library."""
    if filename.startswith((PACKAGE, "<frozen ")):
        return False
    return not filename.startswith(_STANDARD) or filename.startswith(_INSTALLED)


def trim(error: BaseException) -> None:
    """Let the traceback of an error on its way to the user end at the user's last line.

    That is below where it is now, if we called the user's own function; else the caller's.
    """
    last: TracebackType | None = None
    at = error.__traceback__
    while at is not None:
        if is_users(at.tb_frame.f_code.co_filename):
            last = at
        at = at.tb_next
    if last is None:
        error.__traceback__ = None
    else:
        last.tb_next = None


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
                trim(error)
            raise

    return call
