"""How long a lowered kernel takes, read off its statements: instructions, latencies, memory.

    cycles = predict(lower_kernel(sink, target, plan), target)

The numbers compare plans of one kernel, and kernels of one kind; they are no promise of time.
A loop's iteration takes what its instructions take, or what the longest chain through an
accumulator takes.  Memory is counted in cache lines: an access is fetched anew for each iteration
of the loops outside of the outermost one whose whole traffic fits a cache.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass, field
from tilework.ir.ops import math
from tilework.ir.ops.control import (
    ACCUMULATE,
    ACCUMULATOR,
    BROADCAST,
    END,
    EXTRACT,
    FOLD_LANES,
    SHUFFLE,
    STACK,
)
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.matrix_registers import DOT_MATRIX, LOAD_MATRIX, STORE_MATRIX
from tilework.ir.ops.memory import INDEX, LOAD, STORE
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node, OpDef
    from tilework.target.spec import TargetSpec

#: Cycles of one vector instruction, and of the index arithmetic that addressing does not take.
_VECTOR, _SCALAR_INDEX = 0.5, 0.1
#: Cycles of an instruction for each vector register, where it is no plain one.
_SLOW: Final[dict[OpDef, float]] = {
    math.FDIV: 10.0,
    math.RECIPROCAL: 10.0,
    math.SQRT: 12.0,
    math.CAST: 1.0,
    SHUFFLE: 1.0,
    EXTRACT: 1.0,
    BROADCAST: 0.25,
}
#: Cycles to load one row of a matrix register, and to store one; of a product whose instruction
#: does not say.
_MATRIX_ROW, _MATRIX_STORED_ROW, _MATRIX_PRODUCT = 0.5, 1.0, 16.0
#: Cycles from an operand of an addition to its result, of a product of matrices, and of others.
_ADD_LATENCY, _MATRIX_LATENCY, _OTHER_LATENCY = 4.0, 52.0, 1.0
_LOOP_CYCLES = 0.7
#: What a task takes besides its work, and a launch that is shared out.
_TASK_CYCLES, _LAUNCH_CYCLES = 8.0, 2500.0
#: How much of the shorter of computing and fetching is not hidden behind the other.
_EXPOSED = 0.3
#: A line that is stored is fetched before, and written back.
_STORED_LINES = 2.0
#: Lines that lie in pages of their own take longer, and so do those at computed places.
_PAGE_FACTOR, _COMPUTED_FACTOR = 2.0, 3.0
_PAGE_BYTES, _LINE_BYTES = 4096, 64


_MATRIX_OPS: Final = frozenset({LOAD_MATRIX, DOT_MATRIX, STORE_MATRIX})
_ACCESSES: Final = frozenset({LOAD, STORE, LOAD_MATRIX, STORE_MATRIX})


@dataclass(slots=True, eq=False)
class _Loop:
    """An open loop: how often it runs, what one iteration takes, what it touches."""

    range_: Node | None
    trips: float
    parent: _Loop | None
    cycles: float = 0.0
    chain: float = 0.0
    touched: dict[_Place, None] = field(default_factory=dict)

    def around(self) -> list[_Loop]:
        """The loops from this one outwards, without the kernel itself."""
        found: list[_Loop] = []
        loop: _Loop | None = self
        while loop is not None and loop.range_ is not None:
            found.append(loop)
            loop = loop.parent
        return found


@dataclass(slots=True, eq=False)
class _Place:
    """What one access, and those at fixed distances from it, touch.

    `steps` are (bytes, most values, ranges) of the terms of the offset.
    """

    loop: _Loop
    steps: list[tuple[int, int, frozenset[Node]]]
    bytes_: int
    is_stored: bool
    is_computed: bool
    constants: set[int] = field(default_factory=set)

    def lines(self, inside: list[_Loop]) -> float:
        """How many lines it touches while the loops `inside` run."""
        trips = {loop.range_: loop.trips for loop in inside}
        extent, count = self._together()
        steps = [
            (abs(size), self._values(most, ranges, trips)) for size, most, ranges in self.steps
        ]
        for size, values in sorted(steps):
            if size <= max(extent, _LINE_BYTES):
                extent += size * (values - 1)
            else:
                count *= values
        lines = count * max(extent / _LINE_BYTES, 1.0)
        return lines * _COMPUTED_FACTOR if self.is_computed else lines

    def _together(self) -> tuple[float, float]:
        """The bytes of accesses that lie side by side, on the average, and how many such there are.

        Those are the copies of a statement, at fixed distances from each other.
        """
        ends: list[tuple[int, int]] = []
        for start in sorted(self.constants):
            if ends and start <= ends[-1][1] + _LINE_BYTES:
                ends[-1] = (ends[-1][0], start + self.bytes_)
            else:
                ends.append((start, start + self.bytes_))
        return sum(end - start for start, end in ends) / len(ends), float(len(ends))

    def factor(self) -> float:
        """What a line takes more than one that is read in order."""
        far = max((abs(size) for size, values, _ in self.steps if values > 1), default=0)
        near = min((abs(size) for size, values, _ in self.steps if values > 1), default=0)
        in_order = near <= max(self.bytes_, _LINE_BYTES)
        return _PAGE_FACTOR if far >= _PAGE_BYTES and not in_order else 1.0

    def _values(self, most: int, ranges: frozenset[Node], trips: dict[Node | None, float]) -> float:
        values = 1.0
        for range_ in ranges:
            values *= trips.get(range_, 1.0)
        return min(values, float(most))


def predict(lowered: LoweredKernel, target: TargetSpec) -> float:
    """About how many cycles a kernel takes on all cores of the target."""
    walk = _Walk(target)
    for statement in lowered.linear.src:
        walk.take(statement)
    return walk.total()


class _Walk:
    """Goes over the statements with a stack of open loops."""

    def __init__(self, target: TargetSpec) -> None:
        self.target = target
        self.vector_bytes = max(target.vector_bytes, 8)
        self.root = _Loop(None, 1.0, None)
        self.loop = self.root
        self.loops: dict[_Loop, list[_Loop]] = {self.root: []}
        self.places: dict[tuple[object, ...], _Place] = {}
        self.latency: dict[Node, float] = {}
        self.ranges: dict[Node, frozenset[Node]] = {}
        self.tasks = 1.0

    def take(self, node: Node) -> None:
        """Count one statement."""
        if node.op is RANGE:
            self._open(node)
        elif node.op is END:
            self._close()
        else:
            self.loop.cycles += self._cycles(node)
            self._follow(node)
            if node.op in _ACCESSES:
                self._touch(node)

    def total(self) -> float:
        """The cycles of the whole kernel."""
        while self.loop is not self.root:
            self._close()
        work = self.root.cycles
        fetching = self._fetching()
        work = max(work, fetching) + _EXPOSED * min(work, fetching)
        cores = self.target.cores
        if self.tasks == 1 or cores == 1:
            return work + self.tasks * _TASK_CYCLES
        rounds = -(-self.tasks // cores)
        return rounds * (work / self.tasks + _TASK_CYCLES) + _LAUNCH_CYCLES

    # ---- loops

    def _open(self, range_: Node) -> None:
        trips = float(max(bounds(range_.src[0])[1], 1))
        if range_.attrs.unit is Unit.THREAD:
            self.tasks *= trips
        self.loop = _Loop(range_, trips, self.loop)

    def _close(self) -> None:
        loop, parent = self.loop, self.loop.parent
        if parent is None:
            return
        parent.cycles += loop.trips * (max(loop.cycles, loop.chain) + _LOOP_CYCLES)
        self.loop = parent

    # ---- instructions

    def _registers(self, node: Node) -> float:
        """Vector registers that a value, or the widest of its sources, fills."""
        kinds = [node.type, *(source.type for source in node.src)]
        size = max((kind.lanes or 1) * kind.dtype.itemsize for kind in kinds)
        return max(-(-size // self.vector_bytes), 1)

    def _cycles(self, node: Node) -> float:
        op = node.op
        if op in (INDEX, ACCUMULATOR, ACCUMULATE):
            return 0.0
        if op in (LOAD, STORE):
            gated = len(node.src) > (1 if op is LOAD else 2)
            own = node.type if op is LOAD else node.src[1].type
            registers = max(-(-(own.lanes or 1) * own.dtype.itemsize // self.vector_bytes), 1)
            return registers * (0.5 if op is LOAD else 1.0) * (1.5 if gated else 1.0)
        if op in _MATRIX_OPS:
            return self._matrix_cycles(node)
        if op is STACK:
            return float(len(node.src))
        if op is FOLD_LANES:
            return 2.0 * max(node.src[0].type.lanes, 1).bit_length()
        if node.type.lanes == 0 and node.type.dtype.is_integer and not _reads_memory(node):
            return _SCALAR_INDEX
        return self._registers(node) * _SLOW.get(op, _VECTOR)

    def _matrix_cycles(self, node: Node) -> float:
        """Of an instruction for matrix registers, by the rows that it is asked for."""
        if node.op is LOAD_MATRIX:
            return _MATRIX_ROW * float(node.attrs.rows)
        if node.op is STORE_MATRIX:
            return _MATRIX_STORED_ROW * float(node.attrs.rows)
        for found in self.target.matrix_instructions:
            if found.registers and found.cycles:
                rows, most = node.type.shape[0], found.m
                return found.cycles * (rows / most if isinstance(rows, int) and most else 1.0)
        return _MATRIX_PRODUCT

    def _follow(self, node: Node) -> None:
        """The latency from the accumulators of this iteration to a value."""
        if node.op is ACCUMULATOR:
            self.latency[node] = 0.0
            return
        known = [self.latency[source] for source in node.src if source in self.latency]
        if not known:
            return
        if node.op is ACCUMULATE:
            value = self.latency.get(node.src[1], 0.0)
            self.loop.chain = max(self.loop.chain, value)
            return
        slow = node.op in (math.ADD, math.MUL, math.MULACC, math.SUB)
        own = _ADD_LATENCY if slow and node.type.dtype.is_float else _OTHER_LATENCY
        own = _MATRIX_LATENCY if node.op is DOT_MATRIX else own
        self.latency[node] = max(known) + own * (4.0 if node.op in (math.FDIV, math.SQRT) else 1.0)

    # ---- memory

    def _touch(self, node: Node) -> None:
        address = node.src[0]
        if address.op is not INDEX:
            return
        buffer, offset = address.src
        constant, terms = simplify.terms(offset)
        own = node.type if node.op in (LOAD, LOAD_MATRIX) else node.src[1].type
        item = own.dtype.itemsize
        lanes, rows, stride = own.lanes or 1, 1, 0
        if node.op in _MATRIX_OPS:
            lanes, rows, stride = node.attrs.columns, node.attrs.rows, node.attrs.stride
        key = (buffer, self.loop, node.op, tuple(terms.items()))
        place = self.places.get(key)
        if place is None:
            steps = [(factor * item, *self._span(term)) for term, factor in terms.items()]
            computed = any(_reads_memory(term) for term in terms)
            place = self.places[key] = _Place(
                self.loop, steps, lanes * item, node.op in (STORE, STORE_MATRIX), computed
            )
            for loop in self.loop.around():
                loop.touched[place] = None
        place.constants.update((constant + row * stride) * item for row in range(rows))

    def _span(self, term: Node) -> tuple[int, frozenset[Node]]:
        """How many values a term has at most, and the ranges that it moves with."""
        low, high = bounds(term)
        return high - low + 1, self._ranges_of(term)

    def _ranges_of(self, term: Node) -> frozenset[Node]:
        known = self.ranges.get(term)
        if known is None:
            found: set[Node] = set()
            seen: set[Node] = set()
            stack = [term]
            while stack:
                node = stack.pop()
                if node in seen:
                    continue
                seen.add(node)
                if node.op is RANGE:
                    found.add(node)
                else:
                    stack.extend(node.src)
            known = self.ranges[term] = frozenset(found)
        return known

    def _fetching(self) -> float:
        """Cycles to bring lines into the first cache, from wherever they are then."""
        total = 0.0
        levels = self._levels()
        around = {place: place.loop.around() for place in self.places.values()}
        sizes: dict[_Loop, float] = {}
        whole = sum(place.lines(loops) for place, loops in around.items()) * _LINE_BYTES
        for (cache, _), (_, cycles) in pairwise(levels):
            if whole <= cache * self._shares():
                continue  # it is still there from before
            for place, loops in around.items():
                inside: list[_Loop] = []
                for loop in loops:
                    if self._footprint(loop, around, sizes) > cache:
                        break
                    inside.append(loop)
                lines = place.lines(inside) * place.factor()
                for loop in loops[len(inside) :]:
                    lines *= loop.trips
                total += lines * cycles * (_STORED_LINES if place.is_stored else 1.0)
        return total

    def _shares(self) -> float:
        """Among how many cores, each with its own caches, the tasks are shared out."""
        return float(min(self.tasks, self.target.cores))

    def _footprint(
        self, loop: _Loop, around: dict[_Place, list[_Loop]], sizes: dict[_Loop, float]
    ) -> float:
        """The bytes that one run of a whole loop touches."""
        known = sizes.get(loop)
        if known is None:
            total = 0.0
            for place in loop.touched:
                loops = around[place]
                total += place.lines(loops[: loops.index(loop) + 1])
            known = sizes[loop] = total * _LINE_BYTES
        return known

    def _levels(self) -> list[tuple[int, float]]:
        """(bytes, cycles to fetch a line from it) of the caches, then of memory."""
        found: list[tuple[int, float]] = []
        for name in ("L1", "L2", "L3", "global"):
            size = self.target.memory_bytes(name)
            if size or name == "global":
                width = self.target.memory(name).bandwidth_bytes_per_cycle
                found.append((size, _LINE_BYTES / max(width, 1)))
        return found


def _reads_memory(node: Node) -> bool:
    """Is a value computed from what was loaded?"""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        if part.op is LOAD:
            return True
        if part not in seen and part.op is not RANGE:
            seen.add(part)
            stack.extend(part.src)
    return False
