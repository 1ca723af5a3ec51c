"""NVIDIA GPUs through NVIDIA's driver: one queue a device, code as cubins, graphs for recordings.

    driver = CudaDriver(ordinal=0)
    program = driver.load([KernelCode(name="k", data=code, num_buffers=2, writes=(0,))])
    ticket = driver.submit([Launch(program.kernels[0], (y, x), grid=(blocks,))])
    driver.wait(ticket, WaitLimit.of(10.0))

A kernel that reads an index out of range stores a number in the fault word, which is memory of the
host that the card sees; the next `wait` or `copy_out` raises what `describe_fault` makes of it.
After a fault of the card itself (an illegal address, say) nothing more can be done in its context:
the device is lost, every call says so, and so hears whoever opens it, since NVIDIA's driver gives
the process no other context then.  A device whose kernels have not ended in time is lost as well,
but comes back as soon as they end.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from tilework.base import faults, trace
from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    DeviceError,
    DeviceFaultError,
    DeviceLostError,
    DeviceTimeoutError,
    ShapeError,
    StaleHandleError,
    TileworkError,
    UnsupportedError,
)
from tilework.base.forks import new_rlock
from tilework.base.ledger import LEDGER, Kind, Ledger
from tilework.runtime import reclaim
from tilework.runtime.allocator import PLAIN, POISON, BufferSpec
from tilework.runtime.buffer import Buffer, allocate_buffer, lease_buffer
from tilework.runtime.bus.cuda import LOST, CudaCallError, CudaLibrary, open_library
from tilework.runtime.counted import CountsMemory
from tilework.runtime.cuda.contexts import (
    ENDS_PROCESS,
    START_AGAIN,
    give_context_back,
    take_context,
)
from tilework.runtime.cuda.marks import CudaMarks
from tilework.runtime.cuda.memory import CudaMemory, as_bytes_address
from tilework.runtime.cuda.peers import CudaPeers
from tilework.runtime.cuda.programs import CudaProgram, CudaPrograms
from tilework.runtime.cuda.proof import PLACE_BYTES, prove_queue
from tilework.runtime.cuda.recording import CudaGraphs, CudaRecording, describe
from tilework.runtime.driver import (
    Command,
    Copy,
    KernelCode,
    Launch,
    Probe,
    check_commands,
)
from tilework.runtime.lease import Lease, LeaseKind
from tilework.target.known.cuda import Card, cuda_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilework.target.spec import TargetSpec

DEVICE: Final = "CUDA"
WAIT_SECONDS: Final = 600.0
# Numbers of attributes in CUDA's header.
_MULTIPROCESSORS, _MAJOR, _MINOR, _L2_BYTES = 16, 75, 76, 38
_MEMORY_KHZ, _BUS_BITS, _CLOCK_KHZ = 36, 37, 13
# From which version on CUDA's graphs have edges of several kinds.
_EDGES_VERSION: Final = 12030
# Filling this much takes about as long as queueing two commands.
_RUNWAY_BYTES: Final = 64 << 20
_RUNWAYS: Final = 4
_SPIN_SECONDS: Final = 200e-6
_NAP_SECONDS: Final = 20e-6


def probe(library: CudaLibrary | None = None) -> Probe:
    """Say whether there is a card, without making a context on it."""
    try:
        found = library or open_library()
        count = found.device_count()
        if not count:
            reason = "NVIDIA's driver sees no card"
            return Probe(device=DEVICE, is_present=False, is_openable=False, reason=reason)
        name = found.device_name(0)
        major, minor = found.attribute(0, _MAJOR), found.attribute(0, _MINOR)
    except TileworkError as error:
        reason = str(getattr(error, "reason", error))
        return Probe(device=DEVICE, is_present=False, is_openable=False, reason=reason)
    except CudaCallError as error:
        return Probe(device=DEVICE, is_present=True, is_openable=False, reason=str(error))
    version = found.version()
    text = f"CUDA {version // 1000}.{version % 1000 // 10}, {name}"
    return Probe(
        device=DEVICE, is_present=True, is_openable=True, driver=text, isa=f"sm_{major}{minor}"
    )


def spec_of(library: CudaLibrary, ordinal: int) -> TargetSpec:
    """Return the spec of a card.  Raises: UnsupportedError for one that is too old."""
    capability = library.attribute(ordinal, _MAJOR) * 10 + library.attribute(ordinal, _MINOR)
    clock = max(library.attribute(ordinal, _CLOCK_KHZ), 1)
    memory = library.attribute(ordinal, _MEMORY_KHZ) * library.attribute(ordinal, _BUS_BITS) // 4
    card = Card(
        multiprocessors=library.attribute(ordinal, _MULTIPROCESSORS),
        memory_bytes=library.memory_bytes(ordinal),
        l2_bytes=library.attribute(ordinal, _L2_BYTES),
        bandwidth_bytes_per_cycle=memory // clock,
    )
    return cuda_spec(capability, card, is_recent=library.version() >= 12010)


def can_start_early(library: CudaLibrary, ordinal: int) -> bool:
    """Say whether graphs of a card may overlap the start of a kernel with the end of another."""
    return library.attribute(ordinal, _MAJOR) >= 9 and library.version() >= _EDGES_VERSION


class CudaDriver(CountsMemory):
    """One NVIDIA GPU.  Thread-safe.

    Args:
        ordinal: which card.
        library: the door to NVIDIA's driver; tests pass another.
        memory_limit: bytes that may be allocated; 0 is no limit.
        poison: fill new memory with NaN patterns.
    """

    allocator: CudaMemory

    #: Recordings are graphs, which the engine makes of what it runs again and again.
    has_graphs: Final = True
    #: The host need not wait for work: all of it is in one queue, and memory is freed in its order.
    runs_ahead: Final = True
    #: How long copies and `close` wait for programs before them; then the device is lost.
    wait_seconds: float = WAIT_SECONDS
    _is_ended = False  # whether NVIDIA's driver does nothing more for this process

    def __init__(
        self,
        ordinal: int = 0,
        *,
        library: CudaLibrary | None = None,
        memory_limit: int = 0,
        poison: bool = False,
        ledger: Ledger = LEDGER,
    ) -> None:
        self._poison = poison
        self.name = DEVICE if not ordinal else f"{DEVICE}:{ordinal}"
        self._owner = self.name  # whose rows the ledger has; a device may get another name
        self.library = library or open_library()
        self.ordinal = ordinal
        self._ledger = ledger
        self._lock = new_rlock()
        self._process = os.getpid()
        #: Whether it was closed, and its memory went with it.
        self.is_closed = False
        #: What memory of this driver names as its own: that of an earlier one is gone.
        self.home: Final = object()
        #: Why the device is lost; empty while it is not.
        self.lost = ""
        self._ticket = self._done = 0
        self._pending: deque[tuple[int, int, tuple[str, ...]]] = deque()
        #: Marks behind what was queued, which are used again.
        self.marks = CudaMarks(self.library, self._lock)
        #: The code that is on the card.
        self.programs = CudaPrograms(
            self, self._scratch_for, self._drain, partial(self._count, Kind.PROGRAM)
        )
        #: Graphs that are ready to run, with their instances; recordings own them.
        self.graphs = CudaGraphs(self, self._lock)
        self._scratch: Buffer | None = None
        self._runway: Buffer | None = None
        #: Copies from other cards, and the order between their queues and those of this one.
        self.peers = CudaPeers(self, partial(self._count, Kind.RING))
        self.describe_fault: Callable[[int], TileworkError] = self._plain_fault
        self.target = spec_of(self.library, ordinal)
        #: Whether a graph can start a kernel before the one before it has ended.
        self.starts_early: Final = can_start_early(self.library, ordinal)
        faults.hit("cuda.open.context")
        self.context = take_context(self.library, ordinal, self.name)
        ledger.take(self._owner, Kind.FW_CTX)
        self.stream = 0
        self.allocator = CudaMemory(
            self.name, self.library, self._use, self._drain, memory_limit, ledger
        )
        try:
            self._use()
            faults.hit("cuda.open.stream")
            self.stream = self.library.stream_create()
            ledger.take(self._owner, Kind.RING)
            self._fault_buffer = self.allocate(64, spec=BufferSpec(host=True))
            self.prove(self.stream)
        except BaseException:
            self._release_all()
            raise
        #: Where kernels report what they find wrong.
        self.fault_address: Final = self._fault_buffer.address
        self._fault = ctypes.c_int64.from_address(self.fault_address)
        self._fault.value = 0

    # ---- memory

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Buffer:
        """Return new memory of the card, aligned to 256 bytes."""
        with self.guard("allocate"):
            buffer = self._new_buffer(size_bytes, spec)
            if size_bytes and (zero or self._poison):
                value = 0 if zero else POISON
                if spec.host:
                    self._finish()
                    # Not in a queue: the host may write there at once.
                    ctypes.memset(buffer.address, value, size_bytes)
                else:
                    self.library.fill(buffer.address, value, size_bytes, self.stream)
            return buffer

    def _new_buffer(self, size_bytes: int, spec: BufferSpec = PLAIN) -> Buffer:
        buffer = allocate_buffer(self.allocator, size_bytes, spec=spec)
        buffer.memory.home = self.home
        return buffer

    def memory_of_card(self) -> tuple[int, int]:
        """The bytes that are free on the card and that it has, as NVIDIA's driver counts them."""
        with self.guard("ask for memory"):
            return self.library.memory_info()

    def map(self, lease: Lease) -> Buffer:
        """Return a buffer over memory of somebody else: the card's own, or the host's, pinned.

        Raises: UnsupportedError where the card cannot read the host's memory so.
        """
        if lease.kind is LeaseKind.DEVICE or lease.is_released:
            buffer = lease_buffer(self.name, lease)
            buffer.memory.home = self.home
            return buffer
        raise UnsupportedError(
            f"{self.name}: memory of the host is not mapped into this device",
            got=lease.owner,
            try_="copy it to the device",
        )

    def fill(self, target: Buffer, byte: int) -> None:
        """Fill memory of the card with a byte, in the queue of kernels: nobody waits for it."""
        if target.size_bytes:
            with self.guard("fill"):
                address = self.address_of(target)
                self.library.fill(address, byte, target.size_bytes, self.stream)

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        """Copy bytes of the host to the card, after all submitted work."""
        self._check_sizes(target, source)
        address, keep = as_bytes_address(source)
        if address:
            with self.guard("copy_in"):
                self._finish()
                self.library.copy_to_device(
                    self.address_of(target), address, target.size_bytes, self.stream
                )
                self._drain()
        del keep

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        """Copy bytes of the card to the host.  Raises what a kernel reported."""
        self._check_sizes(source, target)
        address, keep = as_bytes_address(target)
        with self.guard("copy_out"):
            if address:
                self._finish()
                self.library.copy_to_host(
                    address, self.address_of(source), source.size_bytes, self.stream
                )
            self._drain()
        del keep
        self.raise_fault()

    # ---- code

    def load(self, kernels: Sequence[KernelCode]) -> CudaProgram:
        """Load the cubin of each kernel."""
        return self.programs.load(kernels)

    # ---- work

    def submit(self, commands: Sequence[Command]) -> int:
        """Queue `commands` and return a ticket."""
        check_commands(self.target, self.name, commands)
        with self.guard("submit"):
            for command in commands:
                self._queue(command)
            return self._close_ticket(tuple(map(describe, commands)))

    def record(self, commands: Sequence[Command]) -> CudaRecording:
        """Prepare `commands` as a graph."""
        check_commands(self.target, self.name, commands)
        with self.guard("record"):
            return CudaRecording(self, commands)

    def wait(self, ticket: int, limit: WaitLimit) -> None:
        """Block until `ticket` is done.

        Raises: DeviceTimeoutError, after which the device is lost; what a kernel reported.
        """
        reclaim.run()
        if ticket > self._ticket:
            raise DeviceError(
                f"{self.name}: no such ticket", got=ticket, expected=f"at most {self._ticket}"
            )
        self._await(ticket, limit)
        self.raise_fault()

    def time(self, commands: Sequence[Command]) -> tuple[float, ...]:
        """Run `commands` to their end and return the seconds of each on the card."""
        check_commands(self.target, self.name, commands)
        with self.guard("time"):
            marks = [self.library.event_create(timing=True) for _ in range(len(commands) + 1)]
            ready = [self._ready(command) for command in commands]
            try:
                self._keep_busy(len(commands))
                self.library.event_record(marks[0], self.stream)
                for mark, start in zip(marks[1:], ready, strict=True):
                    start()
                    self.library.event_record(mark, self.stream)
                self._close_ticket(tuple(map(describe, commands)))
                self._drain()
                seconds = tuple(
                    self.library.event_seconds(marks[i], marks[i + 1]) for i in range(len(commands))
                )
            finally:
                for mark in marks:
                    self.library.event_destroy(mark)
        self.raise_fault()
        return seconds

    def raise_fault(self) -> None:
        """Raise what a kernel has reported since the last look, and forget it.

        So it is with those of other cards, on whose work depends what was waited for here.
        """
        code = self._fault.value
        if code:
            self._fault.value = 0
            raise self.describe_fault(code)
        if self.peers.unsettled and self._done == self._ticket:
            self.peers.settle()

    def report(self) -> None:
        """Raise what ended or spoiled work that is done; for cards that have got its results."""
        if self.is_closed:
            return
        with self.guard("wait"):
            self._collect()
        code = self._fault.value
        if code:
            self._fault.value = 0
            raise self.describe_fault(code)

    def can_copy_from(self, other: object) -> bool:
        """Whether this card sees the memory of another one.  Raises: DeviceError."""
        if not isinstance(other, CudaDriver):
            return False
        has_queues = self.target.has_copy_queue and other.target.has_copy_queue
        return has_queues and self.peers.can_reach(other)

    def close(self) -> None:
        """Wait for queued work and give everything back; buffers that live on are stale."""
        with self._lock:
            if self.is_closed:
                return
            try:
                if not self.lost:
                    self._use()
                    self._drain()
            finally:
                self.is_closed = True
                self._release_all()

    def prove(self, stream: int) -> None:
        """See a new queue of this card do something.  Raises: DeviceLostError."""
        try:
            prove_queue(self, stream, self._fault_buffer.address + PLACE_BYTES)
        except DeviceLostError as error:
            self.lost = self.lost or str(error.got)
            raise

    # ---- inside

    def _queue_with_copies(self, launch: Launch, slots: tuple[int, ...]) -> None:
        """Run a launch on copies of some of its buffers, and copy what it wrote back."""
        buffers = list(launch.buffers)
        for slot in slots:
            held = buffers[slot]
            buffers[slot] = self._new_buffer(held.size_bytes)
            self._queue(Copy(buffers[slot], held))
        self._queue(Launch(launch.kernel, tuple(buffers), launch.variables, launch.grid))
        for slot in slots:
            if slot in launch.kernel.writes:
                self._queue(Copy(launch.buffers[slot], buffers[slot]))

    def _scratch_for(self, size_bytes: int) -> Buffer:
        """Memory that the blocks of one launch share out; launches follow each other."""
        if self._scratch is None or self._scratch.size_bytes < size_bytes:
            self._scratch = None
            self._scratch = self._new_buffer(size_bytes)
        return self._scratch

    def _keep_busy(self, count: int) -> None:
        """Give the card something to do while `count` commands are queued behind it.

        Else the time of each would be the host's, which takes longer to queue than many to run.
        """
        if self._runway is None:
            self._runway = self._new_buffer(_RUNWAY_BYTES)
        for _ in range(_RUNWAYS + count):
            self.library.fill(self._runway.address, 0, _RUNWAY_BYTES, self.stream)

    def _ready(self, command: Command) -> Callable[[], None]:
        """What queues a command, with everything prepared that can be."""
        if not isinstance(command, Launch) or command.grid[0] == 0 or len(command.grid) != 1:
            return partial(self._queue, command)
        misplaced = self.programs.misplaced(command)
        if misplaced:
            return partial(self._queue_with_copies, command, misplaced)
        loaded, function, blocks, arguments = self.programs.launch_words(command)
        head = loaded.head

        def start() -> None:
            self.library.launch(
                function, blocks, head.threads, head.shared, self.stream, arguments.address
            )

        return start

    def _queue(self, command: Command) -> None:
        if isinstance(command, Launch):
            if len(command.grid) != 1:
                raise ShapeError(f"{self.name}: a grid has one number", got=command.grid)
            if command.grid[0]:
                faults.hit("cuda.launch")
                self._ready(command)()
        elif isinstance(command, Copy):
            if command.target.size_bytes:
                faults.hit("cuda.copy")
                self.library.copy_on_device(
                    self.address_of(command.target), self.address_of(command.source),
                    command.target.size_bytes,
                    self.stream,
                )  # fmt: skip
        else:
            raise UnsupportedError(f"{self.name}: no timelines on this device", got=repr(command))

    def _close_ticket(self, what: tuple[str, ...]) -> int:
        """Put a mark behind what was queued, and give it a number."""
        self._collect()
        event = self.marks.take()
        self.library.event_record(event, self.stream)
        self._ticket += 1
        self._pending.append((self._ticket, event, what))
        if trace.enabled():
            trace.emit(trace.Launched(f"{len(what)} commands", self.name))
        return self._ticket

    def ticket(self, what: str) -> int:
        """Return a ticket of all that was queued so far, and of what that waits for."""
        with self.guard("submit"):
            return self._close_ticket((what,))

    def _count(self, kind: Kind, more: int) -> None:
        """Tell the ledger of queues or modules that were made, or, below 0, given up."""
        if more > 0:
            self._ledger.take(self._owner, kind, more)
        else:
            self._ledger.give_back(self._owner, kind, -more)

    def submitted_graph(self, instance: int, what: tuple[str, ...]) -> int:
        """Queue a graph and return a ticket."""
        with self.guard("submit"):
            self.library.graph_launch(instance, self.stream)
            return self._close_ticket(what)

    def _collect(self) -> None:
        """Take the tickets that are done off the list."""
        while self._pending:
            ticket, event, _ = self._pending[0]
            if not self.library.event_is_done(event):
                return
            self._pending.popleft()
            self.marks.give_back((event,))
            self._done = ticket

    def address_of(self, buffer: Buffer) -> int:
        """Where a buffer lies on this card or one that it reaches.  Raises: StaleHandleError."""
        home = buffer.memory.home
        if home is not self.home and not self.peers.sees(home):
            raise StaleHandleError(
                f"{self.name}: the memory went with the device, which was closed since",
                got=repr(buffer),
                try_="make the tensor anew",
            )
        return buffer.address

    def _await(self, ticket: int, limit: WaitLimit) -> None:
        """Block until `ticket` is done.  Raises: DeviceTimeoutError; the device is lost then."""
        turn = limit.start(f"{self.name}: waiting for ticket {ticket}")
        started = time.perf_counter()
        while True:
            with self.guard("wait"):
                self._collect()
                if self._done >= ticket:
                    break
            try:
                turn.check(self._done)
            except DeviceTimeoutError as error:
                self.peers.abort_groups(f"{self.name} does not answer")
                self.lost = f"a wait ended without an answer: {self._in_flight()}"
                error.add_note(f"in flight: {self._in_flight()}")
                error.add_note("the device is lost; close it, and open it again")
                raise
            if time.perf_counter() - started > _SPIN_SECONDS:
                self.peers.check_groups()
                time.sleep(turn.pause_seconds(_NAP_SECONDS))

    def _finish(self) -> None:
        """Wait until the programs that were submitted are done; a hang ends at a deadline."""
        self._collect()
        if self._done < self._ticket:
            self._await(self._ticket, WaitLimit.of(self.wait_seconds))

    def _drain(self) -> None:
        """Wait for the copies too, which take as long as their bytes do."""
        self._finish()
        self.library.stream_synchronize(self.stream)

    def _use(self) -> None:
        """Make the context current in this thread, where another card's may be."""
        self.library.context_use(self.context)

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Run calls of the driver: one thread at a time, in the context, with typed errors."""
        with self._lock:
            if self.is_closed:
                raise StaleHandleError(f"{self.name}: the device was closed")
            if self.lost:
                raise DeviceLostError(
                    f"{self.name}: the device is lost", got=self.lost, try_=self._remedy()
                )
            if os.getpid() != self._process:
                raise DeviceError(
                    f"{self.name}: a forked child cannot use its parent's device",
                    try_="start processes with the method spawn, or open the device after the fork",
                )
            # Another library of this process may have changed what is current.
            self.library.context_use(self.context)
            try:
                yield
            except CudaCallError as error:
                raise self._translated(what, error) from error

    def _translated(self, what: str, error: CudaCallError) -> TileworkError:
        """The typed error for a failed call, which says whether the device can go on."""
        if error.code not in LOST:
            return DeviceError(f"{self.name}: {what} failed", got=str(error))
        running = self._in_flight()
        self.lost = f"{error.name} while these were in flight: {running}"
        self._is_ended = error.code in ENDS_PROCESS
        return DeviceFaultError(
            f"{self.name}: a program failed on the card",
            kind=error.name,
            got=f"{error}; in flight: {running}",
            try_=f"the device is lost: {self._remedy()}; run with TILEWORK_VALIDATE=1 to check each"
            " kernel",
        )

    def _remedy(self) -> str:
        """What helps when the device is lost."""
        if self._is_ended:
            return f"{START_AGAIN}: NVIDIA's driver gives it no other context"
        return f'close it, and open it again: Device["{self.name}"].close()'

    def _in_flight(self) -> str:
        """The launches that are not known to be done, the oldest first."""
        rows = [text for _, _, what in self._pending for text in what]
        shown = ", ".join(rows[:8]) or "nothing that is known"
        return f"{shown} and {len(rows) - 8} more" if len(rows) > 8 else shown

    def _plain_fault(self, code: int) -> TileworkError:
        return DeviceFaultError(
            f"{self.name}: a kernel reported a fault", kind=f"code {code}", got=code
        )

    def _check_sizes(self, buffer: Buffer, view: memoryview) -> None:
        if buffer.size_bytes != view.nbytes:
            raise ShapeError(
                f"{self.name}: a copy between sizes that differ",
                got=f"{view.nbytes} bytes on the host, {buffer.size_bytes} on the device",
            )

    def _release_all(self) -> None:
        """Give everything back in reverse; a lost context goes as a whole."""
        self._fault = ctypes.c_int64(0)
        self._scratch = self._runway = None
        library, ledger = self.library, self._ledger
        reclaim.run()
        if self.lost:
            self.allocator.abandon()
        else:
            self._use()
            if hasattr(self, "_fault_buffer"):
                self._fault_buffer.close()
            self.allocator.close()
            self.graphs.close()
            self.programs.close()
            self.peers.close()
            for _, event, _ in self._pending:
                library.event_destroy(event)
            if self.stream:
                library.stream_destroy(self.stream)
        self.peers.forget()
        if self.stream:
            ledger.give_back(self._owner, Kind.RING)
        self.programs.forget()
        self.graphs.forget()
        self._pending.clear()
        self.marks.close(destroy=not self.lost)
        try:
            give_context_back(library, self.ordinal, self.name, is_lost=bool(self.lost))
        finally:
            ledger.give_back(self._owner, Kind.FW_CTX)
