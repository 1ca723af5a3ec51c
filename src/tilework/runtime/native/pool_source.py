"""The native code of the CPU runtime as LLVM IR, for the baseline of an instruction set: the pool.

`runner_source` and `kernels_source` are the other parts of the text, and `layout` says where things
lie that Python writes too.

How a parallel launch works.  The word `gate` holds, in its high half, a counter that is odd
while a job is open, and in its low half the number of workers inside.  The caller writes the job,
opens the gate, works itself, closes the gate and waits until the low half is zero.  A worker that
comes too late finds the gate closed and stays out, so a sleeping worker never delays a launch.
The work is dealt out in contiguous ranges of equal units, one range per participant, so that a
thread meets the same part of the data in each launch; who has finished takes from the others'
ranges.  Each takes a share of what is left of a range at once: large pieces first, which cost few
calls, and single units at the end, so that a thread whose core is slow or shared holds the others
up for one unit alone (guided self-scheduling, Polychronopoulos and Kuck 1987).

Idle workers spin for a moment and then sleep in a futex on the high half of the gate.  All
hand-overs are sequentially consistent read-modify-writes of `gate`, `sleepers` or `waiting`.

Kernels run with the default floating-point environment (rounding to nearest, subnormals kept),
whatever the calling thread has set.
"""

from __future__ import annotations

from string import Template
from typing import Final

from tilework.base.errors import UnsupportedError
from tilework.runtime.native.kernels_source import kernels_text
from tilework.runtime.native.layout import (
    CALL_COUNT,
    CALL_FAULT,
    COPY_BLOCK_BYTES,
    FLAG_SERIAL,
    POOL_GRAIN,
    POOL_LIVE,
    POOL_LOCK,
    POOL_RECORD,
    POOL_SLEEPERS,
    POOL_SLOTS,
    POOL_SPIN,
    POOL_STOP,
    POOL_TASKS,
    POOL_WAITING,
    POOL_WIDTH,
    RECORD_BUFFERS,
    RECORD_BYTES,
    RECORD_FLAGS,
    RECORD_GRAIN,
    RECORD_SCRATCH,
    RECORD_TASKS,
    RECORD_VARIABLES,
    SLOT_BYTES,
    SLOT_END,
    SLOT_INDEX,
    SLOT_POOL,
)
from tilework.runtime.native.runner_source import TEXT as RUNNER
from tilework.target.features import AARCH64, X86_64

# A caller waits so many times as long as an idle worker before it sleeps: until chunks end that
# have begun, and a wake-up costs more than the rest of most of them.
CALLER_PATIENCE: Final = 16

# Each participant's range has so many units, of which it takes a share of the rest at a time,
# rounded up: 3, 2, 1, 1, 1 of eight.  Measured beside four pieces of one size with and without
# other work on the machine (docs/performance.md); 16 units and halves were no better.
UNITS_PER_RANGE: Final = 8
SHARE_OF_REST: Final = 3

_X86_PARTS: Final = {
    "futex": "202",
    "madvise": "28",
    "declare": """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
""",
    "pause": "call void @llvm.x86.sse2.pause()",
    "enter_float": """
  %float.saved = alloca i32
  %float.default = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %float.saved)
  store i32 8064, ptr %float.default
  call void @llvm.x86.sse.ldmxcsr(ptr %float.default)
""",
    "leave_float": "call void @llvm.x86.sse.ldmxcsr(ptr %float.saved)",
}
_AARCH64_PARTS: Final = {
    "futex": "98",
    "madvise": "233",
    "declare": """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
""",
    "pause": "call void @llvm.aarch64.hint(i32 1)",
    "enter_float": """
  %float.saved = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)
""",
    "leave_float": "call void @llvm.aarch64.set.fpcr(i64 %float.saved)",
}

_POOL: Final = """
declare i64 @syscall(i64, ...)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
$declare

define internal void @sleep_while(ptr %word, i32 %value) nounwind {
  %wide = zext i32 %value to i64
  call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i64 %wide, ptr null)
  ret void
}

define internal void @wake(ptr %word, i64 %count) nounwind {
  call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i64 %count)
  ret void
}

define internal i64 @now() nounwind {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

; Take units until none is left: first of the own range, then of the others', a share of the rest of
; a range at a time.
define internal void @work(ptr %pool, i64 %self, ptr %scratch) nounwind {
entry:
  %record.at = getelementptr i8, ptr %pool, i64 $record
  %record = load ptr, ptr %record.at
  %tasks.at = getelementptr i8, ptr %pool, i64 $tasks
  %tasks = load i64, ptr %tasks.at
  %grain.at = getelementptr i8, ptr %pool, i64 $grain
  %grain = load i64, ptr %grain.at
  %width.at = getelementptr i8, ptr %pool, i64 $width
  %width = load i64, ptr %width.at
  %kernel = load ptr, ptr %record
  %buffers.at = getelementptr i8, ptr %record, i64 $record_buffers
  %buffers = load ptr, ptr %buffers.at
  %variables.at = getelementptr i8, ptr %record, i64 $record_variables
  %variables = load ptr, ptr %variables.at
  br label %victim
victim:
  %step = phi i64 [0, %entry], [%step.next, %exhausted]
  %sum = add i64 %self, %step
  %wraps = icmp uge i64 %sum, %width
  %wrapped = sub i64 %sum, %width
  %owner = select i1 %wraps, i64 %wrapped, i64 %sum
  %distance = mul i64 %owner, $slot_bytes
  %offset = add i64 %distance, $slots
  %next.at = getelementptr i8, ptr %pool, i64 %offset
  %end.at = getelementptr i8, ptr %next.at, i64 $slot_end
  %end = load atomic i64, ptr %end.at monotonic, align 8
  br label %look
look:
  %seen = load atomic i64, ptr %next.at monotonic, align 8
  %left = sub i64 %end, %seen
  %may = icmp sgt i64 %left, 0
  br i1 %may, label %claim, label %exhausted
claim:
  %left.padded = add i64 %left, $share_less
  %take = udiv i64 %left.padded, $share
  %after = add i64 %seen, %take
  %attempt = cmpxchg ptr %next.at, i64 %seen, i64 %after monotonic monotonic
  %mine = extractvalue { i64, i1 } %attempt, 1
  br i1 %mine, label %run, label %look
run:
  %begin = mul i64 %seen, %grain
  %full = mul i64 %after, %grain
  %over = icmp sgt i64 %full, %tasks
  %stop = select i1 %over, i64 %tasks, i64 %full
  call void %kernel(ptr %buffers, ptr %variables, i64 %begin, i64 %stop, ptr %scratch)
  br label %look
exhausted:
  %step.next = add i64 %step, 1
  %more = icmp ult i64 %step.next, %width
  br i1 %more, label %victim, label %done
done:
  ret void
}

; Wait until no worker is inside a closed gate.
define internal void @wait_outside(ptr %pool, i64 %spin) nounwind {
entry:
  br label %look
look:
  %turn = phi i64 [0, %entry], [%turn.next, %again]
  %inside = load atomic i32, ptr %pool acquire, align 4
  %none = icmp eq i32 %inside, 0
  br i1 %none, label %done, label %again
again:
  $pause
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, %spin
  br i1 %patient, label %look, label %announce
announce:
  %waiting.at = getelementptr i8, ptr %pool, i64 $waiting
  %before = atomicrmw xchg ptr %waiting.at, i32 1 seq_cst
  br label %check
check:
  %left = load atomic i32, ptr %pool seq_cst, align 4
  %free = icmp eq i32 %left, 0
  br i1 %free, label %retract, label %sleep
sleep:
  call void @sleep_while(ptr %pool, i32 %left)
  br label %check
retract:
  store atomic i32 0, ptr %waiting.at seq_cst, align 4
  br label %done
done:
  ret void
}

; Run `tasks` as `chunks` pieces on all participants; returns when all is done.
define internal void @parallel(ptr %pool, ptr %record, i64 %tasks, i64 %grain, i64 %chunks,
                               i64 %width, ptr %scratch) nounwind {
entry:
  %record.at = getelementptr i8, ptr %pool, i64 $record
  store ptr %record, ptr %record.at
  %tasks.at = getelementptr i8, ptr %pool, i64 $tasks
  store i64 %tasks, ptr %tasks.at
  %grain.at = getelementptr i8, ptr %pool, i64 $grain
  store i64 %grain, ptr %grain.at
  %share = udiv i64 %chunks, %width
  %rest = urem i64 %chunks, %width
  br label %deal
deal:
  %slot = phi i64 [0, %entry], [%slot.next, %deal]
  %first = phi i64 [0, %entry], [%last, %deal]
  %extra.wanted = icmp ult i64 %slot, %rest
  %extra = zext i1 %extra.wanted to i64
  %size = add i64 %share, %extra
  %last = add i64 %first, %size
  %distance = mul i64 %slot, $slot_bytes
  %offset = add i64 %distance, $slots
  %next.at = getelementptr i8, ptr %pool, i64 %offset
  store atomic i64 %first, ptr %next.at monotonic, align 8
  %end.at = getelementptr i8, ptr %next.at, i64 $slot_end
  store atomic i64 %last, ptr %end.at monotonic, align 8
  %slot.next = add i64 %slot, 1
  %dealing = icmp ult i64 %slot.next, %width
  br i1 %dealing, label %deal, label %open
open:
  %closed = atomicrmw add ptr %pool, i64 4294967296 seq_cst
  %sleepers.at = getelementptr i8, ptr %pool, i64 $sleepers
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %help
rouse:
  %high.at = getelementptr i8, ptr %pool, i64 4
  %wanted = sub i64 %chunks, 1
  call void @wake(ptr %high.at, i64 %wanted)
  br label %help
help:
  call void @work(ptr %pool, i64 0, ptr %scratch)
  %opened = atomicrmw add ptr %pool, i64 4294967296 seq_cst
  %inside = trunc i64 %opened to i32
  %alone = icmp eq i32 %inside, 0
  br i1 %alone, label %done, label %wait
wait:
  %spin.at = getelementptr i8, ptr %pool, i64 $spin
  %spin = load i64, ptr %spin.at
  %long = mul i64 %spin, $patience
  call void @wait_outside(ptr %pool, i64 %long)
  br label %done
done:
  ret void
}

; The life of a worker; `slot` is its own slot.  A thread starts with the floating-point mode of the
; one that made it, which another library may have set.
define ptr @tilework_worker(ptr %slot) nounwind {
entry:
  $enter_float
  %pool.at = getelementptr i8, ptr %slot, i64 $slot_pool
  %pool = load ptr, ptr %pool.at
  %index.at = getelementptr i8, ptr %slot, i64 $slot_index
  %index = load i64, ptr %index.at
  %spin.at = getelementptr i8, ptr %pool, i64 $spin
  %spin = load i64, ptr %spin.at
  %high.at = getelementptr i8, ptr %pool, i64 4
  %sleepers.at = getelementptr i8, ptr %pool, i64 $sleepers
  %waiting.at = getelementptr i8, ptr %pool, i64 $waiting
  %stop.at = getelementptr i8, ptr %pool, i64 $stop
  %record.at = getelementptr i8, ptr %pool, i64 $record
  %seen = alloca i32
  %scratch = alloca ptr
  %scratch.bytes = alloca i64
  store i32 0, ptr %seen
  store ptr null, ptr %scratch
  store i64 0, ptr %scratch.bytes
  br label %idle
idle:
  br label %look
look:
  %turn = phi i64 [0, %idle], [%turn.next, %again], [%turn, %enter]
  %gate = load atomic i64, ptr %pool acquire, align 8
  %gate.high = lshr i64 %gate, 32
  %high = trunc i64 %gate.high to i32
  %open.bit = trunc i32 %high to i1
  %old = load i32, ptr %seen
  %fresh = icmp ne i32 %high, %old
  %wanted = and i1 %open.bit, %fresh
  br i1 %wanted, label %enter, label %again
again:
  $pause
  %turn.next = add i64 %turn, 1
  %patient = icmp ult i64 %turn.next, %spin
  br i1 %patient, label %look, label %tire
enter:
  %gate.mine = add i64 %gate, 1
  %attempt = cmpxchg ptr %pool, i64 %gate, i64 %gate.mine seq_cst monotonic
  %entered = extractvalue { i64, i1 } %attempt, 1
  br i1 %entered, label %inside, label %look
inside:
  store i32 %high, ptr %seen
  %stop = load atomic i32, ptr %stop.at acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %exit, label %measure
measure:
  %record = load ptr, ptr %record.at
  %need.at = getelementptr i8, ptr %record, i64 $record_scratch
  %need = load i64, ptr %need.at
  %have = load i64, ptr %scratch.bytes
  %lacking = icmp ugt i64 %need, %have
  br i1 %lacking, label %grow, label %ready
grow:
  %fresh.pages = call ptr @mmap(ptr null, i64 %need, i32 3, i32 34, i32 -1, i64 0)
  %pages.number = ptrtoint ptr %fresh.pages to i64
  %refused = icmp eq i64 %pages.number, -1
  br i1 %refused, label %leave, label %swap
swap:
  ; Huge pages where they are to be had, as the caller's memory asks for them; else it is as it is.
  %advised = call i64 (i64, ...) @syscall(i64 $madvise, ptr %fresh.pages, i64 %need, i64 14)
  %worn = load ptr, ptr %scratch
  store ptr %fresh.pages, ptr %scratch
  store i64 %need, ptr %scratch.bytes
  %had = icmp ne i64 %have, 0
  br i1 %had, label %discard, label %ready
discard:
  %unmapped = call i32 @munmap(ptr %worn, i64 %have)
  br label %ready
ready:
  %own = load ptr, ptr %scratch
  call void @work(ptr %pool, i64 %index, ptr %own)
  br label %leave
leave:
  %gate.was = atomicrmw sub ptr %pool, i64 1 seq_cst
  %inside.was = trunc i64 %gate.was to i32
  %last = icmp eq i32 %inside.was, 1
  br i1 %last, label %tell, label %idle
tell:
  %waiting = load atomic i32, ptr %waiting.at seq_cst, align 4
  %awaited = icmp ne i32 %waiting, 0
  br i1 %awaited, label %call, label %idle
call:
  call void @wake(ptr %pool, i64 1)
  br label %idle
tire:
  %sleepers = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  %now = load atomic i32, ptr %high.at seq_cst, align 4
  %now.open = trunc i32 %now to i1
  %known = load i32, ptr %seen
  %now.fresh = icmp ne i32 %now, %known
  %now.wanted = and i1 %now.open, %now.fresh
  br i1 %now.wanted, label %rise, label %sleep
sleep:
  call void @sleep_while(ptr %high.at, i32 %now)
  br label %rise
rise:
  %sleepers.left = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  br label %idle
exit:
  %final = load i64, ptr %scratch.bytes
  %holds = icmp ne i64 %final, 0
  br i1 %holds, label %give, label %quit
give:
  %final.pages = load ptr, ptr %scratch
  %given = call i32 @munmap(ptr %final.pages, i64 %final)
  br label %quit
quit:
  %out = atomicrmw sub ptr %pool, i64 1 seq_cst
  %live.at = getelementptr i8, ptr %pool, i64 $live
  %live = atomicrmw sub ptr %live.at, i32 1 seq_cst
  ret ptr null
}

; Ask all workers to end.  Returns 0 when a sequence has the pool: ask again later.
define i64 @tilework_stop(ptr %pool) nounwind {
entry:
  %lock.at = getelementptr i8, ptr %pool, i64 $lock
  %attempt = cmpxchg ptr %lock.at, i32 0, i32 1 acquire monotonic
  %locked = extractvalue { i32, i1 } %attempt, 1
  br i1 %locked, label %stop, label %busy
stop:
  %stop.at = getelementptr i8, ptr %pool, i64 $stop
  store atomic i32 1, ptr %stop.at seq_cst, align 4
  %closed = atomicrmw add ptr %pool, i64 4294967296 seq_cst
  %high.at = getelementptr i8, ptr %pool, i64 4
  call void @wake(ptr %high.at, i64 2147483647)
  ret i64 1
busy:
  ret i64 0
}

; Pause `count` times, to measure how long a pause is.
define void @tilework_spin(i64 %count) nounwind {
entry:
  br label %turn
turn:
  %index = phi i64 [0, %entry], [%next, %turn]
  $pause
  %next = add i64 %index, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %turn, label %done
done:
  ret void
}
"""


def pool_source(isa: str) -> str:
    """Return the LLVM IR of the pool for `isa`.

    Raises: UnsupportedError when the instruction set is neither x86-64 nor aarch64.
    """
    parts = {X86_64: _X86_PARTS, AARCH64: _AARCH64_PARTS}.get(isa)
    if parts is None:
        raise UnsupportedError("pool: no native code for this instruction set", got=isa)
    numbers = {
        "waiting": POOL_WAITING,
        "sleepers": POOL_SLEEPERS,
        "record": POOL_RECORD,
        "tasks": POOL_TASKS,
        "grain": POOL_GRAIN,
        "lock": POOL_LOCK,
        "live": POOL_LIVE,
        "stop": POOL_STOP,
        "width": POOL_WIDTH,
        "spin": POOL_SPIN,
        "patience": CALLER_PATIENCE,
        "units": UNITS_PER_RANGE,
        "share": SHARE_OF_REST,
        "share_less": SHARE_OF_REST - 1,
        "slots": POOL_SLOTS,
        "slot_bytes": SLOT_BYTES,
        "slot_end": SLOT_END,
        "slot_pool": SLOT_POOL,
        "slot_index": SLOT_INDEX,
        "record_bytes": RECORD_BYTES,
        "record_buffers": RECORD_BUFFERS,
        "record_variables": RECORD_VARIABLES,
        "record_tasks": RECORD_TASKS,
        "record_grain": RECORD_GRAIN,
        "record_flags": RECORD_FLAGS,
        "record_scratch": RECORD_SCRATCH,
        "flag_serial": FLAG_SERIAL,
        "call_count": CALL_COUNT,
        "call_fault": CALL_FAULT,
        "block": COPY_BLOCK_BYTES,
    }
    text = "".join([_POOL, RUNNER, kernels_text()])
    return Template(text).substitute(parts, **numbers)
