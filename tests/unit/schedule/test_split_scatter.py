"""Long scatters of integers into few places are done by parts, with the same results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.base.errors import BoundsError
from tilework.ir.node import Node, toposort
from tilework.ir.ops import tensor
from tilework.ir.ops.memory import PARAM, SINK, ParamAttrs
from tilework.ir.ops.tensor import Fold, GatherAttrs
from tilework.schedule.passes import split_scatter
from tilework.schedule.passes.split_scatter import split_scatters

if TYPE_CHECKING:
    from tilework.dtypes import DType

CPU = ("CPU",)


def scatter_of(
    dtype: DType, size: int, places: int, fold: Fold | None, device: str = "CPU"
) -> Node:
    x = PARAM(attrs=ParamAttrs(0, (places,), dtype, device))
    updates = PARAM(attrs=ParamAttrs(1, (size,), dtype, device))
    indices = PARAM(attrs=ParamAttrs(2, (size,), dtypes.int64, device))
    return SINK(tensor.SCATTER(x, updates, indices, attrs=GatherAttrs(0, fold)))


def scatters(function: Node) -> list[tuple[int, ...]]:
    """The shapes of the updates of all scatters."""
    nodes = toposort(split_scatters(function, CPU))
    return [node.src[1].shape for node in nodes if node.op is tensor.SCATTER]


def test_a_long_scatter_of_integers_into_few_places_has_parts() -> None:
    assert scatters(scatter_of(dtypes.int64, 1 << 16, 100, Fold.ADD)) == [(8, 1 << 13)]


def test_what_is_left_at_the_end_is_folded_into_the_first_operand() -> None:
    found = scatters(scatter_of(dtypes.int32, (1 << 16) + 3, 10, Fold.MAX))
    assert sorted(found) == [(3,), (8, 1 << 13)]


@pytest.mark.parametrize(
    ("dtype", "size", "places", "fold", "device"),
    [
        (dtypes.float32, 1 << 17, 10, Fold.ADD, "CPU"),
        (dtypes.int64, 1 << 17, 10, None, "CPU"),
        (dtypes.int64, 1 << 12, 10, Fold.ADD, "CPU"),
        (dtypes.int64, 1 << 17, 1 << 14, Fold.ADD, "CPU"),
        (dtypes.int64, 1 << 17, 10, Fold.ADD, "CUDA"),
    ],
)
def test_other_scatters_stay_as_they_are(
    dtype: DType, size: int, places: int, fold: Fold | None, device: str
) -> None:
    function = scatter_of(dtype, size, places, fold, device)
    assert split_scatters(function, CPU) is function


@pytest.mark.parametrize("size", [96, 1003])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64", "bool"])
def test_parts_have_the_results_of_the_whole(
    dtype: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_scatter, "MANY_ELEMENTS", 8)
    monkeypatch.setattr(split_scatter, "ELEMENTS_FOR_PLACE", 1)
    rng = np.random.default_rng(size)
    base = rng.integers(0, 2, 7).astype(dtype)
    updates = rng.integers(0, 2 if dtype == "bool" else 120, size).astype(dtype)
    at = rng.integers(0, 7, size)
    folds: dict[str, Any] = {"amax": np.maximum, "amin": np.minimum}
    if dtype != "bool":
        folds |= {"sum": np.add, "prod": np.multiply}
    for reduce, fold in folds.items():
        wanted = base.copy()
        fold.at(wanted, at, updates)
        found = Tensor(base).scatter_reduce(0, Tensor(at), Tensor(updates), reduce)
        np.testing.assert_array_equal(found.numpy(), wanted)


def test_elements_at_two_positions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_scatter, "MANY_ELEMENTS", 8)
    monkeypatch.setattr(split_scatter, "ELEMENTS_FOR_PLACE", 1)
    rng = np.random.default_rng(3)
    rows, columns = rng.integers(0, 2, (2, 200)), rng.integers(0, 3, (2, 200))
    wanted = np.zeros((2, 3), np.int64)
    np.add.at(wanted, (rows, columns), 1)
    counts = Tensor.zeros(2, 3, dtype="int64")
    found = counts.index_put((Tensor(rows), Tensor(columns)), Tensor(1), accumulate=True)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_an_index_outside_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_scatter, "MANY_ELEMENTS", 8)
    monkeypatch.setattr(split_scatter, "ELEMENTS_FOR_PLACE", 1)
    at = Tensor(np.array([0, 1, 9] * 20))
    with pytest.raises(BoundsError):
        Tensor.zeros(3, dtype="int64").scatter_add(0, at, Tensor.ones(60, dtype="int64")).numpy()


def test_counts_of_long_vectors_are_those_of_numpy() -> None:
    numbers = np.random.default_rng(1).integers(0, 50, (1 << 16) + 5)
    np.testing.assert_array_equal(Tensor(numbers).bincount().numpy(), np.bincount(numbers))
    floats = np.random.default_rng(2).standard_normal((1 << 16) + 5).astype(np.float32)
    wanted = np.histogram(floats, 20, (-2.0, 2.0))[0]
    np.testing.assert_array_equal(Tensor(floats).histc(20, -2.0, 2.0).numpy(), wanted)
