"""Checks of what scheduling takes and gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.errors import VerifyError
from tilework.ir.ops import memory, multi, tensor
from tilework.ir.ops.program import CALL
from tilework.ir.stage import Stage
from tilework.ir.symbolic import dims
from tilework.ir.verify import verify

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.schedule.schedule import Schedule

#: The setting `verify` as a number: a higher one checks more.
LEVELS: Final = {"off": 0, "stage": 1, "pass": 2}


def check_function(function: Node) -> None:
    """Check that a function may be scheduled.  Raises: VerifyError."""
    verify(function, Stage.TENSOR)


def check_schedule(schedule: Schedule) -> None:
    """Check every kernel, the calls, and that each argument lies within its slot.

    Raises:
        VerifyError: what is wrong, with the node.
    """
    verify(schedule.linear, Stage.SCHEDULE, after="schedule")
    seen: set[Node] = set()
    for call in schedule.linear.src:
        if call.op is not CALL:
            raise VerifyError("schedule: not a CALL", node=call)
        body = call.src[0]
        if body not in seen and body.op not in (tensor.COPY, multi.ALLREDUCE):
            verify(body, Stage.KERNEL, after="schedule")
        seen.add(body)
        for argument in call.src[1:]:
            _check_argument(argument, schedule)


def _check_argument(argument: Node, schedule: Schedule) -> None:
    offset, base = 0, argument
    if base.op is memory.BUFFER_VIEW:
        offset, base = base.attrs.offset_bytes, base.src[0]
    if base.op is not memory.PARAM or not 0 <= base.attrs.slot < len(schedule.slots):
        raise VerifyError("schedule: an argument is neither a slot nor part of one", node=argument)
    kind = argument.type
    end = offset + dims.greatest(dims.product(kind.shape)) * kind.dtype.itemsize
    if end > schedule.slots[base.attrs.slot].size_bytes:
        raise VerifyError("schedule: an argument reaches beyond its slot", node=argument)
