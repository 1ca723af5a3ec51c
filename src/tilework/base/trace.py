"""A typed stream of events: what the compiler and the runtime did, for whoever listens.

Lower layers write `if trace.enabled(): trace.emit(SomeEvent(...))`, so an event costs one test of
a module global while nobody listens.  Nothing here prints: the console (`base/log.py`), profiles,
the viewer and tests are subscribers.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilework.base.forks import new_lock
from tilework.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all events."""


@dataclass(frozen=True, slots=True)
class PassEnded(Event):
    """A compiler pass ran; `before` and `after` are its graphs (the same object: no change)."""

    name: str
    before: object
    after: object
    seconds: float

    @property
    def is_changed(self) -> bool:
        """Whether the pass did anything."""
        return self.before is not self.after


@dataclass(frozen=True, slots=True)
class RuleFired(Event):
    """A named rewrite rule replaced a node."""

    rule: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class KernelCompiled(Event):
    """A kernel became machine code, or was found in a cache."""

    name: str
    device: str
    seconds: float
    code_bytes: int = 0
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Linked(Event):
    """Steps were made ready to run; they are `engine.steps.Step`s."""

    steps: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Launched(Event):
    """A kernel, a copy or a whole native sequence was started; `seconds` only if it was timed."""

    name: str
    device: str
    seconds: float | None = None
    flops: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Allocated(Event):
    """Memory was taken from a device (`size_bytes` > 0) or given back (< 0)."""

    device: str
    size_bytes: int
    kind: str = "buffer"


@dataclass(frozen=True, slots=True)
class Ran(Event):
    """What one run of expressions needed; a found schedule says nothing about the rest.

    `compiled` counts kernels that were in no cache, `allocated` buffers.  Counted for the whole
    process: exact while one thread works.
    """

    schedule_found: bool
    compiled: int
    linked: bool
    allocated: int


@dataclass(frozen=True, slots=True)
class Waited(Event):
    """The host waited for a device."""

    device: str
    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CacheLookup(Event):
    """A cache was asked for a key."""

    cache: str
    key: str
    hit: bool


@dataclass(frozen=True, slots=True)
class Recaptured(Event):
    """A captured function was captured again because something that it reads has changed."""

    function: str
    changed: str


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Work goes on, but not as well as it should; `source` names the part that says so."""

    source: str
    message: str


Subscriber = Callable[[Event], None]

_KEPT_WARNINGS = 64
_lock = new_lock()
_subscribers: tuple[Subscriber, ...] = ()
_warnings: deque[Warned] = deque(maxlen=_KEPT_WARNINGS)


def enabled() -> bool:
    """Whether anybody listens; ask before building an event."""
    return bool(_subscribers)


def emit(event: Event) -> None:
    """Hand `event` to every subscriber, on the thread that calls.

    An exception of a subscriber reaches the caller: a broken listener must not stay hidden.
    """
    for subscriber in _subscribers:
        subscriber(event)


def warn(source: str, message: str) -> None:
    """Emit `Warned`, and keep it for `recent_warnings` even if nobody listens."""
    event = Warned(source, message)
    _warnings.append(event)
    emit(event)


def recent_warnings() -> tuple[Warned, ...]:
    """Return the last warnings of this process, oldest first (at most 64)."""
    return tuple(_warnings)


def clear_warnings() -> None:
    """Forget the kept warnings."""
    _warnings.clear()


def add_subscriber(callback: Subscriber) -> None:
    """Listen until `remove_subscriber`; prefer the context manager `subscribe`."""
    global _subscribers  # replaced whole, so that `emit` needs no lock
    with _lock:
        _subscribers = (*_subscribers, callback)


def remove_subscriber(callback: Subscriber) -> None:
    """Stop one subscription of `callback`; unknown callbacks are left alone."""
    global _subscribers
    with _lock:
        kept = list(_subscribers)
        # The newest goes first; found by equality, since a bound method is a new object each time.
        for position in range(len(kept) - 1, -1, -1):
            if kept[position] == callback:
                del kept[position]
                break
        _subscribers = tuple(kept)


@contextmanager
def subscribe(callback: Subscriber) -> Iterator[None]:
    """Call `callback` with each event of this process while the block runs.

    Example:
        >>> events = []
        >>> with subscribe(events.append):
        ...     emit(Waited("CPU", "queue", 0.5))
        >>> events
        [Waited(device='CPU', what='queue', seconds=0.5)]
    """
    add_subscriber(callback)
    try:
        yield
    finally:
        remove_subscriber(callback)
