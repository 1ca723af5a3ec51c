"""What the native code of the CPU runtime and its Python side both know: names and offsets.

Everything is in bytes from the start of the structure that a name begins with; words are 64 bits.
"""

from __future__ import annotations

from typing import Final

ENTRY_RUN: Final = "tilework_run"
ENTRY_WORKER: Final = "tilework_worker"
ENTRY_STOP: Final = "tilework_stop"
ENTRY_SPIN: Final = "tilework_spin"
ENTRY_COPY: Final = "tilework_copy"
ENTRY_FILL: Final = "tilework_fill"
ENTRY_CALL: Final = "tilework_call"
ENTRY_PROBE: Final = "tilework_probe"
ENTRIES: Final = (
    ENTRY_RUN, ENTRY_WORKER, ENTRY_STOP, ENTRY_SPIN, ENTRY_COPY, ENTRY_FILL, ENTRY_CALL,
    ENTRY_PROBE,
)  # fmt: skip

OUTSIDE_FUNCTIONS: Final = ("syscall", "mmap", "munmap", "clock_gettime")

# Offsets in the pool's memory, behind the gate; one cache line for each group of writers.
POOL_SLEEPERS: Final = 8
POOL_WAITING: Final = 12
POOL_RECORD: Final = 64
POOL_TASKS: Final = 72
POOL_GRAIN: Final = 80
POOL_LOCK: Final = 128
POOL_LIVE: Final = 132
POOL_STOP: Final = 136
POOL_WIDTH: Final = 192
POOL_SPIN: Final = 200
POOL_SLOTS: Final = 256
SLOT_BYTES: Final = 64  # the first word is the next chunk to take
SLOT_END: Final = 8
SLOT_POOL: Final = 16
SLOT_INDEX: Final = 24

# Offsets in a launch record; `tilework.runtime.launch` writes them.
RECORD_BYTES: Final = 64
RECORD_KERNEL: Final = 0
RECORD_BUFFERS: Final = 8
RECORD_VARIABLES: Final = 16
RECORD_TASKS: Final = 24
RECORD_GRAIN: Final = 32
RECORD_FLAGS: Final = 40
RECORD_SCRATCH: Final = 48
FLAG_SERIAL: Final = 1

# What `tilework_call` finds at the address that it is called with, in words.
CALL_RECORDS: Final = 0
CALL_COUNT: Final = 8
CALL_FAULT: Final = 16
CALL_BYTES: Final = 24

COPY_BLOCK_BYTES: Final = 1 << 18  # one task of the copy and fill kernels
