"""A fold that all results share beside folds of their own: a norm in the kernel of a product."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor
from tilework.dtypes import bfloat16

X = np.linspace(-2.0, 2.0, 256, dtype=np.float32).reshape(1, 256)
W = np.sin(np.arange(64 * 256, dtype=np.float32)).reshape(64, 256)


@pytest.mark.parametrize("narrow", [False, True], ids=["float32", "bfloat16"])
def test_products_of_a_normalised_row_are_computed_by_blocks(
    monkeypatch: pytest.MonkeyPatch, narrow: bool
) -> None:
    """Its plan had vectors along the columns and along k at once, and was refused."""
    with emulated_cards(monkeypatch):
        given = [Tensor(array, device="CUDA") for array in (X, W, W[:32])]
        x, w, v = [t.cast(bfloat16) if narrow else t for t in given]
        Tensor.realize(x, w, v)
        wide = x.float()
        inside = (wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).cast(x.dtype)
        found = [y.float() for y in (inside @ w.transpose(), inside @ v.transpose())]
        Tensor.realize(*found)
        expected = X / np.sqrt((X**2).mean() + 1e-5) @ W.T
        error = 0.2 if narrow else 1e-4
        np.testing.assert_allclose(found[0].numpy(), expected, atol=error)
        np.testing.assert_allclose(found[1].numpy(), expected[:, :32], atol=error)
