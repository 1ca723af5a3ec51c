"""One kernel from KERNEL to LINEAR statements for machines with blocks of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import analyse
from tilework.codegen.gpu.apply import apply_gpu_plan, unify_units
from tilework.codegen.gpu.barriers import insert_barriers
from tilework.codegen.gpu.branches import branch_loops
from tilework.codegen.gpu.check import check_gpu_plan
from tilework.codegen.gpu.choose import choose_gpu_plan, plain_gpu_plan
from tilework.codegen.gpu.contract import apply_contraction
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.linearize.order import linearise
from tilework.codegen.matrix.chain import chain_plan, find_chain
from tilework.codegen.matrix.chain_lower import lower_chain
from tilework.codegen.matrix.choose import choose_ring_plan
from tilework.codegen.matrix.lower import lower_ring
from tilework.codegen.matrix.stream import find_stream, stream_plan
from tilework.codegen.matrix.stream_lower import lower_stream
from tilework.codegen.matrix.warps import choose_warp_plan
from tilework.codegen.matrix.warps_lower import lower_warps
from tilework.codegen.passes.decompose import decompose, decompose_node
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.passes.run import PassRun
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.plan import Plan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: The passes in order, each with the stage in which it leaves a kernel.
PASSES = {
    "simplify": Stage.KERNEL,
    "loosen": Stage.KERNEL,
    "normalise": Stage.KERNEL,
    "apply-plan": Stage.TILED,
    "expand": Stage.LOWERED,
    "decompose": Stage.LOWERED,
    "linearise": Stage.LINEAR,
    "branch-loops": Stage.LINEAR,
    "barriers": Stage.LINEAR,
    "ring": Stage.LINEAR,
    "warps": Stage.LINEAR,
    "stream": Stage.LINEAR,
    "chain": Stage.LINEAR,
}


def lower_for_blocks(
    sink: Node,
    target: TargetSpec,
    loosen: Callable[[Node, TargetSpec], Node],
    plan: Plan | None = None,
    *,
    is_plain: bool = False,
) -> tuple[Kernel, GpuPlan, Node, Node]:
    """Lower a kernel: what it is, its plan, its LOWERED form and its LINEAR statements.

    Args:
        sink: The kernel, at the KERNEL stage.
        target: A machine with blocks of threads.
        loosen: Applies the rules of the floating-point mode in force.
        plan: A `GpuPlan`, or None to choose one.
        is_plain: Take plain loops in one thread instead of the best plan.

    Raises:
        PlanError: The plan does not fit the kernel or the target.
    """
    passes = PassRun(PASSES, sink, Stage.KERNEL)
    simple = passes.run("simplify", sink, lambda node: rewrite(node, SIMPLIFY))
    loose = passes.run("loosen", simple, lambda node: loosen(node, target))
    kernel = analyse(passes.run("normalise", loose, normalise_ranges))
    stream = find_stream(kernel, target) if plan is None and not is_plain else None
    if stream is not None:
        found = stream
        linear = passes.run("stream", kernel.sink, lambda _: lower_stream(found, target))
        return kernel, stream_plan(stream), linear, linear
    chain = find_chain(kernel, target) if plan is None and not is_plain else None
    if chain is not None:
        known = chain
        linear = passes.run("chain", kernel.sink, lambda _: lower_chain(known, target))
        return kernel, chain_plan(chain), linear, linear
    if plan is None:
        plan = plain_gpu_plan(kernel) if is_plain else choose_block_plan(kernel, target)
    if isinstance(plan, GpuPlan) and plan.matrix and plan.depth:
        tiles = plan
        linear = passes.run("warps", kernel.sink, lambda _: lower_warps(kernel, tiles, target))
        return kernel, tiles, linear, linear
    if isinstance(plan, GpuPlan) and plan.matrix:
        ring = plan
        linear = passes.run("ring", kernel.sink, lambda _: lower_ring(kernel, ring, target))
        return kernel, ring, linear, linear
    chosen = check_gpu_plan(plan, kernel, target)
    tiled = passes.run("apply-plan", kernel.sink, lambda _: _apply(kernel, chosen))
    lowered = passes.run("expand", tiled, lambda node: expand(unify_units(node))[0])
    decomposed = passes.run("decompose", lowered, lambda node: decompose(node, target))
    linear = passes.run(
        "linearise",
        decomposed,
        lambda node: linearise(node, lambda update: decompose_node(update, target)),
    )
    branched = passes.run("branch-loops", linear, branch_loops) if kernel.meeting else linear
    return kernel, chosen, lowered, passes.run("barriers", branched, insert_barriers)


def has_own_design(kernel: Kernel, target: TargetSpec) -> bool:
    """Is it one whose products stream or follow each other, as attention's do?"""
    return (find_stream(kernel, target) or find_chain(kernel, target)) is not None


def choose_block_plan(kernel: Kernel, target: TargetSpec) -> GpuPlan:
    """The plan of what has no design of its own, where nobody has measured a better one."""
    on_matrix_units = choose_ring_plan(kernel, target) or choose_warp_plan(kernel, target)
    return on_matrix_units or choose_gpu_plan(kernel, target)


def _apply(kernel: Kernel, plan: GpuPlan) -> Node:
    return apply_contraction(kernel, plan) if plan.depth else apply_gpu_plan(kernel, plan)
