"""Running launch records one after the other, as LLVM IR.

`tilework_run` is the one native call of a replay.  Records lie in a table that Python has written
(`runtime.launch`): those with work for several threads go through the pool (`native.pool_source`),
the others run on the caller.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = """
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
  %pieces = mul i64 %width, $units
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
"""
