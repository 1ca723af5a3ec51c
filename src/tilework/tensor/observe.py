"""How a capture learns which versions and storages appear while it runs.

`active` is 0 nearly always, so that an observation costs one test.  Nothing here keeps a version
or a storage alive: whether somebody else does decides what a write must preserve.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tilework.base.forks import new_lock
from tilework.runtime.group import parts_of

if TYPE_CHECKING:
    from tilework.tensor.core import TensorBase
    from tilework.tensor.version import Storage, Version

#: How many observers there are in this process; others test it before they call.
active = 0
#: Another number whenever a tensor that existed came to refer to another storage or view.
moves = 0

_numbers = itertools.count(1)
_lock = new_lock()


def _nothing() -> None:
    pass


class Observer:
    """What happened in one execution context."""

    def __init__(self) -> None:
        self._born: dict[int, weakref.ref[Any]] = {}
        self.versions: list[weakref.ref[Version]] = []
        self.storages: list[weakref.ref[Storage]] = []
        self.written: list[weakref.ref[Storage]] = []
        self.read: list[weakref.ref[Version]] = []
        self.realized: list[weakref.ref[Version]] = []
        #: Lets go of what only those who watch keep alive, before references are counted.
        self.forget_locals: Callable[[], None] = _nothing
        #: Whether a tensor that was there before was given another storage.
        self.has_replaced = False
        #: Tensors that were there before and whose `grad` was asked for before it was set, and
        #: what that was; None for those whose `grad` was set first.
        self.gradients: dict[int, tuple[TensorBase, tuple[Any] | None]] = {}
        #: Tensors that were there before, of which `requires_grad` was read before it was set, and
        #: what it was; None for those of which it was set first.
        self.wishes: dict[int, tuple[TensorBase, tuple[bool | None] | None]] = {}
        #: Identities of the memories that runs read and that were there before.
        self.old_memory: set[int] = set()

    def is_born(self, what: Version | Storage) -> bool:
        """Whether a version or storage appeared while this observer was there."""
        reference = self._born.get(id(what))
        return reference is not None and reference() is what

    def _add(self, what: Any) -> weakref.ref[Any]:
        reference = weakref.ref(what)
        self._born[id(what)] = reference
        return reference


_observer: ContextVar[Observer | None] = ContextVar("tilework_observer", default=None)


@contextmanager
def observing() -> Iterator[Observer]:
    """Observe this execution context while the block runs."""
    global active
    found = Observer()
    token = _observer.set(found)
    with _lock:
        active += 1
    try:
        yield found
    finally:
        with _lock:
            active -= 1
        _observer.reset(token)


def forget_locals() -> None:
    """References are about to be counted: nothing may be kept alive by being watched."""
    observer = _observer.get()
    if observer is not None:
        observer.forget_locals()


def version_born(version: Version) -> None:
    """A version was made."""
    observer = _observer.get()
    if observer is not None:
        observer.versions.append(observer._add(version))


def storage_born(storage: Storage) -> None:
    """A storage was made."""
    observer = _observer.get()
    if observer is not None:
        observer.storages.append(observer._add(storage))


def storage_written(storage: Storage) -> None:
    """A storage got another version."""
    observer = _observer.get()
    if observer is not None:
        observer.written.append(weakref.ref(storage))


def gradient_used(tensor: TensorBase, is_set: bool) -> None:
    """Somebody asks for the `grad` of a tensor, or is about to set it."""
    observer = _observer.get()
    if observer is None or id(tensor) in observer.gradients or observer.is_born(tensor._storage):
        return
    observer.gradients[id(tensor)] = (tensor, None if is_set else (tensor._grad,))


def wish_used(tensor: TensorBase, is_set: bool) -> None:
    """Somebody reads the `requires_grad` of a tensor, or is about to set it."""
    observer = _observer.get()
    if observer is None or id(tensor) in observer.wishes or observer.is_born(tensor._storage):
        return
    observer.wishes[id(tensor)] = (tensor, None if is_set else (tensor._wants_gradient,))


def tensor_moved(old: Storage | None = None) -> None:
    """A tensor refers to another storage or view from now on; what it shows differs if `old`."""
    global moves
    moves = next(_numbers)
    observer = _observer.get()
    if observer is not None and old is not None and not observer.is_born(old):
        observer.has_replaced = True


def run_ended(read: Sequence[Version], realized: Sequence[Version]) -> None:
    """An engine run read the versions `read` and gave memory to `realized`."""
    observer = _observer.get()
    if observer is not None:
        observer.read += [weakref.ref(version) for version in read]
        for version in read:
            if version.buffer is not None and not observer.is_born(version):
                observer.old_memory.update([id(part.memory) for part in parts_of(version.buffer)])
        observer.realized += [weakref.ref(version) for version in realized]
