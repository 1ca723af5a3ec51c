"""How the elements of an intermediate lie in memory, when not row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.schedule.passes.movement import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node
    from tilework.ir.types import Dim


@dataclass(frozen=True, slots=True)
class Stored:
    """The order in which a buffer's axes are stored.

    Attributes:
        order: The axes of the buffer's shape, the one that moves slowest first.
        pitch: Elements from one row of the last of these axes to the next; 0: as many as it has.

    Example:
        >>> Stored((0, 2, 3, 1))  # channels last
        Stored(order=(0, 2, 3, 1), pitch=0)
    """

    order: tuple[int, ...]
    pitch: int = 0

    def __str__(self) -> str:
        apart = f", rows {self.pitch} apart" if self.pitch else ""
        return f"its axes stored in the order {self.order}{apart}"

    def offset(self, index: Sequence[Node], shape: Sequence[Dim]) -> Node:
        """The position in memory of the element at `index` of an array of `shape`."""
        return flatten([index[axis] for axis in self.order], self.extents(shape))

    def extents(self, shape: Sequence[Dim]) -> list[Dim]:
        """The sizes in memory of the axes, in their order."""
        found = [shape[axis] for axis in self.order]
        if self.pitch:
            found[-1] = self.pitch
        return found
