import ctypes
import gc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.base import trace
from tilework.base.errors import AliasError, BoundsError, MapError, StaleHandleError
from tilework.base.generation import Generation
from tilework.base.ledger import Ledger
from tilework.runtime import reclaim
from tilework.runtime.allocator import HostAllocator
from tilework.runtime.buffer import (
    Buffer,
    Memory,
    allocate_buffer,
    lease_buffer,
)
from tilework.runtime.lease import Lease


@pytest.fixture
def allocator() -> HostAllocator:
    return HostAllocator(ledger=Ledger())


def test_a_view_points_at_the_root(allocator: HostAllocator) -> None:
    root = allocate_buffer(allocator, 100)
    inner = root.view(10, 50).view(5, 20)
    assert (inner.base, inner.offset_bytes, inner.size_bytes) == (root, 15, 20)
    assert inner.address == root.address + 15


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (0, 101), (60, 41), (5, -1)])
def test_a_view_outside_is_refused(allocator: HostAllocator, offset: int, size: int) -> None:
    with pytest.raises(BoundsError, match="reaches outside"):
        allocate_buffer(allocator, 100).view(offset, size)


def test_a_view_of_a_view_may_not_leave_the_view(allocator: HostAllocator) -> None:
    with pytest.raises(BoundsError):
        allocate_buffer(allocator, 100).view(0, 50).view(40, 20)


def test_writes_through_a_view_are_seen_in_the_base(allocator: HostAllocator) -> None:
    root = allocate_buffer(allocator, 8, zero=True)
    root.view(2, 3).as_memoryview()[:] = b"abc"
    assert bytes(root.as_memoryview()) == b"\0\0abc\0\0\0"


def test_BKE_11_memory_outlives_its_base_while_a_view_lives(allocator: HostAllocator) -> None:
    root = allocate_buffer(allocator, 64)
    view = root.view(1, 2)
    root.as_memoryview()[1:3] = b"xy"
    root.close()
    assert bytes(view.as_memoryview()) == b"xy"
    assert allocator.used_bytes == 64
    view.close()
    assert allocator.used_bytes == 0


def test_BKE_11_memory_outlives_its_base_while_the_host_looks_at_it(
    allocator: HostAllocator,
) -> None:
    root = allocate_buffer(allocator, 64)
    window = root.as_memoryview()
    window[0] = 5
    root.close()
    assert (window[0], allocator.used_bytes) == (5, 64)
    del window
    reclaim.run()
    assert allocator.used_bytes == 0


def test_memory_that_nobody_closes_is_freed_when_it_is_collected(allocator: HostAllocator) -> None:
    buffer = allocate_buffer(allocator, 64)
    ring: list[object] = [buffer]
    ring.append(ring)
    del buffer, ring
    gc.collect()
    reclaim.run()
    assert allocator.used_bytes == 0


def test_a_closed_buffer_is_refused(allocator: HostAllocator) -> None:
    buffer = allocate_buffer(allocator, 64)
    buffer.close()
    buffer.close()
    assert buffer.is_closed
    for use in (lambda: buffer.address, lambda: buffer.view(0, 1), buffer.as_memoryview):
        with pytest.raises(StaleHandleError, match="was closed"):
            use()


def test_overlap_is_about_shared_bytes(allocator: HostAllocator) -> None:
    root, other = allocate_buffer(allocator, 64), allocate_buffer(allocator, 64)
    assert root.view(0, 10).overlaps(root.view(9, 5))
    assert not root.view(0, 10).overlaps(root.view(10, 5))
    assert not root.view(5, 0).overlaps(root)
    assert not root.overlaps(other)


class Mapper:
    """Maps memory into another device, and remembers what was undone."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def __call__(self, memory: Memory) -> tuple[int, Callable[[], object]]:
        self.log.append(f"map {self.name}")
        return memory.address + 1, lambda: self.log.append(f"unmap {self.name}")


def test_BKE_11_mappings_are_made_once_and_undone_once_before_the_base() -> None:
    log: list[str] = []

    class Source(HostAllocator):
        def free(self, block: object) -> None:
            log.append("free")
            super().free(block)  # type: ignore[arg-type]

    root = allocate_buffer(Source(ledger=Ledger()), 64)
    for name in ("A", "B", "A"):
        assert root.memory.address_on(name, Mapper(log, name)) == root.address + 1
    assert root.memory.address_on("CPU", Mapper(log, "CPU")) == root.address
    root.close()
    assert log == ["map A", "map B", "unmap B", "unmap A", "free"]


def test_BKE_11_a_failing_unmap_does_not_keep_the_memory(allocator: HostAllocator) -> None:
    def failing(memory: Memory) -> tuple[int, Callable[[], object]]:
        def undo() -> None:
            raise MapError("other: cannot unmap")

        return 1, undo

    root = allocate_buffer(allocator, 64)
    root.memory.address_on("OTHER", failing)
    root.close()
    assert allocator.used_bytes == 0
    assert "cannot unmap" in trace.recent_warnings()[-1].message


def middle_of(parent: Buffer) -> Buffer:
    return parent.view(parent.size_bytes // 4, parent.size_bytes // 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=50))
def test_BKE_11_random_trees_of_views_release_everything_once(
    steps: list[tuple[int, int]],
) -> None:
    ledger = Ledger()
    allocator = HostAllocator(ledger=ledger)
    live: list[Buffer] = [allocate_buffer(allocator, 1000)]
    for kind, choice in steps:
        if kind == 0:
            live.append(allocate_buffer(allocator, 1000))
        elif kind == 1 and live:
            live.append(middle_of(live[choice % len(live)]))
        elif kind == 2 and live:
            live.pop(choice % len(live)).close()
        elif kind == 3 and live:
            del live[choice % len(live)]
        roots = {id(buffer.memory) for buffer in live}
        reclaim.run()
        assert allocator.used_bytes == 1024 * len(roots)
    for buffer in live:
        buffer.close()
    allocator.close()
    assert ledger.snapshot() == {}


def lend(data: bytearray, log: list[str], **more: object) -> Lease:
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    return Lease(
        address,
        len(data),
        owner="test",
        on_release=lambda: log.append("released"),
        ledger=Ledger(),
        **more,  # type: ignore[arg-type]
    )


def test_a_leased_buffer_is_the_lender_s_memory() -> None:
    data, log = bytearray(b"hello world"), list[str]()
    buffer = lease_buffer("CPU", lend(data, log))
    buffer.as_memoryview()[:5] = b"HELLO"
    view = buffer.view(6, 5)
    buffer.close()
    assert (bytes(data), bytes(view.as_memoryview()), log) == (b"HELLO world", b"world", [])
    view.close()
    assert log == ["released"]


def test_readonly_memory_stays_readonly() -> None:
    buffer = lease_buffer("CPU", lend(bytearray(8), [], is_readonly=True))
    with pytest.raises(TypeError):
        buffer.as_memoryview()[0] = 1


def test_a_lease_in_use_cannot_end() -> None:
    log: list[str] = []
    lease = lend(bytearray(8), log)
    with lease.device_access() as address:
        assert address == lease.address
        with pytest.raises(AliasError, match="still uses"):
            lease.release()
    lease.release()
    lease.release()
    assert log == ["released"]


def test_an_ended_lease_is_refused() -> None:
    lease = lend(bytearray(8), [])
    lease.release()
    with pytest.raises(StaleHandleError, match="given back"):
        lease.begin_device_access()
    with pytest.raises(StaleHandleError, match="has ended"):
        lease_buffer("CPU", lease)


def test_a_lease_of_a_reset_lender_is_stale() -> None:
    life = Generation("camera")
    lease = lend(bytearray(8), [], generation=life)
    life.advance()
    with pytest.raises(StaleHandleError, match="earlier generation"):
        lease.begin_device_access()


def test_ending_an_access_that_never_began_is_refused() -> None:
    with pytest.raises(AliasError, match="more accesses ended"):
        lend(bytearray(8), []).end_device_access()


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(BoundsError):
        Lease(-1, 5, owner="test", ledger=Ledger())


def test_leases_are_counted_in_the_ledger() -> None:
    ledger = Ledger()
    lease = Lease(64, 8, owner="test", ledger=ledger)
    assert list(ledger.snapshot().values()) == [1]
    lease.release()
    assert ledger.snapshot() == {}
