"""Sorting end to end on the CPU, compared with NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework import Tensor
from tilework.ir.node import toposort
from tilework.ir.ops.program import FAULT_IF
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule

KINDS = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
UNSIGNED = ["uint16", "uint32", "uint64"]  # PyTorch sorts none of these
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]


def random_array(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers with duplicates; floats with NaN, infinities and zeros of both signs."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.4, values % 5, values).astype(dtype)
    values = rng.standard_normal(shape)
    special = rng.choice(SPECIAL, shape)
    return np.where(rng.random(shape) < 0.4, special, values).astype(dtype)


def assert_like_torch(x: np.ndarray, axis: int, descending: bool) -> None:
    values, positions = Tensor(x).sort(axis, descending)
    wanted = torch.sort(torch.from_numpy(x), dim=axis, descending=descending, stable=True)
    np.testing.assert_array_equal(positions.numpy(), wanted.indices.numpy())
    found = values.numpy()
    np.testing.assert_array_equal(found, wanted.values.numpy())
    if found.dtype.kind == "f":
        numbers = ~np.isnan(found)
        signs = np.signbit(found), np.signbit(wanted.values.numpy())
        np.testing.assert_array_equal(signs[0][numbers], signs[1][numbers])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_gives_the_values_and_positions_of_torch(kind: str, descending: bool) -> None:
    for shape, axis in [((50,), 0), ((3, 7), 1), ((7, 3), 0), ((2, 100, 3), 1), ((1, 1), 0)]:
        assert_like_torch(random_array(kind, shape, 1), axis, descending)


@pytest.mark.parametrize("kind", UNSIGNED)
def test_sort_of_unsigned_integers_is_that_of_numpy(kind: str) -> None:
    x = random_array(kind, (4, 90), 2)
    values, positions = Tensor(x).sort(1)
    np.testing.assert_array_equal(positions.numpy(), np.argsort(x, 1, kind="stable"))
    np.testing.assert_array_equal(values.numpy(), np.sort(x, 1))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 15, 31, 40])
def test_short_vectors_are_sorted(size: int) -> None:
    assert_like_torch(random_array("float32", (size,), size), 0, descending=False)
    assert_like_torch(random_array("float32", (3, size), size), 1, descending=True)


def test_a_long_vector_is_sorted() -> None:
    for kind in ("float32", "int32", "float64", "int64"):
        assert_like_torch(random_array(kind, (200_000,), 3), 0, descending=False)


def test_a_number_is_sorted() -> None:
    values, position = Tensor(3.0).sort()
    assert (values.item(), position.item()) == (3.0, 0)


def test_what_is_computed_is_sorted_in_the_same_graph() -> None:
    x = random_array("int32", (5, 60), 4) % 100
    found = ((Tensor(x) * 2 + 1).sort(0)[0] - 1).numpy()
    np.testing.assert_array_equal(found, np.sort(x * 2 + 1, 0) - 1)


def test_a_counter_and_a_constant_are_sorted() -> None:
    assert Tensor.arange(5).sort(descending=True)[1].tolist() == [4, 3, 2, 1, 0]
    assert Tensor.ones(3).argsort().tolist() == [0, 1, 2]


def test_transposed_and_flipped_views_are_sorted() -> None:
    x = random_array("float32", (6, 9), 5)
    view = Tensor(x).permute(1, 0).flip(1)
    np.testing.assert_array_equal(view.sort(1)[0].numpy(), np.sort(x.T[:, ::-1], 1))


def test_values_of_a_sort_are_gathered_without_a_check() -> None:
    values = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize().sort(0)[0]
    schedule = create_schedule(transform_to_call([values.node]).function)
    kernels = [call.src[0] for call in schedule.linear.src]
    assert "sort" in [report.kind for report in schedule.reports]
    assert not any(node.op is FAULT_IF for node in toposort(*kernels))


def test_topk_gives_what_torch_gives() -> None:
    x = np.random.default_rng(6).permutation(300).reshape(3, 100).astype(np.float32)
    for largest in (True, False):
        values, positions = Tensor(x).topk(7, 1, largest)
        wanted = torch.topk(torch.from_numpy(x), 7, 1, largest)
        np.testing.assert_array_equal(values.numpy(), wanted.values.numpy())
        np.testing.assert_array_equal(positions.numpy(), wanted.indices.numpy())


def test_kthvalue_and_median_are_those_of_torch() -> None:
    x = np.random.default_rng(7).permutation(77).reshape(7, 11).astype(np.float32)
    value, position = Tensor(x).kthvalue(4, 1)
    wanted = torch.kthvalue(torch.from_numpy(x), 4, 1)
    np.testing.assert_array_equal(value.numpy(), wanted.values.numpy())
    np.testing.assert_array_equal(position.numpy(), wanted.indices.numpy())
    assert Tensor(x).median().item() == torch.from_numpy(x).median().item()


@settings(max_examples=25)
@given(data=st.data())
def test_random_arrays_are_sorted_as_by_torch(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    shape = data.draw(st.sampled_from([(5,), (3, 4), (2, 90), (90, 2), (2, 3, 4)]))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = random_array(kind, shape, data.draw(st.integers(0, 1 << 20)))
    assert_like_torch(x, axis, data.draw(st.booleans()))
