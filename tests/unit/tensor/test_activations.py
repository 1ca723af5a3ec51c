"""Activations of small floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes


def gelu(x: torch.Tensor) -> torch.Tensor:
    """The formula with tanh, without the loss of digits in 1 + tanh."""
    return x * torch.sigmoid((x + 0.044715 * x**3) * (2 * np.sqrt(2 / np.pi)))


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": gelu,
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "mish": torch.nn.functional.mish,
    "elu": torch.nn.functional.elu,
    "hardswish": torch.nn.functional.hardswish,
    "softplus": torch.nn.functional.softplus,
    "softsign": torch.nn.functional.softsign,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_TRN_12_an_activation_of_bfloat16_is_rounded_once_for_all_inputs(name: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = (bits.astype(np.uint32) << 16).view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < 1e18)]
    found = getattr(Tensor(values).cast(dtypes.bfloat16), name)().float().numpy()
    exact = FUNCTIONS[name](torch.from_numpy(values).double())
    spacing = np.spacing(np.abs(exact.bfloat16().float().numpy())) * 2.0**16
    error = np.abs(found.astype(np.float64) - exact.numpy()) / spacing
    assert np.nanmax(error) <= 0.52
