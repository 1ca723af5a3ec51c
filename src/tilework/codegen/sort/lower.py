"""SORT_ROWS -> LINEAR: the algorithm for a row, in a loop over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError, UnsupportedError
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.plan.kinds import SortPlan
from tilework.codegen.sort.keys import key_bits
from tilework.codegen.sort.radix import digit_of, sort_by_digits
from tilework.codegen.sort.rank import sort_by_rank
from tilework.codegen.sort.row import Row
from tilework.codegen.sort.statements import Statements
from tilework.codegen.sort.values import is_counted, sort_values
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Rows of at most this many elements are sorted by rank (measured: on x86-64 with AVX2 both
#: algorithms take the same time at about 90).
RANK_LIMIT = 80
#: The longest rows that may be sorted by rank, and the digits that may be sorted by.
MOST_BY_RANK = 512
DIGITS = (6, 8, 10, 11, 13)
#: From this many elements on a row is worth several tasks, each of which looks at all of it.
SHARED_FROM = 1 << 15
_MOST_PARTS = 8
#: Scratch for one element of a long row, and for all that does not grow with the row.
_ELEMENT_BYTES, _TABLE_BYTES = 16, 1 << 16


def choose_sort_plan(sink: Node) -> SortPlan:
    """By rank for short rows, by digits for long ones."""
    (effect,) = sink.src
    limit = bounds(effect.src[2])[1]
    return SortPlan(0 if limit <= RANK_LIMIT else digit_of(_keys(sink), limit))


def sort_plans(sink: Node) -> list[SortPlan]:
    """All plans that a sort may have, the widest digits last."""
    (effect,) = sink.src
    by_rank = [SortPlan(0)] if bounds(effect.src[2])[1] <= MOST_BY_RANK else []
    return by_rank + [SortPlan(digit) for digit in DIGITS if digit <= key_bits(_keys(sink))]


def _keys(sink: Node) -> DType:
    (effect,) = sink.src
    dtype: DType = effect.src[1].src[0].type.dtype
    return dtype


def lower_sort(sink: Node, target: TargetSpec, plan: SortPlan | None = None) -> tuple[Node, int]:
    """Return the LINEAR of a kernel whose one effect is SORT_ROWS, and its bytes of scratch.

    Raises: UnsupportedError for a kernel with other effects, or rows that are too long; PlanError
    for a plan that no row of the kernel could be sorted by.
    """
    if len(sink.src) != 1:
        raise UnsupportedError("sort_rows: must be the only effect of its kernel")
    if plan is not None and plan not in sort_plans(sink):
        raise PlanError("plan: these rows are not sorted so", got=repr(plan))
    plan = plan or choose_sort_plan(sink)
    out = Statements(compresses="compress" in target.native_ops)
    ranges = sorted(
        (node for node in toposort(sink) if node.op is RANGE), key=lambda r: int(r.attrs.number)
    )
    total = const_index(1)
    for range_ in ranges:
        total = simplify.mul(total, range_.src[0])
    parts = _parts(sink, total, plan, target)
    with out.loop(simplify.scale(total, parts), Unit.THREAD) as task:
        part = simplify.mod(task, const_index(parts))
        at = _at_task(sink, ranges, simplify.idiv(task, const_index(parts)), target)
        _sort_row(out, at, target, plan, decompose(part, target), parts)
    return out.linear(), out.scratch_bytes


def _parts(sink: Node, rows: Node, plan: SortPlan, target: TargetSpec) -> int:
    """How many tasks share a row: long ones, where there are fewer rows than cores."""
    (effect,) = sink.src
    if not plan.digit or effect.attrs.count >= 0 or bounds(effect.src[2])[0] < SHARED_FROM:
        return 1
    if effect.attrs.values and is_counted(_keys(sink)):
        return 1
    return max(min(target.cores, _MOST_PARTS) // max(bounds(rows)[1], 1), 1)


def _at_task(sink: Node, ranges: list[Node], task: Node, target: TargetSpec) -> Node:
    """The SORT_ROWS of one task, with addresses that the target can compute."""
    values: dict[Node, Node] = {}
    rest = task
    for range_ in reversed(ranges):
        values[range_] = simplify.mod(rest, range_.src[0]) if range_ is not ranges[0] else rest
        rest = simplify.idiv(rest, range_.src[0])
    return decompose(substitute_ranges(sink, values, {}), target).src[0]


def _sort_row(
    out: Statements, effect: Node, target: TargetSpec, plan: SortPlan, part: Node, parts: int
) -> None:
    written, read, size = effect.src
    limit = bounds(size)[1]
    # Positions take 32 bits while they are sorted, and a count of places twice as many.
    most = min((1 << 31) - 1, (target.limits.max_scratch_bytes - _TABLE_BYTES) // _ELEMENT_BYTES)
    if limit > max(most, RANK_LIMIT):
        raise UnsupportedError(
            "sort: a row is too long for the scratch memory of a task",
            got=f"up to {limit} elements",
            expected=f"at most {most}",
        )
    row = Row(
        read.src[0],
        out.emit(read.src[1]),
        written.src[0],
        out.emit(written.src[1]),
        out.emit(size),
        limit,
        effect.attrs.descending,
        effect.attrs.first,
        effect.attrs.count,
        effect.attrs.values,
        part,
        parts,
    )
    if not plan.digit:
        sort_by_rank(out, row, max(target.vector_bits // 64, 1))
        return
    with out.when(simplify.less(const_index(0), row.size)):
        if row.values and row.count < 0:
            sort_values(out, row, plan.digit, target)
        else:
            sort_by_digits(out, row, plan.digit, target)


__all__ = ["RANK_LIMIT", "choose_sort_plan", "lower_sort", "sort_plans"]
