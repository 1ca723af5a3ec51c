"""TILED -> LOWERED: copies for UNROLL ranges, vectors for LANE ranges, explicit stage fills.

After this pass LOOP and THREAD ranges are left, and the units of a block of threads.  A value that
depends on a lane range is a vector; one that depends on an unrolled range stands once per value of
the range.  A reduction over unrolled or lane ranges becomes several accumulators that are combined
in a fixed order; what the threads of a block have is folded by FOLD_THREADS.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from tilework.codegen.analysis import BINDERS, FreeRanges, depends_on, stride
from tilework.codegen.passes.accesses import (
    LONGEST_STEP,
    Gathers,
    any_lane,
    as_vector,
    broadcast,
    extract,
    gated_scalar,
    gather,
    lanes_of,
    load,
    load_vector,
    scatter,
    store,
    store_vector,
    strided,
)
from tilework.codegen.passes.along_lanes import at_lane, at_lanes, lane_vector, vector_condition
from tilework.codegen.passes.transpose import segments, transpose
from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.fold import combine
from tilework.ir.node import Node, make, toposort, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import (
    ALLOCATE,
    END,
    FOLD_LANES,
    FOLD_THREADS,
    SCAN_THREADS,
    SHUFFLE,
    STAGE,
    AllocateAttrs,
    FoldAttrs,
    ShuffleAttrs,
)
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.matrix_registers import LOAD_MATRIX, STORE_MATRIX, MatrixRowsAttrs
from tilework.ir.ops.memory import AFTER, INDEX, LOAD, SINK, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.scan import SCAN_BLOCKS
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec

Environment = tuple[tuple[int, int], ...]  # (position of an UNROLL range, its value), ascending

#: Fewer elements side by side than this are not worth a transpose.
_LEAST_SEGMENT = 4
_ALIGNMENT = 64  # bytes: stages start on a cache line, so vector accesses to them are aligned


def expand(sink: Node, target: TargetSpec | None = None) -> tuple[Node, int]:
    """Return the LOWERED sink and the bytes of TILE memory that one task needs.

    Args:
        sink: The kernel with a plan applied.
        target: The machine, for loads and stores that not each one has; None for one without.
    """
    expansion = _Expansion(sink, Gathers(target))
    lowered = expansion.run(sink)
    return lowered, expansion.scratch_bytes


class _Expansion:
    def __init__(self, sink: Node, gathers: Gathers) -> None:
        order = toposort(sink)
        self.gathers = gathers
        self.free = FreeRanges(order)
        self.unrolled = 0
        self.lanes = 0
        for range_ in self.free.ranges:
            bit = self.free.bit(range_)
            if range_.attrs.unit is Unit.UNROLL:
                self.unrolled |= bit
            elif range_.attrs.unit is Unit.LANE:
                self.lanes |= bit
        self.memo: dict[tuple[Node, Environment], Node] = {}
        self.substitutions: dict[Environment, dict[Node, Node]] = {}
        self.allocations: dict[Node, Node] = {}
        self.blocks: dict[tuple[Node, int, Environment], list[Node]] = {}
        self.loaded: dict[Node, list[Node]] = {}
        self.straight: dict[Node, tuple[Node, int, dict[int, int]] | None] = {}
        self.scratch_bytes = 0

    def run(self, sink: Node) -> Node:
        effects: list[Node] = []
        for effect in sink.src:
            effects.extend(self._effects(effect))
        return SINK(*effects)

    def _effects(self, effect: Node) -> list[Node]:
        """All copies of a STORE or FAULT_IF over the unrolled ranges that it depends on."""
        environments = self._environments(self.free.mask[effect], ())
        across = self._stored_across(effect, environments[0])
        if across is not None:
            return self._transposed_stores(effect, across, environments)
        found: list[Node] = []
        for environment in environments:
            lowered = self.lower(effect, environment)
            found.extend(lowered.src if lowered.op is SINK else (lowered,))
        return found

    def _stored_across(self, effect: Node, env: Environment) -> int | None:
        """The unrolled range along which a STORE of vectors is contiguous, while they are not."""
        if effect.op is not STORE or len(effect.src) > 2:
            return None
        offset = effect.src[0].src[1]
        lane = self._lane_range(effect)
        if lane is None or self._loaded_in(offset) or stride(offset, lane) in (None, 0, 1):
            return None
        if simplify.value_of(lane.src[0]) == 1:
            return None
        return self._contiguous_copies(offset, env)

    def _transposed_stores(
        self, effect: Node, across: int, environments: list[Environment]
    ) -> list[Node]:
        """Blocks of vectors, transposed in registers, so that memory is written contiguously."""
        buffer, offset = effect.src[0].src
        lane = self._lane_range(effect)
        assert lane is not None  # _stored_across found it
        lanes = simplify.value_of(lane.src[0]) or 1
        blocks: dict[Environment, list[Environment]] = {}
        for env in environments:
            others = tuple(entry for entry in env if entry[0] != across)
            blocks.setdefault(others, []).append(env)
        found: list[Node] = []
        for block in blocks.values():
            rows = []
            for env in block:
                value = self.lower(effect.src[1], self._restrict(effect.src[1], env))
                rows.append(as_vector(value, lanes))
            length, starts = segments(len(rows), lanes)
            for start in starts:
                first = self._scalar_index(offset, block[start])
                columns = transpose(rows[start : start + length])
                for at, column in zip(at_lanes(first, lane, lanes), columns, strict=True):
                    found.append(store(buffer, at, column, None))
        return found

    def _environments(self, mask: int, base: Environment) -> list[Environment]:
        """`base` extended by all values of the unrolled ranges in `mask` that it lacks."""
        known = {position for position, _ in base}
        positions = [
            i
            for i in range(len(self.free.ranges))
            if mask & self.unrolled & (1 << i) and i not in known
        ]
        positions.sort(key=lambda i: int(self.free.ranges[i].attrs.number))
        sizes = [simplify.value_of(self.free.ranges[i].src[0]) or 1 for i in positions]
        return [
            tuple(sorted((*base, *zip(positions, values, strict=True))))
            for values in product(*(range(size) for size in sizes))
        ]

    def _restrict(self, node: Node, environment: Environment) -> Environment:
        mask = self.free.mask[node]
        return tuple([entry for entry in environment if mask >> entry[0] & 1])

    # ---- the walk

    def lower(self, root: Node, environment: Environment) -> Node:
        """The LOWERED form of a node for fixed values of the unrolled ranges."""
        memo = self.memo
        start = (root, self._restrict(root, environment))
        stack = [start]
        while stack:
            key = stack[-1]
            if key in memo:
                stack.pop()
                continue
            node, env = key
            needed = self._needs(node, env)
            waiting = [need for need in needed if need not in memo]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            memo[key] = self._build(node, env, [memo[need] for need in needed])
        return memo[start]

    def _needs(self, node: Node, env: Environment) -> list[tuple[Node, Environment]]:
        op = node.op
        if op is REDUCE or op is STAGE:
            inside = 0
            for bound in node.src[1:]:
                inside |= self.free.bit(bound)
            value = node.src[0]
            return [
                (value, self._restrict(value, extended))
                for extended in self._environments(inside, env)
            ]
        if op is SCAN or op is SCAN_THREADS:
            return [(node.src[0], self._restrict(node.src[0], env))]
        if op is SCAN_BLOCKS:
            # One statement scans all copies; each of them takes its lanes of the result.
            if env:
                return [(node, ())]
            value = node.src[-1]
            copies = self._environments(self.free.mask[value], ())
            return [(value, self._restrict(value, copy)) for copy in copies]
        if op is LOAD or op is STORE or op is LOAD_MATRIX:
            # Addresses and gates are built from the index arithmetic itself, values are lowered.
            found = [node.src[1]] if op is STORE else []
            _, offset = node.src[0].src
            found.extend(n for n in self._loaded_in(offset))
            for gate in node.src[2 if op is STORE else 1 :]:
                found.extend(self._loaded_in(gate))
            buffer = node.src[0].src[0]
            if buffer.op is STAGE:
                found.append(buffer)
            return [(n, self._restrict(n, env)) for n in dict.fromkeys(found)]
        if self._is_index(node):
            return [(n, self._restrict(n, env)) for n in self._loaded_in(node)]
        return [(source, self._restrict(source, env)) for source in node.src]

    def _is_index(self, node: Node) -> bool:
        return node.type.dtype is index and node.type.shape == () and node.op is not LOAD

    def _build(self, node: Node, env: Environment, parts: list[Node]) -> Node:
        op = node.op
        if op is REDUCE:
            return self._reduce(node, parts)
        if op is STAGE:
            return self._stage(node, env, parts)
        if op is LOAD:
            return self._load(node, env)
        if op is STORE:
            return self._store(node, env)
        if op is LOAD_MATRIX:
            buffer, offset = node.src[0].src
            target, after = self._buffer(buffer, env)
            position = self._scalar_index(offset, env)
            return LOAD_MATRIX(INDEX(target, position), *after, attrs=node.attrs)
        if op in (SCAN, SCAN_THREADS, SCAN_BLOCKS):
            return self._scan(node, env, parts)
        if self._is_index(node):
            return self._index_value(node, env)
        if not node.src:
            return node
        if op is FAULT_IF:
            return op(any_lane(parts[0]), attrs=node.attrs)
        return _vectorised(node, parts)

    def _scan(self, node: Node, env: Environment, parts: list[Node]) -> Node:
        """A running fold of a thread, of a block's threads, or of the tiles that blocks take."""
        if node.op is SCAN:
            return SCAN(parts[0], node.src[1], attrs=node.attrs)
        lanes = max(self._lanes_of(node), 1)
        if node.op is SCAN_BLOCKS and env:
            ((_, copy),) = env
            if lanes == 1:
                return extract(parts[0], copy)
            own = tuple(range(copy * lanes, (copy + 1) * lanes))
            return SHUFFLE(parts[0], parts[0], attrs=ShuffleAttrs(own))
        values = [as_vector(part, lanes) if lanes > 1 else part for part in parts]
        if node.op is SCAN_THREADS:
            return SCAN_THREADS(*values, node.src[1], attrs=node.attrs)
        places = [self._scalar_index(place, ()) for place in node.src[1:3]]
        return SCAN_BLOCKS(node.src[0], *places, *values, attrs=node.attrs)

    # ---- index arithmetic

    def _loaded_in(self, node: Node) -> list[Node]:
        """What an index expression or gate reads: LOADs and other opaque values, outermost only."""
        known = self.loaded.get(node)
        if known is not None:
            return known
        found: dict[Node, None] = {}
        stack = [node]
        seen: set[Node] = set()
        while stack:
            top = stack.pop()
            if top in seen:
                continue
            seen.add(top)
            if top.op in (LOAD, SCAN, SCAN_BLOCKS) or top.op in BINDERS or top.type.dtype.is_float:
                found[top] = None
            else:
                stack.extend(top.src)
        return self.loaded.setdefault(node, list(found))

    def _scalar_index(self, node: Node, env: Environment) -> Node:
        """Index arithmetic with unrolled ranges replaced and loads lowered; lanes stay."""
        loaded = self._loaded_in(node)
        straight = None if loaded else self._straight_in_copies(node)
        if straight is not None:
            base, start, steps = straight
            values = dict(env)
            if steps.keys() <= values.keys():
                return simplify.plus(base, start + sum([steps[at] * values[at] for at in steps]))
        memo = self.substitutions.get(env)
        if memo is None:
            memo = {}
            for position, value in env:
                memo[self.free.ranges[position]] = const_index(value)
            self.substitutions[env] = memo
        for read in loaded:
            memo[read] = self.memo[read, self._restrict(read, env)]
        (result,) = simplify.substitute([node], {}, memo)
        return result

    def _straight_in_copies(self, node: Node) -> tuple[Node, int, dict[int, int]] | None:
        """An offset as base + start + the sum of step * unrolled range, the steps by position."""
        if node in self.straight:
            return self.straight[node]
        found: tuple[Node, int, dict[int, int]] | None = None
        if node.type.dtype is index and not node.type.shape:
            start, total = simplify.terms(node)
            rest: dict[Node, int] = {}
            steps: dict[int, int] = {}
            is_straight = True
            for term, factor in total.items():
                mask = self.free.mask[term] & self.unrolled
                if not mask:
                    rest[term] = factor
                elif term.op is RANGE:
                    steps[mask.bit_length() - 1] = factor
                else:
                    is_straight = False
            if is_straight and steps:
                found = simplify.from_terms(0, rest), start, steps
        self.straight[node] = found
        return found

    def _lane_range(self, node: Node) -> Node | None:
        """The lane range that a node depends on."""
        mask = self.free.mask[node] & self.lanes
        if not mask:
            return None
        return self.free.ranges[mask.bit_length() - 1]

    def _index_value(self, node: Node, env: Environment) -> Node:
        """Index arithmetic as a value: a vector where it depends on a lane range."""
        lane = self._lane_range(node)
        scalar = self._scalar_index(node, env) if not _vector_loads(self, node, env) else None
        if lane is None and scalar is not None:
            return scalar
        if scalar is None:
            return self._vector_tree(node, env, lane)
        return lane_vector(scalar, lane) if lane is not None else scalar

    def _vector_tree(self, node: Node, env: Environment, lane: Node | None) -> Node:
        """Index arithmetic over loaded vectors, op by op."""
        lanes = self._lanes_of(node)
        done: dict[Node, Node] = {}
        opaque = set(self._loaded_in(node))
        for part in toposort_above([node], opaque):
            if part in opaque:
                done[part] = self.memo[part, self._restrict(part, env)]
            elif part.op is RANGE or part.op is math.CONST or not part.src:
                value = self._scalar_index(part, env)
                done[part] = lane_vector(value, part) if part is lane else value
            else:
                done[part] = _vectorised(part, [done[source] for source in part.src])
        result = done[node]
        return result if result.type.shape else broadcast(result, lanes)

    def _lanes_of(self, node: Node) -> int:
        """How many lanes the value of a node has; 1 for a scalar."""
        lane = self._lane_range(node)
        if lane is None:
            return 1
        return simplify.value_of(lane.src[0]) or 1

    def _condition(self, gate: Node, env: Environment) -> Node:
        """A gate, as a scalar or vector of bools."""
        if _vector_loads(self, gate, env):
            return self._vector_tree(gate, env, self._lane_range(gate))
        scalar = self._scalar_index(gate, env)
        lane = self._lane_range(gate)
        if lane is None or not depends_on(scalar, lane):
            return scalar
        return vector_condition(scalar, lane)

    # ---- memory

    def _load(self, node: Node, env: Environment) -> Node:
        buffer, offset = node.src[0].src
        lane = self._lane_range(node)
        target, after = self._buffer(buffer, env)
        gate = self._condition(node.src[1], env) if len(node.src) > 1 else None
        if _vector_loads(self, offset, env):
            addresses = self._index_value(offset, env)
            if self._serves_gather(node, 1, addresses):
                return load_vector(target, addresses, gate, after)
            return gather(target, lanes_of(addresses), gate, after)
        position = self._scalar_index(offset, env)
        if lane is None or not depends_on(position, lane):
            if gate is not None and gate.type.shape:
                return gated_scalar(target, position, gate, after)
            return load(target, position, gate, after, 1)
        lanes = simplify.value_of(lane.src[0]) or 1
        if stride(position, lane) == 1:
            ahead = 0 if node.attrs is None else node.attrs.ahead
            return load(target, at_lane(position, lane, 0), gate, after, lanes, ahead)
        is_wide = gate is None and lanes > 1
        across = self._contiguous_copies(offset, env) if is_wide else None
        if across is not None:
            return self._transposed(node, env, across, lane)
        step = stride(position, lane) or 0
        if step == -1 and not (len(node.src) > 1 and _vector_loads(self, node.src[1], env)):
            found = load(
                target,
                at_lane(position, lane, lanes - 1),
                self._backward(node.src[1], lane, env) if len(node.src) > 1 else None,
                after,
                lanes,
            )
            return SHUFFLE(found, found, attrs=ShuffleAttrs(tuple(range(lanes - 1, -1, -1))))
        if is_wide and 1 < step <= LONGEST_STEP:
            return strided(target, at_lane(position, lane, 0), step, lanes, after)
        return gather(target, at_lanes(position, lane, lanes), gate, after)

    def _backward(self, gate: Node, lane: Node, env: Environment) -> Node:
        """A gate for lanes in the opposite order."""
        scalar = self._scalar_index(gate, env)
        if not depends_on(scalar, lane):
            return scalar
        last = const_index((simplify.value_of(lane.src[0]) or 1) - 1)
        (turned,) = simplify.substitute([scalar], {lane: simplify.sub(last, lane)})
        return vector_condition(turned, lane) if depends_on(turned, lane) else turned

    def _contiguous_copies(self, offset: Node, env: Environment) -> int | None:
        """The position of an unrolled range along which memory is contiguous for long enough."""
        for position, _ in env:
            range_ = self.free.ranges[position]
            copies = simplify.value_of(range_.src[0]) or 1
            if copies >= _LEAST_SEGMENT and stride(offset, range_) in (1, -1):
                return position
        return None

    def _transposed(self, node: Node, env: Environment, across: int, lane: Node) -> Node:
        """One row of a block whose columns are loaded as vectors and transposed in registers."""
        others = tuple(entry for entry in env if entry[0] != across)
        key = (node, across, others)
        rows = self.blocks.get(key)
        if rows is None:
            rows = self.blocks[key] = self._transposed_loads(node, others, across, lane)
        return rows[dict(env)[across]]

    def _transposed_loads(
        self, node: Node, others: Environment, across: int, lane: Node
    ) -> list[Node]:
        buffer, offset = node.src[0].src
        target, after = self._buffer(buffer, others)
        lanes = simplify.value_of(lane.src[0]) or 1
        count = simplify.value_of(self.free.ranges[across].src[0]) or 1
        length, starts = segments(count, lanes)
        is_backward = stride(offset, self.free.ranges[across]) == -1
        rows: dict[int, Node] = {}
        for start in starts:
            # The place in memory of a segment: that of its last row where rows go backward.
            lowest = start + length - 1 if is_backward else start
            first = self._scalar_index(offset, tuple(sorted((*others, (across, lowest)))))
            columns = [load(target, at, None, after, length) for at in at_lanes(first, lane, lanes)]
            for i, row in enumerate(transpose(columns)):
                rows.setdefault(lowest - i if is_backward else start + i, row)
        return [rows[i] for i in range(count)]

    def _serves_gather(self, node: Node, gate: int, addresses: Node) -> bool:
        """Is one access best at a vector of addresses?  `gate` is where a gate stands."""
        terms = simplify.terms(node.src[0].src[1])[1]
        varying = {term: factor for term, factor in terms.items() if self._lane_range(term)}
        gates = node.src[gate : gate + 1]
        return self.gathers.serve(node.src[0], varying, gates, addresses.type.lanes)

    def _store(self, node: Node, env: Environment) -> Node:
        buffer, offset = node.src[0].src
        value = self.memo[node.src[1], self._restrict(node.src[1], env)]
        gate = self._condition(node.src[2], env) if len(node.src) > 2 else None
        lane = self._lane_range(node)
        if _vector_loads(self, offset, env):
            addresses = self._index_value(offset, env)
            if self._serves_gather(node, 2, addresses):
                return store_vector(buffer, addresses, value, gate)
            return scatter(buffer, lanes_of(addresses), value, gate)
        position = self._scalar_index(offset, env)
        if lane is None:
            return store(buffer, position, value, gate)
        lanes = simplify.value_of(lane.src[0]) or 1
        if stride(position, lane) == 1:
            return store(buffer, at_lane(position, lane, 0), as_vector(value, lanes), gate)
        return scatter(buffer, at_lanes(position, lane, lanes), value, gate)

    def _buffer(self, buffer: Node, env: Environment) -> tuple[Node, tuple[Node, ...]]:
        """The memory that an INDEX points into, and the fill that must come before."""
        if buffer.op is not STAGE:
            return buffer, ()
        filled = self.memo[buffer, self._restrict(buffer, env)]
        return filled.src[0], (filled.src[1],)

    def _stage(self, node: Node, env: Environment, parts: list[Node]) -> Node:
        """AFTER(memory, the closed stores that fill it)."""
        memory = self._allocation(node)
        offset = const_index(0)
        inside = 0
        for bound in node.src[1:]:
            offset = simplify.add(simplify.mul(offset, bound.src[0]), bound)
            inside |= self.free.bit(bound)
        self.free.extend(toposort(offset))
        stores: list[Node] = []
        loops = [b for b in node.src[1:] if b.attrs.unit is Unit.LOOP]
        for extended, value in zip(self._environments(inside, env), parts, strict=True):
            position = self._scalar_index(offset, extended)
            if len(value.type.shape) > 1:
                stores.append(_store_matrix(memory, position, value))
                continue
            lane = self._lane_range(offset)
            if lane is None:
                stores.append(store(memory, position, value, None))
                continue
            lanes = simplify.value_of(lane.src[0]) or 1
            value = as_vector(value, lanes)
            if stride(position, lane) == 1:
                stores.append(store(memory, at_lane(position, lane, 0), value, None))
                continue
            offsets = at_lanes(position, lane, lanes)
            stores.extend(scatter(memory, offsets, value, None).src)
        closed = END(SINK(*stores), *loops)
        return AFTER(memory, closed)

    def _allocation(self, node: Node) -> Node:
        found = self.allocations.get(node)
        if found is None:
            count = _elements(node.src[0])
            for bound in node.src[1:]:
                count *= bounds(bound.src[0])[1]
            dtype = node.type.dtype
            memory = node.attrs.memory
            found = ALLOCATE(attrs=AllocateAttrs(dtype, count, memory, self.scratch_bytes))
            size = count * dtype.itemsize
            self.scratch_bytes += (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
            self.allocations[node] = found
        return found

    # ---- reductions

    def _reduce(self, node: Node, parts: list[Node]) -> Node:
        fold = node.attrs.fold
        loops = [b for b in node.src[1:] if b.attrs.unit is Unit.LOOP]
        lanes = 1
        for bound in node.src[1:]:
            if bound.attrs.unit is Unit.LANE:
                lanes = simplify.value_of(bound.src[0]) or 1
        accumulated = []
        for part in parts:
            value = part if part.type.shape or lanes == 1 else broadcast(part, lanes)
            accumulated.append(REDUCE(value, *loops, attrs=node.attrs) if loops else value)
        while len(accumulated) > 1:
            pairs = [
                combine(fold, accumulated[i], accumulated[i + 1])
                for i in range(0, len(accumulated) - 1, 2)
            ]
            accumulated = pairs + accumulated[len(pairs) * 2 :]
        total = accumulated[0]
        if lanes > 1:
            total = FOLD_LANES(total, attrs=FoldAttrs(fold))
        units = [b for b in node.src[1:] if b.attrs.unit in (Unit.WARP, Unit.LOCAL)]
        return FOLD_THREADS(total, *units, attrs=FoldAttrs(fold)) if units else total


def _vector_loads(expansion: _Expansion, node: Node, env: Environment) -> bool:
    """Does an index expression read values that are vectors?"""
    for read in expansion._loaded_in(node):
        lowered = expansion.memo.get((read, expansion._restrict(read, env)))
        if lowered is not None and lowered.type.shape:
            return True
    return False


def _vectorised(node: Node, parts: list[Node]) -> Node:
    """The op on scalars or vectors: if one operand is a vector, the others are broadcast."""
    lanes = max((part.type.lanes for part in parts), default=0)
    if lanes:
        parts = [part if part.type.shape else broadcast(part, lanes) for part in parts]
    src = tuple(parts)
    return node if src == node.src else make(node.op, src, node.attrs)


def _elements(value: Node) -> int:
    """How many elements of a STAGE one value gives: those of a matrix lie side by side."""
    count = 1
    for extent in value.type.shape:
        count *= extent if isinstance(extent, int) else 1
    return count


def _store_matrix(memory: Node, number: Node, value: Node) -> Node:
    """Store the matrix `number` of a STAGE, row after row."""
    rows, columns = (extent if isinstance(extent, int) else 0 for extent in value.type.shape)
    address = INDEX(memory, simplify.scale(number, rows * columns))
    return STORE_MATRIX(address, value, attrs=MatrixRowsAttrs(rows, columns, columns))
