"""Generations: a handle of an earlier life of its owner is refused."""

import threading

from tilework.base.errors import StaleHandleError
from tilework.base.records import dataclass, field


@dataclass(frozen=True, slots=True)
class Stamp:
    """The life of an owner at which a handle was made; checked by `Generation.check`."""

    owner: str
    number: int


@dataclass(slots=True)
class Generation:
    """The current life of a device, a session, an artifact or a pool.

    Example:
        >>> life = Generation("CPU")
        >>> handle = life.stamp()
        >>> life.check(handle)
        >>> life.advance()
        1
    """

    owner: str
    number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def stamp(self) -> Stamp:
        """Return a stamp of now."""
        return Stamp(self.owner, self.number)

    def advance(self) -> int:
        """Begin the next life (a reset, a reconnect); older stamps are stale from here on."""
        with self._lock:
            self.number += 1
            return self.number

    def check(self, stamp: Stamp, what: str = "handle") -> None:
        """Accept a stamp of now.

        Raises:
            StaleHandleError: the stamp is of another life, or of another owner.
        """
        if stamp.number != self.number or stamp.owner != self.owner:
            raise StaleHandleError(
                f"{self.owner}: the {what} is of an earlier generation",
                got=f"generation {stamp.number} of {stamp.owner}",
                expected=f"generation {self.number} of {self.owner}",
                try_="make it again after the reset",
            )
