"""Functions under PyTorch's names give what PyTorch's give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tilework import Tensor
from tilework.base.errors import ShapeError, UserError

RANDOM = np.random.default_rng(4)
VALUES = RANDOM.standard_normal(200).astype(np.float32)
WEIGHTS = RANDOM.random(200).astype(np.float32)
POINTS = RANDOM.standard_normal((100, 2)).astype(np.float32)
PLANES = RANDOM.standard_normal((2, 6, 7, 5)).astype(np.float32)
CHANNELS = np.arange(6, dtype=np.float32)
LINE = np.arange(12, dtype=np.float32)
PAIRS = np.array([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 2.0], [2.0, 1.0]]], np.float32)
FLAT = np.array([[[4.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]], np.float32)

#: What is done, here and there; both get a function that makes a tensor of an array.
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "histogram": (
        lambda t: t(VALUES).histogram(7),
        lambda t: torch.histogram(t(VALUES), 7),
    ),
    "histogram with a range": (
        lambda t: t(VALUES).histogram(5, range=(-1.0, 1.0), weight=t(WEIGHTS)),
        lambda t: torch.histogram(t(VALUES), 5, range=(-1.0, 1.0), weight=t(WEIGHTS)),
    ),
    "density": (
        lambda t: t(VALUES).histogram(t(LINE[:4]), density=True),
        lambda t: torch.histogram(t(VALUES), t(LINE[:4]), density=True),
    ),
    "histogramdd": (
        lambda t: t(POINTS).histogramdd([3, 4])[0],
        lambda t: torch.histogramdd(t(POINTS), [3, 4])[0],
    ),
    "as_strided": (
        lambda t: t(LINE).as_strided((3, 2), (2, 3), 1),
        lambda t: torch.as_strided(t(LINE), (3, 2), (2, 3), 1),
    ),
    "as_strided_scatter": (
        lambda t: t(LINE).as_strided_scatter(t(LINE[:4].reshape(2, 2)), (2, 2), (5, 1)),
        lambda t: torch.as_strided_scatter(t(LINE), t(LINE[:4].reshape(2, 2)), (2, 2), (5, 1)),
    ),
    "cholesky_ex": (
        lambda t: t(PAIRS).cholesky_ex()[1],
        lambda t: torch.linalg.cholesky_ex(t(PAIRS))[1],
    ),
    "inv_ex": (lambda t: t(FLAT).inv_ex()[1], lambda t: torch.linalg.inv_ex(t(FLAT))[1]),
    "solve_ex": (
        lambda t: t(PAIRS).solve_ex(t(FLAT)),
        lambda t: torch.linalg.solve_ex(t(PAIRS), t(FLAT)),
    ),
    "layer_norm": (
        lambda t: t(PLANES).layer_norm((7, 5), t(PLANES[0, 0])),
        lambda t: F.layer_norm(t(PLANES), (7, 5), t(PLANES[0, 0])),
    ),
    "group_norm": (
        lambda t: t(PLANES).group_norm(3, t(CHANNELS), t(CHANNELS)),
        lambda t: F.group_norm(t(PLANES), 3, t(CHANNELS), t(CHANNELS)),
    ),
    "instance_norm": (lambda t: t(PLANES).instance_norm(), lambda t: F.instance_norm(t(PLANES))),
    "triplet_margin_with_distance_loss": (
        lambda t: t(POINTS).triplet_margin_with_distance_loss(
            t(POINTS[::-1].copy()), t(POINTS * 2), swap=True
        ),
        lambda t: F.triplet_margin_with_distance_loss(
            t(POINTS), t(POINTS[::-1].copy()), t(POINTS * 2), swap=True
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_pytorchs_gives(name: str) -> None:
    found, wanted = CASES[name][0](Tensor), CASES[name][1](torch.tensor)
    found, wanted = ((each,) if hasattr(each, "numpy") else each for each in (found, wanted))
    for ours, theirs in zip(found, wanted, strict=False):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("axes", [2, 3])
def test_fractional_windows_lie_where_pytorchs_do(axes: int) -> None:
    x = RANDOM.standard_normal((2, 3, *(7, 9, 8)[:axes])).astype(np.float32)
    samples = RANDOM.random((2, 3, axes)).astype(np.float32)
    name, options = (
        f"fractional_max_pool{axes}d",
        {"output_ratio": (0.5,) * axes, "return_indices": True},
    )
    given = {"_random_samples": Tensor(samples)}
    found, place = getattr(Tensor(x), name)(2, **options, **given)
    theirs = {"_random_samples": torch.tensor(samples)}
    wanted, wanted_place = getattr(F, name)(torch.tensor(x), 2, **options, **theirs)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    np.testing.assert_array_equal(place.numpy(), wanted_place.numpy())


def test_shapes_are_broadcast_together() -> None:
    assert Tensor.broadcast_shapes((2, 1), 3, (1, 1, 1)) == (1, 2, 3)
    with pytest.raises(ShapeError, match="don't fit"):
        Tensor.broadcast_shapes((2,), (3,))


def test_a_strided_reading_stays_inside() -> None:
    with pytest.raises(ShapeError, match="outside"):
        Tensor(LINE).as_strided((4, 4), (3, 1))
    with pytest.raises(ShapeError, match="make no sense"):
        Tensor(LINE).as_strided((2,), (-1,))


def test_errors_of_decompositions_are_raised_when_asked_for() -> None:
    with pytest.raises(UserError, match="cholesky_ex"):
        Tensor(PAIRS).cholesky_ex(check_errors=True)


def test_random_numbers_are_written_in_place() -> None:
    trials = Tensor.zeros(20_000).geometric_(0.3).numpy()
    assert trials.min() == 1
    assert trials.mean() == pytest.approx(1 / 0.3, rel=0.05)
    drawn = Tensor.zeros(1000).random_(3, 5).numpy()
    assert set(drawn.tolist()) == {3.0, 4.0}
    assert abs(np.median(Tensor.zeros(20_000).cauchy_(2.0).numpy()) - 2.0) < 0.1
    logarithms = Tensor.zeros(20_000).log_normal_(0.5, 1.0).log().numpy()
    assert logarithms.mean() == pytest.approx(0.5, abs=0.05)


def test_further_names_write_in_place() -> None:
    x = Tensor([-1.0, 2.0])
    x.absolute_()
    x.multiply_(3)
    x.subtract_(1, alpha=2)
    assert x.tolist() == [1.0, 4.0]
