"""The plans that one kernel may have on blocks of threads: what `tune` measures there.

Products on matrix units have a cost model that lists every way to cut them, so that all of those
are neighbours of each other, the cheapest first.  Everything else is changed in one respect at a
time, without a prediction: such plans are measured in the order in which they are proposed.  On
other machines with blocks the same words change (AMD RDNA, Adreno, Apple GPUs): a new kind of plan
adds its own list here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import TileworkError
from tilework.base.records import dataclass, field
from tilework.codegen.alternatives import Alternatives, kind_of_rest
from tilework.codegen.analysis import analyse
from tilework.codegen.gpu.neighbours import block_neighbours
from tilework.codegen.gpu.pipeline import choose_block_plan, has_own_design
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.gpu.scans import is_in_tiles
from tilework.codegen.matrix.choose import all_rings, ring_cycles
from tilework.codegen.matrix.warp_cost import tiles_cycles
from tilework.codegen.matrix.warps import all_tiles
from tilework.codegen.naming import kernel_name
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import loosen, lower_kernel
from tilework.codegen.plan.choose import estimate_work
from tilework.codegen.sort.kernels import is_sort, is_sort_pass
from tilework.ir.node import in_use
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.codegen.plan.plan import Plan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


@dataclass(slots=True)
class BlockAlternatives(Alternatives):
    """The plans of one kernel on a machine with blocks of threads.

    Attributes:
        costs: The plans on matrix units and the cycles that the cost model expects of each.
    """

    costs: dict[AnyPlan, float] = field(default_factory=dict)

    def predicted(self, plan: AnyPlan) -> float | None:
        """About how many cycles the kernel takes under a plan; None where it is not legal.

        All plans without a matrix instruction have one number, that of the work.
        """
        if self.costs or self.kernel is None:
            return self.costs.get(plan)
        try:
            lower_kernel(self.sink, self.target, plan)
        except TileworkError:
            return None
        return estimate_work(self.kernel)

    def compared(self) -> list[tuple[float, Plan]]:
        """What the choice of a product's plan compared: estimated cycles, and the plan."""
        return [(cycles, plan) for plan, cycles in self.costs.items() if isinstance(plan, GpuPlan)]

    def _near(self, plan: AnyPlan) -> Iterator[AnyPlan]:
        if self.costs:
            yield from self.costs
        elif isinstance(plan, GpuPlan) and self.kernel is not None:
            yield from block_neighbours(plan, self.kernel, self.target)


def block_alternatives(sink: Node, target: TargetSpec) -> BlockAlternatives | None:
    """The plans that a kernel may have; None where there is nothing to choose.

    That is so of sorts, whose tiles are computed; of scans whose tiles have blocks, since they run
    once on words that another kernel has cleared; and of what streams or chains products (attention
    and its gradients), whose cuts are not named by a plan yet.
    """
    if is_sort(sink) or is_sort_pass(sink) or is_in_tiles(sink):
        return None
    with in_use():
        kernel = analyse(normalise_ranges(loosen(rewrite(sink, SIMPLIFY), target)))
        if has_own_design(kernel, target):
            return None
        plan = choose_block_plan(kernel, target)
        costs = _costs(kernel, target) if plan.matrix else {}
        is_product = plan.matrix or plan.depth
        kind = "contraction" if is_product else kind_of_rest(kernel, kernel.outputs[-1:])
        name = kernel_name(sink, kernel)
        return BlockAlternatives(sink, target, name, kind, plan, kernel, costs)


def _costs(kernel: Kernel, target: TargetSpec) -> dict[AnyPlan, float]:
    """Every plan on matrix units and its cycles, the cheapest first."""
    found: list[tuple[float, GpuPlan]] = [
        *((ring_cycles(kernel, ring, target), plan) for plan, ring in all_rings(kernel, target)),
        *((tiles_cycles(kernel, tiles, target), plan) for plan, tiles in all_tiles(kernel, target)),
    ]
    found.sort(key=lambda entry: entry[0])
    return {plan: cycles for cycles, plan in found}
