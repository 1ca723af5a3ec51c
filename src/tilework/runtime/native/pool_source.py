"""The thread pool and the sequence runner as LLVM IR, for the baseline of an instruction set.

How a parallel launch works.  The word `gate` holds, in its high half, a counter that is odd
while a job is open, and in its low half the number of workers inside.  The caller writes the job,
opens the gate, works itself, closes the gate and waits until the low half is zero.  A worker that
comes too late finds the gate closed and stays out, so a sleeping worker never delays a launch.
The chunks are dealt out in contiguous ranges, one per participant, so that a thread meets the
same part of the data in each launch; who has finished takes chunks from the others' ranges.

Idle workers spin for a moment and then sleep in a futex on the high half of the gate.  All
hand-overs are sequentially consistent read-modify-writes of `gate`, `sleepers` or `waiting`.

Kernels run with the default floating-point environment (rounding to nearest, subnormals kept),
whatever the calling thread has set.
"""

from __future__ import annotations

from string import Template
from typing import Final

from tilework.base.errors import UnsupportedError
from tilework.target.features import AARCH64, X86_64

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

# Offsets in the pool's memory; one cache line for each group of writers.
POOL_GATE: Final = 0
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
SLOT_BYTES: Final = 64
SLOT_NEXT: Final = 0
SLOT_END: Final = 8
SLOT_POOL: Final = 16
SLOT_INDEX: Final = 24

# A caller waits so many times as long as an idle worker before it sleeps: until chunks end that
# have begun, and a wake-up costs more than the rest of most of them.
CALLER_PATIENCE: Final = 16

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

_TEXT: Final = Template("""
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

; Take chunks until none is left: first of the own range, then of the others'.
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
  %may = icmp slt i64 %seen, %end
  br i1 %may, label %claim, label %exhausted
claim:
  %chunk = atomicrmw add ptr %next.at, i64 1 monotonic
  %mine = icmp slt i64 %chunk, %end
  br i1 %mine, label %run, label %exhausted
run:
  %begin = mul i64 %chunk, %grain
  %full = add i64 %begin, %grain
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

; Run `count` records in order.  Returns 1 when it had the pool, 0 when it ran alone: a second
; caller never waits for the first, it does its work on its own thread.
define i64 @tilework_run(ptr %pool, ptr %records, i64 %count, ptr %scratch, ptr %times) nounwind {
entry:
  $enter_float
  %no.pool = icmp eq ptr %pool, null
  br i1 %no.pool, label %begin, label %ask
ask:
  %lock.at = getelementptr i8, ptr %pool, i64 $lock
  %attempt = cmpxchg ptr %lock.at, i32 0, i32 1 acquire monotonic
  %locked = extractvalue { i32, i1 } %attempt, 1
  %width.at = getelementptr i8, ptr %pool, i64 $width
  %width.found = load i64, ptr %width.at
  %width.mine = select i1 %locked, i64 %width.found, i64 1
  br label %begin
begin:
  %owned = phi i1 [false, %entry], [%locked, %ask]
  %width = phi i64 [1, %entry], [%width.mine, %ask]
  %timed = icmp ne ptr %times, null
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %next, label %finish
next:
  %index = phi i64 [0, %begin], [%index.next, %after]
  %offset = mul i64 %index, $record_bytes
  %record = getelementptr i8, ptr %records, i64 %offset
  br i1 %timed, label %clock, label %launch
clock:
  %started = call i64 @now()
  br label %launch
launch:
  %start = phi i64 [0, %next], [%started, %clock]
  %tasks.at = getelementptr i8, ptr %record, i64 $record_tasks
  %tasks = load i64, ptr %tasks.at
  %flags.at = getelementptr i8, ptr %record, i64 $record_flags
  %flags = load i64, ptr %flags.at
  %serial.bit = and i64 %flags, $flag_serial
  %is.serial = icmp ne i64 %serial.bit, 0
  %narrow = icmp ule i64 %width, 1
  %single = icmp sle i64 %tasks, 1
  %a = or i1 %is.serial, %narrow
  %alone = or i1 %a, %single
  br i1 %alone, label %serial, label %split
split:
  %grain.at = getelementptr i8, ptr %record, i64 $record_grain
  %grain.asked = load i64, ptr %grain.at
  %pieces = shl i64 %width, 2
  %pieces.less = sub i64 %pieces, 1
  %rounded = add i64 %tasks, %pieces.less
  %even = udiv i64 %rounded, %pieces
  %unset = icmp sle i64 %grain.asked, 0
  %grain = select i1 %unset, i64 %even, i64 %grain.asked
  %grain.less = sub i64 %grain, 1
  %padded = add i64 %tasks, %grain.less
  %chunks = udiv i64 %padded, %grain
  %many = icmp ugt i64 %chunks, 1
  br i1 %many, label %fan, label %serial
fan:
  call void @parallel(ptr %pool, ptr %record, i64 %tasks, i64 %grain, i64 %chunks, i64 %width,
                      ptr %scratch)
  br label %ran
serial:
  %nonempty = icmp sgt i64 %tasks, 0
  br i1 %nonempty, label %call, label %ran
call:
  %kernel = load ptr, ptr %record
  %buffers.at = getelementptr i8, ptr %record, i64 $record_buffers
  %buffers = load ptr, ptr %buffers.at
  %variables.at = getelementptr i8, ptr %record, i64 $record_variables
  %variables = load ptr, ptr %variables.at
  call void %kernel(ptr %buffers, ptr %variables, i64 0, i64 %tasks, ptr %scratch)
  br label %ran
ran:
  br i1 %timed, label %note, label %after
note:
  %ended = call i64 @now()
  %span = sub i64 %ended, %start
  %time.at = getelementptr i64, ptr %times, i64 %index
  store i64 %span, ptr %time.at
  br label %after
after:
  %index.next = add i64 %index, 1
  %more = icmp slt i64 %index.next, %count
  br i1 %more, label %next, label %finish
finish:
  br i1 %owned, label %unlock, label %leave
unlock:
  %lock.held = getelementptr i8, ptr %pool, i64 $lock
  store atomic i32 0, ptr %lock.held release, align 4
  br label %leave
leave:
  $leave_float
  %result = zext i1 %owned to i64
  ret i64 %result
}

; A function of the Python interpreter (`runtime.interpreter`): run records on this thread alone,
; and return what stands in the fault word.
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLongLong(i64)
define ptr @tilework_call(ptr %self, ptr %nothing) nounwind {
  %call = call ptr @PyLong_AsVoidPtr(ptr %self)
  %records = load ptr, ptr %call
  %count.at = getelementptr i8, ptr %call, i64 $call_count
  %count = load i64, ptr %count.at
  %owned = call i64 @tilework_run(ptr null, ptr %records, i64 %count, ptr null, ptr null)
  %fault.at = getelementptr i8, ptr %call, i64 $call_fault
  %word = load ptr, ptr %fault.at
  %fault = load i64, ptr %word
  %result = call ptr @PyLong_FromLongLong(i64 %fault)
  ret ptr %result
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

; Kernel: buffers[0] <- buffers[1], variables[1] bytes; a task is a block.
define void @tilework_copy(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)
    nounwind {
  %target = load ptr, ptr %buffers
  %source.at = getelementptr ptr, ptr %buffers, i64 1
  %source = load ptr, ptr %source.at
  %size.at = getelementptr i64, ptr %variables, i64 1
  %size = load i64, ptr %size.at
  %first = mul i64 %begin, $block
  %full = mul i64 %end, $block
  %over = icmp ugt i64 %full, %size
  %last = select i1 %over, i64 %size, i64 %full
  %count = sub i64 %last, %first
  %to = getelementptr i8, ptr %target, i64 %first
  %from = getelementptr i8, ptr %source, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %count, i1 false)
  ret void
}

; Kernel: each of the variables[1] bytes of buffers[0] <- the low byte of variables[2].
define void @tilework_fill(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)
    nounwind {
  %target = load ptr, ptr %buffers
  %size.at = getelementptr i64, ptr %variables, i64 1
  %size = load i64, ptr %size.at
  %value.at = getelementptr i64, ptr %variables, i64 2
  %value = load i64, ptr %value.at
  %byte = trunc i64 %value to i8
  %first = mul i64 %begin, $block
  %full = mul i64 %end, $block
  %over = icmp ugt i64 %full, %size
  %last = select i1 %over, i64 %size, i64 %full
  %count = sub i64 %last, %first
  %to = getelementptr i8, ptr %target, i64 %first
  call void @llvm.memset.p0.i64(ptr %to, i8 %byte, i64 %count, i1 false)
  ret void
}

; Kernel: one operation for each row of `runtime.self_test`; buffers[0] <- results, buffers[1] has
; two words of operands for each.
define void @tilework_probe(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch)
    nounwind {
  %out = load ptr, ptr %buffers
  %in.at = getelementptr ptr, ptr %buffers, i64 1
  %in = load ptr, ptr %in.at
  %a0 = getelementptr i64, ptr %in, i64 0
  %b0 = getelementptr i64, ptr %in, i64 1
  %x0 = load float, ptr %a0
  %s0 = bitcast float %x0 to i32
  %r0 = zext i32 %s0 to i64
  %o0 = getelementptr i64, ptr %out, i64 0
  store i64 %r0, ptr %o0
  %a1 = getelementptr i64, ptr %in, i64 2
  %b1 = getelementptr i64, ptr %in, i64 3
  %x1 = load float, ptr %a1
  %y1 = load float, ptr %b1
  %z1 = fadd float %x1, %y1
  %s1 = bitcast float %z1 to i32
  %r1 = zext i32 %s1 to i64
  %o1 = getelementptr i64, ptr %out, i64 1
  store i64 %r1, ptr %o1
  %a2 = getelementptr i64, ptr %in, i64 4
  %b2 = getelementptr i64, ptr %in, i64 5
  %x2 = load float, ptr %a2
  %y2 = load float, ptr %b2
  %z2 = fadd float %x2, %y2
  %s2 = bitcast float %z2 to i32
  %r2 = zext i32 %s2 to i64
  %o2 = getelementptr i64, ptr %out, i64 2
  store i64 %r2, ptr %o2
  %a3 = getelementptr i64, ptr %in, i64 6
  %b3 = getelementptr i64, ptr %in, i64 7
  %x3 = load float, ptr %a3
  %y3 = load float, ptr %b3
  %z3 = fmul float %x3, %y3
  %s3 = bitcast float %z3 to i32
  %r3 = zext i32 %s3 to i64
  %o3 = getelementptr i64, ptr %out, i64 3
  store i64 %r3, ptr %o3
  %a4 = getelementptr i64, ptr %in, i64 8
  %b4 = getelementptr i64, ptr %in, i64 9
  %x4 = load float, ptr %a4
  %y4 = load float, ptr %b4
  %z4 = fmul float %x4, %y4
  %s4 = bitcast float %z4 to i32
  %r4 = zext i32 %s4 to i64
  %o4 = getelementptr i64, ptr %out, i64 4
  store i64 %r4, ptr %o4
  %a5 = getelementptr i64, ptr %in, i64 10
  %b5 = getelementptr i64, ptr %in, i64 11
  %x5 = load i64, ptr %a5
  %y5 = load i64, ptr %b5
  %r5 = mul i64 %x5, %y5
  %o5 = getelementptr i64, ptr %out, i64 5
  store i64 %r5, ptr %o5
  %a6 = getelementptr i64, ptr %in, i64 12
  %b6 = getelementptr i64, ptr %in, i64 13
  %x6 = load i64, ptr %a6
  %y6 = load i64, ptr %b6
  %r6 = shl i64 %x6, %y6
  %o6 = getelementptr i64, ptr %out, i64 6
  store i64 %r6, ptr %o6
  %a7 = getelementptr i64, ptr %in, i64 14
  %b7 = getelementptr i64, ptr %in, i64 15
  %x7 = load i64, ptr %a7
  %y7 = load i64, ptr %b7
  %r7 = ashr i64 %x7, %y7
  %o7 = getelementptr i64, ptr %out, i64 7
  store i64 %r7, ptr %o7
  %a8 = getelementptr i64, ptr %in, i64 16
  %b8 = getelementptr i64, ptr %in, i64 17
  %x8 = load double, ptr %a8
  %r8 = fptosi double %x8 to i64
  %o8 = getelementptr i64, ptr %out, i64 8
  store i64 %r8, ptr %o8
  ret void
}
""")


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
    return _TEXT.substitute(parts, **numbers)
