"""Products that several kernels compute again instead of storing them."""

from __future__ import annotations

from tests.unit.schedule.schedule_builders import (
    expand,
    like,
    param,
    permute,
    reduce,
    reshape,
    schedule,
    softmax,
)

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
