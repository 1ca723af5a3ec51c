"""The group of processes that this one belongs to, as far as devices must know of it."""

from __future__ import annotations

from typing import Final, Protocol

from tilework.base.errors import InternalError
from tilework.base.records import dataclass


class Transport(Protocol):
    """Bytes between the processes of a group: see `runtime.processes`."""

    rank: int
    size: int
    wait_seconds: float

    def others(self) -> tuple[int, ...]:
        """The other ranks."""
        ...

    def send(self, rank: int, data: memoryview) -> None:
        """Send bytes to a rank, which receives as many."""
        ...

    def receive(self, rank: int, target: memoryview) -> None:
        """Receive as many bytes as `target` has from a rank."""
        ...

    def spoil(self, why: str) -> None:
        """End the group: all others find their connections closed."""
        ...

    def gone(self) -> str:
        """Which rank is gone, or why this one cannot go on; empty while all are there."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """What the devices of a group do together without the host: the same in all processes.

    Args:
        kind: of the devices.
        ranks: those whose devices copy to each other by a library.
        folds: which folds of which dtypes it does between all ranks; none unless all have it.
        reason: why some rank has no part in it; empty if all have.
    """

    kind: str = ""
    ranks: tuple[int, ...] = ()
    folds: tuple[tuple[str, str], ...] = ()
    reason: str = ""


NOTHING: Final = Shared()
_current: Final[list[Transport]] = []
_shared: Final[list[Shared]] = []


def current_links() -> Transport:
    """The group that this process belongs to.  Raises: InternalError if there is none."""
    if not _current:
        raise InternalError("processes: there is no group")
    return _current[-1]


def set_links(links: Transport) -> None:
    """Let the devices of the world be those of a group; one that was ended stays, and says so."""
    _current[:] = [links]


def shared() -> Shared:
    """What the devices of this process's group do together; nothing without a group."""
    return _shared[-1] if _shared else NOTHING


def set_shared(found: Shared) -> None:
    """Say what all processes have agreed on; `NOTHING` when the group has ended."""
    _shared[:] = [found]
