import ctypes
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tilework.base import faults, trace
from tilework.base.clock import Deadline
from tilework.base.errors import DeviceTimeoutError, StaleHandleError, UnsupportedError
from tilework.base.ledger import Kind, Ledger
from tilework.runtime import reclaim
from tilework.runtime.hostos import host_os
from tilework.runtime.launch import KernelLaunch, LaunchTable
from tilework.runtime.loader import LoadedCode
from tilework.runtime.platform_linux import LinuxHost
from tilework.runtime.pool import ThreadPool

from .conftest import MakeNumbers


def copy_launch(
    kernels: LoadedCode, source: int, target: int, tasks: int, extra: int = 0, grain: int = 0
) -> KernelLaunch:
    return KernelLaunch(
        kernels.address_of("copy_scaled"), (source, target), (extra,), tasks=tasks, grain=grain
    )


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 4, 11, 12, 13, 997])
@pytest.mark.parametrize("grain", [0, 1, 5, 1000])
def test_each_task_is_done_exactly_once(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers, tasks: int, grain: int
) -> None:
    total = numbers(*[0] * 1000)
    # Adding to the target in place would count a repeated task twice.
    for _ in range(3):
        launch = copy_launch(kernels, total.address, total.address, tasks, 1, grain=grain)
        pool.run(LaunchTable([launch], 0))
    assert total.values == [13] * tasks + [0] * (1000 - tasks)


def test_pieces_become_smaller_so_that_a_slow_core_holds_up_little(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    # Whoever takes from a range takes a third of its rest: the cuts do not depend on the threads.
    sizes = numbers(*[0] * 48)
    launch = KernelLaunch(kernels.address_of("measure"), (sizes.address,), tasks=48)
    pool.run(LaunchTable([launch], 0))
    assert sizes.values == [6, 0, 0, 0, 0, 0, 4, 0, 0, 0, 2, 0, 2, 0, 2, 0] * 3


def test_records_run_in_order_and_see_each_other(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells = [numbers(*range(64))] + [numbers(*[0] * 64) for _ in range(40)]
    launches = [
        copy_launch(kernels, a.address, b.address, 64, 1) for a, b in itertools.pairwise(cells)
    ]
    for _ in range(50):
        pool.run(LaunchTable(launches, 0))
    expected = list(range(64))
    for _ in range(40):
        expected = [(3 * x + 1) % 2**64 for x in expected]
    assert [x % 2**64 for x in cells[-1].values] == expected


def test_words_of_a_table_can_be_changed_between_runs(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    source, first, second = numbers(1, 2, 3), numbers(0, 0, 0), numbers(0, 0, 0)
    table = LaunchTable([copy_launch(kernels, source.address, first.address, 3, 5)], 0)
    pool.run(table)
    table.words[table.buffer_word(0, 1)] = second.address
    table.words[table.variable_word(0, 0)] = 7
    table.words[table.tasks_word(0)] = 2
    pool.run(table)
    assert (first.values, second.values) == ([8, 11, 14], [10, 13, 0])


def test_the_fault_word_reaches_the_host(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    fault = numbers(0)
    pool.run(LaunchTable([KernelLaunch(kernels.address_of("report"), ())], fault.address))
    assert fault.values == [7]


def test_each_thread_has_scratch_memory(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    target = numbers(*[0] * 500)
    launch = KernelLaunch(
        kernels.address_of("scribble"), (target.address,), tasks=500, grain=1, scratch_bytes=1000
    )
    pool.run(LaunchTable([launch] * 20, 0))
    assert target.values == list(range(1, 501))


def test_times_are_given_for_each_record(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    nap = KernelLaunch(kernels.address_of("nap"), (), serial=True)
    quick = KernelLaunch(kernels.address_of("report"), ())
    fault, times = numbers(0), numbers(0, 0)
    pool.run(LaunchTable([nap, quick], fault.address), times.address)
    assert times.values[0] >= 20_000_000
    assert times.values[1] > 0


def test_no_thread_is_started_for_serial_work(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells = numbers(1, 2)
    launch = KernelLaunch(
        kernels.address_of("copy_scaled"), (cells.address,) * 2, (0,), tasks=2, serial=True
    )
    pool.run(LaunchTable([launch], 0))
    assert not pool.is_started


def test_parallel_work_runs_on_several_threads(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    # Each of three tasks ends only once all of them run.
    here, met = numbers(0), numbers(0, 0, 0)
    operands = (here.address, met.address)
    launch = KernelLaunch(kernels.address_of("meet"), operands, (3,), tasks=3, grain=1)
    pool.run(LaunchTable([launch], 0))
    assert met.values == [1, 1, 1]


@contextmanager
def held(pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers) -> Iterator[threading.Thread]:
    """A table that another thread runs, in parallel, from before the block until its end."""
    cells = numbers(0, 0)
    # One task waits, the other finds nothing to wait for once the block has ended.
    launch = KernelLaunch(kernels.address_of("hold"), (cells.address,), tasks=2, grain=1)
    other = threading.Thread(target=pool.run, args=(LaunchTable([launch], 0),))
    other.start()
    try:
        limit = Deadline.after(60)
        while not cells.values[0] and not limit.is_past():
            time.sleep(0.001)
        assert cells.values == [1, 0]
        yield other
    finally:
        ctypes.c_int64.from_address(cells.address + 8).value = 1
        other.join()


def test_two_callers_at_once_do_not_wait_for_each_other(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells = [numbers(*range(100)), numbers(*[0] * 100)]
    quick = LaunchTable([copy_launch(kernels, cells[0].address, cells[1].address, 100)], 0)
    pool.run(quick)
    with held(pool, kernels, numbers) as other:
        had_workers = pool.run(quick)
        assert other.is_alive()
    assert not had_workers
    assert cells[1].values == [3 * x for x in range(100)]


def test_many_python_threads_get_right_results(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    failures: list[int] = []

    def work(number: int) -> None:
        source, target = numbers(*range(200)), numbers(*[0] * 200)
        table = LaunchTable([copy_launch(kernels, source.address, target.address, 200, number)], 0)
        for _ in range(300):
            ctypes.memset(target.address, 0, 1600)
            pool.run(table)
            if target.values != [3 * x + number for x in range(200)]:
                failures.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def told(file: Path) -> str:
    """What the kernel tells in a file of a task; nothing of a task that ended meanwhile."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def worker_tasks() -> set[Path]:
    """The threads of this process that are workers, of whichever pool."""
    tasks = Path("/proc/self/task").iterdir()
    return {task for task in tasks if told(task / "comm").startswith("tilework-")}


@pytest.fixture
def older_workers() -> set[Path]:
    """Workers of pools of other tests, as the one of an open device; ask for it before `pool`."""
    return worker_tasks()


def states(tasks: set[Path]) -> list[str]:
    """The scheduler's state of each worker: R runs, S sleeps."""
    return [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in tasks]


def test_workers_sleep_when_there_is_nothing_to_do(
    older_workers: set[Path], pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    cells = numbers(*range(30))
    pool.run(LaunchTable([copy_launch(kernels, cells.address, cells.address, 30)], 0))
    workers = worker_tasks() - older_workers
    assert len(workers) == 2
    limit = Deadline.after(60)
    while states(workers) != ["S", "S"] and not limit.is_past():
        time.sleep(0.001)
    assert states(workers) == ["S", "S"]


def test_results_are_right_after_the_workers_have_slept(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    source, target = numbers(*range(90)), numbers(*[0] * 90)
    for number in range(20):
        table = LaunchTable([copy_launch(kernels, source.address, target.address, 90, number)], 0)
        time.sleep(0.002)
        pool.run(table)
        assert target.values == [3 * x + number for x in range(90)]


def test_workers_block_every_signal(
    older_workers: set[Path], pool: ThreadPool, kernels: LoadedCode
) -> None:
    pool.run(LaunchTable([KernelLaunch(kernels.address_of("nap"), (), tasks=3, grain=1)], 0))
    masks = []
    for task in worker_tasks() - older_workers:
        status = (task / "status").read_text()
        masks.append(int(status.split("SigBlk:")[1].split()[0], 16))
    blocked = 1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1)
    assert len(masks) == 2
    assert all(mask & blocked == blocked for mask in masks)


def test_kernels_run_in_the_default_floating_point_environment(
    pool: ThreadPool, kernels: LoadedCode
) -> None:
    libm = ctypes.CDLL("libm.so.6")
    upward = {"x86-64": 0x800, "aarch64": 0x400000}[host_os().isa()]
    cells = (ctypes.c_double * 2)(1.0, 3.0)
    table = LaunchTable([KernelLaunch(kernels.address_of("thirds"), (ctypes.addressof(cells),))], 0)
    libm.fesetround(upward)
    try:
        pool.run(table)
        mode = libm.fegetround()
    finally:
        libm.fesetround(0)
    assert mode == upward  # given back to the caller as it was
    assert cells[0] == 0.3333333333333333


def test_BKE_05_workers_stop_and_join_within_a_second(
    older_workers: set[Path], native_object: bytes, kernels: LoadedCode
) -> None:
    ledger = Ledger()
    seconds = []
    for _ in range(3):
        pool = ThreadPool(native_object, 4, ledger=ledger)
        pool.run(LaunchTable([KernelLaunch(kernels.address_of("nap"), (), tasks=4, grain=1)], 0))
        assert ledger.snapshot()["CPU", Kind.THREAD] == 3
        assert len(worker_tasks() - older_workers) == 3
        started = time.perf_counter()
        pool.close()
        seconds.append(time.perf_counter() - started)
        assert ledger.snapshot() == {}
        limit = Deadline.after(60)  # a thread that was joined is listed for a moment longer
        while not worker_tasks() <= older_workers and not limit.is_past():
            time.sleep(0.001)
        assert worker_tasks() <= older_workers
    assert min(seconds) < 1.0  # where other processes may hold them up for longer


def test_a_closed_pool_refuses_work(native_object: bytes, kernels: LoadedCode) -> None:
    pool = ThreadPool(native_object, 2)
    pool.close()
    pool.close()
    with pytest.raises(StaleHandleError, match="was closed"):
        pool.run(LaunchTable([KernelLaunch(kernels.address_of("report"), ())], 0))


def test_closing_while_a_table_runs_times_out_and_can_be_repeated(
    native_object: bytes, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    pool = ThreadPool(native_object, 2)
    with (
        held(pool, kernels, numbers),
        pytest.raises(DeviceTimeoutError, match="closing the thread pool"),
    ):
        pool.close(0.02)
    pool.close()


def test_GEN_11_a_forked_child_starts_workers_of_its_own(
    pool: ThreadPool, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    source, target = numbers(*range(50)), numbers(*[0] * 50)
    table = LaunchTable([copy_launch(kernels, source.address, target.address, 50)], 0)
    pool.run(table)

    def child() -> None:
        assert not pool.is_started
        ctypes.memset(target.address, 0, 400)
        had_workers = pool.run(table)
        right = target.values == [3 * x for x in range(50)]
        pool.close()
        os._exit(0 if had_workers and right else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(timeout=60)
    assert process.exitcode == 0
    assert pool.run(table)


def test_a_system_without_more_threads_runs_with_fewer(
    native_object: bytes, kernels: LoadedCode, numbers: MakeNumbers
) -> None:
    ledger = Ledger()
    pool = ThreadPool(native_object, 4, ledger=ledger)
    source, target = numbers(*range(50)), numbers(*[0] * 50)
    table = LaunchTable([copy_launch(kernels, source.address, target.address, 50)], 0)
    with faults.fail_at(2):  # the pool's memory, the first thread, the second thread
        pool.run(table)
    assert target.values == [3 * x for x in range(50)]
    assert "runs with 2 threads instead of 4" in trace.recent_warnings()[-1].message
    pool.close()
    assert ledger.snapshot() == {}


def test_launches_over_the_limits_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="too many buffers"):
        LaunchTable([KernelLaunch(0, (0,) * 5000)], 0)
    with pytest.raises(UnsupportedError, match="too many variables"):
        LaunchTable([KernelLaunch(0, (), (0,) * 300)], 0)
    with pytest.raises(UnsupportedError, match="too many bytes of scratch"):
        LaunchTable([KernelLaunch(0, (), scratch_bytes=1 << 40)], 0)


def test_an_empty_table_runs(pool: ThreadPool) -> None:
    pool.run(LaunchTable([], 0))


def test_a_process_that_never_closes_its_pool_ends_at_once(
    native_object: bytes, kernel_object: bytes, tmp_path: Path
) -> None:
    for name, data in (("pool.o", native_object), ("kernels.o", kernel_object)):
        (tmp_path / name).write_bytes(data)
    script = (
        "import sys, pathlib\n"
        "sys.modules['llvmlite'] = sys.modules['numpy'] = None\n"
        "from tilework.runtime.loader import load_object\n"
        "from tilework.runtime.pool import ThreadPool\n"
        "from tilework.runtime.launch import KernelLaunch, LaunchTable\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "from tilework.runtime.hostos import host_os\n"
        "outside = {'usleep': host_os().symbol_address('usleep')}\n"
        "data = (folder / 'kernels.o').read_bytes()\n"
        "code = load_object(data, ['nap'], symbols=outside)\n"
        "pool = ThreadPool((folder / 'pool.o').read_bytes(), 3)\n"
        "launch = KernelLaunch(code.address_of('nap'), (), tasks=3, grain=1)\n"
        "raise SystemExit(40 + pool.run(LaunchTable([launch], 0)))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert result.returncode == 41


def test_workers_of_a_pool_that_nobody_closed_end_when_it_is_collected(
    native_object: bytes, kernels: LoadedCode
) -> None:
    ledger = Ledger()
    pool = ThreadPool(native_object, 3, ledger=ledger)
    pool.run(LaunchTable([KernelLaunch(kernels.address_of("nap"), (), tasks=3, grain=1)], 0))
    del pool
    reclaim.run()
    assert ledger.snapshot() == {}


def test_the_host_reports_a_thread_that_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = LinuxHost()

    class Full:
        def pthread_create(self, *_: object) -> int:
            return 11

    monkeypatch.setattr(host, "_libc", Full())
    with pytest.raises(Exception, match="a thread cannot be started"):
        host.start_thread(0, 0, "x")
