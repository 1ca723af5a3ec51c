"""`tinygrad.function`: functions that are one node of the graph there, and plain calls here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from tilework import errors

P = ParamSpec("P")
R = TypeVar("R")


@overload
def function(fxn: Callable[P, R], **options: Any) -> Callable[P, R]: ...
@overload
def function(fxn: None = None, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def function(fxn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The function itself: the compiler here finds repeated parts by their structure.

    Raises:
        UnsupportedError: a gradient of its own is asked for.
    """
    if options.get("grad_fxn") is not None:
        raise errors.UnsupportedError(
            "function: a gradient given as a function over the graph cannot be served",
            try_="write the forward computation so that its own gradient is the wanted one",
        )
    if fxn is None:
        return functools.partial(function, **options)
    return fxn


__all__ = ["function"]
