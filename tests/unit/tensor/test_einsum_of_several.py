"""einsum of more than two tensors: contracted two at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.ir.node import toposort
from tilework.ir.ops import tensor

SIZES = {"i": 5, "j": 7, "k": 4, "l": 6, "m": 3, "b": 2}


@pytest.mark.parametrize(
    "formula",
    [
        "ij,jk,kl->il",
        "ij,jk,kl,lm->im",
        "ij,kl,jk->il",
        "bij,bjk,kl,l->bi",
        "i,i,i->i",
        "i,j,k->kij",
        "ij,jk,l->ik",
        "ij,ij,ij->",
        "ij,jk,ki->",
        "...j,jk,...k->...",
    ],
)
def test_several_tensors_give_the_sums_of_all_products(formula: str) -> None:
    rng = np.random.default_rng(len(formula))
    named = formula.replace("...", "b")
    groups = named.split("->")[0].split(",")
    shapes = [tuple([SIZES[letter] for letter in group]) for group in groups]
    whole = [rng.integers(-9, 9, shape) for shape in shapes]
    wanted = np.einsum(named, *whole)
    np.testing.assert_array_equal(Tensor.einsum(formula, *map(Tensor, whole)).numpy(), wanted)
    floats = [each.astype(np.float32) for each in whole]
    np.testing.assert_array_equal(Tensor.einsum(formula, *map(Tensor, floats)).numpy(), wanted)


def test_axes_of_one_element_meet_longer_ones() -> None:
    a, b, c = np.ones((1, 4)), np.full((3, 1), 2.0), np.arange(12.0).reshape(3, 4)
    found = Tensor.einsum("ij,ij,ij->j", Tensor(a), Tensor(b), Tensor(c))
    np.testing.assert_array_equal(found.numpy(), (a * b * c).sum(0))


def test_an_empty_axis_gives_zeros() -> None:
    found = Tensor.einsum("ij,jk,kl->il", Tensor.ones(2, 0), Tensor.ones(0, 3), Tensor.ones(3, 2))
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_small_floats_stay_wide_until_the_end() -> None:
    x = Tensor.full((1, 4096), 1.0, dtype=dtypes.float16)
    found = Tensor.einsum("ij,jk,kl->il", x, Tensor.ones(4096, 2).half(), Tensor.ones(2, 1).half())
    assert found.dtype is dtypes.float16
    assert found.item() == 8192.0


def test_no_array_has_the_axes_of_all_tensors() -> None:
    a, b, c = (Tensor.ones(30, 30) for _ in range(3))
    found = Tensor.einsum("ij,jk,kl->il", a, b, c)
    sums = [each for each in toposort(found.node) if each.op is tensor.REDUCE]
    assert len(sums) == 2
    assert all(np.prod(each.src[0].shape) == 30**3 for each in sums)


def test_gradients_pass_all_tensors() -> None:
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal((3, 3)) for _ in range(3)]
    tensors = [Tensor(each) for each in arrays]
    total = Tensor.einsum("ij,jk,kl->il", *tensors).sum()
    found = total.gradient(*tensors)[1].numpy()
    wanted = np.einsum("ij,kl->jk", arrays[0], arrays[2])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
