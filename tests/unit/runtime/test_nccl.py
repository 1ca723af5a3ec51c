"""NCCL: the binding against a library with the same interface, and groups on emulated cards."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    DeviceUnavailableError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.ledger import Ledger
from tilework.runtime.cuda import nccl_group
from tilework.runtime.cuda.nccl import (
    Config,
    Dtype,
    NcclCallError,
    NcclLibrary,
    Reduction,
    Status,
    find_library,
    load_nccl,
    make_config,
)
from tilework.runtime.cuda.nccl_group import Move, NcclGroup, Place
from tilework.runtime.drivers.cuda import CudaDriver
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.nccl import EmulatedNccl

_SOURCE = Path(__file__).with_name("fake_nccl.c")


class Fake:
    """The compiled library, and what it can be told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plain = ctypes.CDLL(str(path))
        self.library: NcclLibrary = load_nccl(path)

    def number(self, name: str) -> int:
        return int(ctypes.c_int.in_dll(self.plain, name).value)

    def comms(self, size: int = 2) -> list[int]:
        name = self.library.unique_id()
        with self.library.group():
            return [self.library.init_rank(size, name, rank) for rank in range(size)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("nccl") / "libfake.so"
    compiler = shutil.which("cc") or shutil.which("clang") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(_SOURCE)], check=True)
    return path


@pytest.fixture
def fake(built: Path, tmp_path: Path) -> Fake:
    copy = tmp_path / "libfake.so"  # a library of its own, with its own state
    shutil.copy(built, copy)
    return Fake(copy)


def _address(values: Any) -> int:
    return int(values.buffer_info()[0])


def test_communicators_do_not_block_and_leave_multicast_alone(fake: Fake) -> None:
    fake.comms()
    assert (fake.number("fake_blocking"), fake.number("fake_multicast")) == (0, 0)


def test_the_configuration_is_as_long_as_in_the_header_of_2_31() -> None:
    assert ctypes.sizeof(Config) == 120
    assert Config.nvls_host_mode.offset == 112
    assert make_config(23203).min_ctas == -(1 << 31)


def test_an_all_reduce_folds_the_sources_of_all_ranks(fake: Fake) -> None:
    comms = fake.comms()
    sources = [array("f", [1, 2, 3]), array("f", [10, 20, 30])]
    targets = [array("f", [0, 0, 0]) for _ in comms]
    with fake.library.group():
        for comm, target, source in zip(comms, targets, sources, strict=True):
            fake.library.all_reduce(
                _address(target), _address(source), 3, Dtype.FLOAT32, Reduction.SUM, comm, 0
            )
    assert [list(each) for each in targets] == [[11, 22, 33]] * 2


def test_bytes_go_both_ways_between_two_ranks_at_once(fake: Fake) -> None:
    comms = fake.comms()
    sources = [array("f", [1, 2]), array("f", [3, 4])]
    targets = [array("f", [0, 0]) for _ in comms]
    with fake.library.group():
        for rank, comm in enumerate(comms):
            fake.library.send(_address(sources[rank]), 8, 1 - rank, comm, 0)
            fake.library.receive(_address(targets[rank]), 8, 1 - rank, comm, 0)
    assert [list(each) for each in targets] == [[3, 4], [1, 2]]


def test_a_call_that_fails_says_which_and_why(fake: Fake) -> None:
    fake.plain.fake_fail(0, 6)
    with pytest.raises(NcclCallError, match="ncclGetUniqueId: the other side is gone") as found:
        fake.library.unique_id()
    assert found.value.status == Status.REMOTE_ERROR


def test_calls_of_ranks_that_differ_are_refused_when_the_group_ends(fake: Fake) -> None:
    comms = fake.comms()
    value = array("f", [1.0])
    with pytest.raises(NcclCallError, match="ncclGroupEnd"), fake.library.group():  # noqa: PT012
        for comm, op in zip(comms, (Reduction.SUM, Reduction.MAX), strict=True):
            fake.library.all_reduce(_address(value), _address(value), 1, Dtype.FLOAT32, op, comm, 0)


def test_a_communicator_is_in_progress_until_all_ranks_have_come(fake: Fake) -> None:
    name = fake.library.unique_id()
    first = fake.library.init_rank(2, name, 0)
    assert fake.library.status(first) is Status.IN_PROGRESS
    fake.library.init_rank(2, name, 1)
    assert fake.library.status(first) is Status.SUCCESS


def test_a_library_that_cannot_leave_multicast_alone_is_refused(built: Path) -> None:
    plain = ctypes.CDLL(str(built))
    version = ctypes.c_int.in_dll(plain, "fake_version")
    version.value = 22907
    try:
        with pytest.raises(DeviceUnavailableError, match="multicast"):
            load_nccl(built)
    finally:
        version.value = 23203


@pytest.mark.parametrize(("number", "is_taken"), [(22809, True), (22602, False)])
def test_an_older_library_is_taken_where_the_environment_has_multicast_off(
    built: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_taken: bool
) -> None:
    """Its communicators read as much of the configuration as they know."""
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    version = ctypes.c_int.in_dll(ctypes.CDLL(str(built)), "fake_version")
    version.value = number
    try:
        if is_taken:
            assert load_nccl(built).version() == number
        else:
            with pytest.raises(DeviceUnavailableError, match="older than 22700"):
                load_nccl(built)
    finally:
        version.value = 23203


def test_a_file_that_is_no_such_library_is_refused_with_a_reason(tmp_path: Path) -> None:
    wrong = tmp_path / "libnccl.so.2"
    wrong.write_bytes(b"no library")
    with pytest.raises(DeviceUnavailableError, match=r"libnccl\.so\.2"):
        load_nccl(wrong)


@pytest.mark.needs("package:nvidia.nccl")
def test_the_real_library_agrees_on_versions_and_names_of_statuses() -> None:
    path = find_library()
    assert path is not None
    library = load_nccl(path)
    assert library.version() >= 23100
    assert len(library.unique_id()) == 128
    describe = library.describe  # type: ignore[attr-defined]
    assert "progress" in describe(Status.IN_PROGRESS)
    assert "remote" in describe(Status.REMOTE_ERROR)


# ---- groups on emulated cards


class Pair:
    """Two cards in software, and their collectives."""

    def __init__(self) -> None:
        self.cards = EmulatedCuda(cards=2)
        self.library = EmulatedNccl(self.cards)
        self.ledger = Ledger()
        self.drivers = [CudaDriver(number, library=self.cards) for number in range(2)]

    def group(self, **options: Any) -> NcclGroup:
        options.setdefault("wait_seconds", 1.0)
        return NcclGroup(self.library, self.drivers, ledger=self.ledger, **options)

    def buffers(self, *rows: list[float]) -> list[tuple[Any, Any]]:
        found = []
        for driver, row in zip(self.drivers, rows, strict=True):
            target, source = driver.allocate(4 * len(row)), driver.allocate(4 * len(row))
            driver.copy_in(source, memoryview(array("f", row)).cast("B"))
            found.append((target, source))
        return found

    def read(self, pairs: list[tuple[Any, Any]]) -> list[list[float]]:
        found = []
        for driver, (target, _) in zip(self.drivers, pairs, strict=True):
            mark = driver.peers.mark(is_copying=True)
            driver.peers.after(mark, is_copying=False)
            driver.peers.give_back([mark])
            values = bytearray(target.size_bytes)
            driver.copy_out(target, memoryview(values))
            found.append(list(array("f", bytes(values))))
        return found


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    is_lost = any(driver.lost for driver in made.drivers)
    for driver in made.drivers:
        driver.close()
    assert is_lost or not +made.cards.held  # what a lost card had goes with its context
    assert not +made.library.held


def test_cards_fold_what_each_has(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    group.all_reduce("add", "float32", rows)
    assert pair.read(rows) == [[11, 22]] * 2
    group.close()


def test_a_collective_that_comes_again_is_a_graph_of_each_card(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    for _ in range(3):
        group.all_reduce("add", "float32", rows)
    assert pair.library.calls.count("all_reduce") == 4  # once by calls, once to record
    assert pair.cards.calls.count("graph_launch") == 4
    for driver, (_, source) in zip(pair.drivers, rows, strict=True):
        driver.copy_in(source, memoryview(array("f", [5, 6])).cast("B"))
    group.all_reduce("add", "float32", rows)
    assert pair.read(rows) == [[10, 12]] * 2
    group.close()


def test_a_card_that_cannot_record_goes_on_by_calls(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    group.all_reduce("add", "float32", rows)
    pair.cards.fail_next("stream_begin_capture", 801)
    group.all_reduce("max", "float32", rows)
    group.all_reduce("add", "float32", rows)
    group.all_reduce("add", "float32", rows)
    assert pair.read(rows) == [[11, 22]] * 2
    group.close()


def test_each_step_of_opening_that_fails_gives_all_back(pair: Pair) -> None:
    before = pair.ledger.snapshot()
    for _ in range(2):
        pair.library.fail_next("group_end", Status.SYSTEM_ERROR)
        with pytest.raises(DeviceLostError, match="make communicators"):
            pair.group()
    pair.library.fail_next("init_rank", Status.INVALID_USAGE)
    with pytest.raises(DeviceError, match="make communicators"):
        pair.group()
    assert pair.ledger.snapshot() == before
    assert not +pair.library.held


def test_a_rank_that_does_not_come_ends_at_the_deadline(pair: Pair) -> None:
    class OneMore(EmulatedNccl):
        def init_rank(self, size: int, unique_id: bytes, rank: int) -> int:
            return super().init_rank(size + 1, unique_id, rank)

    pair.library = OneMore(pair.cards)
    with pytest.raises(DeviceTimeoutError, match="does not answer"):
        pair.group(wait_seconds=0.02)
    assert not +pair.library.held


def begin_alone(pair: Pair, group: NcclGroup, rows: list[tuple[Any, Any]]) -> int:
    """Let the first card wait for a fold that the other never comes to; return the ticket."""
    driver = pair.drivers[0]
    driver.peers.watch(group)
    pair.library.absent.add(1)
    group.all_reduce("add", "float32", rows)
    mark = driver.peers.mark(is_copying=True)
    driver.peers.after(mark, is_copying=False)
    driver.peers.give_back([mark])
    return driver.ticket("an all-reduce")


def test_a_rank_that_dies_in_a_collective_ends_the_others_at_their_deadline(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    ticket = begin_alone(pair, group, rows)
    with pytest.raises(DeviceTimeoutError):
        pair.drivers[0].wait(ticket, WaitLimit.of(0.02))
    assert group.spoiled
    with pytest.raises(DeviceLostError, match="failed before"):
        group.all_reduce("add", "float32", rows)
    group.close()


def test_what_the_library_finds_out_about_a_rank_ends_a_wait(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    ticket = begin_alone(pair, group, rows)
    pair.library.remote = Status.REMOTE_ERROR
    with pytest.raises(DeviceLostError, match="watch the other ranks"):
        pair.drivers[0].wait(ticket, WaitLimit.of(60.0))
    group.close()


def test_groups_beside_each_other_do_not_meet(pair: Pair) -> None:
    one, other = pair.group(), pair.group()
    first, second = pair.buffers([1, 2], [10, 20]), pair.buffers([3, 4], [5, 6])
    one.all_reduce("add", "float32", first)
    other.all_reduce("max", "float32", second)
    assert (pair.read(first), pair.read(second)) == ([[11, 22]] * 2, [[5, 6]] * 2)
    other.close()
    one.close()


def test_a_closed_group_refuses_work(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    group.close()
    group.close()
    with pytest.raises(StaleHandleError):
        group.all_reduce("add", "float32", rows)


def test_folds_that_the_library_does_not_know_are_refused(pair: Pair) -> None:
    group = pair.group()
    rows = pair.buffers([1, 2], [10, 20])
    with pytest.raises(UnsupportedError, match="no such collective"):
        group.all_reduce("add", "fp8e4m3", rows)
    group.close()


class Gone:
    """Ranks of other processes that are there until a test says otherwise."""

    def __init__(self, library: EmulatedNccl, size: int) -> None:
        self.size = size
        self.name = library.unique_id()
        self.why = ""

    def place(self, rank: int) -> Place:
        return Place(rank, self.size, lambda make: self.name, lambda: self.why)


def halves(pair: Pair) -> tuple[Gone, list[NcclGroup]]:
    """Two groups with one card each, as two processes have them, which are one group."""
    others = Gone(pair.library, 2)
    comes_alone = pair.library.status
    pair.library.status = lambda comm: Status.SUCCESS  # type: ignore[method-assign]
    groups = [
        NcclGroup(pair.library, [driver], ledger=pair.ledger, place=others.place(rank))
        for rank, driver in enumerate(pair.drivers)
    ]
    pair.library.status = comes_alone  # type: ignore[method-assign]
    return others, groups


def test_cards_of_two_processes_fold_what_each_has(pair: Pair) -> None:
    _, groups = halves(pair)
    rows = pair.buffers([1, 2], [10, 20])
    for _ in range(3):
        for group, row in zip(groups, rows, strict=True):
            group.all_reduce("add", "float32", [row])
    assert pair.read(rows) == [[11, 22]] * 2
    assert "graph_launch" not in pair.cards.calls  # each would have to record when the other does
    for group in groups:
        group.end()


def test_what_ranks_send_to_each_other_goes_both_ways_at_once(pair: Pair) -> None:
    _, groups = halves(pair)
    rows = pair.buffers([1, 2], [10, 20])
    for rank, (target, source) in enumerate(rows):
        moves = [Move(1 - rank, source, is_sent=True), Move(1 - rank, target, is_sent=False)]
        groups[rank].exchange(moves)
    assert pair.read(rows) == [[10, 20], [1, 2]]
    for group in groups:
        group.end()


def test_a_process_that_is_gone_ends_a_wait_for_its_card(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_group, "_PARTING_SECONDS", 0.01)
    others, groups = halves(pair)
    rows = pair.buffers([1, 2], [10, 20])
    others.why = "rank 1 is gone"
    driver = pair.drivers[0]
    driver.peers.watch(groups[0])
    groups[0].all_reduce("add", "float32", rows[:1])
    mark = driver.peers.mark(is_copying=True)
    driver.peers.after(mark, is_copying=False)
    driver.peers.give_back([mark])
    with pytest.raises(DeviceLostError, match="waits for another process in vain"):
        driver.wait(driver.ticket("an all-reduce"), WaitLimit.of(60.0))
    assert driver.lost
    for group in groups:
        group.end()


def test_a_process_that_leaves_once_its_part_is_done_disturbs_nobody(pair: Pair) -> None:
    others, groups = halves(pair)
    rows = pair.buffers([1, 2], [10, 20])
    for group, row in zip(groups, rows, strict=True):
        group.all_reduce("add", "float32", [row])
    others.why = "rank 1 is gone"
    for group in groups:
        group.check()
    assert pair.read(rows) == [[11, 22]] * 2
    for group in groups:
        group.end()


def test_a_rank_that_is_gone_before_all_have_come_is_not_waited_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_group, "_PARTING_SECONDS", 0.01)
    others = Gone(pair.library, 2)
    others.why = "rank 1 is gone"
    with pytest.raises(DeviceLostError, match="in vain"):
        NcclGroup(pair.library, pair.drivers[:1], ledger=pair.ledger, place=others.place(0))
    assert not +pair.library.held
