"""Copies between devices that need not be made: a kernel reads the other device's memory itself.

What one kernel alone reads, each element once, is read over the link as fast as it would be
copied, while the kernel computes, and takes no memory here.  So a sum of values of several devices
is one kernel on each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilework.base.records import replace
from tilework.engine.hazards import Access
from tilework.engine.steps import CopyCall, FoldCall, KernelCall, Operand, Step, operands_of
from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.memory import INDEX, LOAD, PARAM
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: Where each slot begins: in which memory, and at which byte of it.
Places = Mapping[int, tuple[Any, int]]


def read_in_place(
    steps: Sequence[Step], places: Places, temporary: frozenset[int]
) -> dict[int, Step | None]:
    """Return what becomes of steps by their number: kernels that read elsewhere, copies dropped.

    Args:
        steps: of a program; copies are between devices that see each other's memory.
        places: where the slots lie.
        temporary: slots whose contents nobody reads after the program.
    """
    touched = [_accesses(step, places) for step in steps]
    found: dict[int, Step | None] = {}
    for number, step in enumerate(steps):
        if not isinstance(step, CopyCall) or step.target.slot not in temporary:
            continue
        reader = _only_reader(number, steps, touched)
        if reader is None:
            continue
        at, position = reader
        kernel = found.get(at, steps[at])
        if not isinstance(kernel, KernelCall) or not _reads_once(kernel, position):
            continue
        operands = list(kernel.operands)
        operands[position] = step.source
        found[at] = replace(kernel, operands=tuple(operands))
        found[number] = None
    return found


def access_of(operand: Operand, writes: bool, places: Places) -> Access:
    """Return the bytes of memory that an operand is."""
    memory, start = places[operand.slot]
    first = start + operand.offset_bytes
    return Access(memory, first, first + operand.size_bytes, writes)


def _accesses(step: Step, places: Places) -> list[Access]:
    """What a step touches, in the order of its operands."""
    writes: Sequence[int] = step.code.writes if isinstance(step, KernelCall) else (0,)
    if isinstance(step, FoldCall):
        writes = step.writes
    return [
        access_of(operand, position in writes, places)
        for position, operand in enumerate(operands_of(step))
    ]


def _only_reader(
    number: int, steps: Sequence[Step], touched: Sequence[list[Access]]
) -> tuple[int, int] | None:
    """The one kernel that reads what a copy brings, and as which operand; None if it is not one.

    The source must still be there when the kernel runs.
    """
    copy = steps[number]
    target, source = touched[number]
    found: tuple[int, int] | None = None
    for later in range(number + 1, len(steps)):
        rows = touched[later]
        if found is None and any(row.writes and row.overlaps(source) for row in rows):
            return None
        uses = [position for position, row in enumerate(rows) if row.overlaps(target)]
        if not uses:
            continue
        if found is not None:
            is_over = all(rows[use].writes and rows[use].covers(target) for use in uses)
            return found if is_over else None
        step = steps[later]
        if not isinstance(step, KernelCall) or not isinstance(copy, CopyCall) or len(uses) > 1:
            return None
        if step.device != copy.target_device or step.operands[uses[0]] != copy.target:
            return None
        if rows[uses[0]].writes:
            return None
        found = (later, uses[0])
    return found


def _reads_once(call: KernelCall, position: int) -> bool:
    """Whether a kernel loads no element of a buffer twice, by how often it loops."""
    if call.kernel is None or call.code.variables:
        return False
    rounds, loads = 1, 0
    parameter: Node | None = None
    for node in toposort(call.kernel):
        if node.op is RANGE:
            rounds *= bounds(node)[1] + 1
        elif node.op is PARAM and node.attrs.slot == position:
            parameter = node
        elif node.op is LOAD:
            place = node.src[0]
            loads += place.op is INDEX and place.src[0] is parameter and parameter is not None
    if parameter is None or loads != 1:
        return False
    elements = call.operands[position].size_bytes // parameter.type.dtype.itemsize
    return rounds <= elements
