"""The threads that run kernels, and the one native call that runs a launch table.

    pool = ThreadPool(object_bytes, width=2)       # object_bytes: pool_source, compiled
    pool.run(table)                                # LaunchTable; returns when all is done
    pool.close()

Workers are native threads that never take Python's lock; they are started by the first table
with parallel work, sleep when idle, block all signals, and do not survive a fork: a child starts
its own.  `run` may be called from several Python threads at once: one has the workers, the others
do their work alone meanwhile.  Native code cannot be stopped from outside, so `run` has no time
limit; a kernel ends because its loops do.

What it costs, on two cores of a Sapphire Rapids server: a parallel record whose worker still spins
takes 1.3 µs from call to return when its chunks are empty, 0.7 more than a serial one.  A worker
spins for `SPIN_NANOSECONDS` after its last work and then sleeps, using no processor time; a caller
that finds it asleep wakes it and meanwhile takes chunks itself, so it waits only for chunks that
the worker has begun, and sleeps only if those take many times as long.  How many threads there are
follows the affinity of the process and the quota of its control group (`base.cores`).  Chunks are
claimed in any order by any thread, and a kernel's result may not depend on that, so results are the
same for any number of threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from tilework.base import faults, trace
from tilework.base.clock import SYSTEM_CLOCK, Clock, WaitLimit
from tilework.base.errors import DeviceError, StaleHandleError
from tilework.base.ledger import LEDGER, Kind, Ledger
from tilework.runtime import interpreter, reclaim
from tilework.runtime.allocator import HUGE_PAGE_BYTES
from tilework.runtime.hostos import HostOs, host_os
from tilework.runtime.launch import LaunchTable
from tilework.runtime.loader import DEVICE, LoadedCode, load_object
from tilework.runtime.native import layout

CLOSE_SECONDS: Final = 1.0
# A worker's patience before it sleeps.  A wake-up costs 30 us, and so much lies between two calls
# of a captured function whose kernels have driven the interpreter's own data out of the caches.
SPIN_NANOSECONDS: Final = 100_000
_CALIBRATION_TURNS: Final = 500
_CALIBRATIONS: Final = 4
_MIN_SCRATCH_BYTES: Final = 1 << 16

_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_STOP = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_SPIN = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class NativeRuntime:
    """The loaded pool object; `copy_kernel` and `fill_kernel` are addresses of its kernels."""

    def __init__(self, data: bytes, host: HostOs, ledger: Ledger = LEDGER) -> None:
        outside = {name: host.symbol_address(name) for name in layout.OUTSIDE_FUNCTIONS}
        # Where the interpreter has no such functions, the entry that needs them is never called.
        never = outside[layout.OUTSIDE_FUNCTIONS[0]]
        outside |= dict.fromkeys(interpreter.CALLED_FUNCTIONS, never)
        outside |= interpreter.called_addresses()
        self.code: LoadedCode = load_object(
            data, layout.ENTRIES, symbols=outside, host=host, ledger=ledger
        )
        self.run: Callable[..., int] = _RUN(self.code.address_of(layout.ENTRY_RUN))
        self.stop: Callable[..., int] = _STOP(self.code.address_of(layout.ENTRY_STOP))
        self.spin: Callable[..., None] = _SPIN(self.code.address_of(layout.ENTRY_SPIN))
        self.worker = self.code.address_of(layout.ENTRY_WORKER)
        self.copy_kernel = self.code.address_of(layout.ENTRY_COPY)
        self.fill_kernel = self.code.address_of(layout.ENTRY_FILL)
        self._call = self.code.address_of(layout.ENTRY_CALL)
        self.probe_kernel = self.code.address_of(layout.ENTRY_PROBE)

    def function_of(self, table: LaunchTable) -> Callable[[], int] | None:
        """Return a function that runs a table on the calling thread and gives its fault word.

        It keeps the interpreter's lock, so the table must be short, and must not be called once
        the code is unloaded.

        Returns: None where the interpreter makes no such functions, or the table needs workers
        or scratch memory.
        """
        if table.has_parallel or table.scratch_bytes or not interpreter.is_supported():
            return None
        words = (ctypes.c_int64 * (layout.CALL_BYTES // 8))()
        words[layout.CALL_RECORDS // 8] = table.address
        words[layout.CALL_COUNT // 8] = table.count
        words[layout.CALL_FAULT // 8] = table.fault_address
        argument = interpreter.Argument.of(ctypes.addressof(words), words, table)
        return interpreter.native_function(self._call, argument)


class _Crew:
    """The workers of one process and the memory that they share with callers."""

    def __init__(self, runtime: NativeRuntime, host: HostOs, ledger: Ledger, width: int) -> None:
        self._runtime = runtime
        self._host = host
        self._ledger = ledger
        self._threads: list[int] = []
        page = host.page_bytes
        wanted = layout.POOL_SLOTS + layout.SLOT_BYTES * width
        self._bytes = -(-wanted // page) * page
        faults.hit("pool.memory")
        self.address = host.map_pages(self._bytes)
        self._width = ctypes.c_int64.from_address(self.address + layout.POOL_WIDTH)
        self._live = ctypes.c_int32.from_address(self.address + layout.POOL_LIVE)
        spin = ctypes.c_int64.from_address(self.address + layout.POOL_SPIN)
        # Without a core for each thread, a spinning one keeps the others from working.
        spin.value = _turns(runtime) if width <= host.usable_cores() else 1
        ledger.take(DEVICE, Kind.CPU_MMAP)
        self._start(width)

    def _start(self, width: int) -> None:
        for index in range(1, width):
            slot = self.address + layout.POOL_SLOTS + layout.SLOT_BYTES * index
            ctypes.c_int64.from_address(slot + layout.SLOT_POOL).value = self.address
            ctypes.c_int64.from_address(slot + layout.SLOT_INDEX).value = index
            self._live.value += 1  # no worker ends before `stop`, so nobody else writes this
            try:
                faults.hit("pool.thread")
                handle = self._host.start_thread(self._runtime.worker, slot, f"tilework-{index}")
            except DeviceError as error:
                self._live.value -= 1
                trace.warn("pool", f"runs with {index} threads instead of {width}: {error}")
                break
            self._threads.append(handle)
            self._ledger.take(DEVICE, Kind.THREAD)
        # Callers deal chunks to `width` participants; workers see it when a gate opens.
        self._width.value = 1 + len(self._threads)

    def close(self, seconds: float, clock: Clock) -> None:
        """End the workers and release their memory."""
        wait = WaitLimit.of(seconds, clock=clock).start("CPU: closing the thread pool")
        while not self._runtime.stop(self.address):
            wait.check()
            clock.sleep(wait.pause_seconds(1e-4))
        while self._live.value > 0:
            wait.check(self._live.value)
            clock.sleep(wait.pause_seconds(1e-5))
        for handle in self._threads:
            self._host.join_thread(handle)
            self._ledger.give_back(DEVICE, Kind.THREAD)
        self._threads.clear()
        self._host.unmap_pages(self.address, self._bytes)
        self._ledger.give_back(DEVICE, Kind.CPU_MMAP)

    def forget(self) -> None:
        """Release, in a forked child, what was only the parent's."""
        for _ in self._threads:
            self._ledger.give_back(DEVICE, Kind.THREAD)
        self._threads.clear()
        self._host.unmap_pages(self.address, self._bytes)
        self._ledger.give_back(DEVICE, Kind.CPU_MMAP)


def _turns(runtime: NativeRuntime) -> int:
    """How many pauses fill `SPIN_NANOSECONDS` on this processor."""
    times = []
    for _ in range(_CALIBRATIONS):  # the first one meets code and clocks that are cold
        started = time.perf_counter_ns()
        runtime.spin(_CALIBRATION_TURNS)
        times.append(time.perf_counter_ns() - started)
    return max(SPIN_NANOSECONDS * _CALIBRATION_TURNS // max(min(times), 1), 1)


class _Held:
    """What a pool holds; outlives the pool by a moment when nobody closed it."""

    def __init__(self, runtime: NativeRuntime, host: HostOs, ledger: Ledger, clock: Clock) -> None:
        self.runtime = runtime
        self.host = host
        self.ledger = ledger
        self.clock = clock
        self.crew: _Crew | None = None
        self.left_behind: list[_Crew] = []  # the parent's, in a forked child
        self.scratch: list[tuple[int, int]] = []  # blocks of callers that are not running now

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the workers, then unload what they ran in."""
        self.forget_parents()
        if self.crew is not None:
            self.crew.close(seconds, self.clock)
            self.crew = None
        while self.scratch:
            self.release(self.scratch.pop())
        self.runtime.code.close()

    def forget_parents(self) -> None:
        """Release the parent's memory, in a forked child."""
        while self.left_behind:
            self.left_behind.pop().forget()

    def release(self, block: tuple[int, int]) -> None:
        """Give a block of scratch memory back."""
        self.host.unmap_pages(*block)
        self.ledger.give_back(DEVICE, Kind.CPU_MMAP)

    def take_scratch(self, size_bytes: int) -> tuple[int, int]:
        """Return the address and size of scratch memory for one caller."""
        try:
            block = self.scratch.pop()
        except IndexError:
            block = (0, 0)
        if block[1] >= size_bytes:
            return block
        if block[1]:
            self.release(block)
        page = self.host.page_bytes
        wanted = -(-max(size_bytes, _MIN_SCRATCH_BYTES) // page) * page
        faults.hit("pool.scratch")
        block = (self.host.map_pages(wanted), wanted)
        if wanted >= HUGE_PAGE_BYTES:
            self.host.advise_huge_pages(*block)
        self.ledger.take(DEVICE, Kind.CPU_MMAP)
        return block


class ThreadPool:
    """Runs launch tables on up to `width` threads, the caller among them.  Thread-safe."""

    def __init__(
        self,
        data: bytes,
        width: int,
        *,
        host: HostOs | None = None,
        ledger: Ledger = LEDGER,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Load the native code; no thread is started yet.

        Args:
            data: the object compiled from `native.pool_source.pool_source`.
            width: threads that may run at once, the caller's included; at least 1.
            host: the operating system; tests pass a fake one.
            ledger: where threads and memory are counted.
            clock: the time that bounds `close`.
        """
        system = host or host_os()
        self.width = max(width, 1)
        self.runtime = NativeRuntime(data, system, ledger)
        self._lock = threading.Lock()
        self._held = _Held(self.runtime, system, ledger, clock)
        self._is_closed = False
        # Not at exit: the process takes its threads along, and they must not lose their code first.
        self._finalizer = weakref.finalize(self, reclaim.later, self._held.close)
        self._finalizer.atexit = False
        _after_fork.watch(self)

    @property
    def is_started(self) -> bool:
        """Whether this process has workers."""
        return self._held.crew is not None

    def run(self, table: LaunchTable, times: int = 0) -> bool:
        """Run all launches of `table` in order and return when they are done.

        Args:
            table: see `tilework.runtime.launch`.
            times: the address of an int64 for each launch, which gets its nanoseconds; 0 for none.

        Returns: whether this call had the workers; another thread's call may have them.

        Raises: StaleHandleError after `close`; OutOfMemoryError when scratch memory runs out.
        """
        held = self._held
        crew = held.crew
        if crew is None and (table.has_parallel or self._is_closed):
            crew = self._hire(table)
        address = 0 if crew is None else crew.address
        if not table.scratch_bytes:
            return bool(self.runtime.run(address, table.address, table.count, 0, times))
        block = held.take_scratch(table.scratch_bytes)
        try:
            return bool(self.runtime.run(address, table.address, table.count, block[0], times))
        finally:
            held.scratch.append(block)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the workers and unload the code; a second call does nothing.

        Raises: DeviceTimeoutError when a running table does not end within `seconds`; nothing
        is released then, and `close` may be called again.
        """
        with self._lock:
            if self._is_closed:
                return
            self._held.close(seconds)
            self._is_closed = True
            self._finalizer.detach()

    def after_fork(self) -> None:
        """Forget the parent's workers; called in a forked child."""
        self._lock = threading.Lock()  # the parent's may have been held
        held = self._held
        if held.crew is not None:
            held.left_behind.append(held.crew)  # released at the next use, where locks are free
            held.crew = None

    def _hire(self, table: LaunchTable) -> _Crew | None:
        """Return the crew that this table needs, started now if there is none."""
        with self._lock:
            if self._is_closed:
                raise StaleHandleError("pool: it was closed")
            held = self._held
            held.forget_parents()
            if held.crew is None and self.width > 1 and table.has_parallel:
                held.crew = _Crew(self.runtime, held.host, held.ledger, self.width)
            return held.crew


class _AfterFork:
    """Tells all pools of a forked child that their workers stayed behind."""

    def __init__(self) -> None:
        self._pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
        self._is_registered = False

    def watch(self, pool: ThreadPool) -> None:
        """Tell `pool` after each fork.  Registers with Python on first use, not at import."""
        if not self._is_registered:
            self._is_registered = True
            os.register_at_fork(after_in_child=self._tell)
        self._pools.add(pool)

    def _tell(self) -> None:
        for pool in list(self._pools):
            pool.after_fork()


_after_fork = _AfterFork()
