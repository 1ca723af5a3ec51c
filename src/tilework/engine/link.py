"""Steps -> what a device runs: loaded kernels, launch tables, and where addresses go in them.

`LinkedSteps` hold the loaded kernels of a schedule's steps.  A run takes an *instance* of
it (a launch table, memory that native code reads), writes the addresses and variables of this run
into it, and gives it back, so that several threads may run one schedule at once and no two share
mutable command memory.
"""

from __future__ import annotations

import ctypes
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from tilework.base import faults, trace
from tilework.base.errors import InternalError
from tilework.base.forks import new_lock
from tilework.base.records import dataclass
from tilework.engine.compile import CompiledKernel
from tilework.engine.copies import copy_between, poison_bytes
from tilework.engine.device import Device, OpenDevice, on_close
from tilework.engine.exchanges import Exchanges
from tilework.engine.expressions import Expression
from tilework.engine.faults import note_checked
from tilework.engine.folds import fold_in_order
from tilework.engine.queued import by_device, in_order
from tilework.engine.stats import COUNTERS
from tilework.engine.steps import (
    CopyCall,
    FoldCall,
    KernelCall,
    Operand,
    PoisonCall,
    Step,
    VariableBounds,
    buffer_of,
    check_variables,
    operands_of,
    part_of,
    written_slots,
)
from tilework.runtime.allocator import POISON
from tilework.runtime.driver import Kernel, Launch, check_commands

if TYPE_CHECKING:
    from tilework.runtime.buffer import Buffer
    from tilework.runtime.driver import Command, Program
    from tilework.runtime.launch import LaunchTable
    from tilework.runtime.lease import Lease

MAX_LINKED: Final = 1024
#: Runs of one list of kernels after which it is worth a graph of the device.
_RUNS_BEFORE_GRAPH: Final = 1


@dataclass(slots=True)
class _Loaded:
    """A loaded kernel and the program that keeps its code mapped."""

    kernel: Kernel
    program: Program


def _load(device: OpenDevice, kernels: Sequence[CompiledKernel]) -> dict[str, _Loaded]:
    """Return each kernel loaded on `device`; those that are new share one mapping."""
    with device.lock:
        device.check_open()
        cache: OrderedDict[str, _Loaded] = device.caches.setdefault("kernels", OrderedDict())
        new = {code.key: code for code in kernels if code.key not in cache}
        if new:
            # Names of code from a file, too, which may have been made with checks elsewhere.
            note_checked(code.name for code in new.values())
            program = device.driver.load([code.as_code() for code in new.values()])
            for key, kernel in zip(new, program.kernels, strict=True):
                cache[key] = _Loaded(kernel, program)
        found = {code.key: cache[code.key] for code in kernels}
        for key in found:
            cache.move_to_end(key)
        while len(cache) > MAX_LINKED * 8:
            cache.popitem(last=False)
        return found


#: A sequence of fewer scalar operations than this may run while Python's lock is held.
SHORT_WORK: Final = 1 << 17


class TableDriver(Protocol):
    """What a driver has more that runs launch tables: one native call for a whole sequence."""

    def make_table(self, commands: Sequence[Command]) -> LaunchTable:
        """Return the table of commands that were checked."""
        ...

    def fill_launch(self, buffer: Buffer, byte: int) -> Launch:
        """Return the launch that fills a buffer."""
        ...

    def run_table(self, table: LaunchTable, leases: Sequence[Lease], times: int = 0) -> int:
        """Run it; `leases` are held meanwhile, `times` gets nanoseconds.  Returns a ticket."""
        ...

    def table_function(self, table: LaunchTable) -> Callable[[], int] | None:
        """Return a function that runs a short table and gives its fault word, if there can be one.

        It keeps Python's lock, makes no ticket, and may not be called once the driver is closed.
        """
        ...

    def raise_fault(self) -> None:
        """Raise what a kernel has reported since the last look."""
        ...


def table_driver(device: OpenDevice) -> TableDriver | None:
    """Return the driver of `device` if it runs launch tables."""
    return cast("TableDriver", device.driver) if hasattr(device.driver, "make_table") else None


def runs_ahead(device: OpenDevice) -> bool:
    """Whether the host need not wait for the work that it gives to `device`."""
    return bool(getattr(device.driver, "runs_ahead", False))


@dataclass(slots=True)
class Place:
    """The address of a slot that stands in a table now, and the words with their offsets."""

    address: int | None
    words: list[tuple[int, int]]


class TableInstance:
    """Kernels of one device as a launch table that one native call runs.  Not thread-safe."""

    def __init__(
        self, device: OpenDevice, calls: Sequence[Step], loaded: Mapping[str, _Loaded],
        slots: Sequence[Buffer | None], values: Mapping[str, int],
    ) -> None:  # fmt: skip
        driver = table_driver(device)
        if driver is None:
            raise InternalError("link: this device has no launch tables", got=device.name)
        self._driver = driver
        kernels = [call for call in calls if isinstance(call, KernelCall)]
        commands = [
            _launch(call, loaded, slots, values)
            if isinstance(call, KernelCall)
            else driver.fill_launch(part_of(slots, operands_of(call)[0]), POISON)
            for call in calls
        ]
        check_commands(device.spec, device.name, commands)
        self.table = self._driver.make_table(commands)
        self.words = self.table.words
        self._kernels = len(kernels)
        self._work = sum(call.code.work for call in kernels)
        self.places: dict[int, Place] = {}
        self.variables: list[tuple[int, str]] = []
        self.tasks: list[tuple[int, Expression]] = []
        for index, call in enumerate(calls):
            for position, operand in enumerate(operands_of(call)):
                word = self.table.buffer_word(index, position)
                place = self.places.setdefault(operand.slot, Place(None, []))
                place.words.append((word, operand.offset_bytes))
            if not isinstance(call, KernelCall):
                continue
            for position, name in enumerate(call.code.variables):
                self.variables.append((self.table.variable_word(index, position), name))
            if call.code.tasks.constant is None:
                self.tasks.append((self.table.tasks_word(index), call.code.tasks))

    def bind(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Write the addresses and variables of this run."""
        for slot, place in self.places.items():
            buffer = slots[slot]
            if buffer is None:
                raise InternalError("link: a slot has no buffer", got=slot)
            address = buffer.address
            if place.address != address:
                self.move(place, address)
        self.bind_variables(values)

    def move(self, place: Place, address: int) -> None:
        """Write another address of a slot."""
        place.address = address
        words = self.words
        for word, offset in place.words:
            words[word] = address + offset

    def bind_variables(self, values: Mapping[str, int]) -> None:
        """Write the variables of this run, and the trip counts that depend on them."""
        words = self.words
        for word, name in self.variables:
            words[word] = values[name]
        for word, tasks in self.tasks:
            words[word] = tasks.evaluate(values)

    def launch(self, leases: Sequence[Lease]) -> None:
        """Run what is bound.  Raises what the driver raises, and what a kernel reported."""
        COUNTERS.launches += 1
        COUNTERS.kernels += self._kernels
        self._driver.run_table(self.table, leases)
        self._driver.raise_fault()

    def short_function(self) -> Callable[[], int] | None:
        """What runs the table as it is then, and gives the fault word; None if it is not short."""
        if self._work > SHORT_WORK:
            return None
        return self._driver.table_function(self.table)

    def raise_fault(self) -> None:
        """Raise what a kernel reported."""
        self._driver.raise_fault()

    def run(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Bind and run."""
        self.bind(slots, values)
        self.launch(leases_of(slots[slot] for slot in self.places))

    def time(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[float]:
        """Bind, run, and return the seconds of each kernel."""
        self.bind(slots, values)
        times = (ctypes.c_int64 * max(self.table.count, 1))()
        leases = leases_of(slots[slot] for slot in self.places)
        self._driver.run_table(self.table, leases, ctypes.addressof(times))
        self._driver.raise_fault()
        return [times[index] * 1e-9 for index in range(self.table.count)]


class CommandInstance:
    """Kernels of one device, submitted as commands: for drivers without launch tables."""

    def __init__(
        self, device: OpenDevice, calls: Sequence[KernelCall], loaded: Mapping[str, _Loaded]
    ) -> None:
        self._device = device
        self._calls = calls
        self._loaded = loaded
        self._runs = 0
        self._recording: Any = None
        #: For each slot: number of the call, position of the buffer, and what part of the slot.
        self._places: dict[int, list[tuple[int, int, Operand]]] = {}
        for number, call in enumerate(calls):
            for position, operand in enumerate(call.operands):
                self._places.setdefault(operand.slot, []).append((number, position, operand))
        self._moving = [
            (number, call)
            for number, call in enumerate(calls)
            if call.code.variables or call.code.tasks.constant is None
        ]
        self._addresses: dict[int, int] = {}
        self._values: dict[str, int] = {}

    def run(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Submit the calls with these buffers.  Raises what the driver raises."""
        COUNTERS.launches += 1
        COUNTERS.kernels += len(self._calls)
        self._runs += 1
        driver = self._device.driver
        has_graphs = getattr(driver, "has_graphs", False)
        if has_graphs and len(self._calls) > 1 and self._runs > _RUNS_BEFORE_GRAPH:
            self._device.last_ticket = self._replay(slots, values)
        else:
            self._device.last_ticket = driver.submit(self._launches(slots, values))

    def _replay(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> int:
        """Run the launches as one recording, told only what differs from the last run."""
        if self._recording is None:
            self._recording = self._device.driver.record(self._launches(slots, values))
            self._addresses = {slot: buffer_of(slots, slot).address for slot in self._places}
            self._values = dict(values)
        for slot, places in self._places.items():
            address = buffer_of(slots, slot).address
            if address != self._addresses[slot]:
                self._addresses[slot] = address
                for number, position, operand in places:
                    self._recording.set_buffer(number, position, part_of(slots, operand))
        if self._moving and values != self._values:
            self._values = dict(values)
            for number, call in self._moving:
                for position, name in enumerate(call.code.variables):
                    self._recording.set_variable(number, position, values[name])
                self._recording.set_grid(number, (call.code.tasks.evaluate(values),))
        ticket: int = self._recording.submit()
        self._recording.forget_buffers()
        return ticket

    def with_calls(self, calls: Sequence[KernelCall]) -> CommandInstance:
        """The same kernels over other buffers, as an instance of their own."""
        return CommandInstance(self._device, calls, self._loaded)

    def time(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[float]:
        """Run the calls to their end and return the seconds of each."""
        return list(self._device.driver.time(self._launches(slots, values)))

    def _launches(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[Launch]:
        return [_launch(call, self._loaded, slots, values) for call in self._calls]


def leases_of(buffers: Iterable[Buffer | None]) -> list[Lease]:
    """Return the leases that `buffers` are from, each once."""
    found: dict[int, Lease] = {}
    for buffer in buffers:
        lease = None if buffer is None else buffer.memory.lease
        if lease is not None:
            found[id(lease)] = lease
    return list(found.values())


def _launch(
    call: KernelCall,
    loaded: Mapping[str, _Loaded],
    slots: Sequence[Buffer | None],
    values: Mapping[str, int],
) -> Launch:
    return Launch(
        loaded[call.code.key].kernel,
        tuple([part_of(slots, operand) for operand in call.operands]),
        tuple([values[name] for name in call.code.variables]),
        grid=(call.code.tasks.evaluate(values),),
        is_serial=call.is_serial,
    )


def _device_of(step: Step) -> str | None:
    """Whose command memory a step goes to; None for what the host does."""
    if isinstance(step, KernelCall):
        return step.device
    if isinstance(step, PoisonCall) and table_driver(Device[step.device]) is not None:
        return step.device
    return None


class LinkedSteps:
    """Calls in order with their code loaded.  Thread-safe: each run has an instance of its own.

    Only as valid as the devices that it was linked for: see `is_stale`.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        variables: Sequence[VariableBounds] = (),
        temporary: frozenset[int] = frozenset(),
    ) -> None:
        self.steps = by_device(steps)
        #: Slots whose contents nobody reads after a run.
        self.temporary = temporary
        self.variables = tuple(variables)
        self.written = written_slots(self.steps)
        self.groups: list[tuple[OpenDevice | None, tuple[Step, ...]]] = []
        self._loaded: list[Mapping[str, _Loaded]] = []
        faults.hit("link.load")
        for name, group in groupby(self.steps, _device_of):
            calls = tuple(group)
            device = None if name is None else Device[name]
            self.groups.append((device, calls))
            codes = [call.code for call in calls if isinstance(call, KernelCall)]
            self._loaded.append({} if device is None else _load(device, codes))
        self.devices = tuple(device for device, _ in self.groups if device is not None)
        self._only = self.devices[0] if len(self.devices) == 1 else None
        self._free: deque[list[Any]] = deque()
        COUNTERS.links += 1
        if trace.enabled():
            trace.emit(trace.Linked(self.steps))

    @property
    def is_stale(self) -> bool:
        """Whether a device was closed meanwhile."""
        only = self._only
        if only is not None:  # nearly always, and asked at each replay
            return only.is_closed
        return any(device.is_closed for device in self.devices)

    def run(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Run all steps; `slots` are the buffers by slot.

        Raises: BoundsError for a variable out of range or an index that a kernel found out of
        range; what drivers raise.
        """
        check_variables(self.variables, values)
        self.run_plainly(slots, values)

    def run_plainly(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """`run` with variables that were checked.  Raises what drivers raise."""
        try:
            instance = self._free.pop()
        except IndexError:
            instance = self.make_instance(slots, values)
        try:
            for part in instance:
                part.run(slots, values)
        finally:
            self._free.append(instance)
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for the devices, but for those that run ahead.  Raises what kernels reported.

        A device that runs ahead does what it is given in order, and frees memory in that order;
        what its kernels report is raised by the next read or wait.
        """
        for device, _ in self.groups:
            if device is not None and table_driver(device) is None and not runs_ahead(device):
                device.synchronize()

    def make_instance(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[Any]:
        """Return mutable command memory that nobody else has."""
        parts: list[Any] = []
        for (device, calls), loaded in zip(self.groups, self._loaded, strict=True):
            kernels = [call for call in calls if isinstance(call, KernelCall)]
            if device is None:
                parts.append(HostInstance(calls))
            elif table_driver(device) is not None:
                parts.append(TableInstance(device, calls, loaded, slots, values))
            else:
                parts.append(CommandInstance(device, kernels, loaded))
        return in_order(self.groups, parts, slots, self.temporary)


class HostInstance:
    """What the host does: copies between devices through its own memory, and poison."""

    def __init__(self, calls: Sequence[Step]) -> None:
        self._calls = [call for call in calls if not isinstance(call, KernelCall)]

    def run(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> None:
        """Do each after the work before it.  Raises what a kernel before a copy reported."""
        waiting = Exchanges()
        for call in self._calls:
            if not waiting.take(call, slots):
                waiting.begin()
                self._do(call, slots)
        waiting.begin()

    def time(self, slots: Sequence[Buffer | None], values: Mapping[str, int]) -> list[float]:
        """Do them, and return the seconds of each."""
        seconds: list[float] = []
        for call in self._calls:
            started = time.perf_counter()
            self._do(call, slots)
            seconds.append(time.perf_counter() - started)
        return seconds

    def _do(self, call: Step, slots: Sequence[Buffer | None]) -> None:
        if isinstance(call, PoisonCall):
            poison_bytes(Device[call.device], part_of(slots, call.target))
        elif isinstance(call, FoldCall):
            fold_in_order(call, slots)
        elif isinstance(call, CopyCall):
            copy_between(
                Device[call.target_device],
                part_of(slots, call.target),
                Device[call.source_device],
                part_of(slots, call.source),
            )


class LinkCache:
    """Linked schedules by identity of their schedule, the last used last.  Thread-safe."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, tuple[object, LinkedSteps]] = OrderedDict()
        self._lock = new_lock()

    def get(self, schedule: object) -> LinkedSteps | None:
        """Return what was linked for this very schedule, unless it is stale."""
        with self._lock:
            row = self._rows.get(id(schedule))
            if row is None or row[1].is_stale:
                return None
            self._rows.move_to_end(id(schedule))
            return row[1]

    def put(self, schedule: object, linked: LinkedSteps) -> None:
        """Keep `linked`; the schedule is kept with it, so that its identity stays its own."""
        with self._lock:
            self._rows[id(schedule)] = (schedule, linked)
            while len(self._rows) > MAX_LINKED:
                self._rows.popitem(last=False)

    def drop_stale(self) -> None:
        """Let go of what was linked for devices that are closed, and of their code."""
        with self._lock:
            for key in [key for key, (_, linked) in self._rows.items() if linked.is_stale]:
                del self._rows[key]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._rows.clear()


CACHE: Final = LinkCache()
"""Linked schedules of this process."""
on_close.append(CACHE.drop_stale)
