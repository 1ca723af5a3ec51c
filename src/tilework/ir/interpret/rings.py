"""The meaning of matrix instructions and of the rings that feed them, for threads of a block.

Copies happen at once, by the thread that asks for them; what a real machine may do later is checked
through the clocks of the block (`clocks.Clock`): memory that another thread wrote or reads may be
touched only after a signal or barrier that orders the two.
"""

from __future__ import annotations

import math
import threading
from itertools import product
from operator import mul
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError
from tilework.dtypes import float32
from tilework.ir.interpret.floats import rounder, small_values, to_bits
from tilework.ir.interpret.folds import fold_halves
from tilework.ir.ops import matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tilework.ir.interpret.blocks import Member
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node, OpDef
    from tilework.ir.ops.matrix import BoxedAttrs

#: The slot of the thread that runs; `steps.TEAM`, which imports this module's table.
_TEAM: Final = 3
_WAIT_SECONDS: Final = 300.0
_CHUNK_BYTES: Final = 16
_ROW_BYTES: Final = 128
_TWO_BYTES: Final = 2
_TO_FLOAT32: Final = rounder(float32)
_HALF: Final = 1 << 31
#: Significant bits of a sum of 8-bit floats, and of an operand of 32 bits.
SHORT_SUM_BITS, LONG_OPERAND_BITS = 14, 11


class Signal:
    """Arrivals and bytes of one phase after the other; its clock is what the arrived had seen."""

    def __init__(self, count: int, threads: int) -> None:
        self.count = count
        self.arrived = 0
        self.bytes = 0
        self.phase = 0
        self.given_up = False
        self.seen = [0] * threads
        self.changed = threading.Condition()

    def arrive(self, clock: list[int], more_bytes: int = 0) -> None:
        """One arrival, which may announce bytes."""
        with self.changed:
            self._see(clock)
            self.arrived += 1
            self.bytes += more_bytes
            self._advance()

    def complete(self, clock: list[int], count: int) -> None:
        """Bytes have come."""
        with self.changed:
            self._see(clock)
            self.bytes -= count
            self._advance()

    def wait(self, parity: int) -> list[int] | None:
        """Wait for the phase of a parity; what those who arrived had seen, None if none came."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.given_up or (self.phase - 1) & 1 == parity, _WAIT_SECONDS
            )
            return list(self.seen) if (self.phase - 1) & 1 == parity else None

    def give_up(self) -> None:
        """Nothing more will come: let nobody wait."""
        with self.changed:
            self.given_up = True
            self.changed.notify_all()

    def _see(self, clock: list[int]) -> None:
        self.seen = list(map(max, self.seen, clock))

    def _advance(self) -> None:
        if self.arrived == self.count and not self.bytes:
            self.phase += 1
            self.arrived = 0
            self.changed.notify_all()


def swizzled(position: int, itemsize: int, swizzle_bytes: int) -> int:
    """Where the element at `position` of a box stands: 16-byte chunks permuted within rows."""
    if not swizzle_bytes:
        return position
    width = swizzle_bytes // itemsize
    row, column = divmod(position, width)
    chunk, rest = divmod(column, _CHUNK_BYTES // itemsize)
    return row * width + (chunk ^ row % 8) * (_CHUNK_BYTES // itemsize) + rest


def _elements(attrs: BoxedAttrs, corner: list[int]) -> Iterator[tuple[int, int | None]]:
    """(position in the box, element of the buffer or None outside of the array)."""
    steps = attrs.steps or (1,) * len(attrs.box)
    pairs = zip(reversed(attrs.box), reversed(steps), strict=True)
    axes = [range(0, size * step, step) for size, step in pairs]
    for position, reverse in enumerate(product(*axes)):
        at = [start + step for start, step in zip(corner, reversed(reverse), strict=True)]
        inside = all(0 <= i < size for i, size in zip(at, attrs.sizes, strict=True))
        offset = attrs.start + sum(i * s for i, s in zip(at, attrs.strides, strict=True))
        yield position, offset if inside else None


def member_of(frame: Frame, node: Node) -> Member:
    """The thread of the block that runs the statement."""
    member: Member | None = frame[_TEAM]
    if member is None:
        raise InternalError(f"{node.op.name}: needs the threads of a block", got=repr(node))
    return member


def _signal_init(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        cells, at = frame[sources[0]]
        member.team.add_signal((id(cells), at), Signal(node.attrs.count, member.team.count))

    return step


def _signal(frame: Frame, node: Node, slot: int) -> Signal:
    cells, at = frame[slot]
    found = member_of(frame, node).team.signals.get((id(cells), at))
    if not isinstance(found, Signal):
        raise InternalError(f"{node.op.name}: the signal was not made", got=f"element {at}")
    return found


def _signal_expect(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        clock = member_of(frame, node).tick()
        _signal(frame, node, sources[0]).arrive(clock, node.attrs.count)

    return step


def _signal_arrive(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        _signal(frame, node, sources[0]).arrive(member.tick())

    return step


def _signal_wait(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        seen = _signal(frame, node, sources[0]).wait(frame[sources[1]])
        if seen is None:
            raise InternalError("signal_wait: what it waits for never comes", got=repr(node))
        member_of(frame, node).see(seen)

    return step


def _copy_box(node: Node, target: int, sources: list[int]) -> Any:
    boxed: Node = node.src[1]
    attrs: BoxedAttrs = boxed.attrs
    axes, itemsize = len(attrs.sizes), boxed.type.dtype.itemsize
    outside = 0.0 if boxed.type.dtype.is_float else 0

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        cells, start = frame[sources[0]]
        buffer = frame[sources[1]]
        corner = [frame[slot] for slot in sources[3 : 3 + axes]]
        for position, at in _elements(attrs, corner):
            value = outside if at is None else buffer.load(at, node)
            place = start + swizzled(position, itemsize, attrs.swizzle_bytes)
            cells.store(place, value, node)
        _signal(frame, node, sources[2]).complete(member.tick(), attrs.box_elements * itemsize)

    return step


def _store_box(node: Node, target: int, sources: list[int]) -> Any:
    boxed: Node = node.src[0]
    attrs: BoxedAttrs = boxed.attrs
    axes, itemsize = len(attrs.sizes), boxed.type.dtype.itemsize

    def step(frame: Frame) -> None:
        buffer = frame[sources[0]]
        cells, start = frame[sources[1]]
        corner = [frame[slot] for slot in sources[2 : 2 + axes]]
        places = []
        for position, at in _elements(attrs, corner):
            place = start + swizzled(position, itemsize, attrs.swizzle_bytes)
            places.append((cells, place))
            value = cells.peek(place, node)
            if at is not None:
                buffer.store(at, value, node)
        member_of(frame, node).begin_reads("boxes", places)

    return step


def _boxed(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        frame[target] = frame[sources[0]]

    return step


def _group_barrier(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        member_of(frame, node).meet_some(("group", frame[sources[0]]), node.attrs.count)

    return step


def _nothing(node: Node, target: int, sources: list[int]) -> Any:
    return lambda frame: None


def _place(row: int, depth: int, along_k: bool, chunk_bytes: int, itemsize: int) -> int:
    """The element (row of m or n, position of k), from the start of an operand on."""
    width = _ROW_BYTES // itemsize
    if along_k:
        return row * width + depth
    chunk, rest = divmod(row, width)
    return chunk * (chunk_bytes // itemsize) + depth * width + rest


def _vector(
    frame: Frame, node: Node, slot: int, operand: tuple[int, int, bool, int]
) -> tuple[list[Any], list[tuple[Any, int]]]:
    """The values of a row (or column) of an operand along k, and where they are read.

    `operand` is the row, the depth, and the layout: along k or not, and from chunk to chunk.
    """
    row, depth, along_k, chunk_bytes = operand
    cells, start = frame[slot]
    itemsize = _TWO_BYTES if node.op is matrix.MATRIX_HELD else node.src[1].type.dtype.itemsize
    # The swizzle permutes by the address, not by the place within an operand.
    places = [
        swizzled(start + _place(row, k, along_k, chunk_bytes, itemsize), itemsize, _ROW_BYTES)
        for k in range(depth)
    ]
    values = [cells.peek(at, node) for at in places]
    if itemsize == float32.itemsize:  # the unit leaves the low bits of float32 out
        values = [shortened(value, LONG_OPERAND_BITS) for value in values]
    return values, [(cells, at) for at in places]


def _add_products(
    node: Node, frame: Frame, sums: list[float], rows: list[list[Any]], slot: int
) -> list[tuple[Any, int]]:
    """Add a thread's share of a product: its two rows with its columns of `b`."""
    attrs, thread = node.attrs, member_of(frame, node).thread % 128
    keep = _keeper(node)
    read = []
    for eighth, right in product(range(attrs.n // 8), (0, 1)):
        column = 8 * eighth + 2 * (thread % 4) + right
        operand = (column, attrs.k, attrs.b_along_k, attrs.b_chunk_bytes)
        b, places = _vector(frame, node, slot, operand)
        read += places
        for low, a in enumerate(rows):
            at = 4 * eighth + 2 * low + right
            sums[at] = keep(sums[at] + sum(map(mul, a, b)))
    return read


def _keeper(node: Node) -> Callable[[Any], Any]:
    """What the matrix unit keeps of a sum: 32 bits of an integer, 14 bits of 8-bit floats."""
    if not node.type.dtype.is_float:
        return lambda total: (total + _HALF) % (2 * _HALF) - _HALF
    if node.op is matrix.MATRIX and node.src[1].type.dtype.itemsize == 1:
        return lambda total: shortened(total, SHORT_SUM_BITS)
    return _TO_FLOAT32


def shortened(value: float, bits: int) -> float:
    """A number cut off after so many significant bits."""
    if not math.isfinite(value):
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(math.trunc(math.ldexp(fraction, bits)), exponent - bits)


def _matrix(node: Node, target: int, sources: list[int]) -> Any:
    attrs = node.attrs

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        zero = 0.0 if node.type.dtype.is_float else 0
        sums = [zero] * len(frame[sources[0]]) if attrs.is_first else list(frame[sources[0]])
        thread = member.thread % 128
        first = 16 * (thread // 32) + thread % 32 // 4
        layout = (attrs.k, attrs.a_along_k, attrs.a_chunk_bytes)
        rows = [_vector(frame, node, sources[1], (first + low, *layout)) for low in (0, 8)]
        read = [place for _, places in rows for place in places]
        read += _add_products(node, frame, sums, [values for values, _ in rows], sources[2])
        member.begin_reads("matrix", read)
        frame[target] = tuple(sums)

    return step


def _matrix_held(node: Node, target: int, sources: list[int]) -> Any:
    """The two rows of `a` that a thread needs are spread over the four threads of its quad."""
    values = small_values(node.src[1].type.dtype)

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        sums = list(frame[sources[0]])
        pairs = [frame[slot] for slot in sources[2:6]]
        mine = [values[half] for pair in pairs for half in (pair & 0xFFFF, pair >> 16)]
        shared = member.share_in_warp(mine)
        lane = member.thread % 32
        quad = shared[lane - lane % 4 : lane - lane % 4 + 4]
        rows = [
            [quad[k % 8 // 2][4 * (k // 8) + 2 * low + k % 2] for k in range(16)] for low in (0, 1)
        ]
        member.begin_reads("matrix", _add_products(node, frame, sums, rows, sources[1]))
        frame[target] = tuple(sums)

    return step


def _matrix_commit(node: Node, target: int, sources: list[int]) -> Any:
    """The products since the last commit are one group."""

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        groups = member.reading.get("matrix", [])
        added = len(groups) - member.products
        if not added:
            # Some processors do not wait for what came before an empty group.
            raise InternalError("matrix_commit: a group without products", got=repr(node))
        groups[-added:] = [[place for group in groups[-added:] for place in group]]
        member.products = len(groups)

    return step


def _matrix_wait(node: Node, target: int, sources: list[int]) -> Any:
    """Products are those of 128 threads together: they wait for each other too."""
    left = node.attrs.count

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        if len(member.reading.get("matrix", [])) != member.products:
            raise InternalError("matrix_wait: products are in no group", got=repr(node))
        member.end_reads("matrix", left)
        member.products = min(member.products, left)
        member.meet_some(("matrix", member.thread // 128), 128)

    return step


def _store_box_wait(node: Node, target: int, sources: list[int]) -> Any:
    left = node.attrs.count
    return lambda frame: member_of(frame, node).end_reads("boxes", left)


def _pick(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        frame[target] = frame[sources[0]][frame[sources[1]]]

    return step


def _put(node: Node, target: int, sources: list[int]) -> Any:
    variable = sources[0]

    def step(frame: Frame) -> None:
        lanes = list(frame[variable])
        lanes[frame[sources[1]]] = frame[sources[2]]
        frame[variable] = tuple(lanes)

    return step


def _pair(node: Node, target: int, sources: list[int]) -> Any:
    dtype = node.attrs.dtype

    def step(frame: Frame) -> None:
        low, high = (to_bits(frame[slot], dtype) for slot in sources)
        frame[target] = low | high << 16

    return step


def _fold_quad(node: Node, target: int, sources: list[int]) -> Any:
    fold, dtype = node.attrs.fold, node.type.dtype

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        shared = member.share_in_warp(frame[sources[0]])
        start = member.thread % 32 // 4 * 4
        frame[target] = fold_halves(fold, dtype, shared[start : start + 4])

    return step


def _power_of_two(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        x = frame[sources[0]]
        frame[target] = x if x != x else _TO_FLOAT32(2.0**x if x < 1024 else math.inf)

    return step


def _same_in_warp(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        value = frame[sources[0]]
        if any(other != value for other in member_of(frame, node).share_in_warp(value)):
            raise InternalError("same_in_warp: threads of a warp differ", got=value)
        frame[target] = value

    return step


def _store_fragment(node: Node, target: int, sources: list[int]) -> Any:
    """Each thread's two values of four matrices go to the rows whose address other threads give."""

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        cells, at = frame[sources[0]]
        rows = member.share_in_warp(at)
        lane = member.thread % 32
        for number in range(4):
            row = rows[8 * number + lane // 4]
            for right in (0, 1):
                value = frame[sources[1 + 2 * number + right]]
                cells.store(row + 2 * (lane % 4) + right, value, node)

    return step


MAKERS: Final[dict[OpDef, Callable[[Node, int, list[int]], Any]]] = {
    matrix.BOXED: _boxed,
    matrix.SIGNAL_INIT: _signal_init,
    matrix.SIGNAL_EXPECT: _signal_expect,
    matrix.SIGNAL_ARRIVE: _signal_arrive,
    matrix.SIGNAL_WAIT: _signal_wait,
    matrix.COPY_BOX: _copy_box,
    matrix.STORE_BOX: _store_box,
    matrix.STORE_BOX_WAIT: _store_box_wait,
    matrix.COPY_FENCE: _nothing,
    matrix.GROUP_BARRIER: _group_barrier,
    matrix.REGISTERS: _nothing,
    matrix.MATRIX: _matrix,
    matrix.MATRIX_BEGIN: _nothing,
    matrix.MATRIX_COMMIT: _matrix_commit,
    matrix.MATRIX_WAIT: _matrix_wait,
    matrix.PICK: _pick,
    matrix.PUT: _put,
    matrix.PAIR: _pair,
    matrix.MATRIX_HELD: _matrix_held,
    matrix.FOLD_QUAD: _fold_quad,
    matrix.POWER_OF_TWO: _power_of_two,
    matrix.SAME_IN_WARP: _same_in_warp,
    matrix.STORE_FRAGMENT: _store_fragment,
}
