"""`jit`: capture what a function computes once, and replay it.

    step = jit(function)          # or @jit; up to `settings.captures` signatures are kept
    step = TinyJit(function)      # one signature: a call that differs raises CaptureError

A call whose arguments, or anything else that the function reads (`engine.guards`), differ from
every capture captures again, with an event that says what changed; or raises if no more captures
are allowed.  Each result is the same as that of the plain call.  An argument that is only read
may be any contiguous part of any tensor: `step(x[i : i + 32])` replays for each i, and copies
nothing.

A function that reads a clock, a file or a connection, or that draws random numbers of Python's, of
NumPy's, of PyTorch's or of the system's, gives something new each time: it is not captured, and a
warning says why.

What a capture cannot see: arrays of more than 64 KiB that somebody changes in place, and items of
containers beyond the first 4096, both of which `explain()` lists; what C code keeps (whether a lock
is held, the interpreter's and `decimal`'s settings, levels of loggers); functions of Python itself,
and methods of tilework's classes, that somebody replaces after the capture.  Give such values as
arguments.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from tilework.base import settings, trace
from tilework.base.errors import CaptureError, UserError
from tilework.base.forks import new_rlock
from tilework.engine import capture
from tilework.engine.explain import explain_program
from tilework.engine.latency import WINDOW, Latency, start_filling
from tilework.engine.profile import Profile, profile_measured
from tilework.engine.stats import COUNTERS
from tilework.engine.validate import Report
from tilework.tensor import realize
from tilework.tensor.captured import Bound, Captured, Mismatch
from tilework.tensor.capturing import capture_call, surroundings
from tilework.tensor.quick import MISS, Quick, make_quick
from tilework.tensor.tensor import Tensor
from tilework.tensor.wrong_calls import tell

P = ParamSpec("P")
R = TypeVar("R")

#: Calls that may pass without a capture before a warning says why.
_PATIENCE: Final = 3
#: After that, a capture is tried at each of so many calls.
_RETRY_EVERY: Final = 16


class Jit(Generic[P, R]):
    """A function that is captured and replayed.  Thread-safe: one call at a time.

    Args:
        function: takes and returns tensors, also inside lists, tuples and dictionaries.
        captures: how many signatures are kept; None takes the setting, 1 freezes.
        outputs: None gives each result memory of its own, reused when it is dropped; a number
            gives a ring of so many, and reading a superseded result raises StaleOutputError.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        captures: int | None = None,
        outputs: int | None = None,
    ) -> None:
        if not callable(function):
            raise UserError("jit: this is not a function", got=type(function).__name__)
        if (captures is not None and captures < 1) or (outputs is not None and outputs < 1):
            raise UserError("jit: captures and outputs are at least 1", got=(captures, outputs))
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._captures = captures
        self._ring = outputs
        self._kept: list[Captured] = []  # the last used first
        self._lock = new_rlock()
        self._methods: dict[int, tuple[weakref.ref[Any], Jit[..., Any]]] = {}
        self._failures = 0
        self._calls_since_failure = 0
        self._latency: Latency | None = None
        #: What replays the capture that was used last, if that can be done without loops.
        self._quick: Quick | None = None
        #: The same for each capture that was replayed, with the table that it runs.
        self._quicks: dict[Captured, tuple[object, Latency | None, Quick | None]] = {}
        #: How often it was called.
        self.cnt = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and what is pickled, are of the function and its options, without captures."""
        return _again, (type(self), self._function, self._captures, self._ring)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: each instance has captures of its own."""
        if instance is None:
            return self
        found = self._methods.get(id(instance))
        if found is None or found[0]() is not instance:
            bound = self._function.__get__(instance, owner)
            made: Jit[..., Any] = Jit(bound, captures=self._captures, outputs=self._ring)
            key = id(instance)
            reference = weakref.ref(instance, lambda _: self._methods.pop(key, None))
            found = self._methods[key] = (reference, made)
        return found[1]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Replay, or capture while running."""
        quick = self._quick
        if quick is not None:
            result = quick(args, kwargs) if kwargs else quick(args)
            if result is not MISS:
                self.cnt += 1
                return result  # type: ignore[no-any-return]  # what the function returns
        return self._call(*args, **kwargs)

    def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if capture.is_capturing():
            return self._function(*args, **kwargs)  # part of the capture around it
        with self._lock:
            self.cnt += 1
            latency = self._latency
            stamps = None if latency is None else [perf_counter_ns()]
            mismatch: Mismatch | None = None
            ambient = surroundings()
            for number, captured in enumerate(self._kept):
                quick = self._known_quick(captured)
                if quick is not None and quick is not self._quick:
                    result = quick(args, kwargs)
                    if result is not MISS:
                        self._kept.insert(0, self._kept.pop(number))
                        self._quick = quick
                        return result  # type: ignore[no-any-return]  # what the function returns
                try:
                    tensors, buffers, values = captured.match(ambient, args, kwargs)
                except Mismatch as found:
                    mismatch = mismatch or found
                    continue
                if number:
                    self._kept.insert(0, self._kept.pop(number))
                timed = None
                if latency is not None and stamps is not None:
                    stamps.append(perf_counter_ns())
                    timed = latency if latency.times_kernels else None
                if captured.recipe.program.written:
                    with realize.exclusive():
                        result = captured.replay(tensors, buffers, values, timed, stamps)
                else:
                    result = captured.replay(tensors, buffers, values, timed, stamps)
                if latency is not None and stamps is not None:
                    latency.note_call(stamps)
                if timed is None:
                    self._quick = self._quick_of(captured)
                return result  # type: ignore[no-any-return]  # what the function returns
            return self._capture_or_refuse(mismatch, args, kwargs)

    def _quick_of(self, captured: Captured) -> Quick | None:
        """The function that replays `captured`, made anew when its program was linked anew."""
        if not self._is_current(captured):
            table, latency = captured.recipe.program.fast, self._latency
            made = make_quick(captured, self._lock, Tensor, latency)
            self._quicks[captured] = (table, latency, made)
        return self._quicks[captured][2]

    def _is_current(self, captured: Captured) -> bool:
        """Whether there is such a function for the table and for whoever gets its times."""
        found = self._quicks.get(captured)
        if found is None:
            return False
        return found[0] is captured.recipe.program.fast and found[1] is self._latency

    def _known_quick(self, captured: Captured) -> Quick | None:
        """What `_quick_of` has made for `captured`, if that is still valid."""
        return self._quicks[captured][2] if self._is_current(captured) else None

    def _drop(self, captured: Captured) -> None:
        """Give back the memory of a capture that is no longer kept."""
        self._quicks.pop(captured, None)
        self._quick = None
        captured.release()

    # --- looking at it -----------------------------------------------------------------------

    @property
    def captured(self) -> Captured | None:
        """The capture that was used last."""
        return self._kept[0] if self._kept else None

    @property
    def num_captures(self) -> int:
        """How many signatures are kept now."""
        return len(self._kept)

    def measure(self, *, window: int = WINDOW, kernels: bool = False) -> Latency:
        """Measure each replay from now on, and return what will be filled.

        Args:
            window: how many calls are kept.
            kernels: also time each kernel, for `explain`; a call takes longer then.

        Returns:
            The times: `print` it, or ask for its `summary()`.
        """
        with self._lock:
            made = Latency(window, kernels=kernels)
            start_filling(made, self._latency)
            self._latency = made
            self._quick = None
        return made

    def stop_measuring(self) -> None:
        """Measure no more."""
        with self._lock:
            start_filling(None, self._latency)
            self._latency = None
            self._quick = None

    def validate(self, *args: P.args, **kwargs: P.kwargs) -> Report:
        """Call it, and run each kernel on a reference too.

        Args:
            *args: as for a call; one that differs from all captures is made and captured first.
            **kwargs: the same.

        Returns:
            How many kernels were compared, and the first one that differs by more than rounding.
        """
        with self._lock:
            for captured in self._kept:
                bound = _match(captured, args, kwargs)
                if bound is not None:
                    report = Report()
                    with realize.exclusive():
                        captured.replay(*bound, report=report)
                    return report
            before = COUNTERS.captures
            self(*args, **kwargs)
            if COUNTERS.captures == before:
                raise CaptureError("jit: this call could not be captured, so nothing is compared")
            return self.validate(*args, **kwargs)

    def unseen(self) -> tuple[str, ...]:
        """What the last capture reads and cannot watch."""
        return self._kept[0].recipe.guards.unseen if self._kept else ()

    def explain(self) -> str:
        """The launches of the capture that was used last, its memory, and what it cannot watch.

        The time of each kernel is there after `measure(kernels=True)` and some calls.
        """
        if not self._kept:
            return "nothing has been captured"
        recipe = self._kept[0].recipe
        seconds = [] if self._latency is None else self._latency.kernel_seconds()
        head = explain_program(recipe.program, seconds, f"{len(recipe.guards.entries)} guards")
        return "\n".join([head, *(f"not watched: {text}" for text in recipe.guards.unseen)])

    def profile(self) -> Profile:
        """The kernels of the capture that was used last, with their times and rates.

        Calls after `measure(kernels=True)` are what it knows.  Bandwidth is compared with a copy's,
        which is measured now.

        Returns:
            A row for each kernel, those that take longest first: `print` it for a table.

        Raises: CaptureError before such calls.
        """
        seconds = [] if self._latency is None else self._latency.kernel_seconds()
        if not self._kept or not seconds:
            raise CaptureError(
                "jit: no kernel has been timed",
                try_="call measure(kernels=True), then the function",
            )
        return profile_measured(self._kept[0].recipe.program, seconds)

    def reset(self) -> None:
        """Forget all captures and give back their memory."""
        with self._lock:
            while self._kept:
                self._drop(self._kept.pop())
            self._failures = 0
            self.cnt = 0

    def free_intermediates(self) -> None:
        """Give back the memory of intermediates and results; the next replay takes it again."""
        with self._lock:
            for captured in self._kept:
                captured.release()

    # --- capturing ---------------------------------------------------------------------------

    def _limit(self) -> int:
        return settings.current().captures if self._captures is None else self._captures

    def _capture_or_refuse(
        self, mismatch: Mismatch | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> R:
        name = getattr(self._function, "__qualname__", repr(self._function))
        if mismatch is not None:
            if self._limit() == 1:
                raise CaptureError(
                    f"jit: this call of {name} differs from the captured one",
                    field=mismatch.field,
                    got=f"{mismatch.field}: {mismatch.got}" if mismatch.got is not None
                    else mismatch.field,
                    expected=mismatch.expected,
                    try_="allow more captures: jit(function, captures=8); or reset() it",
                )  # fmt: skip
            if trace.enabled():
                trace.emit(trace.Recaptured(name, mismatch.field))
        if self._failures >= _PATIENCE:
            self._calls_since_failure += 1
            if self._calls_since_failure % _RETRY_EVERY:
                return self._function(*args, **kwargs)
        result, captured, reason = capture_call(self._function, args, kwargs, self._ring)
        if captured is not None and captured.recipe.guards.drawn and self._limit() > 1:
            reason = f"it draws from {captured.recipe.guards.drawn[0]}, which no replay does"
            captured.release()
            captured = None
        if captured is None:
            self._failures += 1
            if self._failures == _PATIENCE:
                trace.warn("jit", f"{name} is not captured: {reason}")
            return result  # type: ignore[no-any-return]  # what the function returns
        self._failures = 0
        COUNTERS.captures += 1
        self._kept.insert(0, captured)
        while len(self._kept) > self._limit():
            self._drop(self._kept.pop())
        return result  # type: ignore[no-any-return]  # what the function returns


def _again(
    kind: type[Jit[P, R]], function: Callable[P, R], captures: int | None, outputs: int | None
) -> Jit[P, R]:
    """What a copied or pickled `Jit` comes back as."""
    made = kind.__new__(kind)
    Jit.__init__(made, function, captures=captures, outputs=outputs)
    return made


@overload
def jit(
    function: Callable[P, R], *, captures: int | None = None, outputs: int | None = None
) -> Jit[P, R]: ...
@overload
def jit(
    function: None = None, *, captures: int | None = None, outputs: int | None = None
) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    captures: int | None = None,
    outputs: int | None = None,
) -> Any:
    """Capture a function at its first call and replay it at later ones.

    Args:
        function: takes and returns tensors, also inside lists, tuples and dictionaries; None makes
            a decorator.
        captures: how many signatures are kept; None takes the setting `captures`, 1 freezes: a
            call that differs then raises CaptureError.
        outputs: a ring of so many results; None gives each result memory of its own.

    Returns:
        A callable of the same meaning.

    Raises:
        CaptureError: when called: the function reads a value of a tensor on the host, or the call
            differs and no more captures are allowed.
    """
    if function is None:
        return lambda wrapped: Jit(wrapped, captures=captures, outputs=outputs)
    return Jit(function, captures=captures, outputs=outputs)


class TinyJit(Jit[P, R]):
    """`jit` with one signature: a call that differs from the captured one raises CaptureError.

    Args:
        function: see `jit`.
        prune: accepted for programs that say it; what no argument changes costs no replay more.
        optimize: accepted for programs that say it.
    """

    def __init__(
        self, function: Callable[P, R], *, prune: bool = False, optimize: bool = False
    ) -> None:
        super().__init__(function, captures=1)


def _match(captured: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound | None:
    try:
        return captured.match(surroundings(), args, kwargs)
    except Mismatch:
        return None


tell(__name__, ("jit",))
