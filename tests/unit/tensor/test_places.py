"""Positions of what is not zero."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor
from tilework.tensor import host

SHAPES = [(5,), (0,), (3, 0), (0, 3), (1, 1), (7, 9), (3, 4, 5), (2, 1, 40000), (40000, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_places_are_those_that_numpy_finds(shape: tuple[int, ...], share: float) -> None:
    mask = np.random.default_rng(2).random(shape) < share
    found = Tensor(mask).nonzero()
    assert found.shape == np.argwhere(mask).shape
    assert (found.numpy() == np.argwhere(mask)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mask_of_several_axes_picks_what_numpy_picks(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x, mask = rng.standard_normal(shape).astype(np.float32), rng.random(shape) < 0.4
    assert Tensor(x)[Tensor(mask)].numpy().tobytes() == x[mask].tobytes()


def test_places_beyond_a_chunk_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_CHUNK", 7)
    mask = np.random.default_rng(4).random((9, 5, 3)) < 0.6
    assert (host.places_of_true(mask) == np.argwhere(mask)).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (0,), (2, 3)])
@pytest.mark.parametrize("tail", [(), (4,)])
def test_arrays_without_elements_say_their_shape_as_indices(
    shape: tuple[int, ...], tail: tuple[int, ...]
) -> None:
    x = np.zeros(shape + tail, np.float32)
    for index in (np.zeros(shape, bool), np.zeros((0, 5), np.int64), np.zeros((5, 0), np.int32)):
        assert Tensor(x)[index].shape == x[index].shape
