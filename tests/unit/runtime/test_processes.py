"""Groups of processes: how they meet, what they send, and how a failure ends all of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tilework.base.errors import (
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    ProtocolError,
    SettingsError,
    StaleHandleError,
    TileworkError,
    UserError,
)
from tilework.runtime import processes
from tilework.runtime.processes import Links, meet

ABOUT = {"kind": "CPU"}


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def together(size: int, act: Callable[[int], Any]) -> list[Any]:
    """What each rank gives, or raises; ranks are threads here."""
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            found[rank] = act(rank)
        except TileworkError as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


@pytest.fixture
def group(port: int) -> Iterator[Callable[..., list[Links]]]:
    made: list[Links] = []

    def make(size: int, **options: Any) -> list[Links]:
        options.setdefault("meet_seconds", 60.0)
        found = together(size, lambda rank: meet(rank, size, ("127.0.0.1", port), ABOUT, **options))
        made.extend(each for each in found if isinstance(each, Links))
        assert all(isinstance(each, Links) for each in found), found
        return found

    yield make
    for each in made:
        each.close()


def test_bytes_arrive_in_order_between_any_two(group: Callable[..., list[Links]]) -> None:
    links = group(3)
    for source in range(3):
        for target in (other for other in range(3) if other != source):
            for text in (b"one", b"and two"):
                links[source].send(target, memoryview(text))
            got = [bytearray(3), bytearray(7)]
            for each in got:
                links[target].receive(source, memoryview(each))
            assert got == [b"one", b"and two"]
    assert links[0].sent_bytes == links[0].received_bytes == 20


def test_large_transfers_arrive_whole(group: Callable[..., list[Links]]) -> None:
    one, other = group(2)
    data = bytes(range(256)) * (1 << 14)
    target = bytearray(len(data))
    sender = threading.Thread(target=one.send, args=(1, memoryview(data)))
    sender.start()
    other.receive(0, memoryview(target))
    sender.join()
    assert target == data


def test_a_rank_that_is_gone_ends_the_others_at_once(group: Callable[..., list[Links]]) -> None:
    links = group(3, wait_seconds=60.0)
    started = time.monotonic()
    links[2].close()
    with pytest.raises(DeviceLostError, match="rank 2"):
        links[0].receive(2, memoryview(bytearray(4)))
    with pytest.raises(DeviceLostError, match="rank 0"):
        links[1].receive(0, memoryview(bytearray(4)))
    with pytest.raises(DeviceLostError, match="failed before"):
        links[0].send(1, memoryview(b"abcd"))
    assert time.monotonic() - started < 30


def test_a_rank_that_is_gone_is_found_out_also_behind_bytes_that_nobody_has_received(
    group: Callable[..., list[Links]],
) -> None:
    first, second = group(2)
    assert first.gone() == second.gone() == ""
    second.send(0, memoryview(b"late"))
    assert first.gone() == ""
    second.close()
    deadline = time.monotonic() + 60
    while not first.gone() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert first.gone() == "rank 1 is gone"
    assert second.gone() == "the group was ended"


def test_a_rank_that_does_not_answer_is_given_up_at_the_deadline(
    group: Callable[..., list[Links]],
) -> None:
    links = group(2, wait_seconds=0.05)
    with pytest.raises(DeviceTimeoutError, match="receive from rank 1"):
        links[0].receive(1, memoryview(bytearray(4)))
    with pytest.raises(DeviceLostError):
        links[1].receive(0, memoryview(bytearray(4)))


@pytest.mark.parametrize("is_sending", [True, False])
def test_a_transfer_that_is_broken_off_is_never_taken_for_another(
    group: Callable[..., list[Links]], monkeypatch: pytest.MonkeyPatch, is_sending: bool
) -> None:
    ended, peer = group(2)
    what = "_send_all" if is_sending else "_receive_all"
    whole = getattr(processes, what)

    def broken(plain: socket.socket, view: memoryview, deadline: Any) -> None:
        if view.nbytes == 64:
            whole(plain, view[:40], deadline)
            raise KeyboardInterrupt
        whole(plain, view, deadline)

    if not is_sending:
        peer.send(0, memoryview(bytes(64)))
    act = ended.send if is_sending else ended.receive
    monkeypatch.setattr(processes, what, broken)
    with pytest.raises(KeyboardInterrupt):
        act(1, memoryview(bytearray(64)))
    monkeypatch.undo()
    with pytest.raises(DeviceLostError, match="broken off"):
        act(1, memoryview(bytearray(64)))
    with pytest.raises(DeviceLostError):
        peer.receive(0, memoryview(bytearray(64)))


def test_a_thread_that_waits_for_bytes_ends_with_its_group(
    group: Callable[..., list[Links]],
) -> None:
    one, other = group(2, wait_seconds=60.0)
    started = time.monotonic()

    def act(number: int) -> None:
        if number:
            time.sleep(0.1)
            one.spoil("another thread has failed")
        else:
            one.receive(1, memoryview(bytearray(4)))

    waiting, _ = together(2, act)
    assert isinstance(waiting, DeviceLostError)
    with pytest.raises(DeviceLostError):
        other.receive(0, memoryview(bytearray(4)))
    assert time.monotonic() - started < 30


def test_ranks_that_run_other_programs_are_found_out(group: Callable[..., list[Links]]) -> None:
    one, other = group(2)
    one.send(1, memoryview(b"abcd"))
    with pytest.raises(ProtocolError, match="rank 0 sends something else") as found:
        other.receive(0, memoryview(bytearray(8)))
    assert "4 bytes" in str(found.value.got)
    assert other.spoiled


def test_all_ranks_pass_a_barrier_together(group: Callable[..., list[Links]]) -> None:
    links = group(3)
    passed: list[int] = []

    def act(rank: int) -> None:
        if rank == 2:
            assert not passed
        links[rank].barrier()
        passed.append(rank)

    together(3, act)
    assert sorted(passed) == [0, 1, 2]


def test_who_has_another_secret_is_refused(port: int) -> None:
    def act(rank: int) -> Any:
        key = b"ours" if rank == 0 else b"theirs"
        return meet(rank, 2, ("127.0.0.1", port), ABOUT, key=key, meet_seconds=1.0)

    waited, came = together(2, act)
    assert isinstance(waited, DeviceTimeoutError)
    assert isinstance(came, (ProtocolError, DeviceTimeoutError))


def test_a_stranger_that_says_nonsense_does_not_disturb_the_meeting(port: int) -> None:
    def act(rank: int) -> Any:
        if rank == 2:
            for _ in range(200):
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
                        plain.sendall(b"GET / HTTP/1.1\r\n" + b"x" * 64)
                    return None
                except OSError:
                    time.sleep(0.01)
            return None
        if rank == 1:
            time.sleep(0.1)
        return meet(rank, 2, ("127.0.0.1", port), ABOUT, key=b"k", meet_seconds=60.0)

    found = together(3, act)
    assert [type(each) for each in found[:2]] == [Links, Links]
    for each in found[:2]:
        each.close()


@pytest.mark.parametrize("wrong", [{"kind": "CUDA"}, {}])
def test_ranks_that_do_not_fit_each_other_are_all_told(port: int, wrong: dict[str, str]) -> None:
    def act(rank: int) -> Any:
        about = wrong if rank else ABOUT
        return meet(rank, 2, ("127.0.0.1", port), about, meet_seconds=60.0)

    found = together(2, act)
    assert [type(each) for each in found] == [UserError, UserError]


def test_two_groups_cannot_take_one_port(group: Callable[..., list[Links]], port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(DeviceError, match="cannot be met"):
            meet(0, 2, ("127.0.0.1", port), ABOUT, meet_seconds=1.0)


def test_nobody_who_comes_is_a_timeout_that_says_who_is_missing(port: int) -> None:
    with pytest.raises(DeviceTimeoutError, match="did not come") as found:
        meet(0, 3, ("127.0.0.1", port), ABOUT, meet_seconds=0.05)
    assert "ranks 1, 2" in str(found.value.got)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.example.org", "localhost.example.org"])
def test_an_address_for_other_hosts_needs_a_key(host: str) -> None:
    with pytest.raises(SettingsError, match="needs a key"):
        meet(0, 2, (host, 29500), ABOUT)


def test_a_closed_group_sends_nothing(group: Callable[..., list[Links]]) -> None:
    one, _ = group(2)
    one.close()
    one.close()
    with pytest.raises(StaleHandleError):
        one.send(1, memoryview(b"x"))


def test_a_rank_out_of_range_is_refused() -> None:
    with pytest.raises(UserError, match="out of range"):
        meet(2, 2, ("127.0.0.1", 1), ABOUT)
