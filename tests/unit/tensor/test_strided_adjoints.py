"""Transposed convolutions with strides: classes of places that are convolutions of their own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.ir.node import toposort
from tilework.ir.ops import tensor

Array = np.ndarray[Any, Any]
FORMS = [
    # kernel, stride, padding, dilation, output padding, groups
    (4, 2, 1, 1, 0, 1),
    (3, 2, 1, 1, 1, 1),
    (3, 2, 0, 1, 0, 2),
    (5, 3, 2, 1, 2, 1),
    (1, 2, 0, 1, 1, 4),
    (2, 3, 0, 1, 0, 1),
    (2, 2, 0, 1, 0, 2),
    (3, 2, 1, 2, 0, 1),
    (7, 4, 3, 1, 3, 2),
    (6, 3, 1, 1, 0, 4),
    ((3, 2), (1, 3), (1, 0), (2, 1), (0, 2), 1),
]


def operands(groups: int, kernel: object, dtype: str = "float64") -> tuple[Array, Array]:
    rng = np.random.default_rng(groups)
    sizes = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x = rng.integers(-9, 9, (2, 4, 5, 6)).astype(dtype)
    return x, rng.integers(-9, 9, (4, 3, *sizes)).astype(dtype)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_results_and_gradients_are_those_of_torch(form: tuple[Any, ...]) -> None:
    kernel, stride, padding, dilation, extra, groups = form
    x, weight = operands(groups, kernel)
    theirs = [torch.from_numpy(each).requires_grad_() for each in (x, weight)]
    wanted = torch.nn.functional.conv_transpose2d(
        theirs[0], theirs[1], None, stride, padding, extra, groups, dilation
    )
    ours = [Tensor(x, requires_grad=True), Tensor(weight, requires_grad=True)]
    found = ours[0].conv_transpose2d(ours[1], None, groups, stride, dilation, padding, extra)
    np.testing.assert_array_equal(found.numpy(), wanted.detach().numpy())
    scale = np.arange(wanted.numel(), dtype=np.float64).reshape(wanted.shape) % 7
    slopes = torch.autograd.grad((wanted * torch.from_numpy(scale)).sum(), theirs)
    for mine, other in zip((found * Tensor(scale)).sum().gradient(*ours), slopes, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other.numpy())


@pytest.mark.parametrize("count", [1, 3])
def test_other_numbers_of_axes_have_phases_too(count: int) -> None:
    rng = np.random.default_rng(count)
    x = rng.integers(-9, 9, (2, 2, *(4,) * count)).astype(np.float32)
    weight = rng.integers(-9, 9, (2, 3, *(3,) * count)).astype(np.float32)
    functions = {1: torch.nn.functional.conv_transpose1d, 3: torch.nn.functional.conv_transpose3d}
    wanted = functions[count](torch.from_numpy(x), torch.from_numpy(weight), stride=2, padding=1)
    found = Tensor(x).conv_transpose2d(Tensor(weight), stride=2, padding=1)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_no_place_is_touched_by_what_does_not_reach_it() -> None:
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 1, 1] = np.nan
    weight = np.ones((1, 1, 3, 3), np.float32)
    found = Tensor(x).conv_transpose2d(Tensor(weight), stride=2).numpy()[0, 0]
    wanted = np.zeros((7, 7), bool)
    wanted[2:5, 2:5] = True
    np.testing.assert_array_equal(np.isnan(found), wanted)


@pytest.mark.parametrize(
    ("kernel", "stride", "taps"),
    [(4, 2, [4]), (5, 3, [1, 2, 2, 4]), (16, 8, [4]), (1, 2, [1]), (20, 8, [4, 6, 6, 9])],
)
def test_each_class_of_places_adds_up_its_own_taps_alone(
    kernel: int, stride: int, taps: list[int]
) -> None:
    """And classes of as many taps are one sum, so that long strides make no more kernels."""
    x, weight = Tensor.ones(1, 8, 9, 9), Tensor.ones(8, 8, kernel, kernel)
    found = x.conv_transpose2d(weight, stride=stride, padding=1 if kernel > 1 else 0)
    sums = [node for node in toposort(found.node) if node.op is tensor.REDUCE]
    added = [
        itertools.compress(node.src[0].shape, [axis in node.attrs.axes for axis in range(9)])
        for node in sums
    ]
    assert sorted(np.prod(list(each)) for each in added) == [8 * each for each in taps]


def test_a_bias_is_added_before_a_small_result_is_rounded() -> None:
    x = Tensor.full((1, 1, 2, 2), 2048.0, dtype=dtypes.float16)
    weight = Tensor.ones(1, 1, 2, 2).half()
    bias = Tensor([0.75]).half()
    found = x.conv_transpose2d(weight, bias, stride=2)
    assert found.dtype is dtypes.float16
    assert found.numpy().max() == np.float16(2048.75)
    assert x.conv_transpose2d(weight * 0.5, bias, stride=2).numpy().max() == np.float16(1024.75)


@pytest.mark.parametrize("shape", [(0, 4, 5, 6), (2, 4, 0, 6)])
def test_nothing_gives_nothing(shape: tuple[int, ...]) -> None:
    found = Tensor.zeros(*shape).conv_transpose2d(Tensor.ones(4, 3, 3, 3), stride=2, padding=0)
    assert found.shape[0] == shape[0]
    assert not found.numpy().any()
