"""Gradients through norms of rows that two operands share, whose folds several results need."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilework import Tensor


@pytest.mark.parametrize(
    ("one", "other", "axis"),
    [((1, 2, 3), (2, 1, 3), -2), ((1, 3, 2, 4), (2, 3, 1, 4), 2), ((2, 1, 5), (1, 2, 5), 1)],
)
def test_cosines_of_rows_that_repeat_have_pytorchs_values_and_gradients(
    one: tuple[int, ...], other: tuple[int, ...], axis: int
) -> None:
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal(shape).astype(np.float32) for shape in (one, other))
    a, b = Tensor(x), Tensor(y)
    cosine = a.cosine_similarity(b, dim=axis)
    weight = draw.standard_normal(cosine.shape).astype(np.float32)
    found = [cosine, *(cosine * Tensor(weight)).sum().gradient(a, b)]
    Tensor.realize(*found)
    p, q = (torch.tensor(data, dtype=torch.float64, requires_grad=True) for data in (x, y))
    theirs = torch.nn.functional.cosine_similarity(p, q, dim=axis)
    wanted = [theirs, *torch.autograd.grad((theirs * torch.tensor(weight)).sum(), (p, q))]
    for ours, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (4, 3)])
def test_second_gradients_of_normalised_rows_are_pytorchs(shape: tuple[int, ...]) -> None:
    """Kernels with several results, of which one needs what another of them is needed for."""
    draw = np.random.default_rng(0)
    x, first, second = (draw.standard_normal(shape).astype(np.float32) for _ in range(3))
    a = Tensor(x)
    rows = a.normalize(2.0, 1)
    (once,) = (rows * Tensor(first)).sum().gradient(a)
    (twice,) = (once * Tensor(second)).sum().gradient(a)
    Tensor.realize(rows, once, twice)
    p = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    total = (torch.nn.functional.normalize(p, 2.0, 1) * torch.tensor(first)).sum()
    (theirs,) = torch.autograd.grad(total, p, create_graph=True)
    (wanted,) = torch.autograd.grad((theirs * torch.tensor(second)).sum(), p)
    np.testing.assert_allclose(twice.numpy(), wanted.numpy(), rtol=2e-4, atol=2e-5)
