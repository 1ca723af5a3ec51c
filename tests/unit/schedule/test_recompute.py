"""Products that several kernels compute again instead of storing them."""

from __future__ import annotations

from itertools import chain

import pytest
from tests.unit.schedule.schedule_builders import (
    expand,
    iota,
    like,
    matmul,
    param,
    permute,
    reduce,
    reshape,
    schedule,
    shrink,
    sizes_of,
    softmax,
)

from tilework.dtypes import DType, bfloat16, float32
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.schedule.schedule import Limits

AGAIN = Limits(recomputed_from=(("CPU", 0),))
ROWS = 256


def product(a: Node, b: Node) -> Node:
    """a (h, m, k) times b (h, n, k)."""
    (h, m, k), n = a.type.shape, b.type.shape[1]
    left = expand(reshape(a, h, m, 1, k), (h, m, n, k))
    right = expand(reshape(b, h, 1, n, k), (h, m, n, k))
    return reduce(math.MUL(left, right), 3)


def turned(x: Node) -> Node:
    return permute(x, 0, 2, 1)


def gradients(rows: int = ROWS, keys: int = ROWS, depth: int = 16) -> tuple[Node, ...]:
    """Weights, and the gradients of attention by queries, keys and values."""
    shapes = ((2, rows, depth), (2, keys, depth), (2, keys, depth), (2, rows, depth))
    q, k, v, g = (param(slot, shape) for slot, shape in enumerate(shapes))
    weights = softmax(product(q, k))
    by_weight = product(g, v)
    mean = expand(reduce(math.MUL(weights, by_weight), 2, keep=True), weights.type.shape)
    by_score = math.MUL(weights, math.SUB(by_weight, mean))
    return (
        weights,
        product(by_score, turned(k)),
        product(turned(by_score), turned(q)),
        product(turned(weights), turned(g)),
    )


def test_gradients_store_folds_of_rows_and_no_scores() -> None:
    made = schedule(*gradients()[1:], limits=AGAIN)
    assert len(made.linear.src) == 3
    assert made.arena_bytes == 3 * 2 * ROWS * 4


def test_two_sums_over_rows_share_a_kernel() -> None:
    made = schedule(*gradients()[1:], limits=AGAIN)
    assert sorted(len(report.stores) for report in made.reports) == [1, 2, 3]


def test_weights_that_are_asked_for_are_stored_for_all() -> None:
    weights, *others = gradients()
    made = schedule(weights, *others, limits=AGAIN)
    assert made.arena_bytes >= 2 * ROWS * ROWS * 4


def test_scores_that_are_few_are_stored() -> None:
    made = schedule(*gradients()[1:], limits=Limits(recomputed_from=(("CPU", 1 << 30),)))
    assert made.arena_bytes >= 2 * ROWS * ROWS * 4


def test_scores_that_are_hardly_larger_than_their_factors_are_stored() -> None:
    made = schedule(*gradients(depth=ROWS)[1:], limits=AGAIN)
    assert made.arena_bytes >= 2 * ROWS * ROWS * 4


def test_products_without_folds_are_stored() -> None:
    q, k, g = (param(slot, (2, ROWS, 16)) for slot in range(3))
    hidden = math.MAXIMUM(product(q, k), like(0.0, product(q, k)))
    made = schedule(product(hidden, turned(k)), product(turned(hidden), turned(g)), limits=AGAIN)
    assert made.arena_bytes >= 2 * ROWS * ROWS * 4


def test_what_weighs_values_stays_a_cascade_beside_gradients_that_read_folds() -> None:
    q, k, v = (param(slot, (2, ROWS, 16)) for slot in range(3))
    weights = softmax(product(q, k))
    mixed = product(weights, turned(v))
    by_weight = product(mixed, v)
    mean = expand(reduce(math.MUL(weights, by_weight), 2, keep=True), weights.type.shape)
    by_score = math.MUL(weights, math.SUB(by_weight, mean))
    wanted = (product(by_score, turned(k)), product(turned(by_score), turned(q)))
    made = schedule(mixed, *wanted, limits=AGAIN)
    assert len(made.linear.src) == 4
    assert made.arena_bytes == 3 * 2 * ROWS * 4


def widened(x: Node) -> Node:
    return math.CAST(x, attrs=math.CastAttrs(float32))


def rounded(x: Node) -> Node:
    return math.CAST(x, attrs=math.CastAttrs(bfloat16))


def of_heads(x: Node, count: int, part: int) -> Node:
    """A head's rows of one of `count` parts of columns, rounded for a matrix unit."""
    rows, columns = sizes_of(x)
    depth = columns // count // 2
    whole = reshape(x, rows, count, 2, depth)
    own = shrink(whole, (0, rows), (part, part + 1), (0, 2), (0, depth))
    return widened(rounded(permute(reshape(own, rows, 2, depth), 1, 0, 2)))


ON_A_CARD = Limits(recomputed_from=(("CUDA", 0),))


def rounded_gradients(
    q: Node, k: Node, v: Node, g: Node, *, hidden: Node | None = None
) -> tuple[Node, ...]:
    """Gradients by queries, keys and values for matrix units, some scores of which are hidden."""
    scores = product(q, k)
    if hidden is not None:
        scores = math.WHERE(hidden, like(float("-inf"), scores), scores)
    weights = softmax(scores)
    by_weight = product(g, v)
    mean = expand(reduce(math.MUL(weights, by_weight), 2, keep=True), weights.type.shape)
    by_score = widened(rounded(math.MUL(weights, math.SUB(by_weight, mean))))
    weights = widened(rounded(weights))
    return (
        product(by_score, turned(k)),
        product(turned(by_score), turned(q)),
        product(turned(weights), turned(g)),
    )


def operands(first: int, columns: int, dtype: DType = bfloat16) -> list[Node]:
    """Queries, keys, values and what comes back, on a card."""
    return [param(first + n, (2, ROWS, columns), dtype, "CUDA") for n in range(4)]


def gradients_in_a_model() -> tuple[Node, ...]:
    """Gradients of attention whose heads are parts of sums of products, on a card."""
    x, w, later, back = (
        param(slot, shape, device="CUDA")
        for slot, shape in enumerate(((ROWS, 32), (32, 96), (ROWS, 32), (32, 32)))
    )
    bias = expand(reshape(param(4, (96,), device="CUDA"), 1, 96), (ROWS, 96))
    mixed = math.ADD(matmul(x, w), bias)
    q, k, v = (of_heads(mixed, 3, part) for part in range(3))
    return rounded_gradients(q, k, v, of_heads(matmul(later, back), 1, 0))


def test_gradients_of_heads_that_are_parts_of_products_store_no_scores() -> None:
    made = schedule(*gradients_in_a_model(), limits=ON_A_CARD)
    # Both products, of 16 bits; folds of rows; gradients by queries; and those by keys and values.
    assert len(made.linear.src) == 5
    assert made.arena_bytes == ROWS * (96 + 32) * 2 + 3 * 2 * ROWS * 4


#: Bytes of the folds of rows of one attention, and of its four operands in 16 bits.
FOLDS, OPERANDS = 3 * 2 * ROWS * 4, 4 * 2 * ROWS * 16 * 2


def test_operands_of_matrix_units_that_lie_in_memory_are_read_from_there() -> None:
    made = schedule(*rounded_gradients(*map(widened, operands(0, 16))), limits=ON_A_CARD)
    assert made.arena_bytes == FOLDS


def test_operands_of_matrix_units_that_are_computed_are_stored_rounded() -> None:
    halves = [math.MUL(x, like(0.5, x)) for x in operands(0, 16, float32)]
    made = schedule(*rounded_gradients(*map(widened, map(rounded, halves))), limits=ON_A_CARD)
    assert made.arena_bytes == FOLDS + OPERANDS


@pytest.mark.parametrize(("first", "stored"), [(8, 0), (4, OPERANDS)])
def test_parts_that_start_inside_of_a_matrix_units_row_are_stored(first: int, stored: int) -> None:
    parts = [shrink(x, (0, 2), (0, ROWS), (first, first + 16)) for x in operands(0, 24)]
    made = schedule(*rounded_gradients(*map(widened, parts)), limits=ON_A_CARD)
    assert made.arena_bytes == FOLDS + stored


def test_a_long_mask_that_many_gradients_have_in_common_is_not_stored() -> None:
    row, column = (iota((2, ROWS, ROWS), axis) for axis in (1, 2))
    behind = math.LT(math.ADD(column, like(64, column)), row)
    ahead = math.OR(math.LT(row, column), math.LT(math.MUL(row, like(3, row)), column))
    hidden = math.OR(behind, ahead)
    found = [
        rounded_gradients(*map(widened, operands(4 * layer, 16)), hidden=hidden)
        for layer in range(4)
    ]
    made = schedule(*chain.from_iterable(found), limits=ON_A_CARD)
    assert made.arena_bytes == 4 * FOLDS


def test_parts_that_are_all_rounded_are_parts_of_what_is_stored_rounded() -> None:
    mixed = matmul(param(0, (ROWS, 32)), param(1, (32, 96)))
    parts = [of_heads(mixed, 3, part) for part in range(3)]
    made = schedule(product(parts[0], parts[1]), parts[2])
    assert made.arena_bytes == ROWS * 96 * 2


def test_parts_of_which_one_is_not_rounded_are_stored_as_they_are() -> None:
    mixed = matmul(param(0, (ROWS, 32)), param(1, (32, 96)))
    wide = shrink(mixed, (0, ROWS), (64, 96))
    made = schedule(product(of_heads(mixed, 3, 0), of_heads(mixed, 3, 1)), wide)
    assert made.arena_bytes == ROWS * 96 * 4


def test_what_many_kernels_follow_is_joined_as_in_a_short_function() -> None:
    _, by_query, *others = gradients()
    x, square = by_query, param(4, (2, 16, 16))
    for _ in range(70):
        x = product(x, square)
    made = schedule(x, *others, limits=AGAIN)
    assert len(made.linear.src) == 3 + 70
    assert sorted(len(report.stores) for report in made.reports)[-2:] == [2, 3]
