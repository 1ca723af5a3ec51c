"""Blocks of threads that run a LINEAR kernel: barriers, folds over threads, shared memory.

Every thread of a block runs the same statements with registers of its own; a block's TILE memory is
shared.  Where threads meet (BARRIER, FOLD_THREADS) each waits for the others; a thread that does
not come, and two threads that touch one place of shared memory without a barrier in between while
one of them writes, are errors.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError, TileworkError
from tilework.ir.interpret.folds import fold_halves
from tilework.ir.interpret.linear import compile_linear
from tilework.ir.interpret.steps import TEAM
from tilework.ir.ops import control
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.index import Unit
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.interpret.memory import Bytes, Cells
    from tilework.ir.interpret.program import Program
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node

#: Threads that fold by halves before their results are combined.
NEIGHBOURS: Final = 32
_WAIT_SECONDS: Final = 60.0
_MEETINGS = frozenset([control.BARRIER, control.FOLD_THREADS])


def run_blocks(
    linear: Node,
    buffers: Sequence[Bytes],
    variables: Mapping[str, int] | None = None,
    *,
    blocks: int,
) -> list[int]:
    """Run the statements of a kernel by blocks of threads, one block after the other.

    Args:
        linear: LINEAR of the statements; its WARP and LOCAL ranges say how many threads there are.
        buffers: Memory of PARAM(0), PARAM(1), ...; written in place.
        variables: The value of each VARIABLE by name.
        blocks: How many blocks there are.

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
        base = program.frame(buffers, variables or {}, block, block + 1)
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
        worker.join()
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


class Team:
    """The threads of one block."""

    def __init__(self, warps: int, local: int) -> None:
        self.warps = warps
        self.local = local
        self.count = warps * local
        self.barrier = threading.Barrier(self.count)
        self.values: list[Any] = [None] * self.count
        self.epochs = [0] * self.count
        self.current = threading.local()
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Keep the first error, and let no thread wait any longer."""
        if self.error is None:
            self.error = error
        self.barrier.abort()

    def leave(self) -> None:
        """A thread is at its end; nobody may wait for it."""
        if self.barrier.n_waiting:
            self.barrier.abort()

    def meet(self, thread: int) -> None:
        """Wait for all threads."""
        self.barrier.wait(_WAIT_SECONDS)
        self.epochs[thread] += 1

    def group(self, thread: int, unit: Unit) -> list[int]:
        """The threads that differ from this one along a unit alone, in its order."""
        warp, local = divmod(thread, self.local)
        if unit is Unit.LOCAL:
            return [warp * self.local + other for other in range(self.local)]
        return [other * self.local + local for other in range(self.warps)]


class Member:
    """One thread of a team: its coordinates, and where it meets the others."""

    def __init__(self, team: Team, thread: int) -> None:
        self.team = team
        self.thread = thread
        warp, local = divmod(thread, team.local)
        self.coordinates = {Unit.WARP: warp, Unit.LOCAL: local}

    def meet(self) -> None:
        """Wait for all threads."""
        self.team.meet(self.thread)

    def fold(self, node: Node, value: Any) -> Any:
        """The fold of the values of all threads along the units of a FOLD_THREADS."""
        units = [source.attrs.unit for source in node.src[1:]]
        for unit in (Unit.LOCAL, Unit.WARP):
            if unit in units:
                value = self._fold_along(node, value, unit)
        return value

    def _fold_along(self, node: Node, value: Any, unit: Unit) -> Any:
        team = self.team
        team.values[self.thread] = value
        team.barrier.wait(_WAIT_SECONDS)
        values = [team.values[thread] for thread in team.group(self.thread, unit)]
        team.barrier.wait(_WAIT_SECONDS)
        fold, dtype = node.attrs.fold, node.type.dtype
        if unit is Unit.LOCAL and len(values) > NEIGHBOURS:
            starts = range(0, len(values), NEIGHBOURS)
            values = [fold_halves(fold, dtype, values[at : at + NEIGHBOURS]) for at in starts]
        return fold_halves(fold, dtype, values)


class SharedCells:
    """Shared memory that notices when threads touch one place without a barrier in between."""

    def __init__(self, cells: Cells, team: Team) -> None:
        self._cells = cells
        self._team = team
        self._written: dict[int, tuple[int, int]] = {}
        self._read: dict[int, tuple[int, int, bool]] = {}
        self._lock = threading.Lock()

    def load(self, at: int, node: Node) -> Any:
        """The element at `at`."""
        thread, epoch = self._now()
        with self._lock:
            writer = self._written.get(at)
            if writer is not None and writer[0] != thread and writer[1] == epoch:
                raise self._race(at, node, writer[0])
            reader = self._read.get(at)
            is_same = reader is not None and reader[1] == epoch
            several = is_same and reader is not None and (reader[0] != thread or reader[2])
            self._read[at] = (thread, epoch, several)
        return self._cells.load(at, node)

    def store(self, at: int, element: Any, node: Node) -> None:
        """Replace the element at `at`."""
        thread, epoch = self._now()
        with self._lock:
            writer = self._written.get(at)
            if writer is not None and writer[0] != thread and writer[1] == epoch:
                raise self._race(at, node, writer[0])
            reader = self._read.get(at)
            if reader is not None and reader[1] == epoch and (reader[0] != thread or reader[2]):
                raise self._race(at, node, reader[0])
            self._written[at] = (thread, epoch)
        self._cells.store(at, element, node)

    def _now(self) -> tuple[int, int]:
        thread: int = self._team.current.thread
        return thread, self._team.epochs[thread]

    def _race(self, at: int, node: Node, other: int) -> InternalError:
        return InternalError(
            "block: two threads touch one place of shared memory without a barrier in between",
            got=f"element {at}, threads {self._now()[0]} and {other}, by {node!r}",
        )
