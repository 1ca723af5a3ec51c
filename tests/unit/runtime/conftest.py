"""Kernels in LLVM IR, compiled once, and a pool to run them."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tilework.base.ledger import Ledger
from tilework.runtime.drivers.cpu import CpuDriver
from tilework.runtime.host import host_spec
from tilework.runtime.hostos import host_os
from tilework.runtime.loader import LoadedCode, load_object
from tilework.runtime.native.pool_source import pool_source
from tilework.runtime.pool import ThreadPool
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.toolchain.base import Passes
from tilework.toolchain.llvm import LlvmToolchain

SIGNATURE = "(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch) nounwind"

# copy_scaled: buffers[1][i] = buffers[0][i] * 3 + variables[1], int64, one element a task.
# report: stores 7 in the fault word.  nap: waits about `tasks` * 20 ms.
# hold: stores 1 in its first cell, and ends once its second cell is not 0.
# meet: adds 1 to the cell of its first buffer, waits until it holds variables[1], and then stores 1
# for its task.  Both give up after a minute.
# measure: adds the number of its tasks to the cell of its first task.
# scribble: fills its scratch of 1000 bytes, then stores task + 1.
KERNELS = f"""
define void @copy_scaled{SIGNATURE} {{
entry:
  %source = load ptr, ptr %buffers
  %target.at = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %target.at
  %extra.at = getelementptr i64, ptr %variables, i64 1
  %extra = load i64, ptr %extra.at
  %empty = icmp sge i64 %begin, %end
  br i1 %empty, label %done, label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %from = getelementptr i64, ptr %source, i64 %i
  %value = load i64, ptr %from
  %scaled = mul i64 %value, 3
  %sum = add i64 %scaled, %extra
  %to = getelementptr i64, ptr %target, i64 %i
  store i64 %sum, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define void @report{SIGNATURE} {{
  %fault = load ptr, ptr %variables
  store i64 7, ptr %fault
  ret void
}}

declare i32 @usleep(i32)
define void @nap{SIGNATURE} {{
  %count = sub i64 %end, %begin
  %short = trunc i64 %count to i32
  %time = mul i32 %short, 20000
  %status = call i32 @usleep(i32 %time)
  ret void
}}

define void @hold{SIGNATURE} {{
entry:
  %cells = load ptr, ptr %buffers
  %over.at = getelementptr i64, ptr %cells, i64 1
  store atomic i64 1, ptr %cells release, align 8
  br label %loop
loop:
  %turn = phi i64 [0, %entry], [%next, %loop]
  %next = add i64 %turn, 1
  %status = call i32 @usleep(i32 1000)
  %over = load atomic i64, ptr %over.at acquire, align 8
  %waits = icmp eq i64 %over, 0
  %early = icmp slt i64 %next, 60000
  %more = and i1 %waits, %early
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define void @meet{SIGNATURE} {{
entry:
  %cell = load ptr, ptr %buffers
  %seen.at = getelementptr ptr, ptr %buffers, i64 1
  %seen = load ptr, ptr %seen.at
  %wanted.at = getelementptr i64, ptr %variables, i64 1
  %wanted = load i64, ptr %wanted.at
  %before = atomicrmw add ptr %cell, i64 1 seq_cst
  br label %loop
loop:
  %turn = phi i64 [0, %entry], [%next, %loop]
  %next = add i64 %turn, 1
  %status = call i32 @usleep(i32 1000)
  %here = load atomic i64, ptr %cell acquire, align 8
  %waits = icmp slt i64 %here, %wanted
  %early = icmp slt i64 %next, 60000
  %more = and i1 %waits, %early
  br i1 %more, label %loop, label %done
done:
  %to = getelementptr i64, ptr %seen, i64 %begin
  %met = zext i1 %early to i64
  store i64 %met, ptr %to
  ret void
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @scribble{SIGNATURE} {{
entry:
  %target = load ptr, ptr %buffers
  call void @llvm.memset.p0.i64(ptr %scratch, i8 90, i64 1000, i1 false)
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %next = add i64 %i, 1
  %to = getelementptr i64, ptr %target, i64 %i
  store i64 %next, ptr %to
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define void @measure{SIGNATURE} {{
  %target = load ptr, ptr %buffers
  %to = getelementptr i64, ptr %target, i64 %begin
  %size = sub i64 %end, %begin
  %before = atomicrmw add ptr %to, i64 %size seq_cst
  ret void
}}

define void @thirds{SIGNATURE} {{
  %target = load ptr, ptr %buffers
  %x.at = getelementptr double, ptr %target, i64 1
  %x = load double, ptr %target
  %y = load double, ptr %x.at
  %quotient = fdiv double %x, %y
  store double %quotient, ptr %target
  ret void
}}
"""
NAMES = ("copy_scaled", "report", "nap", "hold", "meet", "scribble", "measure", "thirds")


@pytest.fixture(scope="session")
def native_object() -> bytes:
    """The pool, compiled for the baseline of this machine's instruction set."""
    is_x86 = host_spec().isa == "x86-64"
    baseline = x86_level_spec("x86-64") if is_x86 else aarch64_spec()
    return LlvmToolchain(baseline, passes=Passes.O2).compile(pool_source(baseline.isa))


@pytest.fixture(scope="session")
def kernel_object() -> bytes:
    """The kernels above for this machine."""
    return LlvmToolchain(host_spec()).compile(KERNELS)


@pytest.fixture(scope="session")
def outside() -> dict[str, int]:
    """The address that kernels call."""
    return {"usleep": host_os().symbol_address("usleep")}


@pytest.fixture
def kernels(kernel_object: bytes, outside: dict[str, int]) -> Iterator[LoadedCode]:
    """The kernels, loaded; `kernels.address_of(name)`."""
    with load_object(kernel_object, NAMES, symbols=outside, ledger=Ledger()) as code:
        yield code


@pytest.fixture
def ledger() -> Ledger:
    """A ledger of the test's own."""
    return Ledger()


@pytest.fixture
def pool(native_object: bytes, ledger: Ledger) -> Iterator[ThreadPool]:
    """Three threads, whatever the machine has."""
    made = ThreadPool(native_object, 3, ledger=ledger)
    yield made
    made.close()
    assert ledger.snapshot() == {}


@pytest.fixture
def driver(native_object: bytes, ledger: Ledger) -> Iterator[CpuDriver]:
    """The CPU with two threads; the ledger must be empty after it closed."""
    made = CpuDriver(native_object, num_threads=2, ledger=ledger)
    yield made
    made.close()


@dataclass
class Numbers:
    """int64 memory that a kernel can be pointed at."""

    array: "ctypes.Array[ctypes.c_int64]"

    @property
    def address(self) -> int:
        """Where it is."""
        return ctypes.addressof(self.array)

    @property
    def values(self) -> list[int]:
        """What it holds."""
        return list(self.array)


class MakeNumbers:
    """Makes int64 memory from values."""

    def __call__(self, *values: int) -> Numbers:
        return Numbers((ctypes.c_int64 * max(len(values), 1))(*values))


@pytest.fixture
def numbers() -> MakeNumbers:
    """A maker of int64 memory."""
    return MakeNumbers()
