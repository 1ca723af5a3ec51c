"""Run TENSOR expressions: schedule, compile, link, execute.

    results = run(outputs, find_buffer, {"n": 5})

Structure alone decides what is compiled; the second run of equal structure over other buffers does
no compiler work.  Whoever captures (`engine.capture`) sees each run through `recorder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

from tilework.base import faults, log, settings, trace
from tilework.base.collection import no_collection
from tilework.base.errors import BoundsError
from tilework.base.records import dataclass, replace
from tilework.engine import link
from tilework.engine.device import Device
from tilework.engine.divide import divided
from tilework.engine.limits import limits_of_devices
from tilework.engine.stats import COUNTERS, difference
from tilework.engine.steps import (
    check_variables,
    compile_steps,
    planned_steps,
    variables_of,
    written_slots,
)
from tilework.engine.validate import run_validated
from tilework.schedule import cache
from tilework.schedule.call import transform_to_call
from tilework.schedule.schedule import Schedule, SlotKind

if TYPE_CHECKING:
    from tilework.engine.steps import PlannedStep, VariableBounds
    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls of a schedule, and the variables that they or its function depend on."""

    steps: tuple[PlannedStep, ...]
    variables: tuple[VariableBounds, ...]
    written: frozenset[int]


class OnFailure(Protocol):
    """What is told of a failed run that writes in place."""

    def __call__(
        self, results: Sequence[Buffer], written: Sequence[Buffer], is_complete: bool
    ) -> None:
        """Settle what the buffers hold.

        Args:
            results: what the run would have returned.
            written: those that existed before and are written in place.  Their contents are
                undefined, unless `is_complete`.
            is_complete: all kernels ran; only what depends on an index out of range is undefined.
        """
        ...


class Recorder(Protocol):
    """What sees every run of its execution context, after it has succeeded.

    `pause` gives a context in which each run happens.
    """

    pause: Callable[[], AbstractContextManager[None]]

    def run_packed(self, plan: Plan, slots: Sequence[Buffer], values: Mapping[str, int]) -> bool:
        """Run it with the packing of constants split off, if that is what it will keep."""
        ...

    def record(
        self, schedule: Schedule, plan: Plan, slots: Sequence[Buffer], values: Mapping[str, int]
    ) -> None:
        """One run: `slots` are its buffers by slot, arenas included."""
        ...


recorder: Final[ContextVar[Recorder | None]] = ContextVar("tilework_recorder", default=None)
"""The recorder of this execution context (thread or task)."""


def run(
    outputs: Sequence[Node],
    find_buffer: Callable[[Node], Buffer],
    values: Mapping[str, int] | None = None,
    device: str | None = None,
    on_failure: OnFailure | None = None,
) -> list[Buffer]:
    """Compute TENSOR expressions and return a buffer for each, in their order.

    Args:
        outputs: the expressions; an `AFTER(BUFFER, STORE...)` writes in place.
        find_buffer: gives the memory of each BUFFER node.
        values: the variables' values by name.
        device: where what reads no buffer is computed; the default device unless given.
        on_failure: called when a run fails that may have begun to write in place.

    Returns:
        New buffers; for an in-place write the buffer that was written.

    Raises: what scheduling, compiling and the devices raise; BoundsError for a variable out of
    range or an index that was found out of range.  Then nothing that was computed is returned.
    """
    log.attach()
    watcher = recorder.get()
    if watcher is None:
        return _run(outputs, find_buffer, values or {}, None, device, on_failure)
    with watcher.pause():
        return _run(outputs, find_buffer, values or {}, watcher, device, on_failure)


def _run(
    outputs: Sequence[Node],
    find_buffer: Callable[[Node], Buffer],
    values: Mapping[str, int],
    watcher: Recorder | None,
    device: str | None,
    on_failure: OnFailure | None,
) -> list[Buffer]:
    before = COUNTERS.snapshot() if trace.enabled() else None
    plan: Plan | link.LinkedSteps
    with no_collection():
        call = transform_to_call(outputs)
        unplaced, is_found = _find_schedule(call.function)
        schedule = _placed(unplaced, device)
        slots = [find_buffer(node) for node in call.arguments]
        for slot, (offset, size) in call.parts.items():
            slots[slot] = slots[slot].view(offset, size)
        slots += allocate_slots(schedule)
        if watcher is None:
            plan = link_schedule(schedule, call.function)
        else:
            plan = plan_of(schedule, call.function)
    check_variables(plan.variables, values)
    state = [slot for slot in plan.written if schedule.slots[slot].kind is SlotKind.INPUT]
    try:
        if isinstance(plan, link.LinkedSteps):
            _run_linked(plan, slots, values)
        elif watcher is not None and not watcher.run_packed(plan, slots, values):
            _run_linked(_link(schedule, plan), slots, values)
    except BaseException as error:
        if on_failure is not None and state:
            results = [slots[slot] for slot in schedule.outputs]
            on_failure(results, [slots[slot] for slot in state], _ran_to_its_end(error, schedule))
        raise
    for slot in state:
        slots[slot].memory.changes += 1
    if watcher is not None and isinstance(plan, Plan):
        watcher.record(schedule, plan, slots, values)
    if before is not None:
        spent = difference(before)
        trace.emit(
            trace.Ran(
                is_found,
                spent.get("compiles", 0),
                spent.get("links", 0) > 0,
                spent.get("allocations", 0),
            )
        )
    return [slots[slot] for slot in schedule.outputs]


def _ran_to_its_end(error: BaseException, schedule: Schedule) -> bool:
    """Whether all kernels ran: an index out of range is masked, and reported after the last."""
    return isinstance(error, BoundsError) and len({slot.device for slot in schedule.slots}) == 1


def _run_linked(
    linked: link.LinkedSteps, slots: Sequence[Buffer], values: Mapping[str, int]
) -> None:
    if settings.current().validate:
        run_validated(linked.steps, slots, values)
    else:
        linked.run_plainly(slots, values)


def schedule_of(function: Node) -> Schedule:
    """Return the schedule of a function, from a cache or made now."""
    return _find_schedule(function)[0]


def _find_schedule(function: Node) -> tuple[Schedule, bool]:
    """The schedule of a function, and whether it was in a cache."""
    COUNTERS.schedules += 1
    limits = limits_of_devices()
    found = cache.lookup(function, limits)
    if found is not None:
        return found, True
    from tilework.schedule.pipeline import create_schedule  # its passes load with the first graph

    return create_schedule(function, limits), False


def _placed(schedule: Schedule, device: str | None) -> Schedule:
    """`schedule` with the slots that no buffer ties to a device on `device`.

    Calls are divided as the compilers of their devices like it.
    """
    is_placed = all(slot.device for slot in schedule.slots)
    name = "" if is_placed else Device.canonicalize(device)
    key = (id(schedule), name)
    found = _placed_before.get(key)
    if found is None or found[0] is not schedule:
        slots = tuple(
            slot if slot.device else replace(slot, device=name) for slot in schedule.slots
        )
        placed = schedule if is_placed else replace(schedule, slots=slots)
        found = (schedule, divided(placed))
        if len(_placed_before) >= _MOST_PLACED:
            _placed_before.clear()
        _placed_before[key] = found
    return found[1]


#: Schedules of constants by identity and device, with the schedule that has this identity.
_placed_before: Final[dict[tuple[int, str], tuple[Schedule, Schedule]]] = {}
_MOST_PLACED: Final = 1024


def allocate_slots(schedule: Schedule) -> list[Buffer]:
    """Return new memory for each slot that is no input, in their order."""
    faults.hit("execute.allocate")
    made: list[Buffer] = []
    for slot in schedule.slots:
        if slot.kind is not SlotKind.INPUT:
            COUNTERS.allocations += 1
            made.append(Device[slot.device].allocate(slot.size_bytes))
    return made


def link_schedule(schedule: Schedule, *roots: Node) -> link.LinkedSteps:
    """Return the linked form of a schedule; its kernels are compiled if they are not yet.

    Args:
        schedule: what to link.
        roots: where the variables are looked for, besides the schedule.
    """
    found = link.CACHE.get(schedule)
    return _link(schedule, plan_of(schedule, *roots)) if found is None else found


def plan_of(schedule: Schedule, *roots: Node) -> Plan:
    """Return the calls of a schedule, not compiled; the arguments are those of `link_schedule`."""
    devices = [slot.device for slot in schedule.slots]
    steps = planned_steps(schedule.linear, devices, schedule.dead)
    variables = variables_of(schedule.linear, *roots)
    return Plan(steps, variables, written_slots(steps))


def _link(schedule: Schedule, plan: Plan) -> link.LinkedSteps:
    found = link.CACHE.get(schedule)
    if found is None:
        arenas = [n for n, slot in enumerate(schedule.slots) if slot.kind is SlotKind.ARENA]
        steps = compile_steps(plan.steps)
        found = link.LinkedSteps(steps, plan.variables, frozenset(arenas))
        link.CACHE.put(schedule, found)
    return found
