"""One kernel from KERNEL to LINEAR statements: the table of contents of code generation.

What only some kernels need (sorts, cascades, grouped products, checks of accesses) is imported by
the first that does: most programs that run for one answer have none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tilework.base import settings
from tilework.base.errors import PlanError
from tilework.base.records import replace
from tilework.codegen import audit
from tilework.codegen.analysis import analyse
from tilework.codegen.gpu.plan import has_blocks
from tilework.codegen.linearize.fetch import fetch_results
from tilework.codegen.linearize.fetch_panels import fetch_panels
from tilework.codegen.linearize.order import linearise
from tilework.codegen.linearize.past_caches import store_past_caches
from tilework.codegen.linearize.rare import branch_rarely
from tilework.codegen.linearize.short_loops import write_out
from tilework.codegen.naming import kernel_name
from tilework.codegen.passes.decompose import decompose, decompose_node
from tilework.codegen.passes.expand import expand
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.passes.run import PassRun
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan, estimate_work, plain_plan
from tilework.codegen.plan.kinds import CascadePlan, SortPlan
from tilework.codegen.plan.plan import Plan
from tilework.codegen.sort.kernels import is_sort, is_sort_pass, sort_work
from tilework.ir.build import const_index
from tilework.ir.digest import digest
from tilework.ir.faults import MARK_DIGITS
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node, in_use, toposort
from tilework.ir.ops.control import ALLOCATE
from tilework.ir.ops.index import RANGE, VARIABLE, Unit
from tilework.ir.ops.memory import PARAM
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.rules.loose import CONTRACT, REASSOCIATE
from tilework.ir.rules.quotients import QUOTIENTS, SATURATED_QUOTIENTS
from tilework.ir.stage import Stage
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.verify import verify

if TYPE_CHECKING:
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.target.spec import TargetSpec

_Kind = TypeVar("_Kind", bound="AnyPlan")

_LINE_BYTES = 64
#: The passes in order, each with the stage in which it leaves a kernel.
PASSES = {
    "simplify": Stage.KERNEL,
    "loosen": Stage.KERNEL,
    "normalise": Stage.KERNEL,
    "apply-plan": Stage.TILED,
    "expand": Stage.LOWERED,
    "decompose": Stage.LOWERED,
    "linearise": Stage.LINEAR,
    "fetch-panels": Stage.LINEAR,
    "short-loops": Stage.LINEAR,
    "branch-rarely": Stage.LINEAR,
    "past-caches": Stage.LINEAR,
    "fetch-results": Stage.LINEAR,
}
#: (earlier, later, why) for every two passes whose order matters.
ORDER = (
    ("simplify", "loosen", "looser rules match products and literals in their normal form"),
    ("loosen", "decompose", "what an elementary function is lowered to is never loosened"),
    ("simplify", "normalise", "rules leave index arithmetic in the form that ranges are read from"),
    ("normalise", "apply-plan", "a plan names the ranges that splitting and merging left"),
    ("apply-plan", "expand", "lanes and copies come from the units that a plan gave to ranges"),
    (
        "expand",
        "decompose",
        "what replaces an op is made for the scalars or vectors that there are",
    ),
    ("decompose", "linearise", "every op of the result becomes a statement of its own"),
    ("linearise", "short-loops", "which loop is innermost is known once statements are in order"),
    ("fetch-panels", "short-loops", "a panel's extent is read from the loops that pass over it"),
    ("branch-rarely", "fetch-results", "nothing is fetched in a loop that has branches"),
    ("past-caches", "fetch-results", "what is stored past the caches is not fetched into them"),
)


def lower_kernel(
    sink: Node, target: TargetSpec, plan: AnyPlan | None = None, *, is_plain: bool = False
) -> LoweredKernel:
    """Choose a plan for a kernel (unless one is given) and lower it for `target`.

    Args:
        sink: The kernel, at the KERNEL stage.
        target: The machine that the code is for.
        plan: A plan from `tune` or a database; it refers to the ranges of `normalise_ranges`.
        is_plain: Take plain loops instead of the best plan.

    Raises:
        PlanError: The plan does not fit the kernel or the target.
    """
    with in_use():
        given_sink, sink = sink, checked(sink)
        if has_blocks(target) and (is_sort(sink) or is_sort_pass(sink)):
            found = _lower_sort_for_blocks(sink, target, plan)
            if found is not None:
                return found
        if is_sort(sink):
            return _lower_sort(sink, target, _of_kind(plan, SortPlan))
        if has_blocks(target):
            found_plan = _of_kind(plan, Plan)
            return _lower_for_blocks(sink, given_sink, target, found_plan, is_plain=is_plain)
        passes = PassRun(PASSES, sink, Stage.KERNEL)
        simple = passes.run("simplify", sink, lambda node: rewrite(node, SIMPLIFY))
        loose = passes.run("loosen", simple, lambda node: loosen(node, target))
        kernel = analyse(passes.run("normalise", loose, lambda node: _ready(node, target)))
        cascade = None
        if kernel.reduces and not isinstance(plan, Plan):
            from tilework.codegen.cascade.lower import lower_cascade

            given = _of_kind(plan, CascadePlan)
            cascade = lower_cascade(kernel, target, passes, given, is_plain=is_plain)
        if cascade is not None:
            return _describe(
                target,
                kernel_name(given_sink, kernel),
                sink,
                estimate_work(kernel),
                cascade.plan,
                _finished(passes, cascade.linear, target),
                cascade.scratch_bytes,
            )
        chosen = _of_kind(plan, Plan)
        if chosen is None:
            chosen = plain_plan(kernel) if is_plain else choose_plan(kernel, target)
        check(chosen, kernel, target)
        tiled = passes.run("apply-plan", kernel.sink, lambda _: apply_plan(kernel, chosen))
        lowered = passes.run("expand", tiled, lambda node: expand(node, target)[0])
        audit.check_as_settings_say(lowered)
        decomposed = passes.run("decompose", lowered, lambda node: decompose(node, target))
        linear = passes.run(
            "linearise",
            decomposed,
            lambda node: linearise(node, lambda update: decompose_node(update, target)),
        )
        audit.check_gates(lowered, linear)
        linear = passes.run("fetch-panels", linear, lambda node: fetch_panels(node, target))
        linear = passes.run("short-loops", linear, lambda node: write_out(node, target))
        linear = _finished(passes, linear, target)
        work = estimate_work(kernel)
        name = kernel_name(given_sink, kernel)
        return _describe(target, name, sink, work, repr(chosen), linear, _scratch_bytes(lowered))


def _lower_sort(sink: Node, target: TargetSpec, plan: SortPlan | None) -> LoweredKernel:
    from tilework.codegen.sort.lower import lower_sort

    linear, scratch_bytes = lower_sort(sink, target, plan)
    linear = audited(linear, sink)
    if settings.current().verify != "off":
        verify(linear, Stage.LINEAR, after="sort")
    name, work = kernel_name(sink, None), sort_work(sink)
    return _describe(target, name, sink, work, "sort of rows", linear, scratch_bytes)


def checked(sink: Node) -> Node:
    """The kernel with checks of what is not proven, if the setting `check_accesses` says so."""
    if not settings.current().check_accesses or is_sort(sink) or is_sort_pass(sink):
        return sink
    from tilework.codegen.passes.runtime_checks import with_checks

    return with_checks(sink, digest(sink).hex()[:MARK_DIGITS])


def audited(linear: Node, sink: Node) -> Node:
    """The statements of a kernel that is written as such, proven or checked as settings say.

    Raises:
        VerifyError: `prove_accesses` is set, and an access is not proven to lie inside.
    """
    current = settings.current()
    if current.check_accesses:
        from tilework.codegen.passes.statement_checks import with_statement_checks

        linear = with_statement_checks(linear, digest(sink).hex()[:MARK_DIGITS])
    if current.check_accesses or current.prove_accesses:
        from tilework.codegen.audit_statements import check_statements

        check_statements(linear, trusts_data=not current.check_accesses)
    return linear


def _ready(sink: Node, target: TargetSpec) -> Node:
    """The kernel that plans are made for."""
    if not any(node.op is REDUCE for node in toposort(sink)):
        return normalise_ranges(sink)  # it has no products that could be grouped
    from tilework.codegen.plan.dot_products import ready_for_plans

    return ready_for_plans(sink, target)


def _finished(passes: PassRun, linear: Node, target: TargetSpec) -> Node:
    """The statements after the passes that every kernel's go through at last."""
    branched = passes.run("branch-rarely", linear, branch_rarely)
    past = passes.run("past-caches", branched, lambda node: store_past_caches(node, target))
    return passes.run("fetch-results", past, lambda node: fetch_results(node, target))


def _of_kind(plan: AnyPlan | None, kind: type[_Kind]) -> _Kind | None:
    """The plan if it is of the kind that the kernel wants."""
    if plan is not None and not isinstance(plan, kind):
        raise PlanError(
            "plan: a plan of another kind than the kernel's",
            got=type(plan).__name__,
            expected=kind.__name__,
        )
    return plan


def loosen(sink: Node, target: TargetSpec) -> Node:
    """Round otherwise than written, as far as `fp_mode` allows; strict changes no bit."""
    mode = settings.current().fp_mode
    if target.has_fma:
        sink = rewrite(rewrite(sink, SATURATED_QUOTIENTS), QUOTIENTS)
    if mode == "fast":
        sink = rewrite(sink, REASSOCIATE)
    if mode != "strict" and target.has_fma:
        sink = rewrite(sink, CONTRACT)
    return sink


def _lower_for_blocks(
    sink: Node, named_by: Node, target: TargetSpec, plan: Plan | None, *, is_plain: bool
) -> LoweredKernel:
    from tilework.codegen.gpu.pipeline import lower_for_blocks  # a processor needs none of it

    kernel, chosen, lowered, linear = lower_for_blocks(
        sink, target, loosen, plan, is_plain=is_plain
    )
    if lowered is linear:  # written as statements, not made of expressions
        linear = audited(linear, sink)
    else:
        audit.check_as_settings_say(lowered)
        audit.check_gates(lowered, linear)
    work, name = estimate_work(kernel), kernel_name(named_by, kernel)
    found = _describe(target, name, sink, work, repr(chosen), linear, _scratch_bytes(lowered))
    return replace(found, threads=chosen.threads, resident=chosen.resident)


def _lower_sort_for_blocks(
    sink: Node, target: TargetSpec, plan: AnyPlan | None
) -> LoweredKernel | None:
    """A sort by blocks of threads; None for rows that one thread sorts."""
    from tilework.codegen.gpu.sort_block import lower_row_sort, tile_of_row
    from tilework.codegen.gpu.sort_passes import lower_sort_pass

    if is_sort_pass(sink):
        linear, scratch_bytes, threads = lower_sort_pass(sink, target)
    else:
        tile = tile_of_row(sink, target) if plan is None and len(sink.src) == 1 else None
        if tile is None:
            return None
        linear, scratch_bytes = lower_row_sort(sink, target, tile)
        threads = tile.threads
    linear = audited(linear, sink)
    if settings.current().verify != "off":
        verify(linear, Stage.LINEAR, after="sort")
    name, work = kernel_name(sink, None), sort_work(sink)
    found = _describe(target, name, sink, work, "sort of rows", linear, scratch_bytes)
    return replace(found, threads=threads)


def _scratch_bytes(lowered: Node) -> int:
    """The TILE memory of one task, in whole cache lines."""
    ends = [0]
    for node in toposort(lowered):
        if node.op is ALLOCATE:
            attrs = node.attrs
            ends.append(attrs.offset_bytes + attrs.count * attrs.dtype.itemsize)
    return -(-max(ends) // _LINE_BYTES) * _LINE_BYTES


def _describe(
    target: TargetSpec,
    name: str,
    sink: Node,
    work: float,
    plan: str,
    linear: Node,
    scratch_bytes: int,
) -> LoweredKernel:
    nodes = toposort(linear)
    tasks = next(
        (n.src[0] for n in nodes if n.op is RANGE and n.attrs.unit is Unit.THREAD), const_index(1)
    )
    slots = [n.attrs.slot for n in toposort(sink) if n.op is PARAM]
    variables = sorted({n.attrs.name for n in toposort(sink) if n.op is VARIABLE})
    return LoweredKernel(
        name,
        linear,
        tasks,
        scratch_bytes,
        max(slots, default=-1) + 1,
        tuple(variables),
        max(int(work / max(bounds(tasks)[1], 1)), 1),
        plan,
        has_fma=target.has_fma,
    )
