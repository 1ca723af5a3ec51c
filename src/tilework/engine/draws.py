"""Random generators and iterators: who draws from one gets something new at each call.

A replay would give the old ones again, so `Watcher` looks at the states of generators before and
after a capture.  Generators are known by their kind: the global ones of `numpy.random`, `random`
and `torch`, and any that the function reads.  No such module is imported here.  Of an iterator of
Python's own (a generator, what `iter`, `zip` or `itertools` give) the place cannot be read, nor
what a connection to a database or another object of C code holds, so that each one which outlives
the call counts as drawn from.  Of a file it can.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any, Final

from tilework.engine.contents import is_closed
from tilework.engine.foreign import is_foreign_code

#: Where modules keep the generator behind their functions.
_SHARED: Final = {
    "numpy.random": ("mtrand", "_rand"),
    "random": ("_inst",),
    "torch": ("default_generator",),
}


def _state_of(generator: Any) -> object:
    """The state of a generator as something that can be compared; None for another object."""
    if is_stream(generator):
        return _place_in(generator)
    if is_iterator(generator) or is_closed(generator):
        return object()  # equal to none
    if _is_of_torch(generator):
        return generator.get_state().numpy().tobytes()
    old = getattr(generator, "get_state", None)
    if callable(old):  # a RandomState, which keeps a number back besides the state of its bits
        return _frozen(old(legacy=False))
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        return _frozen(getattr(bits, "state", None))
    get = getattr(generator, "getstate", None)
    return get() if callable(get) else None


def _frozen(state: Any) -> object:
    if isinstance(state, dict):
        return tuple([(name, _frozen(part)) for name, part in state.items()])
    return state.tobytes() if hasattr(state, "tobytes") else state


def is_generator(value: object) -> bool:
    """Whether an object is a generator of NumPy's, of Python's or of PyTorch's."""
    kind = type(value)
    if _is_of_torch(value):
        return True
    if kind.__module__.partition(".")[0] not in ("numpy", "random"):
        return False
    return hasattr(kind, "bit_generator") or hasattr(value, "_bit_generator") or (
        kind.__module__ == "random" and hasattr(kind, "getstate")
    )  # fmt: skip


def _is_of_torch(value: object) -> bool:
    """Whether it is a generator of PyTorch's."""
    return type(value).__name__ == "Generator" and type(value).__module__.startswith("torch.")


def is_iterator(value: object) -> bool:
    """Whether an object is an iterator of C code, of Python's library or of NumPy's.

    Only its next item tells where it is.  Code of the user's own that gives items is watched.
    """
    step = getattr(type(value), "__next__", None)
    if step is None or _is_printed_to(value):
        return False
    return not isinstance(step, types.FunctionType) or is_foreign_code(step.__code__)


def is_stream(value: object) -> bool:
    """Whether an object is a file, or one of those that look like a file.

    Not where the process prints: a replay prints nothing, whatever the function calls for it.
    """
    if type(value).__module__ not in ("_io", "io") or not hasattr(value, "tell"):
        return False
    return not _is_printed_to(value)


def _is_printed_to(value: object) -> bool:
    """Whether it is where the process prints."""
    printed = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return any(value is stream for stream in printed)


def _place_in(stream: Any) -> object:
    """How far a stream was read; where that is not known, something that is equal to none."""
    try:
        return stream.tell()
    except (OSError, ValueError):  # a pipe, or closed
        return object()


class Draws:
    """States of generators as they were when they were first seen."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, Any, object]] = {}
        self._absent: list[str] = []
        self._read: dict[str, None] = {}
        for name, path in _SHARED.items():
            module = sys.modules.get(name)
            if module is None:
                self._absent.append(name)
                continue
            for part in path:
                module = getattr(module, part, None)
            self.note(module, f"the global generator of {name}")

    def note(self, generator: Any, name: str) -> None:
        """Look at a generator from now on."""
        if generator is not None and id(generator) not in self._seen:
            self._seen[id(generator)] = (name, generator, _state_of(generator))

    def note_read(self, name: str) -> None:
        """Note that something was read which is new each time: a clock, a file."""
        self._read.setdefault(name)

    def held(self) -> Iterator[Any]:
        """Each generator that is looked at."""
        for _, generator, _ in self._seen.values():
            yield generator

    def forget(self, gone: set[int]) -> None:
        """Look no more at those that nobody has: the function made them for itself."""
        self._seen = {number: row for number, row in self._seen.items() if number not in gone}

    def drawn(self) -> tuple[str, ...]:
        """The names of the generators that were drawn from meanwhile."""
        names = [
            name for name, generator, state in self._seen.values() if _state_of(generator) != state
        ]
        # Loaded meanwhile: nobody knows the state before, and why else would it be loaded.
        names += [f"the global generator of {name}" for name in self._absent if name in sys.modules]
        return (*names, *self._read)
