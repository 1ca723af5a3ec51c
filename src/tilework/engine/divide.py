"""Schedules whose kernels a compiler would rather run as several (`codegen.gpu.divide`).

Done once for each schedule, before it is linked or captured, so that a captured call computes the
very numbers of a plain one.  What the kernels of one call leave for each other lives in one more
arena of the device, which the next call that is divided uses again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.integers import round_up
from tilework.base.records import replace
from tilework.dtypes import uint8
from tilework.engine.device import Device
from tilework.engine.kernels import written_slots
from tilework.engine.splits import find_division
from tilework.ir.node import in_use, make, toposort
from tilework.ir.ops.memory import BUFFER_VIEW, PARAM, SINK, ParamAttrs, ViewAttrs
from tilework.ir.ops.program import CALL, LINEAR
from tilework.schedule.schedule import Slot, SlotKind

if TYPE_CHECKING:
    from tilework.engine.splits import Split
    from tilework.ir.node import Node
    from tilework.schedule.schedule import KernelReport, Schedule, SlotBytes

#: Buffers of one arena start at multiples of this, as those of allocations do.
_ALIGNMENT: Final = 256


def divided(schedule: Schedule) -> Schedule:
    """The schedule with calls divided as the compilers of their devices like it.

    Raises: what opening a device raises.
    """
    kinds = {slot.device for slot in schedule.slots if slot.device}
    dividing = {name for name in kinds if hasattr(Device[name].compiler, "divide")}
    if not dividing:
        return schedule
    splits: dict[int, tuple[str, Split]] = {}
    outside = _given(schedule)
    for number, call in enumerate(schedule.linear.src):
        device = schedule.slots[_slot_of(call.src[1])].device
        if call.src[0].op is not SINK or device not in dividing:
            continue
        arguments = enumerate(call.src[1:])
        given = frozenset([place for place, each in arguments if _slot_of(each) in outside])
        found = find_division(Device[device], call.src[0], given)
        if found is not None:
            splits[number] = (device, found)
    return _Division(schedule, splits).result() if splits else schedule


def _given(schedule: Schedule) -> set[int]:
    """The slots of what comes from outside of a schedule, and is not written in it."""
    found = {n for n, slot in enumerate(schedule.slots) if slot.kind is SlotKind.INPUT}
    for call in schedule.linear.src:
        if call.src[0].op is SINK:
            for place in written_slots(call.src[0]):
                found.discard(_slot_of(call.src[1 + place]))
        else:
            found.difference_update(map(_slot_of, call.src[1:]))
    return found


def _slot_of(argument: Node) -> int:
    base = argument.src[0] if argument.op is BUFFER_VIEW else argument
    return int(base.attrs.slot)


class _Division:
    def __init__(self, schedule: Schedule, splits: dict[int, tuple[str, Split]]) -> None:
        self.schedule = schedule
        self.splits = splits
        self.arenas: dict[str, int] = {}
        for device, split in splits.values():
            sizes = [round_up(pack.size_bytes, _ALIGNMENT) for pack in split.packs]
            if sizes:  # a kernel may be written anew alone
                self.arenas[device] = max(self.arenas.get(device, 0), sum(sizes))

    def result(self) -> Schedule:
        """The new schedule; its new arenas are its last slots."""
        old = self.schedule
        calls: list[Node] = []
        reports: list[KernelReport] = []
        dead: list[tuple[SlotBytes, ...]] = []
        with in_use():
            for number, (call, report) in enumerate(zip(old.linear.src, old.reports, strict=True)):
                new = self._calls(number, call)
                calls += new
                reports += [report] * len(new)
                if old.dead:
                    dead += [()] * (len(new) - 1) + [(*old.dead[number], *self._left(number))]
            linear = make(LINEAR, tuple(calls), None)
        slots = [
            Slot(SlotKind.ARENA, size, (size,), uint8, device)
            for device, size in self.arenas.items()
        ]
        return replace(
            old,
            linear=linear,
            slots=(*old.slots, *slots),
            reports=tuple(reports),
            dead=tuple(dead),
        )

    def _left(self, number: int) -> tuple[SlotBytes, ...]:
        """What kernels of one call have left for each other, which nobody needs after it."""
        if number not in self.splits or self.splits[number][0] not in self.arenas:
            return ()
        device = self.splits[number][0]
        return ((self._arena_slot(device), 0, self.arenas[device]),)

    def _arena_slot(self, device: str) -> int:
        return len(self.schedule.slots) + list(self.arenas).index(device)

    def _calls(self, number: int, call: Node) -> list[Node]:
        found = self.splits.get(number)
        if found is None:
            return [call]
        device, split = found
        if not split.packs:
            return [make(CALL, (split.kernel, *call.src[1:]), None)]
        slot = self._arena_slot(device)
        size = self.arenas[device]
        arena = make(PARAM, (), ParamAttrs(slot, (size,), uint8, device))
        arguments = list(call.src[1:])
        calls, offset = [], 0
        for pack in split.packs:
            sources = [arguments[source] for source in pack.sources]
            if not pack.size_bytes:  # it writes to what kernels before it have left
                calls.append(make(CALL, (pack.kernel, *sources), None))
                continue
            view = ViewAttrs(offset, (pack.size_bytes,), uint8)
            target = make(BUFFER_VIEW, (arena,), view)
            offset += round_up(pack.size_bytes, _ALIGNMENT)
            calls.append(make(CALL, (pack.kernel, target, *sources), None))
            arguments.append(target)
        # What is only for the kernels before it may come last.
        count = 1 + max(n.attrs.slot for n in toposort(split.kernel) if n.op is PARAM)
        return [*calls, make(CALL, (split.kernel, *arguments[:count]), None)]
