"""Is a plan with a matrix instruction legal?  The part of `check` that knows matrix registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.codegen.plan.contraction import orientations
from tilework.codegen.plan.extents import number, size
from tilework.codegen.plan.matrix_tiling import (
    fills_deep,
    has_stores_alone,
    instruction_for,
    lies_in_rows,
    most_steps,
    registers_of,
)
from tilework.codegen.plan.windows import deep_range, windows_of
from tilework.ir.ops.index import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.contraction import Contraction
    from tilework.codegen.plan.plan import Plan, Split, Staged
    from tilework.ir.node import Node
    from tilework.target.spec import MatrixInstruction, TargetSpec


def check_matrix(plan: Plan, kernel: Kernel, target: TargetSpec) -> None:
    """Refuse a plan whose matrix instruction does not compute its contraction.

    Raises: PlanError, which names the first rule that the plan breaks.
    """
    found = orientations(kernel)
    if len(found) <= int(plan.swapped):
        raise PlanError("plan: a matrix instruction without a contraction", got=plan.matrix)
    contraction = found[int(plan.swapped)]
    instruction = instruction_for(contraction, target)
    if instruction is None or instruction.name != plan.matrix or contraction.corrections:
        raise PlanError(
            "plan: the matrix instruction has other factors than the contraction",
            got=plan.matrix,
            expected="none" if instruction is None else instruction.name,
        )
    if not has_stores_alone(kernel):
        raise PlanError("plan: results of matrix registers are stored, and nothing else is done")
    if not plan.rolled or plan.ahead:
        raise PlanError(
            "plan: results of matrix registers go through memory, and nothing is fetched ahead",
            got=f"rolled {plan.rolled}, ahead {plan.ahead}",
        )
    row = _only(plan, contraction.m, instruction.m, "rows")
    lane = _only(plan, contraction.n, instruction.n, "columns")
    steps = _only(plan, contraction.k, most_steps(instruction), "steps")
    _check_registers(plan, row, lane, instruction)
    _check_whole(plan, steps)
    _check_first(plan, contraction, row, steps)
    _check_second(plan, contraction, lane, steps)


def _only(plan: Plan, ranges: Sequence[Node], most: int, what: str) -> Node:
    """The one range of a side whose tile is in registers."""
    tiled = [r for r in ranges if plan.split_of(number(r)).tile]
    parts = [part for r in tiled for part in plan.split_of(number(r)).tile]
    inside = [part.size for part in parts if part.unit is Unit.MATRIX]
    if len(tiled) != 1 or len(inside) != 1 or inside[0] > most:
        raise PlanError(
            f"plan: a matrix register has another number of {what}",
            got=f"{inside} of {len(tiled)} ranges",
            expected=f"at most {most}, of one range",
        )
    return tiled[0]


def _registers(split: Split) -> int:
    return split.tile_size // split.tile[-1].size


def _check_registers(plan: Plan, row: Node, lane: Node, instruction: MatrixInstruction) -> None:
    sides = [_registers(plan.split_of(number(range_))) for range_ in (row, lane)]
    if registers_of(*sides) > instruction.registers:
        raise PlanError(
            "plan: a tile takes more matrix registers than there are",
            got=f"{sides[0]} x {sides[1]}",
            expected=f"at most {instruction.registers} with those of the factors",
        )


def _check_whole(plan: Plan, steps: Node) -> None:
    split = plan.split_of(number(steps))
    if len(split.tile) > 1 or size(steps) % split.tile_size:
        raise PlanError(
            "plan: steps of a sum are left that fill no matrix register",
            got=f"range {split.number}: {split.tile}",
            expected=f"a part of the {size(steps)} steps",
        )


def _check_first(plan: Plan, contraction: Contraction, row: Node, steps: Node) -> None:
    """Rows of words: in memory, or in a copy."""
    copy = _copy_of(plan, 0)
    if copy is None:
        if not lies_in_rows(contraction.a, row, steps):
            raise PlanError("plan: the first factor does not lie in rows, and is not copied")
        return
    width = plan.split_of(number(steps)).tile_size
    if copy.windows:
        windows = windows_of(contraction.a, contraction.m, contraction.k)
        deep = deep_range(contraction.a, contraction.k, windows) if copy.lanes > 1 else None
        if deep is not steps or not fills_deep(steps, copy.lanes, width):
            raise PlanError("plan: copied windows do not lie in rows of words", got=repr(copy))
    elif copy.lanes not in (1, width):
        raise PlanError(
            "plan: a copy for matrix registers has vectors of their width",
            got=str(copy.lanes),
            expected=f"1 or {width}",
        )


def _check_second(plan: Plan, contraction: Contraction, lane: Node, steps: Node) -> None:
    """Panels of columns side by side: in memory, or in a copy."""
    if _copy_of(plan, 1) is None and not lies_in_rows(contraction.b, steps, lane):
        raise PlanError("plan: the second factor does not lie in panels, and is not copied")


def _copy_of(plan: Plan, operand: int) -> Staged | None:
    return next((copy for copy in plan.staged if copy.operand == operand), None)
