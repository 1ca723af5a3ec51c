"""Worker processes that are killed, stopped or loop: kernels are built all the same."""

import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tilework.backends.contract import KernelSource, WorkerToolchain
from tilework.base import trace
from tilework.base.errors import CompileError, ToolchainError
from tilework.engine import workers
from tilework.engine.device import Device
from tilework.engine.workers import WorkerPool
from tilework.ir.build import const_index

SOURCE = "define void @{name}(ptr %b, ptr %v, i64 %s, i64 %e, ptr %x) {{\n ret void\n}}\n"


def kernel_source(name: str, text: str) -> KernelSource:
    return KernelSource(
        name=name, text=text, tasks=const_index(1), variables=(), num_buffers=0, scratch_bytes=0
    )


def good(name: str) -> KernelSource:
    return kernel_source(name, SOURCE.format(name=name))


def toolchain() -> WorkerToolchain:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    return how


class Replacing:
    """Starts workers that run another program, as the worker process of a test."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.started = 0

    def __call__(self, how: WorkerToolchain) -> Any:
        self.started += 1
        return workers._Worker(how, self.program)


READY = (
    "import sys, struct, os, json, time, signal\n"
    "key = {key!r}.encode()\n"
    "os.write(1, struct.pack('<QB', len(key), 2) + key)\n"
)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    made = WorkerPool(how, 1)
    yield made
    made.close()


def test_EXE_24_a_killed_worker_is_replaced(pool: WorkerPool) -> None:
    assert pool.result(pool.submit(kernel_source("a", SOURCE.format(name="a"))))
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    assert pool.result(pool.submit(good("b"))) is None  # the caller builds this one
    assert pool.result(pool.submit(good("c")))
    assert pool.pids
    assert pid not in pool.pids


def test_EXE_24_a_refused_kernel_is_named(pool: WorkerPool) -> None:
    with pytest.raises(CompileError, match="this is the kernel bad"):
        pool.result(pool.submit(kernel_source("bad", "define void @bad( {")))


def test_EXE_24_a_kernel_that_kills_its_workers_is_named(pool: WorkerPool) -> None:
    # LLVM ends the process on an intrinsic that it cannot select.
    source = (
        "declare <vscale x 4 x i32> @llvm.x.stepvector()\n"
        "define void @deadly(ptr %b, ptr %v, i64 %s, i64 %e, ptr %x) {\n"
        ' call void asm sideeffect ".p2align 40\\0A", ""()\n ret void\n}\n'
    )
    events: list[trace.Event] = []
    with (
        trace.subscribe(events.append),
        pytest.raises(ToolchainError, match=r"deadly|refused|p2align"),
    ):
        pool.result(pool.submit(kernel_source("deadly", source)))


def test_a_pool_builds_here_and_starts_workers_once_kernels_wait() -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    started: list[object] = []
    may_go = threading.Event()

    def refuse(how: object) -> Any:
        started.append(how)
        raise OSError("no process")

    def build(source: KernelSource) -> bytes:
        assert may_go.wait(60)
        return source.name.encode()

    pool = WorkerPool(how, 1, build=build, patience=3, start=refuse)
    try:
        may_go.set()
        for n in range(8):  # the thread keeps up
            assert pool.result(pool.submit(kernel_source(f"k{n}", ""))) == b"k%d" % n
        assert not started
        may_go.clear()
        last = [pool.submit(kernel_source(f"k{n}", "")) for n in range(8, 15)]
        may_go.set()
        assert [pool.result(ticket) for ticket in last] == [b"k%d" % n for n in range(8, 15)]
    finally:
        may_go.set()
        pool.close()
    assert len(started) >= 1


def test_EXE_24_whatever_keeps_a_worker_from_starting_each_kernel_is_answered() -> None:
    def refuse(how: object) -> Any:
        raise RuntimeError("can't start new thread")

    pool = WorkerPool(toolchain(), 1, start=refuse)
    try:
        assert [pool.result(pool.submit(good(name))) for name in "abc"] == [None, None, None]
    finally:
        pool.close()


def test_an_error_of_a_build_in_this_process_is_raised_where_its_result_is_asked_for() -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None

    def build(source: KernelSource) -> bytes:
        raise CompileError("no")

    pool = WorkerPool(how, 1, build=build, patience=100)
    with pytest.raises(CompileError, match="no"):
        pool.result(pool.submit(kernel_source("k", "")))
    pool.close()


def test_a_pool_that_is_closed_early_does_not_wait_for_its_workers() -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    events: list[trace.Event] = []
    with trace.subscribe(events.append):
        pool = WorkerPool(how, 2, build=lambda source: b"here")
        assert pool.result(pool.submit(kernel_source("k", "")))
        pool.close()
    assert not events
    assert not pool.pids
    assert not [one for one in threading.enumerate() if one.name.startswith("tilework-compile")]


def test_the_workers_end_with_the_pool() -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    pool = WorkerPool(how, 2)
    for n in range(4):
        pool.result(pool.submit(kernel_source(f"k{n}", SOURCE.format(name=f"k{n}"))))
    pids = set(pool.pids)
    pool.close()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_EXE_24_workers_killed_at_random_times_lose_no_kernel() -> None:
    rng = random.Random(5)
    is_over = threading.Event()
    pool = WorkerPool(toolchain(), 2, build=Device["CPU"].compiler.build)

    def attack() -> None:
        while not is_over.wait(rng.uniform(0.0, 0.05)):
            for pid in list(pool.pids):
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]))

    attacker = threading.Thread(target=attack)
    attacker.start()
    started = time.monotonic()
    try:
        tickets = [pool.submit(good(f"k{n}")) for n in range(200)]
        results = [pool.result(ticket) for ticket in tickets]
    finally:
        is_over.set()
        attacker.join()
        pool.close()
    assert all(result is not None and result.startswith(b"\x7fELF") for result in results)
    assert time.monotonic() - started < 60.0


def test_EXE_24_a_stopped_worker_costs_seconds_and_its_kernel_is_built_here() -> None:
    pool = WorkerPool(toolchain(), 1)
    try:
        assert pool.result(pool.submit(good("a")))
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        assert pool.result(pool.submit(good("b"))) is None
        assert pool.result(pool.submit(good("c")))  # by another one
    finally:
        pool.close()


def test_a_worker_that_does_not_read_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STUCK_SECONDS", 0.5)
    start = Replacing(READY.format(key=toolchain().key) + "time.sleep(1000)")
    pool = WorkerPool(toolchain(), 1, start=start)
    try:
        long = kernel_source("long", SOURCE.format(name="long") + ";" + "-" * (1 << 22))
        assert pool.result(pool.submit(long)) is None
    finally:
        pool.close()


def test_a_worker_that_never_gets_ready_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STUCK_SECONDS", 0.5)
    events: list[trace.Event] = []
    pool = WorkerPool(toolchain(), 1, start=Replacing("import time; time.sleep(1000)"))
    with trace.subscribe(events.append):
        try:
            assert pool.result(pool.submit(good("a"))) is None
        finally:
            pool.close()
    assert "could not be started: it has not answered, nor computed" in str(events)


def test_EXE_24_a_kernel_whose_compiler_loops_is_named_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "JOB_SECONDS", 1.0)
    start = Replacing(READY.format(key=toolchain().key) + "while True: pass")
    pool = WorkerPool(toolchain(), 1, start=start)
    try:
        with pytest.raises(ToolchainError, match="a worker hung at the kernel loop"):
            pool.result(pool.submit(good("loop")))
        assert start.started == 1
    finally:
        pool.close()


def test_EXE_24_a_kernel_that_crashed_a_worker_is_not_built_in_this_process() -> None:
    built: list[str] = []
    start = Replacing(READY.format(key=toolchain().key) + "os.read(0, 1); os.abort()")
    # The kernels of the pool's own thread wait until the worker has taken the deadly one.
    is_taken = threading.Event()

    def build(source: KernelSource) -> bytes:
        is_taken.wait(30.0)
        built.append(source.name)
        return b"here"

    pool = WorkerPool(toolchain(), 1, build=build, patience=1, start=start)
    try:
        tickets = [pool.submit(good(f"k{n}")) for n in range(2)]
        outcomes: list[str] = []
        while start.started < 2:
            time.sleep(0.01)
        is_taken.set()
        for ticket in tickets:
            try:
                outcomes.append(str(pool.result(ticket)))
            except ToolchainError as error:
                outcomes.append(str(error))
    finally:
        pool.close()
    assert len(built) == 1
    assert sum("two workers in turn died at the kernel" in text for text in outcomes) == 1


@pytest.mark.parametrize("answer", [b"", b"\xff" * 9, b"\x02" + b"\0" * 7 + b"\x01{]"])
def test_a_worker_that_answers_nonsense_leaves_no_kernel_without_an_answer(answer: bytes) -> None:
    program = READY.format(key=toolchain().key) + f"os.read(0, 1); os.write(1, {answer!r})"
    pool = WorkerPool(toolchain(), 1, start=Replacing(program))
    try:
        ticket = pool.submit(good("a"))
        try:
            outcome = str(pool.result(ticket))
        except (ToolchainError, ValueError) as error:
            outcome = str(error)
        assert re.search("None|two workers in turn died|Expecting|malformed", outcome)
    finally:
        pool.close()


def test_closing_does_not_wait_for_kernels_that_nobody_wants() -> None:
    start = Replacing(READY.format(key=toolchain().key) + "while True: pass")
    pool = WorkerPool(toolchain(), 2, start=start)
    for n in range(4):
        pool.submit(good(f"k{n}"))
    while len(pool.pids) < 2:
        time.sleep(0.01)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 30.0
    assert not pool.pids


def test_EXE_24_workers_serve_a_process_with_very_many_open_files() -> None:
    descriptors: list[int] = []
    try:
        while not descriptors or descriptors[-1] < 1100:
            descriptors.append(os.dup(0 if sys.stdin is None else 1))
        pool = WorkerPool(toolchain(), 1)
        try:
            assert pool.result(pool.submit(good("a")))
        finally:
            pool.close()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
