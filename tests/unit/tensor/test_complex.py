"""Complex numbers are pairs of real ones: every door says so, and names the way in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor
from tilework.base.errors import DTypeError, ShapeError

DOORS: dict[str, Callable[[], Any]] = {
    "a number": lambda: Tensor(1j),
    "a list": lambda: Tensor([1.0, 1j]),
    "a scalar of NumPy": lambda: Tensor(np.complex64(1j)),
    "a list of NumPy's scalars": lambda: Tensor([np.complex64(1j)]),
    "an array": lambda: Tensor(np.array([1j], np.complex64)),
    "a tensor of PyTorch": lambda: Tensor(torch.tensor([1j])),
    "a conjugate of PyTorch": lambda: Tensor(torch.tensor([1j]).conj()),
    "DLPack": lambda: Tensor.from_dlpack(torch.tensor([1j])),
    "a buffer": lambda: Tensor(memoryview(np.array([1j]).data)),
    "an operand": lambda: Tensor([1.0]) + 1j,
    "a left operand": lambda: 1j * Tensor([1.0]),
    "an operand of NumPy": lambda: Tensor([1.0]) * np.array([1j]),
    "an exponent": lambda: Tensor([1.0]) ** 1j,
    "a value to fill": lambda: Tensor.full((2,), 1j),  # type: ignore[arg-type]
    "a value to write": lambda: Tensor([1.0, 2.0]).__setitem__(0, 1j),
    "a choice": lambda: Tensor([True]).where(1j, 0.0),
    "the name of a dtype": lambda: Tensor([1.0], dtype="complex64"),
    "a dtype of NumPy": lambda: Tensor([1.0]).cast(np.complex128),  # type: ignore[arg-type]
    "a dtype of PyTorch": lambda: Tensor([1.0], dtype=torch.complex64),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("door", DOORS)
def test_a_complex_number_is_refused_with_the_way_to_bring_it_in(door: str) -> None:
    with pytest.raises(DTypeError, match="pairs of real ones") as caught:
        DOORS[door]()
    assert "torch.view_as_real(z)" in str(caught.value)


def test_pairs_are_what_pytorch_shows_of_complex_numbers() -> None:
    real, imaginary = np.array([1.0, -2.0], np.float32), np.array([0.5, 3.0], np.float32)
    theirs = torch.view_as_real(torch.complex(torch.tensor(real), torch.tensor(imaginary)))
    found = Tensor(real).complex(Tensor(imaginary))
    np.testing.assert_array_equal(found.numpy(), theirs.numpy())
    turned = torch.view_as_real(torch.polar(torch.tensor(real).abs(), torch.tensor(imaginary)))
    np.testing.assert_allclose(
        Tensor(real).abs().polar(Tensor(imaginary)).numpy(), turned.numpy(), rtol=1e-6
    )


def test_views_between_pairs_and_complex_numbers_change_nothing() -> None:
    pairs = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert pairs.view_as_complex().view_as_real().tolist() == pairs.tolist()
    assert not pairs.is_complex()
    with pytest.raises(ShapeError, match="last axis of size 2"):
        Tensor([1.0, 2.0, 3.0]).view_as_complex()
    with pytest.raises(DTypeError, match="needs floats"):
        Tensor([[1, 2]]).view_as_real()


def test_the_imaginary_part_of_a_conjugate_is_negative() -> None:
    theirs = torch.tensor([1j, 2 - 3j]).conj().imag
    assert theirs.is_neg()
    assert Tensor(theirs).tolist() == [-1.0, 3.0]
    assert Tensor.from_dlpack(theirs).tolist() == [-1.0, 3.0]
