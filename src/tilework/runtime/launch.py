"""How kernels are called on the CPU: the calling convention and the launch table.

A kernel is a C function

    void kernel(void **buffers, int64_t *variables, int64_t begin, int64_t end, void *scratch)

- `buffers[i]` is the address of the i-th buffer of the kernel, offsets of views included.
- `variables[0]` is reserved: it is the address of the *fault word*, an int64 in memory.  A kernel
  that masks an index out of range stores a number other than 0 there (which one is the program's
  affair; it names the site).  It never clears it.  `variables[1:]` are the values of the kernel's
  symbolic variables, as int64.
- The outermost parallel loop has `tasks` iterations; the call does those in [begin, end).  The
  runtime covers [0, tasks) exactly once with calls in any order on any threads, so the
  iterations may not depend on each other, and the result may not depend on how they are cut.
- `scratch` is memory of the calling thread alone, at least `scratch_bytes` long and aligned to 64
  bytes; its contents are undefined at entry.  It is undefined when `scratch_bytes` is 0.
- It does not unwind, keeps the callee-saved registers of the platform's C convention, leaves the
  floating-point environment alone, and does not call back into Python.

A launch table holds records that one native call runs in order (`tilework.runtime.pool`); all of
a record's stores are visible to the next record.  `words` is the table itself: a replay changes an
address or a variable by storing into it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Final

from tilework.base.errors import UnsupportedError
from tilework.base.records import dataclass
from tilework.runtime.native.layout import (
    FLAG_SERIAL,
    RECORD_BUFFERS,
    RECORD_BYTES,
    RECORD_FLAGS,
    RECORD_GRAIN,
    RECORD_KERNEL,
    RECORD_SCRATCH,
    RECORD_TASKS,
    RECORD_VARIABLES,
)
from tilework.target.known.cpu import MAX_KERNEL_BUFFERS, MAX_SCRATCH_BYTES, MAX_VARIABLES

WORD_BYTES: Final = 8
_RECORD_WORDS: Final = RECORD_BYTES // WORD_BYTES


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel call, before it has a place in a table.

    `tasks` is the trip count of the parallel loop, `grain` how many of them make one chunk (0
    lets the runtime choose), `serial` keeps the kernel on the calling thread: right when its work
    is worth less than waking another thread, a few microseconds.
    """

    kernel: int
    buffers: tuple[int, ...]
    variables: tuple[int, ...] = ()  # without the reserved first
    tasks: int = 1
    grain: int = 0
    scratch_bytes: int = 0
    serial: bool = False
    name: str = ""


class LaunchTable:
    """Launch records in memory that native code reads.

    Not thread-safe: whoever changes `words` must be the one who runs the table.
    """

    def __init__(self, launches: Sequence[KernelLaunch], fault_address: int) -> None:
        """Lay out the records.

        Args:
            launches: the calls, in order.
            fault_address: the fault word that all of them share.

        Raises: UnsupportedError when a launch has more buffers, variables or scratch memory than
        the CPU's limits.
        """
        self.launches = tuple(launches)
        self.count = len(self.launches)
        self.fault_address = fault_address
        self.scratch_bytes = max((launch.scratch_bytes for launch in launches), default=0)
        self.has_parallel = any(not launch.serial and launch.tasks > 1 for launch in launches)
        self._buffer_starts: list[int] = []
        self._variable_starts: list[int] = []
        size = self.count * _RECORD_WORDS
        for launch in self.launches:
            _check(launch)
            self._buffer_starts.append(size)
            size += len(launch.buffers)
            self._variable_starts.append(size)
            size += 1 + len(launch.variables)
        # A record fills a cache line, so the table starts on one.
        self._memory = (ctypes.c_char * (size * WORD_BYTES + 64))()
        start = -ctypes.addressof(self._memory) % 64
        self.address = ctypes.addressof(self._memory) + start
        view = memoryview(self._memory).cast("B")[start : start + size * WORD_BYTES]
        self.words = view.cast("q")
        for index, launch in enumerate(self.launches):
            self._write(index, launch)

    def buffer_word(self, index: int, slot: int) -> int:
        """Return where in `words` the address of buffer `slot` of launch `index` stands."""
        return self._buffer_starts[index] + slot

    def variable_word(self, index: int, slot: int) -> int:
        """Return where in `words` the value of variable `slot` (0 is the first real one) stands."""
        return self._variable_starts[index] + 1 + slot

    def tasks_word(self, index: int) -> int:
        """Return where in `words` the number of tasks of launch `index` stands."""
        return index * _RECORD_WORDS + RECORD_TASKS // WORD_BYTES

    def _write(self, index: int, launch: KernelLaunch) -> None:
        words = self.words
        record = index * _RECORD_WORDS
        buffers, variables = self._buffer_starts[index], self._variable_starts[index]
        words[record + RECORD_KERNEL // WORD_BYTES] = launch.kernel
        words[record + RECORD_BUFFERS // WORD_BYTES] = self.address + buffers * WORD_BYTES
        words[record + RECORD_VARIABLES // WORD_BYTES] = self.address + variables * WORD_BYTES
        words[record + RECORD_TASKS // WORD_BYTES] = launch.tasks
        words[record + RECORD_GRAIN // WORD_BYTES] = launch.grain
        words[record + RECORD_FLAGS // WORD_BYTES] = FLAG_SERIAL if launch.serial else 0
        words[record + RECORD_SCRATCH // WORD_BYTES] = launch.scratch_bytes
        for slot, address in enumerate(launch.buffers):
            words[buffers + slot] = address
        words[variables] = self.fault_address
        for slot, value in enumerate(launch.variables):
            words[variables + 1 + slot] = value


def _check(launch: KernelLaunch) -> None:
    for what, got, limit in (
        ("buffers", len(launch.buffers), MAX_KERNEL_BUFFERS),
        ("variables", len(launch.variables), MAX_VARIABLES),
        ("bytes of scratch memory", launch.scratch_bytes, MAX_SCRATCH_BYTES),
    ):
        if got > limit:
            raise UnsupportedError(
                f"launch: a kernel has too many {what}",
                got=f"{got} in {launch.name or 'a kernel'}",
                expected=f"at most {limit}",
            )
