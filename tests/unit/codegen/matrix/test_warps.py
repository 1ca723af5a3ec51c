"""Products of warps: plans, statements, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tilework.base.errors import InternalError, PlanError
from tilework.base.settings import override
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.matrix.filling import swizzled
from tilework.codegen.matrix.warps import Filling, WarpTiles, all_tiles, choose_warp_plan, tiles_of
from tilework.codegen.matrix.warps_lower import lower_warps
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    fp8e4m3,
    fp8e5m2,
    int8,
    int32,
    int64,
    uint8,
)
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node, make
from tilework.ir.ops import math
from tilework.ir.ops.control import ACCUMULATE, BARRIER
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.ops.warp_matrix import (
    COPY_CHUNK,
    COPY_WAIT,
    LOAD_FRAGMENT,
    MATRIX_WARP,
)
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.stage import Stage
from tilework.ir.symbolic import simplify
from tilework.ir.verify import verify
from tilework.target.known.cuda import CAPABILITIES, cuda_spec

TURING, AMPERE, ADA = cuda_spec(75), cuda_spec(80), cuda_spec(89)
ARRAYS = {
    float16: np.dtype(np.float16),
    bfloat16: np.dtype(ml_dtypes.bfloat16),
    float32: np.dtype(np.float32),
    float64: np.dtype(np.float64),
    fp8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    fp8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    int8: np.dtype(np.int8),
    int32: np.dtype(np.int32),
    uint8: np.dtype(np.uint8),
    int64: np.dtype(np.int64),
}


def ranges(*sizes: int) -> list[Node]:
    return [RANGE(const_index(size), attrs=RangeAttrs(n)) for n, size in enumerate(sizes)]


def offset(*pairs: tuple[Node, int]) -> Node:
    total = const_index(0)
    for range_, step in pairs:
        total = math.ADD(total, math.MUL(range_, const_index(step)))
    return total


def load(slot: int, size: int, dtype: DType, at: Node) -> Node:
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (size,), dtype)), at))


def summed(a: Node, b: Node, *bound: Node, result: DType) -> Node:
    return REDUCE(
        math.MUL(cast(a, result), cast(b, result)), *bound, attrs=ReduceAttrs(Fold.ADD, ())
    )


def product(  # noqa: PLR0913 - one argument for each thing that kernels differ in
    m: int,
    n: int,
    k: int,
    *,
    kind: str = "nn",
    dtype: DType = bfloat16,
    total: DType = float32,
    result: DType = float32,
    epilogue: Callable[[Node, Node, Node], Node] | None = None,
    batch: int = 1,
) -> Node:
    """The kernel of a product of matrices; `t` marks a transposed operand."""
    count, row, column, inner = ranges(batch, m, n, k)
    first = ((row, k), (inner, 1)) if kind[0] == "n" else ((inner, m), (row, 1))
    second = ((inner, n), (column, 1)) if kind[1] == "n" else ((column, k), (inner, 1))
    a = load(1, batch * m * k, dtype, offset((count, m * k), *first))
    b = load(2, batch * k * n, dtype, offset((count, k * n), *second))
    value = summed(a, b, inner, result=total)
    if epilogue is not None:
        value = epilogue(value, row, column)
    target = PARAM(attrs=ParamAttrs(0, (batch * m * n,), result))
    place = offset((count, m * n), (row, n), (column, 1))
    return SINK(STORE(INDEX(target, place), cast(value, result)))


def small(kernel: Kernel, target: object = AMPERE, *, slots: int = 3, warps: int = 1) -> GpuPlan:
    """The plan with the smallest tile of so many warps, and at most so many slots."""
    found = [
        (tiles.a.rows * tiles.b.rows, -tiles.slots, number, plan)
        for number, (plan, tiles) in enumerate(all_tiles(kernel, target))  # type: ignore[arg-type]
        if tiles.slots <= slots and tiles.threads == 32 * warps
    ]
    return min(found, key=lambda each: each[:3])[-1]


def drawn(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    draw = np.random.default_rng(7)
    if dtype.is_integer:
        return draw.integers(-128, 128, shape, dtype=np.int8).astype(ARRAYS[dtype])
    return draw.standard_normal(shape).astype(ARRAYS[dtype])


def run(
    sink: Node, arrays: list[np.ndarray], shape: tuple[int, ...], result: DType, **how: object
) -> np.ndarray:
    """What the statements of the smallest plan compute."""
    kernel = analyse(normalise_ranges(sink))
    target = how.pop("target", AMPERE)
    plan = small(kernel, target, **how)  # type: ignore[arg-type]
    linear = lower_warps(kernel, plan, target)  # type: ignore[arg-type]
    verify(linear, Stage.LINEAR, after="warps")
    tiles = tiles_of(kernel, plan, target)  # type: ignore[arg-type]
    assert tiles is not None
    return run_linear(linear, tiles, arrays, shape, result)


def run_linear(
    linear: Node,
    tiles: WarpTiles,
    arrays: list[np.ndarray],
    shape: tuple[int, ...],
    result: DType,
) -> np.ndarray:
    found = np.zeros(shape, dtype=ARRAYS[result])
    found.view(np.uint8)[...] = 0x7F
    buffers = [array.view(np.uint8).reshape(-1).data.cast("B") for array in (found, *arrays)]
    run_blocks(linear, buffers, blocks=tiles.tiles)
    return found


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


KINDS = [
    (TURING, float16, float32, 1e-6),
    (TURING, int8, int32, 0.0),
    (AMPERE, float16, float32, 1e-6),
    (AMPERE, bfloat16, float32, 1e-6),
    (AMPERE, int8, int32, 0.0),
    (AMPERE, float64, float64, 1e-15),
    (ADA, fp8e4m3, float32, 1e-3),
    (ADA, fp8e5m2, float32, 1e-3),
]


@pytest.mark.parametrize(
    ("target", "dtype", "total", "bound", "kind"),
    [
        *((*row, kind) for row in KINDS for kind in ("nt", "tn")),
        *((*row, kind) for row in (KINDS[0], KINDS[3]) for kind in ("nn", "tt")),
    ],
)
def test_products_of_warps_compute_what_the_kernel_says(
    target: object, dtype: DType, total: DType, bound: float, kind: str
) -> None:
    m, n, k = 24, 40, 2 * 128 // dtype.itemsize + 16
    a, b = drawn((m, k), dtype), drawn((k, n), dtype)
    stored = [a if kind[0] == "n" else a.T.copy(), b if kind[1] == "n" else b.T.copy()]
    sink = product(m, n, k, kind=kind, dtype=dtype, total=total, result=total)
    found = run(sink, stored, (m, n), total, target=target)
    exact = wide(a) @ wide(b)
    assert np.abs(wide(found) - exact).max() <= bound * np.abs(exact).max()


@pytest.mark.parametrize(("m", "n", "k"), [(9, 17, 33), (19, 9, 70), (33, 35, 129), (16, 16, 2)])
@pytest.mark.parametrize("target", [TURING, AMPERE])
def test_sizes_that_fill_no_tile_are_computed_to_the_last_element(
    m: int, n: int, k: int, target: object
) -> None:
    a, b = drawn((m, k), float16), drawn((k, n), float16)
    found = run(product(m, n, k, dtype=float16), [a, b], (m, n), float32, target=target)
    assert np.allclose(found, wide(a) @ wide(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_rings_of_any_depth_compute_the_same(slots: int) -> None:
    m, n, k = 16, 16, 5 * 64
    a, b = drawn((m, k), float16), drawn((k, n), float16)
    found = run(product(m, n, k, dtype=float16), [a, b], (m, n), float32, slots=slots)
    assert np.allclose(found, wide(a) @ wide(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [TURING, AMPERE])
def test_several_warps_share_a_tile_without_races(target: object) -> None:
    m, n, k = 40, 36, 72
    a, b = drawn((m, k), float16), drawn((k, n), float16)
    sink = product(m, n, k, dtype=float16)
    found = run(sink, [a, b], (m, n), float32, target=target, warps=4)
    assert np.allclose(found, wide(a) @ wide(b), rtol=1e-5, atol=1e-4)


def test_matrices_of_a_batch_are_tiles_of_their_own() -> None:
    batch, m, n, k = 3, 17, 24, 40
    a, b = drawn((batch, m, k), float16), drawn((batch, k, n), float16)
    sink = product(m, n, k, dtype=float16, batch=batch)
    found = run(sink, [a, b], (batch, m, n), float32)
    assert np.allclose(found, wide(a) @ wide(b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "n", "k"), [(20, 21, 69), (19, 30, 67)])
@pytest.mark.parametrize("kind", ["nt", "tn"])
def test_pieces_at_the_end_of_a_padded_row_are_copied_in_part(
    m: int, n: int, k: int, kind: str
) -> None:
    """What stands behind the end of a row in memory is NaN, and must not be multiplied."""
    wide_m, wide_n, wide_k = (-(-size // 8) * 8 for size in (m, n, k))
    row, column, inner = ranges(m, n, k)
    first = ((row, wide_k), (inner, 1)) if kind[0] == "n" else ((inner, wide_m), (row, 1))
    second = ((inner, wide_n), (column, 1)) if kind[1] == "n" else ((column, wide_k), (inner, 1))
    shapes = [(m, wide_k) if kind[0] == "n" else (k, wide_m)]
    shapes.append((k, wide_n) if kind[1] == "n" else (n, wide_k))
    sizes = [shape[0] * shape[1] for shape in shapes]
    a = load(1, sizes[0], float16, offset(*first))
    b = load(2, sizes[1], float16, offset(*second))
    total = summed(a, b, inner, result=float32)
    place = INDEX(PARAM(attrs=ParamAttrs(0, (m * n,), float32)), offset((row, n), (column, 1)))
    sink = SINK(STORE(place, total))
    ends = [(m, k) if kind[0] == "n" else (k, m), (k, n) if kind[1] == "n" else (n, k)]
    stored = []
    for shape, end in zip(shapes, ends, strict=True):
        array = np.full(shape, np.nan, dtype=np.float16)
        array[: end[0], : end[1]] = drawn(end, float16)
        stored.append(array)
    plan = small(analyse(normalise_ranges(sink)))
    assert [staged.lanes for staged in plan.staged] == [8, 8]
    found = run(sink, stored, (m, n), float32)
    left, right = (array[: end[0], : end[1]] for array, end in zip(stored, ends, strict=True))
    exact = wide(left if kind[0] == "n" else left.T) @ wide(right if kind[1] == "n" else right.T)
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-5)


def test_rows_of_a_slot_that_are_read_or_written_together_lie_in_different_banks() -> None:
    """Eight rows at one place of k, and eight pieces of one row, fill all 32 banks."""
    for dtype in (int8, float16, float32):
        width = 128 // dtype.itemsize
        chunk = 16 // dtype.itemsize

        def bank(line: int, column: int, dtype: DType = dtype, width: int = width) -> int:
            place = swizzled(const_index(line), const_index(column), dtype)
            value = simplify.value_of(rewrite(place, SIMPLIFY))
            assert value is not None
            return (line * width + value) * dtype.itemsize % 128 // 16

        for piece in range(8):
            assert {bank(line, piece * chunk) for line in range(8, 16)} == set(range(8))
        for line in range(16):
            assert {bank(line, piece * chunk) for piece in range(8)} == set(range(8))


def test_what_follows_the_sums_is_computed_for_each_of_them() -> None:
    m, n, k = 24, 40, 72

    def epilogue(total: Node, row: Node, column: Node) -> Node:
        zero = const_bits(0, float32)
        biased = math.ADD(total, cast(load(3, n, float16, column), float32))
        scaled = math.MUL(biased, load(4, m, float32, row))
        return math.ADD(
            math.MAXIMUM(scaled, zero), load(5, m * n, float32, offset((row, n), (column, 1)))
        )

    a, b = drawn((m, k), float16), drawn((k, n), float16)
    bias, scale, rest = drawn((n,), float16), drawn((m,), float32), drawn((m, n), float32)
    sink = product(m, n, k, dtype=float16, result=float16, epilogue=epilogue)
    found = run(sink, [a, b, bias, scale, rest], (m, n), float16)
    exact = np.maximum((wide(a) @ wide(b) + wide(bias)) * wide(scale)[:, None], 0) + rest
    assert np.abs(wide(found) - exact).max() <= 2**-10 * np.abs(exact).max()


def test_infinities_and_nan_stay_where_they_belong() -> None:
    m, n, k = 20, 20, 70
    a, b = drawn((m, k), float16), drawn((k, n), float16)
    a[3, 5], a[7, 69], b[2, 11] = np.inf, np.nan, -np.inf
    found = run(product(m, n, k, dtype=float16), [a, b], (m, n), float32)
    with np.errstate(invalid="ignore"):
        exact = (wide(a) @ wide(b)).astype(np.float32)
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_sums_of_integers_wrap() -> None:
    m, n, k = 16, 16, 64
    a = np.full((m, k), -128, dtype=np.int8)
    b = np.full((k, n), -128, dtype=np.int8)

    def epilogue(total: Node, row: Node, column: Node) -> Node:
        return math.MUL(total, const_bits(1 << 20, int32))

    sink = product(m, n, k, dtype=int8, total=int32, result=int32, epilogue=epilogue)
    found = run(sink, [a, b], (m, n), int32)
    assert (found == np.int64((128 * 128 * k) << 20).astype(np.int32)).all()


def test_float32_is_shortened_only_where_settings_allow_it() -> None:
    kernel = analyse(normalise_ranges(product(64, 64, 64, dtype=float32)))
    assert choose_warp_plan(kernel, AMPERE) is None
    with override(allow_tf32=True):
        plan = choose_warp_plan(kernel, AMPERE)
    assert plan is not None
    assert plan.matrix == "mma_m16n8k8_tf32"


@pytest.mark.parametrize("kind", ["nn", "nt", "tn"])
def test_shortened_float32_keeps_eleven_bits_of_each_operand(kind: str) -> None:
    m, n, k = 20, 24, 72
    a, b = drawn((m, k), float32), drawn((k, n), float32)
    stored = [a if kind[0] == "n" else a.T.copy(), b if kind[1] == "n" else b.T.copy()]
    with override(allow_tf32=True):
        found = run(product(m, n, k, kind=kind, dtype=float32), stored, (m, n), float32)
    short_a, short_b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
    assert np.allclose(found, wide(short_a) @ wide(short_b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [TURING, AMPERE])
def test_weights_of_8_bits_are_widened_as_slots_are_filled(target: object) -> None:
    m, n, k = 24, 24, 72
    row, column, inner = ranges(m, n, k)
    a = load(1, m * k, float16, offset((row, k), (inner, 1)))
    weight = load(2, n * k, int8, offset((column, k), (inner, 1)))
    scale = load(3, n, float32, column)
    total = math.MUL(summed(a, weight, inner, result=float32), scale)
    place = INDEX(PARAM(attrs=ParamAttrs(0, (m * n,), float32)), offset((row, n), (column, 1)))
    left, right, scales = drawn((m, k), float16), drawn((n, k), int8), drawn((n,), float32)
    sink = SINK(STORE(place, total))
    found = run(sink, [left, right, scales], (m, n), float32, target=target)
    assert np.allclose(found, wide(left) @ wide(right).T * wide(scales), rtol=1e-5, atol=1e-3)


def picture(target: object, channels: int, *, last: bool) -> tuple[np.ndarray, np.ndarray]:
    """A convolution of 3 x 3 with a rim of zeros, and what it should be."""
    images, height, width, features = 2, 5, 6, 24
    n, y, x, f, ky, kx, c = ranges(images, height, width, features, 3, 3, channels)
    down = math.ADD(math.ADD(y, ky), const_index(-1))
    across = math.ADD(math.ADD(x, kx), const_index(-1))
    steps = (
        ((n, height * width * channels), (down, width * channels), (across, channels), (c, 1))
        if last
        else ((n, height * width * channels), (c, height * width), (down, width), (across, 1))
    )
    size = images * height * width * channels
    inside = [
        math.LE(const_index(0), down), math.LT(down, const_index(height)),
        math.LE(const_index(0), across), math.LT(across, const_index(width)),
    ]  # fmt: skip
    gate = inside[0]
    for condition in inside[1:]:
        gate = math.AND(gate, condition)
    address = INDEX(PARAM(attrs=ParamAttrs(1, (size,), float16)), offset(*steps))
    pixel = math.WHERE(gate, LOAD(address, gate), const_bits(0, float16))
    weight = load(
        2,
        features * 9 * channels,
        float16,
        offset((f, 9 * channels), (ky, 3 * channels), (kx, channels), (c, 1)),
    )
    total = summed(pixel, weight, ky, kx, c, result=float32)
    place = offset((n, height * width * features), (y, width * features), (x, features), (f, 1))
    target_ = PARAM(attrs=ParamAttrs(0, (images * height * width * features,), float32))
    sink = SINK(STORE(INDEX(target_, place), total))
    image = drawn((images, height, width, channels), float16)
    weights = drawn((features, 3, 3, channels), float16)
    stored = image if last else image.transpose(0, 3, 1, 2).copy()
    shape = (images, height, width, features)
    found = run(sink, [stored, weights], shape, float32, target=target)
    padded = np.pad(wide(image), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = sum(
        padded[:, dy : dy + height, dx : dx + width] @ wide(weights)[:, dy, dx].T
        for dy in range(3)
        for dx in range(3)
    )
    return found, np.asarray(exact)


@pytest.mark.parametrize(("channels", "last"), [(16, True), (3, True), (8, False)])
@pytest.mark.parametrize("target", [TURING, AMPERE])
def test_windows_with_a_rim_of_zeros_are_products_too(
    target: object, channels: int, *, last: bool
) -> None:
    found, exact = picture(target, channels, last=last)
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-4)


# ---- races and copies that are not waited for


def tiled(k: int = 320, **how: object) -> tuple[WarpTiles, Node, list[np.ndarray]]:
    kernel = analyse(normalise_ranges(product(16, 16, k, dtype=float16)))
    plan = small(kernel, AMPERE, **how)  # type: ignore[arg-type]
    tiles = tiles_of(kernel, plan, AMPERE)
    assert tiles is not None
    arrays = [drawn((16, k), float16), drawn((k, 16), float16)]
    return tiles, lower_warps(kernel, plan, AMPERE), arrays


def changed(linear: Node, change: Callable[[Node], list[Node]]) -> Node:
    return LINEAR(*(new for node in linear.src for new in change(node)))


def test_a_slot_that_is_used_before_its_copies_have_come_is_a_race() -> None:
    tiles, linear, arrays = tiled()
    late = changed(
        linear,
        lambda node: (
            [make(COPY_WAIT, node.src, replace(node.attrs, count=node.attrs.count + 1))]
            if node.op is COPY_WAIT
            else [node]
        ),
    )
    with pytest.raises(InternalError, match="copy that has not come"):
        run_linear(late, tiles, arrays, (16, 16), float32)


def test_a_slot_that_is_used_without_a_barrier_is_a_race() -> None:
    tiles, linear, arrays = tiled(warps=2)
    bare = changed(linear, lambda node: [] if node.op is BARRIER else [node])
    with pytest.raises(InternalError, match="without a barrier"):
        run_linear(bare, tiles, arrays, (16, 16), float32)


def test_copies_that_nobody_waits_for_are_told() -> None:
    tiles, linear, arrays = tiled(64)
    used = {LOAD_FRAGMENT, MATRIX_WARP, COPY_WAIT}
    gone = {node for node in linear.src if node.op in used}
    gone |= {node for node in linear.src if node.op is ACCUMULATE and node.src[1] in gone}
    unused = changed(linear, lambda node: [] if node in gone else [node])
    with pytest.raises(InternalError, match="not waited for"):
        run_linear(unused, tiles, arrays, (16, 16), float32)


# ---- plans


@pytest.mark.parametrize("capability", [c for c in CAPABILITIES if c != 90])
def test_the_pipeline_takes_products_of_warps_where_there_are_none_of_groups(
    capability: int,
) -> None:
    lowered = lower_kernel(product(256, 256, 256, dtype=float16), cuda_spec(capability))
    ops = {node.op for node in lowered.linear.src}
    assert MATRIX_WARP in ops
    assert (COPY_CHUNK in ops) is (capability >= 80)
    assert lowered.scratch_bytes <= cuda_spec(capability).limits.shared_memory_bytes
    assert lowered.threads % 32 == 0


def test_hopper_keeps_to_products_of_groups() -> None:
    kernel = analyse(normalise_ranges(product(256, 256, 256, dtype=float64, total=float64)))
    assert choose_warp_plan(kernel, cuda_spec(90)) is None


def test_a_plan_of_another_kernel_is_refused() -> None:
    plan = choose_warp_plan(analyse(normalise_ranges(product(64, 64, 64))), AMPERE)
    other = analyse(normalise_ranges(product(64, 64, 64, dtype=float32)))
    assert plan is not None
    with pytest.raises(PlanError):
        lower_warps(other, plan, AMPERE)


def test_large_products_take_large_tiles_and_small_ones_leave_no_multiprocessor_idle() -> None:
    def tiles(size: int) -> WarpTiles:
        kernel = analyse(normalise_ranges(product(size, size, 1024, dtype=float16)))
        plan = choose_warp_plan(kernel, AMPERE)
        assert plan is not None
        found = tiles_of(kernel, plan, AMPERE)
        assert found is not None
        return found

    assert tiles(8192).a.rows * tiles(8192).b.rows >= 128 * 128
    assert tiles(512).tiles >= 64


def test_rows_that_start_anywhere_are_filled_element_by_element() -> None:
    kernel = analyse(normalise_ranges(product(64, 64, 63, kind="nt", dtype=float16)))
    plan = choose_warp_plan(kernel, AMPERE)
    assert plan is not None
    tiles = tiles_of(kernel, plan, AMPERE)
    assert tiles is not None
    assert {tiles.a.filling, tiles.b.filling} == {Filling.COMPUTED}


def quantised(
    sizes: tuple[int, int, int],
    dtypes: tuple[DType, DType],
    *,
    points: tuple[object, object],
    result: DType = int32,
    padded: int = 0,
) -> Node:
    """sum (a - point) (b - point) of matrices, the second transposed.

    A point is a number, or None for one that is loaded for each row (slot 3) or column (slot 4).
    The last `padded` values of k are outside: the first factor is 0 there.
    """
    m, n, k = sizes
    row, column, inner = ranges(m, n, k)
    own = [((row, k), (inner, 1)), ((column, k), (inner, 1))]
    factors = []
    for side, (line, size) in enumerate(((row, m), (column, n))):
        at = offset(*own[side])
        value = cast(load(1 + side, size * k, dtypes[side], at), int32)
        point = points[side]
        if point is None:
            point = cast(load(3 + side, size, dtypes[side], line), int32)
        else:
            point = const_bits(int(str(point)) & 0xFFFF_FFFF, int32)
        factors.append(math.SUB(value, point))
    if padded:
        inside = math.LT(inner, const_index(k - padded))
        factors[0] = math.WHERE(inside, factors[0], const_bits(0, int32))
    total = REDUCE(math.MUL(*factors), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    target = PARAM(attrs=ParamAttrs(0, (m * n,), result))
    return SINK(STORE(INDEX(target, offset((row, n), (column, 1))), cast(total, result)))


@pytest.mark.parametrize("target", [TURING, AMPERE])
@pytest.mark.parametrize(
    ("kinds", "points"),
    [
        ((uint8, int8), (128, 0)),
        ((uint8, uint8), (3, 250)),
        ((int8, int8), (-7, 5)),
        ((int8, uint8), (0, None)),
        ((uint8, int8), (None, None)),
    ],
)
def test_bytes_less_their_zero_points_are_multiplied_as_bytes(
    target: object, kinds: tuple[DType, DType], points: tuple[object, object]
) -> None:
    m, n, k = 24, 40, 144
    draw = np.random.default_rng(11)
    a, b = (
        draw.integers(kind.minimum, kind.maximum + 1, (size, k)).astype(ARRAYS[kind])
        for kind, size in zip(kinds, (m, n), strict=True)
    )
    own = [
        draw.integers(kind.minimum, kind.maximum + 1, size).astype(ARRAYS[kind])
        for kind, size in zip(kinds, (m, n), strict=True)
    ]
    found = run(quantised((m, n, k), kinds, points=points), [a, b, *own], (m, n), int32,
                target=target)  # fmt: skip
    wide_a, wide_b = (
        x.astype(np.int64) - (lines[:, None] if point is None else int(str(point)))
        for x, lines, point in zip((a, b), own, points, strict=True)
    )
    assert (found == wide_a @ wide_b.T).all()


def test_places_outside_of_a_sum_hold_the_zero_point() -> None:
    m, n, k = 20, 24, 70
    draw = np.random.default_rng(12)
    a, b = draw.integers(0, 256, (m, k)).astype(np.uint8), drawn((n, k), int8)
    sink = quantised((m, n, k), (uint8, int8), points=(77, 3), padded=6)
    found = run(sink, [a, b], (m, n), int32)
    wide_a, wide_b = a.astype(np.int64) - 77, b.astype(np.int64) - 3
    assert (found == wide_a[:, :-6] @ wide_b[:, :-6].T).all()


@pytest.mark.parametrize("capability", [75, 80, 89, 90, 100, 120])
def test_products_with_zero_points_take_matrix_instructions_on_every_card(capability: int) -> None:
    sink = quantised((512, 512, 512), (uint8, int8), points=(None, 0))
    lowered = lower_kernel(sink, cuda_spec(capability))
    products = [node for node in lowered.linear.src if node.op is MATRIX_WARP]
    assert {(node.attrs.dtype, node.attrs.b_dtype) for node in products} <= {
        ("uint8", "int8"),
        ("int8", "uint8"),
    }
    assert products


@pytest.mark.parametrize(("points", "is_taken"), [((3, 5), True), ((3, None), False)])
def test_sums_of_64_bits_are_those_of_32_where_those_hold_them(
    points: tuple[object, object], *, is_taken: bool
) -> None:
    """A point of 32 bits may make them longer."""
    m, n, k = 24, 16, 70
    row, column, inner = ranges(m, n, k)
    a = load(1, m * k, uint8, offset((row, k), (inner, 1)))
    b = load(2, n * k, int8, offset((column, k), (inner, 1)))
    loaded = load(3, n, int32, column)
    shifted = [
        math.SUB(cast(x, int32), loaded if point is None else const_bits(int(str(point)), int32))
        for x, point in zip((a, b), points, strict=True)
    ]
    total = summed(*shifted, inner, result=int64)
    target = PARAM(attrs=ParamAttrs(0, (m * n,), int64))
    sink = SINK(STORE(INDEX(target, offset((row, n), (column, 1))), total))
    assert bool(all_tiles(analyse(normalise_ranges(sink)), AMPERE)) is is_taken
    if is_taken:
        draw = np.random.default_rng(13)
        left, right = draw.integers(0, 256, (m, k)).astype(np.uint8), drawn((n, k), int8)
        found = run(sink, [left, right], (m, n), int64)
        assert (found == (left.astype(np.int64) - 3) @ (right.astype(np.int64) - 5).T).all()


@pytest.mark.parametrize("target", [TURING, AMPERE])
@pytest.mark.parametrize("kind", ["int8", "fp8e4m3", "nibbles"])
def test_blocks_of_weights_with_a_scale_each_are_widened_as_slots_are_filled(
    target: object, kind: str
) -> None:
    m, n, k, block = 20, 24, 96, 32
    row, column, inner = ranges(m, n, k)
    per_byte = 2 if kind == "nibbles" else 1
    dtype = {"int8": int8, "fp8e4m3": fp8e4m3, "nibbles": uint8}[kind]
    at = math.ADD(
        math.MUL(column, const_index(k // per_byte)), simplify.idiv(inner, const_index(per_byte))
    )
    stored = load(2, n * k // per_byte, dtype, at)
    if kind == "nibbles":
        shift = cast(simplify.scale(simplify.mod(inner, const_index(2)), 4), uint8)
        low = math.AND(math.SHR(stored, shift), const_bits(15, uint8))
        stored = math.SUB(cast(low, int8), const_bits(8, int8))
    scales = simplify.add(
        simplify.scale(column, k // block), simplify.idiv(inner, const_index(block))
    )
    weight = math.MUL(cast(stored, float16), load(3, n * k // block, float16, scales))
    total = summed(load(1, m * k, float16, offset((row, k), (inner, 1))), weight, inner,
                   result=float32)  # fmt: skip
    place = INDEX(PARAM(attrs=ParamAttrs(0, (m * n,), float32)), offset((row, n), (column, 1)))
    a = drawn((m, k), float16)
    scale = np.random.default_rng(9).random((n, k // block)).astype(np.float16)
    if kind == "nibbles":
        numbers = np.random.default_rng(10).integers(-8, 8, (n, k)).astype(np.int8)
        pairs = (numbers + 8).astype(np.uint8).reshape(n, k // 2, 2)
        weights = pairs[..., 0] | pairs[..., 1] << 4
    else:
        weights = numbers = drawn((n, k), dtype)
    found = run(SINK(STORE(place, total)), [a, weights, scale], (m, n), float32, target=target)
    wide_b = numbers.astype(np.float16) * np.repeat(scale, block, axis=1)
    assert np.allclose(found, wide(a) @ wide(wide_b).T, rtol=1e-5, atol=1e-4)
