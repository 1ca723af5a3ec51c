"""Steps of an interpreted kernel: functions that read and write the slots of a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import InternalError, UnsupportedError
from tilework.ir.interpret import folds, matrices, rings, scans, sorts, warp_matrices
from tilework.ir.interpret.scalars import (
    bitcast_scalars,
    scalar_from_bits,
    scalar_function,
    zero,
)
from tilework.ir.ops import control, math, memory
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import program as program_ops
from tilework.ir.ops import sort as sort_ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import Node, OpDef

#: The values of a running kernel by slot; slot 0 holds the list of faults.
Frame = list[Any]
FAULTS = 0
#: The slot of the thread of a block that runs (`blocks.Member`), or None.
TEAM = 3


def lift(function: Callable[..., Any], depth: int) -> Callable[..., Any]:
    """`function` of scalars for vectors (tuples) nested `depth` deep."""
    for _ in range(depth):
        function = _lift_once(function)
    return function


def _lift_once(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: tuple(map(function, *operands))


def fill(shape: tuple[Any, ...], scalar: Any) -> Any:
    """`scalar` for every lane of `shape`."""
    for size in reversed(shape):
        scalar = (scalar,) * size
    return scalar


def make_step(node: Node, target: int, sources: list[int]) -> Callable[[Frame], None]:
    """The step that computes `node` into slot `target` from the slots of its sources."""
    if node.op.elementwise:
        return _elementwise(node, target, sources)
    maker = _MAKERS.get(node.op)
    if maker is None:
        raise UnsupportedError(f"{node.op.name}: cannot be interpreted here", got=repr(node))
    step: Callable[[Frame], None] = maker(node, target, sources)
    return step


def constant(target: int, value: Any) -> Callable[[Frame], None]:
    """The step that puts a fixed value into a slot."""

    def step(frame: Frame) -> None:
        frame[target] = value

    return step


def move(target: int, source: int) -> Callable[[Frame], None]:
    """The step that copies a slot."""

    def step(frame: Frame) -> None:
        frame[target] = frame[source]

    return step


def apply(function: Callable[..., Any], target: int, sources: list[int]) -> Callable[[Frame], None]:
    """The step that applies a function to slots."""
    if len(sources) == 1:
        (only,) = sources

        def step(frame: Frame) -> None:
            frame[target] = function(frame[only])

    elif len(sources) == 2:
        first, second = sources

        def step(frame: Frame) -> None:
            frame[target] = function(frame[first], frame[second])

    else:

        def step(frame: Frame) -> None:
            frame[target] = function(*[frame[source] for source in sources])

    return step


def _elementwise(node: Node, target: int, sources: list[int]) -> Callable[[Frame], None]:
    shape = node.type.shape
    if node.op is math.CONST:
        return constant(target, fill(shape, scalar_from_bits(node.attrs.bits, node.attrs.dtype)))
    return apply(lift(scalar_function(node), len(shape)), target, sources)


def _bitcast(node: Node, target: int, sources: list[int]) -> Any:
    before, after = node.src[0].type, node.attrs.dtype
    if not before.shape:
        return apply(lambda x: bitcast_scalars([x], before.dtype, after)[0], target, sources)
    if len(before.shape) > 1:
        raise UnsupportedError("bitcast: of vectors of vectors", got=repr(node))
    return apply(lambda x: tuple(bitcast_scalars(x, before.dtype, after)), target, sources)


def _index(node: Node, target: int, sources: list[int]) -> Any:
    return apply(lambda cells, offset: (cells, offset), target, sources)


def _lane_offsets(offset: Any, lanes: Any) -> Any:
    return offset if isinstance(offset, tuple) else range(offset, offset + lanes)


def _lane_gates(gate: Any, lanes: Any) -> Any:
    return gate if isinstance(gate, tuple) else (gate,) * lanes


def _gate_slot(node: Node, sources: list[int], position: int) -> int | None:
    """The slot of the gate, if the source at `position` is one and not an effect."""
    if len(sources) > position and is_gate(node.src[position]):
        return sources[position]
    return None


def is_gate(node: Node) -> bool:
    """Is this source of a LOAD or STORE its gate, not something that comes first?"""
    return node.type.dtype.is_bool and node.op not in _EFFECTS


def _load(node: Node, target: int, sources: list[int]) -> Any:
    address, shape, nothing = sources[0], node.type.shape, zero(node.type.dtype)
    gate = _gate_slot(node, sources, 1)
    if not shape:

        def load_scalar(frame: Frame) -> None:
            if gate is not None and not frame[gate]:
                frame[target] = nothing
                return
            cells, offset = frame[address]
            frame[target] = cells.load(offset, node)

        return load_scalar
    lanes = shape[0]

    def load_vector(frame: Frame) -> None:
        cells, offset = frame[address]
        offsets = _lane_offsets(offset, lanes)
        if gate is None:
            frame[target] = tuple([cells.load(at, node) for at in offsets])
            return
        gates = _lane_gates(frame[gate], lanes)
        frame[target] = tuple(
            [cells.load(at, node) if on else nothing for at, on in zip(offsets, gates, strict=True)]
        )

    return load_vector


def _store(node: Node, target: int, sources: list[int]) -> Any:
    address, value = sources[0], sources[1]
    gate = _gate_slot(node, sources, 2)
    if not node.src[1].type.shape and not node.src[0].type.shape:

        def store_scalar(frame: Frame) -> None:
            if gate is None or frame[gate]:
                cells, offset = frame[address]
                cells.store(offset, frame[value], node)

        return store_scalar
    lanes = (node.src[1].type.shape or node.src[0].type.shape)[0]

    def store_vector(frame: Frame) -> None:
        cells, offset = frame[address]
        elements = _lane_gates(frame[value], lanes)
        gates = _lane_gates(True if gate is None else frame[gate], lanes)
        for at, element, on in zip(_lane_offsets(offset, lanes), elements, gates, strict=True):
            if on:
                cells.store(at, element, node)

    return store_vector


def _first(node: Node, target: int, sources: list[int]) -> Any:
    return move(target, sources[0])


def _fault_if(node: Node, target: int, sources: list[int]) -> Any:
    condition, code = sources[0], node.attrs.code

    def step(frame: Frame) -> None:
        met = frame[condition]
        if (any(met) if isinstance(met, tuple) else met) and code not in frame[FAULTS]:
            frame[FAULTS].append(code)

    return step


def _sort_rows(node: Node, target: int, sources: list[int]) -> Any:
    written, read, size = sources
    attrs = node.attrs
    wanted = slice(attrs.first, attrs.first + attrs.count if attrs.count >= 0 else None)

    def step(frame: Frame) -> None:
        cells, start = frame[read]
        row = [cells.load(at, node) for at in range(start, start + frame[size])]
        positions = folds.sorting_positions(row, descending=attrs.descending)[wanted]
        cells, start = frame[written]
        for at, position in enumerate(positions, start):
            cells.store(at, row[position] if attrs.values else position, node)

    return step


def _lanes(node: Node, target: int, sources: list[int]) -> Any:
    return constant(target, tuple(range(node.attrs.lanes)))


def _broadcast(node: Node, target: int, sources: list[int]) -> Any:
    lanes = node.attrs.lanes
    return apply(lambda x: (x,) * lanes, target, sources)


def _stack(node: Node, target: int, sources: list[int]) -> Any:
    return apply(lambda *lanes: lanes, target, sources)


def _extract(node: Node, target: int, sources: list[int]) -> Any:
    lane = node.attrs.lane
    if not 0 <= lane < node.src[0].type.shape[0]:
        raise InternalError("extract: there is no such lane", got=repr(node))
    return apply(lambda x: x[lane], target, sources)


def _shuffle(node: Node, target: int, sources: list[int]) -> Any:
    lanes = node.attrs.lanes
    return apply(lambda x, y: tuple([(x + y)[lane] for lane in lanes]), target, sources)


def _compress(node: Node, target: int, sources: list[int]) -> Any:
    empty = zero(node.type.dtype)

    def chosen(x: tuple[Any, ...], mask: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = [lane for lane, is_kept in zip(x, mask, strict=True) if is_kept]
        return (*kept, *[empty] * (len(x) - len(kept)))

    return apply(chosen, target, sources)


def _fold_lanes(node: Node, target: int, sources: list[int]) -> Any:
    fold, dtype = node.attrs.fold, node.type.dtype
    return apply(lambda x: folds.fold_halves(fold, dtype, x), target, sources)


def _fetch(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        """A hint to a machine."""

    return step


def _barrier(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: Frame) -> None:
        if frame[TEAM] is not None:
            frame[TEAM].meet()

    return step


def _fold_threads(node: Node, target: int, sources: list[int]) -> Any:
    source = sources[0]

    def step(frame: Frame) -> None:
        member = frame[TEAM]
        if member is None:
            raise UnsupportedError("fold_threads: needs the threads of a block", got=repr(node))
        frame[target] = member.fold(node, frame[source])

    return step


def _scan_threads(node: Node, target: int, sources: list[int]) -> Any:
    source = sources[0]

    def step(frame: Frame) -> None:
        member = frame[TEAM]
        if member is None:
            raise UnsupportedError("scan_threads: needs the threads of a block", got=repr(node))
        frame[target] = member.scan(node, frame[source])

    return step


def _rank_in_warp(node: Node, target: int, sources: list[int]) -> Any:
    counter, value = sources

    def step(frame: Frame) -> None:
        member = frame[TEAM]
        if member is None:
            raise UnsupportedError("rank_in_warp: needs the threads of a block", got=repr(node))
        frame[target] = member.rank(node, frame[counter], frame[value])

    return step


def _count_up(node: Node, target: int, sources: list[int]) -> Any:
    source = sources[0]

    def step(frame: Frame) -> None:
        cells, at = frame[source]
        if frame[TEAM] is None:
            raise UnsupportedError("count_up: needs the threads of a block", got=repr(node))
        cells.count_up(at, node)

    return step


_MATRIX_MAKERS = {**rings.MAKERS, **matrices.MAKERS, **warp_matrices.MAKERS}
_EFFECTS: frozenset[OpDef] = frozenset(
    [
        memory.STORE,
        memory.FETCH,
        memory.AFTER,
        control.BARRIER,
        control.STAGE,
        control.END,
        program_ops.FAULT_IF,
        sort_ops.SORT_ROWS,
        sort_ops.RANK_IN_WARP,
        sort_ops.COUNT_UP,
        *sort_ops.SORT_PASSES,
        *(op for op in _MATRIX_MAKERS if not op.pure),
    ]
)
_MAKERS: dict[OpDef, Callable[[Node, int, list[int]], Any]] = {
    math.BITCAST: _bitcast,
    memory.INDEX: _index,
    memory.LOAD: _load,
    memory.STORE: _store,
    memory.FETCH: _fetch,
    memory.AFTER: _first,
    control.BARRIER: _barrier,
    program_ops.FAULT_IF: _fault_if,
    sort_ops.SORT_ROWS: _sort_rows,
    sort_ops.RANK_IN_WARP: _rank_in_warp,
    sort_ops.COUNT_UP: _count_up,
    index_ops.LANES: _lanes,
    control.BROADCAST: _broadcast,
    control.STACK: _stack,
    control.EXTRACT: _extract,
    control.SHUFFLE: _shuffle,
    control.COMPRESS: _compress,
    control.FOLD_LANES: _fold_lanes,
    control.FOLD_THREADS: _fold_threads,
    control.SCAN_THREADS: _scan_threads,
    **scans.MAKERS,
    **sorts.MAKERS,
    **_MATRIX_MAKERS,
}
COVERED = frozenset(_MAKERS)
