"""Programs over several devices whose queues wait for each other, while the host runs ahead.

Each device has a queue for kernels and one for copies from others.  `engine.hazards` says which
step waits for which, by the bytes that they touch, so copies of independent values go on beside
each other and beside kernels.  A run begins after all that the devices were given before, and what
they get after it comes after its copies: memory is handed out again in the order of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final

from tilework.base import trace
from tilework.base.errors import InternalError, TileworkError
from tilework.base.records import dataclass
from tilework.engine.copies import (
    PeerQueues,
    Route,
    can_reach,
    join,
    peer_queues,
    poison_bytes,
)
from tilework.engine.device import Device
from tilework.engine.folds import fold
from tilework.engine.hazards import QueuedStep, plan_waits
from tilework.engine.reading import access_of, read_in_place
from tilework.engine.steps import (
    CopyCall,
    FoldCall,
    KernelCall,
    Operand,
    PoisonCall,
    Step,
    buffer_of,
    operands_of,
    part_of,
)
from tilework.engine.world import is_of_the_world
from tilework.runtime.links import current_links

if TYPE_CHECKING:
    from tilework.engine.device import OpenDevice
    from tilework.runtime.buffer import Buffer

#: (device, whether it is the queue of copies).
Queue = tuple[str, bool]
_MOST_PLANS: Final = 16


def by_device(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same program, with kernels of one device next to each other.

    A kernel goes before those of other devices unless one of the two writes a slot that the other
    one touches: devices of one host may share memory.
    """
    found: list[Step] = []
    waiting: dict[str, list[Step]] = {}
    owners: dict[int, str] = {}  # of each slot, the device that touches it; "" where several read
    written: set[int] = set()
    for step in steps:
        if isinstance(step, KernelCall):
            slots = {operand.slot for operand in step.operands}
            writes = {step.operands[position].slot for position in step.code.writes}
            shared = {slot for slot in slots if owners.get(slot, step.device) != step.device}
            if shared & (writes | written):
                found += _flush(waiting)
                owners.clear()
                written.clear()
                shared = set()
            waiting.setdefault(step.device, []).append(step)
            owners.update(dict.fromkeys(slots, step.device))
            owners.update(dict.fromkeys(shared, ""))
            written |= writes
            continue
        found += _flush(waiting)
        owners.clear()
        written.clear()
        found.append(step)
    return (*found, *_flush(waiting))


def _flush(waiting: dict[str, list[Step]]) -> list[Step]:
    kernels = [kernel for row in waiting.values() for kernel in row]
    waiting.clear()
    return kernels


def in_order(
    groups: Sequence[tuple[OpenDevice | None, tuple[Step, ...]]],
    parts: list[Any],
    slots: Sequence[Buffer | None],
    temporary: frozenset[int],
) -> list[Any]:
    """The parts of a program such that they are run in order, also where devices run ahead."""
    names = {device.name for device, _ in groups if device is not None}
    used = {operand.slot for _, calls in groups for call in calls for operand in operands_of(call)}
    names |= {buffer.device for slot in used if (buffer := slots[slot]) is not None}
    ahead = [name for name in sorted(names) if peer_queues(Device[name]) is not None]
    if len(ahead) < 2:
        return parts
    if any(map(is_of_the_world, names)) and current_links().size > 1:
        return [WaitingInstance(ahead, parts)]  # what other processes get is sent step by step
    linked = all(can_reach(Device[one], Device[other]) for one, other in permutations(ahead, 2))
    if linked and len(ahead) == len(names):
        return [QueuedInstance(groups, parts, temporary)]
    return [WaitingInstance(ahead, parts)]


class WaitingInstance:
    """Parts of which each is waited for: some device of the program has no queue for copies."""

    def __init__(self, names: Sequence[str], parts: Sequence[Any]) -> None:
        self._names = names
        self._parts = parts

    def run(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Run them one after the other.  Raises what the drivers raise."""
        devices = [Device[name] for name in self._names]
        try:
            for device in devices:
                _queues(device).set_ordered(True)
                device.synchronize()
            for part in self._parts:
                part.run(slots, values)
                for device in devices:
                    device.synchronize()
        finally:
            for device in devices:
                _queues(device).set_ordered(False)

    def time(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[float]:
        """Run one step after the other, and return the seconds of each."""
        return [seconds for part in self._parts for seconds in part.time(slots, values)]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Kernels of one device that are submitted together, or one copy."""

    queue: Queue
    run: Callable[[Sequence[Buffer | None], Mapping[str, int]], None]
    touches: tuple[tuple[Operand, bool], ...]  # and whether it is written


@dataclass(frozen=True, slots=True)
class _Plan:
    """Units, those that each waits for, and those that are waited for.

    `reaching` are the queues whose work touches the memory of other devices, each with its last
    unit that may do so; `readers` are the devices whose kernels do.
    """

    units: tuple[_Unit, ...]
    waits: tuple[tuple[int, ...], ...]
    marked: frozenset[int]
    reaching: Mapping[Queue, int]
    readers: frozenset[str]


class QueuedInstance:
    """The parts of a program over several devices, run in the order that its bytes ask for."""

    def __init__(
        self,
        groups: Sequence[tuple[OpenDevice | None, tuple[Step, ...]]],
        parts: Sequence[Any],
        temporary: frozenset[int] = frozenset(),
    ) -> None:
        self._groups = groups
        self._parts = parts
        self._temporary = temporary
        steps = [call for _, calls in groups for call in calls]
        names: set[str] = set()
        slots: set[int] = set()
        for step in steps:
            slots |= {operand.slot for operand in operands_of(step)}
            if isinstance(step, (KernelCall, PoisonCall)):
                names.add(step.device)
            elif isinstance(step, FoldCall):
                names |= set(step.devices)
            else:
                names |= {step.target_device, step.source_device}
        self._names = sorted(names)
        self._slots = sorted(slots)
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def run(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Queue all of it.  Raises what the drivers raise."""
        plan = self._plan(slots)
        devices = {name: Device[name] for name in self._names}
        queues = {name: _queues(device) for name, device in devices.items()}
        marks: dict[int, Any] = {}
        before = {name: queues[name].mark(is_copying=False) for name in self._names}
        for each in queues.values():
            each.set_ordered(True)
        try:
            for name, is_copying in plan.reaching:
                for mark in before.values():
                    queues[name].after(mark, is_copying=is_copying)
            for number, unit in enumerate(plan.units):
                name, is_copying = unit.queue
                for earlier in plan.waits[number]:
                    queues[name].after(marks[earlier], is_copying=is_copying)
                unit.run(slots, values)
                if number in plan.marked:
                    marks[number] = queues[name].mark(is_copying=is_copying)
            self._end(plan, devices, [marks[last] for last in plan.reaching.values()])
        except BaseException:
            self._join_all(plan, devices, queues)
            raise
        finally:
            for each in queues.values():
                each.set_ordered(False)
            for name, mark in before.items():
                queues[name].give_back([mark])
            for number, mark in marks.items():
                queues[plan.units[number].queue[0]].give_back([mark])

    def _end(self, plan: _Plan, devices: Mapping[str, OpenDevice], marks: Sequence[Any]) -> None:
        """What the devices get from now on comes after all that touches the memory of others."""
        for name in plan.readers:
            for other in self._names:
                if other != name:
                    _queues(devices[name]).depends_on(devices[other].driver)
        for device in devices.values():
            join(device, marks)

    def time(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[float]:
        """Run one step after the other, and return the seconds of each."""
        return [seconds for part in self._parts for seconds in part.time(slots, values)]

    def _join_all(
        self, plan: _Plan, devices: Mapping[str, OpenDevice], queues: Mapping[str, PeerQueues]
    ) -> None:
        """After a failure: memory is not handed out again before copies of it are done."""
        for name, is_copying in plan.reaching:
            try:
                mark = queues[name].mark(is_copying=is_copying)
            except TileworkError as error:
                _warn_of_order(name, error)
                continue
            for other, device in devices.items():
                try:
                    join(device, [mark])
                except TileworkError as error:
                    _warn_of_order(other, error)
            queues[name].give_back([mark])

    def _plan(self, slots: Sequence[Buffer | None]) -> _Plan:
        """Who waits for whom; the same for all runs whose slots lie alike in their memories."""
        places = self._places(slots)
        key = tuple(places.values())
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            owners = {
                slot: buffer.device for slot, buffer in enumerate(slots) if buffer is not None
            }
            found = self._plans[key] = self._make_plan(places, owners)
        return found

    def _places(self, slots: Sequence[Buffer | None]) -> dict[int, tuple[Any, int]]:
        """In which memory each slot begins, and where there; memories count as they come."""
        seen: dict[int, int] = {}
        found: dict[int, tuple[Any, int]] = {}
        for slot in self._slots:
            buffer = buffer_of(slots, slot)
            memory = buffer.memory
            if memory.lease is None:
                found[slot] = (seen.setdefault(id(memory), len(seen)), buffer.offset_bytes)
            else:  # two loans may be of one memory
                found[slot] = (buffer.device, buffer.address)
        return found

    def _make_plan(self, places: Mapping[int, tuple[Any, int]], owners: Mapping[int, str]) -> _Plan:
        units = self._units(places)
        # Whatever made a kernel read the memory of another device, that memory must wait for it.
        readers = frozenset(
            unit.queue[0]
            for unit in units
            if not unit.queue[1]
            and any(owners[operand.slot] != unit.queue[0] for operand, _ in unit.touches)
        )
        steps = [
            QueuedStep(unit.queue, tuple([access_of(*touch, places) for touch in unit.touches]))
            for unit in units
        ]
        numbers: dict[tuple[Any, int], int] = {}
        counts: dict[Any, int] = {}
        for number, unit in enumerate(units):
            counts[unit.queue] = counts.get(unit.queue, 0) + 1
            numbers[unit.queue, counts[unit.queue]] = number
        waits = tuple([tuple([numbers[each] for each in row.items()]) for row in plan_waits(steps)])
        reaching = {
            unit.queue: number
            for number, unit in enumerate(units)
            if unit.queue[1] or unit.queue[0] in readers
        }
        marked = {number for row in waits for number in row} | set(reaching.values())
        return _Plan(tuple(units), waits, frozenset(marked), reaching, readers)

    def _units(self, places: Mapping[int, tuple[Any, int]]) -> list[_Unit]:
        """The units, without copies that need not be made."""
        changed = read_in_place(
            [call for _, calls in self._groups for call in calls], places, self._temporary
        )
        units: list[_Unit] = []
        first = 0
        for (device, calls), part in zip(self._groups, self._parts, strict=True):
            rows = [changed.get(first + at, call) for at, call in enumerate(calls)]
            first += len(calls)
            if device is None:
                units += [_host_unit(call) for call in rows if call is not None]
                continue
            kernels = [call for call in rows if isinstance(call, KernelCall)]
            if kernels != list(calls):
                part = part.with_calls(kernels)
            units.append(_kernels(device.name, part.run, kernels))
        return units


def _queues(device: OpenDevice) -> PeerQueues:
    found = peer_queues(device)
    if found is None:
        raise InternalError("link: a device without queues for copies", got=device.name)
    return found


def _kernels(device: str, run: Any, calls: Iterable[Step]) -> _Unit:
    touches = [
        (operand, position in call.code.writes)
        for call in calls
        if isinstance(call, KernelCall)
        for position, operand in enumerate(call.operands)
    ]
    return _Unit((device, False), run, tuple(dict.fromkeys(touches)))


def _host_unit(call: Step) -> _Unit:
    """A copy, or poison, which goes through the queue of kernels as uploads do."""
    if isinstance(call, CopyCall):
        return _copy(call)
    if isinstance(call, FoldCall):
        return _fold(call)
    if not isinstance(call, PoisonCall):
        raise InternalError("link: a kernel among the steps of the host", got=repr(call))
    device, target = call.device, call.target

    def run(slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        poison_bytes(Device[device], part_of(slots, target))

    return _Unit((device, False), run, ((target, True),))


def _fold(call: FoldCall) -> _Unit:
    """In the queue of copies of the first device; the others' queues meet it there."""
    scratch: dict[int, Buffer] = {}

    def run(slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        fold(call, slots, scratch)

    touches = [(operand, number in call.writes) for number, operand in enumerate(call.operands)]
    return _Unit((call.devices[0], True), run, tuple(touches))


def _copy(call: CopyCall) -> _Unit:
    target, source = call.target, call.source

    def run(slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        here, there = Device[call.target_device], Device[call.source_device]
        to, from_ = part_of(slots, target), part_of(slots, source)
        if not to.size_bytes:
            return
        if trace.enabled():
            name = f"copy from {call.source_device} ({Route.PEER})"
            trace.emit(trace.Launched(name, call.target_device, moved_bytes=to.size_bytes))
        _queues(here).copy(there.driver, to, from_)
        to.memory.changes += 1

    return _Unit((call.target_device, True), run, ((target, True), (source, False)))


def _warn_of_order(name: str, error: TileworkError) -> None:
    """Tell of a device that failed after another failure, which is the one to be raised."""
    trace.warn("queued", f"{name} could not wait for copies after a failure: {error}")
