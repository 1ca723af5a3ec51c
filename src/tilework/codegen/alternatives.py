"""The plans that one kernel may have: what `tune` measures, and what the cost model thinks of them.

found = alternatives(kernel, target)      # None where there is nothing to choose
found.default, found.near(found.default), found.predicted(found.default)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.errors import PlanError, TileworkError
from tilework.base.records import dataclass, replace
from tilework.codegen.analysis import analyse, stride
from tilework.codegen.cascade.lower import cascade_plan, phase_kernels
from tilework.codegen.gpu.plan import has_blocks
from tilework.codegen.naming import kernel_name
from tilework.codegen.pipeline import loosen, lower_kernel
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.codegen.plan.kinds import AnyPlan, CascadePlan, SortPlan
from tilework.codegen.plan.neighbours import neighbours
from tilework.codegen.plan.plan import Plan
from tilework.codegen.plan.tilings import tilings
from tilework.codegen.plan.window_plan import choose_window_plan
from tilework.codegen.predict import predict
from tilework.codegen.sort.kernels import is_sort
from tilework.codegen.sort.lower import choose_sort_plan, sort_plans
from tilework.ir.node import in_use
from tilework.ir.ops.index import Unit
from tilework.ir.ops.tensor import SCAN
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Of all tilings of a contraction that were compared, the best of so many shapes are proposed.
_MOST_TILINGS: Final = 12


@dataclass(slots=True)
class Alternatives:
    """The plans of one kernel on one target.

    Attributes:
        sink: The kernel.
        target: The machine.
        name: The kernel's name.
        kind: Its class: contraction, window, cascade, reduction, scan, sort, transpose, gather
            or elementwise.
        default: The cost model's choice.
    """

    sink: Node
    target: TargetSpec
    name: str
    kind: str
    default: AnyPlan
    kernel: Kernel | None

    def near(self, plan: AnyPlan) -> list[AnyPlan]:
        """The plans that differ from `plan` in one word; from the default, other designs too."""
        found: dict[AnyPlan, None] = {}
        with in_use():
            for changed in self._near(plan):
                if changed != plan:
                    found[changed] = None
        return list(found)

    def predicted(self, plan: AnyPlan) -> float | None:
        """About how many cycles the kernel takes under a plan; None where it is not legal."""
        try:
            return predict(lower_kernel(self.sink, self.target, plan), self.target)
        except TileworkError:
            return None

    def compared(self) -> list[tuple[float, Plan]]:
        """What the choice of a contraction's plan compared: estimated cycles, and the plan."""
        if self.kernel is None or self.kind != "contraction":
            return []
        with in_use():
            return sorted(tilings(self.kernel, self.target), key=lambda found: found[0])

    def _near(self, plan: AnyPlan) -> Iterator[AnyPlan]:
        if isinstance(plan, SortPlan):
            yield from sort_plans(self.sink)
        elif self.kernel is None:
            return
        elif isinstance(plan, CascadePlan):
            yield from self._near_cascade(self.kernel, plan)
        else:
            if plan == self.default:
                yield from self._other_designs(self.kernel)
            yield from neighbours(plan, self.kernel, self.target)

    def _other_designs(self, kernel: Kernel) -> Iterator[AnyPlan]:
        """The best tiling of each shape, and running as a cascade."""
        shapes: dict[object, None] = {}
        for _, plan in self.compared():
            shape = (plan.swapped, len(plan.staged), plan.splits)
            if shape not in shapes and len(shapes) < _MOST_TILINGS:
                shapes[shape] = None
                yield plan
        cascade = cascade_plan(kernel, self.target)
        if cascade is not None:
            yield cascade

    def _near_cascade(self, kernel: Kernel, plan: CascadePlan) -> Iterator[AnyPlan]:
        if plan == self.default and not plan.block:
            # Without blocks all values of a row fit its memory, and loops may do as well.
            yield choose_plan(kernel, self.target)
        lanes = max(self.target.vector_bits // 32, 1)
        for rows in _around(plan.rows, lanes):
            yield from self._fitting(kernel, replace(plan, rows=rows, batch=1, phases=()))
        for block in _around(plan.block, lanes) if plan.block else ():
            yield from self._fitting(kernel, replace(plan, block=block, phases=()))
        for batch in _around(plan.batch, 1):
            yield from self._fitting(kernel, replace(plan, batch=batch))
        for phase in phase_kernels(kernel, self.target, plan):
            for changed in neighbours(phase.plan, phase.kernel, phase.target):
                if changed.tasks == 0:
                    phases = {**dict(plan.phases), phase.number: changed}
                    yield replace(plan, phases=tuple(sorted(phases.items(), key=_number)))

    def _fitting(self, kernel: Kernel, plan: CascadePlan) -> Iterator[CascadePlan]:
        try:
            phase_kernels(kernel, self.target, plan)
        except PlanError:
            return
        yield plan


def alternatives(sink: Node, target: TargetSpec) -> Alternatives | None:
    """The plans that a kernel may have; None where there is nothing to choose."""
    if has_blocks(target):
        from tilework.codegen.gpu.alternatives import block_alternatives  # which builds on this

        return block_alternatives(sink, target)
    with in_use():
        if is_sort(sink):
            return Alternatives(
                sink, target, kernel_name(sink, None), "sort", choose_sort_plan(sink), None
            )
        loose = loosen(rewrite(sink, SIMPLIFY), target)
        kernel = analyse(ready_for_plans(loose, target))
        name = kernel_name(sink, kernel)
        cascade = cascade_plan(kernel, target)
        if cascade is not None:
            return Alternatives(sink, target, name, "cascade", cascade, kernel)
        plan = choose_plan(kernel, target)
        return Alternatives(sink, target, name, _kind(kernel, plan, target), plan, kernel)


def _kind(kernel: Kernel, plan: Plan, target: TargetSpec) -> str:
    if next(tilings(kernel, target), None) is not None:
        return "contraction"
    if choose_window_plan(kernel, target) is not None:
        return "window"
    lanes = [
        range_
        for range_ in kernel.outputs
        if any(part.unit is Unit.LANE for part in plan.split_of(int(range_.attrs.number)).tile)
    ]
    return kind_of_rest(kernel, lanes)


def kind_of_rest(kernel: Kernel, along: Sequence[Node]) -> str:
    """The class of a kernel without products and windows, by its steps along some ranges."""
    if any(node.op is SCAN for node in kernel.order):
        return "scan"
    if kernel.reduces:
        return "reduction"
    offsets = [access.src[0].src[1] for access in (*kernel.loads, *kernel.stores)]
    steps = {stride(offset, range_) for offset in offsets for range_ in along}
    if None in steps:
        return "gather"
    return "elementwise" if steps <= {0, 1} else "transpose"


def _around(value: int, step: int) -> list[int]:
    """Other sizes, those that are near first."""
    near = {value * 2, value // 2, value + step, value - step, value * 3 // 2, 1}
    return sorted([n for n in near if n >= 1 and n != value], key=lambda n: abs(n - value))


def _number(entry: tuple[int, Plan]) -> int:
    return entry[0]


__all__ = ["Alternatives", "alternatives", "kind_of_rest"]
