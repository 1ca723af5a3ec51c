"""Copies, views of buffers, leases, order of work, several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tilework.base.errors import AliasError, BoundsError, ShapeError, StaleHandleError
from tilework.dtypes import float32, int32
from tilework.engine.copies import copy_between
from tilework.engine.device import Device
from tilework.ir.build import const
from tilework.ir.interpret import Value
from tilework.ir.ops import math
from tilework.ir.ops.memory import AFTER, STORE
from tilework.runtime.lease import Lease
from tilework.testing.conformance.harness import Bench, Case, Failed, compare, expect, expect_error


def cases() -> Iterator[Case]:
    """The cases of this file."""
    yield Case("copies/there-and-back", _round_trip)
    yield Case("copies/between-devices", _between)
    yield Case("copies/sizes-differ", _sizes, runs_without_code=True)
    yield Case("buffers/views", _views)
    yield Case("leases/read", _lease_read)
    yield Case("leases/ended", _lease_ended, runs_without_code=True)
    yield Case("order/read-after-write", _chain_of_writes)
    yield Case("order/write-after-read", _write_after_read)
    yield Case("threads/at-once", _threads)


def _round_trip(bench: Bench) -> None:
    for size in (0, 1, 3, 64, 65, 4096, 100_003):
        data = bytes((7 * i + size) & 255 for i in range(size))
        buffer = bench.device.allocate(size)
        bench.device.copy_in(buffer, memoryview(data))
        back = bytearray(size)
        bench.device.copy_out(buffer, memoryview(back))
        expect(back == data, f"{size} bytes came back changed")


def _between(bench: Bench) -> None:
    for other in ("CPU", "PYTHON"):
        host = Device[other]
        source, back = host.allocate(100), host.allocate(100)
        host.copy_in(source, memoryview(bytes(range(100))))
        here = bench.device.allocate(100)
        copy_between(bench.device, here, host, source)
        copy_between(host, back, bench.device, here)
        expect(bytes(host.view(back)) == bytes(range(100)), f"bytes differ by way of {other}")


def _sizes(bench: Bench) -> None:
    buffer = bench.device.allocate(16)
    expect_error(
        ShapeError,
        lambda: bench.device.copy_in(buffer, memoryview(bytes(15))),
        "15 bytes into a buffer of 16",
    )


def _views(bench: Bench) -> None:
    value = Value.from_list(list(range(16)), int32)
    whole = bench.upload(value)
    part = whole.view(16, 32)
    compare("a view", bench.download(part, (8,), int32), Value.from_list(list(range(4, 12)), int32))
    expect(part.base is whole and part.view(4, 4).base is whole, "a view of a view has no root")
    expect_error(BoundsError, lambda: whole.view(60, 8), "a view past the end")
    whole.close()
    compare("a view that outlives its root", bench.download(part, (8,), int32),
            Value.from_list(list(range(4, 12)), int32))  # fmt: skip


def _lease_read(bench: Bench) -> None:
    import ctypes

    memory = (ctypes.c_float * 32)(*range(32))
    released: list[int] = []
    lease = Lease(
        ctypes.addressof(memory),
        ctypes.sizeof(memory),
        owner="conformance",
        on_release=lambda: released.append(1),
        is_readonly=True,
    )
    buffer = bench.device.map(lease)
    x = bench.put(Value.from_list([float(i) for i in range(32)], float32))
    bench.buffers[x] = buffer
    bench.check([math.ADD(x, x)])
    node = AFTER(x, STORE(x, math.ADD(x, x)))
    expect_error(AliasError, lambda: bench.compute([node]), "a write to read-only memory")
    expect(list(memory) == [float(i) for i in range(32)], "read-only memory was written")
    del buffer
    bench.buffers.clear()
    lease.release()
    expect(released == [1], "the lender was not told, or more than once")


def _lease_ended(bench: Bench) -> None:
    lease = Lease(0x1000, 64, owner="conformance")
    lease.release()
    expect_error(StaleHandleError, lambda: bench.device.map(lease), "a lease that has ended")


def _chain_of_writes(bench: Bench) -> None:
    x = bench.put(Value.from_list([1.0, 2.0, 3.0], float32))
    for _ in range(20):
        bench.compute([AFTER(x, STORE(x, math.ADD(x, const(1.0, float32, (3,)))))])
    got = bench.download(bench.buffers[x], (3,), float32)
    compare("twenty writes in place", got, Value.from_list([21.0, 22.0, 23.0], float32))


def _write_after_read(bench: Bench) -> None:
    x = bench.put(Value.from_list([1.0, 2.0, 3.0], float32))
    doubled = math.MUL(x, const(2.0, float32, (3,)))
    written = AFTER(x, STORE(x, const(9.0, float32, (3,))))
    got = bench.compute([doubled, written])
    compare("the reader of the old contents", got[0], Value.from_list([2.0, 4.0, 6.0], float32))
    compare("the new contents", got[1], Value.from_list([9.0] * 3, float32))


def _threads(bench: Bench) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        own = Bench(bench.device, seed=number)
        x = own.put(Value.from_list([float(number)] * 50, float32))
        for _ in range(10):
            (got,) = own.compute([math.MUL(x, const(3.0, float32, (50,)))])
            if got.elements != [3.0 * number] * 50:
                wrong.append(f"thread {number}: {got.elements[:3]}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise Failed(wrong[0])
