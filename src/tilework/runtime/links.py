"""The group of processes that this one belongs to, as far as devices must know of it."""

from __future__ import annotations

from typing import Final, Protocol

from tilework.base.errors import InternalError


class Transport(Protocol):
    """Bytes between the processes of a group: see `runtime.processes`."""

    rank: int
    size: int

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


_current: Final[list[Transport]] = []


def current_links() -> Transport:
    """The group that this process belongs to.  Raises: InternalError if there is none."""
    if not _current:
        raise InternalError("processes: there is no group")
    return _current[-1]


def set_links(links: Transport) -> None:
    """Let the devices of the world be those of a group; one that was ended stays, and says so."""
    _current[:] = [links]
