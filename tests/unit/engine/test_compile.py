"""Compiling: once per key, from memory, disk or workers; damage and killed workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilework.backends.contract import KernelSource
from tilework.backends.native import code_cache
from tilework.base import faults, settings, trace
from tilework.base.errors import CompileError, ModelFileError, ToolchainError
from tilework.engine import compile as engine_compile
from tilework.engine import workers
from tilework.engine.compile import compile_kernels, kernel_key, pack_kernel, unpack_kernel
from tilework.engine.device import Device
from tilework.engine.stats import COUNTERS, difference
from tilework.engine.workers import WorkerPool
from tilework.ir.build import const_index
from tilework.testing import chains
from tilework.toolchain import llvm

SOURCE = "define void @{name}(ptr %b, ptr %v, i64 %s, i64 %e, ptr %x) {{\n ret void\n}}\n"


def kernel_source(name: str, text: str) -> KernelSource:
    return KernelSource(
        name=name, text=text, tasks=const_index(1), variables=(), num_buffers=0, scratch_bytes=0
    )


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """No kernel is known, in memory or on disk."""
    engine_compile.clear_memory()
    with settings.override(cache_dir=tmp_path):
        yield tmp_path


def compiles(factor: float, count: int = 1) -> int:
    before = COUNTERS.snapshot()
    kernels = [chains.scale_kernel(16, factor + k) for k in range(count)]
    compile_kernels(Device["CPU"], kernels)
    return difference(before).get("compiles", 0)


def test_EXE_25_a_kernel_on_disk_is_not_compiled_again(fresh: Path) -> None:
    assert compiles(2.0) == 1
    engine_compile.clear_memory()
    assert compiles(2.0) == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_EXE_25_a_damaged_entry_is_compiled_again(fresh: Path, share: float) -> None:
    compiles(2.0)
    engine_compile.clear_memory()
    key = kernel_key(Device["CPU"], chains.scale_kernel(16, 2.0))
    path = code_cache().path_of(key)
    raw = bytearray(path.read_bytes())
    raw[int(share * (len(raw) - 1))] ^= 1
    path.write_bytes(raw)
    assert compiles(2.0) == 1


@pytest.mark.parametrize("change", [{"fp_mode": "contract"}, {"allow_tf32": True}])
def test_EXE_25_a_setting_that_changes_code_is_in_the_key(
    fresh: Path, change: dict[str, object]
) -> None:
    kernel = chains.scale_kernel(16)
    before = kernel_key(Device["CPU"], kernel)
    with settings.override(**change):
        assert kernel_key(Device["CPU"], kernel) != before


@pytest.mark.parametrize("change", [{"log_level": 2}, {"verify": "off"}, {"captures": 3}])
def test_EXE_25_a_setting_that_changes_no_code_is_not_in_the_key(
    fresh: Path, change: dict[str, object]
) -> None:
    kernel = chains.scale_kernel(16)
    before = kernel_key(Device["CPU"], kernel)
    with settings.override(**change):
        assert kernel_key(Device["CPU"], kernel) == before


def test_EXE_25_the_key_names_compiler_processor_and_features() -> None:
    key = kernel_key(Device["CPU"], chains.scale_kernel(16))
    assert "llvmlite-" in key
    assert Device["CPU"].spec.key() in key
    assert Device["CPU"].spec.feature_string() in key


def test_without_a_cache_folder_kernels_are_compiled_each_time() -> None:
    engine_compile.clear_memory()
    with settings.override(cache_dir=""):
        assert compiles(2.0) == 1
        engine_compile.clear_memory()
        assert compiles(2.0) == 1


def test_a_packed_kernel_is_read_back(fresh: Path) -> None:
    (kernel,) = compile_kernels(Device["CPU"], [chains.scale_kernel(chains.variable())])
    assert unpack_kernel(kernel.key, pack_kernel(kernel)) == kernel


@pytest.mark.parametrize("raw", [b"", b"\xff\xff\xff\xff", b"\x02\0\0\0{}", b"\x02\0\0\0[]x"])
def test_a_malformed_kernel_is_refused(raw: bytes) -> None:
    with pytest.raises(ModelFileError):
        unpack_kernel("k", raw)


def test_an_injected_failure_leaves_nothing_half_known(fresh: Path) -> None:
    with faults.count() as points:
        compiles(3.0)
    for step in range(len(points)):
        engine_compile.clear_memory()
        code_cache().clear()
        with faults.fail_at(step), pytest.raises(faults.InjectedFault):
            compiles(3.0)
        assert compiles(3.0) == 1


def test_many_kernels_are_built_by_workers(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_compile, "KERNELS_A_WORKER", 15)
    with settings.override(compile_workers=2):
        assert compiles(5.0, count=30) == 30
    engine_compile.clear_memory()
    assert compiles(5.0, count=30) == 0


def test_kernels_are_built_by_threads_beside_lowering(fresh: Path) -> None:
    with settings.override(compile_workers=2):
        assert compiles(9.0, count=6) == 6


def test_an_error_in_a_build_thread_names_the_kernel(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, source: KernelSource) -> bytes:
        raise CompileError("no")

    monkeypatch.setattr(type(Device["CPU"].compiler), "build", refuse)
    with settings.override(compile_workers=2), pytest.raises(CompileError) as caught:
        compiles(11.0, count=3)
    assert "while compiling the kernel" in caught.value.__notes__[0]


def test_EXE_24_the_user_s_main_module_is_not_imported_again(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "print('main is run')\n"
        "from tilework import Tensor\n"
        "from tilework.base import settings\n"
        "from tilework.engine import compile as c\n"
        "c.KERNELS_A_WORKER = c.PATIENCE = 1\n"
        "with settings.override(compile_workers=2, cache_dir=''):\n"
        "    a = [(Tensor.ones(4 + k) * 2).contiguous() for k in range(4)]\n"
        "    Tensor.realize(*a)\n"
        "    print(a[3].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120,
        env={"PYTHONPATH": ":".join(sys.path), "TILEWORK_CACHE_DIR": ""},
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == ["main is run", str([2.0] * 7)], done.stderr


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
    assert pool.result(pool.submit(kernel_source("b", SOURCE.format(name="b"))))


def test_EXE_24_a_worker_killed_while_it_compiles_loses_nothing(pool: WorkerPool) -> None:
    tickets = [pool.submit(kernel_source(f"k{n}", SOURCE.format(name=f"k{n}"))) for n in range(20)]

    def kill() -> None:
        for _ in range(3):
            time.sleep(0.05)
            for pid in list(pool.pids):
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    results: list[object] = []
    for ticket in tickets:
        try:
            results.append(pool.result(ticket))
        except ToolchainError as error:
            results.append(error)
    killer.join()
    named = [str(r) for r in results if isinstance(r, ToolchainError)]
    assert all("at the kernel k" in text for text in named)
    assert sum(isinstance(r, bytes) for r in results) >= 17


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


def test_a_pool_builds_here_too_and_starts_its_workers_late() -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    started: list[object] = []

    def refuse(how: object) -> Any:
        started.append(how)
        raise OSError("no process")

    pool = WorkerPool(how, 1, build=lambda source: source.name.encode(), patience=3, start=refuse)
    try:
        tickets = [pool.submit(kernel_source(f"k{n}", "")) for n in range(2)]
        assert [pool.result(ticket) for ticket in tickets] == [b"k0", b"k1"]
        assert not started
        last = [pool.submit(kernel_source(f"k{n}", "")) for n in range(2, 9)]
        assert [pool.result(ticket) for ticket in last] == [b"k%d" % n for n in range(2, 9)]
    finally:
        pool.close()
    assert started


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


def test_EXE_24_a_worker_that_hangs_is_stopped_and_its_kernel_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    monkeypatch.setattr(workers, "JOB_SECONDS", 3.0)
    worker = workers._Worker(how)
    worker.wait()
    os.kill(worker.process.pid, signal.SIGSTOP)  # alive, and silent
    with pytest.raises(workers._Died, match="no answer within 3 seconds"):
        worker.compile(SOURCE.format(name="k").encode())
    worker.close()
    assert worker.process.returncode is not None


def test_EXE_24_a_pool_whose_workers_all_hang_names_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = Device["CPU"].compiler.worker()
    assert how is not None
    monkeypatch.setattr(workers, "JOB_SECONDS", 2.0)
    started = workers._Worker.wait

    def stall(worker: Any) -> None:
        started(worker)
        os.kill(worker.process.pid, signal.SIGSTOP)

    monkeypatch.setattr(workers._Worker, "wait", stall)
    made = WorkerPool(how, 1)
    try:
        source = kernel_source("hanging", SOURCE.format(name="hanging"))
        with pytest.raises(ToolchainError) as caught:
            made.result(made.submit(source))
        assert "hanging" in str(caught.value) + str(getattr(caught.value, "__notes__", ""))
    finally:
        made.close()


def test_EXE_25_another_version_of_the_compiler_finds_nothing_on_disk(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiles(13.0) == 1
    engine_compile.clear_memory()
    compiler = Device["CPU"].compiler
    toolchain = compiler._toolchain  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(llvm, "installed_version", lambda: "99.0.0")
        toolchain.__dict__.pop("key", None)
        assert "99.0.0" in compiler.key
        assert compiles(13.0) == 1
    toolchain.__dict__.pop("key", None)
    engine_compile.clear_memory()
    assert compiles(13.0) == 0
