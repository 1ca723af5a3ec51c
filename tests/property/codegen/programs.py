"""Random kernels: what the scheduler may hand to code generation, small enough to interpret.

Numbers are drawn so that float sums are exact (small integers) unless a test asks for others, so
that results can be compared bit for bit whatever the order of the additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from hypothesis import strategies as st
from tests.property.codegen.judge import numpy_dtype

from tilework import dtypes
from tilework.dtypes import DType
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import FAULT_IF, FaultAttrs
from tilework.ir.ops.tensor import REDUCE, SCAN, Fold, ReduceAttrs, ScanAttrs
from tilework.ir.symbolic import simplify
from tilework.testing.kernels import Case

Draw = st.DrawFn
SIZES = st.one_of(st.integers(1, 9), st.integers(10, 40), st.sampled_from([16, 32, 64]))
COMMON = st.sampled_from(
    [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.int8]
)
ANY_DTYPE = st.sampled_from(dtypes.ALL)
INTEGERS = st.sampled_from(dtypes.INTEGERS)


def loop(number: int, size: int | Node) -> Node:
    node = const_index(size) if isinstance(size, int) else size
    return RANGE(node, attrs=RangeAttrs(number))


def param(slot: int, count: int | Node, dtype: DType) -> Node:
    return PARAM(attrs=ParamAttrs(slot, (count,), dtype))


def linear(*terms: tuple[Node, int], start: int = 0) -> Node:
    total = const_index(start)
    for node, factor in terms:
        total = simplify.add(total, simplify.scale(node, factor))
    return total


def row_major(ranges: Sequence[Node], sizes: Sequence[int]) -> Node:
    total = const_index(0)
    for range_, size in zip(ranges, sizes, strict=True):
        total = simplify.add(simplify.scale(total, size), range_)
    return total


def load(slot: int, count: int, dtype: DType, offset: Node, *gate: Node) -> Node:
    return LOAD(INDEX(param(slot, count, dtype), offset), *gate)


def store(slot: int, count: int, dtype: DType, offset: Node, value: Node) -> Node:
    return STORE(INDEX(param(slot, count, dtype), offset), value)


def small_numbers(dtype: DType, count: int, seed: int) -> bytes:
    """Numbers whose sums and products of a few dozen stay exact in `dtype`."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_).tobytes()
    if dtype.is_float:
        most = 1 if dtype.bits <= 16 else 4
        values = rng.integers(-most, most + 1, count)
        return values.astype(np.float32).astype(numpy_dtype(dtype)).tobytes()
    return any_bits(dtype, count, seed)


def any_bits(dtype: DType, count: int, seed: int) -> bytes:
    """All bit patterns: NaNs, infinities, subnormals, the least integers."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_).tobytes()
    raw = rng.integers(0, 256, (count, dtype.itemsize), dtype=np.uint8)
    if dtype.is_float:
        special = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf], np.float32)
        chosen = special[rng.integers(0, len(special), count)].astype(numpy_dtype(dtype))
        patterns = chosen.view(np.uint8).reshape(count, dtype.itemsize)
        raw = np.where(rng.integers(0, 3, (count, 1)) == 0, patterns, raw)
    else:
        special = np.array([0, 1, (1 << 64) - 1, 1 << (dtype.bits - 1), 2], np.uint64)
        chosen = special[rng.integers(0, len(special), count)].astype(f"u{dtype.itemsize}")
        patterns = chosen.view(np.uint8).reshape(count, dtype.itemsize)
        raw = np.where(rng.integers(0, 4, (count, 1)) == 0, patterns, raw)
    return np.ascontiguousarray(raw.astype(np.uint8)).tobytes()


def blank(dtype: DType, count: int) -> bytes:
    return bytes([1 if dtype.is_bool else 0x5A]) * (count * dtype.itemsize)


@st.composite
def shapes(draw: Draw, least: int = 1, most: int = 3, limit: int = 1200) -> tuple[int, ...]:
    ndim = draw(st.integers(least, most))
    sizes = [draw(SIZES) for _ in range(ndim)]
    while prod(sizes) > limit:
        sizes[sizes.index(max(sizes))] = max(sizes) // 2
    return tuple(sizes)


@st.composite
def accesses(
    draw: Draw, slot: int, dtype: DType, ranges: Sequence[Node], sizes: Sequence[int], fill: object
) -> tuple[Node, bytes]:
    """A load over some of `ranges`: strided, mirrored, broadcast, windowed, padded, reshaped."""
    seed = draw(st.integers(0, 2**32))
    used = [(r, s) for r, s in zip(ranges, sizes, strict=True) if draw(st.integers(0, 4))]
    order = draw(st.permutations(used))
    count, terms, start = 1, [], 0
    gate = simplify.TRUE
    kind = draw(st.sampled_from(["plain", "mirror", "stride", "pad", "window", "reshape"]))
    for position, (range_, size) in enumerate(reversed(order)):
        extent, factor, first = size, 1, 0
        if position == 0 and kind == "mirror":
            factor, first = -1, size - 1
        elif position == 0 and kind == "stride":
            factor = draw(st.integers(2, 3))
            extent = size * factor
        elif kind == "pad" and size > 2:
            before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            extent = max(size - before - after, 1)
            first = -before
            gate = simplify.both(gate, simplify.at_least(range_, const_index(before)))
            gate = simplify.both(gate, simplify.less(range_, const_index(before + extent)))
        terms.append((range_, factor * count))
        start += first * count
        count *= extent
    offset = linear(*terms, start=start)
    if kind == "window" and len(used) > 1:
        # Two ranges that move over one axis: overlapping windows.
        (r0, s0), (r1, s1) = used[0], used[1]
        offset, count = simplify.add(r0, r1), s0 + s1 - 1
    if kind == "reshape" and count > 1:
        width = draw(st.integers(2, 7))
        flat = offset
        high, low = simplify.idiv(flat, const_index(width)), simplify.mod(flat, const_index(width))
        rows = -(-count // width)
        offset = simplify.add(high, simplify.scale(low, rows))
        count = rows * width
    data = fill(dtype, count, seed)  # type: ignore[operator]
    gates = () if gate is simplify.TRUE else (gate,)
    return load(slot, count, dtype, offset, *gates), data


_FLOAT_BINARY = [math.ADD, math.SUB, math.MUL, math.FDIV, math.MAXIMUM, math.MINIMUM, math.COPYSIGN]
_FLOAT_UNARY = [math.NEG, math.ABS, math.SQRT, math.FLOOR, math.CEIL, math.TRUNC, math.ROUND]
_INT_BINARY = [
    math.ADD, math.SUB, math.MUL, math.IDIV, math.MOD, math.AND, math.OR, math.XOR, math.SHL,
    math.SHR, math.MAXIMUM, math.MINIMUM,
]  # fmt: skip
_COMPARE = [math.LT, math.LE, math.EQ, math.NE]


@st.composite
def combined(draw: Draw, values: Sequence[Node], dtype: DType) -> Node:
    """An expression over values of one dtype."""
    pool = list(values)
    for _ in range(draw(st.integers(1, 4))):
        x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        choice = draw(st.integers(0, 5))
        if choice == 0:
            condition = draw(st.sampled_from(_COMPARE))(x, y)
            if draw(st.booleans()):
                condition = math.AND(condition, draw(st.sampled_from(_COMPARE))(y, x))
            made = math.WHERE(condition, x, draw(st.sampled_from(pool)))
        elif choice == 1:
            other = draw(st.sampled_from(dtypes.ALL))
            made = cast(cast(x, other), dtype)
        elif dtype.is_bool:
            made = draw(st.sampled_from([math.AND, math.OR, math.XOR, math.ADD, math.MUL]))(x, y)
        elif dtype.is_float and choice == 2:
            made = draw(st.sampled_from(_FLOAT_UNARY))(x)
        elif dtype.is_float and choice == 3 and dtype is not dtypes.float64:
            # Without the instruction that of float64 is not exact at the ends of its range.
            made = math.MULACC(x, y, draw(st.sampled_from(pool)))
        elif dtype.is_float:
            made = draw(st.sampled_from(_FLOAT_BINARY))(x, y)
        elif choice == 2:
            made = draw(st.sampled_from([math.NEG, math.ABS]))(x)
        else:
            made = draw(st.sampled_from(_INT_BINARY))(x, y)
        pool.append(made)
    return pool[-1]


@st.composite
def elementwise(draw: Draw, dtype_from: st.SearchStrategy[DType] = ANY_DTYPE) -> Case:
    """One to three stores of expressions over random accesses."""
    dtype = draw(dtype_from)
    sizes = draw(shapes())
    ranges = [loop(i, size) for i, size in enumerate(sizes)]
    outputs = draw(st.integers(1, 2))
    buffers: list[bytes] = [b""] * outputs
    values = []
    for slot in range(outputs, outputs + draw(st.integers(1, 3))):
        value, data = draw(accesses(slot, dtype, ranges, sizes, any_bits))
        values.append(value)
        buffers.append(data)
    effects = []
    count = prod(sizes)
    for slot in range(outputs):
        value = draw(combined(values, dtype))
        target = draw(st.sampled_from([dtype, dtype, dtypes.float32, dtypes.bool_, dtypes.int8]))
        order = draw(st.permutations(range(len(sizes))))
        offset = row_major([ranges[i] for i in order], [sizes[i] for i in order])
        effects.append(store(slot, count, target, offset, cast(value, target)))
        buffers[slot] = blank(target, count)
    return Case(SINK(*effects), buffers)


@st.composite
def reductions(draw: Draw, dtype_from: st.SearchStrategy[DType] = COMMON) -> Case:
    """A fold over one to three ranges, perhaps with an epilogue, perhaps of a product."""
    dtype = draw(dtype_from)
    fold = draw(st.sampled_from(Fold))
    outer = draw(shapes(0, 2, 40))
    inner = draw(shapes(1, 3, 60))
    outputs = [loop(i, size) for i, size in enumerate(outer)]
    bound = [loop(len(outer) + i, size) for i, size in enumerate(inner)]
    # Sums are exact for small numbers; the order does not matter to MAX and MIN, NaN included.
    exact = fold in (Fold.MAX, Fold.MIN)
    if dtype.is_float and fold is Fold.MUL:
        inner_values = units
    else:
        inner_values = any_bits if exact else small_numbers
    x, data = draw(accesses(1, dtype, outputs + bound, outer + inner, inner_values))
    buffers = [blank(dtype, prod(outer)), data]
    value = x
    if draw(st.booleans()):
        y, more = draw(accesses(2, dtype, outputs + bound, outer + inner, inner_values))
        buffers.append(more)
        value = math.MUL(x, y) if not exact else math.MAXIMUM(x, y)
    total = REDUCE(value, *bound, attrs=ReduceAttrs(fold))
    if draw(st.booleans()):
        total = math.ADD(total, const(1, dtype)) if not dtype.is_bool else total
    return Case(SINK(store(0, prod(outer), dtype, row_major(outputs, outer), total)), buffers)


def units(dtype: DType, count: int, seed: int) -> bytes:
    """Plus and minus one."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2, count) * 2 - 1
    return values.astype(np.float32).astype(numpy_dtype(dtype)).tobytes()


@st.composite
def narrow_reductions(draw: Draw) -> Case:
    """Folds in the floats that are stored only, and in small integers and bools."""
    kinds = [dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.bool_]
    dtype = draw(st.sampled_from([*kinds, dtypes.int16, dtypes.uint64]))
    fold = draw(st.sampled_from(Fold))
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    if dtype.is_float and dtype.bits == 8 and fold is Fold.ADD:
        columns = min(columns, 7)  # sums of more do not stay exact
    i, j = loop(0, rows), loop(1, columns)
    fill = any_bits if fold in (Fold.MAX, Fold.MIN) else small_numbers
    if dtype.is_float and fold is Fold.MUL:
        fill = units
    seed, count = draw(st.integers(0, 2**32)), rows * columns
    at = linear((i, columns), (j, 1)) if draw(st.booleans()) else linear((j, rows), (i, 1))
    value, buffers = load(1, count, dtype, at), [blank(dtype, rows), fill(dtype, count, seed)]
    if fold is Fold.ADD and draw(st.booleans()):
        value = math.MUL(value, load(2, count, dtype, at))
        buffers.append(fill(dtype, count, seed + 1))
    total = REDUCE(value, j, attrs=ReduceAttrs(fold))
    return Case(SINK(store(0, rows, dtype, i, total)), buffers)


@st.composite
def nested(draw: Draw) -> Case:
    """As softmax: a maximum, a sum that depends on it, and a row that depends on both."""
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.float64, dtypes.int32]))
    rows, columns = draw(SIZES), draw(SIZES)
    i, *rest = (loop(n, size) for n, size in enumerate([rows, columns, columns, columns]))
    seed = draw(st.integers(0, 2**32))
    count = rows * columns

    def at(j: Node) -> Node:
        return load(1, count, dtype, linear((i, columns), (j, 1)))

    most = REDUCE(at(rest[1]), rest[1], attrs=ReduceAttrs(Fold.MAX))
    total = REDUCE(math.SUB(at(rest[2]), most), rest[2], attrs=ReduceAttrs(Fold.ADD))
    value = math.ADD(math.SUB(at(rest[0]), most), total)
    effects = [store(0, count, dtype, linear((i, columns), (rest[0], 1)), value)]
    buffers = [blank(dtype, count), small_numbers(dtype, count, seed)]
    if draw(st.booleans()):
        effects.append(store(2, rows, dtype, i, total))
        buffers.append(blank(dtype, rows))
    return Case(SINK(*effects), buffers)


@st.composite
def scans(draw: Draw) -> Case:
    """A running fold along any axis, forwards or backwards, inclusive or not."""
    dtype = draw(COMMON)
    fold = draw(st.sampled_from(Fold))
    sizes = draw(shapes(1, 3, 600))
    ranges = [loop(i, size) for i, size in enumerate(sizes)]
    axis = draw(st.integers(0, len(sizes) - 1))
    positions = list(ranges)
    if draw(st.booleans()):
        positions[axis] = simplify.sub(const_index(sizes[axis] - 1), ranges[axis])
    offset, count = row_major(positions, sizes), prod(sizes)
    fill = units if dtype.is_float and fold is Fold.MUL else small_numbers
    data = fill(dtype, count, draw(st.integers(0, 2**32)))
    value = load(1, count, dtype, offset)
    attrs = ScanAttrs(fold, 0, draw(st.booleans()))
    running = SCAN(value, ranges[axis], attrs=attrs)
    effect = store(0, count, dtype, offset, running)
    return Case(SINK(effect), [blank(dtype, count), data])


@st.composite
def scatters(draw: Draw) -> Case:
    """Stores at loaded places, in order: the last one wins; out of bounds is a fault."""
    dtype = draw(COMMON)
    rows, columns, size = draw(st.integers(1, 30)), draw(st.integers(1, 20)), draw(SIZES)
    i, j = loop(0, rows), loop(1, columns)
    seed = draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    places = rng.integers(-1, size + 1, rows)
    at = cast(load(2, rows, dtypes.int32, i), dtypes.index)
    inside = simplify.both(
        simplify.at_least(at, const_index(0)), simplify.less(at, const_index(size))
    )
    target = INDEX(param(0, size * columns, dtype), simplify.add(simplify.scale(at, columns), j))
    value = load(1, rows * columns, dtype, linear((i, columns), (j, 1)))
    effects = [STORE(target, value, inside)]
    if draw(st.booleans()):
        outside = math.XOR(inside, simplify.TRUE)
        effects.append(FAULT_IF(outside, attrs=FaultAttrs(7)))
    buffers = [
        any_bits(dtype, size * columns, seed),
        any_bits(dtype, rows * columns, seed + 1),
        places.astype(np.int32).tobytes(),
    ]
    return Case(SINK(*effects), buffers)


@st.composite
def gathers(draw: Draw) -> Case:
    """Loads at loaded places, gated by their bounds check."""
    dtype = draw(COMMON)
    rows, columns, size = draw(st.integers(1, 30)), draw(st.integers(1, 20)), draw(SIZES)
    i, j = loop(0, rows), loop(1, columns)
    seed = draw(st.integers(0, 2**32))
    places = np.random.default_rng(seed).integers(-1, size + 1, rows * columns)
    along = draw(st.booleans())
    where = linear((i, columns), (j, 1)) if along else i
    at = cast(load(2, rows * columns, dtypes.int32, where), dtypes.index)
    inside = simplify.both(
        simplify.at_least(at, const_index(0)), simplify.less(at, const_index(size))
    )
    value = load(1, size * columns, dtype, linear((at, columns), (j, 1)), inside)
    effects = [store(0, rows * columns, dtype, linear((i, columns), (j, 1)), value)]
    if draw(st.booleans()):
        effects.append(FAULT_IF(math.XOR(inside, simplify.TRUE), attrs=FaultAttrs(9)))
    buffers = [
        blank(dtype, rows * columns),
        any_bits(dtype, size * columns, seed),
        places.astype(np.int32).tobytes(),
    ]
    return Case(SINK(*effects), buffers)


@st.composite
def in_place(draw: Draw) -> Case:
    """A buffer that is updated where it is read."""
    dtype = draw(COMMON)
    sizes = draw(shapes())
    ranges = [loop(i, size) for i, size in enumerate(sizes)]
    offset, count = row_major(ranges, sizes), prod(sizes)
    seed = draw(st.integers(0, 2**32))
    old = load(0, count, dtype, offset)
    other, data = draw(accesses(1, dtype, ranges, sizes, any_bits))
    value = draw(combined([old, other], dtype))
    effect = store(0, count, dtype, offset, value)
    return Case(SINK(effect), [any_bits(dtype, count, seed), data])


@st.composite
def contractions(draw: Draw) -> Case:
    """Sums of products with every layout of the factors, with batches and epilogues."""
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.float64, dtypes.int32, dtypes.float32]))
    m, n, k = (draw(st.integers(1, 40)) for _ in range(3))
    batch = draw(st.sampled_from([1, 1, 2, 3]))
    while m * n * k * batch > 12_000:
        m, k = max(m // 2, 1), max(k // 2, 1)
    g, i, j, p = loop(0, batch), loop(1, m), loop(2, n), loop(3, k)
    a_at = linear((i, 1), (p, m)) if draw(st.booleans()) else linear((i, k), (p, 1))
    b_at = linear((p, 1), (j, k)) if draw(st.booleans()) else linear((p, n), (j, 1))
    a = load(1, batch * m * k, dtype, simplify.add(a_at, simplify.scale(g, m * k)))
    shared = draw(st.booleans())
    b_start = const_index(0) if shared else simplify.scale(g, n * k)
    b = load(2, (1 if shared else batch) * n * k, dtype, simplify.add(b_at, b_start))
    total = REDUCE(math.MUL(a, b), p, attrs=ReduceAttrs(Fold.ADD))
    seed = draw(st.integers(0, 2**32))
    count = batch * m * n
    buffers = [
        blank(dtype, count),
        small_numbers(dtype, batch * m * k, seed),
        small_numbers(dtype, (1 if shared else batch) * n * k, seed + 1),
    ]
    if draw(st.booleans()):
        total = math.MAXIMUM(math.ADD(total, load(3, n, dtype, j)), const(0, dtype))
        buffers.append(small_numbers(dtype, n, seed + 2))
    out = linear((j, m), (i, 1)) if draw(st.booleans()) else linear((i, n), (j, 1))
    out = simplify.add(out, simplify.scale(g, m * n))
    return Case(SINK(store(0, count, dtype, out, total)), buffers)


@st.composite
def convolutions(draw: Draw) -> Case:
    """Sums over windows: strides, dilations (also backwards), padding by gates, an epilogue."""
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.float32, dtypes.int32]))
    images, taken, made = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 18))
    axes = [draw(windows(28)), draw(windows(5))][: draw(st.integers(1, 2))]
    n, o = loop(0, images), loop(1, made)
    c = loop(4, taken)
    at, kept, gate = linear((n, taken), (c, 1)), linear((n, made), (o, 1)), simplify.TRUE
    weight = linear((o, taken), (c, 1))
    bound = [c]
    for number, (out, taps, size, step, dilation, start) in enumerate(axes):
        y, tap = loop(2 + number, out), loop(5 + number, taps)
        place = linear((y, step), (tap, dilation), start=start)
        inside = simplify.less(place, const_index(size))
        inside = simplify.both(inside, simplify.less(const_index(-1), place))
        gate = simplify.both(gate, inside)
        at = simplify.add(simplify.scale(at, size), place)
        kept = simplify.add(simplify.scale(kept, out), y)
        weight = simplify.add(simplify.scale(weight, taps), tap)
        bound.append(tap)
    outputs, taps_of_all = prod(axis[0] for axis in axes), prod(axis[1] for axis in axes)
    sizes = [images * made * outputs, images * taken * prod(axis[2] for axis in axes)]
    sizes.append(made * taken * taps_of_all)
    gates = [] if gate is simplify.TRUE else [gate]
    pair = math.MUL(load(1, sizes[1], dtype, at, *gates), load(2, sizes[2], dtype, weight))
    total = REDUCE(pair, *bound, attrs=ReduceAttrs(Fold.ADD))
    seed = draw(st.integers(0, 2**32))
    buffers = [blank(dtype, sizes[0])]
    buffers += [small_numbers(dtype, size, seed + i) for i, size in enumerate(sizes[1:])]
    if draw(st.booleans()):
        total = math.MAXIMUM(math.ADD(total, load(3, sizes[0], dtype, kept)), const(0, dtype))
        buffers.append(small_numbers(dtype, sizes[0], seed + 3))
    return Case(SINK(store(0, sizes[0], dtype, kept, total)), buffers)


@st.composite
def poolings(draw: Draw) -> Case:
    """Folds over windows of each channel: depthwise convolutions, and greatest elements."""
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.float32, dtypes.int32]))
    channels = draw(st.integers(1, 5))
    axes = [draw(windows(40)), draw(windows(9))][: draw(st.integers(1, 2))]
    c, gate = loop(0, channels), simplify.TRUE
    at = kept = weight = c
    bound = []
    for number, (out, taps, size, step, dilation, start) in enumerate(axes):
        y, tap = loop(1 + number, out), loop(4 + number, taps)
        place = linear((y, step), (tap, dilation), start=start)
        gate = simplify.both(gate, simplify.less(place, const_index(size)))
        gate = simplify.both(gate, simplify.less(const_index(-1), place))
        at = simplify.add(simplify.scale(at, size), place)
        kept = simplify.add(simplify.scale(kept, out), y)
        weight = simplify.add(simplify.scale(weight, taps), tap)
        bound.append(tap)
    count, taps_of_all, read = (channels * prod(axis[i] for axis in axes) for i in range(3))
    gates = [] if gate is simplify.TRUE else [gate]
    seed = draw(st.integers(0, 2**32))
    buffers = [blank(dtype, count), small_numbers(dtype, read, seed)]
    value = load(1, read, dtype, at, *gates)
    fold = draw(st.sampled_from([Fold.ADD, Fold.MAX]))
    if fold is Fold.ADD:
        value = math.MUL(value, load(2, taps_of_all, dtype, weight))
        buffers.append(small_numbers(dtype, taps_of_all, seed + 1))
    elif gates:
        value = math.WHERE(gate, value, const(-9, dtype))
    total = REDUCE(value, *bound, attrs=ReduceAttrs(fold))
    return Case(SINK(store(0, count, dtype, kept, total)), buffers)


@st.composite
def windows(draw: Draw, most: int) -> tuple[int, int, int, int, int, int]:
    """One axis of a convolution: outputs, taps, inputs, step, dilation, where the first one is."""
    out, taps = draw(st.integers(1, most)), draw(st.integers(1, 3))
    step, dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (1, -1), (2, -1)]))
    padding = draw(st.integers(0, 2))
    reach = step * (out - 1) + abs(dilation) * (taps - 1) + 1
    start = (abs(dilation) * (taps - 1) if dilation < 0 else 0) - padding
    return out, taps, max(reach - 2 * padding, 1), step, dilation, start


@st.composite
def symbolic(draw: Draw) -> Case:
    """Sizes that are known at run time alone: elementwise, reductions, products."""
    dtype = draw(COMMON)
    most = draw(st.sampled_from([8, 40, 64]))
    value = draw(st.integers(1, most))
    size = VARIABLE(attrs=VariableAttrs("n", 1, most))
    fixed = draw(st.integers(1, 20))
    i, j = loop(0, size), loop(1, fixed)
    seed = draw(st.integers(0, 2**32))
    count = value * fixed
    total = simplify.scale(size, fixed)
    offset = simplify.add(simplify.scale(i, fixed), j)
    x = LOAD(INDEX(param(1, total, dtype), offset))
    data = small_numbers(dtype, count, seed)
    kind = draw(st.sampled_from(["elementwise", "rows", "columns", "transpose", "square"]))
    if kind == "elementwise":
        effect = STORE(INDEX(param(0, total, dtype), offset), math.ADD(x, x))
        out = count
    elif kind == "rows":
        effect = STORE(INDEX(param(0, size, dtype), i), REDUCE(x, j, attrs=ReduceAttrs(Fold.ADD)))
        out = value
    elif kind == "columns":
        swapped = simplify.add(simplify.scale(loop(1, size), fixed), loop(0, fixed))
        x = LOAD(INDEX(param(1, total, dtype), swapped))
        folded = REDUCE(x, loop(1, size), attrs=ReduceAttrs(Fold.ADD))
        effect = STORE(INDEX(param(0, fixed, dtype), loop(0, fixed)), folded)
        out = fixed
    elif kind == "transpose":
        flipped = simplify.add(simplify.mul(j, size), i)
        effect = STORE(INDEX(param(0, total, dtype), flipped), x)
        out = count
    else:
        j2 = loop(1, size)
        square = simplify.add(simplify.mul(i, size), j2)
        x = LOAD(INDEX(param(1, simplify.mul(size, size), dtype), square))
        effect = STORE(INDEX(param(0, simplify.mul(size, size), dtype), square), math.ADD(x, x))
        out = value * value
        data = small_numbers(dtype, out, seed)
    return Case(SINK(effect), [blank(dtype, out), data], {"n": value})


PROGRAMS = {
    "elementwise": elementwise(),
    "reductions": reductions(),
    "narrow_reductions": narrow_reductions(),
    "nested": nested(),
    "scans": scans(),
    "scatters": scatters(),
    "gathers": gathers(),
    "in_place": in_place(),
    "contractions": contractions(),
    "convolutions": convolutions(),
    "poolings": poolings(),
    "symbolic": symbolic(),
}
