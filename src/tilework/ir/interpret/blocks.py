"""Blocks of threads that run a LINEAR kernel: barriers, folds over threads, shared memory.

Every thread of a block runs the same statements with registers of its own; a block's TILE memory is
shared.  Where threads meet (BARRIER, FOLD_THREADS) each waits for the others.  A thread that does
not come is an error, and so are two threads that touch one place of shared memory, one of them to
write, where nothing orders the two.  What is ordered is told by vector clocks (Lamport; Mattern,
"Virtual time and global states of distributed systems", 1989): each thread counts what it has
published, and knows how much of the others' counts it has seen through barriers and signals.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError, TileworkError
from tilework.ir.interpret.folds import doubled, fold_function, fold_halves, identity, running
from tilework.ir.interpret.linear import compile_linear
from tilework.ir.interpret.steps import TEAM
from tilework.ir.ops import control, matrix, scan, warp_matrix
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import sort as sort_ops
from tilework.ir.ops.index import Unit
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tilework.ir.interpret.memory import Bytes, Cells
    from tilework.ir.interpret.program import Program
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node

#: Threads that fold by halves before their results are combined.
NEIGHBOURS: Final = 32
_WAIT_SECONDS: Final = 300.0
#: How often a block looks for threads that wait for one that is gone.
_POLL_SECONDS: Final = 0.05
_MEETINGS = frozenset(
    [
        control.BARRIER,
        control.FOLD_THREADS,
        control.SCAN_THREADS,
        matrix.SIGNAL_INIT,
        warp_matrix.LOAD_FRAGMENT,
        warp_matrix.MATRIX_WARP,
        sort_ops.RANK_IN_WARP,
        scan.SCAN_BLOCKS,
        index_ops.TASK_IN_ORDER,
    ]
)


def run_blocks(
    linear: Node,
    buffers: Sequence[Bytes],
    variables: Mapping[str, int] | None = None,
    *,
    blocks: int,
    tasks: int = 1,
) -> list[int]:
    """Run the statements of a kernel by blocks of threads, one block after the other.

    Args:
        linear: LINEAR of the statements; its WARP and LOCAL ranges say how many threads there are.
        buffers: Memory of PARAM(0), PARAM(1), ...; written in place.
        variables: The value of each VARIABLE by name.
        blocks: How many blocks there are.
        tasks: How many tasks one block runs, where its THREAD ranges are loops over tasks.

    Returns:
        The codes of the FAULT_IFs whose condition held, each once.

    Raises:
        BoundsError: A load or store lies outside of its memory.
        InternalError: Threads race, or wait for one that does not come.
    """
    program = compile_linear(linear)
    sizes = {Unit.WARP: 1, Unit.LOCAL: 1}
    for node in program.nodes:
        if node.op is index_ops.RANGE and node.attrs.unit in sizes:
            sizes[node.attrs.unit] = bounds(node.src[0])[1]
    meets = any(node.op in _MEETINGS for node in linear.src)
    faults: list[int] = []
    for block in range(blocks):
        team = Team(sizes[Unit.WARP], sizes[Unit.LOCAL])
        base = program.frame(buffers, variables or {}, block * tasks, (block + 1) * tasks)
        for node in program.allocations:
            slot = program.main.slots[node]
            base[slot] = SharedCells(base[slot], team)
        _run_block(program, base, team, meets=meets)
        faults += [code for code in base[0] if code not in faults]
    return faults


def _run_block(program: Program, base: Frame, team: Team, *, meets: bool) -> None:
    if not meets:
        for thread in range(team.count):
            _run_thread(program, list(base), team, thread)
        return
    workers = [
        threading.Thread(target=_work, args=(program, list(base), team, thread), daemon=True)
        for thread in range(team.count)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        while worker.is_alive():
            worker.join(_POLL_SECONDS)
            team.notice()
    if team.error is not None:
        raise team.error


def _work(program: Program, frame: Frame, team: Team, thread: int) -> None:
    """One thread beside the others; an error ends them all."""
    try:
        _run_thread(program, frame, team, thread)
    except threading.BrokenBarrierError:
        team.fail(InternalError("block: a thread waits for others that do not come", got=thread))
    except TileworkError as error:
        team.fail(error)
    else:
        team.leave()


def _run_thread(program: Program, frame: Frame, team: Team, thread: int) -> None:
    frame[TEAM] = Member(team, thread)
    team.current.thread = thread
    for step in program.main.steps:
        step(frame)
    frame[TEAM].check_end()


class Team:
    """The threads of one block."""

    def __init__(self, warps: int, local: int) -> None:
        self.warps = warps
        self.local = local
        self.count = warps * local
        self.clocks = [
            [int(i == thread) for i in range(self.count)] for thread in range(self.count)
        ]
        everyone = range(self.count)
        self.barrier = threading.Barrier(self.count, action=lambda: self._publish(everyone))
        self.values: list[Any] = [None] * self.count
        self.signals: dict[tuple[int, int], Any] = {}
        self.meetings: dict[Any, _Meeting] = {}
        self.lock = threading.Lock()
        self.current = threading.local()
        self.error: Exception | None = None
        self.has_left = False
        #: The task that the block took, where blocks take them in the order in which they start.
        self.ticket = 0

    def fail(self, error: Exception) -> None:
        """Keep the first error, and let no thread wait any longer."""
        with self.lock:
            if self.error is None:
                self.error = error
            self.barrier.abort()
            for meeting in self.meetings.values():
                meeting.barrier.abort()
            for signal in self.signals.values():
                signal.give_up()

    def leave(self) -> None:
        """A thread is at its end; nobody may wait for it."""
        self.has_left = True
        self.notice()

    def notice(self) -> None:
        """Let nobody wait for a thread that is at its end."""
        if self.has_left and self.barrier.n_waiting:
            self.barrier.abort()

    def meet(self) -> None:
        """Wait for all threads."""
        self.barrier.wait(_WAIT_SECONDS)

    def add_signal(self, key: tuple[int, int], signal: Any) -> None:
        """Know a signal that threads will wait for."""
        with self.lock:
            self.signals[key] = signal
            if self.error is not None:
                signal.give_up()

    def meet_some(self, key: Any, thread: int, count: int) -> None:
        """Wait for `count` threads that name the same meeting."""
        with self.lock:
            if self.error is not None:
                raise threading.BrokenBarrierError  # some of them have ended
            meeting = self.meetings.get(key)
            if meeting is None:
                meeting = self.meetings[key] = _Meeting(self, count)
            meeting.present.append(thread)
        meeting.barrier.wait(_WAIT_SECONDS)

    def publish(self, threads: Iterable[int]) -> None:
        """These threads have met: each has seen what any of them had."""
        self._publish(list(threads))

    def _publish(self, threads: Sequence[int]) -> None:
        top = [max(column) for column in zip(*(self.clocks[t] for t in threads), strict=True)]
        for thread in threads:
            mine = list(top)
            mine[thread] += 1
            self.clocks[thread] = mine

    def group(self, thread: int, unit: Unit) -> list[int]:
        """The threads that differ from this one along a unit alone, in its order."""
        warp, local = divmod(thread, self.local)
        if unit is Unit.LOCAL:
            return [warp * self.local + other for other in range(self.local)]
        return [other * self.local + local for other in range(self.warps)]


class _Meeting:
    """A barrier of some threads, by the name that they give it."""

    def __init__(self, team: Team, count: int) -> None:
        self.team = team
        self.present: list[int] = []
        self.barrier = threading.Barrier(count, action=self._met)

    def _met(self) -> None:
        threads, self.present = self.present, []
        self.team.publish(threads)


class Member:
    """One thread of a team: its coordinates, and where it meets the others."""

    def __init__(self, team: Team, thread: int) -> None:
        self.team = team
        self.thread = thread
        warp, local = divmod(thread, team.local)
        self.coordinates = {Unit.WARP: warp, Unit.LOCAL: local}
        #: Reads that go on beside this thread, in groups, the oldest first: (memory, element).
        self.reading: dict[str, list[list[tuple[SharedCells, int]]]] = {}
        #: How many of the groups of products are closed.
        self.products = 0
        #: Copies that are under way, in groups, the oldest first; the last one is open.
        self.writing: list[list[tuple[SharedCells, int, Any, Node]]] = [[]]

    def meet(self) -> None:
        """Wait for all threads."""
        self.team.meet()

    def meet_some(self, key: Any, count: int) -> None:
        """Wait for `count` threads that name the same meeting."""
        self.team.meet_some(key, self.thread, count)

    def tick(self) -> list[int]:
        """What this thread has done and seen, for those who wait for its signal."""
        clock = self.team.clocks[self.thread]
        seen = list(clock)
        clock[self.thread] += 1
        return seen

    def see(self, seen: Sequence[int]) -> None:
        """Another thread's signal has come."""
        mine = self.team.clocks[self.thread]
        self.team.clocks[self.thread] = list(map(max, mine, seen))

    def share_in_warp(self, value: Any) -> list[Any]:
        """The values of the 32 threads of this thread's warp."""
        warp = self.thread // NEIGHBOURS
        team = self.team
        team.values[self.thread] = value
        self.meet_some(("warp", warp), NEIGHBOURS)
        found = team.values[warp * NEIGHBOURS : (warp + 1) * NEIGHBOURS]
        self.meet_some(("warp", warp), NEIGHBOURS)
        return found

    def share_in_block(self, value: Any) -> list[Any]:
        """The values of all threads of the block, in order."""
        team = self.team
        team.values[self.thread] = value
        team.meet()
        found = list(team.values)
        team.meet()
        return found

    def begin_reads(self, kind: str, places: Iterable[tuple[SharedCells, int]]) -> None:
        """Something beside this thread reads these places until `end_reads`."""
        group = list(places)
        for cells, at in group:
            cells.begin_read(at)
        self.reading.setdefault(kind, []).append(group)

    def end_reads(self, kind: str, left: int) -> None:
        """All groups of reads but the last `left` are over."""
        groups = self.reading.get(kind, [])
        while len(groups) > left:
            for cells, at in groups.pop(0):
                cells.end_read(at)

    def begin_write(self, cells: SharedCells, at: int, value: Any, node: Node) -> None:
        """A copy beside this thread writes this place until `end_writes`."""
        cells.begin_write(at, node)
        self.writing[-1].append((cells, at, value, node))

    def close_writes(self) -> None:
        """The copies since the last call are one group."""
        self.writing.append([])

    def end_writes(self, left: int) -> None:
        """All closed groups of copies but the last `left` have come."""
        while len(self.writing) - 1 > left:
            for cells, at, value, node in self.writing.pop(0):
                cells.end_write(at, value, node)

    def check_end(self) -> None:
        """Raise InternalError where a copy was started and never waited for."""
        left = [node for group in self.writing for _, _, _, node in group]
        if left:
            raise InternalError("block: a copy is not waited for", got=repr(left[0]))

    def fold(self, node: Node, value: Any) -> Any:
        """The fold of the values of all threads along the units of a FOLD_THREADS."""
        units = [source.attrs.unit for source in node.src[1:]]
        for unit in (Unit.LOCAL, Unit.WARP):
            if unit in units:
                value = self._fold_along(node, value, unit)
        return value

    def scan(self, node: Node, value: Any) -> Any:
        """The running fold of what the threads along LOCAL have, as this thread sees it."""
        fold, dtype = node.attrs.fold, node.type.dtype
        combine = fold_function(fold, dtype)
        lanes = list(value) if isinstance(value, tuple) else [value]
        sums = running(fold, dtype, lanes, exclusive=False)
        totals = self._along(sums[-1], Unit.LOCAL)
        start = identity(fold, dtype)
        before = _before(totals, self.coordinates[Unit.LOCAL], combine, start)
        if node.attrs.exclusive:
            found = [before, *(combine(before, part) for part in sums[:-1])]
        else:
            found = [combine(before, part) for part in sums]
        return tuple(found) if isinstance(value, tuple) else found[0]

    def rank(self, node: Node, counter: tuple[Any, int], value: int) -> int:
        """The rank of this thread among those of its warp with its value, on top of a counter."""
        cells, at = counter
        others = self.share_in_warp((at, value))
        if any((place == at) is not (other == value) for place, other in others):
            raise InternalError("rank_in_warp: values and counters do not fit", got=repr(node))
        before = sum(place == at for place, _ in others[: self.thread % NEIGHBOURS])
        known: int = cells.load(at, node)
        self.meet_some(("warp", self.thread // NEIGHBOURS), NEIGHBOURS)
        if not before:
            cells.store(at, known + sum(place == at for place, _ in others), node)
        self.meet_some(("warp", self.thread // NEIGHBOURS), NEIGHBOURS)
        rank: int = known + before
        return rank

    def _along(self, value: Any, unit: Unit) -> list[Any]:
        """What the threads along a unit have, in its order."""
        team = self.team
        team.values[self.thread] = value
        team.barrier.wait(_WAIT_SECONDS)
        values = [team.values[thread] for thread in team.group(self.thread, unit)]
        team.barrier.wait(_WAIT_SECONDS)
        return values

    def _fold_along(self, node: Node, value: Any, unit: Unit) -> Any:
        values = self._along(value, unit)
        if isinstance(value, tuple):
            lanes = zip(*values, strict=True)
            return tuple([_folded(node, list(lane), unit) for lane in lanes])
        return _folded(node, values, unit)


def _folded(node: Node, values: list[Any], unit: Unit) -> Any:
    """The values of threads side by side folded by halves, of 32 neighbours first."""
    fold, dtype = node.attrs.fold, node.type.dtype
    if unit is Unit.LOCAL and len(values) > NEIGHBOURS:
        starts = range(0, len(values), NEIGHBOURS)
        values = [fold_halves(fold, dtype, values[at : at + NEIGHBOURS]) for at in starts]
    return fold_halves(fold, dtype, values)


def _before(totals: list[Any], at: int, combine: Callable[[Any, Any], Any], start: Any) -> Any:
    """The fold of the totals before one: inside of 32 neighbours, then of theirs."""
    starts = range(0, len(totals), NEIGHBOURS)
    groups = [doubled(totals[first : first + NEIGHBOURS], combine) for first in starts]
    group, place = divmod(at, NEIGHBOURS)
    before = groups[group][place - 1] if place else start
    if not group:
        return before
    return combine(doubled([found[-1] for found in groups], combine)[group - 1], before)


class SharedCells:
    """Shared memory that notices when threads touch one place and nothing orders them."""

    def __init__(self, cells: Cells, team: Team) -> None:
        self._cells = cells
        self._team = team
        self._written: dict[int, tuple[int, int]] = {}
        self._read: dict[int, dict[int, int]] = {}
        self._reading: Counter[int] = Counter()
        #: Places that belong to a copy until it has come.
        self._writing: set[int] = set()
        #: When threads have last raised a counter, by its place.
        self._raised: dict[int, dict[int, int]] = {}
        self._lock = threading.Lock()

    def load(self, at: int, node: Node) -> Any:
        """The element at `at`."""
        with self._lock:
            self._check_written(at, node)
            self._note_read(at)
        return self._cells.load(at, node)

    def store(self, at: int, element: Any, node: Node) -> None:
        """Replace the element at `at`."""
        with self._lock:
            thread, clock = self._now()
            self._check_written(at, node)
            self._check_read(at, node)
            if self._reading[at] > 0:
                raise self._race(at, node, "a copy or product that is not done")
            self._written[at] = (thread, clock[thread])
            self._raised.pop(at, None)
        self._cells.store(at, element, node)

    def count_up(self, at: int, node: Node) -> None:
        """Raise the element at `at` by 1, beside other threads that do the same."""
        with self._lock:
            thread, clock = self._now()
            raised = self._raised.pop(at, {})
            self._check_written(at, node)
            self._check_read(at, node)
            self._raised[at] = raised | {thread: clock[thread]}
            self._cells.store(at, self._cells.load(at, node) + 1, node)

    def peek(self, at: int, node: Node) -> Any:
        """The element at `at` for a read that goes on beside the thread (`Member.begin_reads`)."""
        with self._lock:
            self._check_written(at, node)
        return self._cells.load(at, node)

    def begin_read(self, at: int) -> None:
        """Something reads this place, and may go on to."""
        with self._lock:
            self._reading[at] += 1

    def end_read(self, at: int) -> None:
        """It has read it."""
        with self._lock:
            self._reading[at] -= 1
            self._note_read(at)

    def begin_write(self, at: int, node: Node) -> None:
        """Something begins to write this place, and owns it until then."""
        with self._lock:
            self._check_written(at, node)
            self._check_read(at, node)
            if self._reading[at] > 0:
                raise self._race(at, node, "a copy or product that is not done")
            self._writing.add(at)

    def end_write(self, at: int, element: Any, node: Node) -> None:
        """It has written it."""
        with self._lock:
            self._writing.discard(at)
        self.store(at, element, node)

    def _note_read(self, at: int) -> None:
        thread, clock = self._now()
        self._read.setdefault(at, {})[thread] = clock[thread]

    def _check_written(self, at: int, node: Node) -> None:
        thread, clock = self._now()
        if at in self._writing:
            raise self._race(at, node, "a copy that has not come")
        writer = self._written.get(at)
        if writer is not None and writer[0] != thread and writer[1] > clock[writer[0]]:
            raise self._race(at, node, f"thread {writer[0]}")
        for other, tick in self._raised.get(at, {}).items():
            if other != thread and tick > clock[other]:
                raise self._race(at, node, f"thread {other}")

    def _check_read(self, at: int, node: Node) -> None:
        thread, clock = self._now()
        for reader, tick in self._read.get(at, {}).items():
            if reader != thread and tick > clock[reader]:
                raise self._race(at, node, f"thread {reader}")

    def _now(self) -> tuple[int, list[int]]:
        thread: int = self._team.current.thread
        return thread, self._team.clocks[thread]

    def _race(self, at: int, node: Node, other: str) -> InternalError:
        return InternalError(
            "block: two threads touch one place of shared memory without a barrier in between",
            got=f"element {at}, thread {self._now()[0]} and {other}, by {node!r}",
        )
