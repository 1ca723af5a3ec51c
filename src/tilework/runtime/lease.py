"""Leases: memory that somebody else owns and lends to the runtime for a while.

NumPy arrays, memory-mapped files, DLPack capsules and frames of a camera come in this way, without
a copy.  The lender gets its memory back by one call of `release`, at an explicit point and never
while a device still uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum, auto

from tilework.base.errors import AliasError, BoundsError, StaleHandleError
from tilework.base.forks import new_lock
from tilework.base.generation import Generation, Stamp
from tilework.base.ledger import LEDGER, Kind, Ledger


class LeaseKind(StrEnum):
    """What the lent memory is."""

    HOST = auto()  # plain memory of this process
    FILE = auto()  # pages of a mapped file
    SHARED = auto()  # memory that another process sees too
    DEVICE = auto()  # memory of a device, from another library


class Lease:
    """Memory on loan.  Thread-safe.

    `release` ends the loan.  While a device works in the memory (between `begin_device_access`
    and `end_device_access`) the loan can't end.
    """

    def __init__(
        self,
        address: int,
        size_bytes: int,
        *,
        kind: LeaseKind = LeaseKind.HOST,
        owner: str,
        on_release: Callable[[], None] | None = None,
        is_readonly: bool = False,
        generation: Generation | None = None,
        ledger: Ledger = LEDGER,
    ) -> None:
        """Take memory on loan.

        Args:
            address: the first byte.
            size_bytes: how much of it.
            kind: what it is.
            owner: who lends it, for messages.
            on_release: called once, when the loan ends.
            is_readonly: whether writes to it are forbidden.
            generation: the lender's; the lease is stale after it advances.
            ledger: where the loan is counted.
        """
        if address < 0 or size_bytes < 0:
            raise BoundsError(
                "lease: this is not a range of memory", got=f"address {address}, {size_bytes} bytes"
            )
        self.address = address
        self.size_bytes = size_bytes
        self.kind = kind
        self.owner = owner
        self.is_readonly = is_readonly
        self._on_release = on_release
        self._generation = generation
        self._stamp: Stamp | None = None if generation is None else generation.stamp()
        self._ledger = ledger
        self._lock = new_lock()
        self._users = 0
        self._is_released = False
        ledger.take(owner, Kind.LEASE)

    @property
    def is_released(self) -> bool:
        """Whether the lender has its memory back."""
        return self._is_released

    def begin_device_access(self) -> None:
        """Announce that a device starts to use the memory.

        Raises: StaleHandleError when the loan has ended or the lender was reset.
        """
        with self._lock:
            self._check()
            self._users += 1

    def end_device_access(self) -> None:
        """Announce that one device is done, after its last use."""
        with self._lock:
            if self._users == 0:
                raise AliasError("lease: more accesses ended than began", got=self.owner)
            self._users -= 1

    @contextmanager
    def device_access(self) -> Iterator[int]:
        """Use the memory inside a block; gives its address."""
        self.begin_device_access()
        try:
            yield self.address
        finally:
            self.end_device_access()

    def release(self) -> None:
        """Give the memory back; a second call does nothing.

        Raises: AliasError while a device uses it.
        """
        with self._lock:
            if self._is_released:
                return
            if self._users:
                raise AliasError(
                    "lease: a device still uses the memory",
                    got=f"{self._users} accesses of {self.owner}'s memory in flight",
                    try_="wait for the device first",
                )
            self._is_released = True
        try:
            if self._on_release is not None:
                self._on_release()
        finally:
            self._ledger.give_back(self.owner, Kind.LEASE)

    def _check(self) -> None:
        if self._is_released:
            raise StaleHandleError("lease: the memory was given back", got=self.owner)
        if self._generation is not None and self._stamp is not None:
            self._generation.check(self._stamp, "lease")
