"""Lowering under the plan that tuning has found, shared by the back ends whose plans are tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.database import tuned_plan

if TYPE_CHECKING:
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


def lower_as_tuned(
    kernel: Node, target: TargetSpec, plan: AnyPlan | None = None, *, is_plain: bool = False
) -> LoweredKernel:
    """Lower a kernel under a given plan, the tuned one, or the cost model's choice.

    Args:
        kernel: The kernel, at the KERNEL stage.
        target: The machine that the code is for.
        plan: How to tile it; None takes what tuning has found, or the cost model's choice.
        is_plain: Take plain loops.

    Raises:
        PlanError: A given plan is not legal.
    """
    tuned = None if plan is not None or is_plain else tuned_plan(kernel, target)
    try:
        return lower_kernel(kernel, target, plan or tuned, is_plain=is_plain)
    except PlanError:
        if tuned is None:
            raise
        return lower_kernel(kernel, target)  # it was tuned for another version
