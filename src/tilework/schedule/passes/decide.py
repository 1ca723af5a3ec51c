"""Which values are stored in memory: bytes saved against work done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import math, tensor
from tilework.ir.ops.index import RANGE
from tilework.schedule.passes.cost import narrows
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tilework.ir.node import Node
    from tilework.schedule.passes.cost import Cost, Costs
    from tilework.schedule.passes.kernel_graph import Kernel, Step
    from tilework.schedule.schedule import Limits

#: From how many computations of each of its elements a reduction is stored.
_TWICE = 2
#: From how many elements on that are one in memory.
_MANY = 8
_NEVER_STORED = MOVEMENT | IDENTITY


def reason_to_store(
    node: Node,
    steps: list[Step],
    costs: Costs,
    limits: Limits,
    is_wanted: Callable[[Node, Step], bool],
) -> str | None:
    """Why `node`, needed by `steps`, is stored in memory; None if it is computed at each of them.

    Movement ops are never stored themselves: what they move is, and reading it elsewhere is free.

    Args:
        node: the value to decide on.
        steps: where it is needed.
        costs: of all nodes.
        limits: what memory, launches and work cost.
        is_wanted: whether something else needs a node in the kernel of a step at its index.
    """
    recomputes = _recomputes(steps, limits)
    if node.op in _NEVER_STORED or _widens(node, sums=recomputes):
        return None
    if node.op is tensor.REDUCE:
        return _reduce(node, steps, costs, limits)
    count = max(numel(node), 1)
    if len(steps) == 1 and steps[0].kernel.span(steps[0].index)[1] <= count:
        return None
    if gathers_apart(node, steps, costs, limits):
        return "gathered once, beside a contraction, whose results leave all at once"
    if recomputes and len(steps) > 1 and node in costs.follows and narrows(node):
        return f"a contraction, rounded, read at {len(steps)} different indices"
    cost = costs.distinct(node) if recomputes else costs.own[node]
    if len(steps) > limits.uses and (cost.loads or cost.is_heavy or cost.work > limits.cheap_work):
        return f"read at {len(steps)} different indices"
    if cost.is_heavy and len(steps) > 1 and node.op.elementwise:
        shared = [
            source
            for source in dict.fromkeys(node.src)
            if sum(is_wanted(source, step) for step in steps) >= len(steps) - 1
        ]
        if shared:
            cost = min(cost, costs.without(node, shared))
    if not cost.is_heavy and cost.work <= limits.cheap_work and cost.loads <= 2:
        return None
    return _if_dearer(count, steps, cost, limits)


def _recomputes(steps: Iterable[Step], limits: Limits) -> bool:
    """Is memory so slow where `steps` are that values are computed again, down to their loads?"""
    return any(kind_of(step.kernel.device) in limits.computed_again_on for step in steps)


def gathers_apart(node: Node, steps: Iterable[Step], costs: Costs, limits: Limits) -> bool:
    """Is `node` gathered, and needed by a sum of products, whose results leave by rows?"""
    if node not in costs.gathered or not _recomputes(steps, limits):
        return False
    return any(step.kernel.contracts for step in steps)


def _widens(node: Node, *, sums: bool) -> bool:
    """Is this a cast of fewer bytes to more?  Then what it casts is stored, if anything is.

    An integer to which little is added (a zero point) is as good: its reader adds it again.  So is
    a float (and a bias), with `sums`.
    """
    if node.op is math.CAST:
        return node.src[0].type.dtype.itemsize < node.type.dtype.itemsize
    if node.op not in (math.ADD, math.SUB) or (node.type.dtype.is_float and not sums):
        return False
    first, second = node.src
    if node.op is math.ADD and first.op is not math.CAST:
        first, second = second, first
    return first.op is math.CAST and _widens(first, sums=sums) and _repeats(second)


def _repeats(node: Node) -> bool:
    """Is each element of a value read many times, so that it costs next to nothing?"""
    count = numel(node)
    while node.op in MOVEMENT:
        node = node.src[0]
    return count >= _MANY * numel(node)


def _reduce(node: Node, steps: list[Step], costs: Costs, limits: Limits) -> str | None:
    cost = costs.own[node]
    contraction = node in costs.contractions
    if contraction and len(steps) > 1:
        return f"a contraction read at {len(steps)} different indices"
    if len(steps) > limits.uses:
        return f"read at {len(steps)} different indices"
    rows_are_read = True
    for step in steps:
        kernel = step.kernel
        ranges = kernel.span(step.index)[0]
        outputs = [at for at in kernel.index if at.op is RANGE]
        if not kernel.is_nested(ranges):
            return "a reduction whose index is not an outer loop of its consumer"
        reason = _second_contraction(kernel, ranges, outputs) if contraction else None
        if reason is not None:
            return reason
        if numel(node.src[0]) > limits.serial_elements:
            reason = _idle_threads(step, outputs, limits)
            if reason is not None:
                return reason
        rows_are_read = rows_are_read and _has_loops_inside(kernel, ranges)
    count = max(numel(node), 1)
    if len(steps) == 1:
        # A part of a larger result (what is joined or padded) is computed for all of it.
        often = steps[0].kernel.span(steps[0].index)[1] / count
        computed = often * (cost.work + cost.loads)
        stored = cost.work + cost.loads + 2 * limits.memory_work + limits.launch_work / count
        if often < _TWICE or computed <= stored:
            return None
        return f"a reduction that would be computed {often:.3g} times"
    if not rows_are_read:
        return _if_dearer(count, steps, cost, limits)
    # Each consumer runs through the row anyway, so a recomputation reads it from the cache.
    again = sum(step.kernel.span(step.index)[1] for step in steps) / count
    computed = again * (cost.work + cost.loads)
    stored = cost.work + limits.memory_work * (cost.loads + 2) + limits.launch_work / count
    return None if computed <= stored else f"a reduction needed {len(steps)} times"


def _second_contraction(kernel: Kernel, ranges: frozenset[Node], outputs: list[Node]) -> str | None:
    """Why a contraction cannot be done in the kernel of a consumer; None if it can."""
    if len(ranges) != len(outputs):
        return "a contraction is never computed again"
    if any(at not in ranges for at in outputs):
        return "a contraction whose consumer has other loops"
    if kernel.contracts:
        # One register tile serves one sum of products; the other would run as plain loops.
        return "a second contraction in one kernel"
    return None


def _idle_threads(step: Step, outputs: list[Node], limits: Limits) -> str | None:
    """Why threads would have nothing to do if a long reduction was done at a step; None if not."""
    kernel = step.kernel
    ranges, rows = kernel.span(step.index)
    if len(ranges) < len(outputs) and rows < limits.serial_rows:
        return "a reduction of few long rows, which threads share better on its own"
    if ranges.difference(outputs) and kernel.size_of_space() < limits.serial_rows:
        return "a reduction inside of few results, which are all that threads could share"
    return None


def _has_loops_inside(kernel: Kernel, ranges: frozenset[Node]) -> bool:
    """Has the kernel loops inside of all of `ranges`, so that it runs through their row?"""
    return any(ranges <= outside for outside in kernel.before.values())


def _if_dearer(count: int, steps: Iterable[Step], cost: Cost, limits: Limits) -> str | None:
    """Compare, per element: computing at every use, and computing once, writing and reading."""
    spans: dict[Kernel, float] = {}
    for step in steps:
        spans[step.kernel] = spans.get(step.kernel, 0.0) + step.kernel.span(step.index)[1] / count
    memory = max((limits.memory_work_of(kernel.device) for kernel in spans), default=0)
    computed = 0.0
    read = 0.0
    for often in spans.values():
        once = min(often, 1.0)
        again = often - once
        computed += often * cost.work + cost.loads * (memory * once + again)
        read += memory * once + again
    stored = cost.work + memory * (cost.loads + 1) + read + limits.launch_work / count
    if computed <= stored:
        return None
    extra = (sum(spans.values()) - 1.0) * cost.work * count
    if len(spans) == 1 and not cost.is_heavy and extra <= 0.05 * next(iter(spans)).work:
        return None
    return (
        f"computing it {sum(spans.values()):.3g} times would take {computed / max(stored, 1):.3g} "
        "times the work of storing it"
    )
