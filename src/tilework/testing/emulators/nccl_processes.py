"""NVIDIA's collectives between cards in software of several processes on one host.

    cards = EmulatedCuda(cards=2)
    cards.collectives = NcclOfProcesses(cards)     # so it is in each process

Who makes the name of a group waits at a port of the host, which the name tells; ranks send there
what their queues come to, and get back what becomes of it when they ask for the status of their
communicator.  Like cards over NVLink, nobody notices that a rank has died: what waits for it waits
on.
"""

from __future__ import annotations

import ctypes
import json
import select
import socket
import threading
from collections import Counter, defaultdict, deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tilework.base.records import dataclass, field
from tilework.runtime.cuda.nccl import ID_BYTES, Dtype, NcclCallError, Reduction, Status
from tilework.testing.emulators.cuda import EmulatedCuda, _Put
from tilework.testing.emulators.nccl import _fold

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD_BYTES = 4


@dataclass
class _Comm:
    rank: int
    plain: socket.socket
    is_ready: bool = False
    heard: bytearray = field(default_factory=bytearray)
    #: By the number of a call: where its bytes go, how many, and what its queue waits for.
    open: dict[int, tuple[int, int, _Put]] = field(default_factory=dict)
    calls: int = 0
    folds: int = 0
    error: str = ""


@dataclass
class _Call:
    """What a rank asks for: `said` goes to the others as it is, with the bytes at an address."""

    comm: _Comm
    said: dict[str, Any]
    source: int = 0
    target: int = 0
    size_bytes: int = 0


class NcclOfProcesses:
    """The part of the library that schedules use; each process has one card of a communicator."""

    def __init__(self, cards: EmulatedCuda, version: int = 23203) -> None:
        self._cards = cards
        self._version = version
        self.held: Counter[str] = Counter()
        self.calls: list[str] = []
        self._comms: dict[int, _Comm] = {}
        self._next = 1
        self._begun: list[tuple[int, _Call]] | None = None

    def version(self) -> int:
        return self._version

    def unique_id(self) -> bytes:
        self.calls.append("unique_id")
        door = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=_Hub(door).run, daemon=True).start()
        return int(door.getsockname()[1]).to_bytes(ID_BYTES, "little")

    def init_rank(self, size: int, unique_id: bytes, rank: int) -> int:
        self.calls.append("init_rank")
        plain = socket.create_connection(("127.0.0.1", int.from_bytes(unique_id, "little")))
        plain.sendall(_frame({"rank": rank, "size": size}))
        self._next += 1
        self._comms[self._next] = _Comm(rank, plain)
        self.held["comm"] += 1
        return self._next

    def status(self, comm: int) -> Status:
        ours = self._comms[comm]
        self._hear(ours)
        if ours.error:
            return Status.INVALID_USAGE
        return Status.SUCCESS if ours.is_ready else Status.IN_PROGRESS

    def last_error(self, comm: int) -> str:
        return self._comms[comm].error

    def finalize(self, comm: int) -> None:
        self.calls.append("finalize")

    def destroy(self, comm: int) -> None:
        self.calls.append("destroy")
        self._drop(comm)

    def abort(self, comm: int) -> None:
        self.calls.append("abort")
        for _, _, done in self._drop(comm).open.values():
            self._cards.give_up(done)

    def _drop(self, comm: int) -> _Comm:
        ours = self._comms.pop(comm)
        ours.plain.close()
        self.held["comm"] -= 1
        return ours

    @contextmanager
    def group(self) -> Iterator[None]:
        self._begun = []
        try:
            yield
        finally:
            begun, self._begun = self._begun, None
        self._begin(begun)

    def all_reduce(
        self, target: int, source: int, count: int, dtype: Dtype, op: Reduction, comm: int,
        stream: int,
    ) -> None:  # fmt: skip
        ours = self._comms[comm]
        size = count * dtype.itemsize
        said = {"what": "fold", "count": count, "dtype": int(dtype), "op": int(op)}
        self._add("all_reduce", stream, _Call(ours, said, source, target, size))

    def send(self, source: int, size_bytes: int, to: int, comm: int, stream: int) -> None:
        said = {"what": "send", "peer": to}
        self._add("send", stream, _Call(self._comms[comm], said, source, 0, size_bytes))

    def receive(self, target: int, size_bytes: int, rank: int, comm: int, stream: int) -> None:
        said = {"what": "receive", "peer": rank}
        self._add("receive", stream, _Call(self._comms[comm], said, 0, target, size_bytes))

    def _add(self, name: str, stream: int, call: _Call) -> None:
        self.calls.append(name)
        if not call.comm.is_ready:
            raise NcclCallError(name, Status.INVALID_USAGE, "some rank has not come yet")
        if self._begun is None:
            self._begin([(stream, call)])
        else:
            self._begun.append((stream, call))

    def _begin(self, rows: list[tuple[int, _Call]]) -> None:
        for stream in dict.fromkeys(stream for stream, _ in rows):
            calls = [call for each, call in rows if each == stream]
            self._cards.call_on(stream, lambda queue, calls=calls: self._queue(calls, queue))  # type: ignore[misc]

    def _queue(self, calls: list[_Call], stream: int) -> None:
        """All begin when the queue comes to them; what comes after them waits for all."""
        marks = []
        for call in calls:
            self._next += 1
            marks.append(_Put(-self._next))
            self._cards.give(stream, _poster(call, marks[-1]), str(call.said["what"]))
        for mark in marks:
            self._cards.arrive(stream, mark)

    def _hear(self, comm: _Comm) -> None:
        """Take what has come so far, and let queues go on."""
        while select.select([comm.plain], [], [], 0)[0]:
            more = _heard_from(comm.plain)
            if not more:
                break  # who made the group is gone, and nobody notices
            comm.heard += more
        while (found := _take_frame(comm.heard)) is not None:
            said, data = found
            if said["what"] == "ready":
                comm.is_ready = True
            elif said["what"] == "error":
                comm.error = str(said["text"])
            else:
                target, size, done = comm.open.pop(int(said["call"]))
                if data:
                    ctypes.memmove(target, bytes(data), size)
                self._cards.give_up(done)


def _poster(call: _Call, done: _Put) -> Any:
    def post() -> None:
        comm = call.comm
        comm.calls += 1
        comm.open[comm.calls] = (call.target, call.size_bytes, done)
        said = {**call.said, "call": comm.calls, "size": call.size_bytes}
        if said["what"] == "fold":
            comm.folds += 1
            said["number"] = comm.folds
        data = ctypes.string_at(call.source, call.size_bytes) if call.source else b""
        _tell(comm.plain, said, data)

    return post


class _Hub:
    """Where the ranks of one group meet; a thread of the process that made its name."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._ranks: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._folds: dict[int, dict[int, tuple[dict[str, Any], bytes]]] = defaultdict(dict)
        self._sent: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self._wanted: dict[tuple[int, int], deque[Any]] = defaultdict(deque)

    def run(self) -> None:
        size = 1
        while len(self._ranks) < size:
            plain, _ = self._door.accept()
            heard = bytearray()
            while (found := _take_frame(heard)) is None:
                more = _heard_from(plain)
                if not more:
                    return  # gone before it said who it is: the group never comes together
                heard += more
            size = int(found[0]["size"])
            self._ranks[int(found[0]["rank"])] = plain
        self._door.close()
        for rank, plain in self._ranks.items():
            threading.Thread(target=self._listen, args=(rank, plain), daemon=True).start()
            self._answer(rank, {"what": "ready"})

    def _listen(self, rank: int, plain: socket.socket) -> None:
        heard = bytearray()
        while more := _heard_from(plain):
            heard += more
            while (found := _take_frame(heard)) is not None:
                with self._lock:
                    self._take(rank, *found)

    def _take(self, rank: int, said: dict[str, Any], data: bytes) -> None:
        if said["what"] == "fold":
            rows = self._folds[said["number"]]
            rows[rank] = (said, data)
            if len(rows) == len(self._ranks):
                self._fold(self._folds.pop(said["number"]))
            return
        is_sent = said["what"] == "send"
        pair = (rank, said["peer"]) if is_sent else (said["peer"], rank)
        (self._sent if is_sent else self._wanted)[pair].append((said, data))
        if self._sent[pair] and self._wanted[pair]:
            (sent, bytes_), (wanted, _) = self._sent[pair].popleft(), self._wanted[pair].popleft()
            if sent["size"] != wanted["size"]:
                self._refuse("the ranks' sizes differ")
                return
            self._answer(pair[0], {"what": "done", "call": sent["call"]})
            self._answer(pair[1], {"what": "done", "call": wanted["call"]}, bytes_)

    def _fold(self, rows: dict[int, tuple[dict[str, Any], bytes]]) -> None:
        first = rows[0][0]
        same = [{said[name] for said, _ in rows.values()} for name in ("count", "dtype", "op")]
        if any(len(each) > 1 for each in same):
            self._refuse("the ranks' calls differ")
            return
        held = [ctypes.create_string_buffer(rows[rank][1]) for rank in range(len(rows))]
        places = [(ctypes.addressof(each), ctypes.addressof(each)) for each in held]
        _fold(places, first["count"], Dtype(first["dtype"]), Reduction(first["op"]))
        for rank, each in enumerate(held):
            said = rows[rank][0]
            self._answer(rank, {"what": "done", "call": said["call"]}, each.raw[: said["size"]])

    def _refuse(self, text: str) -> None:
        for rank in self._ranks:
            self._answer(rank, {"what": "error", "text": text})

    def _answer(self, rank: int, said: dict[str, Any], data: bytes = b"") -> None:
        _tell(self._ranks[rank], said, data)


def _heard_from(plain: socket.socket) -> bytes:
    """What has come, at least a byte; nothing from one that is gone."""
    try:
        return plain.recv(1 << 20)
    except OSError:
        return b""


def _tell(plain: socket.socket, said: dict[str, Any], data: bytes = b"") -> None:
    """Send a message; who is gone does not get it, and nobody notices."""
    with suppress(OSError):
        plain.sendall(_frame(said, data))


def _frame(said: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps({**said, "bytes": len(data)}).encode()
    return len(text).to_bytes(_HEAD_BYTES, "little") + text + data


def _take_frame(heard: bytearray) -> tuple[dict[str, Any], bytes] | None:
    """The first whole message of what was heard, which loses it; None if it is not whole yet."""
    if len(heard) < _HEAD_BYTES:
        return None
    start = _HEAD_BYTES + int.from_bytes(heard[:_HEAD_BYTES], "little")
    if len(heard) < start:
        return None
    said = json.loads(bytes(heard[_HEAD_BYTES:start]))
    end = start + said["bytes"]
    if len(heard) < end:
        return None
    data = bytes(heard[start:end])
    del heard[:end]
    return said, data
