"""On cards rows of intermediates start at multiples of 16 bytes, and loops run to the next row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.unit.schedule.schedule_builders import (
    expand,
    iota,
    matmul,
    param,
    permute,
    reduce,
    softmax,
)

from tilework import Tensor, jit
from tilework.base.errors import BoundsError
from tilework.dtypes import DType, bfloat16, float32
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify
from tilework.schedule.pipeline import build_schedule
from tilework.schedule.schedule import Schedule

ROWS, ODD, DEPTH = 1024, 1003, 64
APART = 1008


def product(device: str = "CUDA", dtype: DType = bfloat16) -> Node:
    """A product whose rows have an odd number of elements."""
    x, y = param(0, (ROWS, DEPTH), dtype, device), param(1, (DEPTH, ODD), dtype, device)
    wide = [math.CAST(each, attrs=math.CastAttrs(float32)) for each in (x, y)]
    return math.CAST(matmul(*wide), attrs=math.CastAttrs(dtype))


def wide(x: Node) -> Node:
    return math.CAST(x, attrs=math.CastAttrs(float32))


def scheduled(*outputs: Node) -> Schedule:
    return build_schedule(memory.SINK(*outputs))


def lengths(schedule: Schedule) -> list[set[int]]:
    """The lengths of the loops of each kernel."""
    return [
        {simplify.value_of(node.src[0]) or 0 for node in toposort(call.src[0]) if node.op is RANGE}
        for call in schedule.linear.src
    ]


def test_rows_of_an_intermediate_start_at_multiples_of_16_bytes() -> None:
    x = product()
    made = scheduled(reduce(wide(x), 1), reduce(math.MUL(wide(x), wide(x)), 0))
    assert made.intermediates.unshared_bytes >= 2 * ROWS * APART
    assert made.intermediates.unshared_bytes < 2 * ROWS * (APART + 8)
    assert ODD in lengths(made)[0]


@pytest.mark.parametrize("fold", [Fold.ADD, Fold.MAX, Fold.MUL])
def test_folds_of_rows_run_to_where_the_next_row_starts(fold: Fold) -> None:
    x = wide(product())
    made = scheduled(reduce(x, 1, fold=fold), reduce(math.EXP(x), 0))
    assert {APART, ROWS} in lengths(made)


def test_elements_between_rows_are_left_out_of_folds() -> None:
    x = wide(product())
    made = scheduled(reduce(x, 1), reduce(math.EXP(x), 0))
    for call in made.linear.src[1:]:
        for node in toposort(call.src[0]):
            if node.op.name == "reduce" and APART in {
                simplify.value_of(range_.src[0]) for range_ in node.src[1:]
            }:
                assert node.src[0].op is math.WHERE


def test_processors_store_rows_one_behind_the_other() -> None:
    x = wide(product("CPU"))
    made = scheduled(reduce(x, 1), reduce(math.EXP(x), 0))
    assert APART not in set().union(*lengths(made))


def test_what_a_user_sees_has_no_elements_between_rows() -> None:
    x = product()
    made = scheduled(x, reduce(wide(x), 1), reduce(wide(x), 0))
    assert APART not in set().union(*lengths(made))


@pytest.mark.parametrize(
    "other",
    [
        lambda x: math.MUL(x, param(2, (ROWS, ODD), device="CUDA")),
        lambda x: math.MUL(x, expand(param(2, (1, ODD), device="CUDA"), (ROWS, ODD))),
    ],
)
def test_loops_that_read_other_arrays_end_with_the_row(other: Callable[[Node], Node]) -> None:
    x = wide(product())
    made = scheduled(reduce(other(x), 1), reduce(permute(math.EXP(x), 1, 0), 1))
    assert any(ODD in each and APART not in each for each in lengths(made)[1:])


def test_positions_are_counted_where_rows_are_apart() -> None:
    x = wide(product())
    counted = math.ADD(x, wide(iota((ROWS, ODD), 1)))
    made = scheduled(reduce(counted, 1, fold=Fold.MAX), reduce(math.EXP(x), 0))
    assert {APART, ROWS} in lengths(made)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with emulated_cards(monkeypatch):
        yield


def test_a_card_computes_the_same_from_rows_that_are_apart(
    card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilework.schedule.passes.pitch._LEAST_BYTES", 0)
    draw = np.random.default_rng(5)
    given = [draw.standard_normal(shape).astype(np.float32) for shape in ((24, 16), (16, 131))]

    def compute(device: str) -> list[np.ndarray]:
        x, y = (Tensor(each, device=device) for each in given)
        logits = x @ y
        shares = logits.softmax(-1)
        found = [shares.sum(0), shares.max(1), (logits * 2).exp().sum(1), logits.argmax(1)]
        Tensor.realize(*found)
        return [each.numpy() for each in found]

    for one, other in zip(compute("CUDA"), compute("CPU"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_softmax_of_such_rows_is_one_kernel_behind_the_product() -> None:
    made = scheduled(reduce(softmax(wide(product())), 0))
    assert len(made.linear.src) <= 3


def gradient_of(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


def test_captured_gradients_of_such_rows_are_those_of_a_processor(
    card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilework.schedule.passes.pitch._LEAST_BYTES", 0)
    draw = np.random.default_rng(6)
    weights = draw.standard_normal((16, 131)).astype(np.float32)
    batches = [draw.standard_normal((8, 16)).astype(np.float32) for _ in range(3)]
    classes = draw.integers(0, 131, 8).astype(np.int32)

    def gradients(device: str) -> list[np.ndarray]:
        weight = Tensor(weights, device=device, requires_grad=True)
        targets = Tensor(classes, device=device)

        @jit
        def step(x: Tensor) -> Tensor:
            weight.grad = None
            (x @ weight).sparse_categorical_crossentropy(targets).backward()
            return gradient_of(weight).realize()

        return [step(Tensor(x, device=device).realize()).numpy().copy() for x in batches]

    for one, other in zip(gradients("CUDA"), gradients("CPU"), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_class_that_there_is_not_is_reported_where_rows_are_chosen(card: None) -> None:
    weight = Tensor(np.ones((4, 9), np.float32), device="CUDA", requires_grad=True)
    targets = Tensor(np.array([1, 9], np.int32), device="CUDA")
    x = Tensor(np.ones((2, 4), np.float32), device="CUDA")
    (x @ weight).sparse_categorical_crossentropy(targets).backward()
    assert weight.grad is not None
    with pytest.raises(BoundsError, match="out of range"):
        weight.grad.numpy()
