"""Products of quantised numbers: narrow integers and a zero point for each side, exact in words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, Variable, dtypes, jit
from tilework.codegen.analysis import analyse
from tilework.codegen.plan.contraction import orientations
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.codegen.plan.prepack import prepack
from tilework.dtypes import DType, int8, int16, int32, uint8
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec
from tilework.target.spec import TargetSpec

QUADS = x86_level_spec("x86-64-v4", cores=2, extra=("avx512vnni",))
PAIRS = x86_level_spec("x86-64-v3", cores=2)
ROWS, COLUMNS, DEPTH = 64, 192, 256


def point(value: int | str, dtype: DType, slot: int, along: Node) -> Node:
    """A zero point as int32: a number, one that is loaded, or one for each value of a range."""
    if isinstance(value, int):
        return const_bits(value & 0xFFFF_FFFF, int32)
    count = ROWS * COLUMNS * DEPTH
    offset = const_index(0) if value == "one" else along
    return cast(LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), offset)), int32)


def product(
    a: DType, b: DType, first: int | str, second: int | str, *, along_sum: bool = False
) -> Node:
    """A product of matrices less zero points, which may differ by row and by column."""
    i, j, p = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((ROWS, COLUMNS, DEPTH))
    )
    x = PARAM(attrs=ParamAttrs(1, (ROWS * DEPTH,), a))
    y = PARAM(attrs=ParamAttrs(2, (DEPTH * COLUMNS,), b))
    left = cast(LOAD(INDEX(x, simplify.add(simplify.scale(i, DEPTH), p))), int32)
    right = cast(LOAD(INDEX(y, simplify.add(simplify.scale(p, COLUMNS), j))), int32)
    left = math.SUB(left, point(first, a, 3, p if along_sum else i))
    right = math.SUB(right, point(second, b, 4, p if along_sum else j))
    target = PARAM(attrs=ParamAttrs(0, (ROWS * COLUMNS,), int32))
    offset = simplify.add(simplify.scale(i, COLUMNS), j)
    total = REDUCE(math.MUL(left, right), p, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(INDEX(target, offset), total))


def dots(kernel: Node, target: TargetSpec) -> list[str]:
    sums = [node for node in toposort(ready_for_plans(kernel, target)) if node.op is REDUCE]
    return [node.src[0].op.name for node in sums if node.src[0].op in math.DOTS]


def test_a_zero_point_adds_the_sum_of_the_other_factor() -> None:
    assert dots(product(uint8, int8, 113, 0), QUADS) == ["dot_quads"] * 2
    assert dots(product(uint8, int8, "one", 0), QUADS) == ["dot_quads"] * 2
    assert dots(product(uint8, int8, "each", "each"), QUADS) == ["dot_quads"] * 3


def test_a_zero_point_of_zero_adds_nothing() -> None:
    assert dots(product(uint8, int8, 0, 0), QUADS) == ["dot_quads"]


def test_signed_bytes_less_minus_128_are_unsigned_bytes_as_they_are() -> None:
    assert dots(product(int8, int8, -128, 0), QUADS) == ["dot_quads"]


def test_bytes_less_zero_points_are_pairs_of_16_bits_without_corrections() -> None:
    assert dots(product(uint8, int8, "each", "one"), PAIRS) == ["dot_pairs"]
    assert dots(product(uint8, uint8, 255, -(1 << 14)), PAIRS) == ["dot_pairs"]


def test_what_16_bits_do_not_hold_is_no_pair() -> None:
    assert dots(product(uint8, uint8, (1 << 15) + 1, 0), PAIRS) == []
    assert dots(product(int16, int8, "one", 0), PAIRS) == []


def test_zero_points_that_vary_along_the_sum_are_left_alone() -> None:
    assert dots(product(uint8, int8, "each", 0, along_sum=True), QUADS) == []


def test_sums_of_weights_are_packed_with_them() -> None:
    kernel = product(uint8, int8, "one", "each")
    found = prepack(kernel, QUADS, frozenset({2, 4}))
    assert found is not None
    (contraction, _) = orientations(analyse(found.kernel))
    assert not contraction.corrections
    # The weights and their sums for good, and the sums of the rows at each call.
    assert sorted(pack.is_constant for pack in found.packs) == [False, True, True]


# --- numbers ----------------------------------------------------------------------------------


def filled(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


KINDS = [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")]
POINTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one": ((), ()),
    "rows": ((37, 1), ()),
    "columns": ((), (75,)),
    "both": ((37, 1), (75,)),
}


@pytest.mark.parametrize(
    ("a", "b", "shapes"),
    [(*kind, "both") for kind in KINDS]
    + [(*KINDS[0], each) for each in ("one", "rows", "columns")],
)
def test_products_less_zero_points_are_exact_and_follow_writes(a: str, b: str, shapes: str) -> None:
    x, y, z = filled(a, (37, 96), 0), filled(b, (96, 75), 1), filled(b, (96, 75), 2)
    p, q = (filled(t, s, 3) for t, s in zip((a, b), POINTS[shapes], strict=True))
    weight, left, right = (Tensor(v).contiguous().realize() for v in (y, p, q))

    def step(x: Tensor) -> Tensor:
        first = x.cast(int32) - left.cast(int32)
        return first.matmul(weight.cast(int32) - right.cast(int32), dtype=dtypes.int32) + 1

    def expected(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        first = x.astype(np.int32) - p.astype(np.int32)
        product: np.ndarray[Any, Any] = first @ (y.astype(np.int32) - q.astype(np.int32)) + 1
        return product

    given = Tensor(x).realize()
    np.testing.assert_array_equal(step(given).numpy(), expected(y))
    captured: Callable[[Tensor], Tensor] = jit(step)
    for _ in range(3):
        np.testing.assert_array_equal(captured(given).numpy(), expected(y))
    weight.assign(Tensor(z)).realize()
    np.testing.assert_array_equal(captured(given).numpy(), expected(z))


@pytest.mark.parametrize(
    ("a", "b", "channels", "is_known"),
    [
        *((*kind, 32, True) for kind in KINDS),
        (*KINDS[0], 3, True),
        (*KINDS[0], 3, False),
        (*KINDS[1], 12, False),
    ],
)
def test_padding_of_a_convolution_is_the_zero_point(
    a: str, b: str, channels: int, is_known: bool
) -> None:
    x, w = filled(a, (2, channels, 9, 10), 5), filled(b, (16, channels, 3, 3), 6)
    p, q = (113, 77) if a == "uint8" else (-5, -128)
    q = q if np.iinfo(b).min <= q <= np.iinfo(b).max else 9
    shift: int | Tensor = p if is_known else Tensor(np.array(p, a)).realize().cast(int32)
    weight = Tensor(w).contiguous().realize()

    def step(x: Tensor) -> Tensor:
        return (x.cast(int32) - shift).conv2d(weight.cast(int32) - q, padding=1, dtype=int32)

    padded = np.pad(x.astype(np.int64) - p, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.int64) - q)
    given = Tensor(x).realize()
    np.testing.assert_array_equal(step(given).numpy(), expected)
    captured: Callable[[Tensor], Tensor] = jit(step)
    for _ in range(3):
        np.testing.assert_array_equal(captured(given).numpy(), expected)


def test_sums_of_offsets_wrap_modulo_the_width() -> None:
    x, y = filled("uint8", (16, 64), 7), filled("int8", (64, 32), 8)
    shift = (1 << 30) + 12345
    found = (Tensor(x).cast(int32) - shift).matmul(Tensor(y).cast(int32) + shift, dtype=int32)
    wide = (x.astype(object) - shift) @ (y.astype(object) + shift)
    expected = ((wide + (1 << 31)) % (1 << 32) - (1 << 31)).astype(np.int32)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_zero_points_of_two_arguments_are_exact_in_a_capture() -> None:
    x, y = filled("uint8", (48, 128), 9), filled("uint8", (128, 96), 10)

    def step(x: Tensor, y: Tensor) -> Tensor:
        return (x.cast(int32) - 100).matmul(y.cast(int32) - 7, dtype=int32)

    captured: Callable[[Tensor, Tensor], Tensor] = jit(step)
    given = Tensor(x).realize(), Tensor(y).realize()
    for _ in range(3):
        found = captured(*given).numpy()
    np.testing.assert_array_equal(found, (x.astype(np.int32) - 100) @ (y.astype(np.int32) - 7))


@pytest.mark.parametrize("is_transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize(("a", "b"), KINDS)
def test_a_vector_times_a_matrix_is_exact(a: str, b: str, is_transposed: bool) -> None:
    x, y = filled(a, (1, 260), 11), filled(b, (260, 150), 12)
    p, q = filled(a, (), 13), filled(b, (150,), 14)
    weight = Tensor(y.T.copy() if is_transposed else y).contiguous().realize()
    left, right = (Tensor(v).contiguous().realize() for v in (p, q))

    def step(x: Tensor) -> Tensor:
        matrix = weight.T if is_transposed else weight
        first = x.cast(int32) - left.cast(int32)
        return first.matmul(matrix.cast(int32) - right.cast(int32), dtype=dtypes.int32)

    given = Tensor(x).realize()
    wide = x.astype(np.int32) - p.astype(np.int32)
    expected = wide @ (y.astype(np.int32) - q.astype(np.int32))
    np.testing.assert_array_equal(step(given).numpy(), expected)
    captured: Callable[[Tensor], Tensor] = jit(step)
    for _ in range(3):
        np.testing.assert_array_equal(captured(given).numpy(), expected)


def test_the_words_of_a_matrix_are_packed_for_a_vector() -> None:
    i, p = (RANGE(const_index(size), attrs=RangeAttrs(at)) for at, size in enumerate((192, 256)))
    x = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (256,), uint8)), p))
    place = simplify.add(simplify.scale(p, 192), i)
    y = LOAD(INDEX(PARAM(attrs=ParamAttrs(2, (256 * 192,), int8)), place))
    left = math.SUB(cast(x, int32), const_bits(7, int32))
    total = REDUCE(math.MUL(left, cast(y, int32)), p, attrs=ReduceAttrs(Fold.ADD))
    sink = SINK(STORE(INDEX(PARAM(attrs=ParamAttrs(0, (192,), int32)), i), total))
    found = prepack(sink, QUADS, frozenset({2}))
    assert found is not None
    assert [pack.size_bytes for pack in found.packs] == [256 * 192, 4 * 192]
    assert dots(found.kernel, QUADS) == ["dot_quads"]


@pytest.mark.parametrize("taken", [1, 5, 8])
def test_zero_points_count_the_products_of_a_sum_of_symbolic_size(taken: int) -> None:
    x, y = filled("int8", (32, 8, 64), 15), filled("int8", (8, 64, 40), 16)
    size = Variable("size", 1, 8).bind(taken)
    left = Tensor(x).realize()[:, :size].cast(int32) - 3
    right = Tensor(y).realize()[:size].cast(int32) - 7
    found = (left.unsqueeze(3) * right.unsqueeze(0)).sum((1, 2), dtype=int32)
    first, second = x[:, :taken].astype(np.int32) - 3, y[:taken].astype(np.int32) - 7
    np.testing.assert_array_equal(found.numpy(), np.tensordot(first, second, 2))
