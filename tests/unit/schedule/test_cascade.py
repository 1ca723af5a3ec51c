"""Which sums of products keep all that they are computed from in one kernel."""

from __future__ import annotations

import pytest
from tests.unit.schedule.schedule_builders import (
    attention,
    expand,
    kernels,
    param,
    reasons,
    reduce,
    reshape,
    schedule,
    softmax,
)

from tilework.dtypes import bfloat16, float32, int32
from tilework.ir.build import cast
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, tensor
from tilework.schedule.schedule import Limits


def product(a: Node, b: Node) -> Node:
    """a (h, m, k) times b (h, n, k)."""
    (h, m, k), n = a.type.shape, b.type.shape[1]
    left = expand(reshape(a, h, m, 1, k), (h, m, n, k))
    right = expand(reshape(b, h, 1, n, k), (h, m, n, k))
    return reduce(math.MUL(left, right), 3)


def heads(rows: int = 32, keys: int = 64, depth: int = 16, device: str = "CPU") -> list[Node]:
    """Queries, keys, and values with their axes turned."""
    shapes = ((2, rows, depth), (2, keys, depth), (2, depth, keys))
    return [param(slot, shape, device=device) for slot, shape in enumerate(shapes)]


def test_scores_are_stored_where_they_are_asked_for_too() -> None:
    q, k, v = heads()
    scores = product(q, k)
    made = schedule(product(softmax(scores), v), scores)
    assert len(made.linear.src) == 3


def test_weights_are_stored_where_they_are_asked_for_too() -> None:
    q, k, v = heads()
    weights = softmax(product(q, k))
    assert kernels(product(weights, v), weights) == 3


def test_no_score_reaches_memory() -> None:
    q, k, v = heads()
    made = schedule(product(softmax(product(q, k)), v))
    assert len(made.linear.src) == 1
    assert made.arena_bytes == 0


def test_weights_without_folds_stay_a_kernel_of_their_own() -> None:
    q, k, v = heads()
    assert kernels(product(math.EXP(product(q, k)), v)) == 2


def test_a_fold_along_another_axis_is_no_cascade() -> None:
    q, k, v = heads()
    raised = math.EXP(product(q, k))
    total = expand(reduce(raised, 1, keep=True), raised.type.shape)
    assert kernels(product(math.FDIV(raised, total), v)) > 1


@pytest.mark.parametrize(("rows", "keys"), [(3, 64), (32, 8)])
def test_few_rows_or_keys_stay_kernels_of_their_own(rows: int, keys: int) -> None:
    q, k, v = heads(rows, keys)
    assert kernels(product(softmax(product(q, k)), v)) > 1


def test_the_epilogue_of_a_cascade_is_in_its_kernel() -> None:
    q, k, v = heads()
    mixed = product(softmax(product(q, k)), v)
    assert kernels(math.MAXIMUM(math.ADD(mixed, q), q)) == 1


def test_devices_that_keep_no_tiles_get_separate_kernels() -> None:
    q, k, v = heads(device="OTHER")
    assert kernels(product(softmax(product(q, k)), v)) == 3


def test_limits_say_on_which_devices_cascades_are() -> None:
    made = schedule(
        attention(*[param(n, (2, 4, 64, 32)) for n in range(3)]), limits=Limits(cascades_on=())
    )
    assert len(made.linear.src) == 3


def test_a_contraction_shares_its_kernel_with_no_small_reduction() -> None:
    q, k, _ = heads()
    x = param(3, (2, 32, 64))
    total = expand(reduce(x, 2, keep=True), (2, 32, 64))
    made = schedule(math.FDIV(product(q, k), total))
    assert len(made.linear.src) == 2
    assert any("a reduction in the kernel of a contraction" in reason for reason in reasons(made))


def test_a_normalised_factor_is_not_folded_again_for_each_product() -> None:
    q, k, _ = heads()
    squares = expand(reduce(math.MUL(q, q), 2, keep=True), q.type.shape)
    assert kernels(product(math.FDIV(q, squares), k)) == 2


def test_factors_that_are_looked_up_keep_their_checks_in_kernels_of_their_own() -> None:
    q, k, v = heads()
    rows = param(3, (64,), int32)
    looked_up = tensor.GATHER(k, rows, attrs=tensor.GatherAttrs(1))
    assert kernels(product(softmax(product(q, looked_up)), v)) > 1


def test_factors_that_layers_before_computed_are_no_hindrance() -> None:
    _, k, v = heads()
    layers = product(param(3, (2, 32, 24)), param(4, (2, 16, 24)))
    table = tensor.GATHER(
        param(5, (2, 100, 24)), param(6, (32,), int32), attrs=tensor.GatherAttrs(1)
    )
    assert kernels(product(softmax(product(layers, k)), v)) == 2
    embedded = product(table, param(4, (2, 16, 24)))
    assert kernels(product(softmax(product(embedded, k)), v)) == 2


def wide(slot: int, shape: tuple[int, ...]) -> Node:
    """What a card has in 16 bits."""
    return cast(param(slot, shape, bfloat16, "CUDA"), float32)


@pytest.mark.parametrize(
    ("depth", "columns", "count"),
    [(64, 64, 1), (24, 16, 1), (20, 16, 3), (264, 16, 3), (24, 12, 3), (24, 264, 3)],
)
def test_cascades_for_matrix_units_have_whole_rows(depth: int, columns: int, count: int) -> None:
    q, k, v = wide(0, (2, 64, depth)), wide(1, (2, 64, depth)), wide(2, (2, columns, 64))
    weights = cast(cast(softmax(product(q, k)), bfloat16), float32)
    assert kernels(product(weights, v)) == count


def test_a_product_of_two_products_of_scores_is_no_cascade_for_matrix_units() -> None:
    """The gradient of attention by the queries alone: what folds of rows give comes from memory."""
    q, k, v, change = (wide(slot, (2, 64, 64)) for slot in range(4))
    weights = softmax(product(q, k))
    arriving = math.MUL(product(change, v), weights)
    mean = expand(reduce(arriving, 2, keep=True), arriving.type.shape)
    by_score = math.SUB(arriving, math.MUL(mean, weights))
    made = schedule(product(cast(cast(by_score, bfloat16), float32), wide(4, (2, 64, 64))))
    last = made.linear.src[-1]
    assert sum(node.op is tensor.REDUCE for node in toposort(last)) == 1


def masked(slot: int) -> Node:
    """Causal attention whose mask is the same node each time."""
    return attention(*[param(slot + part, (1, 2, 64, 16)) for part in range(3)])


def test_two_attentions_with_a_mask_in_common_are_two_cascades() -> None:
    assert kernels(masked(0)) == 1
    assert kernels(masked(0), masked(3)) == 2


def test_a_mask_that_many_attentions_have_in_common_is_not_stored() -> None:
    made = schedule(*[masked(3 * number) for number in range(10)])
    assert len(made.linear.src) == 10
    assert made.arena_bytes == 0
