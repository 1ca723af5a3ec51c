"""FAULT_IFs of a kernel: the loops that they stand in, and what the number of a fault says.

The low byte of a code is its kind.  An index out of range carries the size of its axis
(`schedule.index_fault`); an access out of range carries its buffer and its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilework.base.records import dataclass
from tilework.ir.free_ranges import free_ranges
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import tensor
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.symbolic import simplify

#: The kind of a fault that a compiled check of an access reports.
FAULT_ACCESS: Final = 2
_SLOT_BITS: Final = 12
#: How many hexadecimal digits of a kernel's digest its faults carry.
MARK_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class AccessFault:
    """Which access of which kernel was out of range: the buffer's slot, and the kernel's mark."""

    slot: int
    mark: str

    @property
    def code(self) -> int:
        """The number that the fault word gets.

        Example:
            >>> AccessFault.of(AccessFault(3, "0123456789").code)
            AccessFault(slot=3, mark='0123456789')
        """
        slot = min(self.slot, (1 << _SLOT_BITS) - 1)
        return FAULT_ACCESS | slot << 8 | int(self.mark, 16) << 8 + _SLOT_BITS

    @staticmethod
    def of(code: int) -> AccessFault:
        """What a code of this kind says."""
        slot = code >> 8 & (1 << _SLOT_BITS) - 1
        return AccessFault(slot, f"{code >> 8 + _SLOT_BITS:0{MARK_DIGITS}x}")


def in_loops_of_their_own(effects: Sequence[Node], faults: Sequence[Node]) -> list[Node]:
    """FAULT_IFs over ranges that no fold of the kernel binds.

    Args:
        effects: the kernel's STOREs.
        faults: over whatever ranges; kernels that were joined number them alike.
    """
    if not faults:
        return []
    order = toposort(*effects, *faults)
    bound = {at for node in order if node.op is tensor.REDUCE for at in node.src[1:]}
    free = free_ranges(toposort(*faults))
    shared = {at for fault in faults for at in free[fault] if at in bound}
    if not shared:
        return list(faults)
    first = 1 + max(int(node.attrs.number) for node in order if node.op is RANGE)
    ordered = sorted(shared, key=lambda at: int(at.attrs.number))
    fresh = {at: make(RANGE, at.src, RangeAttrs(first + place)) for place, at in enumerate(ordered)}
    return simplify.substitute(list(faults), fresh)
