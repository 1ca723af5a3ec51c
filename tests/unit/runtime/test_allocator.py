import ctypes
import threading
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework.base.errors import InternalError, OutOfMemoryError
from tilework.base.ledger import Ledger
from tilework.runtime.allocator import (
    ALIGNMENT_BYTES,
    HUGE_PAGE_BYTES,
    MAPPED_BYTES,
    POISON,
    Block,
    BufferSpec,
    HostAllocator,
    size_class,
)
from tilework.runtime.buffer import Buffer
from tilework.runtime.drivers.cuda import CudaDriver
from tilework.runtime.platform_linux import LinuxHost
from tilework.testing.emulators.cuda import EmulatedCuda


class CountingHost(LinuxHost):
    """Counts what is held of the system, and may have a limit."""

    def __init__(self, limit_bytes: int = 1 << 60) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.limit_bytes = limit_bytes
        self.advised: list[int] = []

    @property
    def held_bytes(self) -> int:
        return sum(self.held.values())

    def map_pages(self, size_bytes: int) -> int:
        if self.held_bytes + size_bytes > self.limit_bytes:
            raise OutOfMemoryError("cpu: the operating system has no pages left")
        address = super().map_pages(size_bytes)
        self.held[address] = size_bytes
        return address

    def unmap_pages(self, address: int, size_bytes: int) -> None:
        start = next(a for a, n in self.held.items() if a <= address < a + n)
        size = self.held.pop(start)
        if address > start:
            self.held[start] = address - start
        if start + size > address + size_bytes:
            self.held[address + size_bytes] = start + size - address - size_bytes
        super().unmap_pages(address, size_bytes)

    def allocate_small(self, size_bytes: int, alignment_bytes: int) -> int:
        address = super().allocate_small(size_bytes, alignment_bytes)
        self.held[address] = size_bytes
        return address

    def free_small(self, address: int) -> None:
        del self.held[address]
        super().free_small(address)

    def advise_huge_pages(self, address: int, size_bytes: int) -> None:
        self.advised.append(address)
        super().advise_huge_pages(address, size_bytes)


@given(st.integers(0, 1 << 40))
def test_a_class_is_large_enough_and_wastes_little(size: int) -> None:
    capacity = size_class(size)
    assert capacity >= size
    assert capacity % ALIGNMENT_BYTES == 0
    assert capacity <= max(size + size // 8 + 64, size * 9 // 8 + 4096)
    assert size_class(capacity) == capacity


@pytest.mark.parametrize("size", [0, 1, 64, 65, 4096, 70_000, 1 << 20, 3 << 20])
def test_blocks_are_aligned_and_can_be_written(size: int) -> None:
    allocator = HostAllocator(ledger=Ledger())
    block = allocator.allocate(size)
    ctypes.memset(block.address, 1, block.capacity_bytes)
    assert block.address % ALIGNMENT_BYTES == 0
    assert block.capacity_bytes >= size
    allocator.free(block)
    allocator.close()


def test_large_blocks_are_aligned_to_huge_pages_and_ask_for_them() -> None:
    host = CountingHost()
    allocator = HostAllocator(host=host, ledger=Ledger())
    block = allocator.allocate(5 << 20)
    assert block.address % HUGE_PAGE_BYTES == 0
    assert host.advised == [block.address]
    assert host.held_bytes == block.capacity_bytes


def test_a_freed_block_is_used_again() -> None:
    allocator = HostAllocator(ledger=Ledger())
    first = allocator.allocate(1000)
    allocator.free(first)
    assert allocator.allocate(1000).address == first.address


@pytest.mark.parametrize("size", [100, MAPPED_BYTES, HUGE_PAGE_BYTES])
def test_BKE_10_a_reused_block_is_zeroed_when_asked(size: int) -> None:
    allocator = HostAllocator(ledger=Ledger())
    first = allocator.allocate(size)
    ctypes.memset(first.address, 9, size)
    allocator.free(first)
    again = allocator.allocate(size, zero=True)
    assert again.address == first.address
    assert ctypes.string_at(again.address, size) == bytes(size)


def test_BKE_10_a_freed_block_never_crosses_its_spec() -> None:
    allocator = HostAllocator(ledger=Ledger())
    first = allocator.allocate(1000, spec=BufferSpec(uncached=True))
    allocator.free(first)
    assert allocator.allocate(1000).address != first.address
    assert allocator.allocate(1000, spec=BufferSpec(uncached=True)).address == first.address


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 9)), max_size=60))
def test_BKE_10_kept_bytes_are_bounded_and_counted(steps: list[tuple[int, int]]) -> None:
    host, ledger = CountingHost(), Ledger()
    allocator = HostAllocator(kept_limit_bytes=400_000, host=host, ledger=ledger)
    live: list[Block] = []
    for size, choice in steps:
        if choice < 6:
            live.append(allocator.allocate(size))
        elif live:
            allocator.free(live.pop(choice % len(live)))
        assert allocator.kept_bytes <= 400_000
        assert allocator.used_bytes == sum(block.capacity_bytes for block in live)
        assert host.held_bytes == allocator.used_bytes + allocator.kept_bytes
    for block in live:
        allocator.free(block)
    allocator.close()
    assert (host.held, ledger.snapshot()) == ({}, {})


def test_the_oldest_kept_block_goes_first() -> None:
    allocator = HostAllocator(kept_limit_bytes=2048, ledger=Ledger())
    blocks = [allocator.allocate(1024) for _ in range(3)]
    for block in blocks:
        allocator.free(block)
    again = {allocator.allocate(1024).address, allocator.allocate(1024).address}
    assert again == {blocks[1].address, blocks[2].address}


def test_the_limit_is_an_error_that_names_the_pool() -> None:
    allocator = HostAllocator(limit_bytes=1 << 20, ledger=Ledger())
    held = allocator.allocate(900_000)
    with pytest.raises(OutOfMemoryError, match="memory limit is reached") as caught:
        allocator.allocate(900_000)
    assert caught.value.pool == "CPU"
    allocator.free(held)
    allocator.allocate(950_000)  # what waits for reuse makes room


def test_kept_blocks_are_given_back_when_the_system_is_full() -> None:
    host = CountingHost(limit_bytes=1_500_000)
    allocator = HostAllocator(host=host, ledger=Ledger())
    allocator.free(allocator.allocate(1_000_000))
    block = allocator.allocate(1_200_000)
    assert block.capacity_bytes >= 1_200_000
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(1_200_000)


def test_poison_shows_memory_that_nobody_wrote() -> None:
    allocator = HostAllocator(poison=True, ledger=Ledger())
    block = allocator.allocate(256)
    assert ctypes.string_at(block.address, 256) == bytes([POISON]) * 256
    zeroed = allocator.allocate(256, zero=True)
    assert ctypes.string_at(zeroed.address, 256) == bytes(256)


def test_freeing_twice_is_reported() -> None:
    allocator = HostAllocator(ledger=Ledger())
    block = allocator.allocate(10)
    allocator.free(block)
    with pytest.raises(InternalError, match="freed twice"):
        allocator.free(block)


def test_peak_is_the_most_that_was_handed_out() -> None:
    allocator = HostAllocator(ledger=Ledger())
    first, second = allocator.allocate(1024), allocator.allocate(1024)
    allocator.free(first)
    allocator.free(second)
    assert (allocator.peak_bytes, allocator.used_bytes) == (2048, 0)


def test_several_threads_never_share_a_block() -> None:
    allocator = HostAllocator(kept_limit_bytes=20_000, ledger=Ledger())
    clashes: list[int] = []

    def work(number: int) -> None:
        for turn in range(400):
            block = allocator.allocate(64 * (turn % 7 + 1))
            ctypes.memset(block.address, number, block.capacity_bytes)
            if (
                ctypes.string_at(block.address, block.size_bytes)
                != bytes([number]) * block.size_bytes
            ):
                clashes.append(number)
            allocator.free(block)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert allocator.used_bytes == 0


@pytest.mark.parametrize("seed", range(6))
def test_BKE_14_the_counters_are_what_the_system_has_handed_out(seed: int) -> None:
    random = Random(seed)
    host = CountingHost()
    allocator = HostAllocator(host=host, ledger=Ledger(), kept_limit_bytes=3 << 20)
    live: list[Block] = []
    for _ in range(150):
        if live and random.random() < 0.5:
            allocator.free(live.pop(random.randrange(len(live))))
        else:
            live.append(allocator.allocate(1 << random.randrange(3, 22)))
        if random.random() < 0.05:
            allocator.trim(random.randrange(1 << 21))
        assert allocator.used_bytes == sum(block.capacity_bytes for block in live)
        assert allocator.used_bytes + allocator.kept_bytes == host.held_bytes
    for block in live:
        allocator.free(block)
    allocator.close()
    assert (allocator.used_bytes, host.held_bytes) == (0, 0)


class CountingCuda(EmulatedCuda):
    """Counts the bytes of the card's and the pinned memory that are handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}

    def memory_allocate(self, size_bytes: int) -> int:
        address = super().memory_allocate(size_bytes)
        self.sizes[address] = size_bytes
        return address

    def memory_free(self, address: int) -> None:
        del self.sizes[address]
        super().memory_free(address)


@pytest.mark.parametrize("seed", range(3))
def test_BKE_14_the_counters_of_a_card_are_what_its_driver_has_handed_out(seed: int) -> None:
    random = Random(seed)
    library = CountingCuda()
    driver = CudaDriver(library=library, ledger=Ledger())
    live: list[Buffer] = []
    for _ in range(120):
        if live and random.random() < 0.5:
            live.pop(random.randrange(len(live))).close()
        else:
            spec = BufferSpec(host=random.random() < 0.2)
            live.append(driver.allocate(1 << random.randrange(4, 20), spec=spec))
        found = driver.memory_used()
        assert found["used"] + found["kept"] == sum(library.sizes.values())
        free, total = driver.memory_of_card()
        assert found["used"] + found["kept"] == total - free
    for buffer in live:
        buffer.close()
    driver.close()
    assert library.sizes == {}
