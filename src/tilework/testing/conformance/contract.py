"""The contract of a driver, line by line: tickets, recordings, counters, refusals."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial

from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    AliasError,
    DeviceError,
    DeviceUnavailableError,
    ModelFileError,
    ShapeError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.records import replace
from tilework.dtypes import float32
from tilework.engine.compile import compile_kernels
from tilework.engine.device import Device, OpenDevice
from tilework.ir.build import const, const_index
from tilework.ir.interpret import Value
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.math import MUL
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.runtime.driver import Copy, Kernel, KernelCode, Launch, Program
from tilework.testing.conformance.harness import Bench, Case, compare, expect, expect_error

_COUNT = 48


def cases() -> Iterator[Case]:
    """The cases of this file."""
    yield Case("driver/spec", _spec, runs_without_code=True)
    yield Case("driver/tickets", _tickets, runs_without_code=True)
    yield Case("driver/launch", _launch)
    yield Case("driver/recording", _recording)
    yield Case("driver/copies", _copies)
    yield Case("driver/time", _time, runs_without_code=True)
    yield Case("driver/memory-counters", _counters, runs_without_code=True)
    yield Case("driver/refusals", _refusals, runs_without_code=True)
    yield Case("driver/malformed-code", _malformed)
    yield Case("driver/close", _close, runs_without_code=True)


def _doubling() -> Node:
    """out[i] = 2 * in[i]."""
    i = RANGE(const_index(_COUNT), attrs=RangeAttrs(0))
    out, x = (PARAM(attrs=ParamAttrs(slot, (_COUNT,), float32)) for slot in (0, 1))
    return SINK(STORE(INDEX(out, i), MUL(LOAD(INDEX(x, i)), const(2.0, float32))))


def _load(device: OpenDevice) -> tuple[Program, Kernel, int]:
    """Load it; the kernel is valid as long as the program is."""
    (code,) = compile_kernels(device, [_doubling()])
    program = device.driver.load([code.as_code()])
    return program, program.kernels[0], code.tasks.evaluate({})


def _numbers(factor: float) -> Value:
    return Value.from_list([factor * i for i in range(_COUNT)], float32)


def _spec(bench: Bench) -> str:
    spec = bench.device.spec
    expect(spec.key() == replace(spec).key(), "two equal specs have different keys")
    expect(spec.limits.max_kernel_buffers > 0, "no kernel may have buffers")
    expect({"float32", "int32", "bool"} <= spec.storage_dtypes, "a basic dtype cannot be stored")
    has_queues = getattr(bench.device.driver, "peers", None) is not None
    expect(has_queues == spec.has_copy_queue, "it has other queues for copies than its spec says")
    alignment = spec.limits.buffer_alignment_bytes
    buffers = [bench.device.allocate(size) for size in (1, 3, 65, 300, 5000)]
    expect(
        not any(buffer.address % alignment for buffer in buffers),
        f"memory does not start at multiples of {alignment} bytes",
    )
    return spec.name


def _tickets(bench: Bench) -> None:
    driver = bench.device.driver
    first, second = driver.submit([]), driver.submit([])
    expect(second > first, "tickets do not rise")
    driver.wait(second, WaitLimit.of(10.0))
    expect_error(DeviceError, lambda: driver.wait(second + 1000, WaitLimit.of(1.0)),
                 "waiting for a ticket that does not exist")  # fmt: skip


def _launch(bench: Bench) -> None:
    driver = bench.device.driver
    _program, kernel, tasks = _load(bench.device)
    source, target = bench.upload(_numbers(1.0)), bench.device.allocate(4 * _COUNT)
    ticket = driver.submit([Launch(kernel, (target, source), grid=(tasks,))])
    driver.wait(ticket, WaitLimit.of(60.0))
    compare("a launch", bench.download(target, (_COUNT,), float32), _numbers(2.0))


def _recording(bench: Bench) -> None:
    driver = bench.device.driver
    _program, kernel, tasks = _load(bench.device)
    a, b = bench.upload(_numbers(1.0)), bench.upload(_numbers(3.0))
    middle, out = (bench.device.allocate(4 * _COUNT) for _ in range(2))
    other = bench.device.allocate(4 * _COUNT)
    recording = driver.record(
        [Launch(kernel, (middle, a), grid=(tasks,)), Launch(kernel, (out, middle), grid=(tasks,))]
    )
    for source, target, factor in ((a, out, 4.0), (b, out, 12.0), (b, other, 12.0)):
        recording.set_buffer(0, 1, source)
        recording.set_buffer(1, 0, target)
        driver.wait(recording.submit(), WaitLimit.of(60.0))
        compare("a recording", bench.download(target, (_COUNT,), float32), _numbers(factor))
    recording.close()


def _copies(bench: Bench) -> None:
    driver = bench.device.driver
    source, target = bench.upload(_numbers(5.0)), bench.device.allocate(4 * _COUNT)
    driver.wait(driver.submit([Copy(target, source)]), WaitLimit.of(60.0))
    compare("a copy", bench.download(target, (_COUNT,), float32), _numbers(5.0))


def _time(bench: Bench) -> None:
    _program, kernel, tasks = _load(bench.device)
    source, target = bench.device.allocate(4 * _COUNT), bench.device.allocate(4 * _COUNT)
    times = bench.device.driver.time([Launch(kernel, (target, source), grid=(tasks,))] * 3)
    expect(len(times) == 3 and min(times) >= 0, f"times of three launches: {times}")


def _counters(bench: Bench) -> None:
    gc.collect()
    bench.device.memory_used()  # what was just collected is given back now
    before = bench.device.memory_used()["used"]
    buffer = bench.device.allocate(1 << 20)
    during = bench.device.memory_used()["used"]
    expect(during - before >= 1 << 20, f"a mebibyte counts as {during - before} bytes")
    buffer.close()
    del buffer
    after = bench.device.memory_used()["used"]
    expect(after == before, f"{after - before} bytes were not given back")


def _refusals(bench: Bench) -> None:
    driver = bench.device.driver
    _program, kernel, tasks = _load(bench.device)
    source, target = bench.device.allocate(4 * _COUNT), bench.device.allocate(4 * _COUNT)
    expect_error(
        ShapeError, lambda: driver.submit([Launch(kernel, (target,), grid=(tasks,))]),
        "a launch with a buffer too few",
    )  # fmt: skip
    expect_error(
        ShapeError, lambda: driver.submit([Copy(target.view(0, 8), source)]),
        "a copy between sizes that differ",
    )  # fmt: skip
    expect_error(
        AliasError, lambda: driver.submit([Copy(target.view(0, 8), target.view(4, 8))]),
        "a copy onto itself",
    )  # fmt: skip
    closed = bench.device.allocate(4 * _COUNT)
    closed.close()
    expect_error(
        StaleHandleError,
        lambda: driver.submit([Launch(kernel, (closed, source), grid=(tasks,))]),
        "a launch with a closed buffer",
    )
    many = (target,) * (bench.device.spec.limits.max_kernel_buffers + 1)
    expect_error(
        UnsupportedError, lambda: driver.submit([Launch(kernel, many, grid=(tasks,))]),
        "more buffers than the limit",
    )  # fmt: skip


def _malformed(bench: Bench) -> None:
    for data in (b"", b"\x7fELF", bytes(300), b"no program at all"):
        code = KernelCode(name="k", data=data, num_buffers=1)
        expect_error(
            (ModelFileError, UnsupportedError),
            partial(bench.device.driver.load, [code]),
            f"code of {len(data)} bytes",
        )


def _close(bench: Bench) -> None:
    """On a device of its own, so that others are not disturbed."""
    backend = bench.device.backend
    try:
        own = Device[f"{backend.kind}:7:{backend.renderer}"]
    except DeviceUnavailableError:
        # There are not so many; the name of its own code opens the same one a second time.
        own = Device[f"{backend.kind}:{backend.renderer}:{bench.device.spec.cpu_name}"]
    expect(own is not bench.device, "another name gives the same device")
    own.allocate(64)
    own.close()
    own.close()
    expect_error(StaleHandleError, lambda: own.allocate(64), "memory of a closed device")
    expect_error(StaleHandleError, lambda: own.driver.submit([]), "work for a closed device")
