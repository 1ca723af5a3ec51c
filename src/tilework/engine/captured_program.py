"""A captured program: kernels over inputs, held buffers and outputs, which is run again and again.

    program.run(inputs, outputs, {"n": 3})

It is linked for its devices at the first run, and again after one of them was closed.  A program
that is one launch table of the CPU runs by one native call (`FastTable`); over devices with queues
or graphs the instances of `engine.link` and `engine.queued` do what it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from tilework.base import faults
from tilework.base.forks import new_rlock
from tilework.engine import link
from tilework.engine.device import Device
from tilework.engine.link import LinkedSteps, Place
from tilework.engine.prepack import PackedConstants
from tilework.engine.queued import by_device
from tilework.engine.stats import COUNTERS
from tilework.engine.steps import (
    FoldCall,
    KernelCall,
    Step,
    VariableBounds,
    check_variables,
    written_slots,
)
from tilework.engine.validate import Report, run_validated

if TYPE_CHECKING:
    from tilework.engine.device import OpenDevice
    from tilework.runtime.buffer import Buffer


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
        names = [name_of(step) for step in self.steps]
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


def name_of(step: Step) -> str:
    """What people call a step."""
    if isinstance(step, KernelCall):
        return step.code.name
    return "all-reduce" if isinstance(step, FoldCall) else "copy"


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
