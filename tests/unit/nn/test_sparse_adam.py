"""Adam of sparse gradients steps as PyTorch's does, with gradients that are whole tensors."""

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit
from tilework.nn.optim import SparseAdam

TABLE = np.random.default_rng(8).standard_normal((6, 3)).astype(np.float32)
LOOKED_UP = [[0, 2], [2, 2], [5], [0, 1, 5]]


def theirs(**options: Any) -> Any:
    layer = torch.nn.Embedding(6, 3, sparse=True)
    layer.weight.data = torch.tensor(TABLE)
    optimizer = torch.optim.SparseAdam(layer.parameters(), lr=0.1, **options)
    for rows in LOOKED_UP:
        optimizer.zero_grad()
        (layer(torch.tensor(rows)) ** 3).sum().backward()
        optimizer.step()  # type: ignore[no-untyped-call]
    return layer.weight.detach().numpy()


@pytest.mark.parametrize(
    "options", [{}, {"betas": (0.5, 0.9), "eps": 1e-3}, {"maximize": True}], ids=str
)
def test_rows_that_were_not_looked_up_and_their_means_stay(options: dict[str, Any]) -> None:
    table = Tensor(TABLE, requires_grad=True)
    optimizer = SparseAdam([table], lr=0.1, **options)
    for rows in LOOKED_UP:
        optimizer.zero_grad()
        (table[Tensor(rows)] ** 3).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(table.numpy(), theirs(**options), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(table.numpy()[3:5], TABLE[3:5])


def test_a_captured_step_goes_on() -> None:
    table = Tensor(TABLE, requires_grad=True)
    optimizer = SparseAdam([table], lr=0.1)

    @jit
    def step(weights: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (table * weights).square().sum().backward()
        return loss.realize(*optimizer.schedule_step())

    other = Tensor(TABLE, requires_grad=True)
    plain = SparseAdam([other], lr=0.1)
    for number in range(4):
        weights = Tensor(np.eye(6, dtype=np.float32)[number][:, None].copy())
        step(weights)
        plain.zero_grad()
        (other * weights).square().sum().backward()
        plain.step()
    np.testing.assert_allclose(table.numpy(), other.numpy(), rtol=1e-6)
