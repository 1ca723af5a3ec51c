"""What is mapped over rows gives for each row what it gives for that row alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_cases import Case, all_cases, floats  # type: ignore[import-not-found]

from tensor_oracle import value_of  # type: ignore[import-not-found]
from tilework import Tensor
from tilework.nn.func import vmap
from tilework.tensor.autograd import elementwise_rules, structure_rules
from tilework.tensor.autograd.table import NO_GRADIENT
from tilework.tensor.autograd.table import RULES as GRADIENTS
from tilework.tensor.batching import NOT_MAPPED, RULES, SHIFTS

assert elementwise_rules, structure_rules  # they fill the table of gradients

#: Every fourth case is tried each time, and all of them where time does not matter.
TRIED = [case for case in all_cases() if case.name != "mask"]  # it says how many elements there are
CASES = [
    pytest.param(case, marks=[] if number % 4 == 0 else pytest.mark.slow, id=case.name)
    for number, case in enumerate(TRIED)
]


def rows_of(case: Case) -> list[list[Any]]:
    """Two rows: the inputs, and those in another order."""
    turned = [np.ascontiguousarray(x[::-1]) if x.ndim else x for x in case.inputs]
    return [list(case.inputs), turned]


def close(got: Any, want: Any) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("case", CASES)
def test_every_operation_gives_each_row_what_it_gives_alone(case: Case) -> None:
    rows = rows_of(case)
    stacked = [Tensor(np.stack(parts)) for parts in zip(*rows, strict=True)]
    found = value_of(vmap(case.ours)(*stacked))
    alone = [value_of(case.ours(*[Tensor(x) for x in row])) for row in rows]
    close(found, np.stack(alone))


WITH_GRADIENTS = [
    pytest.param(case, marks=each.marks, id=case.name)
    for each, case in zip(CASES, TRIED, strict=True)
    if case.has_gradient
]


@pytest.mark.parametrize("case", WITH_GRADIENTS)
def test_gradients_through_a_map_are_those_of_the_rows(case: Case) -> None:
    rows = rows_of(case)
    places = [place for place, x in enumerate(case.inputs) if x.dtype == np.float32]

    def gradients(function: Any, inputs: list[Any], lead: int) -> list[Any]:
        tensors = [Tensor(x) for x in inputs]
        found = function(*tensors)
        last = floats(*found.shape[lead:][-1:], seed=7)
        seed = Tensor(np.broadcast_to(last, found.shape).copy())
        targets = [tensors[place] for place in places]
        slopes = found.gradient(*targets, gradient=seed, materialize_grads=True)
        return [value_of(slope) for slope in slopes]

    mapped = gradients(vmap(case.ours), [np.stack(parts) for parts in zip(*rows, strict=True)], 1)
    alone = [gradients(case.ours, row, 0) for row in rows]
    for got, *want in zip(mapped, *alone, strict=True):
        close(got, np.stack(want))


def test_every_op_says_how_it_is_mapped_or_why_not() -> None:
    ops = {op for op in (*GRADIENTS, *NO_GRADIENT) if not op.elementwise}
    known = {*SHIFTS, *RULES, *NOT_MAPPED}
    missing = sorted(op.name for op in ops - known)
    assert missing == ["after"]  # a write, which is done in the rows themselves


def test_no_op_has_two_ways() -> None:
    assert not SHIFTS.keys() & RULES.keys()
    assert not NOT_MAPPED.keys() & (SHIFTS.keys() | RULES.keys())
