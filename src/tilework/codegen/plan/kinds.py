"""Plans of kernels that are more than one nest of loops: cascades, and sorts of rows.

Each is plain data like `Plan`, and is given to `lower_kernel` in its place.
"""

from __future__ import annotations

from typing import TypeAlias

from tilework.base.records import dataclass
from tilework.codegen.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class CascadePlan:
    """How a cascade runs.

    Attributes:
        rows: Rows in a tile; 1 where no range of rows is cut.
        block: Positions of the folded axis in a block; 0 where it is not cut.
        batch: Tiles that one task takes, one after the other.
        phases: (number, plan) for phases that run otherwise than the cost model would choose.
    """

    rows: int
    block: int
    batch: int
    phases: tuple[tuple[int, Plan], ...] = ()

    def phase(self, number: int) -> Plan | None:
        """The plan of phase `number`; None for the cost model's choice."""
        return dict(self.phases).get(number)


@dataclass(frozen=True, slots=True)
class SortPlan:
    """How rows are sorted: by rank where `digit` is 0, else by digits of so many bits."""

    digit: int


#: What `lower_kernel` takes.
AnyPlan: TypeAlias = Plan | CascadePlan | SortPlan
