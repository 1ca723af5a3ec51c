"""Recording what a function computes, and turning it into one program that is run again.

    with capturing() as seen:              # in this execution context alone
        results = function(...)            # runs as usual; each engine run is seen as well
    program = seen.finish(inputs, outputs) # Buffers that each replay gets anew
    program.run(inputs, outputs, {"n": 3})

The kernels are those that the function has just run, so a replay gives the same bits.  Buffers
that the function found (weights, state) are held: read and written at their places.  What it made
and did not return lives in one arena, planned over the whole program.  `tensor.jit` knows tensors
and decides when a program may be run again; this module knows buffers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from tilework.base import faults, settings
from tilework.base.errors import AliasError, CaptureError, InternalError
from tilework.base.forks import new_rlock
from tilework.engine import execute, link
from tilework.engine.arena import Lifetime, plan_arena
from tilework.engine.device import Device
from tilework.engine.link import LinkedSteps, Place
from tilework.engine.prepack import Copies, PackedConstants, run_packed, split_packing
from tilework.engine.prune import Range, live_steps
from tilework.engine.queued import by_device
from tilework.engine.stats import COUNTERS
from tilework.engine.steps import (
    CopyCall,
    KernelCall,
    Operand,
    PlannedCall,
    PlannedStep,
    PoisonCall,
    Step,
    VariableBounds,
    check_variables,
    compile_steps,
    operands_of,
    written_slots,
)
from tilework.engine.validate import Report, run_validated
from tilework.schedule.schedule import SlotKind

if TYPE_CHECKING:
    from tilework.engine.device import OpenDevice
    from tilework.runtime.buffer import Buffer
    from tilework.schedule.schedule import Schedule, Slot


@dataclass(slots=True)
class _Run:
    """One engine run: its steps over its slots, and the buffers that were there."""

    steps: tuple[PlannedStep, ...]
    slots: tuple[Slot, ...]
    buffers: list[Buffer | None]  # None for arenas, which die with the run


class Seen:
    """What one capture has seen so far."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._variables: dict[str, VariableBounds] = {}
        self.values: dict[str, int] = {}
        #: Names of variables whose values the function has looked at.
        self.pinned: set[str] = set()
        self._made: set[int] = set()
        #: Memory that a replay may find elsewhere, or changed: that of the arguments.
        self.arguments: list[Buffer] = []
        #: Whether what is found is taken for constant while the capture runs, since that is likely.
        self.trusts = True
        self._copies = Copies()
        #: Called around each run: whatever watches Python code need not see the compiler's.
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext

    def run_packed(
        self, plan: execute.Plan, slots: Sequence[Buffer], values: Mapping[str, int]
    ) -> bool:
        """Run what reads constants as the captured program will; see `execute.Recorder`.

        What is packed here holds for this run, whether or not it stays constant.
        """
        if not self.trusts or settings.current().validate:
            return False
        unsure = self._made | {id(buffer.memory) for buffer in self.arguments}
        written = [slots[slot] for slot in plan.written]
        constants = [
            None
            if id(buffer.memory) in unsure or any(share_a_byte(buffer, other) for other in written)
            else buffer
            for buffer in slots
        ]
        return run_packed(plan.steps, plan.variables, slots, constants, values, self._copies)

    def record(
        self,
        schedule: Schedule,
        plan: execute.Plan,
        slots: Sequence[Buffer],
        values: Mapping[str, int],
    ) -> None:
        """Note one run; see `execute.Recorder`."""
        for row in plan.variables:
            self._variables.setdefault(row.name, row)
            value = values[row.name]
            if self.values.setdefault(row.name, value) != value:
                raise CaptureError(
                    f"capture: the variable {row.name} has two values in one call",
                    field=row.name,
                    got=f"{self.values[row.name]} and {value}",
                    try_="use variables of different names",
                )
        kept = [
            None if slot.kind is SlotKind.ARENA else buffer
            for slot, buffer in zip(schedule.slots, slots, strict=True)
        ]
        for slot, buffer in zip(schedule.slots, kept, strict=True):
            if slot.kind is SlotKind.OUTPUT and buffer is not None:
                self._made.add(id(buffer.memory))
        self._runs.append(_Run(plan.steps, schedule.slots, kept))

    def has_made(self, buffer: Buffer) -> bool:
        """Whether a run of this capture has made the memory of `buffer`."""
        return id(buffer.memory) in self._made

    def found(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """Return the buffers that runs read or wrote, and that are neither inputs nor made."""
        rows: dict[int, Buffer] = {}
        for run in self._runs:
            for slot, buffer in zip(run.slots, run.buffers, strict=True):
                if buffer is None or slot.kind is not SlotKind.INPUT:
                    continue
                if id(buffer.memory) in self._made or _find(inputs, buffer) is not None:
                    continue
                # The whole memory is held, since other parts of it may be used too.
                rows.setdefault(id(buffer.memory), buffer.base or buffer)
        return list(rows.values())

    def movable(self, ranges: Sequence[Buffer]) -> list[bool]:
        """Return for each range of memory whether a replay may use other memory in its place.

        That is so if everything that the runs touch in this memory is only read, and lies within
        exactly one of the ranges.
        """
        memories = {id(buffer.memory) for buffer in ranges}
        fixed: set[int] = set()
        for run in self._runs:
            written = written_slots(run.steps)
            for number, (slot, buffer) in enumerate(zip(run.slots, run.buffers, strict=True)):
                if buffer is None or slot.kind is not SlotKind.INPUT:
                    continue
                key = id(buffer.memory)
                if key in memories and key not in fixed:
                    inside = [r for r in ranges if r.memory is buffer.memory]
                    owners = sum(_contains(range_, buffer) for range_ in inside)
                    if number in written or owners != 1:
                        fixed.add(key)
        return [id(buffer.memory) not in fixed for buffer in ranges]

    def finish(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> CapturedProgram:
        """Return the program that computes `outputs` from `inputs` again.

        Args:
            inputs: buffers that each replay gets anew; those that overlap must be only read.
            outputs: buffers made by the capture that each replay makes anew.

        Raises: AliasError when inputs overlap in part; InternalError when an output was not made
        here.
        """
        faults.hit("capture.finish")
        builder = _Builder(inputs, outputs, self.found(inputs), self._copies)
        for time, run in enumerate(self._runs):
            builder.add(time, run)
        return builder.build(tuple(self._variables[name] for name in sorted(self._variables)))


#: What is captured in this execution context.
active: Final[ContextVar[Seen | None]] = ContextVar("tilework_capture", default=None)


@contextmanager
def capturing() -> Iterator[Seen]:
    """See every run of this execution context while the block runs.

    Raises: InternalError inside another capture, which the caller must inline.
    """
    if active.get() is not None:
        raise InternalError("capture: a capture inside a capture")
    seen = Seen()
    token = active.set(seen)
    watcher = execute.recorder.set(seen)
    try:
        yield seen
    finally:
        execute.recorder.reset(watcher)
        active.reset(token)


def is_capturing() -> bool:
    """Whether this execution context captures."""
    return active.get() is not None


def refuse_host_read(what: str) -> None:
    """Refuse to hand a value to the host during a capture: a replay would not do it again.

    Raises: CaptureError.
    """
    if active.get() is not None:
        raise CaptureError(
            f"{what}: a value is read on the host inside a captured function",
            field=what,
            expected="a function whose Python code does not depend on values of tensors",
            try_="return the tensor and read it outside, or call the function without jit",
        )


def note_variable_read(name: str) -> None:
    """Note that Python code looks at the value of a variable: a capture then holds for it alone."""
    seen = active.get()
    if seen is not None:
        seen.pinned.add(name)


def _contains(outer: Buffer, inner: Buffer) -> bool:
    start = inner.offset_bytes - outer.offset_bytes
    return start >= 0 and start + inner.size_bytes <= outer.size_bytes


def share_a_byte(one: Buffer, other: Buffer) -> bool:
    """Whether two buffers overlap, also through two loans of one memory."""
    if one.device != other.device:
        return False
    first, second = one.address, other.address
    return first < second + other.size_bytes and second < first + one.size_bytes


def _find(buffers: Sequence[Buffer], wanted: Buffer) -> int | None:
    """Return which of `buffers` holds all of `wanted`."""
    memory = wanted.memory
    for index, buffer in enumerate(buffers):
        if buffer.memory is memory and _contains(buffer, wanted):
            return index
    return None


# --- merging runs ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Made:
    """Memory that a run of the capture made and that is no output."""

    device: str
    size_bytes: int
    first: int
    last: int
    place: int = -1  # its number among the intermediates of its device


@dataclass(slots=True)
class _Builder:
    """Gives every buffer of every run a slot of the whole program.

    Slots: inputs, held buffers, outputs, one arena per device.
    """

    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    held: Sequence[Buffer]
    copies: Copies
    _fixed: list[Buffer] = field(default_factory=list)
    _by_memory: dict[int, list[int]] = field(default_factory=dict)
    _made: dict[int, _Made] = field(default_factory=dict)
    _arenas: dict[str, list[Lifetime | _Made]] = field(default_factory=dict)
    _steps: list[tuple[PlannedStep, list[tuple[int, int] | tuple[str, int, int]]]] = field(
        default_factory=list
    )
    _devices: dict[int, str] = field(default_factory=dict)
    #: How many steps there were after each run.
    _run_ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fixed = [*self.inputs, *self.held, *self.outputs]
        for slot, buffer in enumerate(self._fixed):
            self._by_memory.setdefault(id(buffer.memory), []).append(slot)

    def add(self, time: int, run: _Run) -> None:
        """Append the steps of one run."""
        places = [
            self._place_of(time, slot, buffer)
            for slot, buffer in zip(run.slots, run.buffers, strict=True)
        ]
        for step in run.steps:
            self._steps.append((step, [places[operand.slot] for operand in operands_of(step)]))
        self._run_ends.append(len(self._steps))

    def _place_of(self, time: int, slot: Slot, buffer: Buffer | None) -> Any:
        """(slot, offset) for what has a slot, (device, number, offset) for what is in an arena."""
        arena = self._arenas.setdefault(slot.device, [])
        if buffer is None:
            arena.append(Lifetime(slot.size_bytes, time, time))
            return (slot.device, len(arena) - 1, 0)
        for number in self._by_memory.get(id(buffer.memory), ()):
            fixed = self._fixed[number]
            if _contains(fixed, buffer):
                self._check_owner(number, buffer)
                self._devices.setdefault(number, slot.device)
                return (number, buffer.offset_bytes - fixed.offset_bytes)
            if number >= len(self.inputs) and fixed.overlaps(buffer):
                raise AliasError("capture: an argument overlaps other memory", got=repr(buffer))
        self._check_owner(-1, buffer)
        made = self._made.get(id(buffer.memory))
        if made is None:
            if slot.kind is not SlotKind.OUTPUT:
                raise InternalError("capture: a buffer of unknown origin", got=repr(buffer))
            made = _Made(slot.device, slot.size_bytes, time, time, len(arena))
            self._made[id(buffer.memory)] = made
            arena.append(made)
        made.last = time
        return (made.device, made.place, buffer.offset_bytes)

    def _poison_made(self) -> None:
        """Poison what a run has made for later ones, once the last of those is done."""
        wanted: dict[int, list[_Made]] = {}
        for made in self._made.values():
            wanted.setdefault(self._run_ends[made.last], []).append(made)
        for place in sorted(wanted, reverse=True):
            self._steps[place:place] = [
                (
                    PoisonCall(made.device, Operand(0, 0, made.size_bytes)),
                    [(made.device, made.place, 0)],
                )
                for made in wanted[place]
            ]

    def _prune(self) -> None:
        """Drop the steps whose results nobody reads."""
        if settings.current().poison:
            self._poison_made()
        touched = [
            [_bytes_of(old, place) for old, place in zip(operands_of(step), places, strict=True)]
            for step, places in self._steps
        ]
        keep = live_steps([step for step, _ in self._steps], touched)
        self._steps = [row for row, is_live in zip(self._steps, keep, strict=True) if is_live]

    def _check_owner(self, owner: int, buffer: Buffer) -> None:
        """Refuse a buffer that could be part of several inputs: a replay can't tell of which."""
        for number, other in enumerate(self.inputs):
            if number == owner or not other.overlaps(buffer):
                continue
            if owner < 0 or _contains(other, buffer):
                raise AliasError("capture: two arguments share memory", got=repr(buffer))

    def _check_written(self, written: Iterable[int]) -> None:
        for slot in written:
            for number, other in enumerate(self.inputs):
                if number != slot and slot < len(self.inputs) and share_a_byte(
                    other, self.inputs[slot]
                ):  # fmt: skip
                    raise AliasError("capture: two arguments share memory", got=repr(other))

    def _used(self) -> set[tuple[Any, ...]]:
        """The intermediates that steps touch: device, and number there."""
        return {
            place[:2]
            for step, places in self._steps
            for place in places
            if len(place) == 3 and not isinstance(step, PoisonCall)
        }

    def build(self, variables: tuple[VariableBounds, ...]) -> CapturedProgram:
        """Plan the arenas and return the program."""
        self._prune()
        first_arena = len(self.inputs) + len(self.held) + len(self.outputs)
        used = self._used()
        used_devices = {name for name, _ in used}
        devices = [name for name in self._arenas if name in used_devices]
        offsets: dict[str, list[int]] = {}
        sizes: list[tuple[str, int]] = []
        for name in devices:
            lives = [
                Lifetime(row.size_bytes if (name, place) in used else 0, row.first, row.last)
                for place, row in enumerate(self._arenas[name])
            ]
            offsets[name], total = plan_arena(lives)
            sizes.append((name, total))

        def operand(old: Operand, place: Any) -> Operand:
            if len(place) == 2:
                slot, offset = place
            else:
                slot = first_arena + devices.index(place[0])
                offset = offsets[place[0]][place[1]] + place[2]
            return Operand(slot, offset + old.offset_bytes, old.size_bytes)

        steps: list[PlannedStep] = []
        for step, places in self._steps:
            if isinstance(step, PoisonCall):
                if places[0][:2] in used:
                    steps.append(replace(step, target=operand(step.target, places[0])))
            elif isinstance(step, PlannedCall):
                moved = tuple(map(operand, step.operands, places))
                steps.append(replace(step, operands=moved))
            else:
                target, source = map(operand, (step.target, step.source), places)
                steps.append(CopyCall(step.target_device, step.source_device, target, source))
        missing = [slot for slot in range(first_arena) if slot not in self._devices]
        if any(slot >= len(self.inputs) + len(self.held) for slot in missing):
            raise InternalError("capture: an output was not made by the captured function")
        outputs = tuple(
            (self._devices[len(self.inputs) + len(self.held) + number], buffer.size_bytes)
            for number, buffer in enumerate(self.outputs)
        )
        self._check_written(written_slots(steps))
        constants = [*[None] * len(self.inputs), *self.held]
        packed = split_packing(
            steps, constants, len(constants), first_arena + len(sizes), self.copies
        )
        if packed is None:
            compiled = compile_steps(steps)
            return CapturedProgram(
                compiled, len(self.inputs), tuple(self.held), outputs, tuple(sizes), variables
            )
        held = [*self.held, *packed.packed]
        compiled = compile_steps([*packed.copies, *packed.steps])
        program = CapturedProgram(
            compiled[len(packed.copies) :],
            len(self.inputs),
            tuple(held),
            outputs,
            (*sizes, *packed.temporary),
            variables,
        )
        program.packed = PackedConstants(
            compiled[: len(packed.copies)],
            program.held,
            len(self.inputs),
            is_fresh=packed.is_fresh,
        )
        return program


def _bytes_of(operand: Operand, place: Any) -> Range:
    """The bytes that an operand is; what has a slot of its own is seen by others."""
    if len(place) == 2:
        return Range(None, 0, 0)
    start = place[2] + operand.offset_bytes
    return Range(place[:2], start, start + operand.size_bytes)


# --- the program ----------------------------------------------------------------------------------


class CapturedProgram:
    """A sequence of kernels over inputs, held buffers and outputs.  Thread-safe: one run at a time.

    `outputs` are (device, bytes) of what a run writes, `arenas` of its intermediates; `written`
    are the slots below the outputs that steps store to: inputs first, then held buffers.
    """

    def __init__(
        self,
        steps: tuple[Step, ...],
        num_inputs: int,
        held: tuple[Buffer, ...],
        outputs: tuple[tuple[str, int], ...],
        arenas: tuple[tuple[str, int], ...],
        variables: tuple[VariableBounds, ...] = (),
    ) -> None:
        self.steps = by_device(steps)
        self.num_inputs = num_inputs
        self.held = list(held)
        self.outputs = outputs
        self.arenas = arenas
        self.variables = variables
        self.first_output = num_inputs + len(held)
        self.written = frozenset(s for s in written_slots(steps) if s < self.first_output)
        self.lock = new_rlock()
        #: Copies of constants that must be made again when the constants are written.
        self.packed: PackedConstants | None = None
        #: The whole program as one launch table, once it has run as one.
        self.fast: FastTable | None = None
        self._linked: LinkedSteps | None = None
        self._memory: list[Buffer] = []
        self._parts: list[Any] = []

    @property
    def arena_bytes(self) -> int:
        """Bytes of all intermediates together."""
        return sum(size for _, size in self.arenas)

    @property
    def is_stale(self) -> bool:
        """Whether a device that it was linked for was closed since."""
        return self._linked is not None and self._linked.is_stale

    def open_devices(self) -> tuple[OpenDevice, ...]:
        """The devices that the program was last linked for."""
        return () if self._linked is None else self._linked.devices

    def replace_held(self, number: int, buffer: Buffer) -> None:
        """Use other memory for held buffer `number` from the next run on."""
        with self.lock:
            self.held[number] = buffer
            if self.packed is not None:
                self.packed = self.packed.again()
            self.release()

    def make_outputs(self) -> list[Buffer]:
        """Return new memory for the outputs of one run."""
        COUNTERS.allocations += len(self.outputs)
        return [Device[device].allocate(size) for device, size in self.outputs]

    def run(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        values: Mapping[str, int],
        stamps: list[int] | None = None,
    ) -> None:
        """Run once.

        Args:
            inputs: by slot.
            outputs: by slot.
            values: of the variables by name.
            stamps: gets the nanoseconds at which the launch begins and ends, and all is done.

        Raises: BoundsError for a variable or an index out of range; what drivers raise.
        """
        if self.variables:
            check_variables(self.variables, values)
        with self.lock:
            self._begin(inputs, outputs, values)
            fast = self.fast
            if fast is not None:
                fast.run(inputs, outputs, values, stamps)
                return
            slots = [*inputs, *self.held, *outputs, *self._memory]
            if stamps is not None:
                stamps.append(perf_counter_ns())
            for part in self._parts:
                part.run(slots, values)
            if stamps is not None:
                stamps.append(perf_counter_ns())
            if self._linked is not None:
                self._linked.synchronize()
            if stamps is not None:
                for device in self.open_devices():
                    device.synchronize()  # what runs ahead is timed to its end
                stamps.append(perf_counter_ns())

    def validate(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        values: Mapping[str, int],
        report: Report | None = None,
    ) -> Report:
        """Run once, each kernel on a reference too; see `engine.validate`."""
        check_variables(self.variables, values)
        with self.lock:
            self._begin(inputs, outputs, values)
            slots = [*inputs, *self.held, *outputs, *self._memory]
            if self.packed is not None:
                report = run_validated(self.packed.copies, slots, values, report)
            return run_validated(self.steps, slots, values, report)

    def _begin(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], values: Mapping[str, int]
    ) -> None:
        if self._linked is None or self.is_stale:
            self._prepare(inputs, outputs, values)
        if self.packed is not None:
            self.packed.refresh()
        count = self.num_inputs
        for slot in self.written:
            buffer = inputs[slot] if slot < count else self.held[slot - count]
            buffer.memory.changes += 1

    def release(self) -> None:
        """Give back arenas and command memory; the next run takes them again."""
        with self.lock:
            self._linked = None
            self.fast = None
            self._parts = []
            self._memory = []

    def time(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], values: Mapping[str, int]
    ) -> list[tuple[str, float]]:
        """Run once and return the name and the seconds of each step, where the driver times."""
        if self.variables:
            check_variables(self.variables, values)
        with self.lock:
            self._begin(inputs, outputs, values)
            slots = [*inputs, *self.held, *outputs, *self._memory]
            seconds: list[float] = []
            for part in self._parts:
                seconds += part.time(slots, values)
        names = [s.code.name if isinstance(s, KernelCall) else "copy" for s in self.steps]
        return list(zip(names, seconds, strict=True))

    def _prepare(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], values: Mapping[str, int]
    ) -> None:
        self.release()
        arenas = self.first_output + len(self.outputs)
        temporary = frozenset(range(arenas, arenas + len(self.arenas)))
        linked = LinkedSteps(self.steps, self.variables, temporary)
        faults.hit("capture.arena")
        COUNTERS.allocations += len(self.arenas)
        memory = [Device[device].allocate(size) for device, size in self.arenas]
        slots = [*inputs, *self.held, *outputs, *memory]
        parts = linked.make_instance(slots, values)
        self._memory, self._parts, self._linked = memory, parts, linked
        if len(parts) == 1 and isinstance(parts[0], link.TableInstance):
            self.fast = FastTable(parts[0], self, slots)


class FastTable:
    """A program that is one launch table: lists of words to write, and one native call."""

    def __init__(
        self, table: link.TableInstance, program: CapturedProgram, slots: Sequence[Buffer]
    ) -> None:
        table.bind(slots, {row.name: row.minimum for row in program.variables})
        self.table = table
        first, last = program.first_output, program.first_output + len(program.outputs)
        places = [table.places.get(slot, Place(None, [])) for slot in range(last)]
        self.inputs = places[: program.num_inputs]
        self.outputs = places[first:last]
        #: Loans that the held buffers are from.
        self.leases = link.leases_of(program.held)
        self.is_symbolic = bool(table.variables or table.tasks)

    def run(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        values: Mapping[str, int],
        stamps: list[int] | None,
    ) -> None:
        """Write what differs from the last run, and run; see `CapturedProgram.run`."""
        table = self.table
        leases = self.leases
        for place, buffer in zip(self.inputs, inputs, strict=True):
            address = buffer.address
            if address != place.address:
                table.move(place, address)
            if buffer.memory.lease is not None:
                leases = link.leases_of((*inputs, *outputs)) + self.leases
        for place, buffer in zip(self.outputs, outputs, strict=True):
            address = buffer.address
            if address != place.address:
                table.move(place, address)
        if self.is_symbolic:
            table.bind_variables(values)
        if stamps is None:
            table.launch(leases)
            return
        stamps.append(perf_counter_ns())
        table.launch(leases)  # returns when all is done
        now = perf_counter_ns()
        stamps += (now, now)
