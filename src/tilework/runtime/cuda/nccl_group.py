"""Cards that fold values together through NCCL: communicators, and collectives in their queues.

    group = NcclGroup(open_nccl(), [driver, other])           # the cards of this process
    group.all_reduce("add", "float32", [(target, source), (other_target, other_source)])
    group.close()
    group = NcclGroup(open_nccl(), [driver], place=place)     # one card in each of some processes
    group.exchange([Move(1, buffer, is_sent=True), Move(1, other_buffer, is_sent=False)])

A collective goes into each card's queue of copies, so it runs beside kernels; marks say what it
waits for, and what waits for it.  The second time that the same buffers are folded, the calls are
recorded into a graph of each card, which is what is queued from then on.  Cards of several
processes queue calls each time: ranks that record meet while they do, and whether a rank has seen
its buffers before is a matter of where they lie in its own memory.

No call here waits for ever: making a communicator has a deadline, `check` raises what the library
has found out about other ranks, and `abort` ends what cards are doing for a communicator.  After a
failure the group is spoiled, and every call of it says why; if a card was not done with its
collectives, all are lost, since nobody can tell what else has come of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from tilework.base import faults, trace
from tilework.base.clock import SYSTEM_CLOCK, Deadline
from tilework.base.errors import (
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    DeviceUnavailableError,
    InternalError,
    StaleHandleError,
    TileworkError,
    UnsupportedError,
)
from tilework.base.forks import new_rlock
from tilework.base.ledger import LEDGER, Kind, Ledger
from tilework.base.records import dataclass
from tilework.runtime.bus.cuda import CudaCallError
from tilework.runtime.cuda.nccl import (
    EXTRA,
    LOST,
    Dtype,
    NcclCallError,
    Reduction,
    Status,
    open_nccl,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.runtime.buffer import Buffer
    from tilework.runtime.cuda.nccl import NcclLibrary
    from tilework.runtime.drivers.cuda import CudaDriver

#: Folds and dtypes by the names that the compiler has for them.
REDUCTIONS: Final = {
    "add": Reduction.SUM, "mul": Reduction.PROD, "max": Reduction.MAX, "min": Reduction.MIN,
}  # fmt: skip
DTYPES: Final = {each.name.lower(): each for each in Dtype}
#: What the library folds with our meaning: a maximum of floats must keep NaNs, and floats narrower
#: than 32 bits are folded in float32 before they are rounded.
MEANT_ALIKE: Final = frozenset(
    [(fold, name) for fold in ("add", "mul") for name in ("float32", "float64")]
    + [(fold, name) for fold in REDUCTIONS for name in DTYPES if "int" in name]
)
_WAIT_SECONDS: Final = 60.0
_NAP_SECONDS: Final = 100e-6
#: How long a card takes to pass a mark behind work that is done.
_GRACE_SECONDS: Final = 0.01
#: How long the work of a card may go on after another process is gone, which may have done its
#: part of it before.
_PARTING_SECONDS: Final = 2.0
#: Recorded collectives of a group that are kept.
_MOST_GRAPHS: Final = 256

Pair = tuple["Buffer", "Buffer"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the one card of this process stands among those of others.

    Args:
        rank: of this process's card in the group.
        size: how many cards there are.
        hand_round: gives all the name that it lets one of them make.
        gone: which of the other processes is gone; empty while all are there.
    """

    rank: int
    size: int
    hand_round: Callable[[Callable[[], bytes]], bytes]
    gone: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes that this process's card sends to another rank of its group, or gets from it."""

    rank: int
    buffer: Buffer
    is_sent: bool


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A collective of some buffers as one graph for each card: (graph, instance)."""

    graphs: tuple[tuple[int, int], ...]


class NcclGroup:
    """The communicators of cards of this process, or of one of them with others'.  Thread-safe.

    Whoever has the lock of a card may take that of the group, and never the other way round.

    Args:
        library: NCCL.
        drivers: the cards of this process, in the order of their ranks.
        place: of the only driver, if the other cards are those of other processes.
        wait_seconds: how long making and ending communicators may take, and the other ranks to
            come to a collective.
        records: whether repeated collectives become graphs.

    Raises:
        DeviceTimeoutError: some rank did not come.
        DeviceLostError: a rank went away.
        DeviceError: the library refused.
    """

    def __init__(
        self,
        library: NcclLibrary,
        drivers: Sequence[CudaDriver],
        *,
        place: Place | None = None,
        wait_seconds: float = _WAIT_SECONDS,
        records: bool = True,
        ledger: Ledger = LEDGER,
    ) -> None:
        self._library = library
        self.drivers = tuple(drivers)
        self._wait_seconds = wait_seconds
        self._place = place
        self.size = len(self.drivers) if place is None else place.size
        self._parting: Deadline | None = None
        self._records = records and place is None
        self._ledger = ledger
        self._lock = new_rlock()
        self._comms: list[int] = []
        self._has_work = False
        self._seen: OrderedDict[Any, _Recorded | None] = OrderedDict()
        #: Why nothing more can be done; empty while all is well.
        self.spoiled = ""
        self.is_closed = False
        self._open(self._name() if place is None else place.hand_round(self._name))

    # ---- making, and ending

    def _name(self) -> bytes:
        with self._calling("name the group"):
            return self._library.unique_id()

    def _open(self, unique_id: bytes) -> None:
        first = 0 if self._place is None else self._place.rank
        try:
            with self._calling("make communicators"), self._library.group():
                for rank, driver in enumerate(self.drivers, first):
                    faults.hit("nccl.open")
                    self._use(driver)
                    self._comms.append(self._library.init_rank(self.size, unique_id, rank))
                    self._ledger.take(driver.name, Kind.QP)
            self._until_ready("make communicators")
        except BaseException:
            self.abort("making communicators failed")
            raise

    def _until_ready(self, what: str) -> None:
        """Wait until the library has done what was begun.  Raises: see the class."""
        deadline = Deadline.after(self._wait_seconds, SYSTEM_CLOCK)
        while self._status(what) is Status.IN_PROGRESS:
            if deadline.is_past():
                waited = f"{self._wait_seconds:g} s"
                self.abort(f"{what}: no answer after {waited}")
                raise DeviceTimeoutError(
                    f"nccl: {what}: some rank does not answer",
                    got=f"no answer after {waited}",
                    expected=f"{self.size} ranks that make the same calls",
                    waited=self._wait_seconds,
                )
            self._check_others()
            time.sleep(_NAP_SECONDS)
        if self.spoiled:  # somebody else has ended it meanwhile
            raise self._failed_before()

    def _status(self, what: str) -> Status:
        """Success or "in progress" of all communicators together.  Raises what has failed."""
        found = Status.SUCCESS
        with self._lock:
            for driver, comm in zip(self.drivers, self._comms, strict=False):
                try:
                    status = self._library.status(comm)
                    if status not in (Status.SUCCESS, Status.IN_PROGRESS):
                        text = self._library.last_error(comm) or status.name
                        raise NcclCallError(what, status, text)
                except NcclCallError as error:
                    raise self._translated(what, error, driver.name) from error
                if status is Status.IN_PROGRESS:
                    found = status
        return found

    def check(self) -> None:
        """Raise what the library has found out about the other ranks; then the group is spoiled."""
        if not self.spoiled and not self.is_closed:
            self._status("watch the other ranks")
            self._check_others()

    def _check_others(self) -> None:
        """Raise, after some time, that another process is gone, which the library may not see."""
        why = "" if self._place is None else self._place.gone()
        if not why:
            self._parting = None
        elif self._parting is None:
            self._parting = Deadline.after(_PARTING_SECONDS, SYSTEM_CLOCK)
        elif self._parting.is_past():
            self.abort(why)
            raise DeviceLostError(
                f"nccl: {self.drivers[0].name} waits for another process in vain", got=why,
                try_="start all ranks again",
            )  # fmt: skip

    def abort(self, why: str, patience_seconds: float = _GRACE_SECONDS) -> None:
        """End the communicators, and all that cards are still doing for them after some time.

        If any is, all are lost: what they were given next goes on with bytes that nobody folded.
        """
        with self._lock:
            self.spoiled = self.spoiled or why
            comms, self._comms = self._comms, []
            if comms and self._has_work and not self._is_done(patience_seconds):
                for driver in self._left():
                    driver.lost = f"a collective was ended before it was done: {why}"
            for driver, comm in reversed(list(zip(self.drivers, comms, strict=False))):
                try:
                    if not driver.lost:
                        self._use(driver)
                    self._library.abort(comm)
                except (NcclCallError, CudaCallError) as error:
                    trace.warn("nccl", f"{driver.name}, ending a communicator: {error}")
                self._ledger.give_back(driver.name, Kind.QP)
            self._drop_graphs()

    def _is_done(self, patience_seconds: float) -> bool:
        """Whether all cards that are left say in time that they are done with collectives."""
        deadline = Deadline.after(patience_seconds, SYSTEM_CLOCK)
        return all(self._passes_mark(driver, deadline) for driver in self._left())

    def _left(self) -> list[CudaDriver]:
        return [driver for driver in self.drivers if not driver.lost and not driver.is_closed]

    def _passes_mark(self, driver: CudaDriver, deadline: Deadline) -> bool:
        library = driver.library
        try:
            self._use(driver)
            mark = library.event_create(timing=False)
            try:
                library.event_record(mark, driver.peers.stream)
                while not library.event_is_done(mark):
                    if deadline.is_past():
                        return False
                    time.sleep(_NAP_SECONDS)
            finally:
                library.event_destroy(mark)
        except CudaCallError:
            return False
        return True

    def end(self) -> None:
        """A card of the group is being closed: give everything back.  Idempotent.

        Cards that go on may finish what they do for the group, unless one of it is lost already.
        """
        if not self.is_closed:
            self.is_closed = True
            is_hopeless = any(driver.lost for driver in self.drivers)
            patience = _GRACE_SECONDS if is_hopeless else self._wait_seconds
            self.abort("one of its cards was closed", patience)

    def close(self) -> None:
        """Give everything back, the last made first.  Idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self._drop_graphs()
        try:
            if self._comms and not self.spoiled:
                self._finalize()
        except TileworkError:
            self.abort("it could not be ended")
            raise

    def _finalize(self) -> None:
        with self._calling("end communicators"), self._library.group():
            for driver, comm in zip(self.drivers, self._comms, strict=True):
                self._use(driver)
                self._library.finalize(comm)
        self._until_ready("end communicators")
        for driver, comm in reversed(list(zip(self.drivers, self._comms, strict=True))):
            with self._calling("end communicators"):
                self._use(driver)
                self._library.destroy(comm)
            self._comms.remove(comm)
            self._ledger.give_back(driver.name, Kind.QP)

    # ---- collectives

    def all_reduce(self, fold: str, dtype: str, pairs: Sequence[Pair]) -> None:
        """Queue a fold of the sources of all ranks to the target of each.

        Args:
            fold: a key of `REDUCTIONS`.
            dtype: a key of `DTYPES`.
            pairs: (target, source) of each card of this process.

        Raises:
            UnsupportedError: the library does not know the fold or the dtype.
            DeviceLostError, DeviceError: what the library and the cards say.
        """
        op, kind = REDUCTIONS.get(fold), DTYPES.get(dtype)
        if op is None or kind is None:
            raise UnsupportedError(
                "nccl: there is no such collective", got=f"{fold} of {dtype}",
                expected=f"one of {', '.join(REDUCTIONS)} of one of {', '.join(DTYPES)}",
            )  # fmt: skip
        self._check_pairs(pairs)
        count = pairs[0][0].size_bytes // kind.itemsize
        if not count:
            return
        places = tuple(
            [
                (driver.address_of(target), driver.address_of(source))
                for driver, (target, source) in zip(self.drivers, pairs, strict=True)
            ]
        )

        def call(number: int, stream: int) -> None:
            target, source = places[number]
            self._library.all_reduce(target, source, count, kind, op, self._comms[number], stream)

        self._queue(("all_reduce", op, kind, count, places), call)

    def exchange(self, moves: Sequence[Move]) -> None:
        """Queue bytes from and to cards of other processes, all at once.

        Every rank queues what it sends and gets in one order; what begins here together need not
        do so there.

        Raises: DeviceLostError, DeviceError: what the library and the cards say.
        """
        driver = self.drivers[0]
        rows = [
            (move.rank, driver.address_of(move.buffer), move.buffer.size_bytes, move.is_sent)
            for move in moves
            if move.buffer.size_bytes
        ]

        def call(number: int, stream: int) -> None:
            comm = self._comms[number]
            for rank, address, size_bytes, is_sent in rows:
                queue = self._library.send if is_sent else self._library.receive
                queue(address, size_bytes, rank, comm, stream)

        if rows:
            self._queue(("exchange", *rows), call)

    def _check_pairs(self, pairs: Sequence[Pair]) -> None:
        sizes = {buffer.size_bytes for pair in pairs for buffer in pair}
        if len(pairs) != len(self.drivers) or len(sizes) > 1:
            raise InternalError(
                "nccl: an all-reduce has a target and a source of one size for each card",
                got=f"{len(pairs)} pairs of {sorted(sizes)} bytes for {len(self.drivers)} cards",
            )

    def _queue(self, key: Any, call: Callable[[int, int], None]) -> None:
        """Queue a collective: by calls the first time, as graphs when it comes again."""
        self._check_usable()
        with self._calling(key[0]), self._lock:
            self._check_usable()  # now that nobody else can end it
            self._has_work = True
            faults.hit("nccl.collective")
            streams = [driver.peers.queue(is_copying=True) for driver in self.drivers]
            recorded = self._recorded(key, call, streams) if self._records else None
            if recorded is None:
                self._call_all(call, streams)
                return
            for driver, stream, row in zip(self.drivers, streams, recorded.graphs, strict=True):
                self._use(driver)
                driver.library.graph_launch(row[1], stream)

    def _call_all(self, call: Callable[[int, int], None], streams: Sequence[int]) -> None:
        with self._library.group():
            for number, (driver, stream) in enumerate(zip(self.drivers, streams, strict=True)):
                self._use(driver)
                call(number, stream)
        self._until_ready("begin a collective")

    def _recorded(
        self, key: Any, call: Callable[[int, int], None], streams: Sequence[int]
    ) -> _Recorded | None:
        """The graphs of a collective that has been seen before; None the first time."""
        if key not in self._seen:
            self._seen[key] = None
            while len(self._seen) > _MOST_GRAPHS:
                self._drop(self._seen.popitem(last=False)[1])
            return None
        self._seen.move_to_end(key)
        found = self._seen[key]
        if found is None:
            try:
                found = self._seen[key] = self._record(call, streams)
            except CudaCallError as error:
                trace.warn("nccl", f"collectives are not recorded, but queued by calls: {error}")
                self._records = False
        return found

    def _record(self, call: Callable[[int, int], None], streams: Sequence[int]) -> _Recorded:
        begun: list[tuple[CudaDriver, int]] = []
        graphs: list[tuple[int, int]] = []
        try:
            for driver, stream in zip(self.drivers, streams, strict=True):
                self._use(driver)
                driver.library.stream_begin_capture(stream)
                begun.append((driver, stream))
            self._call_all(call, streams)
            while begun:
                driver, stream = begun.pop(0)
                self._use(driver)
                graph = driver.library.stream_end_capture(stream)
                graphs.append((graph, driver.library.graph_instantiate(graph)))
        except BaseException:
            for driver, stream in begun:
                self._use(driver)
                _end_quietly(driver, stream)
            self._drop(_Recorded(tuple(graphs)))
            raise
        return _Recorded(tuple(graphs))

    def _drop(self, recorded: _Recorded | None) -> None:
        rows = () if recorded is None else recorded.graphs
        for driver, (graph, instance) in zip(self.drivers, rows, strict=False):
            if not driver.lost:
                self._use(driver)
                driver.library.graph_release(instance)
                driver.library.graph_destroy(graph)

    def _drop_graphs(self) -> None:
        seen, self._seen = self._seen, OrderedDict()
        for recorded in seen.values():
            self._drop(recorded)

    # ---- inside

    def _check_usable(self) -> None:
        if self.is_closed or any(driver.is_closed for driver in self.drivers):
            raise StaleHandleError("nccl: the group was closed, or one of its cards")
        if self.spoiled:
            raise self._failed_before()

    def _failed_before(self) -> DeviceLostError:
        return DeviceLostError(
            "nccl: the group has failed before", got=self.spoiled,
            try_="close its devices, and open them again",
        )  # fmt: skip

    def _use(self, driver: CudaDriver) -> None:
        driver.library.context_use(driver.context)

    def _calling(self, what: str) -> ExitStack:
        """The guards of all cards, and typed errors for the library's."""
        stack = ExitStack()
        stack.push(self._typed(what))
        for driver in sorted(self.drivers, key=lambda each: each.ordinal):
            stack.enter_context(driver.guard(f"nccl: {what}"))
        return stack

    def _typed(self, what: str) -> Any:
        def leave(kind: Any, error: BaseException | None, trace_: Any) -> bool:
            if isinstance(error, NcclCallError):
                raise self._translated(what, error, self.drivers[0].name) from error
            return False

        return leave

    def _translated(self, what: str, error: NcclCallError, name: str) -> TileworkError:
        self.abort(str(error))
        kind = DeviceLostError if error.status in LOST else DeviceError
        return kind(
            f"{name}: nccl: {what} failed", got=str(error),
            try_="close the devices of the group, and open them again",
        )  # fmt: skip


def library_of(driver: CudaDriver) -> NcclLibrary | None:
    """The collectives that go with the library of a card; None where there are none."""
    own: NcclLibrary | None = getattr(driver.library, "collectives", None)
    if own is not None:
        return own
    try:
        return open_nccl() if getattr(driver.library, "is_real", False) else None
    except DeviceUnavailableError:
        return None


def group_of(drivers: Sequence[CudaDriver]) -> NcclGroup:
    """A group of cards, which each of them watches and ends when it is closed.

    Raises: UnsupportedError without a library; what making a group raises.
    """
    library = library_of(drivers[0])
    if library is None:
        raise UnsupportedError("nccl: there is no library for these cards", try_=EXTRA)
    group = NcclGroup(library, drivers)
    for driver in drivers:
        driver.peers.watch(group)
    return group


def _end_quietly(driver: CudaDriver, stream: int) -> None:
    """End a recording that failed."""
    try:
        driver.library.graph_destroy(driver.library.stream_end_capture(stream))
    except CudaCallError as error:
        trace.warn("nccl", f"{driver.name}, a recording that failed: {error}")
