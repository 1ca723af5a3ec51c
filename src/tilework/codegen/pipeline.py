"""One kernel from KERNEL to LINEAR statements: the table of contents of code generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import analyse
from tilework.codegen.linearize.order import linearise
from tilework.codegen.passes.decompose import decompose, decompose_node
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan, estimate_work
from tilework.codegen.sort.lower import is_sort, lower_sort, sort_work
from tilework.ir.build import const_index
from tilework.ir.digest import digest
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node, in_use, toposort
from tilework.ir.ops.index import RANGE, VARIABLE, Unit
from tilework.ir.ops.memory import PARAM
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.codegen.plan.plan import Plan
    from tilework.target.spec import TargetSpec


def lower_kernel(sink: Node, target: TargetSpec, plan: Plan | None = None) -> LoweredKernel:
    """Choose a plan for a kernel (unless one is given) and lower it for `target`.

    Args:
        sink: The kernel, at the KERNEL stage.
        target: The machine that the code is for.
        plan: A plan from `tune` or a database; it refers to the ranges of `normalise_ranges`.

    Raises:
        PlanError: The plan does not fit the kernel or the target.
    """
    with in_use():
        if is_sort(sink):
            linear, scratch_bytes = lower_sort(sink, target)
            return _describe(sink, sort_work(sink), "sort of rows", linear, scratch_bytes)
        kernel = analyse(normalise_ranges(rewrite(sink, SIMPLIFY)))
        chosen = choose_plan(kernel, target) if plan is None else plan
        check(chosen, kernel, target)
        tiled = apply_plan(kernel, chosen)
        lowered, scratch_bytes = expand(tiled)
        decomposed = decompose(lowered, target)
        linear = linearise(decomposed, lambda node: decompose_node(node, target))
        work = estimate_work(kernel)
        return _describe(sink, work, repr(chosen), linear, scratch_bytes)


def _describe(
    sink: Node, work: float, plan: str, linear: Node, scratch_bytes: int
) -> LoweredKernel:
    nodes = toposort(linear)
    tasks = next(
        (n.src[0] for n in nodes if n.op is RANGE and n.attrs.unit is Unit.THREAD), const_index(1)
    )
    slots = [n.attrs.slot for n in toposort(sink) if n.op is PARAM]
    variables = sorted({n.attrs.name for n in toposort(sink) if n.op is VARIABLE})
    return LoweredKernel(
        f"kernel_{digest(sink).hex()}",
        linear,
        tasks,
        scratch_bytes,
        max(slots, default=-1) + 1,
        tuple(variables),
        max(int(work / max(bounds(tasks)[1], 1)), 1),
        plan,
    )
