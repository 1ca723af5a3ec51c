"""The words of a plan that blocks of threads need besides those of `codegen.plan.plan`.

A split's tile may have parts of the units WARP and LOCAL: the block's threads, `LOCAL` moving
fastest.  A range that a reduction binds may have them too; then its threads fold what they have.
Every part of one unit has the same size, since there is one block.  Rows and columns of a
contraction share its threads out: there the sizes of one unit's parts multiply.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.plan.plan import Part, Plan
from tilework.ir.ops.index import Unit
from tilework.ir.ops.warp_matrix import WARP_THREADS

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec

#: The units of a block's threads.
THREADS = (Unit.WARP, Unit.LOCAL)
#: Threads of a warp group, which issue a matrix instruction together.
GROUP_THREADS = 128


@dataclass(frozen=True, slots=True)
class GpuPlan(Plan):
    """A plan for blocks of threads.

    Attributes:
        block: How many consecutive tasks form one block, side by side as its LOCAL threads; 0
            where a task is a block, whose threads are parts of tiles.
        rows: For a contraction: the tile of all ranges of m, which count as one range.
        columns: The tile of all ranges of n.
        depth: How much of k, all of whose ranges count as one, is staged at a time; 0 where the
            ranges are split one by one.  With a matrix instruction, parts of the unit WARP along
            rows and columns make up the block, and each warp has its own rows and columns.
        resident: How many blocks of a contraction a multiprocessor is to hold at once, each with
            its share of the registers; 0 leaves that to the compiler.
    """

    block: int = 0
    rows: tuple[Part, ...] = ()
    columns: tuple[Part, ...] = ()
    depth: int = 0
    resident: int = 0

    def unit_size(self, unit: Unit) -> int:
        """How many units of this kind a block has; 1 where the plan does not use it."""
        if unit is Unit.LOCAL and self.block:
            return self.block
        if self.depth:
            parts = (*self.rows, *self.columns)
            return prod(part.size for part in parts if part.unit is unit)
        sizes = [part.size for split in self.splits for part in split.tile if part.unit is unit]
        return max(sizes, default=1)

    @property
    def threads(self) -> int:
        """The threads of one block; a ring's are its warp groups and one more, which feeds it."""
        if self.matrix and self.depth:
            parts = (*self.rows, *self.columns)
            return prod(part.size for part in parts if part.unit is Unit.WARP) * WARP_THREADS
        if self.matrix:
            return (self.unit_size(Unit.WARP) + 1) * GROUP_THREADS
        return self.unit_size(Unit.WARP) * self.unit_size(Unit.LOCAL)


def has_blocks(target: TargetSpec) -> bool:
    """Does the machine run blocks of threads?"""
    return any(unit.name == "block" for unit in target.units.walk())
