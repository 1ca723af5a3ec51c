"""Ledger: how many of each kind of resource every device holds.

Each driver credits what it takes and debits what it gives back.  After `close()` the rows of a
device are zero; tests compare snapshots.
"""

from collections.abc import Mapping
from enum import StrEnum, auto

from tilework.base.errors import InternalError
from tilework.base.forks import new_lock


class Kind(StrEnum):
    """What is counted."""

    VA = auto()
    PAGES = auto()
    PTABLE = auto()
    PTE = auto()
    MLOCK = auto()
    CPU_MMAP = auto()
    FD = auto()
    RM_HANDLE = auto()
    UVM_RANGE = auto()
    DMA_MAP = auto()
    QP = auto()
    CQ = auto()
    MR = auto()
    RING = auto()
    FW_CTX = auto()
    ION_HANDLE = auto()
    KGSL_OBJ = auto()
    RPC_SESSION = auto()
    LEASE = auto()
    BUFFER = auto()
    PROGRAM = auto()
    THREAD = auto()


Row = tuple[str, Kind]


class Ledger:
    """Counters by (device, kind); safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._counts: dict[Row, int] = {}

    def take(self, device: str, kind: Kind, amount: int = 1) -> None:
        """Record that `device` now holds `amount` more."""
        self._add(device, kind, amount)

    def give_back(self, device: str, kind: Kind, amount: int = 1) -> None:
        """Record that `device` gave `amount` back.

        Raises:
            InternalError: it gives back more than it took.
        """
        self._add(device, kind, -amount)

    def _add(self, device: str, kind: Kind, change: int) -> None:
        with self._lock:
            total = self._counts.get((device, kind), 0) + change
            if total < 0:
                raise InternalError(
                    f"ledger: {device} gives back more {kind} than it took", got=f"{total}"
                )
            if total:
                self._counts[device, kind] = total
            else:
                self._counts.pop((device, kind), None)

    def snapshot(self, device: str | None = None) -> dict[Row, int]:
        """Return the rows that are not zero, of one device or of all."""
        with self._lock:
            return {row: n for row, n in self._counts.items() if device in (None, row[0])}


def difference(before: Mapping[Row, int], after: Mapping[Row, int]) -> dict[Row, int]:
    """Return by how much each row changed, unchanged rows left out."""
    changes = {row: after.get(row, 0) - before.get(row, 0) for row in {*before, *after}}
    return {row: change for row, change in sorted(changes.items()) if change}


LEDGER = Ledger()
"""The ledger of this process; drivers may be given another one by a test."""
