"""Every operation against PyTorch: values, dtypes and gradients, computed by the whole path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from op_cases import Case, all_cases, floats  # type: ignore[import-not-found]

from tensor_oracle import value_of  # type: ignore[import-not-found]
from tilework import Tensor, jit

CASES = all_cases()


def assert_same(got: Any, want: Any, tolerance: float) -> None:
    """Equal dtype and shape; integers equal, floats within the tolerance, NaN where NaN is."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = max(float(finite.max(initial=0.0)), 1e-6)
    absolute = tolerance * min(scale, 1.0) if scale < 1e3 else tolerance * 1e-2 * scale
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=absolute, equal_nan=True)


def is_wanted(case: Case, values: Any) -> bool:
    return bool(case.has_gradient and values.dtype == np.float32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_gradients_are_those_of_pytorch(case: Case) -> None:
    ours = [Tensor(x, requires_grad=is_wanted(case, x) or None) for x in case.inputs]
    theirs = [torch.tensor(x, requires_grad=is_wanted(case, x)) for x in case.inputs]
    got, want = case.ours(*ours), case.theirs(*theirs)
    assert_same(got.numpy(), want.detach().numpy(), case.tolerance)
    if not case.has_gradient:
        return
    seed = floats(*want.shape, seed=77)
    want.backward(torch.tensor(seed))
    got.backward(Tensor(seed))
    for own, other in zip(ours, theirs, strict=True):
        if other.requires_grad:
            gradient = np.zeros(other.shape, np.float32) if other.grad is None else other.grad
            assert_same(own.grad.numpy(), gradient, case.tolerance * 5)  # type: ignore[union-attr]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_graph_means_what_pytorch_computes(case: Case) -> None:
    ours = [Tensor(x) for x in case.inputs]
    want = case.theirs(*[torch.tensor(x) for x in case.inputs])
    assert_same(value_of(case.ours(*ours)), want.detach().numpy(), case.tolerance)


def check_modes(case: Case) -> None:
    """Eager run, capture and replay give the same bits."""
    eager = case.ours(*[Tensor(x) for x in case.inputs]).numpy()
    captured = jit(case.ours)
    for _ in range(3):
        found = captured(*[Tensor(x).realize() for x in case.inputs]).numpy()
        assert found.dtype == eager.dtype
        assert found.tobytes() == eager.tobytes()


@pytest.mark.parametrize("case", CASES[::18], ids=lambda case: case.name)
def test_EXE_09_an_operation_gives_the_same_bits_in_three_modes(case: Case) -> None:
    check_modes(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_EXE_09_every_operation_gives_the_same_bits_in_three_modes(case: Case) -> None:
    check_modes(case)
