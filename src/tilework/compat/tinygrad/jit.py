"""`TinyJit`: as programs know it, over `tilework.jit`."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import tilework
from tilework import Tensor, errors, nn
from tilework.compat.tinygrad.flags import FLAGS

P = ParamSpec("P")
R = TypeVar("R")

#: What a call that cannot be captured or differs from the capture raises.
JitError = errors.CaptureError


class _TinyJit(Generic[P, R]):
    """Runs a function once as it is, captures it at the second call, and replays it from then on.

    A call whose arguments, or whatever else the function reads, differ from what was captured is
    captured anew, so a replay never means something else than the call.
    """

    def __init__(self, fxn: Callable[P, R], prune: bool = False) -> None:
        self.fxn = fxn
        self.prune = prune
        #: How often it was called.
        self.cnt = 0
        self._jit: Any = tilework.jit(fxn)
        self._methods: dict[int, tuple[weakref.ref[Any], _TinyJit[..., Any]]] = {}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: each instance is captured on its own."""
        if instance is None:
            return self
        key = id(instance)
        found = self._methods.get(key)
        if found is None or found[0]() is not instance:
            bound: Any = self.fxn.__get__(instance, owner)
            made: _TinyJit[..., Any] = _TinyJit(bound, self.prune)
            reference = weakref.ref(instance, lambda _: self._methods.pop(key, None))
            found = self._methods[key] = (reference, made)
        return found[1]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run, capture or replay."""
        self.cnt += 1
        if self.cnt > 1 and FLAGS["JIT"]:
            return self._jit(*args, **kwargs)  # type: ignore[no-any-return]  # what fxn returns
        found = self.fxn(*args, **kwargs)
        tensors = nn.state.get_parameters(found)
        if tensors:
            Tensor.realize(*tensors)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._jit, name)

    def reset(self) -> None:
        """Forget what was captured."""
        self._jit.reset()
        self.cnt = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """As the bytes of an exported file: machine code and constants, no Python code.

        Raises:
            CaptureError: nothing was captured yet.
        """
        handle, name = tempfile.mkstemp(suffix=".twx")
        os.close(handle)
        try:
            tilework.export(self._jit, name)
            return restored, (Path(name).read_bytes(),)
        finally:
            os.unlink(name)


def restored(data: bytes) -> Any:
    """What a pickled `TinyJit` comes back as: a callable that replays.

    Args:
        data: the bytes of an exported file.
    """
    handle, name = tempfile.mkstemp(suffix=".twx")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return tilework.load(name)
    finally:
        os.unlink(name)


@overload
def TinyJit(fxn: Callable[P, R], *, prune: bool = False) -> _TinyJit[P, R]: ...
@overload
def TinyJit(
    fxn: None = None, *, prune: bool = False
) -> Callable[[Callable[P, R]], _TinyJit[P, R]]: ...
def TinyJit(fxn: Callable[..., Any] | None = None, *, prune: bool = False) -> Any:
    """Capture a function and replay it.

    Args:
        fxn: takes and returns tensors; None makes a decorator.
        prune: accepted: what no argument changes is computed once anyway.
    """
    if fxn is None:
        return lambda wrapped: _TinyJit(wrapped, prune)
    return _TinyJit(fxn, prune)


__all__ = ["JitError", "TinyJit"]
