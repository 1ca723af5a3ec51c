"""A scatter of one element for each row is a choice on cards; sums of such rows are elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.unit.schedule.schedule_builders import (
    expand,
    iota,
    kernels,
    like,
    param,
    reduce,
    reshape,
    shrink,
)

from tilework import Tensor
from tilework.base.errors import BoundsError
from tilework.dtypes import DType, float32, int8, int64
from tilework.ir.build import const
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold, GatherAttrs, WindowAttrs
from tilework.schedule.passes.choice import chosen_axis, sum_choices
from tilework.schedule.pipeline import build_schedule
from tilework.schedule.schedule import DEFAULT_LIMITS

ROWS, COLUMNS = 512, 1000


def zeros(*shape: int) -> Node:
    return const(0.0, float32, shape)


def picked(
    device: str = "CUDA",
    fold: Fold | None = Fold.ADD,
    base: Node | None = None,
    counted: DType = int64,
) -> Node:
    """One element of each of many rows."""
    index = reshape(param(0, (ROWS,), int64, device), ROWS, 1)
    updates = reshape(param(1, (ROWS,), float32, device), ROWS, 1)
    own = iota((ROWS, 1), 0, counted)
    target = zeros(ROWS, COLUMNS) if base is None else base
    return tensor.SCATTER(target, updates, own, index, attrs=GatherAttrs(0, fold))


def read(node: Node, device: str = "CUDA") -> Node:
    return math.MUL(node, param(2, (ROWS, COLUMNS), float32, device))


def test_one_element_of_each_row_is_no_array_on_cards() -> None:
    assert kernels(read(picked())) == 1
    assert kernels(read(picked("CPU"), "CPU")) == 3


@pytest.mark.parametrize("fold", [Fold.ADD, Fold.MUL, Fold.MAX, None])
def test_all_ways_to_combine_old_and_new_are_choices(fold: Fold | None) -> None:
    assert chosen_axis(picked(fold=fold)) == 1


def test_several_elements_of_a_row_are_scattered() -> None:
    index = param(0, (ROWS, 2), int64, "CUDA")
    updates = param(1, (ROWS, 2), float32, "CUDA")
    node = tensor.SCATTER(
        zeros(ROWS, COLUMNS), updates, iota((ROWS, 2), 0), index, attrs=GatherAttrs(0, Fold.ADD)
    )
    assert chosen_axis(node) is None
    assert kernels(read(node)) == 3


def test_rows_that_some_have_and_some_not_are_scattered() -> None:
    index = param(0, (ROWS - 1, 1), int64, "CUDA")
    updates = param(1, (ROWS - 1, 1), float32, "CUDA")
    own = iota((ROWS - 1, 1), 0)
    node = tensor.SCATTER(zeros(ROWS, COLUMNS), updates, own, index, attrs=GatherAttrs(0, Fold.ADD))
    assert chosen_axis(node) is None


def test_positions_that_do_not_fit_their_dtype_are_scattered() -> None:
    assert chosen_axis(picked(counted=int8)) is None


def test_what_lies_in_memory_is_written_where_it_lies() -> None:
    assert chosen_axis(picked(base=param(3, (ROWS, COLUMNS), device="CUDA"))) is None


def test_indices_outside_are_reported_by_the_kernel_that_chooses() -> None:
    (call,) = build_schedule(memory.SINK(read(picked()))).linear.src
    assert any(node.op.name == "fault_if" for node in toposort(call.src[0]))


def folds(function: Node) -> list[Node]:
    return [node for node in toposort(function) if node.op is tensor.REDUCE]


def softmax_gradient(node: Node, device: str = "CUDA") -> Node:
    total = expand(reduce(math.NEG(node), 1, keep=True), (ROWS, COLUMNS))
    return math.ADD(node, math.MUL(total, param(2, (ROWS, COLUMNS), float32, device)))


def test_a_sum_of_such_a_row_is_its_element() -> None:
    function = memory.SINK(softmax_gradient(picked()))
    assert len(folds(function)) == 1
    assert folds(sum_choices(function, DEFAULT_LIMITS)) == []


def test_a_sum_stays_where_nobody_else_would_report_indices_of_all_rows() -> None:
    node = picked()
    few = shrink(read(node), (0, ROWS // 2), (0, COLUMNS))
    function = memory.SINK(few, reduce(node, 1))
    assert sum_choices(function, DEFAULT_LIMITS) is function
    both = memory.SINK(few, read(node), reduce(node, 1))
    assert sum_choices(both, DEFAULT_LIMITS) is not both


def test_a_sum_stays_where_windows_pass_over_rows() -> None:
    node = picked()
    apart = WindowAttrs(0, ROWS // 2, 1, 2, 1)
    function = memory.SINK(tensor.WINDOW(read(node), attrs=apart), reduce(node, 1))
    assert sum_choices(function, DEFAULT_LIMITS) is function


def outside(monkeypatch: pytest.MonkeyPatch, reads: Callable[[Tensor], list[Tensor]]) -> bool:
    """Whether an index outside, in the last row, is reported on a card."""
    with emulated_cards(monkeypatch):
        index = np.zeros((ROWS, 1), np.int64)
        index[-1] = COLUMNS
        on_card = [Tensor(each, device="CUDA").realize() for each in (index, index * 0 + 1.0)]
        zeros = Tensor.zeros(ROWS, COLUMNS, device="CUDA")
        made = reads(zeros.scatter_reduce(1, on_card[0], on_card[1].float(), "sum"))
        try:
            Tensor.realize(*made)
            made[0].numpy()
        except BoundsError:
            return True
        return False


def test_an_index_outside_is_reported_where_its_row_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = ROWS // 2
    assert outside(monkeypatch, lambda x: [x * 2])
    assert outside(monkeypatch, lambda x: [(x * 2)[:half], x.sum(1)])
    assert outside(monkeypatch, lambda x: [(x * 2)[half:]])
    assert not outside(monkeypatch, lambda x: [(x * 2)[:half]])  # as of what else nobody reads


@pytest.mark.parametrize(
    "function",
    [
        lambda: softmax_gradient(picked("CPU"), "CPU"),
        lambda: softmax_gradient(picked(fold=Fold.MAX)),
        lambda: softmax_gradient(picked(base=like(1.0, zeros(ROWS, COLUMNS)))),
        lambda: softmax_gradient(picked(base=const(-0.0, float32, (ROWS, COLUMNS)))),
        lambda: reduce(picked(), 1),
        lambda: math.MUL(reduce(picked(), 1), reduce(math.NEG(picked()), 1)),
        lambda: softmax_gradient(read(picked())),
    ],
)
def test_other_sums_stay(function: Callable[[], Node]) -> None:
    made = memory.SINK(function())
    assert sum_choices(made, DEFAULT_LIMITS) is made
