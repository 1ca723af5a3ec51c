"""Calls of a capture whose results nobody reads: a replay leaves them out.

A function may compute what it then drops: a value that it realized and did not return, an
intermediate of an earlier version of its code.  Such a call writes intermediates alone, and no
call after it that is kept reads a byte of them.  Everything else has an effect that the caller can
see and is kept: a write to an argument, to a result or to a tensor that the function holds, and a
check that may report an index out of range.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from tilework.base.records import dataclass
from tilework.engine.kernels import written_slots
from tilework.engine.steps import FoldCall, PlannedCall, PlannedStep, PoisonCall
from tilework.ir.node import Node, toposort
from tilework.ir.ops.program import FAULT_IF


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of an intermediate; `owner` names which, None stands for memory that others see."""

    owner: object
    start: int
    stop: int


class _Needed:
    """Bytes of one intermediate that are read later, as ranges that do not touch."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def add(self, start: int, stop: int) -> None:
        first = bisect.bisect_left(self._stops, start)
        last = bisect.bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def overlaps(self, start: int, stop: int) -> bool:
        place = bisect.bisect_right(self._stops, start)
        return place < len(self._starts) and self._starts[place] < stop


def live_steps(steps: Sequence[PlannedStep], operands: Sequence[Sequence[Range]]) -> list[bool]:
    """Return whether each step has an effect that can be seen.

    Args:
        steps: in the order in which they run.
        operands: the bytes that each one touches, in the order of its operands; of a copy the
            target first.
    """
    needed: dict[object, _Needed] = {}
    is_live = [False] * len(steps)
    for number in range(len(steps) - 1, -1, -1):
        step, ranges = steps[number], operands[number]
        if isinstance(step, PoisonCall):  # for its own sake, and it needs nothing
            is_live[number] = True
            continue
        written = [ranges[position] for position in _written(step)]
        if any(_is_seen(row, needed) for row in written) or _can_fail(step):
            is_live[number] = True
            for row in ranges:
                needed.setdefault(row.owner, _Needed()).add(row.start, row.stop)
    return is_live


def _written(step: PlannedStep) -> Sequence[int]:
    if isinstance(step, FoldCall):
        return step.writes
    return written_slots(step.kernel) if isinstance(step, PlannedCall) else (0,)


def _is_seen(row: Range, needed: dict[object, _Needed]) -> bool:
    """Whether somebody looks at one of these bytes later."""
    if row.owner is None:
        return True
    return row.owner in needed and needed[row.owner].overlaps(row.start, row.stop)


def _can_fail(step: PlannedStep) -> bool:
    return isinstance(step, PlannedCall) and _reports(step.kernel)


def _reports(kernel: Node) -> bool:
    return any(node.op is FAULT_IF for node in toposort(kernel))
