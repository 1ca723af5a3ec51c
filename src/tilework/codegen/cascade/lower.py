"""A cascade as one LINEAR: its phases one after the other, inside a loop over tiles of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.base.records import dataclass, replace
from tilework.codegen import audit
from tilework.codegen.analysis import analyse
from tilework.codegen.cascade.columns import find_columns
from tilework.codegen.cascade.find import find_cascade
from tilework.codegen.cascade.phases import BLOCK_NAME, Phases
from tilework.codegen.cascade.rotate import (
    folds_what_is_stored,
    fused,
    rotates,
    with_tile_of,
)
from tilework.codegen.cascade.running import RunningPhases, find_running
from tilework.codegen.cascade.tile import choose_tile, planned_tile
from tilework.codegen.linearize.order import linearise
from tilework.codegen.passes.decompose import decompose, decompose_node
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import drop_single
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan, plain_plan
from tilework.codegen.plan.kinds import CascadePlan
from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops.control import ACCUMULATOR, ALLOCATE, END, AccumulateAttrs, AllocateAttrs
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, Unit
from tilework.ir.ops.memory import LOAD, PARAM
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory as MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.cascade.find import Cascade
    from tilework.codegen.cascade.phases import Group
    from tilework.codegen.cascade.tile import Tile
    from tilework.codegen.passes.run import PassRun
    from tilework.codegen.plan.plan import Plan
    from tilework.target.spec import ParallelUnit, TargetSpec

_LINE_BYTES = 64
#: Tasks for each core, so that cores stay even.
_TASKS_PER_CORE = 16


@dataclass(frozen=True, slots=True)
class PhaseKernel:
    """One phase of a cascade: its number, its kernel and plan, and the core that it runs on."""

    number: int
    kernel: Kernel
    plan: Plan
    target: TargetSpec


@dataclass(frozen=True, slots=True)
class LoweredCascade:
    """The statements of a cascade, the scratch bytes of one task, its tasks, its plans as text."""

    linear: Node
    scratch_bytes: int
    plan: str


def lower_cascade(
    kernel: Kernel,
    target: TargetSpec,
    passes: PassRun,
    plan: CascadePlan | None = None,
    *,
    is_plain: bool = False,
) -> LoweredCascade | None:
    """The LINEAR of a kernel that is a cascade worth running in phases; None if it is not.

    Args:
        kernel: The kernel with its ranges normalised.
        target: The machine that the code is for.
        passes: Runs the passes from `apply-plan` on over each phase.
        plan: How to cut it, instead of the cost model's choice.
        is_plain: Take plain loops in each phase instead of the best plan.

    Raises:
        PlanError: `plan` does not fit the kernel or the target.
    """
    found = _phases_of(kernel, target, plan)
    if found is None:
        return None
    cascade, tile, phases = found
    choose = _plain if is_plain else choose_plan
    plan = plan or CascadePlan(tile.rows, tile.block, _batch(tile, target))
    composition = _Composition(cascade, tile, phases, plan, target, choose, passes)
    text: list[str] = []
    linear = passes.run("linearise", cascade.kernel.sink, lambda _: composition.run(text))
    limit = target.limits.max_scratch_bytes
    if limit and composition.scratch_bytes > limit:
        raise PlanError(
            "plan: what a tile keeps does not fit a worker's memory",
            got=f"{composition.scratch_bytes} bytes",
            expected=f"at most {limit}",
        )
    return LoweredCascade(linear, composition.scratch_bytes, text[0])


def cascade_plan(kernel: Kernel, target: TargetSpec) -> CascadePlan | None:
    """How the cost model would cut a cascade; None where the kernel is none that is worth it."""
    found = _phases_of(kernel, target)
    if found is None:
        return None
    tile = found[1]
    return CascadePlan(tile.rows, tile.block, _batch(tile, target))


def phase_kernels(kernel: Kernel, target: TargetSpec, plan: CascadePlan) -> list[PhaseKernel]:
    """The phases of a cascade under a plan, in order, each with its own.

    Raises:
        PlanError: The plan does not fit the kernel.
    """
    found = _phases_of(kernel, target, plan)
    if found is None:
        return []
    alone = replace(target, units=_one_core(target.units))
    sinks = [sink for group in found[2].groups() for sink in group.sinks]
    made: list[PhaseKernel] = []
    for number, sink in enumerate(sinks):
        phase = analyse(drop_single(sink))
        chosen = plan.phase(number) or replace(choose_plan(phase, alone), tasks=0)
        made.append(PhaseKernel(number, phase, chosen, alone))
    return made


def _batch(tile: Tile, target: TargetSpec) -> int:
    """How many tiles a task takes: single rows one after the other."""
    if tile.rows > 1:
        return 1
    return max(tile.count // (target.cores * _TASKS_PER_CORE), 1)


def _phases_of(
    kernel: Kernel, target: TargetSpec, plan: CascadePlan | None = None
) -> tuple[Cascade, Tile, Phases] | None:
    cascade = find_cascade(kernel)
    if cascade is None:
        return _columns_of(kernel, target, plan)
    running = find_running(cascade)
    tile = choose_tile(cascade, target, may_run=running is not None)
    if plan is not None:
        tile = planned_tile(cascade, tile, plan)
    if running is None or not tile.is_long:
        phases = Phases(cascade, tile, _first_slot(kernel))
    else:
        phases = RunningPhases(cascade, running, tile, _first_slot(kernel))
    total = sum(_bytes(param) for param in phases.params)
    if cascade.key is None and plan is None:
        if total > (target.l2_bytes or 1 << 19):
            return None  # a row that leaves the cache is computed again as fast
        if tile.row is None and tile.count < 2 * target.cores:
            return None  # too few rows to share out: plain loops use the cores better
    return cascade, tile, phases


def _columns_of(
    kernel: Kernel, target: TargetSpec, plan: CascadePlan | None
) -> tuple[Cascade, Tile, Phases] | None:
    found = find_columns(kernel, target)
    if found is None:
        return None
    cascade, tile = found
    if plan is not None:
        tile = planned_tile(cascade, tile, plan)
    return cascade, tile, Phases(cascade, tile, _first_slot(kernel))


def _plain(kernel: Kernel, target: TargetSpec) -> Plan:
    return plain_plan(kernel)


def _bytes(param: Node) -> int:
    (count,) = param.attrs.shape
    return int(count) * int(param.attrs.dtype.itemsize)


def _first_slot(kernel: Kernel) -> int:
    return 1 + max(int(node.attrs.slot) for node in kernel.order if node.op is PARAM)


def _one_core(unit: ParallelUnit) -> ParallelUnit:
    """The units of a machine on which a task runs alone."""
    count = 1 if unit.name == "threads" else unit.count
    return replace(unit, count=count, inner=tuple([_one_core(u) for u in unit.inner]))


def _is_position(node: Node) -> bool:
    """Index arithmetic that reads no memory."""
    if not node.op.elementwise or node.type.dtype is not index:
        return False
    return not any(part.op is LOAD for part in toposort(node))


class _Composition:
    """Plans the phases and puts their statements together."""

    def __init__(
        self,
        cascade: Cascade,
        tile: Tile,
        phases: Phases,
        given: CascadePlan,
        target: TargetSpec,
        choose: Callable[[Kernel, TargetSpec], Plan],
        passes: PassRun,
    ) -> None:
        self.cascade = cascade
        self.tile = tile
        self.phases = phases
        self.given = given
        self.planned = 0
        self.target = target
        self.choose = choose
        self.passes = passes
        self.alone = replace(target, units=_one_core(target.units))
        self.statements: list[Node] = []
        self.placed: set[Node] = set()
        self.ranges = 0
        self.accumulators = 0
        self.scratch_bytes = 0
        self.base_bytes = 0
        self.fixed: dict[Node, Node] = {}

    def run(self, plan: list[str]) -> Node:
        """The LINEAR; `plan` gets the plans of the phases as text."""
        self._allocate()
        groups = self.phases.groups()
        tasks, start, extent = self._open_tasks()
        if extent is not None and rotates(self.phases):
            plans = self._rotated(groups[0].sinks, start, extent)
        else:
            rows = self._open_rows(start, extent)
            plans = [plan for group in groups for plan in self._group(group)]
            self.statements += [END(loop) for loop in rows]
        self.statements.append(END(tasks))
        how = ", running values" if isinstance(self.phases, RunningPhases) else ""
        head = f"cascade in {self.tile.count} tiles of {self.tile.rows} rows{how}: "
        plan.append(head + "; ".join(plans))
        return LINEAR(*self.statements)

    def _rotated(self, sinks: list[Node], start: Node, extent: Node) -> list[str]:
        """The first phase of each row in the last phase of the row before."""
        variable = self.phases.variable
        self._place(start)
        self.fixed[variable] = start
        plan = self._planned(sinks[0])
        self.statements += self._lowered(*plan)
        outside = set(self.placed)
        rows = self._open_rows(start, extent)
        row = self.fixed[variable]
        plans = [repr(plan[1]), *self._phase_by_phase(sinks[1:-1])]
        kernel, last = self._planned(sinks[-1])
        reduced = next((s for s in plan[1].splits if s.tile_size > 1), None)
        last = with_tile_of(last, kernel, reduced)
        check(last, kernel, self.alone)
        stores = self._lowered(kernel, last)
        # The row after the last one of a task is not this task's, but may be looked at.
        count = const_index(self.tile.count - 1)
        following = decompose(
            simplify.minimum(simplify.add(row, const_index(1)), count), self.target
        )
        self._place(following)
        self.fixed[variable] = following
        self.statements += fused(stores, self._lowered(*plan))
        self.statements += [END(loop) for loop in rows]
        self.placed = outside
        return [*plans, repr(last)]

    # ---- memory and loops around the phases

    def _allocate(self) -> None:
        for param in self.phases.params:
            dtype, (count,) = param.attrs.dtype, param.attrs.shape
            attrs = AllocateAttrs(dtype, count, MemoryKind.TILE, self.base_bytes)
            self.fixed[param] = ALLOCATE(attrs=attrs)
            self.base_bytes += -(-_bytes(param) // _LINE_BYTES) * _LINE_BYTES
        self.scratch_bytes = self.base_bytes

    def _open_tasks(self) -> tuple[Node, Node, Node | None]:
        """Open the loop over tasks: it, the first tile of a task, and how many if not just one."""
        count = self.tile.count
        block = self.given.batch
        tasks = self._range(const_index(-(-count // block)), Unit.THREAD)
        if block == 1:
            return tasks, tasks, None
        start = simplify.scale(tasks, block)
        left = simplify.sub(const_index(count), start)
        whole = const_index(block)
        extent = whole if count % block == 0 else simplify.minimum(whole, left)
        return tasks, start, decompose(extent, self.target)

    def _open_rows(self, start: Node, extent: Node | None) -> list[Node]:
        """Open the loop over the tiles of a task, if there are several; `%tile` is in it."""
        value, loops = start, []
        if extent is not None:
            self._place(extent)
            loops.append(self._range(extent, Unit.LOOP))
            value = simplify.add(start, loops[0])
            self._place(value)
        self.fixed[self.phases.variable] = value
        return loops

    def _range(self, extent: Node, unit: Unit) -> Node:
        loop = RANGE(extent, attrs=RangeAttrs(self.ranges, unit))
        self.ranges += 1
        self.statements.append(loop)
        self.placed.add(loop)
        return loop

    def _place(self, value: Node) -> None:
        """Statements for index arithmetic outside of the phases."""
        for node in toposort(value):
            if node.src and node not in self.placed:
                self.statements.append(node)
                self.placed.add(node)

    # ---- phases

    def _group(self, group: Group) -> list[str]:
        """The phases of a group, in a loop over blocks if it has one; their plans as text."""
        if group.count is None:
            return self._phase_by_phase(group.sinks)
        count, first = simplify.substitute([group.count, group.first], self.fixed)
        count, first = decompose(count, self.target), decompose(first, self.target)
        self._place(count)
        loop = self._range(count, Unit.LOOP)
        block = decompose(simplify.add(first, loop), self.target)
        outside = set(self.placed)
        self._place(block)
        self.fixed.update(
            (node, block)
            for sink in group.sinks
            for node in toposort(sink)
            if node.op is VARIABLE and node.attrs.name == BLOCK_NAME
        )
        plans = self._phase_by_phase(group.sinks)
        self.statements.append(END(loop))
        self.placed = outside
        return plans

    def _phase_by_phase(self, sinks: Sequence[Node]) -> list[str]:
        """Append the statements of phases; their plans as text."""
        plans: list[str] = []
        waiting = [self._planned(sink) for sink in sinks]
        while waiting:
            kernel, plan = waiting.pop(0)
            following = waiting[0] if waiting else None
            if following is None or not folds_what_is_stored(kernel, *following):
                self.statements += self._lowered(kernel, plan)
                plans.append(repr(plan))
                continue
            waiting.pop(0)
            (split,) = following[1].splits
            plan = with_tile_of(plan, kernel, split)
            check(plan, kernel, self.alone)
            statements = self._lowered(kernel, plan), self._lowered(*following)
            if plan.splits[0].tile == split.tile:
                self.statements += fused(*statements)
            else:
                self.statements += statements[0] + statements[1]
            plans += [repr(plan), repr(following[1])]
        return plans

    def _planned(self, sink: Node) -> tuple[Kernel, Plan]:
        kernel = analyse(drop_single(sink))
        given = self.given.phase(self.planned)
        self.planned += 1
        plan = replace(given or self.choose(kernel, self.alone), tasks=0)
        check(plan, kernel, self.alone)
        return kernel, plan

    def _lowered(self, kernel: Kernel, plan: Plan) -> list[Node]:
        """The statements of a phase, with names that are its own."""
        target, run = self.target, self.passes.run
        scratch: list[int] = []

        def expanded(tiled: Node) -> Node:
            result, size = expand(tiled, target)
            scratch.append(size)
            return result

        tiled = run("apply-plan", kernel.sink, lambda _: apply_plan(kernel, plan))
        lowered = run("expand", tiled, expanded)
        audit.check_as_settings_say(lowered)
        decomposed = run("decompose", lowered, lambda node: decompose(node, target))
        linear = run(
            "linearise",
            decomposed,
            lambda node: linearise(node, lambda update: decompose_node(update, target)),
        )
        audit.check_gates(lowered, linear)
        self.scratch_bytes = max(self.scratch_bytes, self.base_bytes + scratch[0])
        done = dict(self.fixed)
        order = toposort(linear)
        shift = self.ranges
        for node in order[:-1]:
            if node not in done:
                done[node] = self._renamed(node, tuple([done[s] for s in node.src]), shift)
        highest = [int(n.attrs.number) for n in order if n.op is RANGE]
        self.ranges += 1 + max(highest, default=-1)
        self.accumulators += sum(n.op is ACCUMULATOR for n in order)
        statements: list[Node] = []
        depth = 0
        for statement in linear.src:
            new = done[statement]
            if new in self.placed:
                continue
            statements.append(new)
            depth += (new.op is RANGE) - (new.op is END)
            if not depth and _is_position(new):
                self.placed.add(new)  # seen by the phases after this one
        return statements

    def _renamed(self, node: Node, src: tuple[Node, ...], shift: int) -> Node:
        attrs = node.attrs
        if node.op is RANGE:
            return RANGE(*src, attrs=RangeAttrs(int(attrs.number) + shift, attrs.unit))
        if node.op is ACCUMULATOR:
            moved = AccumulateAttrs(attrs.number + self.accumulators, attrs.fold)
            return ACCUMULATOR(*src, attrs=moved)
        if node.op is ALLOCATE:
            offset = attrs.offset_bytes + self.base_bytes
            return ALLOCATE(attrs=AllocateAttrs(attrs.dtype, attrs.count, attrs.memory, offset))
        return node if src == node.src else node.op(*src, attrs=attrs)
