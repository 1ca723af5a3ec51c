"""NVIDIA's collectives on cards in software: queues that meet, and fold memory when all have come.

    cards = EmulatedCuda(cards=2)
    library = EmulatedNccl(cards)       # stands where `runtime.cuda.nccl.NcclLibrary` is asked for

What is not given back stands in `held`; `fail_next` lets a call give a status, `absent` are ranks
whose calls are forgotten, as if they had died, and `remote` is what communicators say of others.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tilework.base.records import dataclass, field
from tilework.runtime.cuda.nccl import Dtype, NcclCallError, Reduction, Status
from tilework.testing.emulators.cuda import EmulatedCuda, _Put

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: dict[Dtype, Any] = {
    Dtype.INT8: ctypes.c_int8,
    Dtype.UINT8: ctypes.c_uint8,
    Dtype.INT32: ctypes.c_int32,
    Dtype.UINT32: ctypes.c_uint32,
    Dtype.INT64: ctypes.c_int64,
    Dtype.UINT64: ctypes.c_uint64,
    Dtype.FLOAT32: ctypes.c_float,
    Dtype.FLOAT64: ctypes.c_double,
}


@dataclass
class _Comm:
    unique_id: bytes
    rank: int
    size: int
    card: int
    calls: int = 0
    is_finalized: bool = False


@dataclass(frozen=True, slots=True)
class _Move:
    """Bytes that a rank sends or gets."""

    comm: _Comm
    stream: int
    address: int
    size_bytes: int
    peer: int
    is_sent: bool

    @property
    def pair(self) -> tuple[int, int]:
        """From which rank to which."""
        ends = (self.comm.rank, self.peer)
        return ends if self.is_sent else ends[::-1]


@dataclass
class _Meeting:
    """One collective: what each rank brought, and the mark that all wait for."""

    done: _Put
    kind: Any
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    arrived: list[_Put] = field(default_factory=list)


class EmulatedNccl:
    """The part of the library that schedules use: folds and copies of ranks in one process."""

    def __init__(self, cards: EmulatedCuda, version: int = 23203) -> None:
        self._cards = cards
        self._version = version
        self.held: Counter[str] = Counter()
        self.calls: list[str] = []
        self.absent: set[int] = set()
        self.remote = Status.SUCCESS
        self._failures: dict[str, int] = {}
        self._comms: dict[int, _Comm] = {}
        self._meetings: dict[tuple[Any, ...], _Meeting] = {}
        #: Copies that have begun, by group and pair, at either end.
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._together: list[_Move] | None = None
        self._next = 1

    def fail_next(self, call: str, status: int) -> None:
        """Let the next call of this name give a status."""
        self._failures[call] = status

    def _enter(self, call: str) -> None:
        self.calls.append(call)
        status = self._failures.pop(call, 0)
        if status:
            raise NcclCallError(call, status, "as it was told")

    def version(self) -> int:
        return self._version

    def unique_id(self) -> bytes:
        self._enter("unique_id")
        self._next += 1
        return self._next.to_bytes(128, "little")

    def init_rank(self, size: int, unique_id: bytes, rank: int) -> int:
        self._enter("init_rank")
        self._next += 1
        self._comms[self._next] = _Comm(unique_id, rank, size, self._cards.current_card())
        self.held["comm"] += 1
        return self._next

    def status(self, comm: int) -> Status:
        if self.remote is not Status.SUCCESS:
            return self.remote
        ours = self._comms[comm]
        ranks = {each.rank for each in self._comms.values() if each.unique_id == ours.unique_id}
        is_ready = ours.is_finalized or len(ranks) == ours.size
        return Status.SUCCESS if is_ready else Status.IN_PROGRESS

    def last_error(self, comm: int) -> str:
        return "as it was told"

    def finalize(self, comm: int) -> None:
        self._enter("finalize")
        self._comms[comm].is_finalized = True

    def destroy(self, comm: int) -> None:
        self._enter("destroy")
        del self._comms[comm]
        self.held["comm"] -= 1

    def abort(self, comm: int) -> None:
        self._enter("abort")
        ours = self._comms.pop(comm)
        self.held["comm"] -= 1
        for key in [key for key in self._meetings if key[0] == ours.unique_id]:
            self._cards.give_up(self._meetings.pop(key).done)

    @contextmanager
    def group(self) -> Iterator[None]:
        self._together = []
        try:
            yield
        finally:
            moves, self._together = self._together, None
        self._enter("group_end")
        self._begin(moves)

    def all_reduce(
        self, target: int, source: int, count: int, dtype: Dtype, op: Reduction, comm: int,
        stream: int,
    ) -> None:  # fmt: skip
        self._enter("all_reduce")
        ours = self._comms[comm]
        if ours.card != self._cards.current_card():
            raise NcclCallError("all_reduce", Status.INVALID_USAGE, "the card is another one")
        if ours.rank not in self.absent:
            kind = ("all_reduce", count, dtype, op)
            self._cards.call_on(
                stream, lambda queue: self._join(ours, kind, (target, source), queue)
            )

    def send(self, source: int, size_bytes: int, to: int, comm: int, stream: int) -> None:
        self._enter("send")
        self._move(_Move(self._comms[comm], stream, source, size_bytes, to, True))

    def receive(self, target: int, size_bytes: int, rank: int, comm: int, stream: int) -> None:
        self._enter("receive")
        self._move(_Move(self._comms[comm], stream, target, size_bytes, rank, False))

    def _move(self, move: _Move) -> None:
        if move.comm.rank in self.absent:
            return
        if self._together is None:
            self._begin([move])
        else:
            self._together.append(move)

    def _begin(self, moves: list[_Move]) -> None:
        for stream in dict.fromkeys(move.stream for move in moves):
            rows = [move for move in moves if move.stream == stream]
            self._cards.call_on(stream, partial(self._meet, rows))

    def _meet(self, moves: list[_Move], stream: int) -> None:
        """Both ends of each copy come to it at once with the others of their queue."""
        rows = [(move, *self._meeting_of(move)) for move in moves]
        arrived = self._cards.arrive(stream, *[meeting.done for _, _, meeting in rows])
        for move, key, meeting in rows:
            if meeting.kind != ("copy", move.size_bytes):
                raise NcclCallError("group_end", Status.INVALID_USAGE, "the ranks' sizes differ")
            meeting.rows[move.is_sent] = (move.address, move.size_bytes)
            meeting.arrived.append(arrived)
            if len(meeting.rows) == 2:
                del self._meetings[key]
                work = partial(_copy, meeting.rows[0][0], *meeting.rows[1])
                self._cards.meet(meeting.arrived, meeting.done, work, "copy")

    def _meeting_of(self, move: _Move) -> tuple[tuple[Any, ...], _Meeting]:
        end = (move.comm.unique_id, move.pair, move.is_sent)
        key = (*end[:2], self._counts[end])
        self._counts[end] += 1
        if key not in self._meetings:
            self._next += 1
            self._meetings[key] = _Meeting(_Put(-self._next), ("copy", move.size_bytes))
        return key, self._meetings[key]

    def _join(self, comm: _Comm, kind: Any, row: tuple[int, int], stream: int) -> None:
        key = (comm.unique_id, comm.calls)
        comm.calls += 1
        meeting = self._meetings.get(key)
        if meeting is None:
            self._next += 1
            meeting = self._meetings[key] = _Meeting(_Put(-self._next), kind)
        if meeting.kind != kind:
            raise NcclCallError(kind[0], Status.INVALID_USAGE, "the ranks' calls differ")
        meeting.rows[comm.rank] = row
        meeting.arrived.append(self._cards.arrive(stream, meeting.done))
        if len(meeting.rows) == comm.size:
            del self._meetings[key]
            rows = [meeting.rows[rank] for rank in range(comm.size)]
            _, count, dtype, op = kind
            self._cards.meet(
                meeting.arrived, meeting.done, lambda: _fold(rows, count, dtype, op), kind[0]
            )


def _copy(target: int, source: int, size_bytes: int) -> None:
    ctypes.memmove(target, source, size_bytes)


def _fold(rows: list[tuple[int, int]], count: int, dtype: Dtype, op: Reduction) -> None:
    """All sources into each target; floats are rounded after each addition."""
    kind = _KINDS[dtype]
    found = [_array(kind, count, source) for _, source in rows]
    total = list(found[0])
    for other in found[1:]:
        for at, (one, two) in enumerate(zip(total, other, strict=True)):
            total[at] = kind(_combine(op, one, two)).value
    for target, _ in rows:
        _array(kind, count, target)[:] = total


def _array(kind: Any, count: int, address: int) -> Any:
    return (kind * count).from_address(address)


def _combine(op: Reduction, one: Any, two: Any) -> Any:
    if op is Reduction.SUM:
        return one + two
    if op is Reduction.PROD:
        return one * two
    return max(one, two) if op is Reduction.MAX else min(one, two)
