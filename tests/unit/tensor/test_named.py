"""Results of several tensors have PyTorch's names, and stay tuples, captured or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes, jit
from tilework.base.errors import DTypeError, UserError

X = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, 6.0], [8.0, 9.0, 7.0]], np.float32)
SYMMETRIC = X @ X.T + 4 * np.eye(3, dtype=np.float32)

#: What is called on a tensor of either library.
METHODS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(2),
    "max": lambda x: x.max(dim=1),
    "min": lambda x: x.min(dim=0, keepdim=True),
    "median": lambda x: x.median(1),
    "nanmedian": lambda x: x.nanmedian(1),
    "mode": lambda x: x.mode(1),
    "kthvalue": lambda x: x.kthvalue(2),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(1),
    "aminmax": lambda x: x.aminmax(),
    "slogdet": lambda x: x.slogdet(),
    "frexp": lambda x: x.frexp(),
    "histogram": lambda x: x.histogram(4, range=(0.0, 10.0)),
}
#: Functions of torch.linalg, which are methods here.
OF_MATRICES = (
    "qr", "svd", "eigh", "slogdet", "lu", "lu_factor", "lu_factor_ex", "cholesky_ex", "inv_ex",
)  # fmt: skip


def names_of(result: Any) -> list[str]:
    found = vars(type(result)) if not hasattr(result, "_fields") else result._fields
    plain = [name for name in found if not name.startswith(("_", "n_"))]
    return sorted(plain)


@pytest.mark.parametrize("name", METHODS)
def test_parts_of_a_result_have_pytorchs_names_and_values(name: str) -> None:
    theirs = METHODS[name](torch.from_numpy(SYMMETRIC))
    ours = METHODS[name](Tensor(SYMMETRIC))
    assert names_of(ours) == names_of(theirs)
    for part in names_of(theirs):
        np.testing.assert_allclose(
            getattr(ours, part).numpy(), getattr(theirs, part).numpy(), rtol=1e-5
        )


@pytest.mark.parametrize("name", OF_MATRICES)
def test_parts_of_a_decomposition_have_pytorchs_names_and_shapes(name: str) -> None:
    theirs = getattr(torch.linalg, name)(torch.from_numpy(SYMMETRIC))
    ours = getattr(Tensor(SYMMETRIC), name)()
    assert names_of(ours) == names_of(theirs)
    assert [tuple(part.shape) for part in theirs] == [part.shape for part in ours]


@pytest.mark.parametrize("name", METHODS)
def test_a_captured_function_gives_the_names_too(name: str) -> None:
    captured = jit(METHODS[name])
    x = Tensor(SYMMETRIC)
    for _ in range(3):
        found = captured(x)
        assert type(found) is type(METHODS[name](x))
        assert [each.tolist() for each in found] == [each.tolist() for each in METHODS[name](x)]


def test_results_are_unpacked_as_tuples() -> None:
    values, places = Tensor(X).sort(1)
    assert (values.tolist(), places.tolist()) == (np.sort(X).tolist(), np.argsort(X).tolist())
    assert Tensor(X).topk(1)[1].tolist() == [[0], [2], [1]]


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_gradient_of_the_greatest_along_dim_goes_to_the_first_of_equals(name: str) -> None:
    rows = [[2.0, 2.0, 1.0], [float("nan"), 3.0, 3.0], [-1.0, -1.0, -1.0]]
    theirs = torch.tensor(rows, requires_grad=True)
    ours = Tensor(rows, requires_grad=True)
    getattr(theirs, name)(dim=1).values.sum().backward()
    getattr(ours, name)(dim=1).values.sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert ours.grad.tolist() == theirs.grad.tolist()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int8", "int64", "uint8", "bool"])
def test_the_greatest_along_dim_keeps_the_dtype(kind: str) -> None:
    found = Tensor([[0, 1], [1, 0]]).cast(getattr(dtypes, "bool_" if kind == "bool" else kind))
    assert found.max(dim=0).values.dtype is found.dtype
    assert found.max(dim=0).indices.tolist() == [1, 0]


def test_the_greatest_of_a_single_number_stands_at_0() -> None:
    found = Tensor(3.0).max(dim=0)
    assert (found.values.item(), found.indices.item()) == (3.0, 0)


def test_positions_along_two_axes_are_refused() -> None:
    with pytest.raises(DTypeError, match="one axis only"):
        Tensor(X).max(dim=(0, 1))  # type: ignore[call-overload]


def test_an_axis_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match="given twice"):
        Tensor(X).max(0, dim=1)  # type: ignore[call-overload]
